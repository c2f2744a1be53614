"""Settings of the site (`make docs`). Its source folder is the repository, so that relative links work."""

import inspect
import pydoc
import re
import shutil
from pathlib import Path
from typing import Any, get_type_hints

import mlx_unpool_zoo
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.project import Project
from sphinx.util.nodes import traverse_parent
from sphinx.util.typing import stringify_annotation

import mlx_unpool

FOLDER = Path(__file__).parent
README = (FOLDER / "README.md").read_text()
PUBLIC = {name: thing.__name__ for thing in (mlx_unpool, mlx_unpool_zoo) for name in thing.__all__}

project = "mlx_unpool"

root_doc = "index"  # README.md, see below
include_patterns = ["*.md", "docs/*.md", "docs/reference/*", "metal/*.md", "tests/metal/*.md"]
include_patterns += ["examples/*.md", "examples/deploy/*.md", "examples/notebooks/*.ipynb"]
exclude_patterns = [".*", "*/.*", "site", "demo", "dist", "build"]
extensions = ["myst_nb", "sphinx_copybutton", "sphinxext.opengraph"]
PARTS = "autodoc autosummary intersphinx napoleon viewcode"
extensions += [f"sphinx.ext.{part}" for part in PARTS.split()]
html_theme, html_theme_options = "furo", {"source_edit_link": "set by link_source"}
html_title = f"mlx_unpool {mlx_unpool.__version__}"
html_baseurl = ogp_site_url = "https://mlx-unpool.github.io/mlx-unpool/"
html_favicon = html_logo = "icon.svg"
html_static_path, html_css_files, html_extra_path = ["_static"], ["site.css"], ["../llms.txt"]
html_domain_indices = html_show_copyright = html_copy_source = html_scaled_image_link = False

ogp_enable_meta_description = True  # the first sentences of the page
ogp_image, ogp_image_alt = "_images/hair.png", "Hair in a photograph, found by a network that unpools"
ogp_social_cards = {"enable": False}

myst_enable_extensions, myst_heading_anchors = ["alert"], 3
nb_execution_mode, nb_merge_streams = "off", True  # a test executes the notebooks
copybutton_prompt_text = ">>> "

templates_path = [str(FOLDER / "_templates")]
autosummary_generate = ["docs/_templates/roots.rst"]  # with page.rst: docs/reference, removed at the end
autodoc_typehints = "description"  # where a docstring has no types
autodoc_member_order = "bysource"
napoleon_use_ivar, napoleon_custom_sections = True, ["Shape"]

# Builds have no network, so these files list the names that pages refer to.
intersphinx_mapping = {
    "mlx": ("https://ml-explore.github.io/mlx/build/html/", "docs/inventories/mlx.txt"),
    "numpy": ("https://numpy.org/doc/stable/", "docs/inventories/numpy.txt"),
}
# Headings of the sections that a search for these words lists first.
SEARCHES = {
    "## Dtypes\n": "! dtype, ! float16, ! bfloat16, ! float64, ! half precision",
    "# mlx_unpool\n": "! install, ! license, ! licence",
    "# Benchmarks\n": "! speed",
    "### Metal\n": "! mac, ! m1",
    "### If a kernel fails\n": "! backend",
    "## Transforms\n": "! vmap, ! compile, ! grad",
    "## Choose an index format\n": "! return_indices",
    "## NHWC or NCHW\n": "! channels_first, ! channels_last",
    "## Pass the size that was pooled\n": "! output_size",
    "# Fine-tune a model\n": "! finetune, ! fine-tuning",
}


def setup(app: Any) -> None:
    """Connect the functions below."""
    path2doc = Project.path2doc
    Project.path2doc = lambda *args: {"README": "index"}.get(path2doc(*args), path2doc(*args))
    app.connect("source-read", change_page)
    app.connect("autodoc-process-docstring", link_docstring, priority=400)  # before napoleon
    app.connect("doctree-read", link_names)
    app.connect("html-page-context", link_source)
    app.connect("build-finished", lambda *_: shutil.rmtree(FOLDER / "reference"))


def entries() -> dict[str, dict[str, str]]:
    """What the template of the reference needs: the names in the tables of docs/README.md, and more."""
    found = {}
    for cell, row in re.findall(r"^\| (`.*?) \|(.*)", README, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", cell):
            thing: Any = pydoc.locate(f"{PUBLIC[name]}.{name}")
            if isinstance(thing, (list, dict)) or thing is mlx_unpool_zoo.About:
                continue  # data
            call = ["__call__"] if isinstance(thing, type) and "Args:" in str(thing.__call__.__doc__) else []
            shared = [] if thing is mlx_unpool_zoo.Model else ["predict", "save_pretrained"]
            if isinstance(thing, type) and issubclass(thing, mlx_unpool_zoo.Model):
                call += shared
            members = call + [member for member in re.findall(r"`\.(\w+)", row) if hasattr(thing, member)]
            summary = re.sub(r":\w+:(?=`)|`", "", inspect.getdoc(thing).partition("\n\n")[0])
            words = re.sub("(?<=[a-z])(?=[A-Z])|_", " ", re.sub(r"\dd$", "", name)).lower()
            about = {"members": ", ".join(members), "summary": " ".join(summary.split()), "words": words}
            found[f"{PUBLIC[name]}.{name}"] = about
    return found


autosummary_context = {"entries": entries()}


def change_page(app: Any, docname: str, source: list[str]) -> None:
    """Add what only the site has: contents, links to the reference, and words for the search."""
    if docname == root_doc:
        source[0] += "".join(map(contents, README.partition("\n## The API")[0].split("\n## ")[1:]))
    # Links to the tables at a glance lead to the reference; link_names links names in code.
    source[0] = re.sub(r"\[(`[^`]+`)\]\([\w./]*#the-\w+-at-a-glance\)", r"\1", source[0])
    for name, page in {"api": "mlx_unpool", "zoo": "mlx_unpool_zoo"}.items():
        link = rf"\(([\w./]*?)(?:README\.md)?#the-{name}-at-a-glance\)"
        source[0] = re.sub(link, rf"(\1reference/{page}.rst)", source[0])
    for heading, words in SEARCHES.items():
        source[0] = source[0].replace(heading, f"{heading}\n```{{index}} {words}\n```\n")


def contents(section: str) -> str:
    """A part of docs/README.md as a table of contents."""
    caption = section.partition("\n")[0]
    entries = ["docs/reference/mlx_unpool", "docs/reference/mlx_unpool_zoo"] * (caption == "Reference")
    for title, path in re.findall(r"^- \[(.*?)\]\(([^#].*?)(?:\.\w+)?\)", section, re.MULTILINE):
        entries.append(f"{title} <{path}>" if "://" in path else f"docs/{path}")
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *entries, "```", ""])


def link_source(app: Any, docname: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Set the link "edit this page". The source of a page of the reference is a file with docstrings."""
    path = app.env.doc2path(docname, base=False) if docname in app.env.found_docs else "README.md"
    if docname.startswith("docs/reference/"):
        thing = pydoc.locate(docname.rpartition("/")[2])
        path = Path(inspect.getsourcefile(inspect.unwrap(thing))).relative_to(FOLDER.parent)
    context["theme_source_edit_link"] = f"https://github.com/mlx-unpool/mlx-unpool/edit/main/{path}"


def link_docstring(app: Any, kind: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Link to pages in a docstring. Add the types of arguments where docstrings have none, in the zoo."""
    text = "\n".join(lines)
    text = re.sub("float64 only on the CPU", r"`\g<0> <../indices_and_sizes.html#dtypes>`__", text)
    text = text.replace("*args, **kwargs:", "args, kwargs:")
    lines[:] = text.replace("page Guarantees", "page :doc:`/docs/guarantees`").splitlines()
    shown = {}  # types without aliases
    if name.startswith("mlx_unpool_zoo.") and callable(thing) and "Attributes:" not in text:
        for argument, hint in get_type_hints(thing.__init__ if kind == "class" else thing).items():
            if not re.search("~|Iterator|NoneType", str(hint)):  # a type variable, a context manager, nothing
                shown[argument] = stringify_annotation(hint, "smart")
    app.env.current_document.autodoc_annotations[name] = shown


def link_names(app: Any, doctree: nodes.document) -> None:
    """Link names in code font, such as `mx.grad` and `max_pool2d`. Pages need no markup for these links."""
    for literal in list(doctree.findall(nodes.literal)):
        name = re.sub(r"\(.*\)$", "", literal.astext())
        for prefix, module in {"mx": "mlx.core", "nn": "mlx.nn", "np": "numpy"}.items():
            name = re.sub(rf"^{prefix}\.", f"{module}.", name)
        if package := PUBLIC.get(name.partition(".")[0]):
            name = f"{package}.{name}"
        inside = any(traverse_parent(literal, (pending_xref, nodes.reference, nodes.title)))
        if re.fullmatch(r"(mlx|numpy|mlx_unpool(_zoo)?)(\.\w+)+", name) and not inside:
            link = pending_xref("", refdomain="py", reftype="obj", reftarget=name, refdoc=app.env.docname)
            literal.replace_self(link)
            link += literal
