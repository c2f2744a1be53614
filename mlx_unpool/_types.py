"""The names of things: dtypes, index formats, data formats, and what a caller may pass.

A *flat* index is the number ``(d*H + h)*W + w`` of a position in the plane that was pooled. A *window*
index is the row-major offset inside the window. uint8 and uint16 arrays hold window indices, arrays of
every other integer type flat ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal, NamedTuple

import mlx.core as mx

from ._geometry import Triple

IntOrTuple = int | Sequence[int]
Stream = mx.Stream | mx.ThreadLocalStream | mx.Device | mx.DeviceType | None

# What a pool returns: an array, or with return_indices a pair of them. A value decides, which no type can
# follow, so a type checker accepts what is right for either.
ArrayOrPair = mx.array | Any

IndexFormat = Literal["flat", "window"]
DataFormat = Literal["channels_last", "channels_first"]

INDEX_FORMATS = ("flat", "window")
DATA_FORMATS = ("channels_last", "channels_first")


class DtypeTraits(NamedTuple):
    """Integer dtypes of the same size, for work on bits, and the dtype of sums."""

    unsigned: mx.Dtype
    signed: mx.Dtype
    accumulation: mx.Dtype


# Every dtype of values. The integer dtypes are those of indices, too.
TRAITS = {
    mx.float32: DtypeTraits(mx.uint32, mx.int32, mx.float32),
    mx.float16: DtypeTraits(mx.uint16, mx.int16, mx.float32),
    mx.bfloat16: DtypeTraits(mx.uint16, mx.int16, mx.float32),
    mx.float64: DtypeTraits(mx.uint64, mx.int64, mx.float64),  # on the CPU only
    mx.int8: DtypeTraits(mx.uint8, mx.int8, mx.int8),
    mx.int16: DtypeTraits(mx.uint16, mx.int16, mx.int16),
    mx.int32: DtypeTraits(mx.uint32, mx.int32, mx.int32),
    mx.int64: DtypeTraits(mx.uint64, mx.int64, mx.int64),
    mx.uint8: DtypeTraits(mx.uint8, mx.int8, mx.uint8),
    mx.uint16: DtypeTraits(mx.uint16, mx.int16, mx.uint16),
    mx.uint32: DtypeTraits(mx.uint32, mx.int32, mx.uint32),
    mx.uint64: DtypeTraits(mx.uint64, mx.int64, mx.uint64),
}
_FLOATS = {dtype for dtype in TRAITS if mx.issubdtype(dtype, mx.floating)}
WINDOW_INDEX_DTYPES = (mx.uint8, mx.uint16)

LARGEST_AXIS = 2**31 - 1  # MLX counts the elements of an axis in 32 bits
MAX_WINDOW_INDICES = 2**16


def is_float(dtype: mx.Dtype) -> bool:
    """Whether values of this dtype may be NaN."""
    return dtype in _FLOATS


def is_window(dtype: mx.Dtype) -> bool:
    """Whether indices of this dtype are offsets inside the window."""
    return dtype in WINDOW_INDEX_DTYPES


def flat_dtype(size: Triple) -> mx.Dtype:
    """The dtype of flat indices into a plane of ``size``."""
    return mx.int32 if prod(size) <= 2**31 - 1 else mx.int64


def window_dtype(elements: int) -> mx.Dtype:
    """The dtype of window indices for windows of so many elements, 65,536 at most."""
    return mx.uint8 if elements <= 2**8 else mx.uint16
