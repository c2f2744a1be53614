"""Conversion of indices to element numbers, and scatters and gathers with them.

MLX's scatters and gathers do not check bounds, so a caller's indices are brought into range first:
an index outside the plane is replaced by a spare element after the plane. The ways from indices to
elements, and the time of unpooling on an AMD EPYC with flat indices instead of this way:

| indices | windows | from a pool | from a caller |
|---|---|---|---|
| flat | any | ``by_number`` | ``by_number`` with spare elements |
| window | inside the plane | ``by_window`` | the same; 3/2: 8x57x57x64 14, 1x57x57x16 3.4 |
| window | beyond it, at most 8-fold | ``by_window`` | ``_in_larger_plane``; 3/2: 8x56x56x64 12 |
| window | beyond it, some empty | as from a caller | ``_in_larger_plane`` |
| window | farther apart, or of over 65,536 elements | ``by_window`` | flat indices, ``by_number`` |

If small windows cover the plane, ``scatter_to_tiles`` needs no elements (without it: 8x112x112x64
1.5 times the time, 16x28x28x256 1.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple, TypeGuard

import mlx.core as mx

from ..._geometry import Geometry, Triple, WindowGeometry, pitches
from ..._index_arithmetic import positions as flat_indices
from ..._types import MAX_WINDOW_INDICES, TRAITS, is_window
from .arrays import LARGEST_RANGE, added, along, constant, narrowest, repeated, unfused
from .axes import axes_of


class Positions(NamedTuple):
    """The position of each pooled value in a full array that was flattened to rows."""

    elements: mx.array  # (rows, pooled elements * channels): numbers below ``end + spare``
    end: int  # elements per row
    spare: int = 0  # elements after the end, for values without a position

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a full array with its spare elements."""
        return self.elements.shape[0], self.end + self.spare


def put(values: mx.array, positions: Positions, size: Triple) -> mx.array:
    """Planes with values at their positions, zero elsewhere; of several values the last is kept."""
    pooled = values.reshape(positions.elements.shape)
    full = mx.put_along_axis(
        mx.zeros(positions.shape, values.dtype), positions.elements, pooled, axis=1
    )
    return plane_of(full, positions, values, size)


def plane_of(full: mx.array, positions: Positions, values: mx.array, size: Triple) -> mx.array:
    """A full array, flattened to rows, as planes of ``size`` without the spare elements."""
    if positions.spare:
        full = full[:, : positions.end]
    return full.reshape(values.shape[0], *size, values.shape[4])


def take(full: mx.array, positions: Positions) -> mx.array:
    """The elements of a full array at the positions, zero for values without one."""
    elements, end = positions.elements, positions.end
    inside = (
        mx.minimum(elements, constant(end - 1, elements.dtype)) if positions.spare else elements
    )
    picked = mx.take_along_axis(full.reshape(full.size // end, end), inside, axis=1)
    return masked(picked, elements < constant(end, elements.dtype)) if positions.spare else picked


def take_last(full: mx.array, positions: Positions) -> mx.array:
    """Like ``take``, but zero for a value that is not the last at its position.

    The last value at each position writes its number there, and the full array is scattered to
    these numbers.
    """
    rows, count = positions.elements.shape
    number = mx.broadcast_to(mx.arange(1, count + 1, dtype=narrowest(count + 1)), (rows, count))
    winner = mx.zeros(positions.shape, number.dtype)
    winner = mx.put_along_axis(winner, positions.elements, number, axis=1)[:, : positions.end]
    picked = mx.zeros((rows, count + 1), full.dtype)  # element 0: positions without a value
    return mx.put_along_axis(picked, winner, full.reshape(winner.shape), axis=1)[:, 1:]


def masked(x: mx.array, keep: mx.array) -> mx.array:
    """``x`` where ``keep``, else zero.

    Multiplies integers, because NaN * 0 is NaN and -1.0 * 0 is -0.0.
    """
    bits = x.view(TRAITS[x.dtype].unsigned)
    return (bits * unfused(keep.view(mx.uint8).astype(bits.dtype))).view(x.dtype)


def are_tiles(g: Geometry, indices: mx.array) -> TypeGuard[WindowGeometry]:
    """Whether small windows cover the plane exactly, with enough channels for vector operations."""
    return (
        is_window(indices.dtype)
        and isinstance(g, WindowGeometry)
        and g.window.elements <= 4
        and indices.shape[4] >= 16
        and g.window.kernel == g.window.stride
        and all(axis.is_tiled for axis in axes_of(g))
    )


def scatter_to_tiles(values: mx.array, indices: mx.array, g: WindowGeometry) -> mx.array:
    """Every value at its offset in its window, else zeros; invalid offsets match no element."""
    batch, d, h, w, channels = indices.shape
    kd, kh, kw = g.window.kernel
    split = (batch * d, 1, h, 1, w, 1, channels)
    full = (batch * d, kd, h, kh, w, kw, channels)
    offsets = mx.arange(g.window.elements, dtype=indices.dtype).reshape(1, kd, 1, kh, 1, kw, 1)
    hit = repeated(indices.reshape(split), full) == repeated(offsets, full)
    return masked(repeated(values.reshape(split), full), hit).reshape(batch, *g.size, channels)


def of_pool(indices: mx.array, g: Geometry) -> Positions:
    """The positions of a pool's indices, which are valid except for empty windows."""
    if isinstance(g, WindowGeometry):
        if axes_of(g).may_have_empty_windows:
            return checked(indices, g)
        if is_window(indices.dtype):
            return by_window(indices, g, is_checked=False)
    return by_number(indices, g.size, is_checked=False)


def checked(indices: mx.array, g: Geometry) -> Positions:
    """The positions of any indices; an invalid one gets a spare element."""
    if not (is_window(indices.dtype) and isinstance(g, WindowGeometry)):
        return by_number(indices, g.size, is_checked=True)
    # Not the window of a pool, whose indices would be flat.
    if g.window.elements > MAX_WINDOW_INDICES:
        return by_number(flat_indices(indices, g), g.size, is_checked=True)
    if not axes_of(g).every_element_inside:
        return _in_larger_plane(indices, g)
    return by_window(indices, g, is_checked=True)


def by_number(indices: mx.array, size: Triple, is_checked: bool) -> Positions:
    """The positions of flat indices."""
    channels = indices.shape[4]
    wide = mx.int32 if prod(size) < 2**31 else mx.int64
    if indices.dtype.size < wide.size:
        indices = indices.astype(wide)
    # Viewed as unsigned numbers, negative indices are too large as well.
    position = indices.view(TRAITS[indices.dtype].unsigned)
    if is_checked:
        position = mx.minimum(position, constant(prod(size), position.dtype))
    position = position.astype(narrowest((prod(size) + 1) * channels))
    if channels > 1:
        position = position * channels + mx.arange(channels, dtype=position.dtype)
    return _positions(position, size, channels if is_checked else 0)


def by_window(indices: mx.array, g: WindowGeometry, is_checked: bool) -> Positions:
    """The positions of window indices.

    If ``is_checked``, of any indices of windows inside the plane.
    """
    channels = indices.shape[4]
    end = prod(g.size) * channels
    invalid = end if is_checked else None
    elements = _elements(indices, g, g.size, channels, narrowest(end + (invalid or 0)), invalid)
    return _positions(elements, g.size, channels if is_checked else 0)


def _in_larger_plane(indices: mx.array, g: WindowGeometry) -> Positions:
    """The positions of any window indices of windows beyond the plane.

    They are positions in a plane that contains all windows first. A table of that plane gives each
    its element, and a spare one to those in the margins.
    """
    channels = indices.shape[4]
    end = prod(g.size) * channels
    # One more on the last axis, so that the last element is outside.
    ends = zip(axes_of(g), (0, 0, 1))
    margins = [(max(-axis.first, 0), max(axis.stop - axis.length, 0) + more) for axis, more in ends]
    size = tuple(before + n + after for (before, after), n in zip(margins, g.size))
    last = prod(size) - 1
    if last > 8 * (end + indices.size):  # windows much farther apart than the plane is long
        return by_number(flat_indices(indices, g), g.size, is_checked=True)
    # An invalid offset gives at least ``last`` on up to three axes, to which the start is added.
    position = _elements(indices, g, size, 1, narrowest(4 * last), last)
    dtype = narrowest(end + channels)
    plane = starts(0, channels, prod(g.size), dtype).reshape(g.size)
    plane = mx.pad(plane, margins, constant_values=mx.array(end, dtype)).flatten()
    elements = mx.take_along_axis(plane, position.flatten(), axis=0).reshape(indices.shape)
    if channels > 1:
        elements = elements + mx.arange(channels, dtype=dtype)
    return _positions(elements, g.size, channels)


def _positions(elements: mx.array, size: Triple, spare: int = 0) -> Positions:
    """Positions from the numbers of elements (B, D, H, W, C)."""
    batch, channels = elements.shape[0], elements.shape[4]
    return Positions(elements.reshape(batch, elements.size // batch), prod(size) * channels, spare)


def _elements(
    indices: mx.array,
    g: WindowGeometry,
    size: Triple,
    channels: int,
    dtype: mx.Dtype,
    invalid: int | None,
) -> mx.array:
    """The element of each window index in a plane of ``size``.

    Unless ``invalid`` is None, the plane starts with the first window, and invalid indices get that
    element.
    """
    is_checked = invalid is not None
    if is_checked:
        indices = mx.minimum(indices, min(g.window.elements, mx.iinfo(indices.dtype).max))
    steps = [pitch * channels for pitch in pitches(size)]
    table = _element_table(g, steps, dtype, invalid)
    position = mx.take_along_axis(table, indices.flatten(), axis=0).reshape(indices.shape)
    firsts = [max(axis.first, 0) if is_checked else axis.first for axis in axes_of(g)]
    depth, height, width = (
        along(n, starts(first * step, axis.stride * step, axis.count, dtype))
        for n, (axis, first, step) in enumerate(zip(axes_of(g), firsts, steps))
    )
    position = position + (width + mx.arange(channels, dtype=dtype) if channels > 1 else width)
    if indices.shape[1:3] != (1, 1) or any(firsts[:2]):
        position = position + (depth + height)
    return position if invalid is None else mx.minimum(position, constant(invalid, dtype))


def _element_table(
    g: WindowGeometry, steps: Sequence[int], dtype: mx.Dtype, invalid: int | None
) -> mx.array:
    """The distance of every window element to the first used one.

    Unused elements, and unless ``invalid`` is None one more at the end, have that distance or a
    larger one.
    """
    outside = mx.array(invalid or 0, dtype)
    table = mx.zeros((), dtype)
    for axis, step in zip(axes_of(g), steps):
        if axis.kernel > 1:
            rows = starts(0, axis.dilation * step, axis.used, dtype)
            margins = axis.skipped, axis.kernel - axis.skipped - axis.used
            if any(margins):
                rows = mx.pad(rows, margins, constant_values=outside)
            table = table[..., None] + rows
    table = table.flatten()
    return table if invalid is None else mx.pad(table, (0, 1), constant_values=outside)


def origins(g: WindowGeometry, shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    """The origin of each window (see ``Axes.origin``), of ``shape`` (B, D, H, W, C)."""
    axes = axes_of(g)
    total = along(2, starts(axes.origin, axes[2].stride, axes[2].count, dtype))
    for number in (1, 0):
        axis = axes[number]
        if axis.count > 1:
            total = added(
                total, along(number, starts(0, axis.stride * axis.pitch, axis.count, dtype))
            )
    return repeated(total, shape)


def starts(first: int, step: int, count: int, dtype: mx.Dtype) -> mx.array:
    """``count`` numbers starting at ``first``, ``step`` apart; numbers outside the dtype wrap."""
    stop = first + count * step
    if max(-first, stop) < LARGEST_RANGE:
        fits = dtype.size < 8 and first >= -(2**31) and stop < 2**31
        return mx.arange(first, stop, step, dtype=mx.int32 if fits else mx.int64).astype(dtype)
    # Equal modulo 2^32: the dtype has at most 32 bits, because a plane has fewer than 2^31
    # positions.
    first, step = first % 2**32, step % 2**32
    numbers = mx.arange(count, dtype=mx.int64) * constant(step, mx.int64)
    return (numbers + constant(first, mx.int64)).astype(dtype)
