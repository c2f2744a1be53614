"""Sizes and windows: the integer arithmetic of pooling, free of MLX.

Everything here is written for three spatial axes (depth, height, width). Pooling over fewer axes is
pooling with leading axes of size 1, kernel 1, stride 1, so nothing below knows about ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from math import floor, prod

Triple = tuple[int, ...]  # always three: for depth, height and width


def triple(numbers: Sequence[int], fill: int = 1) -> Triple:
    """The numbers of one, two or three axes, with ``fill`` for the leading axes that are missing."""
    return (*[fill] * (3 - len(numbers)), *numbers)


@dataclass(frozen=True)
class Window:
    """The parameters of a pooling window, one value for each of (depth, height, width)."""

    kernel: Triple = (1, 1, 1)
    stride: Triple = (1, 1, 1)
    padding: Triple = (0, 0, 0)
    dilation: Triple = (1, 1, 1)
    ceil_mode: bool = False

    @property
    def taps(self) -> int:
        """How many places a window looks at."""
        return prod(self.kernel)

    @property
    def span(self) -> Triple:
        """How many places lie between the first and the last tap, both included."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation))

    @property
    def reach(self) -> Triple:
        """How many neighbouring windows can cover one place: 1 where windows are disjoint."""
        return tuple((n - 1) // s + 1 for n, s in zip(self.span, self.stride))

    @property
    def disjoint(self) -> bool:
        """Whether every place belongs to one window at most."""
        return self.reach == (1, 1, 1)

    def pooled_size(self, size: Triple) -> Triple:
        """The number of windows on each axis of a plane of ``size``.

        ``floor((L + 2p - d(k-1) - 1) / s) + 1``; with ``ceil_mode`` the ceiling, less a last window
        that would start at or beyond ``L + p``. A result below 1 means that no window fits.
        """
        pooled = []
        for length, n, s, p in zip(size, self.span, self.stride, self.padding):
            steps = length + 2 * p - n
            if self.ceil_mode:
                count = -(-steps // s) + 1
                if (count - 1) * s >= length + p:
                    count -= 1
            else:
                count = steps // s + 1
            pooled.append(count)
        return tuple(pooled)

    def unpooled_size(self, cells: Triple) -> Triple:
        """The default size of a plane whose pooled size was ``cells``: ``(L-1)s - 2p + d(k-1) + 1``."""
        return tuple(
            (count - 1) * s - 2 * p + n
            for count, n, s, p in zip(cells, self.span, self.stride, self.padding)
        )

    def inside_taps(self, axis: int, length: int, cell: int) -> range:
        """The taps of window number ``cell`` on ``axis`` that lie inside an axis of ``length``."""
        k, s, p, d = (
            self.kernel[axis],
            self.stride[axis],
            self.padding[axis],
            self.dilation[axis],
        )
        start = cell * s - p
        first = max(0, -(start // d))
        last = min(k - 1, (length - 1 - start) // d)
        return range(first, last + 1)


@dataclass(frozen=True)
class Regions:
    """Windows of adaptive and of fractional pooling, which need not be alike.

    On each axis the windows come in order: neither where they start nor where they stop ever goes back.
    """

    hulls: tuple[tuple[range, ...], ...]  # for each axis and cell, the places its window may cover
    longest: Triple  # the most places that a window covers

    @property
    def cells(self) -> Triple:
        """The number of windows on each axis."""
        return tuple(map(len, self.hulls))

    @cached_property
    def ends(self) -> list[tuple[int, int]]:
        """Where the window of each cell starts and stops at the farthest, one axis after the other."""
        return [(hull.start, hull.stop) for hulls in self.hulls for hull in hulls]

    @cached_property
    def regular(self) -> list[tuple[int, int] | None]:
        """For each axis the length and the distance of its windows where these are all the same."""
        axes: list[tuple[int, int] | None] = []
        for hulls, length in zip(self.hulls, self.longest):
            steps = {later.start - hull.start for hull, later in pairwise(hulls)} or {length}
            alike = all(len(hull) == length for hull in hulls) and len(steps) == 1
            step = steps.pop()
            axes.append((length, step) if alike and hulls[0].start == 0 and step > 0 else None)
        return axes

    @cached_property
    def window(self) -> Window | None:
        """The one window that does the same, if there is one."""
        if None in self.regular:
            return None
        kernel, stride = zip(*(axis for axis in self.regular if axis))
        return Window(kernel=kernel, stride=stride)

    @cached_property
    def covering(self) -> list[tuple[int, int]]:
        """For each place, one axis after the other, the first cell whose window may cover it, and the first
        that follows those."""
        ranges = []
        for hulls in self.hulls:
            first = stop = 0
            for place in range(hulls[-1].stop):  # the last window ends where the axis does
                while hulls[first].stop <= place:
                    first += 1
                while stop < len(hulls) and hulls[stop].start <= place:
                    stop += 1
                ranges.append((first, stop))
        return ranges


@lru_cache
def adaptive_regions(size: Triple, cells: Triple) -> Regions:
    """Window ``i`` of ``n`` on an axis of ``L``: from ``floor(i * L / n)`` to ``ceil((i + 1) * L / n)``."""
    hulls = tuple(
        tuple(range(i * length // n, -(-(i + 1) * length // n)) for i in range(n))
        for length, n in zip(size, cells)
    )
    return Regions(hulls, tuple(max(map(len, axis)) for axis in hulls))


@lru_cache
def fractional_regions(size: Triple, cells: Triple, kernel: Triple) -> Regions:
    """Windows of one length, at starts that are drawn at random.

    ``floor((i + u) * a) - floor(u * a)`` is ``floor(i * a)`` or one more, whatever ``u`` in [0, 1) is, but
    for what float32 rounds.
    """
    hulls = []
    for length, n, k in zip(size, cells, kernel):
        last, rounding = length - k, length / 2**20
        exact = (i * last / (n - 1) for i in range(n - 1))
        starts = ((floor(x - rounding), floor(x + rounding) + 1) for x in exact)
        drawn = (range(max(0, low), min(last, high) + k) for low, high in starts)
        hulls.append((*drawn, range(last, length)))
    return Regions(tuple(hulls), kernel)


def tap_offsets(kernel: Triple) -> list[Triple]:
    """The (depth, height, width) coordinates of every tap, in the order of window indices."""
    return [(d, h, w) for d in range(kernel[0]) for h in range(kernel[1]) for w in range(kernel[2])]
