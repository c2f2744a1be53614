"""The contract in NumPy, written to be read: loops over windows and cells, no cleverness.

Arrays are channels-first with batch and channels merged into one axis, (P, *spatial): P planes. Values of
16-bit float types are passed as float32. Nothing here knows how the library works.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil, floor, prod

import numpy as np


@dataclass(frozen=True)
class Pool:
    """Window parameters, a tuple of one value an axis each."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool = False


def pooled_size(pool: Pool, size: tuple[int, ...]) -> tuple[int, ...]:
    """Number of windows on each axis."""
    counts = []
    for length, k, s, p, d in zip(size, pool.kernel, pool.stride, pool.padding, pool.dilation):
        steps = (length + 2 * p - d * (k - 1) - 1) / s
        count = (ceil(steps) if pool.ceil_mode else floor(steps)) + 1
        if pool.ceil_mode and (count - 1) * s >= length + p:
            count -= 1
        counts.append(count)
    return tuple(counts)


def taps(pool: Pool, cell: tuple[int, ...], size: tuple[int, ...]):
    """The taps of a window inside the plane: (window index, place), in row-major order."""
    for code, tap in enumerate(product(*(range(k) for k in pool.kernel))):
        place = tuple(
            c * s - p + t * d
            for c, s, p, t, d in zip(cell, pool.stride, pool.padding, tap, pool.dilation)
        )
        if all(0 <= x < length for x, length in zip(place, size)):
            yield code, place


def max_pool(x: np.ndarray, pool: Pool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, flat indices and window indices of planes (P, *spatial)."""
    planes, size = len(x), x.shape[1:]
    cells = pooled_size(pool, size)
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    values = np.full((planes, *cells), lowest, x.dtype)
    flat = np.full((planes, *cells), -1, np.int64)
    window = np.zeros((planes, *cells), np.int64)
    for cell in product(*map(range, cells)):
        at = (slice(None), *cell)
        seen = False
        for code, place in taps(pool, cell, size):
            value = x[(slice(None), *place)]
            wins = (value > values[at]) | (value != value) | (not seen)
            values[at] = np.where(wins, value, values[at])
            flat[at] = np.where(wins, np.ravel_multi_index(place, size), flat[at])
            window[at] = np.where(wins, code, window[at])
            seen = True
    return values, flat, window


def flat_of_window(
    window: np.ndarray, pool: Pool, size: tuple[int, ...], cells: tuple[int, ...]
) -> np.ndarray:
    """Flat indices of window indices, -1 for one that names no place of the plane."""
    flat = np.full(window.shape, -1, np.int64)
    for cell in product(*map(range, cells)):
        at = (slice(None), *cell)
        for code, place in taps(pool, cell, size):
            flat[at] = np.where(window[at] == code, np.ravel_multi_index(place, size), flat[at])
    return flat


def max_unpool(values: np.ndarray, flat: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Every value at its place, zeros elsewhere; the last cell wins, an index outside is dropped."""
    out = np.zeros((len(values), prod(size)), values.dtype)
    for plane, (row, places) in enumerate(zip(values, flat)):
        for value, place in zip(row.ravel(), places.ravel().tolist()):
            if 0 <= place < prod(size):
                out[plane, place] = value
    return out.reshape(len(values), *size)


def winners(flat: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Which cells the unpooled plane shows."""
    wins = np.zeros(flat.shape, bool).reshape(len(flat), -1)
    for plane, places in enumerate(flat.reshape(len(flat), -1).tolist()):
        owner = {place: cell for cell, place in enumerate(places) if 0 <= place < prod(size)}
        wins[plane, list(owner.values())] = True
    return wins.reshape(flat.shape)


def max_pool_vjp(cotangent: np.ndarray, flat: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Each cell's cotangent added at its place."""
    out = np.zeros((len(flat), prod(size)), cotangent.dtype)
    for plane, (row, places) in enumerate(zip(cotangent, flat)):
        for value, place in zip(row.ravel(), places.ravel().tolist()):
            if place >= 0:
                out[plane, place] += value
    return out.reshape(len(flat), *size)


def max_unpool_vjp(cotangent: np.ndarray, flat: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """The cotangent of each winner's place, zero for the others."""
    picked = np.take_along_axis(
        cotangent.reshape(len(flat), -1), np.clip(flat, 0, prod(size) - 1).reshape(len(flat), -1), 1
    )
    return np.where(winners(flat, size), picked.reshape(flat.shape), 0).astype(cotangent.dtype)


def allowed_output_sizes(pool: Pool, cells: tuple[int, ...]) -> list[range]:
    """The sizes of each axis that unpooling takes: strictly within one stride of the default."""
    ranges = []
    for count, k, s, p, d in zip(cells, pool.kernel, pool.stride, pool.padding, pool.dilation):
        default = (count - 1) * s - 2 * p + d * (k - 1) + 1
        ranges.append(range(max(1, default - s + 1), default + s))
    return ranges


Bounds = tuple[
    list[tuple[int, int]], ...
]  # for each axis and cell: where the window starts and stops


def adaptive_bounds(size: tuple[int, ...], cells: tuple[int, ...]) -> Bounds:
    """The windows of adaptive pooling."""
    return tuple(
        [(floor(i * length / n), ceil((i + 1) * length / n)) for i in range(n)]
        for length, n in zip(size, cells)
    )


def fractional_bounds(
    size: tuple[int, ...], cells: tuple[int, ...], kernel: tuple[int, ...], u: np.ndarray
) -> Bounds:
    """The windows of fractional pooling, from one float32 in [0, 1) for each axis."""
    bounds = []
    for length, n, k, number in zip(size, cells, kernel, u):
        step = np.float32((length - k) / max(1, n - 1))
        starts = [
            int(np.float32(i + number) * step) - int(number * step) if i < n - 1 else length - k
            for i in map(np.float32, range(n))
        ]
        bounds.append([(start, start + k) for start in starts])
    return tuple(bounds)


def max_pool_bounds(plane: np.ndarray, bounds: Bounds) -> tuple[np.ndarray, np.ndarray]:
    """Values and flat indices of one plane."""
    cells = tuple(map(len, bounds))
    values, flat = np.zeros(cells, plane.dtype), np.zeros(cells, np.int64)
    for cell in product(*map(range, cells)):
        ranges = [range(*axis[i]) for axis, i in zip(bounds, cell)]
        for number, place in enumerate(product(*ranges)):
            value = plane[place]
            if number == 0 or value > values[cell] or value != value:
                values[cell] = value
                flat[cell] = np.ravel_multi_index(place, plane.shape)
    return values, flat
