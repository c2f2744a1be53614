"""Windows that extend beyond the plane.

Each window element outside the plane is replaced by the nearest element of the same window that is
inside the plane. Reading an element twice does not change the maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import mlx.core as mx

from ..._geometry import WindowGeometry
from ..._types import LARGEST_AXIS
from .arrays import added, along, constant, gathered, position_dtype, rows
from .axes import Axis, axes_of


def used_rows(
    x: mx.array, g: WindowGeometry, kept: Sequence[bool] = (False,) * 3
) -> tuple[mx.array, list[mx.array | None]]:
    """The rows from ``first`` to ``stop`` of each axis; rows inside ``x`` replace those outside.

    Also, for each axis, the distance from each row to its replacement, in window elements.
    ``Axis.after`` is added to make it non-negative. None for an axis whose rows are all inside.
    Sparse axes and those in ``kept`` keep all their rows.
    """
    axes = [None if keep else _moved(axis) for axis, keep in zip(axes_of(g), kept)]
    if any(axis and axis.before + axis.after for axis in axes):
        return _clamped(x, axes)
    for number, axis in enumerate(axes):
        if axis:
            x = rows(x, number, axis.first, 1, axis.stop - axis.first)
    return x, [None] * 3


def _moved(axis: Axis) -> Axis | None:
    """The axis, or None if ``used_rows`` keeps its rows where they are."""
    return None if axis.is_inside or axis.is_sparse else axis


def _clamped(x: mx.array, axes: Sequence[Axis | None]) -> tuple[mx.array, list[mx.array | None]]:
    """Like ``used_rows``, for windows beyond the plane; None for an axis that keeps its rows."""
    dtype, pitch = position_dtype(x), prod(x.shape[1:4])
    source = mx.arange(0, x.shape[0] * pitch, pitch, dtype=dtype).reshape(-1, 1, 1, 1, 1)
    shifts: list[mx.array | None] = []
    for number, (axis, length) in enumerate(zip(axes, x.shape[1:4])):
        pitch //= length
        position = mx.arange(0, length * pitch, pitch, dtype=dtype)
        shifts.append(None)
        if axis:
            row, shift = _nearest_inside(axis)
            position, shifts[number] = mx.take(position, row), along(number, shift)
        source = added(source, along(number, position))
    return gathered(x, source), shifts


def _nearest_inside(axis: Axis) -> tuple[mx.array, mx.array]:
    """The nearest row inside the plane for each used row, and the distance as in ``used_rows``."""
    before, after, length, dilation = axis.before, axis.after, axis.length, axis.dilation
    if axis.stop - axis.first > LARGEST_AXIS:
        raise OverflowError(f"a copy with padding would have {axis.stop - axis.first} rows")
    if dilation > 1:
        return _nearest_rows(axis, mx.arange(axis.first, axis.stop, dtype=mx.int64))
    # Uses no arithmetic, which mx.compile would pass to a C++ compiler.
    inside = mx.arange(max(axis.first, 0), min(axis.stop, length))
    rows = [mx.zeros(before, mx.int32), inside, mx.full(after, length - 1, mx.int32)]
    here = mx.full(inside.size, after, mx.int32)
    shifts = [mx.arange(before + after, after, -1), here, mx.arange(after - 1, -1, -1)]
    return mx.concatenate(rows), mx.concatenate(shifts)


def _nearest_rows(axis: Axis, row: mx.array) -> tuple[mx.array, mx.array]:
    """The nearest row inside the plane for each row, and the distance as in ``used_rows``."""
    last = constant(axis.length - 1, row.dtype)
    rest = row % axis.dilation
    most = mx.maximum(last - rest, 0) // axis.dilation
    steps = mx.minimum(mx.maximum((row - rest) // axis.dilation, 0), most)
    # If the window has no row inside, it is empty and any row will do.
    nearest = mx.minimum(steps * axis.dilation + rest, last)
    shift = (nearest - row) // axis.dilation + constant(axis.after, row.dtype)
    return nearest.astype(mx.int32), shift.astype(mx.int32)


def rows_of_windows(axis: Axis) -> tuple[mx.array, mx.array]:
    """The used rows of each window in turn, replaced by rows inside; their distances."""
    start = mx.arange(axis.count, dtype=mx.int64) * axis.stride + constant(axis.first, mx.int64)
    element = mx.arange(axis.used, dtype=mx.int64) * axis.dilation
    return _nearest_rows(axis, (start[:, None] + element).flatten())
