"""Indices as numbers of elements, and arrays read and written there.

MLX's scatters and gathers do not check their indices. Indices that a caller may have made are therefore
brought into range first: an index outside the plane is replaced by a spare element after the plane.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import mlx.core as mx

from ..._geometry import Geometry, Triple, Window, WindowGeometry, kernel_offsets, pitches
from ..._indices import positions as flat_indices
from ..._types import TRAITS, is_window
from .arrays import along, narrowest, repeated

MAX_ENTRIES = 2**31 - 1  # of a table, which is an array of one axis


class Positions(NamedTuple):
    """Where pooled values go in full arrays that were flattened to rows."""

    elements: mx.array  # (rows, pooled elements * channels), up to ``end + spare``
    end: int  # elements of a row
    spare: int = 0  # elements after the end, for values without a position
    keep: mx.array | None = None  # False for a value without one, though an element is named

    @property
    def shape(self) -> tuple[int, int]:
        """Of a full array with its spare elements."""
        return self.elements.shape[0], self.end + self.spare


def put(values: mx.array, positions: Positions, size: Triple) -> mx.array:
    """A full array of the values at their positions, zero elsewhere, the last one of several."""
    pooled = values.reshape(positions.elements.shape)
    if positions.keep is not None:
        pooled = masked(pooled, positions.keep)
    full = mx.zeros(positions.shape, values.dtype)
    full = mx.put_along_axis(full, positions.elements, pooled, axis=1)
    return plane(full, positions, values, size)


def plane(full: mx.array, positions: Positions, values: mx.array, size: Triple) -> mx.array:
    """Rows of elements as the plane that they are, without the spare ones."""
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
    """``x`` where ``keep``, else zero: as integers, because NaN * 0 is not 0 and -1.0 * 0 has a sign."""
    bits = x.view(TRAITS[x.dtype].unsigned)
    return (bits * keep.view(mx.uint8).astype(bits.dtype)).view(x.dtype)


def of_pool(indices: mx.array, g: Geometry) -> Positions:
    """The positions of indices that a pool has made: all are good, but for empty windows."""
    if not isinstance(g, WindowGeometry):
        return by_number(indices, g.size, is_checked=False)
    if g.may_have_empty_windows:
        return checked(indices, g)
    if is_window(indices.dtype):
        return by_offset(indices, g, is_checked=False)
    return by_number(indices, g.size, is_checked=False)


def checked(indices: mx.array, g: Geometry) -> Positions:
    """The positions of any indices: a spare element, or none to keep, where one names none."""
    if not (is_window(indices.dtype) and isinstance(g, WindowGeometry)):
        return by_number(indices, g.size, is_checked=True)
    if g.window.disjoint and g.every_element_inside:
        return by_offset(indices, g, is_checked=True)
    if (g.window.elements + 1) * prod(g.pooled) > MAX_ENTRIES:
        return by_number(flat_indices(indices, g), g.size, is_checked=True)
    return by_table(indices, g)


def by_number(indices: mx.array, size: Triple, is_checked: bool) -> Positions:
    """Flat indices: the number of the position."""
    batch, *_, channels = indices.shape
    wide = mx.int32 if prod(size) < 2**31 else mx.int64
    if indices.dtype.size < wide.size:
        indices = indices.astype(wide)
    # As unsigned numbers, negative ones are too big.
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
    """Window indices of elements inside the plane: where the window starts, and the offset's part.

    If ``is_checked``, what is no offset counts as the first one, with nothing to keep. That is safe where the
    windows are disjoint.
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
        offset = _no_offset_clamped(offset, window)
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
    """The number of parts into which each axis can be cut so that every window lies in one part.

    Positions inside a part are smaller numbers, of a narrower dtype, than positions in the plane.
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
    """Window indices that may name elements outside: a table of every element of every window."""
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
        # As unsigned numbers, positions before the plane are too big.
        inside = position.view(mx.uint64) < size[axis]
        element = mx.where(inside, position * (pitch * channels), end).astype(dtype)
        shape = [1] * 6
        shape[axis], shape[axis + 3] = window.kernel[axis], pooled[axis]
        table = table + element.reshape(shape)
    count = prod(pooled)
    table = mx.minimum(table.reshape(window.elements, count), end)
    table = mx.pad(table, [(0, 1), (0, 0)], constant_values=mx.array(end, dtype))  # no offset
    entry = _no_offset_clamped(indices, window).astype(narrowest(table.size))
    entry = entry.reshape(batch, count, channels) * count
    entry = entry + mx.arange(count, dtype=entry.dtype)[:, None]
    position = mx.take_along_axis(table.flatten(), entry.flatten(), axis=0)
    position = position.reshape(batch, count, channels) + mx.arange(channels, dtype=dtype)
    return Positions(position.reshape(batch, position.size // batch), end, channels)


def _no_offset_clamped(offsets: mx.array, window: Window) -> mx.array:
    """Window indices in which every number that is no offset is the first such number."""
    if window.elements > mx.iinfo(offsets.dtype).max:
        offsets = offsets.astype(mx.uint32)
    return mx.minimum(offsets, window.elements)


def origins(g: WindowGeometry, shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    """The position that counting starts from in each window, for arrays of ``shape`` (B, D, H, W, C)."""
    first, stop, step = g.origins
    if (stop - first) // step <= prod(shape):
        strides = (0, *(stride // step for stride in g.strides_in_plane), 0)
        return mx.as_strided(mx.arange(first, stop, step, dtype=dtype), shape, strides, 0)
    # The range has more numbers than there are windows: one image of one channel.
    total = mx.array(first, dtype)
    for axis, stride in enumerate(g.strides_in_plane):
        if stride:
            total = total + along(axis, starts(0, stride, g.pooled[axis], dtype))
    return repeated(total, shape)


def starts(first: int, step: int, count: int, dtype: mx.Dtype) -> mx.array:
    """``count`` numbers from ``first`` on, ``step`` apart; negative numbers wrap."""
    signed = mx.int64 if dtype.size == 8 else mx.int32
    return mx.arange(first, first + count * step, step, dtype=signed).astype(dtype)
