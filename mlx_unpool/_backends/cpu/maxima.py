"""The maximum of every window and its offset in the window, computed one axis at a time.

The last axis is reduced first, so ties are resolved in row-major order. Time of a pool with indices
on an AMD EPYC over that of this strategy:

| condition | strategy | without it |
|---|---|---|
| more than 3 elements | ``windows``: pairs | 1x112x112x64: 5/1 1.2, 8/8 1.7, 13/1 2.2, 12/4 2.8 |
| windows start at even elements | every second pair | 1x112x112x64: 4/2 1.5, 8/4 2.5, 24/24 2.6 |
| 100 adjacent elements | ``separate_windows`` | 8x51200x16, 1024/1024 1.8; plane of 8x56x56x64 3 |
| 2**16 values | blocks in ``separate_windows`` | plane of 8x56x56x64: 4.5; below 2**16 .7 to .9 |
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt, prod
from typing import NamedTuple

import mlx.core as mx

from ..._types import TRAITS, is_float
from .arrays import added, constant, gathered_along, narrowest, repeated, rows, unfused

_SMALL_SIZE = 2**16  # values
_SEPARATE_KERNEL = 100  # elements


class Maxima(NamedTuple):
    """The maximum of each of many sets of elements, and its offset.

    An offset is the sum over the axes of the element's number in its window times the step of that
    axis. Its dtype is the narrowest one for offsets up to ``largest``.
    """

    values: mx.array
    offsets: mx.array | None = None  # broadcast along axes of length 1; None: all are ``largest``
    largest: int = 0

    def map(self, function: Callable[[mx.array], mx.array]) -> Maxima:
        """Apply ``function``, which selects or reshapes, to the values and to the offsets."""
        offsets = None if self.offsets is None else function(self.offsets)
        return self._replace(values=function(self.values), offsets=offsets)

    def rows(self, axis: int, start: int, stride: int, count: int) -> Maxima:
        """``count`` rows of an axis, ``stride`` apart."""
        return self._selected(axis, lambda x: rows(x, axis, start, stride, count))

    def gathered(self, axis: int, rows: mx.array) -> Maxima:
        """The given rows of an axis; see ``gathered_along``."""
        return self._selected(axis, lambda x: gathered_along(x, axis, rows))

    def _selected(self, axis: int, select: Callable[[mx.array], mx.array]) -> Maxima:
        """Rows of an axis; ``select`` takes them from values and from offsets that vary there."""
        offsets = self.offsets
        if offsets is not None and offsets.shape[axis + 1] > 1:
            offsets = select(offsets)
        return Maxima(select(self.values), offsets, self.largest)

    def plus(self, number: int) -> Maxima:
        """The same maxima, with ``number`` added to all offsets."""
        offsets, largest = self.offsets, self.largest + number
        if offsets is not None:
            offsets = _astype(offsets, narrowest(largest))
            offsets = added(offsets, constant(number, offsets.dtype))
        return Maxima(self.values, offsets, largest)

    def shifted(self, shift: mx.array, most: int, step: int) -> Maxima:
        """The same maxima with ``shift`` steps (an array up to ``most``) added to the offsets."""
        largest = self.largest + most * step
        shift = _astype(shift, narrowest(largest))
        if step > 1 and most > 0:  # shifts of 0 may have a dtype that cannot represent the step
            shift = unfused(shift * repeated(constant(step, shift.dtype), shift.shape))
        if self.offsets is not None:
            shift = added(_astype(self.offsets, shift.dtype), repeated(shift, self.values.shape))
        return Maxima(self.values, shift, largest)

    def merge(self, later: Maxima) -> Maxima:
        """The maxima of these sets and of those in ``later``, whose offsets are larger.

        Of equal maxima the earlier one is kept. A NaN in ``later`` replaces any value. Sets may
        share elements that have the same offsets.
        """
        values, theirs, their_offsets = self.values, later.values, later.offsets
        # mx.maximum returns a NaN in its first operand, and the second operand if both are equal.
        maxima = mx.maximum(theirs, values)
        largest, dtype = later.largest, narrowest(later.largest)
        narrow = mx.uint8 if their_offsets is None else mx.int8
        # Views keep mx.compile from fusing operations on strided and contiguous arrays into a
        # strided loop.
        wins = (theirs > values).view(narrow)
        if is_float(theirs.dtype):
            wins = wins | (theirs != theirs).view(narrow)
        shape = wins.shape
        if their_offsets is None:
            their_offsets = _astype(wins, dtype)
            if largest > 1:
                their_offsets = their_offsets * repeated(constant(largest, dtype), shape)
        else:
            like = TRAITS[dtype].signed
            offset = repeated(their_offsets, shape).view(like)
            their_offsets = (_astype(unfused(wins), like) * offset).view(dtype)
        if self.offsets is not None:
            # Offsets increase from element to element, so the maximum selects the later one.
            offsets = repeated(_astype(self.offsets, dtype), shape)
            their_offsets = mx.maximum(offsets, unfused(their_offsets))
        return Maxima(maxima, their_offsets, largest)


def _astype(x: mx.array, dtype: mx.Dtype) -> mx.array:
    return x if x.dtype == dtype else unfused(unfused(x).astype(dtype))


def windows(
    sets: Maxima, axis: int, kernel: int, stride: int, dilation: int, count: int, step: int
) -> Maxima:
    """The maxima of ``count`` windows along an axis, the first of which starts at the first row.

    O(1) operations for long adjacent windows, otherwise O(log kernel).
    """
    if kernel >= _SEPARATE_KERNEL and (count == 1 or (stride == kernel and dilation == 1)):
        return separate_windows(sets, axis, kernel, dilation, count, step)
    apart, pairs = _pairs(kernel, stride, dilation, count)
    if pairs:
        first, second = (sets.rows(axis, start, apart, pairs) for start in (0, dilation))
        twice = first.merge(second.plus(step))
        # The distances between windows and between the pairs of a window, in rows of ``twice``
        steps = (stride, 2 * dilation) if apart == 1 else (stride // apart, 1)
        result = windows(twice, axis, kernel // 2, *steps, count, 2 * step)
        done = kernel // 2 * 2
    else:
        result, done = sets.rows(axis, 0, stride, count), 1
    for number in range(done, kernel):
        later = sets.rows(axis, number * dilation, stride, count).plus(number * step)
        result = result.map(unfused).merge(later)
    return result


def _pairs(kernel: int, stride: int, dilation: int, count: int) -> tuple[int, int]:
    """The distance between pairs of elements, and their number; (1, 0) if pairs save no work."""
    # If all windows start at an even element, only every other element starts a pair.
    apart = 2 * dilation if stride % (2 * dilation) == 0 else 1
    half = kernel // 2
    pairs = ((half - 1) * 2 * dilation + (count - 1) * stride) // apart + 1
    saves_work = kernel > 3 and (kernel >= 32 or pairs <= half * count)
    return (apart, pairs) if saves_work else (1, 0)


def separate_windows(
    sets: Maxima, axis: int, kernel: int, dilation: int, count: int, step: int
) -> Maxima:
    """Like ``windows``, for long adjacent windows: finds the maximum's block, then its offset."""
    sets = sets.rows(axis, 0, dilation, count * kernel)
    shape = sets.values.shape
    before, after = prod(shape[: axis + 1]), prod(shape[axis + 2 :])
    x = sets.values.reshape(before, count, kernel, after)
    size = next((n for n in range(isqrt(kernel), 1, -1) if kernel % n == 0), 1)
    if x.size <= _SMALL_SIZE or size == 1:
        offset = _where_maximum(x)
    else:
        best = x.reshape(before, count, kernel // size, size, after).max(axis=3)
        start = _where_maximum(best) * constant(size)
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
    """The number of the first maximum, or of the last NaN, along axis 2 of a 4-D array."""
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
    """Like ``windows``, for windows from ``start`` to ``stop``, which broadcast to (B, D, H, W, C).

    Each is two windows of half the length of the longest one, at the start and at the end. None is
    shorter.
    """
    half = -(-longest // 2)
    halves = windows(sets, axis, half, 1, 1, sets.values.shape[axis + 1] - half + 1, step)
    last = stop - constant(half)
    later = halves.gathered(axis, last)
    later = later.shifted(last - start, longest - half, step)
    return halves.gathered(axis, start).merge(later)
