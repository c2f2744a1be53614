"""The text of the GPU kernels, read from ``metal/``: one body a file, helpers in headers."""

from __future__ import annotations

import functools
from pathlib import Path

_PACKAGE = Path(__file__).parent
# In an installed package the folder lies inside it, in a checkout beside it.
_FOLDER = _PACKAGE / "_metal"
if not _FOLDER.is_dir():
    _FOLDER = _PACKAGE.parent / "metal"


@functools.cache
def text(name: str) -> str:
    """The contents of one file, ``pool.metal`` or ``windows.h`` for instance."""
    try:
        return (_FOLDER / name).read_text(encoding="utf-8")
    except OSError as error:  # also if the package is imported from a zip file
        raise RuntimeError(
            f"[mlx_unpool] the kernel file '{name}' is missing from this installation ({_FOLDER}). Install "
            "mlx_unpool again; until then mlx_unpool.use_backend('ops') runs on the CPU."
        ) from error
