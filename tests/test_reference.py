"""Generated calls of every rank, layout, window and dtype agree with the NumPy reference."""

from __future__ import annotations

import itertools
import sys

import mlx.core as mx
import numpy as np
import pytest
import reference
from arrays import copies_bits, generated_cases, irregular_cases
from properties import check_case, check_unpool

import mlx_unpool
from mlx_unpool import _geometry, _requests
from mlx_unpool._geometry import WindowGeometry, adaptive_geometry, fractional_geometry
from mlx_unpool._layout import bounds_array

SEEDS = range(8)
COUNT = 60  # calls per seed


@pytest.mark.parametrize("seed", SEEDS)
def test_generated_pools(seed):
    for case in generated_cases(COUNT, seed):
        check_case(case)


@pytest.mark.parametrize("seed", range(2))
def test_generated_pools_without_tables_of_positions(seed, monkeypatch):
    """As for axes of more than 2,048 positions, whose nearest elements inside are computed."""
    monkeypatch.setattr(_geometry, "MAX_TABLE_SIZE", -1)
    _requests._plan.cache_clear()
    for case in generated_cases(COUNT, seed + 600):
        check_case(case)
    _requests._plan.cache_clear()


@pytest.mark.parametrize("seed", SEEDS)
def test_generated_indices(seed):
    """Unpooling of random indices, some of them outside the plane."""
    random = np.random.default_rng(seed)
    for case in generated_cases(COUNT, seed + 200):
        positions = int(np.prod(case.size))
        shape = (case.layout.planes, *case.cells)
        values = random.integers(-9, 9, shape).astype(np.float32)
        flat = random.integers(-2, positions + 2, shape)
        offsets = random.integers(0, min(int(np.prod(case.pool.kernel)) + 2, 256), shape)
        offsets[random.random(shape) < 0.05] = 255
        flat_of_offsets = reference.flat_of_window(offsets, case.pool, case.size, case.cells)
        narrow = [mx.int16] if positions + 2 < 2**15 else []
        for numbers, dtypes, expected, run in (
            (flat, [mx.int32, mx.int64, *narrow], flat, case.max_unpool),
            (offsets, [mx.uint8, mx.uint16], flat_of_offsets, case.max_unpool),
            (flat, [mx.int32], flat, case.unpool_anywhere),
        ):
            indices = case.layout.arrange(numbers, dtypes[random.integers(len(dtypes))])
            unpool = lambda v, run=run, indices=indices: run(v, indices)  # noqa: E731
            check_unpool(unpool, values, mx.float32, case.layout, expected, case.size, case)


@pytest.mark.parametrize("seed", range(6))
def test_generated_adaptive_and_fractional_pools(seed):
    for case in irregular_cases(50, seed):
        check_case(case)


@pytest.fixture
def maximum_of_a_mac(monkeypatch):
    """``mx.maximum`` as on the CPU of a Mac: 0 for -0 and 0, and the second of two NaNs."""
    real = mx.maximum

    def maximum(a, b):
        if not mx.issubdtype(a.dtype, mx.floating):
            return real(a, b)
        numbers = mx.where((a == 0) & (b == 0), a + b, real(a, b))
        return mx.where(b != b, b, mx.where(a != a, a, numbers))

    monkeypatch.setattr(mx, "maximum", maximum)


def test_on_the_cpu_of_a_mac_numbers_are_compared_instead_of_bits(request):
    assert copies_bits() or sys.platform == "darwin"
    request.getfixturevalue("maximum_of_a_mac")
    with mlx_unpool.use_backend("ops"):
        assert not copies_bits()
        for case in (*generated_cases(COUNT, 900), *irregular_cases(50, 900)):
            check_case(case)


def test_fractional_windows_are_drawn_where_a_gradient_searches_for_them():
    random = np.random.default_rng(0)
    # Float32 rounds the start of a window down: 22 * (26 / 22) is 25.999998.
    sizes = [(28, 2, 23)]
    for length in map(int, (*random.integers(2, 60, 300), *random.integers(60, 2**20, 30))):
        kernel = int(random.integers(1, min(length, 5) + 1))
        sizes.append((length, kernel, int(random.integers(1, min(length - kernel + 1, 3000) + 1))))
    for length, kernel, count in sizes:
        g = fractional_geometry((1, 1, length), (1, 1, count), (1, 1, kernel))
        number = np.arange(count)
        for u in (0.0, 1.0, 1 - 2**-24, *random.random(5)):
            numbers = np.array([u], np.float32)
            (axis,) = reference.fractional_bounds((length,), (count,), (kernel,), numbers)
            starts, stops = np.transpose(axis)
            for position in (starts, stops - 1):
                first, following = g.covering(2, position)
                assert ((first <= number) & (number < following) & (following <= count)).all()


def test_where_adaptive_windows_lie_is_what_their_definition_says():
    """Compare the closed forms, for integers and arrays, with a loop over all windows and positions."""
    for length, count in itertools.product(range(1, 27), range(1, 30)):
        (ends,) = reference.adaptive_bounds((length,), (count,))
        lengths, starts = {b - a for a, b in ends}, [a for a, _ in ends]
        steps = {b - a for a, b in itertools.pairwise(starts)} or {length}
        g = adaptive_geometry((1, 1, length), (1, 1, count))
        regular = len(lengths) == len(steps) == 1 and steps != {0}
        assert isinstance(g, WindowGeometry) == regular
        if isinstance(g, WindowGeometry):
            assert (g.window.kernel[2], g.window.stride[2]) == (*lengths, *steps)
            continue
        assert g.longest[2] == max(lengths)
        covering = [[i for i, (a, b) in enumerate(ends) if a <= p < b] for p in range(length)]
        walked = [(inside[0], inside[-1] + 1) for inside in covering]
        for table, formula, counts, expected in (
            (g.bounds_table, g.ends, g.pooled, ends),
            (g.covering_table, g.covering, g.size, walked),
        ):
            for given in (table, None):
                found = bounds_array(given, formula, counts)
                assert list(map(tuple, found[2:].tolist())) == expected
