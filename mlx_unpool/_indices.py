"""The library's two index formats: what an index says, and which dtype carries it.

A *flat* index is the number ``(d*H + h)*W + w`` of a place in the plane that was pooled. A *window*
index is the row-major number of a tap inside the window. uint8 and uint16 arrays hold window indices,
arrays of every other integer type flat ones.
"""

from __future__ import annotations

from math import prod

import mlx.core as mx

from . import _arguments
from ._geometry import Triple, Window

INDEX_FORMATS = ("flat", "window")


def is_window(dtype: mx.Dtype) -> bool:
    """Whether indices of this dtype are offsets inside the window."""
    return dtype in _arguments.WINDOW_INDEX_DTYPES


def flat_dtype(size: Triple) -> mx.Dtype:
    """The dtype of flat indices into a plane of ``size``."""
    return mx.int32 if prod(size) <= 2**31 - 1 else mx.int64


def window_dtype(owner: str, window: Window) -> mx.Dtype:
    """The dtype of window indices."""
    if window.taps > 2**16:
        raise ValueError(
            f"[{owner}] 'index_format' must be 'flat' for windows of more than {2**16} taps but got "
            f"'window' and {window.taps} taps."
        )
    return mx.uint8 if window.taps <= 2**8 else mx.uint16
