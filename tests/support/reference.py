"""A simple reference implementation in NumPy, with loops over windows.

Arrays are planes (P, *spatial): channels first, with batch and channels merged into one axis.
16-bit floats are passed as float32. Nothing here uses the library.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil, floor, prod

import numpy as np

Size = tuple[int, ...]
Bounds = tuple[list[tuple[int, int]], ...]  # start and stop of each window along each axis


@dataclass(frozen=True)
class Pool:
    """Window parameters, one value per axis in each tuple."""

    kernel: Size
    stride: Size
    padding: tuple[int | tuple[int, int], ...]  # for both sides of an axis, or before and after
    dilation: Size
    ceil_mode: bool = False
    same: bool = False  # the padding is that of ``same_padding``

    @property
    def sides(self) -> list[tuple[int, int]]:
        """The padding before and after each axis."""
        return [p if isinstance(p, tuple) else (p, p) for p in self.padding]


def same_padding(
    kernel: Size, stride: Size, dilation: Size, size: Size
) -> tuple[tuple[int, int], ...]:
    """TensorFlow's padding "SAME": ``ceil(length / stride)`` windows, the smaller half before."""
    sides = []
    for length, k, s, d in zip(size, kernel, stride, dilation):
        total = max((ceil(length / s) - 1) * s + d * (k - 1) + 1 - length, 0)
        sides.append((total // 2, total - total // 2))
    return tuple(sides)


def pooled_size(pool: Pool, size: Size) -> Size:
    """The number of windows along each axis."""
    counts = []
    for length, k, s, (p, q), d in zip(size, pool.kernel, pool.stride, pool.sides, pool.dilation):
        steps = (length + p + q - d * (k - 1) - 1) / s
        count = (ceil(steps) if pool.ceil_mode else floor(steps)) + 1
        if pool.ceil_mode and (count - 1) * s >= length + p:
            count -= 1
        counts.append(count)
    return tuple(counts)


def default_unpooled_size(pool: Pool, pooled: Size) -> Size | None:
    """The size of an unpooled plane without ``output_size``; None if that is required."""
    if pool.same:
        return pooled if max(pool.stride) == 1 else None
    each = zip(pooled, pool.kernel, pool.stride, pool.sides, pool.dilation)
    return tuple((n - 1) * s - p - q + d * (k - 1) + 1 for n, k, s, (p, q), d in each)


def allowed_output_sizes(pool: Pool, pooled: Size) -> list[range]:
    """The sizes of each axis that unpooling accepts.

    They differ from the default by less than a stride. With ``same``, those with this number of
    windows.
    """
    if pool.same:
        return [range((n - 1) * s + 1, n * s + 1) for n, s in zip(pooled, pool.stride)]
    default = default_unpooled_size(pool, pooled)
    return [range(max(1, n - s + 1), n + s) for n, s in zip(default, pool.stride)]


def _row_major(numbers: Iterable[np.ndarray], lengths: Size) -> np.ndarray:
    """The row-major numbers of all combinations of one number per axis."""
    total = np.zeros(1, np.int64)
    for axis, length in zip(numbers, lengths):
        total = np.add.outer(total * length, axis).ravel()
    return total


@lru_cache(2**14)
def window_elements(pool: Pool, window: Size, size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Offsets in the window and flat positions of its elements inside the plane, row-major."""
    elements, positions = [], []
    for w, length, k, s, (p, _), d in zip(
        window, size, pool.kernel, pool.stride, pool.sides, pool.dilation
    ):
        element = np.arange(k)
        position = w * s - p + element * d
        inside = (position >= 0) & (position < length)
        elements.append(element[inside])
        positions.append(position[inside])
    return _row_major(elements, pool.kernel), _row_major(positions, size)


def max_pool(x: np.ndarray, pool: Pool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, flat indices and window indices of planes."""
    pooled, size = pooled_size(pool, x.shape[1:]), x.shape[1:]
    return _pool(x, pooled, lambda window: window_elements(pool, window, size))


def max_pool_between(planes: np.ndarray, bounds: list[Bounds]) -> tuple[np.ndarray, np.ndarray]:
    """Values and flat indices of planes for windows between ``bounds``, common or per plane."""
    if len(bounds) > 1:
        pairs = [max_pool_between(x[None], [each]) for x, each in zip(planes, bounds, strict=True)]
        values, flat = map(np.concatenate, zip(*pairs))
        return values, flat
    (axes,) = bounds

    def elements(window: Size) -> tuple[np.ndarray, np.ndarray]:
        ranges = (np.arange(*axis[i]) for axis, i in zip(axes, window))
        positions = _row_major(ranges, planes.shape[1:])
        return np.arange(len(positions)), positions

    return _pool(planes, tuple(map(len, axes)), elements)[:2]


def _pool(x: np.ndarray, pooled: Size, elements) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    values = np.full((len(x), *pooled), lowest, x.dtype)
    flat = np.full(values.shape, -1, np.int64)
    offsets = np.zeros(values.shape, np.int64)
    planes = x.reshape(len(x), -1)
    for window in product(*map(range, pooled)):
        offset, position = elements(window)
        if len(position):
            at = (slice(None), *window)
            found = planes[:, position]
            nan = found != found
            last_nan = len(position) - 1 - nan[:, ::-1].argmax(axis=1)
            number = np.where(nan.any(axis=1), last_nan, found.argmax(axis=1))
            values[at] = found[np.arange(len(found)), number]
            flat[at], offsets[at] = position[number], offset[number]
    return values, flat, offsets


def adaptive_bounds(size: Size, pooled: Size) -> Bounds:
    """The windows of adaptive pooling."""
    return tuple(
        [(floor(i * length / n), ceil((i + 1) * length / n)) for i in range(n)]
        for length, n in zip(size, pooled)
    )


def fractional_bounds(size: Size, pooled: Size, kernel: Size, u: np.ndarray) -> Bounds:
    """The windows of fractional pooling, from one float32 in [0, 1) per axis."""
    bounds = []
    for length, n, k, number in zip(size, pooled, kernel, u):
        step, numbers = np.float32((length - k) / max(1, n - 1)), np.arange(n, dtype=np.float32)
        starts = ((numbers + number) * step).astype(int) - int(number * step)
        starts[n - 1] = length - k
        bounds.append([(start, start + k) for start in starts.tolist()])
    return tuple(bounds)


def flat_of_window(offsets: np.ndarray, pool: Pool, size: Size, pooled: Size) -> np.ndarray:
    """Flat indices of window indices, -1 for an offset outside the plane or the window."""
    flat = np.full(offsets.shape, -1, np.int64)
    for window in product(*map(range, pooled)):
        at = (slice(None), *window)
        for offset, position in zip(*window_elements(pool, window, size)):
            flat[at] = np.where(offsets[at] == offset, position, flat[at])
    return flat


def near_windows(random: np.random.Generator, pool: Pool, size: Size, shape: Size) -> np.ndarray:
    """Flat indices of positions from the first to the last element of each window.

    A few are next to the window. ``shape`` is (P, *pooled). Coordinates outside the plane are
    clipped to it.
    """
    index = np.zeros(shape, np.int64)
    windows = np.indices(shape[1:])
    for w, length, k, s, (p, _), d in zip(
        windows, size, pool.kernel, pool.stride, pool.sides, pool.dilation
    ):
        ahead = random.integers(0, d * (k - 1) + 1, shape) + random.integers(-9, 10, shape) // 9
        index = index * length + np.clip(w * s - p + ahead, 0, length - 1)
    return index


def _written(flat: np.ndarray, size: Size):
    """(plane, number of the pooled value, flat index) of every index inside its plane."""
    for plane, numbers in enumerate(flat.reshape(len(flat), -1).tolist()):
        for pooled, position in enumerate(numbers):
            if 0 <= position < prod(size):
                yield plane, pooled, position


def max_unpool(values: np.ndarray, flat: np.ndarray, size: Size) -> np.ndarray:
    """Every value at its index, zeros elsewhere.

    The last of several wins; an index outside is dropped.
    """
    out, values = np.zeros((len(values), prod(size)), values.dtype), values.reshape(len(values), -1)
    for plane, pooled, position in _written(flat, size):
        out[plane, position] = values[plane, pooled]
    return out.reshape(len(values), *size)


def winners(flat: np.ndarray, size: Size) -> np.ndarray:
    """A mask of the pooled values that win their position in the unpooled plane."""
    numbers = np.arange(1, flat.size + 1).reshape(flat.shape)
    last = max_unpool(numbers, flat, size)
    return np.isin(numbers, last)


def max_pool_vjp(cotangent: np.ndarray, flat: np.ndarray, size: Size) -> np.ndarray:
    """The cotangents of all windows, summed at their indices."""
    out = np.zeros((len(flat), prod(size)), cotangent.dtype)
    values = cotangent.reshape(len(flat), -1)
    for plane, pooled, position in _written(flat, size):
        out[plane, position] += values[plane, pooled]
    return out.reshape(len(flat), *size)


def max_unpool_vjp(cotangent: np.ndarray, flat: np.ndarray, size: Size) -> np.ndarray:
    """The cotangent at the index of each value that wins, zero for the others."""
    inside = np.clip(flat, 0, prod(size) - 1).reshape(len(flat), -1)
    picked = np.take_along_axis(cotangent.reshape(len(flat), -1), inside, 1).reshape(flat.shape)
    return np.where(winners(flat, size), picked, 0).astype(cotangent.dtype)
