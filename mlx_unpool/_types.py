"""Dtypes, index formats, data formats and the types of arguments.

A *flat* index is the number ``(d*H + h)*W + w`` of a position in the plane that was pooled. A
*window* index is the row-major offset inside the window. uint8 and uint16 arrays contain window
indices, arrays of other integer types flat indices, unless ``index_format`` says otherwise (see
``in_dtype_of``).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal, NamedTuple, get_args

import mlx.core as mx

from ._geometry import Triple

IntOrTuple = int | Sequence[int]
Padding = int | Sequence[int | Sequence[int]] | Literal["same", "valid"]
Stream = mx.Stream | mx.ThreadLocalStream | mx.Device | mx.DeviceType | None

# What a pool returns: an array, or with return_indices a pair of arrays. Which one depends on a
# mutable attribute, so the type includes Any, with which type checkers accept either use.
ArrayOrPair = mx.array | Any
Arrays = Sequence[mx.array]
Pair = tuple[mx.array, mx.array]  # of values and indices

BackendName = Literal["ops", "metal", "cuda"]
Rule = Literal["last", "sum"]  # for several values with one index
DataFormat = Literal["channels_last", "channels_first"]
IndexFormat = Literal["flat", "window"]
ConvertibleFormat = Literal[  # "pytorch" is another name for "flat"
    "flat", "window", "tensorflow", "tensorflow_batch", "onnx", "onnx_column_major", "pytorch"
]

BACKENDS, DATA_FORMATS = get_args(BackendName), get_args(DataFormat)
INDEX_FORMATS, CONVERTIBLE_FORMATS = get_args(IndexFormat), get_args(ConvertibleFormat)


class DtypeTraits(NamedTuple):
    """The integer dtypes of the same size, for bit operations, and the dtype of sums."""

    unsigned: mx.Dtype
    signed: mx.Dtype
    accumulation: mx.Dtype


# Every supported dtype of values. Indices may have any of the integer dtypes.
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

LARGEST_AXIS = 2**31 - 1  # MLX stores the length of an axis in 32 bits
MAX_WINDOW_INDICES = 2**16


def is_float(dtype: mx.Dtype) -> bool:
    """Whether this is a floating-point dtype, whose values may be NaN."""
    return dtype in _FLOATS


def is_window(dtype: mx.Dtype) -> bool:
    """Whether indices of this dtype are offsets inside the window."""
    return dtype in (mx.uint8, mx.uint16)


def format_of(dtype: mx.Dtype) -> IndexFormat:
    """The format of indices of this dtype, unless ``index_format`` says otherwise."""
    return "window" if is_window(dtype) else "flat"


def flat_dtype(size: Triple) -> mx.Dtype:
    """The dtype of flat indices into a plane of ``size``."""
    return mx.int32 if prod(size) <= 2**31 - 1 else mx.int64


def window_dtype(elements: int) -> mx.Dtype:
    """The dtype of window indices for windows of ``elements`` elements, at most 65,536."""
    return mx.uint8 if elements <= 2**8 else mx.uint16
