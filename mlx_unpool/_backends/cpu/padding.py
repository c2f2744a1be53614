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
    added to make it non-negative. None for an axis whose rows are all inside.
    """
    if any(axis.before or axis.after for axis in g.axes):
        return _clamped(x, g)
    if any(axis.first for axis in g.axes):
        x = x[(slice(None), *(slice(axis.first, axis.stop) for axis in g.axes))]
    return x, [None] * 3


def _clamped(x: mx.array, g: WindowGeometry) -> tuple[mx.array, list[mx.array | None]]:
    """Like ``used_rows``, for windows that extend beyond the plane."""
    axes, table = g.axes, g.nearest_table
    source = mx.arange(x.shape[0], dtype=position_dtype(x)).reshape(-1, 1, 1, 1, 1)
    shifts: list[mx.array | None] = []
    for number, axis in enumerate(axes):
        row, shift = mx.arange(axis.first, axis.stop), None
        if axis.before or axis.after:
            if table is None:
                row, shift = _nearest_inside(axis)
            else:
                both: Any = table[number]
                row, shift = map(mx.array, both)
            shift = along(number, shift)
        source = source * constant(axis.length, source.dtype) + along(number, row)
        shifts.append(shift)
    return gathered(x, unfused(source)), shifts


def _nearest_inside(axis: Axis) -> tuple[mx.array, mx.array]:
    """The rows and distances of ``WindowGeometry.nearest_table`` for one axis, as arrays."""
    before, after, length, dilation = axis.before, axis.after, axis.length, axis.dilation
    if dilation == 1:
        # Uses no arithmetic, which mx.compile would pass to a C++ compiler.
        inside = mx.arange(max(axis.first, 0), min(axis.stop, length))
        rows = [mx.zeros(before, mx.int32), inside, mx.full(after, length - 1, mx.int32)]
        shifts = [
            mx.arange(before + after, after, -1),
            mx.full(inside.size, after, mx.int32),
            mx.arange(after - 1, -1, -1),
        ]
        return mx.concatenate(rows), mx.concatenate(shifts)
    row = mx.arange(axis.first, axis.stop)
    rest = row % dilation
    most = mx.maximum(length - 1 - rest, 0) // dilation
    steps = mx.minimum(mx.maximum((row - rest) // dilation, 0), most)
    nearest = steps * dilation + rest
    # If the window has no row inside, it is empty and any row will do.
    nearest = mx.minimum(nearest, length - 1)
    return nearest, (nearest - row) // dilation + after
