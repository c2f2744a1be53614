"""The window offset of each pooled value, for the gradient of a pool that returned no indices.

The values are known, so elements are compared with them. Time of a forward pass and its gradient on
an Intel Xeon, with other programs running, over that with these functions:

| windows that share no position | function | instead of it |
|---|---|---|
| at most 4 elements | ``by_elements`` | ``by_rows``: 4x112x112x64, 2x2/2 1.1; 8x4096x16, 2/2 1.5 |
| others side by side | ``by_rows`` | pooling again: 4x112x112x64, 4x4/4 1.2, 7x7/7 1.9 |

Not used: a single code per element for maximum and NaN, and for row and column. In the mean of 82
calls its time over that of these functions was .98: .6 to .8 for 3 channels, .9 to 1.0 for 64 or
more, and 1.2 to 1.6 for 17x17 and 31x31.
"""

from __future__ import annotations

import mlx.core as mx

from ..._geometry import Geometry, WindowGeometry
from ..._types import TRAITS, is_float
from .arrays import constant, narrowest, repeated, rows, unfused
from .axes import axes_of

_FEW = 4  # elements


def offsets_of(values: mx.array, x: mx.array, g: Geometry) -> mx.array | None:
    """The window offset of each value; None for windows for which it is faster to pool again.

    These are windows that overlap or extend beyond the plane, and long ones with gaps between them.
    """
    if not isinstance(g, WindowGeometry) or not g.window.disjoint:
        return None
    if not axes_of(g).every_element_inside:
        return None
    if g.window.elements <= _FEW:
        return by_elements(values, x, g)
    return by_rows(values, x, g) if g.window.kernel == g.window.stride else None


def by_elements(values: mx.array, x: mx.array, g: WindowGeometry) -> mx.array:
    """The offset of the first element that is not less than the value, or of the last NaN."""
    if g.window.elements == 1:
        return mx.zeros(values.shape, mx.uint8)
    elements = [x]
    for number, axis in enumerate(axes_of(g)):
        starts = [n * axis.dilation for n in range(axis.kernel)]
        taken = []
        for each in elements:
            taken += [rows(each, number, n, axis.stride, axis.count) for n in starts]
        elements = taken
    *less, offsets = ((each < values).view(mx.uint8) for each in elements[:-1])
    for each in reversed(less):
        offsets = each * (offsets + 1)
    # A NaN is neither less nor equal, so the result for its window is 0 so far.
    for number, each in enumerate(elements[1:], 1):
        offsets = mx.maximum(offsets, (each != each).view(mx.uint8) * number)
    return offsets


def by_rows(values: mx.array, x: mx.array, g: WindowGeometry) -> mx.array:
    """The offset of the first maximum, or of the last NaN, in windows side by side.

    The row is found first, among all elements, where small numbers are enough; then the column.
    """
    batch, depth, height, width, channels = values.shape
    kd, kh, kw = g.window.kernel
    x = x[:, : depth * kd, : height * kh, : width * kw]
    if kd * kh == 1:  # the only row of a window becomes its only column
        depth, height, width, kh, kw = depth * height, width, 1, kw, 1
    elements = x.reshape(batch * depth, kd, height, kh, width, kw, channels)
    maxima = values.reshape(batch * depth, 1, height, 1, width, 1, channels)
    offsets = _first(elements == repeated(maxima, elements.shape))
    if is_float(x.dtype):
        # One of the two numbers is too large: a NaN is not equal to itself.
        offsets = mx.minimum(offsets, _last(elements != elements))
    return offsets.reshape(values.shape)


def _first(hits: mx.array) -> mx.array:
    """The offset of the first True in each window; too large a number if there is none.

    ``hits`` has the axes (outer, depth in the window, row, row in the window, column, column in the
    window, channel).
    """
    _, kd, _, kh, _, kw, _ = hits.shape
    count = kd * kh * kw
    column = mx.arange(count, count + kw, dtype=_signed(count + kw))
    row = _largest(hits, mx.arange(kd * kh, 0, -1))  # rows from it to the end of the window
    return _unsigned(_sum(row, -kw, column).min(axis=5))


def _last(hits: mx.array) -> mx.array:
    """Like ``_first``, the offset of the last True."""
    _, kd, _, kh, _, kw, _ = hits.shape
    column = mx.arange(-kw, 0, dtype=_signed(kd * kh * kw + kw))
    row = _largest(hits, mx.arange(1, kd * kh + 1))  # the offset of the row plus 1
    return _unsigned(_sum(row, kw, column).max(axis=5))


def _largest(hits: mx.array, number: mx.array) -> mx.array:
    """The largest ``number`` of a row with True in each column of a window, or 0.

    ``number`` has an element for each row of a window.
    """
    dtype = _signed(number.size)
    number = number.astype(dtype).reshape(1, hits.shape[1], 1, hits.shape[3], 1, 1, 1)
    found = unfused(hits.view(mx.int8).astype(dtype)) * repeated(number, hits.shape)
    return found.max(axis=(1, 3), keepdims=True)


def _sum(row: mx.array, factor: int, column: mx.array) -> mx.array:
    """``row * factor + column``, in the dtype of ``column``."""
    row = unfused(row.astype(column.dtype))
    row = unfused(row * repeated(constant(factor, row.dtype), row.shape))
    return row + repeated(column.reshape(-1, 1), row.shape)


def _signed(largest: int) -> mx.Dtype:
    """The narrowest signed dtype for numbers up to ``largest``."""
    return TRAITS[narrowest(2 * largest)].signed


def _unsigned(x: mx.array) -> mx.array:
    """A view in which negative numbers are large ones."""
    return x.view(TRAITS[x.dtype].unsigned)
