"""Texts of errors, and warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence


def cut(names: Sequence[str], count: int = 10, separator: str = ", ") -> str:
    """The first names, which a damaged file may contain, in a line, and how many more there are."""
    shown = [shortened(name) for name in names[:count]]
    if len(names) > count:
        shown.append(f"... and {len(names) - count:,} more")
    return separator.join(shown)


def shortened(text: str, longest: int = 300) -> str:
    """A text in one line, without its end if it is long."""
    if not text.isprintable():
        text = repr(text)[1:-1]
    return text if len(text) <= longest else f"{text[:longest]} ..."


def warn(message: str) -> None:
    """Warn about the line that called mlx_unpool or mlx_unpool_zoo, at any depth within them."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("mlx_unpool"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
