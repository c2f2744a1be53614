"""Array operations that several modules of this package use.

A *row* is all elements of an array at one position of an axis.
"""

from __future__ import annotations

from math import prod

import mlx.core as mx

from ..._types import LARGEST_AXIS

# From here on mx.arange has wrong lengths, because it calculates with doubles.
LARGEST_RANGE = 2**53
_ALONG = ((1, -1, 1, 1, 1), (1, 1, -1, 1, 1), (1, 1, 1, -1, 1))
_BEFORE = tuple((slice(None),) * (axis + 1) for axis in range(3))  # slices of preceding axes
_SAME_AXES = tuple(tuple(range(n)) for n in range(9))


def along(axis: int, x: mx.array) -> mx.array:
    """A vector as an array (B, D, H, W, C) that varies along one spatial axis."""
    return x.reshape(_ALONG[axis])


def narrowest(largest: int) -> mx.Dtype:
    """The narrowest unsigned dtype for numbers up to ``largest``."""
    if largest < 2**16:
        return mx.uint8 if largest < 2**8 else mx.uint16
    return mx.uint32 if largest < 2**32 else mx.uint64


def unfused(x: mx.array) -> mx.array:
    """Return a view across which ``mx.compile`` does not fuse.

    On the CPU, MLX's compiler turns fused operations into one loop over run-time strides unless all
    inputs are contiguous. C++ compilers do not vectorise that loop, while MLX's own loops are
    vectorised. Compiling fused source also takes half a second or more. Fusion stops at any
    operation that is not arithmetic; a transpose that keeps the order of the axes takes no time.
    (``mx.contiguous`` cannot be exported.)
    """
    return x.transpose(_SAME_AXES[x.ndim])


def constant(n: int, dtype: mx.Dtype = mx.int32) -> mx.array:
    """An array (1,) of one number that ``dtype`` can represent; see the start of this package."""
    if abs(n) < LARGEST_RANGE:
        return mx.arange(n, n + 1, dtype=dtype)
    return mx.array([n, n], dtype)[:1]


def repeated(x: mx.array, shape: tuple[int, ...]) -> mx.array:
    """``x`` broadcast to ``shape``, as a view across which ``mx.compile`` does not fuse."""
    return x if x.shape == shape else unfused(mx.broadcast_to(x, shape))


def rows(x: mx.array, axis: int, start: int, stride: int, count: int) -> mx.array:
    """``count`` rows of an axis, ``stride`` apart."""
    if start == 0 and count == x.shape[axis + 1]:
        return x
    selected: slice | mx.array = slice(start, start + (count - 1) * stride + 1, stride)
    if count * stride > LARGEST_AXIS:  # MLX computes the length of a slice in 32 bits
        selected = mx.arange(start, start + count * stride, stride, dtype=mx.uint32)
    return x[(*_BEFORE[axis], selected)]


def added(x: mx.array, y: mx.array) -> mx.array:
    """The sum of arrays that broadcast.

    ``mx.compile`` passes a broadcast and a sum to a C++ compiler.
    """
    shape = mx.broadcast_shapes(x.shape, y.shape)
    return unfused(repeated(x, shape) + repeated(y, shape))


def gathered(x: mx.array, source: mx.array) -> mx.array:
    """The elements of ``x`` at row-major positions in (B, D, H, W).

    ``source``, the array of positions, has one or C channels.
    """
    channels = x.shape[4]
    if channels < 16 or source.shape[4] > 1:
        element = unfused(source) * repeated(constant(channels, source.dtype), source.shape)
        source = added(element, mx.arange(channels, dtype=source.dtype))
        flat = mx.take_along_axis(x.flatten(), source.flatten(), axis=0)
    else:
        flat = mx.take(x.reshape(x.size // channels, channels), source.flatten(), axis=0)
    return flat.reshape(*source.shape[:4], channels)


def gathered_along(x: mx.array, axis: int, rows: mx.array) -> mx.array:
    """``x`` at the given rows of one axis.

    ``rows`` has the shape of ``x``, but may be 1 on other axes.
    """
    source = mx.arange(x.shape[0], dtype=position_dtype(x)).reshape(-1, 1, 1, 1, 1)
    for other, length in enumerate(x.shape[1:4]):
        here = rows if other == axis else along(other, mx.arange(length))
        source = source * constant(length, source.dtype) + here
    return gathered(x, source)


def position_dtype(x: mx.array) -> mx.Dtype:
    """A signed integer dtype that can index every element of ``x``."""
    return mx.int32 if prod(x.shape) < 2**31 else mx.int64
