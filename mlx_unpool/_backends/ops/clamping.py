"""Windows that hang over the edge, made to look inside only.

An element outside the plane is replaced by the nearest element of its window inside: an element looked at
twice changes no maximum.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from ..._geometry import CoveredAxis, Triple
from .arrays import along, gathered, position_dtype, unfused


def clamped(
    x: mx.array, axes: Sequence[CoveredAxis], dilation: Triple
) -> tuple[mx.array, list[mx.array | None]]:
    """The rows from ``first`` to ``stop`` of each axis, those outside ``x`` replaced by rows inside.

    Also, for each row of an axis, how many elements of a window further its replacement is, plus
    ``behind``, so that no number is negative. None for an axis whose rows are all inside.
    """
    if not any(axis.before or axis.behind for axis in axes):
        if any(axis.first for axis in axes):
            slices = [slice(axis.first, axis.stop) for axis in axes]
            x = x[(slice(None), *slices)]
        return x, [None] * 3
    source = mx.arange(x.shape[0], dtype=position_dtype(x)).reshape(-1, 1, 1, 1, 1)
    shifts: list[mx.array | None] = []
    for number, (axis, length, d) in enumerate(zip(axes, x.shape[1:4], dilation)):
        row, shift = mx.arange(axis.first, axis.stop), None
        if axis.before or axis.behind:
            nearest = _nearest_inside(row, length, d)
            shift = nearest - row
            shift = along(number, (shift if d == 1 else shift // d) + axis.behind)
            row = nearest
        source = source * length + along(number, row)
        shifts.append(shift)
    return gathered(x, unfused(source)), shifts


def _nearest_inside(row: mx.array, length: int, dilation: int) -> mx.array:
    """The row in 0 to ``length - 1`` that is nearest to each row and a multiple of ``dilation`` away."""
    if dilation == 1:
        return mx.clip(row, 0, length - 1)
    rest = row % dilation
    steps = (row - rest) // dilation
    most = mx.maximum(length - 1 - rest, 0) // dilation
    # There may be no such row. Then none of the window is inside, and any row will do.
    return mx.minimum(mx.clip(steps, 0, most) * dilation + rest, length - 1)
