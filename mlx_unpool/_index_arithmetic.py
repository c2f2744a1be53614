"""Conversion between flat and window indices, on folded arrays (B, D, H, W, C)."""

from __future__ import annotations

from math import prod

import mlx.core as mx

from ._geometry import Geometry, WindowGeometry
from ._types import MAX_WINDOW_INDICES, IndexFormat, format_of, window_dtype


def in_dtype_of(index_format: IndexFormat, indices: mx.array, g: Geometry) -> mx.array:
    """The same indices in a dtype of their format, by which backends distinguish the formats.

    Offsets outside the window remain outside.
    """
    if format_of(indices.dtype) == index_format:
        return indices
    if index_format == "flat":
        return indices.astype(mx.int32)
    assert isinstance(g, WindowGeometry)  # offsets without a window raised an error
    if g.window.elements == MAX_WINDOW_INDICES:  # no number of 16 bits would be outside the window
        return positions(indices, g)
    dtype = window_dtype(g.window.elements + 1)
    # As unsigned numbers, negative offsets are too large as well.
    outside = mx.array(mx.iinfo(dtype).max, mx.uint64)
    return mx.minimum(indices.astype(mx.uint64), outside).astype(dtype)


def positions(indices: mx.array, g: WindowGeometry) -> mx.array:
    """The flat indices, as int64, of window indices; -1 if outside the window or the plane."""
    number = indices.astype(mx.int64)
    inside = (number >= 0) & (number < min(g.window.elements, MAX_WINDOW_INDICES))
    _, kh, kw = g.window.kernel
    index = mx.zeros((), mx.int64)
    for axis, offset in enumerate((number // (kh * kw), number // kw % kh, number % kw)):
        position = _starts(g, axis) + offset * g.window.dilation[axis]
        inside = inside & (position >= 0) & (position < g.size[axis])
        index = index * g.size[axis] + position
    return mx.where(inside, index, -1)


def offsets(positions: mx.array, g: WindowGeometry) -> mx.array:
    """The window indices, as int64, of flat indices; -1 for a position outside its own window."""
    _, height, width = g.size
    coordinates = (positions // (height * width), positions // width % height, positions % width)
    found = (positions >= 0) & (positions < prod(g.size))
    index = mx.zeros((), mx.int64)
    for axis, x in enumerate(coordinates):
        ahead = x - _starts(g, axis)
        offset = ahead // g.window.dilation[axis]
        found = found & (ahead % g.window.dilation[axis] == 0)
        found = found & (offset >= 0) & (offset < g.window.kernel[axis])
        index = index * g.window.kernel[axis] + offset
    return mx.where(found, index, -1)


def _starts(g: WindowGeometry, axis: int) -> mx.array:
    """The start of each window on an axis."""
    shape = [-1 if a == axis + 1 else 1 for a in range(5)]
    starts = mx.arange(g.pooled[axis], dtype=mx.int64) * g.window.stride[axis]
    return (starts - g.window.padding[axis]).reshape(shape)
