"""The primitives as plain ``mlx.core`` ops, for the CPU.

The formulations were chosen by measurement (see ``benchmarks/RESULTS.md``): few passes over memory, each a
loop that MLX's CPU backend vectorises or at least keeps free of branches. What is avoided costs ten times as
much: ``mx.where``, ``|`` of bools, gathers with several index arrays, ``mx.pad``, ``mx.concatenate``.

MLX's scatters and gathers do not check their indices. Indices that a caller may have made are therefore
brought into range first: what names no place is sent to spare elements behind the plane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

import mlx.core as mx

from .._geometry import (
    Geometry,
    RegionGeometry,
    Triple,
    Window,
    WindowGeometry,
    kernel_offsets,
)
from .._types import is_window

_FLOATS = (mx.float32, mx.float16, mx.bfloat16)
_UNSIGNED = (mx.uint8, mx.uint16, mx.uint32, mx.uint64)
_INFINITE_KEY = 0x7800


class Ops:
    """The primitives on arrays (B, D, H, W, C)."""

    def pool(
        self, x: mx.array, g: WindowGeometry, index_dtype: mx.Dtype
    ) -> tuple[mx.array, mx.array]:
        """Values and indices of every window."""
        window, size, cells = g.window, g.size, g.pooled
        flat = not is_window(index_dtype)
        if flat:
            steps = tuple(d * pitch for d, pitch in zip(window.dilation, _pitches(size)))
        else:
            steps = _pitches(window.kernel)
        # float16 compares at a tenth of the speed of integers of its size.
        ordered = _keys(x) if x.dtype == mx.float16 else x
        values, codes = _pool(ordered, window, cells, steps, keys=x.dtype == mx.float16)
        indices = codes.astype(index_dtype)
        if flat:
            starts = mx.array(0, index_dtype)
            for axis, pitch in enumerate(_pitches(size)):
                if cells[axis] > 1 or window.padding[axis]:
                    starts = starts + _along(
                        axis, _starts(window, axis, cells[axis], pitch, index_dtype)
                    )
            indices = indices + starts
        empty = _empty_windows(window, size, cells)
        if empty is not None:
            indices = mx.where(empty, mx.array(-1 if flat else 0, index_dtype), indices)
        if x.dtype == mx.float16:
            values = self.pick(x, indices, g)
        if empty is not None:
            values = mx.where(empty, _lowest(x.dtype), values)
        return values, indices

    def pool_regions(
        self, x: mx.array, bounds: mx.array, g: RegionGeometry, index_dtype: mx.Dtype
    ) -> tuple[mx.array, mx.array]:
        """Values and flat indices of windows that lie where ``bounds`` says."""
        size, cells, kernel = g.size, g.pooled, g.longest
        ends = []
        for axis, first in enumerate((0, cells[0], cells[0] + cells[1])):
            rows = bounds[:, first : first + cells[axis]]
            ends.append([_by_plane(axis, rows[:, :, end]) for end in (0, 1)])

        def tap_of(x: mx.array, axis: int, tap: int) -> mx.array:
            regular = g.regular[axis]
            if regular:
                return _slice(x, axis, tap, regular[1], cells[axis])
            # A shorter window looks at its last place again, which changes nothing.
            start, stop = ends[axis]
            return _gathered_along(x, axis, mx.minimum(start + tap, stop - 1))

        is_half = x.dtype == mx.float16
        steps = _pitches(kernel)
        values, codes = _maxima(_keys(x) if is_half else x, kernel, steps, tap_of, keys=is_half)
        indices = mx.zeros((), index_dtype)
        for length, step, (start, stop) in zip(size, steps, ends):
            place = mx.minimum(start + (codes // step).astype(index_dtype), stop - 1)
            indices = indices * length + place
            codes = codes % step
        return self.pick(x, indices, g) if is_half else values, indices

    def place(self, values: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        """Pooled values at their places, zero elsewhere, the last one of several."""
        window, size = _window(g), g.size
        if window is not None and _is_small_tiling(window, indices, size):
            return _spread(values, indices, window)
        return _put(values, _checked_places(indices, window, size), size)

    def accumulate(self, values: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        """Pooled values at their places, zero elsewhere, the sum of several. The indices are a pool's."""
        window, size = _window(g), g.size
        if isinstance(window, Window) and _is_small_tiling(window, indices, size):
            return _spread(values, indices, window)
        places = _pooled_places(indices, window, size)
        if isinstance(window, Window) and window.disjoint:
            return _put(values, places, size)
        wide = mx.float32 if values.dtype in _FLOATS else values.dtype
        # MLX has no function for adding along an axis, but it is the derivative of gathering.
        _, (sums,) = mx.vjp(
            lambda plane: mx.take_along_axis(plane, places.elements, axis=1),
            [mx.zeros(places.shape, wide)],
            [values.reshape(places.elements.shape).astype(wide)],
        )
        if values.dtype != mx.float16:
            return _plane(sums, places, values, size).astype(values.dtype)
        # Rounding to float16 is slow: only the sums at the recorded places are.
        sums = mx.take_along_axis(sums, places.elements, axis=1).astype(values.dtype)
        return _put(sums.reshape(values.shape), places, size)

    def pick(self, full: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        """The full array at the recorded places, zero where an index names none. They are a pool's."""
        window = _window(g)
        places = _pooled_places(indices, window, full.shape[1:4])
        return _take(full, places).reshape(indices.shape)

    def pick_winners(self, full: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        """As :meth:`pick` for any indices, and zero for a cell whose place a later cell names as well."""
        window = _window(g)
        places = _checked_places(indices, window, full.shape[1:4])
        if not (is_window(indices.dtype) and window is not None and window.disjoint):
            # Every cell writes its number to its place, where the last one stays. (Cells of different
            # channels never meet.) Nobody wins a spare element.
            count = prod(indices.shape[1:4])
            dtype = _unsigned(count)
            number = mx.arange(1, count + 1, dtype=dtype)[:, None]
            number = number + mx.zeros(indices.shape[4], dtype)
            number = mx.broadcast_to(number.reshape(1, -1), places.elements.shape)
            owner = mx.zeros(places.shape, dtype)
            owner = mx.put_along_axis(owner, places.elements, number, axis=1)
            if places.spare:
                owner[:, places.end :] = 0
            wins = mx.take_along_axis(owner, places.elements, axis=1) == number
            places = places._replace(keep=wins)
        return _take(full, places).reshape(indices.shape)


def _window(g: Geometry) -> Window | None:
    return g.window if isinstance(g, WindowGeometry) else None


def _pool(
    x: mx.array, window: Window, cells: Triple, steps: Triple, keys: bool
) -> tuple[mx.array, mx.array]:
    """Values and codes of every window, as :func:`_maxima` says."""
    plane, shifts = _clamped(x, window, cells)

    def tap_of(x: mx.array, axis: int, tap: int) -> mx.array:
        return _slice(x, axis, tap * window.dilation[axis], window.stride[axis], cells[axis])

    return _maxima(plane, window.kernel, steps, tap_of, keys, shifts)


def _maxima(
    best: mx.array,
    kernel: Triple,
    steps: Triple,
    tap_of: Callable[[mx.array, int, int], mx.array],
    keys: bool,
    shifts: Sequence[mx.array | None] = (None, None, None),
) -> tuple[mx.array, mx.array]:
    """Values and codes of every window: a code is the sum over the axes of (tap + shift) * step.

    ``tap_of(x, axis, tap)`` is what tap number ``tap`` of each window sees along an axis. One axis at a
    time, the last one first: then the first maximum along each axis is the first one in row-major order.
    """
    dtype = _unsigned(sum((k - 1) * step for k, step in zip(kernel, steps)))
    codes: mx.array | None = None  # all zero
    for axis in (2, 1, 0):
        shift = shifts[axis]
        if shift is not None:
            shift = (shift * steps[axis]).astype(dtype)
            codes = shift if codes is None else codes + shift
        values, values_codes = best, codes
        best = tap_of(values, axis, 0)
        codes = None if codes is None else tap_of(codes, axis, 0)
        for tap in range(1, kernel[axis]):
            later = tap_of(values, axis, tap)
            wins = (later > (mx.minimum(best, _INFINITE_KEY) if keys else best)).view(mx.uint8)
            if later.dtype in _FLOATS:
                wins = wins | (later != later).view(mx.uint8)
            gain = wins.astype(dtype)
            if values_codes is not None:
                gain = gain * (tap_of(values_codes, axis, tap) + tap * steps[axis])
            elif tap * steps[axis] > 1:
                gain = gain * (tap * steps[axis])
            # Codes grow from tap to tap, so a maximum is a choice.
            codes = gain if codes is None else mx.maximum(codes, gain)
            # The later operand first: a NaN there wins, an equal number does not.
            best = mx.maximum(later, best)
    codes = mx.zeros((), dtype) if codes is None else codes
    return best, mx.broadcast_to(codes, best.shape)


def _slice(x: mx.array, axis: int, start: int, stride: int, count: int) -> mx.array:
    """``count`` rows of an axis, ``stride`` apart; an array may have one row for all."""
    if x.shape[axis + 1] == 1:
        return x
    stop = start + (count - 1) * stride + 1
    return x[(slice(None),) * (axis + 1) + (slice(start, stop, stride),)]


def _clamped(x: mx.array, window: Window, cells: Triple) -> tuple[mx.array, list[mx.array | None]]:
    """The plane that the windows cover, in which a tap outside ``x`` sees the nearest tap inside.

    The same place looked at twice changes nothing. Also how many taps nearer that is, for every position
    along an axis, None for axes without such taps.
    """
    batch, size = x.shape[0], x.shape[1:4]
    if _every_tap_inside(window, size, cells):
        return x, [None] * 3
    wide = mx.int32 if x.size < 2**31 else mx.int64
    source = mx.arange(batch, dtype=wide).reshape(-1, 1, 1, 1, 1)
    shifts: list[mx.array | None] = []
    for axis, (length, dilation) in enumerate(zip(size, window.dilation)):
        first = -window.padding[axis]
        stop = first + (cells[axis] - 1) * window.stride[axis] + window.span[axis]
        row, shift = mx.arange(first, stop), None
        if first < 0 or stop > length:
            before = [min(r % dilation, length - 1) for r in range(first, 0)]
            after = [
                max(length - dilation + (r - length) % dilation, 0) for r in range(length, stop)
            ]
            inside = mx.arange(stop - first - len(before) - len(after))
            nearest = mx.concatenate(
                [mx.array(before, mx.int32), inside, mx.array(after, mx.int32)]
            )
            row, shift = nearest, _along(axis, nearest - row)
            if dilation > 1:
                shift = shift // dilation
        source = source * length + _along(axis, row)
        shifts.append(shift)
    return _gathered(x, source), shifts


def _gathered(x: mx.array, source: mx.array) -> mx.array:
    """The elements of ``x`` whose places in (B, D, H, W) are ``source``: (..., 1), or (..., C) by channel."""
    channels = x.shape[4]
    if channels < 16 or source.shape[4] > 1:
        source = source * channels + mx.arange(channels)
        flat = mx.take_along_axis(x.reshape(-1), source.reshape(-1), axis=0)
    else:
        flat = mx.take(x.reshape(-1, channels), source.reshape(-1), axis=0)
    return flat.reshape(*source.shape[:4], channels)


def _gathered_along(x: mx.array, axis: int, rows: mx.array) -> mx.array:
    """The rows of an axis that each plane is told, (B, D, H, W, 1 or C) with 1 for other axes."""
    wide = mx.int32 if x.size < 2**31 else mx.int64
    source = mx.arange(x.shape[0], dtype=wide).reshape(-1, 1, 1, 1, 1)
    for other, length in enumerate(x.shape[1:4]):
        here = rows if other == axis else _along(other, mx.arange(length))
        source = source * length + here
    return _gathered(x, source)


def _keys(x: mx.array) -> mx.array:
    """int16 in the order of these float16: both zeros are equal, NaN of either sign above infinity."""
    bits = x.view(mx.int16)
    sign = bits >> 15
    return (bits ^ (sign & 0x7FFF)) - (sign + 0x400)


def _empty_windows(window: Window, size: Triple, cells: Triple) -> mx.array | None:
    """Which windows have no tap inside the plane, or None if all have one."""
    result = None
    for axis in WindowGeometry(size, cells, window).axes_with_empty_windows:
        start = mx.arange(cells[axis]) * window.stride[axis] - window.padding[axis]
        empty = (start < 0) & (start % window.dilation[axis] >= size[axis])
        here = _along(axis, empty)
        result = here if result is None else result | here
    return result


def _lowest(dtype: mx.Dtype) -> mx.array:
    return mx.array(-float("inf") if dtype in _FLOATS else mx.iinfo(dtype).min, dtype)


def _is_small_tiling(window: Window, indices: mx.array, size: Triple) -> bool:
    """Whether few-tap windows cover the plane exactly, with channels enough for vectors."""
    cells = indices.shape[1:4]
    return (
        is_window(indices.dtype)
        and window.elements <= 4
        and indices.shape[4] >= 16
        and window.kernel == window.stride
        and all(_tiles(window, size, cells, axis) for axis in range(3))
    )


def _spread(values: mx.array, codes: mx.array, window: Window) -> mx.array:
    """Every value at its tap and zero at the others: no scatter, so nothing can go astray."""
    batch, *cells, channels = codes.shape
    (d, h, w), (kd, kh, kw) = cells, window.kernel
    taps = mx.arange(window.elements, dtype=codes.dtype).reshape(1, kd, 1, kh, 1, kw, 1)
    shape = (batch * d, 1, h, 1, w, 1, channels)
    full = _masked(values.reshape(shape), codes.reshape(shape) == taps)
    return full.reshape(batch, d * kd, h * kh, w * kw, channels)


class _Places(NamedTuple):
    """Where cells go in full arrays that were flattened to rows."""

    elements: mx.array  # (rows, cells * channels), up to ``end + spare``
    end: int  # elements of a row
    spare: int = 0  # elements behind the end, to take what has no place
    keep: mx.array | None = None  # False for a cell that has no place, though an element is named

    @property
    def shape(self) -> tuple[int, int]:
        """Of a full array with its spare elements."""
        return self.elements.shape[0], self.end + self.spare


def _put(values: mx.array, places: _Places, size: Triple) -> mx.array:
    cells = values.reshape(places.elements.shape)
    if places.keep is not None:
        cells = _masked(cells, places.keep)
    full = mx.zeros(places.shape, values.dtype)
    full = mx.put_along_axis(full, places.elements, cells, axis=1)
    return _plane(full, places, values, size)


def _plane(full: mx.array, places: _Places, values: mx.array, size: Triple) -> mx.array:
    """Rows of elements as the plane that they are, without the spare ones."""
    if places.spare:
        full = full[:, : places.end]
    return full.reshape(values.shape[0], *size, values.shape[4])


def _take(full: mx.array, places: _Places) -> mx.array:
    """The elements at the places, zero for cells without one."""
    elements, keep = places.elements, places.keep
    if places.spare:
        keep = elements < places.end if keep is None else keep
        elements = mx.minimum(elements, places.end - 1)
    picked = mx.take_along_axis(full.reshape(-1, places.end), elements, axis=1)
    return picked if keep is None else _masked(picked, keep)


def _masked(x: mx.array, keep: mx.array) -> mx.array:
    """``x`` where ``keep``, else zero: as integers, because NaN * 0 is not 0 and -1.0 * 0 has a sign."""
    bits = x.view(_unsigned_like(x))
    return (bits * keep.view(mx.uint8).astype(bits.dtype)).view(x.dtype)


def _pooled_places(indices: mx.array, window: Window | None, size: Triple) -> _Places:
    """The places of indices that a pool over ``size`` has made: all are good, but for empty windows."""
    if window is None:
        return _places_by_number(indices, size, checked=False)
    cells = indices.shape[1:4]
    if _empty_windows(window, size, cells) is not None:
        return _checked_places(indices, window, size)
    if is_window(indices.dtype):
        return _places_by_tap(indices, window, size, checked=False)
    return _places_by_number(indices, size, checked=False)


def _checked_places(indices: mx.array, window: Window | None, size: Triple) -> _Places:
    """The places of any indices: a spare element, or none to keep, where one names no place."""
    if not is_window(indices.dtype):
        return _places_by_number(indices, size, checked=True)
    assert window is not None
    if window.disjoint and _every_tap_inside(window, size, indices.shape[1:4]):
        return _places_by_tap(indices, window, size, checked=True)
    return _places_by_table(indices, window, size)


def _places_by_number(indices: mx.array, size: Triple, checked: bool) -> _Places:
    """Flat indices: the number of the place."""
    batch, *_, channels = indices.shape
    wide = mx.int32 if prod(size) < 2**31 else mx.int64
    if indices.dtype.size < wide.size:
        indices = indices.astype(wide)
    # As unsigned numbers, negative ones are too big.
    place = indices.view(_unsigned_like(indices))
    if checked:
        place = mx.minimum(place, prod(size))
    place = place.astype(_unsigned((prod(size) + 1) * channels))
    if channels > 1:
        place = place * channels + mx.arange(channels, dtype=place.dtype)
    end = prod(size) * channels
    return _Places(place.reshape(batch, -1), end, channels if checked else 0)


def _places_by_tap(indices: mx.array, window: Window, size: Triple, checked: bool) -> _Places:
    """Window indices of taps inside the plane: where the window starts, and the tap's part.

    If ``checked``, what is no tap counts as the first one, with nothing to keep. That is safe where the
    windows are disjoint.
    """
    batch, *cells, channels = indices.shape
    rows, end = batch, prod(size) * channels
    for axis in range(3):
        if not _tiles(window, size, indices.shape[1:4], axis):
            break
        # Each slab of windows has a slab of the plane to itself: make it a row. Its numbers are small.
        rows, end, cells[axis] = rows * cells[axis], end // cells[axis], 1
        if window.stride[axis] > 1:
            break
    dtype = _unsigned(end)
    pitches = [pitch * channels for pitch in _pitches(size)]
    steps = [pitch * d for pitch, d in zip(pitches, window.dilation)]
    parts = [sum(t * step for t, step in zip(tap, steps)) for tap in kernel_offsets(window.kernel)]
    code, keep = indices.reshape(-1), None
    if checked:
        code = _no_tap_clamped(code, window)
        keep = (code != window.elements).reshape(rows, -1)
    place = mx.take_along_axis(mx.array([*parts, 0], dtype), code, axis=0)
    place = place.reshape(rows, *cells, channels)
    for axis in (2, 1, 0):
        start = _along(axis, _starts(window, axis, cells[axis], pitches[axis], dtype))
        if axis == 2:
            start = start + mx.arange(channels, dtype=dtype)
        if start.size > 1 or window.padding[axis]:
            place = place + start
    return _Places(place.reshape(rows, -1), end, keep=keep)


def _places_by_table(indices: mx.array, window: Window, size: Triple) -> _Places:
    """Window indices where a tap may be outside the plane: a table of every tap of every window."""
    batch, *cells, channels = indices.shape
    end = prod(size) * channels
    dtype = _unsigned(3 * end + channels)
    table = mx.zeros([1] * 6, dtype)
    for axis, pitch in enumerate(_pitches(size)):
        if (window.kernel[axis], cells[axis], window.padding[axis]) == (1, 1, 0):
            continue
        tap = mx.arange(window.kernel[axis]) * window.dilation[axis]
        position = tap[:, None] + _starts(window, axis, cells[axis], 1, mx.int64)
        # As unsigned numbers, positions before the plane are too big.
        inside = position.view(mx.uint64) < size[axis]
        place = mx.where(inside, position * (pitch * channels), end).astype(dtype)
        shape = [1] * 6
        shape[axis], shape[axis + 3] = window.kernel[axis], cells[axis]
        table = table + place.reshape(shape)
    count = prod(cells)
    table = mx.minimum(table.reshape(window.elements, count), end)
    table = mx.pad(table, [(0, 1), (0, 0)], constant_values=mx.array(end, dtype))  # what is no tap
    entry = _no_tap_clamped(indices, window).astype(_unsigned(table.size))
    entry = entry.reshape(batch, count, channels) * count
    entry = entry + mx.arange(count, dtype=entry.dtype)[:, None]
    place = mx.take_along_axis(table.reshape(-1), entry.reshape(-1), axis=0)
    place = place.reshape(batch, count, channels) + mx.arange(channels, dtype=dtype)
    return _Places(place.reshape(batch, -1), end, channels)


def _no_tap_clamped(codes: mx.array, window: Window) -> mx.array:
    """Window indices in which every number that is no tap is the first such number."""
    if window.elements > mx.iinfo(codes.dtype).max:
        codes = codes.astype(mx.uint32)
    return mx.minimum(codes, window.elements)


def _every_tap_inside(window: Window, size: Triple, cells: Triple) -> bool:
    covered = window.unpooled_size(cells)
    return not any(window.padding) and all(n <= length for n, length in zip(covered, size))


def _tiles(window: Window, size: Triple, cells: Triple, axis: int) -> bool:
    """Whether the windows divide ``axis`` among themselves without a rest."""
    return (
        window.reach[axis] == 1
        and window.padding[axis] == 0
        and cells[axis] * window.stride[axis] == size[axis]
    )


def _pitches(size: Triple) -> Triple:
    """How many places one step along each axis of a plane is."""
    return (size[1] * size[2], size[2], 1)


def _starts(window: Window, axis: int, cells: int, pitch: int, dtype: mx.Dtype) -> mx.array:
    """Where each window starts along an axis, ``pitch`` numbers a place; negative numbers wrap."""
    first, step = -window.padding[axis] * pitch, window.stride[axis] * pitch
    signed = (
        mx.int64 if dtype in (mx.int64, mx.uint64) or first + cells * step > 2**31 else mx.int32
    )
    return mx.arange(first, first + cells * step, step, dtype=signed).astype(dtype)


def _along(axis: int, x: mx.array) -> mx.array:
    """A vector as an array (B, D, H, W, C) that varies along one spatial axis."""
    return x.reshape([-1 if a == axis + 1 else 1 for a in range(5)])


def _by_plane(axis: int, x: mx.array) -> mx.array:
    """Numbers (B, n, C) as an array (B, D, H, W, C) that varies along one spatial axis."""
    shape = [x.shape[0], 1, 1, 1, x.shape[2]]
    shape[axis + 1] = x.shape[1]
    return x.reshape(shape)


def _unsigned(largest: int) -> mx.Dtype:
    """The narrowest dtype for numbers up to ``largest``."""
    return next(dtype for dtype in _UNSIGNED if largest <= mx.iinfo(dtype).max)


def _unsigned_like(x: mx.array) -> mx.Dtype:
    """The dtype of unsigned numbers as wide as those of ``x``."""
    return _UNSIGNED[x.dtype.size.bit_length() - 1]
