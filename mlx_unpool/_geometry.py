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


@dataclass(frozen=True, eq=False)
class Window:
    """The parameters of a pooling window, one value for each of (depth, height, width).

    Compared by identity, like all that depends on it.
    """

    kernel: Triple = (1, 1, 1)
    stride: Triple = (1, 1, 1)
    padding: Triple = (0, 0, 0)
    dilation: Triple = (1, 1, 1)
    ceil_mode: bool = False

    @property
    def elements(self) -> int:
        """How many elements a window has."""
        return prod(self.kernel)

    @property
    def span(self) -> Triple:
        """The length from the first to the last element of a window, both included."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation))

    @cached_property
    def padding_fits(self) -> bool:
        """Whether padding is at most half the window."""
        return all(2 * p <= n for p, n in zip(self.padding, self.span))

    @property
    def reach(self) -> Triple:
        """How many neighbouring windows can cover one position: 1 where windows are disjoint."""
        return tuple((n - 1) // s + 1 for n, s in zip(self.span, self.stride))

    @property
    def disjoint(self) -> bool:
        """Whether every position belongs to one window at most."""
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

    def unpooled_size(self, pooled: Triple) -> Triple:
        """The default size of a plane with ``pooled`` windows: ``(L-1)s - 2p + d(k-1) + 1``."""
        return tuple(
            (count - 1) * s - 2 * p + n
            for count, n, s, p in zip(pooled, self.span, self.stride, self.padding)
        )


@dataclass(frozen=True, eq=False)
class Geometry:
    """Planes of one size and what was pooled from them; where the windows lie is not known.

    All that a backend needs to know besides its arrays. Compared by identity: a plan makes one for a
    shape, and what depends on it is worked out once.
    """

    size: Triple  # of the plane
    pooled: Triple  # the number of windows on each axis


@dataclass(frozen=True, eq=False)
class WindowGeometry(Geometry):
    """Windows that are all alike, at equal distances."""

    window: Window

    @cached_property
    def every_element_inside(self) -> bool:
        """Whether no window reaches beyond the plane."""
        covered = self.window.unpooled_size(self.pooled)
        return not any(self.window.padding) and all(n <= m for n, m in zip(covered, self.size))

    @cached_property
    def tiled(self) -> tuple[bool, ...]:
        """For each axis, whether the windows divide it among themselves without a rest."""
        return tuple(
            reach == 1 and padding == 0 and count * stride == length
            for reach, padding, count, stride, length in zip(
                self.window.reach,
                self.window.padding,
                self.pooled,
                self.window.stride,
                self.size,
            )
        )

    @cached_property
    def axes_with_empty_windows(self) -> tuple[int, ...]:
        """The axes on which a window may have no element inside the plane.

        Only a window that starts in the padding can step over the plane, and only where its dilation is
        longer than the plane: it does if ``start mod dilation`` is the length or more.
        """
        return tuple(
            axis
            for axis in range(3)
            if self.window.padding[axis] and self.window.dilation[axis] > self.size[axis]
        )

    @cached_property
    def tiles(self) -> Triple:
        """The number of tiles, each as large as the stride, that cover the plane on each axis.

        Tile ``t`` begins where window ``t`` begins.
        """
        return tuple(
            -(-(n + p) // s) for n, p, s in zip(self.size, self.window.padding, self.window.stride)
        )


@dataclass(frozen=True, eq=False)
class RegionGeometry(Geometry):
    """Windows of adaptive and of fractional pooling, which need not be alike.

    On each axis the windows come in order: neither where they start nor where they stop ever goes back.
    """

    hulls: tuple[tuple[range, ...], ...]  # for each axis and window, the positions it may cover
    longest: Triple  # the most positions that a window covers

    @cached_property
    def ends(self) -> list[tuple[int, int]]:
        """Where each window starts and stops at the farthest, one axis after the other."""
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
    def covering(self) -> list[tuple[int, int]]:
        """For each position, one axis after the other, the first window that may cover it, and the first
        that follows those."""
        ranges = []
        for hulls in self.hulls:
            first = stop = 0
            for position in range(hulls[-1].stop):  # the last window ends where the axis does
                while hulls[first].stop <= position:
                    first += 1
                while stop < len(hulls) and hulls[stop].start <= position:
                    stop += 1
                ranges.append((first, stop))
        return ranges


@lru_cache
def adaptive_geometry(size: Triple, pooled: Triple) -> Geometry:
    """Window ``i`` of ``n`` on an axis of ``L``: from ``floor(i * L / n)`` to ``ceil((i + 1) * L / n)``.

    Where these windows are all alike, they are an ordinary :class:`WindowGeometry`.
    """
    hulls = tuple(
        tuple(range(i * length // n, -(-(i + 1) * length // n)) for i in range(n))
        for length, n in zip(size, pooled)
    )
    regions = RegionGeometry(size, pooled, hulls, tuple(max(map(len, axis)) for axis in hulls))
    alike = [axis for axis in regions.regular if axis]
    if len(alike) < 3:
        return regions
    kernel, stride = zip(*alike)
    return WindowGeometry(size, pooled, Window(kernel=kernel, stride=stride))


@lru_cache
def fractional_geometry(size: Triple, pooled: Triple, kernel: Triple) -> RegionGeometry:
    """Windows of one length, at starts that are drawn at random.

    ``floor((i + u) * a) - floor(u * a)`` is ``floor(i * a)`` or one more, whatever ``u`` in [0, 1) is,
    apart from float32 rounding.
    """
    hulls = []
    for length, n, k in zip(size, pooled, kernel):
        last, rounding = length - k, length / 2**20
        exact = (i * last / (n - 1) for i in range(n - 1))
        starts = ((floor(x - rounding), floor(x + rounding) + 1) for x in exact)
        drawn = (range(max(0, low), min(last, high) + k) for low, high in starts)
        hulls.append((*drawn, range(last, length)))
    return RegionGeometry(size, pooled, tuple(hulls), kernel)


def kernel_offsets(kernel: Triple) -> list[Triple]:
    """The (depth, height, width) coordinates of every element of a window, in the order of window indices."""
    return [(d, h, w) for d in range(kernel[0]) for h in range(kernel[1]) for w in range(kernel[2])]
