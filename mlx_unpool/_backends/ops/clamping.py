"""Windows that hang over the edge, made to look inside only.

An element outside the plane is replaced by the nearest element of its window inside: an element looked at
twice changes no maximum.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from ..._geometry import WindowGeometry
from .arrays import along, gathered, position_dtype, unfused


def clamped(x: mx.array, g: WindowGeometry) -> tuple[mx.array, list[mx.array | None]]:
    """The rows from ``first`` to ``stop`` of each axis, those outside ``x`` replaced by rows inside.

    Also, for each row of an axis, how many elements of a window further its replacement is, plus
    ``behind``, so that no number is negative. None for an axis whose rows are all inside.
    """
    axes = g.covered
    if not any(axis.before or axis.behind for axis in axes):
        if any(axis.first for axis in axes):
            slices = [slice(axis.first, axis.stop) for axis in axes]
            x = x[(slice(None), *slices)]
        return x, [None] * 3
    source = mx.arange(x.shape[0], dtype=position_dtype(x)).reshape(-1, 1, 1, 1, 1)
    shifts: list[mx.array | None] = []
    listed: Any = g.listed_nearest
    for number, (axis, length) in enumerate(zip(axes, g.size)):
        row, shift = mx.arange(axis.first, axis.stop), None
        if axis.before or axis.behind:
            if listed is None:
                row, shift = g.nearest_inside(number, mx.arange(axis.stop - axis.first))
            else:
                row, shift = map(mx.array, listed[number])
            shift = along(number, shift)
        source = source * length + along(number, row)
        shifts.append(shift)
    return gathered(x, unfused(source)), shifts
