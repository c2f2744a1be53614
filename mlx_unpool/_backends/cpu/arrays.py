"""Small array operations that several modules of this package use.

Shapes of arrays are written out, never -1: MLX works that out again inside ``mx.vmap``, and cannot if there
are no examples.
"""

from __future__ import annotations

from math import prod

import mlx.core as mx

_ALONG = ((1, -1, 1, 1, 1), (1, 1, -1, 1, 1), (1, 1, 1, -1, 1))
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
    """The same array, which ``mx.compile`` fuses with nothing that is made of it.

    What MLX's compiler fuses on the CPU becomes one loop over strides that are known at run time only,
    unless all of its inputs are contiguous. No C++ compiler vectorises that; MLX's own loops are vectors.
    Each fused text also takes a C++ compiler half a second and more. Fusion stops at what is not
    arithmetic, and axes in the order that they have take no time. (:func:`mx.contiguous` would be the
    function for this, but cannot be exported.)
    """
    return x.transpose(_SAME_AXES[x.ndim])


def repeated(x: mx.array, shape: tuple[int, ...]) -> mx.array:
    """``x`` broadcast to ``shape``, which ``mx.compile`` does not fuse with what is made of it."""
    return x if x.shape == shape else unfused(mx.broadcast_to(x, shape))


def gathered(x: mx.array, source: mx.array) -> mx.array:
    """The elements of ``x`` at ``source``, positions in (B, D, H, W): (..., 1), or (..., C) by channel."""
    channels = x.shape[4]
    if channels < 16 or source.shape[4] > 1:
        source = source * channels + mx.arange(channels)
        flat = mx.take_along_axis(x.flatten(), source.flatten(), axis=0)
    else:
        flat = mx.take(x.reshape(x.size // channels, channels), source.flatten(), axis=0)
    return flat.reshape(*source.shape[:4], channels)


def gathered_along(x: mx.array, axis: int, rows: mx.array) -> mx.array:
    """The given rows of an axis, (B, D, H, W, 1 or C) with 1 for other axes."""
    source = mx.arange(x.shape[0], dtype=position_dtype(x)).reshape(-1, 1, 1, 1, 1)
    for other, length in enumerate(x.shape[1:4]):
        here = rows if other == axis else along(other, mx.arange(length))
        source = source * length + here
    return gathered(x, source)


def position_dtype(x: mx.array) -> mx.Dtype:
    """A signed dtype for the number of any element of ``x``."""
    return mx.int32 if prod(x.shape) < 2**31 else mx.int64
