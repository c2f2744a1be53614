"""Texts of errors, and warnings."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path


def cut(names: Sequence[str], count: int = 10, separator: str = ", ") -> str:
    """The first names, which may come from a damaged file, in one line, and how many more there are."""
    more = [f"... and {len(names) - count:,} more"] if len(names) > count else []
    return separator.join([*(n if n.isprintable() else repr(n)[1:-1] for n in names[:count]), *more])


def warn(message: str) -> None:
    """Warn about the line that called this package, at any depth of calls within it."""
    own, level, frame = f"{Path(__file__).parent}{os.sep}", 1, sys._getframe()
    while frame.f_back and frame.f_code.co_filename.startswith(own):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def pip_install(extra: str) -> str:
    """The command that installs an extra of mlx-unpool.

    On Linux it names the installed build of MLX as well, or that for a CPU, because builds replace each
    other's files.
    """
    if sys.platform == "linux":
        installed = {distribution.metadata["Name"] for distribution in distributions()}
        builds = [build for build in ("cuda13", "cuda12") if f"mlx-cuda-{build[-2:]}" in installed]
        extra = f"{extra},{(*builds, 'cpu')[0]}"
    return f'pip install "mlx-unpool[{extra}] @ git+https://github.com/mlx-unpool/mlx-unpool"'
