"""The primitives as plain ``mlx.core`` ops, for the CPU.

The formulations were chosen by measurement (see ``benchmarks/``). What they avoid: ``mx.where``, gathers
with several index arrays, ``mx.pad`` and copies of strided slices.

MLX's scatters and gathers do not check their indices, so whatever a caller passed is brought into range
first: an index that names no place is sent to a spare one, which is cut off afterwards.
"""

from __future__ import annotations

from math import prod

import mlx.core as mx

from .._geometry import Triple, Window, tap_offsets
from .._indices import is_window, place_table

_FLOATS = (mx.float32, mx.float16, mx.bfloat16)


class Ops:
    """The primitives on arrays (B, D, H, W, C)."""

    def pool(
        self, x: mx.array, window: Window, cells: Triple, index_dtype: mx.Dtype
    ) -> tuple[mx.array, mx.array]:
        """Values and indices of every window."""
        values, codes = _pool(x, window, cells)
        if index_dtype in (mx.uint8, mx.uint16):
            indices = codes.astype(index_dtype)
        else:
            indices = _flat_from_codes(codes, window, x.shape[1:4], cells, index_dtype)
        empty = _empty_windows(window, x.shape[1:4], cells)
        if empty is not None:
            nowhere = mx.array(0 if is_window(indices) else -1, index_dtype)
            values = mx.where(empty, _lowest(x.dtype), values)
            indices = mx.where(empty, nowhere, indices)
        return values, indices

    def place(
        self, values: mx.array, indices: mx.array, window: Window | None, size: Triple
    ) -> mx.array:
        """Pooled values at their places, zero elsewhere, the last one of several."""
        places = _places(indices, window, size)
        full = mx.zeros((places.shape[0], places_end(size, values.shape[4])), values.dtype)
        full = mx.put_along_axis(full, places, values.reshape(places.shape), axis=1)
        return _without_spare(full, size, values.shape[4])

    def accumulate(
        self, values: mx.array, indices: mx.array, window: Window, size: Triple
    ) -> mx.array:
        """Pooled values at their places, zero elsewhere, the sum of several."""
        if window.disjoint:
            return self.place(values, indices, window, size)
        places = _places(indices, window, size)
        wide = mx.float32 if values.dtype in _FLOATS else values.dtype
        empty = mx.zeros((places.shape[0], places_end(size, values.shape[4])), wide)
        # MLX has no function for adding along an axis, but it is the derivative of gathering.
        _, (full,) = mx.vjp(
            lambda array: mx.take_along_axis(array, places, axis=1),
            [empty],
            [values.reshape(places.shape).astype(wide)],
        )
        return _without_spare(full, size, values.shape[4]).astype(values.dtype)

    def pick(self, full: mx.array, indices: mx.array, window: Window) -> mx.array:
        """The full array at the recorded places, zero where an index names none."""
        places = _places(indices, window, full.shape[1:4])
        return mx.take_along_axis(_with_spare(full), places, axis=1).reshape(indices.shape)

    def pick_winners(self, full: mx.array, indices: mx.array, window: Window | None) -> mx.array:
        """As :meth:`pick`, but zero for a cell whose place a later cell names as well."""
        places = _places(indices, window, full.shape[1:4])
        picked = mx.take_along_axis(_with_spare(full), places, axis=1)
        if not (window is not None and window.disjoint and is_window(indices)):
            number = mx.int32 if places.shape[1] < 2**31 else mx.int64
            cell = mx.broadcast_to(mx.arange(places.shape[1], dtype=number)[None], places.shape)
            end = places_end(full.shape[1:4], full.shape[4])
            owner = mx.put_along_axis(
                mx.zeros((places.shape[0], end), number), places, cell, axis=1
            )
            wins = mx.take_along_axis(owner, places, axis=1) == cell
            picked = mx.where(wins, picked, mx.zeros((), full.dtype))
        return picked.reshape(indices.shape)


def _pool(x: mx.array, window: Window, cells: Triple) -> tuple[mx.array, mx.array]:
    """Values and window indices, one axis at a time.

    The last axis goes first: then the first maximum along each later-treated axis is the first one in
    row-major order.
    """
    wide = mx.uint8 if window.taps <= 2**8 else mx.uint16
    if window.taps > 2**16:
        wide = mx.uint32
    values, codes = x, mx.zeros((), wide)
    step = 1  # what a tap of this axis adds to the window index
    for axis in (2, 1, 0):
        if (window.kernel[axis], window.stride[axis], window.padding[axis]) != (1, 1, 0):
            values, codes = _pool_axis(values, codes, axis, window, cells[axis], step)
        step *= window.kernel[axis]
    if codes.shape != values.shape:
        codes = mx.broadcast_to(codes, values.shape)
    return values, codes


def _pool_axis(
    values: mx.array, codes: mx.array, axis: int, window: Window, cells: int, step: int
) -> tuple[mx.array, mx.array]:
    length = values.shape[axis + 1]
    inside = [window.inside_taps(axis, length, cell) for cell in range(cells)]
    best = best_codes = mx.zeros(())
    for tap in range(window.kernel[axis]):
        # A tap outside the plane is replaced by the nearest one inside: the same place looked at twice
        # changes nothing.
        taps = [min(max(tap, taps.start), taps.stop - 1) if taps else 0 for taps in inside]
        later = _rows(values, axis, window, taps)
        weight = _weights(taps, axis, step, codes.dtype)
        later_codes = weight if codes.ndim == 0 else _rows(codes, axis, window, taps) + weight
        if tap == 0:
            best, best_codes = later, later_codes
            continue
        wins = later > best
        if later.dtype in _FLOATS:
            wins = wins | (later != later)
        # Codes only grow from tap to tap, so a maximum is a choice.
        best_codes = mx.maximum(best_codes, wins.view(mx.uint8).astype(codes.dtype) * later_codes)
        best = mx.maximum(later, best)
    return best, mx.broadcast_to(best_codes, best.shape)


def _rows(x: mx.array, axis: int, window: Window, taps: list[int]) -> mx.array:
    """The rows of ``x`` along ``axis`` that tap ``taps[cell]`` of each window looks at."""
    stride, padding, dilation = (
        window.stride[axis],
        window.padding[axis],
        window.dilation[axis],
    )
    length = x.shape[axis + 1]
    rows = [cell * stride - padding + tap * dilation for cell, tap in enumerate(taps)]
    rows = [min(max(row, 0), length - 1) for row in rows]
    if all(row == rows[0] + cell * stride for cell, row in enumerate(rows)):
        stop = rows[-1] + 1
        return x[(slice(None),) * (axis + 1) + (slice(rows[0], stop, stride),)]
    return mx.take(x, mx.array(rows, mx.uint32), axis=axis + 1)


def _weights(taps: list[int], axis: int, step: int, dtype: mx.Dtype) -> mx.array:
    """What each window's tap adds to its index: one number if it is the same for all."""
    if len(set(taps)) == 1:
        return mx.array(taps[0] * step, dtype)
    shape = [-1 if a == axis + 1 else 1 for a in range(5)]
    return mx.array([tap * step for tap in taps], dtype).reshape(shape)


def _flat_from_codes(
    codes: mx.array, window: Window, size: Triple, cells: Triple, dtype: mx.Dtype
) -> mx.array:
    """Flat indices from window indices: where the window starts, plus what the tap adds."""
    starts = mx.zeros((1, 1, 1, 1, 1), dtype)
    for axis in range(3):
        shape = [-1 if a == axis + 1 else 1 for a in range(5)]
        start = mx.arange(cells[axis], dtype=dtype) * window.stride[axis] - window.padding[axis]
        starts = starts * size[axis] + start.reshape(shape)
    steps = [(d * size[1] + h) * size[2] + w for d, h, w in _tap_places(window)]
    ahead = mx.take_along_axis(mx.array(steps, dtype), codes.reshape(-1), axis=0)
    return ahead.reshape(codes.shape) + starts


def _tap_places(window: Window) -> list[Triple]:
    """The distance of every tap from the start of its window."""
    return [
        tuple(t * d for t, d in zip(tap, window.dilation)) for tap in tap_offsets(window.kernel)
    ]


def _empty_windows(window: Window, size: Triple, cells: Triple) -> mx.array | None:
    """Which windows have no tap inside the plane, or None if all have one."""
    result = None
    for axis in range(3):
        empty = [not window.inside_taps(axis, size[axis], cell) for cell in range(cells[axis])]
        if any(empty):
            shape = [-1 if a == axis + 1 else 1 for a in range(5)]
            here = mx.array(empty).reshape(shape)
            result = here if result is None else result | here
    return result


def _lowest(dtype: mx.Dtype) -> mx.array:
    if dtype in _FLOATS:
        return mx.array(float("-inf"), dtype)
    return mx.array(mx.iinfo(dtype).min, dtype)


def _places(indices: mx.array, window: Window | None, size: Triple) -> mx.array:
    """Where each index points in a plane that was flattened to (B, places_end(size, C)).

    Shape (B, cells * C). Indices that name no place point beyond the plane, to the spare place.
    """
    batch, *cells, channels = indices.shape
    end = prod(size)
    dtype = mx.uint32 if places_end(size, channels) < 2**32 else mx.uint64
    if is_window(indices):
        assert window is not None
        table = _unsigned(place_table(window, size, tuple(cells)))
        table = mx.minimum(table, mx.array(end, table.dtype)).astype(dtype)
        # One more column, for codes that are no tap.
        table = mx.pad(table, [(0, 0), (0, 1)], constant_values=mx.array(end, dtype))
        columns = window.taps + 1
        code = indices.reshape(batch, prod(cells), channels)
        if indices.dtype != mx.uint8 or window.taps < 2**8:
            code = mx.minimum(code, mx.array(window.taps, indices.dtype))
        row = mx.arange(prod(cells), dtype=dtype)[:, None] * columns
        place = mx.take_along_axis(table.reshape(-1), (code + row).reshape(-1), axis=0)
        place = place.reshape(batch, prod(cells), channels)
    else:
        place = _unsigned(indices).reshape(batch, prod(cells), channels)
        place = mx.minimum(place, mx.array(end, place.dtype)).astype(dtype)
    if channels > 1:
        place = place * mx.array(channels, dtype) + mx.arange(channels, dtype=dtype)
    return place.reshape(batch, prod(cells) * channels)


def _unsigned(indices: mx.array) -> mx.array:
    """Indices as unsigned numbers of 4 or 8 bytes, in which negative ones are too big."""
    if indices.dtype in (mx.int8, mx.int16):
        indices = indices.astype(mx.int32)
    if indices.dtype == mx.int32:
        return indices.view(mx.uint32)
    return indices.view(mx.uint64) if indices.dtype == mx.int64 else indices


def places_end(size: Triple, channels: int) -> int:
    """The length of a flattened plane with its spare place."""
    return (prod(size) + 1) * channels


def _with_spare(full: mx.array) -> mx.array:
    """A full array flattened to (B, places_end), zero in the spare place."""
    batch, *size, channels = full.shape
    flat = full.reshape(batch, prod(size) * channels)
    return mx.concatenate([flat, mx.zeros((batch, channels), full.dtype)], axis=1)


def _without_spare(full: mx.array, size: Triple, channels: int) -> mx.array:
    return full[:, : prod(size) * channels].reshape(full.shape[0], *size, channels)
