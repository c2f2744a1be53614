"""The names of things: dtypes, index formats, data formats, and what a caller may pass.

A *flat* index is the number ``(d*H + h)*W + w`` of a position in the plane that was pooled. A *window*
index is the row-major offset inside the window. uint8 and uint16 arrays hold window indices, arrays of
every other integer type flat ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal, Protocol, overload

import mlx.core as mx

from ._geometry import Triple

IntOrTuple = int | Sequence[int]
Stream = mx.Stream | mx.ThreadLocalStream | mx.Device | mx.DeviceType | None

IndexFormat = Literal["flat", "window"]
DataFormat = Literal["channels_last", "channels_first"]

INDEX_FORMATS = ("flat", "window")
DATA_FORMATS = ("channels_last", "channels_first")

FLOAT_DTYPES = (mx.float32, mx.float16, mx.bfloat16, mx.float64)  # float64 on the CPU alone
INDEX_DTYPES = (
    mx.int8,
    mx.int16,
    mx.int32,
    mx.int64,
    mx.uint8,
    mx.uint16,
    mx.uint32,
    mx.uint64,
)
WINDOW_INDEX_DTYPES = (mx.uint8, mx.uint16)
VALUE_DTYPES = (*FLOAT_DTYPES, *INDEX_DTYPES)

LARGEST_AXIS = 2**31 - 1  # MLX counts the elements of an axis in 32 bits
MOST_WINDOW_INDICES = 2**16


def is_window(dtype: mx.Dtype) -> bool:
    """Whether indices of this dtype are offsets inside the window."""
    return dtype in WINDOW_INDEX_DTYPES


def flat_dtype(size: Triple) -> mx.Dtype:
    """The dtype of flat indices into a plane of ``size``."""
    return mx.int32 if prod(size) <= 2**31 - 1 else mx.int64


def window_dtype(elements: int) -> mx.Dtype:
    """The dtype of window indices for windows of so many elements, 65,536 at most."""
    return mx.uint8 if elements <= 2**8 else mx.uint16


Pooled = mx.array | tuple[mx.array, mx.array]


class MaxPoolFunction(Protocol):
    """What a type checker knows of these functions: with ``return_indices`` they return a pair."""

    @overload
    def __call__(
        self,
        x: mx.array,
        kernel_size: IntOrTuple,
        stride: IntOrTuple | None = None,
        padding: IntOrTuple = 0,
        *,
        dilation: IntOrTuple = 1,
        ceil_mode: bool = False,
        return_indices: Literal[False] = False,
        index_format: IndexFormat = "flat",
        data_format: DataFormat = "channels_last",
        stream: Stream = None,
    ) -> mx.array: ...

    @overload
    def __call__(
        self,
        x: mx.array,
        kernel_size: IntOrTuple,
        stride: IntOrTuple | None = None,
        padding: IntOrTuple = 0,
        *,
        dilation: IntOrTuple = 1,
        ceil_mode: bool = False,
        return_indices: Literal[True],
        index_format: IndexFormat = "flat",
        data_format: DataFormat = "channels_last",
        stream: Stream = None,
    ) -> tuple[mx.array, mx.array]: ...

    @overload
    def __call__(
        self,
        x: mx.array,
        kernel_size: IntOrTuple,
        stride: IntOrTuple | None = None,
        padding: IntOrTuple = 0,
        *,
        dilation: IntOrTuple = 1,
        ceil_mode: bool = False,
        return_indices: bool,
        index_format: IndexFormat = "flat",
        data_format: DataFormat = "channels_last",
        stream: Stream = None,
    ) -> mx.array | tuple[mx.array, mx.array]: ...


class AdaptiveMaxPoolFunction(Protocol):
    """What a type checker knows of these functions: with ``return_indices`` they return a pair."""

    @overload
    def __call__(
        self,
        x: mx.array,
        output_size: int | Sequence[int | None],
        *,
        return_indices: Literal[False] = False,
        data_format: DataFormat = "channels_last",
        stream: Stream = None,
    ) -> mx.array: ...

    @overload
    def __call__(
        self,
        x: mx.array,
        output_size: int | Sequence[int | None],
        *,
        return_indices: Literal[True],
        data_format: DataFormat = "channels_last",
        stream: Stream = None,
    ) -> tuple[mx.array, mx.array]: ...

    @overload
    def __call__(
        self,
        x: mx.array,
        output_size: int | Sequence[int | None],
        *,
        return_indices: bool,
        data_format: DataFormat = "channels_last",
        stream: Stream = None,
    ) -> mx.array | tuple[mx.array, mx.array]: ...


class FractionalMaxPoolFunction(Protocol):
    """What a type checker knows of these functions: with ``return_indices`` they return a pair."""

    @overload
    def __call__(
        self,
        x: mx.array,
        kernel_size: IntOrTuple,
        *,
        output_size: IntOrTuple | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: Literal[False] = False,
        data_format: DataFormat = "channels_last",
        random_samples: mx.array | None = None,
        key: mx.array | None = None,
        stream: Stream = None,
    ) -> mx.array: ...

    @overload
    def __call__(
        self,
        x: mx.array,
        kernel_size: IntOrTuple,
        *,
        output_size: IntOrTuple | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: Literal[True],
        data_format: DataFormat = "channels_last",
        random_samples: mx.array | None = None,
        key: mx.array | None = None,
        stream: Stream = None,
    ) -> tuple[mx.array, mx.array]: ...

    @overload
    def __call__(
        self,
        x: mx.array,
        kernel_size: IntOrTuple,
        *,
        output_size: IntOrTuple | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool,
        data_format: DataFormat = "channels_last",
        random_samples: mx.array | None = None,
        key: mx.array | None = None,
        stream: Stream = None,
    ) -> mx.array | tuple[mx.array, mx.array]: ...
