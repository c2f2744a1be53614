"""Texts of errors, and warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path


def cut(names: Sequence[str], count: int = 10, separator: str = ", ") -> str:
    """The first names, which may come from a damaged file, in one line, and how many more there are."""
    more = [f"... and {len(names) - count:,} more"] if len(names) > count else []
    return separator.join([*(n if n.isprintable() else repr(n)[1:-1] for n in names[:count]), *more])


def warn(message: str) -> None:
    """Warn about the line that called this package, through however many of its functions."""
    own, level, frame = str(Path(__file__).parent), 1, sys._getframe()
    while frame.f_back and frame.f_code.co_filename.startswith(own):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
