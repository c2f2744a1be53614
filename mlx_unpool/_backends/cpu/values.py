"""The maximum of every window without its position.

Without positions the order of the elements is free: of equal zeros and of several NaNs, any may
remain. The first axis is reduced first, because its rows are the longest. Measured on an AMD EPYC,
time over ``mlx.nn``:

| condition | strategy | gain |
|---|---|---|
| separate, 256 B of channels | one reduction | 8x56x56x128, 2x2/2: 1.0; element by element 1.8 |
| otherwise | rows first | 8x112x112x32, 2x2/2: .4; element by element .75 |
| at most one row outside | no padded copy | 16x28x28x256, 3x3/2: .8; with the copy .9 |
| kernels above 6 | sets of 6 | 1x112x112x64, 31/1: .8 of the time of pairs, half of the memory |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial, reduce
from operator import itemgetter

import mlx.core as mx

from ..._geometry import Geometry, WindowGeometry
from .arrays import along, gathered_along, rows, unfused
from .axes import Axis, axes_of
from .padding import rows_of_windows, used_rows

_MANY_BYTES = 256  # of the channels at one position
_MERGED = 6  # rows
_CACHE_SIZE = 512  # reductions
Steps = list[Callable[[mx.array], mx.array]]


def pooled_values(x: mx.array, g: WindowGeometry) -> mx.array:
    """The maximum of every window; see also ``one_reduction``."""
    separate = [_is_merged_separately(axis) for axis in axes_of(g)]
    x, _ = used_rows(x, g, separate)
    for number, axis in enumerate(axes_of(g)):
        if separate[number]:
            x = _merged(_elements(x, number, axis, n) for n in range(axis.used))
        elif axis.is_sparse:
            x = gathered_along(x, number, along(number, rows_of_windows(axis)[0]))
            x = values_along(x, number, axis.used, axis.used, 1, axis.count)
        elif not axis.is_kept:
            x = values_along(x, number, axis.used, axis.stride, axis.dilation, axis.count)
    return x


@lru_cache(_CACHE_SIZE)
def one_reduction(shape: tuple[int, ...], itemsize: int, g: Geometry) -> Steps:
    """The reduction of an array with separate windows and many channels, else [].

    Separate windows do not extend beyond their strides. Along one axis, merging needs no more
    memory. MLX reduces 16-bit floats one at a time.
    """
    if not isinstance(g, WindowGeometry):
        return []
    *others, width = g.window.kernel
    is_many = shape[4] * itemsize >= (_MANY_BYTES if max(others) > 1 else 2 * _MANY_BYTES)
    if not is_many or width == 1 or itemsize < 4 or any(g.window.padding):
        return []
    axes = axes_of(g)
    if not all(_is_separate(a.kernel, a.stride, a.dilation, a.count, a.length) for a in axes):
        return []
    return _reduction(shape, tuple((a.used, a.stride, a.count) for a in axes))


@lru_cache(_CACHE_SIZE)
def _reduction(shape: tuple[int, ...], axes: tuple[tuple[int, int, int], ...]) -> Steps:
    """How to reduce separate windows of an array (B, D, H, W, C).

    ``axes`` are the kernel, the stride and the count of each axis. For each row that it reduces MLX
    divides once per axis, so axes are merged where that needs no copy.
    """
    batch, *size, channels = shape
    parts, kernels = _parts(batch, size, axes)
    steps: Steps = []
    covered = [stride * count for _, stride, count in axes]
    if covered != size:
        steps.append(itemgetter((slice(None), *map(slice, covered))))
    steps.append(partial(mx.reshape, shape=(*parts, channels)))
    used = [kernels.get(axis, length) for axis, length in enumerate(parts)]
    if used != parts:
        steps.append(itemgetter(tuple(map(slice, used))))
    steps.append(partial(mx.max, axis=tuple(kernels)))
    pooled = [count for *_, count in axes]
    return [*steps, partial(mx.reshape, shape=(batch, *pooled, channels))]


def _parts(
    batch: int, size: Sequence[int], axes: Sequence[tuple[int, int, int]]
) -> tuple[list[int], dict[int, int]]:
    """The lengths of the axes after splitting and merging, and the kernels of reduced ones."""
    parts = [batch]
    kernels: dict[int, int] = {}
    for length, (kernel, stride, count) in zip(size, axes):
        is_free = len(parts) - 1 not in kernels  # the last part is not reduced
        if is_free and (stride * count == length or 1 in (count, parts[-1])):
            parts[-1] *= count
        else:
            parts.append(count)
        if stride > 1:
            kernels[len(parts)] = kernel
            parts.append(stride)
    return parts, kernels


def applied(steps: Steps, x: mx.array) -> mx.array:
    """The result of the steps, one after the other."""
    for step in steps:
        x = step(x)
    return x


def _is_separate(kernel: int, stride: int, dilation: int, count: int, length: int) -> bool:
    """Whether an axis has ``count`` parts of one stride, each of which starts with a window."""
    return kernel <= stride and dilation == 1 and count * stride <= length


def _is_merged_separately(axis: Axis) -> bool:
    """Whether an axis needs no padded copy: at most one window exceeds the plane, by one row."""
    return (
        axis.stride > 1
        and axis.dilation == 1
        and axis.before + axis.after <= 1
        and axis.used <= _MERGED
    )


def _elements(x: mx.array, number: int, axis: Axis, element: int) -> mx.array:
    """One element of every window along an axis; the nearest row inside replaces a row outside."""
    first, stride, count = axis.first + element, axis.stride, axis.count
    last = first + (count - 1) * stride
    if first >= 0 and last < axis.length:
        return rows(x, number, first, stride, count)
    if first < 0:
        parts = [rows(x, number, 0, 1, 1), rows(x, number, first + stride, stride, count - 1)]
    else:
        parts = [rows(x, number, first, stride, count - 1), rows(x, number, axis.length - 1, 1, 1)]
    return mx.concatenate(parts, axis=number + 1)


def values_along(
    x: mx.array, axis: int, kernel: int, stride: int, dilation: int, count: int
) -> mx.array:
    """The maxima of ``count`` windows along an axis, the first of which starts at the first row.

    O(1) operations for long separate windows, otherwise O(log kernel).
    """
    if kernel > 3 and _is_separate(kernel, stride, dilation, count, x.shape[axis + 1]):
        axes = [(1, 1, length) for length in x.shape[1:4]]
        axes[axis] = kernel, stride, count
        return applied(_reduction(x.shape, tuple(axes)), x)
    covered = 1  # elements of each set whose maximum is in ``x``
    while kernel > covered * _MERGED * min(stride, 4):
        apart = covered * dilation
        length = x.shape[axis + 1] - (_MERGED - 1) * apart
        x = _merged(rows(x, axis, n * apart, 1, length) for n in range(_MERGED))
        covered *= _MERGED
    # The last two sets may share elements.
    starts = [*range(0, kernel - covered, covered), kernel - covered]
    return _merged(rows(x, axis, start * dilation, stride, count) for start in starts)


def _merged(sets: Iterable[mx.array]) -> mx.array:
    """The element-wise maximum of several arrays.

    Each operation overwrites the result of the one before.
    """
    return reduce(lambda result, later: unfused(mx.maximum(later, result)), sets)
