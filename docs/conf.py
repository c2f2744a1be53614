"""Sphinx builds the site with these settings (`make docs`).

The source folder is the repository, so that relative links between its files work on the site too.
"""

from __future__ import annotations

import inspect
import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

import mlx_unpool

project = "mlx_unpool"
author = "The mlx_unpool maintainers"
version = release = mlx_unpool.__version__

root_doc = "README"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/reference/*.rst",
    "benchmarks/*.md",
    "examples/*.md",
    "examples/deploy/*.md",
    "examples/notebooks/*.ipynb",
]
exclude_patterns = [".*", "*/.*", "site", "demo", "dist", "build"]
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinxext.opengraph",
]
templates_path = [str(Path(__file__).parent / "_templates")]  # autosummary looks elsewhere
html_theme = "furo"
html_title = f"mlx_unpool {version}"
html_favicon = "icon.svg"
html_logo = "icon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
html_scaled_image_link = False
# Colours of code for the light and for the dark scheme.
pygments_style = "default"
pygments_dark_style = "github-dark"

# The description of a page, for search engines and link previews, is its first sentences.
ogp_site_url = ""
ogp_site_name = project
ogp_enable_meta_description = True
ogp_social_cards = {"enable": False}

myst_enable_extensions = ["alert"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # a test executes the notebooks
nb_merge_streams = True
copybutton_prompt_text = ">>> "

# The list of arguments has the types; a signature with names and defaults alone fits into two lines.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_context = {
    "descriptions": {
        name: inspect.getdoc(getattr(mlx_unpool, name)).partition("\n")[0].replace("`", "")
        for name in mlx_unpool.__all__
    }
}
napoleon_use_rtype = False
napoleon_preprocess_types = True
napoleon_custom_sections = ["Shape"]
napoleon_type_aliases = {
    "array": ":class:`array <mlx.core.array>`",
    "Dtype": ":class:`Dtype <mlx.core.Dtype>`",
    "Stream": ":class:`Stream <mlx.core.Stream>`",
    "Device": ":class:`Device <mlx.core.Device>`",
    "Module": ":class:`Module <mlx.nn.Module>`",
}

# Builds have no network, so these files list the names that pages refer to.
intersphinx_mapping = {
    "mlx": ("https://ml-explore.github.io/mlx/build/html/", "docs/inventories/mlx.txt"),
    "numpy": ("https://numpy.org/doc/stable/", "docs/inventories/numpy.txt"),
}
PREFIXES = {"mx.": "mlx.core.", "nn.": "mlx.nn.", "np.": "numpy."}

CONTENTS = """
```{toctree}
:hidden:
:caption: Learn

examples/notebooks/first_tour
examples/notebooks/segmentation_2d
examples/notebooks/volumes_3d
examples/README
docs/zoo
```

```{toctree}
:hidden:
:caption: How to

docs/replace_mlx_nn
docs/porting
docs/indices_and_sizes
docs/export
examples/deploy/README
```

```{toctree}
:hidden:
:caption: Reference

docs/api
docs/gradients
docs/reliability
docs/benchmarks
```

```{toctree}
:hidden:
:caption: Project

CHANGELOG
CONTRIBUTING
docs/kernels
benchmarks/MLX_NN
"""


def setup(app: Any) -> None:
    """Connect the functions below; Sphinx calls this."""
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-docstring", index_arguments, priority=900)  # after napoleon
    app.connect("build-finished", remove_stubs)
    app.add_transform(LinkNamesInCode)


def add_contents(app: Any, docname: str, source: list[str]) -> None:
    """Add the table of contents to the README, which is the first page of the site."""
    if docname == root_doc:
        source[0] += f"{CONTENTS}```\n"


def remove_stubs(app: Any, error: Exception | None) -> None:
    """Remove the pages that autosummary wrote into the source folder."""
    shutil.rmtree(Path(__file__).parent / "reference", ignore_errors=True)


indexed: set[tuple[str, str]] = set()  # pages and names with index entries


def index_arguments(
    app: Any, what: str, name: str, described: Any, options: Any, lines: list[str]
) -> None:
    """Add the arguments to the index, so that a search for `output_size` finds the functions that take it."""
    # A class has two docstrings, its own and that of __init__, which become one text.
    place = (app.env.docname, name)
    if what not in ("class", "function", "method") or place in indexed:
        return
    indexed.add(place)
    names = set(inspect.signature(described).parameters) - {"self", "x", "stream"}
    if what == "class" and "Unpool" in name:
        names.add("unpool")
    # "!" marks the entries that a search lists first.
    first = "! " if name.lower().startswith("mlx_unpool.max") else ""
    entries = [f"   {first}single: {argument}" for argument in sorted(names)]
    if entries:
        # After the text: autosummary takes the first paragraph as the description.
        lines += ["", ".. index::", *entries]


class LinkNamesInCode(SphinxTransform):
    """Link names in code font, such as `mx.grad` and `max_pool2d`, to their pages.

    Pages and docstrings therefore need no markup for links and stay readable outside the site.
    """

    default_priority = 500  # before references are resolved

    def apply(self, **_: Any) -> None:
        for literal in list(self.document.findall(nodes.literal)):
            if isinstance(literal.parent, addnodes.pending_xref | nodes.reference):
                continue
            if any(isinstance(above, nodes.title) for above in ancestors(literal)):
                continue
            name = re.sub(r"\(.*\)$", "", literal.astext())
            for prefix, module in PREFIXES.items():
                if name.startswith(prefix):
                    name = module + name.removeprefix(prefix)
            if name.partition(".")[0] in mlx_unpool.__all__:
                name = f"mlx_unpool.{name}"
            if not re.fullmatch(r"(mlx|numpy|mlx_unpool)(\.\w+)+", name):
                continue
            link = addnodes.pending_xref(
                refdomain="py", reftype="obj", reftarget=name, refdoc=self.env.docname
            )
            literal.replace_self(link)
            link += literal


def ancestors(node: Any) -> Any:
    """All nodes that contain a node."""
    while node.parent is not None:
        node = node.parent
        yield node
