"""Settings of the site (`make docs`).

Its source folder is the repository, so that relative links work.
"""

import inspect
import re
import shutil
from pathlib import Path
from typing import Any

import mlx_unpool_zoo
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.project import Project
from sphinx.util.nodes import traverse_parent

import mlx_unpool
import mlx_unpool.porting

FOLDER = Path(__file__).parent

project = "mlx_unpool"
root_doc = "index"  # README.md, see below
include_patterns = ["*.md", "docs/*.md", "docs/reference/*", "metal/*.md", "tests/metal/*.md"]
include_patterns += ["examples/*.md", "examples/notebooks/*.ipynb"]
exclude_patterns = [".*", "*/.*", "site", "demo", "dist", "build"]
extensions = ["myst_nb", "sphinx_copybutton", "sphinxext.opengraph"]
PARTS = "autodoc autosummary intersphinx napoleon viewcode"
extensions += [f"sphinx.ext.{part}" for part in PARTS.split()]
html_theme, html_theme_options = "furo", {"top_of_page_buttons": []}
html_title = f"mlx_unpool {mlx_unpool.__version__}"
html_baseurl = ogp_site_url = "https://mlx-unpool.github.io/mlx-unpool/"
html_favicon = html_logo = "icon.svg"
html_static_path, html_css_files, html_extra_path = ["_static"], ["site.css"], ["../llms.txt"]
html_domain_indices = html_show_copyright = html_copy_source = html_scaled_image_link = False

ogp_enable_meta_description = True  # the first sentences of the page
ogp_image, ogp_image_alt = (
    "_images/hair.png",
    "Hair in a photograph, found by a network that unpools",
)
ogp_social_cards = {"enable": False}

myst_enable_extensions, myst_heading_anchors = ["alert"], 3
nb_execution_mode, nb_merge_streams = "off", True  # a test executes the notebooks
copybutton_prompt_text = ">>> "

templates_path = [str(FOLDER / "_templates")]
autosummary_generate = ["docs/_templates/roots.rst"]  # with page.rst: docs/reference
shutil.rmtree(FOLDER / "reference", ignore_errors=True)  # pages of names that are gone
autosummary_ignore_module_all, autosummary_imported_members = False, True
README = (FOLDER / "README.md").read_text()
PACKAGES = (mlx_unpool, mlx_unpool.porting, mlx_unpool_zoo)
PUBLIC = {f"{p.__name__}.{name}": getattr(p, name) for p in PACKAGES for name in p.__all__}
autosummary_context = {  # names in the first column of its tables, and methods in the second
    "names": re.findall(r"\w+", " ".join(re.findall(r"^\| (`.*?`) \|", README, re.MULTILINE))),
    "shown": ["__call__", *re.findall(r"`\.(\w+)", README)],
    "about": {
        name: inspect.getdoc(thing).split("\n\n")[0].split() for name, thing in PUBLIC.items()
    },
}
autodoc_typehints, autodoc_typehints_description_target = "description", "documented"
autodoc_member_order = "bysource"
napoleon_use_ivar, napoleon_custom_sections = True, ["Shape"]

# Builds have no network, so these files list the names that pages refer to.
intersphinx_mapping = {
    "mlx": ("https://ml-explore.github.io/mlx/build/html/", "docs/inventories/mlx.txt"),
    "numpy": ("https://numpy.org/doc/stable/", "docs/inventories/numpy.txt"),
}
NAMES = {"mx": "mlx.core", "nn": "mlx.nn", "np": "numpy"}  # as pages write them
NAMES |= {name: name for name in ("mlx", "numpy", "mlx_unpool", "mlx_unpool_zoo")}
NAMES |= {name.rpartition(".")[2]: name for name in PUBLIC}


def setup(app: Any) -> None:
    """Connect the functions below."""
    path2doc = Project.path2doc
    Project.path2doc = lambda *args: {"README": "index"}.get(path2doc(*args), path2doc(*args))
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-docstring", add_arguments, priority=400)  # before napoleon
    app.connect("doctree-read", link_names)


def add_contents(app: Any, docname: str, source: list[str]) -> None:
    """Add the sections of docs/README.md to the first page, as tables of contents."""
    if docname != root_doc:
        return
    for section in README.partition("\n## The API")[0].split("\n## ")[1:]:
        caption = section.partition("\n")[0]
        pages = ["docs/README", *(f"docs/reference/{package.__name__}" for package in PACKAGES)]
        entries = pages * (caption == "Reference")
        for title, path in re.findall(
            r"^- \[(.*?)\]\(([^#].*?)(?:\.\w+)?\)", section, re.MULTILINE
        ):
            entries.append(f"{title} <{path}>" if "://" in path else f"docs/{path}")
        source[0] += "\n".join(
            ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *entries, "```", ""]
        )


def add_arguments(
    app: Any, kind: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Add the docstring of ``__init__``, after its first line, to the summary of a layer."""
    words, text = "``__init__`` for the arguments; ", "\n".join(lines)
    if kind == "class" and words in text:
        summary, _, rest = text.replace(words, "").partition("\n\n")
        arguments = inspect.getdoc(thing.__init__).partition("\n\n")[2]
        lines[:] = f"{summary}\n\n{arguments}\n\n{rest}".splitlines()


def link_names(app: Any, doctree: nodes.document) -> None:
    """Link names in code font, such as `mx.grad` and `max_pool2d`.

    Pages need no markup for these links.
    """
    for literal in list(doctree.findall(nodes.literal)):
        first, dot, rest = literal.astext().partition("(")[0].partition(".")
        target = NAMES.get(first, "") + dot + rest
        inside = any(traverse_parent(literal, (pending_xref, nodes.reference, nodes.title)))
        if first in NAMES and "." in target and not inside:
            link = pending_xref(
                "", refdomain="py", reftype="obj", reftarget=target, refdoc=app.env.docname
            )
            literal.replace_self(link)
            link += literal
