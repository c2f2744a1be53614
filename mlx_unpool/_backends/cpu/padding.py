"""Windows that extend beyond the plane.

Each window element outside the plane is replaced by the nearest element of the same window that is
inside the plane. Reading an element twice does not change the maximum.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from ..._geometry import Axis, WindowGeometry
from .arrays import along, constant, gathered, position_dtype, unfused


def used_rows(x: mx.array, g: WindowGeometry) -> tuple[mx.array, list[mx.array | None]]:
    """The rows from ``first`` to ``stop`` of each axis, those outside ``x`` replaced by rows inside.

    Also, for each axis, the distance from each row to its replacement, in window elements. ``Axis.after`` is
    added to make it non-negative. None for an axis whose rows are all inside. Sparse axes are left out.
    """
    axes = [axis for axis in g.axes if not axis.is_sparse]
    if any(axis.before or axis.after for axis in axes):
        return _clamped(x, g)
    if any(axis.first for axis in axes):
        slices = (slice(None) if axis.is_sparse else slice(axis.first, axis.stop) for axis in g.axes)
        x = x[(slice(None), *slices)]
    return x, [None] * 3


def _clamped(x: mx.array, g: WindowGeometry) -> tuple[mx.array, list[mx.array | None]]:
    """Like ``used_rows``, for windows that extend beyond the plane."""
    table: Any = g.nearest_table
    source = mx.arange(x.shape[0], dtype=position_dtype(x)).reshape(-1, 1, 1, 1, 1)
    shifts: list[mx.array | None] = []
    for number, axis in enumerate(g.axes):
        shift = None
        if axis.is_sparse:
            row = mx.arange(axis.length)
        elif not (axis.before or axis.after):
            row = mx.arange(axis.first, axis.stop)
        else:
            row, shift = _nearest_inside(axis) if table is None else map(mx.array, table[number])
            shift = along(number, shift)
        source = source * constant(axis.length, source.dtype) + along(number, row)
        shifts.append(shift)
    return gathered(x, unfused(source)), shifts


def _nearest_inside(axis: Axis) -> tuple[mx.array, mx.array]:
    """The rows and distances of ``WindowGeometry.nearest_table`` for one axis, as arrays."""
    before, after, length, dilation = axis.before, axis.after, axis.length, axis.dilation
    if dilation > 1:
        return _nearest_rows(axis, mx.arange(axis.first, axis.stop))
    # Uses no arithmetic, which mx.compile would pass to a C++ compiler.
    inside = mx.arange(max(axis.first, 0), min(axis.stop, length))
    rows = [mx.zeros(before, mx.int32), inside, mx.full(after, length - 1, mx.int32)]
    shifts = [
        mx.arange(before + after, after, -1),
        mx.full(inside.size, after, mx.int32),
        mx.arange(after - 1, -1, -1),
    ]
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
    """The used rows of each window, one window after the other, replaced by rows inside; their distances."""
    start = mx.arange(axis.count, dtype=mx.int64) * axis.stride + constant(axis.first, mx.int64)
    element = mx.arange(axis.used, dtype=mx.int64) * axis.dilation
    return _nearest_rows(axis, (start[:, None] + element).flatten())
