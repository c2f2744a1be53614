"""The maximum of every window and its offset in the window, computed one axis at a time.

The last axis is reduced first, so ties are resolved in row-major order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from math import isqrt, prod
from typing import NamedTuple

import mlx.core as mx

from ..._geometry import WindowGeometry
from ..._types import LARGEST_AXIS, TRAITS, is_float
from .arrays import constant, gathered_along, narrowest, repeated, unfused

_SMALL_SIZE = 2**16  # elements; for fewer, extra operations take as long as a pass over all
_SEPARATE_KERNEL = 100  # elements; for fewer, combining pairs is faster than _separate_windows
_FEW_VALUES = 2**13  # pooled values, with few channels counted as 64: one reduction, which is one operation
_BEFORE = tuple((slice(None),) * (axis + 1) for axis in range(3))  # slices of preceding axes


class Maxima(NamedTuple):
    """The maximum of each of many sets of elements, and its offset.

    An offset is the sum over the axes of the element's number in its window times the step of that axis. Its
    dtype is the narrowest one for offsets up to ``largest``.
    """

    values: mx.array
    offsets: mx.array | None = None  # broadcast along axes of length 1; None: all are ``largest``
    largest: int = 0
    values_only: bool = False  # whether offsets are not tracked

    def map(self, function: Callable[[mx.array], mx.array]) -> Maxima:
        """Apply ``function``, which selects or reshapes, to the values and to the offsets."""
        offsets = None if self.offsets is None else function(self.offsets)
        return self._replace(values=function(self.values), offsets=offsets)

    def rows(self, axis: int, start: int, stride: int, count: int) -> Maxima:
        """``count`` rows of an axis, ``stride`` apart."""
        values, offsets = self.values, self.offsets
        if start == 0 and count == values.shape[axis + 1]:
            return self
        selected: slice | mx.array = slice(start, start + (count - 1) * stride + 1, stride)
        if count * stride > LARGEST_AXIS:  # MLX computes the length of a slice in 32 bits
            selected = mx.arange(start, start + count * stride, stride, dtype=mx.uint32)
        index = (*_BEFORE[axis], selected)
        if values.shape[axis + 1] > 1:
            values = values[index]
        if offsets is not None and offsets.shape[axis + 1] > 1:
            offsets = offsets[index]
        return Maxima(values, offsets, self.largest, self.values_only)

    def gathered(self, axis: int, rows: mx.array) -> Maxima:
        """The given rows of an axis; see ``gathered_along``."""
        offsets = self.offsets
        if offsets is not None and offsets.shape[axis + 1] > 1:
            offsets = gathered_along(offsets, axis, rows)
        values = gathered_along(self.values, axis, rows)
        return Maxima(values, offsets, self.largest, self.values_only)

    def elements(self, axis: int, kernel: int, stride: int, dilation: int, count: int) -> Iterable[Maxima]:
        """The first elements of ``count`` windows along an axis, the second ones, and so on."""
        return (self.rows(axis, n * dilation, stride, count) for n in range(kernel))

    def plus(self, number: int) -> Maxima:
        """The same maxima, with ``number`` added to all offsets."""
        offsets, largest = self.offsets, self.largest + number
        if offsets is not None:
            dtype = narrowest(largest)
            offsets = _astype(offsets, dtype) + constant(number, dtype)
        return Maxima(self.values, offsets, largest, self.values_only)

    def shifted(self, shift: mx.array, most: int) -> Maxima:
        """The same maxima with ``shift``, an array of numbers up to ``most``, added to the offsets."""
        if self.values_only:
            return self
        largest = self.largest + most
        shift = _astype(shift, narrowest(largest))
        if self.offsets is not None:
            offsets = unfused(_astype(self.offsets, shift.dtype))
            shift = offsets + repeated(shift, self.values.shape)
        return Maxima(self.values, shift, largest, self.values_only)

    def merge(self, later: Maxima) -> Maxima:
        """The maxima of these sets and of those in ``later``, whose offsets are larger.

        Of equal maxima the earlier one is kept. A NaN in ``later`` replaces any value. Sets may share
        elements that have the same offsets.
        """
        values, offsets = self.values, self.offsets
        theirs, their_offsets, largest = later.values, later.offsets, later.largest
        # mx.maximum returns a NaN in its first operand, and the second operand if both are equal.
        maxima = mx.maximum(theirs, values)
        if self.values_only:
            return Maxima(unfused(maxima), values_only=True)
        dtype = narrowest(largest)
        narrow = mx.uint8 if their_offsets is None else mx.int8
        # Views keep mx.compile from fusing operations on strided and contiguous arrays into a strided loop.
        wins = (theirs > values).view(narrow)
        if is_float(theirs.dtype):
            wins = wins | (theirs != theirs).view(narrow)
        shape = wins.shape
        if their_offsets is None:
            their_offsets = _astype(wins, dtype)
            if largest > 1:
                their_offsets = their_offsets * constant(largest, dtype)
        else:
            like = TRAITS[dtype].signed
            offset = repeated(their_offsets, shape).view(like)
            their_offsets = (_astype(unfused(wins), like) * offset).view(dtype)
        if offsets is not None:
            # Offsets increase from element to element, so the maximum selects the later one.
            offsets = repeated(_astype(offsets, dtype), shape)
            their_offsets = mx.maximum(offsets, their_offsets)
        return Maxima(maxima, their_offsets, largest)


def _astype(x: mx.array, dtype: mx.Dtype) -> mx.array:
    return x if x.dtype == dtype else x.astype(dtype)


def _reduce_in_order(sets: Iterable[Maxima], step: int) -> Maxima:
    """The maxima over several sets, each with offsets ``step`` larger than the previous one's."""
    result, *others = sets
    for number, later in enumerate(others, 1):
        result = result.map(unfused) if number > 1 else result
        result = result.merge(later.plus(number * step))
    return result


def windows(
    sets: Maxima, axis: int, kernel: int, stride: int, dilation: int, count: int, step: int
) -> Maxima:
    """The maxima of ``count`` windows along an axis, the first of which starts at the first row.

    O(1) operations for long adjacent windows, otherwise O(log kernel).
    """
    if kernel == 1:
        return sets.rows(axis, 0, stride, count)
    if _can_reduce(sets, axis, kernel, stride, dilation, count):
        axes = [(1, 1, length) for length in sets.values.shape[1:4]]
        axes[axis] = kernel, stride, count
        return reduced(sets, axes)
    if can_separate(sets, kernel, stride, dilation, count):
        return _separate_windows(sets, axis, kernel, dilation, count, step)
    apart, pairs = _pairs(kernel, stride, dilation, count) if kernel > 3 else (0, 0)
    if kernel <= 3 or (kernel < 32 and pairs > kernel // 2 * count):
        return _reduce_in_order(sets.elements(axis, kernel, stride, dilation, count), step)
    if kernel % 2:
        last = kernel - 1
        result = windows(sets, axis, last, stride, dilation, count, step)
        return result.merge(sets.rows(axis, last * dilation, stride, count).plus(last * step))
    twice = sets.rows(axis, 0, apart, pairs).merge(sets.rows(axis, dilation, apart, pairs).plus(step))
    steps = (stride, 2 * dilation) if apart == 1 else (stride // apart, 1)
    return windows(twice, axis, kernel // 2, *steps, count, 2 * step)


def _pairs(kernel: int, stride: int, dilation: int, count: int) -> tuple[int, int]:
    """The distance between the pairs of elements that windows consist of, and their number.

    If all windows start at an even element, only every other element starts a pair.
    """
    apart = 2 * dilation if stride % (2 * dilation) == 0 else 1
    return apart, ((kernel // 2 - 1) * 2 * dilation + (count - 1) * stride) // apart + 1


def _can_reduce(sets: Maxima, axis: int, kernel: int, stride: int, dilation: int, count: int) -> bool:
    """Whether ``reduced`` applies: to long separate windows whose offsets are not tracked."""
    if dilation > 1 or not sets.values_only:
        return False
    length, pitch = sets.values.shape[axis + 1], prod(sets.values.shape[axis + 2 :])
    is_separate = 3 < kernel <= stride and count * stride <= length
    return is_separate and pitch > 1 and pitch * sets.values.dtype.size <= LARGEST_AXIS


def reduced(sets: Maxima, axes: Sequence[tuple[int, int, int]]) -> Maxima:
    """The maxima of separate windows, computed with one reduction; ``axes``: kernel, stride and count.

    MLX reduces row by row, so that the first of equal zeros and the last NaN remain, but only if rows have
    more than one element and are contiguous.
    """
    (kd, sd, d), (kh, sh, h), (kw, sw, w) = axes
    x = sets.values.view(mx.uint8).view(sets.values.dtype)  # copies an array that is not contiguous
    x = x[:, : d * sd, : h * sh, : w * sw].reshape(x.shape[0], d, sd, h, sh, w, sw, x.shape[4])
    return sets._replace(values=x[:, :, :kd, :, :kh, :, :kw].max(axis=(2, 4, 6)))


def has_small_tiles(x: mx.array, g: WindowGeometry) -> bool:
    """Whether ``small_tiles`` applies: to small adjacent windows, if there are several channels."""
    window = g.window
    is_adjacent = window.kernel == window.stride and window.dilation == (1, 1, 1)
    is_small = max(window.kernel) <= 3 and window.elements <= 9
    return is_adjacent and is_small and x.shape[4] > 1 and g.every_element_inside


def small_tiles(x: mx.array, g: WindowGeometry) -> mx.array:
    """The maxima of small adjacent windows, element by element: no array is larger than the result."""
    kernel = g.window.kernel
    if x.shape[0] * prod(g.pooled) * max(x.shape[4], 64) <= _FEW_VALUES:
        return reduced(Maxima(x, values_only=True), [*zip(kernel, kernel, g.pooled)]).values

    def elements(offset: Sequence[int]) -> mx.array:
        axes = zip(offset, kernel, g.pooled)
        return x[(slice(None), *(slice(n, n + (count - 1) * k + 1, k) for n, k, count in axes))]

    result, *others = map(elements, product(*map(range, kernel)))
    for later in others:
        result = unfused(mx.maximum(later, result))  # in this order, see ``Maxima.merge``
    return result


def can_separate(sets: Maxima, kernel: int, stride: int, dilation: int, count: int) -> bool:
    """Whether ``_separate_windows`` applies: to long adjacent windows whose offsets are tracked."""
    if kernel < _SEPARATE_KERNEL or sets.values_only:
        return False
    return count == 1 or (stride == kernel and dilation == 1)


def _separate_windows(sets: Maxima, axis: int, kernel: int, dilation: int, count: int, step: int) -> Maxima:
    """Like ``windows``, but for adjacent windows: each is reduced separately.

    A window is divided into blocks of about ``sqrt(kernel)`` elements. First the maximum of each
    block is computed, then the position of the window's maximum in its block. For small arrays
    this would take longer than one pass over all elements.
    """
    sets = sets.rows(axis, 0, dilation, count * kernel)
    shape = sets.values.shape
    before, after = prod(shape[: axis + 1]), prod(shape[axis + 2 :])
    x = sets.values.reshape(before, count, kernel, after)
    if x.size <= _SMALL_SIZE:
        offset = _where_maximum(x)
    else:
        root = isqrt(kernel)
        size = next((n for n in range(root, root // 2, -1) if kernel % n == 0), root)
        number = kernel // size
        blocks = x if number * size == kernel else x[:, :, : number * size]
        best = blocks.reshape(before, count, number, size, after).max(axis=3)
        if number * size < kernel:
            last = x[:, :, kernel - size :].max(axis=2, keepdims=True)
            best = mx.concatenate([best, last], axis=2)
        start = _where_maximum(best) * constant(size)
        start = mx.minimum(start, constant(kernel - size))
        block = mx.take_along_axis(x, start + mx.arange(size)[:, None], axis=2)
        offset = start + _where_maximum(block)
    largest = sets.largest + (kernel - 1) * step
    dtype = narrowest(largest)
    offsets = offset.astype(dtype) * constant(step, dtype)
    if sets.offsets is not None:
        earlier = mx.broadcast_to(sets.offsets, shape).reshape(x.shape)
        offsets = offsets + mx.take_along_axis(earlier, offset, axis=2)
    result = Maxima(mx.take_along_axis(x, offset, axis=2), offsets, largest)
    return result.map(lambda x: x.reshape(*shape[: axis + 1], count, *shape[axis + 2 :]))


def _where_maximum(x: mx.array) -> mx.array:
    """The number of the first maximum, or of the last NaN, along axis 2 of an array with four axes."""
    best = x.max(axis=2, keepdims=True)
    result = _first_true(x == repeated(best, x.shape))
    if not is_float(x.dtype):
        return result
    last_nan = constant(x.shape[2] - 1) - _first_true((x != x)[:, :, ::-1])
    return mx.where(best != best, last_nan, result)


def _first_true(hits: mx.array) -> mx.array:
    """The number of the first True along axis 2."""
    return mx.argmax(hits.view(mx.uint8), axis=2, keepdims=True).astype(mx.int32)


def irregular_windows(
    sets: Maxima, axis: int, longest: int, start: mx.array, stop: mx.array, step: int
) -> Maxima:
    """Like ``windows``, but for windows from ``start`` to ``stop`` with different lengths.

    ``start`` and ``stop`` are arrays that broadcast to (B, D, H, W, C). No window is longer than
    ``longest`` or shorter than half of it.
    """

    length, count = sets.values.shape[axis + 1], start.shape[axis + 1]
    if count * longest <= 2 * length:
        # Windows that barely overlap are copied into adjacent windows of equal length.
        number = mx.arange(longest).reshape([-1] + [1] * (3 - axis))
        rows = mx.expand_dims(start, axis + 2) + number
        rows = mx.minimum(rows, mx.expand_dims(stop - 1, axis + 2))
        rows = rows.reshape(*start.shape[: axis + 1], -1, *start.shape[axis + 2 :])
        copies = sets.gathered(axis, rows)
        return windows(copies, axis, longest, longest, 1, count, step)
    # The maximum of two windows of half the length, one at the start and one at the end.
    half = -(-longest // 2)
    halves = windows(sets, axis, half, 1, 1, length - half + 1, step)
    last = stop - constant(half)
    later = halves.gathered(axis, last)
    later = later.shifted((last - start) * constant(step), (longest - half) * step)
    return halves.gathered(axis, start).merge(later)
