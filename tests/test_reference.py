"""Generated calls of every rank, layout, window and dtype agree with the NumPy reference.

`make test` generates the same calls in every run, `make fuzz` new ones.
"""

import itertools
import sys
from math import prod
from random import Random

import mlx.core as mx
import numpy as np
import pytest
import reference
from arrays import FLOATS, INTEGERS, copies_bits, generated_cases, irregular_cases, planes
from hypothesis import given
from hypothesis import strategies as st
from properties import check_case, check_unpool, draws

import mlx_unpool
from mlx_unpool import _geometry, _requests
from mlx_unpool._backends.cpu import maxima
from mlx_unpool._bounds import bounds_array
from mlx_unpool._geometry import WindowGeometry, adaptive_geometry, fractional_geometry

SEEDS = st.integers(0, 2**32 - 1)
DTYPES = FLOATS * 4 + INTEGERS  # three of five calls have floats, and so a gradient


@draws(330, shrink=False)
@given(SEEDS)
def test_generated_pools(seed):
    check_case(*generated_cases(1, seed, DTYPES, adjacent=0.25))


@pytest.fixture
def as_if_large(monkeypatch):
    """The algorithms for long axes and windows, and for arrays of many elements."""
    monkeypatch.setattr(_geometry, "MAX_TABLE_SIZE", -1)
    for name, threshold in (("_SMALL_SIZE", 0), ("_FEW_VALUES", 0), ("_SEPARATE_KERNEL", 2)):
        monkeypatch.setattr(maxima, name, threshold)
    _requests._plan.cache_clear()
    yield
    _requests._plan.cache_clear()


@pytest.mark.usefixtures("as_if_large")
@draws(80, shrink=False)
@given(SEEDS)
def test_generated_pools_as_if_they_were_large(seed):
    check_case(*generated_cases(1, seed, DTYPES, adjacent=0.25))


@draws(330, shrink=False)
@given(SEEDS)
def test_generated_indices(seed):
    """Unpooling of random indices, some of them outside their windows or outside the plane."""
    random = np.random.default_rng(seed)
    (case,) = generated_cases(1, seed, DTYPES, adjacent=0.25)
    positions, shape = prod(case.size), (case.layout.planes, *case.cells)
    values = planes(case.layout, case.cells, case.dtype, Random(seed), random)
    anywhere = random.integers(-2, positions + 2, shape)
    near = reference.near_windows(random, case.pool, case.size, shape)
    if seed % 2:  # few, as one index outside its window can hide that a kernel misses another
        near[random.random(shape) > 1 / prod(case.cells)] = -1
    for flat in (anywhere, near):
        flat[random.random(shape) < 0.03] = -(2**62)
        flat[random.random(shape) < 0.03] = 2**62
    offsets = random.integers(0, min(prod(case.pool.kernel) + 2, 256), shape)
    offsets[random.random(shape) < 0.05] = 255
    of_windows = mx.uint8, mx.uint16
    of_planes = [d for d in INTEGERS if d not in of_windows and positions + 2 <= mx.iinfo(d).max]
    for drawn, dtypes, run in (
        (anywhere, of_planes, case.max_unpool),
        (near, of_planes, case.max_unpool),
        (anywhere, of_planes, case.unpool_anywhere),
        (offsets, of_windows, case.max_unpool),
    ):
        dtype = dtypes[random.integers(len(dtypes))]
        flat = drawn.clip(mx.iinfo(dtype).min, min(mx.iinfo(dtype).max, 2**62))
        indices = case.layout.arrange(flat, dtype)
        if drawn is offsets:
            flat = reference.flat_of_window(offsets, case.pool, case.size, case.cells)
        unpool = lambda v, run=run, indices=indices: run(v, indices)
        check_unpool(unpool, values, case.dtype, case.layout, flat, case.size, case)


@draws(100, shrink=False)
@given(SEEDS)
def test_generated_adaptive_and_fractional_pools(seed):
    for case in irregular_cases(2, seed, DTYPES):
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
        for case in (*generated_cases(60, 900), *irregular_cases(50, 900)):
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
            for pairs in (table, None):
                found = bounds_array(pairs, formula, counts)
                assert list(map(tuple, found[2:].tolist())) == expected
