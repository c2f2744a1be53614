"""Conversion of indices to element numbers, and scatters and gathers with them.

MLX's scatters and gathers do not check bounds, so a caller's indices are brought into range first: an index
outside the plane is replaced by a spare element after the plane.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import mlx.core as mx

from ..._geometry import Geometry, Triple, Window, WindowGeometry, kernel_offsets, pitches
from ..._indices import positions as flat_indices
from ..._types import TRAITS, is_window
from .arrays import along, narrowest, repeated

MAX_ENTRIES = 2**31 - 1  # entries of a table, a one-dimensional array


class Positions(NamedTuple):
    """The position of each pooled value in a full array that was flattened to rows."""

    elements: mx.array  # (rows, pooled elements * channels): numbers below ``end + spare``
    end: int  # elements per row
    spare: int = 0  # elements after the end, for values without a position
    keep: mx.array | None = None  # False for a value without a position, whose element is arbitrary

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a full array with its spare elements."""
        return self.elements.shape[0], self.end + self.spare


def put(values: mx.array, positions: Positions, size: Triple) -> mx.array:
    """Planes with values at their positions, zero elsewhere; of several values the last is kept."""
    pooled = values.reshape(positions.elements.shape)
    if positions.keep is not None:
        pooled = masked(pooled, positions.keep)
    full = mx.zeros(positions.shape, values.dtype)
    full = mx.put_along_axis(full, positions.elements, pooled, axis=1)
    return plane(full, positions, values, size)


def plane(full: mx.array, positions: Positions, values: mx.array, size: Triple) -> mx.array:
    """A full array, flattened to rows, as planes of ``size`` without the spare elements."""
    if positions.spare:
        full = full[:, : positions.end]
    return full.reshape(values.shape[0], *size, values.shape[4])


def take(full: mx.array, positions: Positions) -> mx.array:
    """The elements of a full array at the positions, zero for values without one."""
    elements, keep = positions.elements, positions.keep
    if positions.spare:
        keep = elements < positions.end if keep is None else keep
        elements = mx.minimum(elements, positions.end - 1)
    picked = mx.take_along_axis(
        full.reshape(full.size // positions.end, positions.end), elements, axis=1
    )
    return picked if keep is None else masked(picked, keep)


def masked(x: mx.array, keep: mx.array) -> mx.array:
    """``x`` where ``keep``, else zero; multiplies integers because NaN * 0 is NaN and -1.0 * 0 is -0.0."""
    bits = x.view(TRAITS[x.dtype].unsigned)
    return (bits * keep.view(mx.uint8).astype(bits.dtype)).view(x.dtype)


def of_pool(indices: mx.array, g: Geometry) -> Positions:
    """The positions of a pool's indices, which are valid except for empty windows."""
    if not isinstance(g, WindowGeometry):
        return by_number(indices, g.size, is_checked=False)
    if g.may_have_empty_windows:
        return checked(indices, g)
    if is_window(indices.dtype):
        return by_offset(indices, g, is_checked=False)
    return by_number(indices, g.size, is_checked=False)


def checked(indices: mx.array, g: Geometry) -> Positions:
    """The positions of any indices; an invalid one gets a spare element, or False in ``keep``."""
    if not (is_window(indices.dtype) and isinstance(g, WindowGeometry)):
        return by_number(indices, g.size, is_checked=True)
    if g.window.disjoint and g.every_element_inside:
        return by_offset(indices, g, is_checked=True)
    if (g.window.elements + 1) * prod(g.pooled) > MAX_ENTRIES:
        return by_number(flat_indices(indices, g), g.size, is_checked=True)
    return by_table(indices, g)


def by_number(indices: mx.array, size: Triple, is_checked: bool) -> Positions:
    """The positions of flat indices."""
    batch, *_, channels = indices.shape
    wide = mx.int32 if prod(size) < 2**31 else mx.int64
    if indices.dtype.size < wide.size:
        indices = indices.astype(wide)
    # Viewed as unsigned numbers, negative indices are too large as well.
    position = indices.view(TRAITS[indices.dtype].unsigned)
    if is_checked:
        position = mx.minimum(position, prod(size))
    position = position.astype(narrowest((prod(size) + 1) * channels))
    if channels > 1:
        position = position * channels + mx.arange(channels, dtype=position.dtype)
    end = prod(size) * channels
    return Positions(
        position.reshape(batch, position.size // batch), end, channels if is_checked else 0
    )


def by_offset(indices: mx.array, g: WindowGeometry, is_checked: bool) -> Positions:
    """The positions of window indices if no window extends beyond the plane.

    If ``is_checked``, an invalid offset gets the first element of its window and False in ``keep``. That is
    safe only for disjoint windows.
    """
    window, size = g.window, g.size
    batch, channels = indices.shape[0], indices.shape[4]
    slabs = _slabs(g)
    pooled = [count // n for count, n in zip(g.pooled, slabs)]
    rows, end = batch * prod(slabs), prod(size) * channels // prod(slabs)
    dtype = narrowest(end)
    elements = [pitch * channels for pitch in pitches(size)]
    steps = [pitch * d for pitch, d in zip(elements, window.dilation)]
    parts = [sum(t * step for t, step in zip(o, steps)) for o in kernel_offsets(window.kernel)]
    offset, keep = indices.flatten(), None
    if is_checked:
        offset = _invalid_clamped(offset, window)
        keep = (offset != window.elements).reshape(rows, indices.size // rows)
    position = mx.take_along_axis(mx.array([*parts, 0], dtype), offset, axis=0)
    position = position.reshape(rows, *pooled, channels)
    for axis in (2, 1, 0):
        first = -window.padding[axis] * elements[axis]
        start = along(
            axis, starts(first, window.stride[axis] * elements[axis], pooled[axis], dtype)
        )
        if axis == 2:
            start = start + mx.arange(channels, dtype=dtype)
        if start.size > 1 or window.padding[axis]:
            position = position + start
    return Positions(position.reshape(rows, indices.size // rows), end, keep=keep)


def _slabs(g: WindowGeometry) -> Triple:
    """The number of parts into which each axis can be cut without cutting a window.

    Positions in a part are smaller numbers than positions in the plane, so a narrower dtype may suffice.
    """
    slabs = [1, 1, 1]
    for number, axis in enumerate(g.axes):
        if not axis.is_tiled:
            break
        slabs[number] = axis.count
        if axis.stride > 1:
            break
    return tuple(slabs)


def by_table(indices: mx.array, g: WindowGeometry) -> Positions:
    """The positions of any window indices, from a table of all elements of all windows."""
    window, size, pooled = g.window, g.size, g.pooled
    batch, channels = indices.shape[0], indices.shape[4]
    end = prod(size) * channels
    dtype = narrowest(3 * end + channels)
    table = mx.zeros([1] * 6, dtype)
    for axis, pitch in enumerate(pitches(size)):
        if (window.kernel[axis], pooled[axis], window.padding[axis]) == (1, 1, 0):
            continue
        offset = mx.arange(window.kernel[axis]) * window.dilation[axis]
        position = offset[:, None] + starts(
            -window.padding[axis], window.stride[axis], pooled[axis], mx.int64
        )
        # Viewed as unsigned numbers, positions before the plane are too large as well.
        inside = position.view(mx.uint64) < size[axis]
        element = mx.where(inside, position * (pitch * channels), end).astype(dtype)
        shape = [1] * 6
        shape[axis], shape[axis + 3] = window.kernel[axis], pooled[axis]
        table = table + element.reshape(shape)
    count = prod(pooled)
    table = mx.minimum(table.reshape(window.elements, count), end)
    table = mx.pad(table, [(0, 1), (0, 0)], constant_values=mx.array(end, dtype))  # invalid
    entry = _invalid_clamped(indices, window).astype(narrowest(table.size))
    entry = entry.reshape(batch, count, channels) * count
    entry = entry + mx.arange(count, dtype=entry.dtype)[:, None]
    position = mx.take_along_axis(table.flatten(), entry.flatten(), axis=0)
    position = position.reshape(batch, count, channels) + mx.arange(channels, dtype=dtype)
    return Positions(position.reshape(batch, position.size // batch), end, channels)


def _invalid_clamped(offsets: mx.array, window: Window) -> mx.array:
    """Window indices with every invalid offset replaced by the number of elements."""
    if window.elements > mx.iinfo(offsets.dtype).max:
        offsets = offsets.astype(mx.uint32)
    return mx.minimum(offsets, window.elements)


def origins(g: WindowGeometry, shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    """The origin of each window (see ``WindowGeometry.origins``), of ``shape`` (B, D, H, W, C)."""
    first, stop, step = g.origins
    if (stop - first) // step <= prod(shape):
        strides = (0, *(stride // step for stride in g.strides_in_plane), 0)
        return mx.as_strided(mx.arange(first, stop, step, dtype=dtype), shape, strides, 0)
    # The range would have more elements than the result.
    total = mx.array(first, dtype)
    for axis, stride in enumerate(g.strides_in_plane):
        if stride:
            total = total + along(axis, starts(0, stride, g.pooled[axis], dtype))
    return repeated(total, shape)


def starts(first: int, step: int, count: int, dtype: mx.Dtype) -> mx.array:
    """``count`` numbers starting at ``first``, ``step`` apart; negative numbers wrap."""
    signed = mx.int64 if dtype.size == 8 else mx.int32
    return mx.arange(first, first + count * step, step, dtype=signed).astype(dtype)
