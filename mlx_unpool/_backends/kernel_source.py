"""The source of the GPU kernels in ``metal/``: one kernel body per file, helpers in headers."""

from __future__ import annotations

import functools
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent
# An installed package contains the folder; in a checkout it is next to the package.
_FOLDER = _PACKAGE / "_metal"
if not _FOLDER.is_dir():
    _FOLDER = _PACKAGE.parent / "metal"


@functools.cache
def text(name: str) -> str:
    """The contents of one file, for example ``pool.metal`` or ``windows.h``."""
    try:
        return (_FOLDER / name).read_text(encoding="utf-8")
    except OSError as error:  # also if the package is imported from a zip file
        raise RuntimeError(
            f"[mlx_unpool] the kernel file '{name}' is missing from this installation ({_FOLDER}). "
            "Install mlx_unpool again, or run on the CPU inside mlx_unpool.use_backend('ops')."
        ) from error
