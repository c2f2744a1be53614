"""Sphinx builds the site with these settings (`make docs`).

The source folder is the repository, so that relative links between its files work on the site too.
"""

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.project import Project
from sphinx.transforms import SphinxTransform
from sphinx.util.nodes import traverse_parent

import mlx_unpool

FOLDER = Path(__file__).parent
sys.path.append(str(FOLDER))
import write_api  # noqa: E402

project = "mlx_unpool"
REPOSITORY = "https://github.com/mlx-unpool/mlx-unpool"
author = "The mlx_unpool maintainers"
version = release = mlx_unpool.__version__

root_doc = "index"  # README.md, see below
include_patterns = ["*.md", "docs/reference/*", "examples/notebooks/*.ipynb"]
for folder in ("docs", "metal", "examples", "examples/deploy", "tests/metal"):
    include_patterns.append(f"{folder}/*.md")
exclude_patterns = [".*", "*/.*", "site", "demo", "dist", "build"]
extensions = ["myst_nb", "sphinx_copybutton", "sphinxext.opengraph"]
for part in ("autodoc", "autosummary", "intersphinx", "napoleon", "viewcode"):
    extensions.append(f"sphinx.ext.{part}")
html_theme = "furo"
html_title = f"mlx_unpool {version}"
html_baseurl = ogp_site_url = "https://mlx-unpool.github.io/mlx-unpool/"
html_favicon = html_logo = "icon.svg"
html_static_path, html_css_files = ["_static"], ["site.css"]
html_theme_options = {
    "source_edit_link": "set by link_source",
    "footer_icons": [
        {"name": "GitHub", "url": REPOSITORY, "html": (FOLDER / "_static/github.svg").read_text()}
    ],
}
html_show_copyright = html_copy_source = html_scaled_image_link = False
pygments_style, pygments_dark_style = "default", "github-dark"

ogp_site_name = project
ogp_enable_meta_description = True  # the first sentences of the page
ogp_image, ogp_image_alt = "_images/hero.png", "Digits, segmented by a network that unpools"
ogp_social_cards = {"enable": False}

myst_enable_extensions, myst_heading_anchors = ["alert"], 3
nb_execution_mode = "off"  # a test executes the notebooks
nb_merge_streams = True
copybutton_prompt_text = ">>> "

autodoc_typehints = "none"  # the list of arguments has them
autosummary_generate = False
napoleon_use_rtype = False
napoleon_preprocess_types = True
napoleon_custom_sections = ["Shape"]
napoleon_type_aliases = {
    name: f":class:`mlx.core.{name}`" for name in ("array", "Dtype", "Stream", "Device")
} | {"Module": ":class:`mlx.nn.Module`"}

# Builds have no network, so these files list the names that pages refer to.
intersphinx_mapping = {
    "mlx": ("https://ml-explore.github.io/mlx/build/html/", "docs/inventories/mlx.txt"),
    "numpy": ("https://numpy.org/doc/stable/", "docs/inventories/numpy.txt"),
}
PREFIXES = {"mx.": "mlx.core.", "nn.": "mlx.nn.", "np.": "numpy."}
GITHUB = f"""
```{{toctree}}
:hidden:
:caption: GitHub

Repository <{REPOSITORY}>
Report a bug or results <{REPOSITORY}/issues/new/choose>
```
"""
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
    "## Errors and wrong results\n": "! error",
    "# The model zoo\n": "! segnet, ! enet, ! quicknat, ! fastsurfer",
    "# Fine-tune a model\n": "! finetune, ! fine-tuning",
    "### Weights of Keras\n": "! keras",
}


def setup(app: Any) -> None:
    """Connect the functions below."""
    path2doc = Project.path2doc
    Project.path2doc = lambda *args: {"README": "index"}.get(path2doc(*args), path2doc(*args))
    app.connect("builder-inited", lambda _: write_api.write_pages_of_the_site())
    app.connect("source-read", change_page)
    app.connect("autodoc-process-docstring", complete_docstring, priority=400)  # before napoleon
    app.connect("html-page-context", link_source)
    app.connect("build-finished", lambda *_: shutil.rmtree(FOLDER / "reference"))
    app.add_transform(LinkNamesInCode)


def change_page(app: Any, docname: str, source: list[str]) -> None:
    """Add what only the site has: contents, a page for each public name, and words for the search."""
    if docname == root_doc:
        pages = (FOLDER / "README.md").read_text().split("\n## ")[1:]
        pages[-1] += "- [All pages](README.md)\n"
        source[0] += "".join(map(contents, pages)) + GITHUB
    if docname == "docs/api":
        source[0] = write_api.page(write_api.table_of_the_site)
    if docname == "docs/zoo_api":
        source[0] = write_api.pages_of_the_zoo()["zoo_api"]
    # Entries of api.md are separate pages.
    source[0] = re.sub(r"\(api\.md#(\w+)\)", r"(reference/mlx_unpool.\1.rst)", source[0])
    source[0] = re.sub(r"\(zoo_api\.md#\w+\)", "(zoo_api.md)", source[0])
    for heading, words in SEARCHES.items():
        source[0] = source[0].replace(heading, f"{heading}\n```{{index}} {words}\n```\n")
    source[0] = source[0].replace("## Dtypes\n", "(dtypes)=\n## Dtypes\n")  # for docstrings


def link_source(app: Any, docname: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Set the link "edit this page". The source of a generated page is a file with docstrings."""
    stem, name = docname, docname.rpartition("/")[2].removeprefix("mlx_unpool.")
    if docname.startswith("docs/reference/zoo_"):
        stem = f"examples/zoo/mlx_unpool_zoo/{name.removeprefix('zoo_')}"
    elif docname.startswith("docs/reference/"):
        stem = getattr(mlx_unpool, name).__module__.replace(".", "/")
    paths = (f"{stem}.md", f"{stem}.ipynb", f"{stem}.py", f"{stem}/__init__.py", "README.md")
    path = next(path for path in paths if (FOLDER.parent / path).is_file())
    context["theme_source_edit_link"] = f"{REPOSITORY}/edit/main/{path}"


def complete_docstring(app: Any, kind: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Add the sections that the docstring of a 1-D or 3-D function refers to."""
    if kind == "function":
        lines[:] = write_api.docstring(thing).splitlines()


def contents(section: str) -> str:
    """A part of docs/README.md as a table of contents."""
    caption = section.partition("\n")[0]
    paths = re.findall(r"^- \[.*?\]\((.*?)\.\w+\)", section, re.MULTILINE)
    entries = "\n".join(path[3:] if path.startswith("../") else f"docs/{path}" for path in paths)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


class LinkNamesInCode(SphinxTransform):
    """Link names in code font, such as `mx.grad` and `max_pool2d`, to their pages.

    Pages and docstrings therefore need no markup for links and stay readable outside the site.
    """

    default_priority = 500  # before references are resolved

    def apply(self, **_: Any) -> None:
        for literal in list(self.document.findall(nodes.literal)):
            if traverse_parent(literal, (pending_xref, nodes.reference, nodes.title)):
                continue
            name = re.sub(r"\(.*\)$", "", literal.astext())
            for prefix, module in PREFIXES.items():
                name = re.sub(rf"^{re.escape(prefix)}", module, name)
            if name.partition(".")[0] in mlx_unpool.__all__:
                name = f"mlx_unpool.{name}"
            if re.fullmatch(r"(mlx|numpy|mlx_unpool)(\.\w+)+", name):
                link = pending_xref("", refdomain="py", reftype="obj", reftarget=name)
                link["refdoc"] = self.env.docname
                literal.replace_self(link)
                link += literal
