"""Windows that hang over the edge, made to look inside only.

An element outside the plane is replaced by the nearest element of its window inside: an element looked at
twice changes no maximum. What no window has inside is not looked at at all.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

from ..._geometry import Triple, Window
from .arrays import along, gathered, position_dtype, unfused


class Axis(NamedTuple):
    """What windows look at along one axis."""

    skipped: int  # the first elements of a window, which are outside in all of them
    kernel: int  # how many follow, up to the last one that any window has inside
    first: int  # the position of the first of those in the first window
    stop: int  # the position behind the last of them in the last window
    before: int  # the most elements, of those looked at, that a window has before the plane
    behind: int  # ... and behind it


def covered(window: Window, size: Triple, pooled: Triple) -> list[Axis]:
    """What the windows on a plane look at."""
    result = []
    for axis, (length, count, d) in enumerate(zip(size, pooled, window.dilation)):
        # Windows further on have fewer elements before the plane and more behind it.
        start = window.inside_taps(axis, length, count - 1).start
        kernel = max(window.inside_taps(axis, length, 0).stop - start, 1)
        first = start * d - window.padding[axis]
        stop = first + (count - 1) * window.stride[axis] + (kernel - 1) * d + 1
        before, behind = max(-(first // d), 0), max(-((length - stop) // d), 0)
        result.append(Axis(start, kernel, first, stop, before, behind))
    return result


def clamped(
    x: mx.array, axes: list[Axis], dilation: Triple
) -> tuple[mx.array, list[mx.array | None]]:
    """The rows from ``first`` to ``stop`` of each axis, those outside ``x`` replaced by rows inside.

    Also, for each row of an axis, how many elements of a window further its replacement is, plus
    ``behind``, so that no number is negative. None for an axis whose rows are all inside.
    """
    if not any(axis.before or axis.behind for axis in axes):
        if any(axis.first for axis in axes):
            d, h, w = (slice(axis.first, axis.stop) for axis in axes)
            x = x[:, d, h, w]
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
