"""The windows along each axis: which elements are ever inside the plane, how far they extend."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from ..._geometry import Triple, WindowGeometry, pitches

_CACHE_SIZE = 512  # geometries


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis of a plane, and the windows along it."""

    length: int
    count: int  # of windows
    kernel: int
    stride: int
    padding: int
    dilation: int
    pitch: int  # the distance in flat positions between neighbouring positions

    @property
    def span(self) -> int:
        """The length from the first to the last element of a window, both included."""
        return self.dilation * (self.kernel - 1) + 1

    @cached_property
    def last_start(self) -> int:
        """The position at which the last window starts."""
        return (self.count - 1) * self.stride - self.padding

    @cached_property
    def skipped(self) -> int:
        """The number of leading elements that are outside the plane in every window.

        They are never read.
        """
        return min(max(-(self.last_start // self.dilation), 0), self.kernel - 1)

    @cached_property
    def used(self) -> int:
        """The number of elements from the first to the last one that is inside in any window."""
        inside = min((self.length - 1 + self.padding) // self.dilation + 1, self.kernel)
        return max(inside - self.skipped, 1)

    @cached_property
    def first(self) -> int:
        """The position of the first used element of the first window."""
        return self.skipped * self.dilation - self.padding

    @cached_property
    def stop(self) -> int:
        """The position after the last used element of the last window."""
        return self.last_start + (self.skipped + self.used - 1) * self.dilation + 1

    @cached_property
    def before(self) -> int:
        """The largest number of used elements that a window has before the plane."""
        return max(-(self.first // self.dilation), 0)

    @cached_property
    def after(self) -> int:
        """The largest number of used elements that a window has after the plane."""
        return max(-((self.length - self.stop) // self.dilation), 0)

    @cached_property
    def is_inside(self) -> bool:
        """Whether the used elements of all windows are inside the plane and start at position 0."""
        return self.first == 0 and self.stop <= self.length

    @cached_property
    def is_sparse(self) -> bool:
        """Whether most rows from ``first`` to ``stop`` are outside the plane and never used."""
        return self.stop - self.first > 2 * (self.length + self.count * self.used)

    @property
    def is_tiled(self) -> bool:
        """Whether the axis has exactly ``count`` strides and no window extends beyond its own."""
        return (
            self.span <= self.stride
            and not self.padding
            and self.count * self.stride == self.length
        )

    @cached_property
    def is_kept(self) -> bool:
        """Whether window ``i`` covers only position ``i``: pooling this axis changes nothing."""
        return self.is_inside and self.count == self.length

    @property
    def has_empty_windows(self) -> bool:
        """Whether a window may have no element inside the plane.

        Only a window that starts in the padding can skip the whole plane, and only if its dilation
        is larger than the length: it does if ``start mod dilation`` is the length or more.
        """
        return self.padding > 0 and self.dilation > self.length


class Axes(tuple[Axis, ...]):
    """Depth, height and width, and what depends on all of them."""

    @cached_property
    def steps_in_plane(self) -> Triple:
        """The distance in flat positions between neighbouring window elements, for each axis."""
        return tuple(axis.dilation * axis.pitch for axis in self)

    @cached_property
    def origin(self) -> int:
        """The origin of the first window.

        The flat index of an element is that of the origin of its window, plus 0 or more. The origin
        is ``after`` elements before the first used element, because an element after the plane is
        replaced by one up to that many elements earlier.
        """
        return sum((axis.first - axis.after * axis.dilation) * axis.pitch for axis in self)

    @cached_property
    def first_offset(self) -> int:
        """The window offset of the origin of a window (see ``origin``), which may be negative."""
        steps = pitches([axis.kernel for axis in self])
        return sum((axis.skipped - axis.after) * step for axis, step in zip(self, steps))

    @cached_property
    def every_element_inside(self) -> bool:
        """Whether every element of every window is inside the plane."""
        return all(not a.padding and a.last_start + a.span <= a.length for a in self)

    @cached_property
    def may_have_empty_windows(self) -> bool:
        """Whether a window may have no element inside the plane."""
        return any(axis.has_empty_windows for axis in self)


@lru_cache(_CACHE_SIZE)
def axes_of(g: WindowGeometry) -> Axes:
    """The axes of a geometry."""
    w = g.window
    return Axes(
        map(Axis, g.size, g.pooled, w.kernel, w.stride, w.padding, w.dilation, pitches(g.size))
    )
