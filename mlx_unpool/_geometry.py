"""Sizes and windows: the integer arithmetic of pooling, without MLX.

Everything here has three spatial axes (depth, height, width). Pooling over fewer axes is pooling
with leading axes of size 1, kernel 1 and stride 1.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from operator import sub
from typing import Any

Triple = tuple[int, ...]  # always three: for depth, height and width
# Maps an axis and a number (or an array of numbers) to a pair of integers (or of arrays).
BoundsFormula = Callable[[int, Any], tuple[Any, Any]]
MAX_TABLE_SIZE = 2048  # pairs of 8 bytes: 16 MB for a thousand cached plans, 32 MB with two tables


def triple(numbers: Sequence[int], fill: int = 1) -> Triple:
    """The numbers of one, two or three axes, with ``fill`` for missing leading axes."""
    return (*[fill] * (3 - len(numbers)), *numbers)


def untriple(numbers: Sequence[Any], rank: int) -> tuple[Any, ...]:
    """The inverse of ``triple``: the numbers of the last ``rank`` axes."""
    return tuple(numbers[3 - rank :])


def pitches(size: Sequence[int]) -> Triple:
    """The distance in flat positions between neighbours on each axis of a plane."""
    return (size[1] * size[2], size[2], 1)


@dataclass(frozen=True, eq=False)
class Window:
    """The parameters of a pooling window, one value for each of (depth, height, width)."""

    kernel: Triple = (1, 1, 1)
    stride: Triple = (1, 1, 1)
    padding: Triple = (0, 0, 0)  # before the plane; backends and kernels need no other padding
    dilation: Triple = (1, 1, 1)
    ceil_mode: bool = False
    padding_after: Triple = (0, 0, 0)
    same: bool = False  # the padding depends on the size of the plane; see ``resolved``

    @property
    def elements(self) -> int:
        """The number of elements of a window."""
        return prod(self.kernel)

    @property
    def span(self) -> Triple:
        """The length from the first to the last element of a window, both included."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation))

    def resolved(self, size: Triple) -> Window:
        """The window with its padding for ``size``: with ``same``, for ``ceil(L / s)`` windows."""
        if not self.same:
            return self
        axes = zip(size, self.span, self.stride)
        total = [max((-(-length // s) - 1) * s + n - length, 0) for length, n, s in axes]
        before = tuple(n // 2 for n in total)
        return replace(self, padding=before, padding_after=tuple(map(sub, total, before)))

    @property
    def reach(self) -> Triple:
        """For each axis, the most windows that span one position, gaps of a dilation included."""
        return tuple((n - 1) // s + 1 for n, s in zip(self.span, self.stride))

    @property
    def disjoint(self) -> bool:
        """Whether every position is spanned by at most one window, gaps of a dilation included."""
        return self.reach == (1, 1, 1)

    def pooled_size(self, size: Triple) -> Triple:
        """The number of windows on each axis of a plane of ``size``.

        ``floor((L + p + q - d(k-1) - 1) / s) + 1`` with the padding ``p`` before and ``q`` after
        the plane; below 1 if no window fits. With ``ceil_mode`` the quotient is rounded up, but a
        last window that starts at ``L`` or later is left out.
        """
        pooled = []
        sides = zip(self.padding, self.padding_after)
        for length, n, s, (p, q) in zip(size, self.span, self.stride, sides):
            steps = length + p + q - n
            count = (-(-steps // s) if self.ceil_mode else steps // s) + 1
            starts_late = self.ceil_mode and (count - 1) * s >= length + p
            pooled.append(count - starts_late)
        return tuple(pooled)

    def unpooled_size(self, pooled: Triple) -> Triple:
        """The default size of a plane with ``pooled`` windows: ``(n-1)s - p - q + d(k-1) + 1``.

        With ``same``, which has no default unless all strides are 1, the smallest size.
        """
        if self.same:
            return tuple((count - 1) * s + 1 for count, s in zip(pooled, self.stride))
        axes = zip(pooled, self.span, self.stride, self.padding, self.padding_after)
        return tuple((count - 1) * s - p - q + n for count, n, s, p, q in axes)

    def unpooled_ranges(self, pooled: Triple) -> list[range]:
        """The sizes, for each axis, that differ from the default by less than one stride.

        With ``same``, those that are pooled to ``pooled`` windows.
        """
        axes = zip(self.unpooled_size(pooled), self.stride)
        return [range(n if self.same else max(1, n - s + 1), n + s) for n, s in axes]


@dataclass(frozen=True, eq=False)
class Geometry:
    """The size of a plane and the number of pooled values.

    Everything that depends only on the shape is computed once per geometry and cached.
    """

    size: Triple  # of the plane
    pooled: Triple  # the number of windows on each axis
    window: Window | None = field(default=None, kw_only=True)  # None: windows differ or are unknown

    @cached_property
    def most_positions(self) -> int:
        """The number of positions of the plane or the number of windows, whichever is larger."""
        return max(prod(self.size), prod(self.pooled))


@dataclass(frozen=True, eq=False)
class WindowGeometry(Geometry):
    """Equal windows at equal distances."""

    window: Window
    # The same windows as regions, if they are adaptive: their size depends on that of the plane.
    regions: RegionGeometry | None = None


@dataclass(frozen=True, eq=False)
class RegionGeometry(Geometry):
    """Windows of adaptive and fractional pooling, which may differ in size and distance.

    On each axis neither the starts nor the ends of consecutive windows decrease. The formulas for
    the bounds take an integer or an array of integers, which must be int64 for sizes near 2^31.
    """

    longest: Triple  # the largest number of positions of a window
    regular: tuple[tuple[int, int] | None, ...]  # window length and stride; None if windows differ

    def bounds(self, axis: int, number: Any) -> tuple[Any, Any]:
        """The range (start, stop) of positions that a window covers, unless windows are random."""
        raise NotImplementedError

    @cached_property
    def bounds_table(self) -> array[int] | None:
        """``bounds`` of every window, one axis after the other; None if there are many."""
        return table(self.bounds, self.pooled)

    def covering(self, axis: int, position: Any) -> tuple[Any, Any]:
        """The range (first, stop) of the windows that may cover a position of an axis."""
        raise NotImplementedError

    @cached_property
    def covering_table(self) -> array[int] | None:
        """``covering`` for every position, one axis after the other; None if there are many."""
        return table(self.covering, self.size)


def table(formula: BoundsFormula, counts: Triple) -> array[int] | None:
    """``formula(axis, n)`` for every ``n`` below the count of each axis; None if too many."""
    if sum(counts) > MAX_TABLE_SIZE:
        return None
    pairs = (formula(axis, number) for axis in range(3) for number in range(counts[axis]))
    return array("i", (end for pair in pairs for end in pair))
