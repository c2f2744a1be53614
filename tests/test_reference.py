"""Generated calls of every rank, layout, window and dtype agree with the NumPy reference.

`make test` generates the same calls in every run, `make fuzz` new ones.
"""

import sys
from functools import partial
from math import prod
from random import Random

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import reference
from support.arrays import (
    FLOATS,
    INTEGERS,
    Layout,
    copies_bits,
    generated_cases,
    irregular_cases,
    planes,
    with_far_elements,
    with_many_channels,
)
from support.properties import check_case, check_unpool, draws

import mlx_unpool

SEEDS = st.integers(0, 2**32 - 1)
DTYPES = FLOATS * 4 + INTEGERS  # three of five calls have floats, and so a gradient


@pytest.fixture(autouse=True)
def bounds_are_checked(monkeypatch):
    """Check the numbers of MLX's scatters and gathers, which read and write wherever they point."""

    def checked(run, x, numbers, *rest, axis):
        assert ((numbers >= 0) & (numbers < x.shape[axis])).all().item()
        return run(x, numbers, *rest, axis=axis)

    for name in ("put_along_axis", "take_along_axis"):
        monkeypatch.setattr(mx, name, partial(checked, getattr(mx, name)))


@draws(330, shrink=False)
@given(SEEDS)
def test_generated_pools(seed):
    check_case(*generated_cases(1, seed, DTYPES, adjacent=0.25))


@draws(40, shrink=False)
@given(SEEDS)
def test_generated_pools_with_a_long_axis(seed):
    """So many rows that what depends on the row alone is computed, not read from tables."""
    check_case(*generated_cases(1, seed, DTYPES, adjacent=0.25, long=True))


@draws(60, shrink=False)
@given(SEEDS)
def test_generated_pools_with_many_channels(seed):
    check_case(with_many_channels(*generated_cases(1, seed, DTYPES, adjacent=0.5), seed))


@draws(60, shrink=False)
@given(SEEDS)
def test_generated_pools_whose_elements_are_far_apart(seed):
    """The distance between elements, times the positions of the other axes, can exceed 2^31."""
    check_case(with_far_elements(*generated_cases(1, seed, DTYPES), seed))


# Negative numbers wrap around in unsigned dtypes.
WILD = [s * n for s in (1, -1) for n in (2**31, 2**31 + 5, 2**32, 2**32 + 5, 2**40, 2**62)]
WILD += [-(2**63)]


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
        flat[:] = np.where(random.random(shape) < 0.05, random.choice(WILD, shape), flat)
    offsets = random.integers(0, min(prod(case.pool.kernel) + 2, 256), shape)
    offsets[random.random(shape) < 0.05] = 255
    negative = np.where(random.random(shape) < 0.05, random.integers(-9, 0, shape), offsets)
    of_windows = mx.uint8, mx.uint16
    wide = [d for d in INTEGERS if positions + 2 <= mx.iinfo(d).max]
    of_planes = [d for d in wide if d not in of_windows]
    signed = [d for d in INTEGERS if mx.iinfo(d).min < 0]
    flat_format, window_format = (
        partial(case.max_unpool, index_format=name) for name in ("flat", "window")
    )
    for drawn, dtypes, run in (
        (anywhere, of_planes, case.max_unpool),
        (near, of_planes, case.max_unpool),
        (anywhere, of_planes, case.unpool_anywhere),
        (anywhere, wide, flat_format),
        (near, wide, flat_format),
        (offsets, of_windows, case.max_unpool),
        (offsets, INTEGERS, window_format),
        (negative, signed, window_format),
    ):
        dtype = dtypes[random.integers(len(dtypes))]
        wraps = -positions if dtype.size >= 4 else 0  # to a number outside the plane
        flat = drawn.clip(mx.iinfo(dtype).min or wraps, min(mx.iinfo(dtype).max, 2**62))
        indices = case.layout.arrange(flat, dtype)
        if drawn is offsets or drawn is negative:
            flat = reference.flat_of_window(flat, case.pool, case.size, case.cells)
        unpool = lambda v, run=run, indices=indices: run(v, indices)
        check_unpool(unpool, values, case.dtype, case.layout, flat, case.size, case)


@draws(100, shrink=False)
@given(SEEDS)
def test_generated_adaptive_and_fractional_pools(seed):
    for case in irregular_cases(2, seed, DTYPES):
        check_case(case)


def test_on_the_cpu_of_a_mac_numbers_are_compared_instead_of_bits(monkeypatch):
    """``mx.maximum`` returns 0 for -0 and 0, and the second of two NaNs."""
    real = mx.maximum

    def maximum(a, b):
        if not mx.issubdtype(a.dtype, mx.floating):
            return real(a, b)
        numbers = mx.where((a == 0) & (b == 0), a + b, real(a, b))
        return mx.where(b != b, b, mx.where(a != a, a, numbers))

    assert copies_bits() or sys.platform == "darwin"
    monkeypatch.setattr(mx, "maximum", maximum)
    with mx.stream(mx.cpu), mlx_unpool.use_backend("ops"):
        assert not copies_bits()
        for case in (*generated_cases(60, 900), *irregular_cases(50, 900)):
            check_case(case)


# Length, kernel, number of windows
FRACTIONAL = [
    (28, 2, 23),  # float32 rounds a start down: 22 * (26 / 22) < 26
    *((5, 1, 5), (59, 5, 54), (40, 3, 2), (31, 4, 1), (900, 3, 700), (2**20, 5, 3000)),
]


@pytest.mark.parametrize(("length", "kernel", "count"), FRACTIONAL)
def test_a_gradient_finds_every_fractional_window(length, kernel, count):
    """At samples near both ends of their range, where a start may be rounded up or down."""
    samples = np.array([0, 1, 1 - 2**-24, *np.random.default_rng(0).random(5)], np.float32)
    options = {"output_size": (1, count), "return_indices": True}
    options["random_samples"] = mx.stack([mx.zeros(8), mx.array(samples)], axis=1)[None]
    for sign in (1, -1):
        x = mx.broadcast_to(mx.arange(length)[:, None] * float(sign), (1, 1, length, 8))
        pool = lambda x: mlx_unpool.fractional_max_pool2d(x, (1, kernel), **options)
        bounds = [
            reference.fractional_bounds((length,), (count,), (kernel,), [u])[0] for u in samples
        ]
        first, stop = np.transpose(bounds, (2, 1, 0))
        expected = stop - 1 if sign == 1 else first
        assert np.array_equal(np.array(pool(x)[1])[0, 0], expected)
        gradient = mx.grad(lambda x, pool=pool: pool(x)[0].sum())(x)
        counts = np.stack([np.bincount(column, minlength=length) for column in expected.T], axis=1)
        assert np.array_equal(np.array(gradient)[0, 0], counts)


# Shape and window: planes of almost 256 elements, in which positions are numbered
# in the narrowest dtype
OVERLAPPING = [((1, *shape), (3, 2, 1)) for shape in ((5, 5, 10), (5, 5, 9), (3, 17, 5), (8, 8, 1))]
OVERLAPPING += [((1, 8, 8, 1), (3, 1, 1)), ((1, 200, 1), (3, 1)), ((1, 7, 8, 4), (3, 1))]


@pytest.mark.parametrize(("shape", "window"), OVERLAPPING, ids=str)
@pytest.mark.parametrize("offset", [9, 128, 200, 255])
def test_invalid_offsets_of_overlapping_windows_drop_their_values(shape, window, offset):
    rank = len(shape) - 2
    values = getattr(mlx_unpool, f"max_pool{rank}d")(mx.ones(shape), *window)
    indices = mx.full(values.shape, offset, mx.uint8)
    full = getattr(mlx_unpool, f"max_unpool{rank}d")(
        values, indices, *window, output_size=shape[1:-1]
    )
    assert not mx.any(full)


@pytest.mark.parametrize("kernel_size", [1, None])
@pytest.mark.parametrize("positions", [84, 85, 86, 21844, 21845, 21846])
def test_the_first_index_beyond_the_end_is_dropped(positions, kernel_size):
    """At the limits of the narrowest dtype for 3 channels: 85 * 3 = 255, 21,845 * 3 = 65,535."""
    layout, flat = Layout(1, None, 3, "channels_last"), np.tile(np.arange(positions), (3, 1))
    flat[:, 0] = flat[1, 7] = positions
    values = np.arange(1, flat.size + 1, dtype=np.float32).reshape(flat.shape)
    for dtype in (mx.int32, mx.int64, mx.uint32):
        indices, options = layout.arrange(flat, dtype), {"output_size": positions}
        unpool = lambda v, i=indices, o=options: mlx_unpool.max_unpool1d(v, i, kernel_size, **o)
        check_unpool(unpool, values, mx.float32, layout, flat, (positions,))


@pytest.mark.parametrize("index", [-1, 4, 0])
@pytest.mark.parametrize("count", [255, 256, 257, 65535, 65536, 65537])
def test_of_equal_indices_the_last_one_wins_or_all_are_dropped(count, index):
    """Pooled values are numbered in the narrowest dtype: these counts are at the dtypes' limits."""
    layout, flat = Layout(1, 1, 1, "channels_last"), np.full((1, count), index)
    values = np.arange(1, count + 1, dtype=np.float32)[None]
    indices = layout.arrange(flat, mx.int32)
    unpool = lambda v: mlx_unpool.max_unpool1d(v, indices, None, output_size=4)
    check_unpool(unpool, values, mx.float32, layout, flat, (4,))
