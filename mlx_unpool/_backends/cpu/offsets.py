"""The window offset of each pooled value, for the gradient of a pool that returned no indices.

The values are known, so elements are compared with them: this takes half of the time of pooling again
with indices, or less. There are two ways. Time of a forward pass and its gradient on an AMD EPYC, over
``mlx.nn``:

| windows | function | time | the other function |
|---|---|---|---|
| separate, at most 4 elements | ``by_elements`` | 8x4096x64, 2/2: .94 | 1.09 |
| | | 8x4096x16, 2/2: .96 | 1.40 |
| others side by side | ``by_rows`` | 4x112x112x64, 4/4: 1.1 | 1.4 |
"""

from __future__ import annotations

from typing import TypeGuard

import mlx.core as mx

from ..._geometry import Geometry, WindowGeometry
from ..._types import TRAITS, is_float
from .arrays import narrowest, repeated, rows, unfused
from .axes import axes_of

_FEW = 4  # elements


def offsets_of(values: mx.array, x: mx.array, g: Geometry) -> mx.array | None:
    """The window offset of each value; None if it is faster to pool again."""
    if not _are_separate(g):
        return None
    if g.window.elements <= _FEW:
        return by_elements(values, x, g)
    if g.window.kernel == g.window.stride:
        return by_rows(values, x, g)
    return None


def _are_separate(g: Geometry) -> TypeGuard[WindowGeometry]:
    """Whether all windows are inside the plane, without gaps between their elements, and share none."""
    if not isinstance(g, WindowGeometry) or g.window.dilation != (1, 1, 1):
        return False
    return g.window.disjoint and axes_of(g).every_element_inside


def by_elements(values: mx.array, x: mx.array, g: WindowGeometry) -> mx.array:
    """The offset of the first element that is not less than the value, or of the last NaN."""
    if g.window.elements == 1:
        return mx.zeros(values.shape, mx.uint8)
    elements = [x]
    for number, axis in enumerate(axes_of(g)):
        elements = [
            rows(each, number, n, axis.stride, axis.count) for each in elements for n in range(axis.kernel)
        ]
    *less, offsets = ((each < values).view(mx.uint8) for each in elements[:-1])
    for each in reversed(less):
        offsets = each * (offsets + 1)
    # A NaN is neither less nor equal, so the result for its window is 0 so far.
    for number, each in enumerate(elements[1:], 1):
        offsets = mx.maximum(offsets, (each != each).view(mx.uint8) * number)
    return offsets


def by_rows(values: mx.array, x: mx.array, g: WindowGeometry) -> mx.array:
    """The offset of the first maximum, or of the last NaN, in windows side by side."""
    batch, depth, height, width, channels = values.shape
    kd, kh, kw = g.window.kernel
    x = x[:, : depth * kd, : height * kh, : width * kw]
    if kd * kh > 1:
        shape = batch * depth, kd, height, kh, width, kw, channels
    else:  # the only row of a window becomes its only column
        shape = batch * depth * height, 1, width, kw, 1, 1, channels
    elements = x.reshape(shape)
    maxima = values.reshape(shape[0], 1, shape[2], 1, shape[4], 1, channels)
    after = _last((elements == repeated(maxima, shape)).view(mx.uint8), backwards=True)
    offsets = g.window.elements - after
    if is_float(x.dtype):
        # No element equals NaN, so ``after`` is 0 if there is one. Otherwise -1 wraps to a large number.
        last_nan = _last((elements != elements).view(mx.uint8), backwards=False) - 1
        offsets = mx.minimum(offsets, last_nan)
    return offsets.reshape(values.shape)


def _last(hits: mx.array, backwards: bool) -> mx.array:
    """The number of the last 1 in each window, counted from 1, or 0 if there is none.

    ``hits`` has the axes (outer, depth in the window, row, row in the window, column, column in the
    window, channel). If ``backwards``, the elements are counted from the last one to the first one.

    Rows are counted first, in the narrowest dtype: that leaves few numbers for a wider one.
    """
    _, kd, _, kh, _, kw, _ = hits.shape
    count = kd * kh
    dtype = narrowest(count)
    row = mx.arange(1, count + 1, dtype=dtype)
    column = mx.arange(1 - kw, 1)
    if backwards:
        row, column = row[::-1], column[::-1]
    found = _as(hits, dtype) * repeated(row.reshape(1, kd, 1, kh, 1, 1, 1), hits.shape)
    found = found.max(axis=(1, 3), keepdims=True)
    unsigned = narrowest(2 * count * kw)
    if kw > 1:
        signed = TRAITS[unsigned].signed  # a column without hits has a number up to 0
        column = column.astype(signed).reshape(kw, 1)
        found = unfused(_as(found, signed) * kw) + repeated(column, found.shape)
        found = found.max(axis=5, keepdims=True).view(unsigned)
    return _as(found, unsigned)


def _as(x: mx.array, dtype: mx.Dtype) -> mx.array:
    return unfused(unfused(x).astype(dtype))
