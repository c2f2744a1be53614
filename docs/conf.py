"""The site, made by Sphinx: `make docs`. Its source is the repository, so links between files just work."""

from __future__ import annotations

from typing import Any

import mlx_unpool

project = "mlx_unpool"
author = "The mlx_unpool maintainers"
version = release = mlx_unpool.__version__

root_doc = "README"
include_patterns = [
    "*.md",
    "docs/*.md",
    "benchmarks/*.md",
    "examples/*.md",
    "examples/deploy/*.md",
    "examples/notebooks/*.ipynb",
]
exclude_patterns = [".*", "*/.*", "site", "demo", "dist", "build"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"mlx_unpool {version}"
html_show_copyright = False
html_copy_source = False

myst_heading_anchors = 3
nb_execution_mode = "off"  # a test executes the notebooks
nb_merge_streams = True
autodoc_typehints_format = "short"
copybutton_prompt_text = ">>> "

CONTENTS = """
```{toctree}
:hidden:
:caption: Learn

examples/notebooks/first_tour
examples/notebooks/segmentation_2d
examples/notebooks/volumes_3d
examples/README
examples/deploy/README
docs/porting
docs/zoo
examples/deploy/README
```

```{toctree}
:hidden:
:caption: Reference

docs/api
docs/transforms
docs/reliability
```

```{toctree}
:hidden:
:caption: Figures

benchmarks/RESULTS
benchmarks/TRAFFIC
benchmarks/ZOO
```

```{toctree}
:hidden:
:caption: Project

CONTRIBUTING
CHANGELOG
```
"""


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("source-read", add_contents)


def add_contents(app: Any, docname: str, source: list[str]) -> None:
    """The README is the first page; elsewhere it is read without a table of contents."""
    if docname == root_doc:
        source[0] += CONTENTS
