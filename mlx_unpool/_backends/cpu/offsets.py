"""The window offset of each pooled value, for the gradient of a pool that returned no indices.

The values are known, so elements are compared with them. Measured on an AMD EPYC, time of the forward pass
and the gradient over ``mlx.nn``, in float32:

| windows | function | time |
|---|---|---|
| side by side, many channels | ``by_codes`` | 4x112x112x64, 7x7/7: .9; pooling again 2.7 |
| the same with few channels, more than 4 elements | ``by_codes`` | 4x112x112x3, 7x7/7: 1; again 2.4 |
| other separate ones, at most 4 elements | ``by_elements`` | 4x112x112x16, 2x2/2: .8; by codes 1.15 |
"""

from __future__ import annotations

from typing import TypeGuard

import mlx.core as mx

from ..._geometry import Geometry, WindowGeometry
from .arrays import constant, narrowest, repeated, rows, unfused
from .axes import axes_of
from .values import one_reduction

_MAX_CODED = 2**15  # elements, so that a code has at most 16 bits


def has_codes(g: Geometry, x: mx.array) -> TypeGuard[WindowGeometry]:
    """Whether ``by_codes`` applies and is faster than ``by_elements``: to windows side by side."""
    if not _are_separate(g) or g.window.kernel != g.window.stride:
        return False
    return (g.window.elements > 4 or _has_many_channels(x, g)) and g.window.elements <= _MAX_CODED


def has_few_elements(g: Geometry) -> TypeGuard[WindowGeometry]:
    """Whether ``by_elements`` applies: to small separate windows inside the plane."""
    return _are_separate(g) and g.window.elements <= 4


def _are_separate(g: Geometry) -> TypeGuard[WindowGeometry]:
    if not isinstance(g, WindowGeometry) or g.window.dilation != (1, 1, 1):
        return False
    return g.window.disjoint and axes_of(g).every_element_inside


def _has_many_channels(x: mx.array, g: Geometry) -> bool:
    return bool(one_reduction(x.shape, x.itemsize, g))


def by_codes(values: mx.array, x: mx.array, g: WindowGeometry) -> mx.array:
    """The offset of the first maximum or the last NaN, from the largest code in each window.

    The code of a maximum at offset n is ``count - n``, that of a NaN ``count + n``, and that of others 0.
    """
    count = g.window.elements
    dtype = narrowest(2 * count - 1)
    batch, depth, height, width, channels = values.shape
    kd, kh, kw = g.window.kernel
    windows = (batch, depth, kd, height, kh, width, kw, channels)
    elements = x[:, : depth * kd, : height * kh, : width * kw].reshape(windows)
    maxima = values.reshape(batch, depth, 1, height, 1, width, 1, channels)
    of_maximum = mx.arange(count, 0, -1, dtype=dtype).reshape(1, 1, kd, 1, kh, 1, kw, 1)
    of_nan = mx.arange(count, 2 * count, dtype=dtype).reshape(of_maximum.shape)
    in_lines = kd * kh > 1 and not _has_many_channels(x, g)
    if in_lines:
        together = elements, maxima, of_maximum, of_nan
        elements, maxima, of_maximum, of_nan = (_in_lines(each, windows) for each in together)
    is_maximum = (elements == repeated(maxima, elements.shape)).view(mx.uint8).astype(dtype)
    is_nan = (elements != elements).view(mx.uint8).astype(dtype)
    codes = unfused(is_maximum * repeated(of_maximum, elements.shape))
    codes = codes + unfused(is_nan * repeated(of_nan, elements.shape))
    code = codes.max(axis=(2, 4, 6))
    if in_lines:
        code = code.reshape(batch, depth, height, width, kw, channels).max(axis=4)
    middle = repeated(constant(count, dtype), code.shape)
    return mx.minimum(unfused(middle - code), unfused(code - middle))  # the negative one wraps


def _in_lines(x: mx.array, windows: tuple[int, ...]) -> mx.array:
    """``x`` with all columns and channels of a row as one axis: MLX is slow if the last axis is short."""
    x = mx.broadcast_to(x, (*x.shape[:5], *windows[5:]))
    return x.reshape(*x.shape[:5], 1, 1, -1)


def by_elements(values: mx.array, x: mx.array, g: WindowGeometry) -> mx.array:
    """The offset of the first element that is not less than the maximum, or of the last NaN."""
    if g.window.elements == 1:
        return mx.zeros(values.shape, mx.uint8)
    elements = [x]
    for number, a in enumerate(axes_of(g)):
        elements = [rows(each, number, n, a.stride, a.count) for each in elements for n in range(a.kernel)]
    *less, offsets = ((each < values).view(mx.uint8) for each in elements[:-1])
    for each in reversed(less):
        offsets = each * (offsets + 1)
    # A NaN is neither less nor equal, so the result for its window is 0 so far.
    for number, each in enumerate(elements[1:], 1):
        offsets = mx.maximum(offsets, (each != each).view(mx.uint8) * number)
    return offsets
