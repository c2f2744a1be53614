"""Arrays of 2^31 elements and more on the CPU: in parts, or refused by name.

Most of these calls are only described: nothing of their arrays is ever allocated.
"""

from __future__ import annotations

import os

import mlx.core as mx
import numpy as np
import pytest
import reference
from arrays import FLOATS, generated_cases, irregular_cases
from errors import fails

from mlx_unpool import (
    adaptive_max_pool2d,
    fractional_max_pool2d,
    max_pool2d,
    max_unpool1d,
    max_unpool2d,
)
from mlx_unpool._backends import parts

CPU = {"stream": mx.cpu}
GIGABYTE = 2**30


def described(shape, dtype=mx.int8) -> mx.array:
    return mx.broadcast_to(mx.array(0, dtype), shape)


def halves_of(dtype) -> tuple[mx.array, mx.array]:
    """Pooled values and indices of a plane of 2^32 positions."""
    shape = (1, 2**15, 2**15, 1)
    return described(shape), described(shape, dtype)


PLANE, SIZE = (1, 2**16, 2**16, 1), (2**16, 2**16)
HALF = described(PLANE, mx.float16)
REFUSED = {
    "padding": (lambda: max_pool2d(described(PLANE), 3, 2, 1, **CPU), "max_pool2d", "x"),
    "float16": (lambda: max_pool2d(HALF, 2, return_indices=True, **CPU), "max_pool2d", "x"),
    "flat indices": (
        lambda: max_unpool2d(*halves_of(mx.int64), 2, **CPU),
        *("max_unpool2d", "output_size"),
    ),
    "overlapping window indices": (
        lambda: max_unpool2d(*halves_of(mx.uint8), 3, 2, 1, output_size=SIZE, **CPU),
        *("max_unpool2d", "output_size"),
    ),
    "no window": (
        lambda: max_unpool1d(
            described((1, 1, 1)), mx.zeros((1, 1, 1), mx.int32), None, output_size=2**31 - 1, **CPU
        ),
        *("max_unpool1d", "output_size"),
    ),
    "adaptive": (
        lambda: adaptive_max_pool2d(described(PLANE), 7, **CPU),
        *("adaptive_max_pool2d", "x"),
    ),
    "fractional": (
        lambda: fractional_max_pool2d(described(PLANE), 2, output_ratio=0.5, **CPU),
        *("fractional_max_pool2d", "x"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_plane_too_big_for_this_call_is_refused_by_name(name):
    call, caller, argument = REFUSED[name]
    fails(call, ValueError, caller, argument, "2^31 - 1 positions", "CPU", "but got (")


def test_a_plane_too_big_for_a_derivative_is_refused_as_well():
    x = described(PLANE, mx.float32)
    cotangent = described((1, 2**15, 2**15, 1), mx.float32)
    pool = lambda x: max_pool2d(x, 2, **CPU)  # noqa: E731
    for derivative in (
        lambda: mx.vjp(pool, [x], [cotangent]),
        lambda: mx.jvp(pool, [x], [x]),
    ):
        with pytest.raises(ValueError, match=r"'x' must have fewer than 2\^31 - 1 positions"):
            derivative()


TAKEN = {
    "no padding": lambda: max_pool2d(described(PLANE), 2, return_indices=True, **CPU),
    "many images": lambda: max_pool2d(described((64, 2**13, 2**13, 1)), 3, 2, 1, **CPU),
    "many channels": lambda: max_pool2d(described((1, 2**15, 2**15, 6)), 3, 2, 1, **CPU),
    "many images, float16": lambda: max_pool2d(
        described((9, 2**14, 2**14, 1), mx.float16), 2, **CPU
    ),
    "tiling window indices": lambda: max_unpool2d(*halves_of(mx.uint8), 2, **CPU),
    "no window": lambda: max_unpool2d(
        *(mx.ones((1, 1, 1, 4), mx.int8), mx.zeros((1, 1, 1, 4), mx.int32), None),
        output_size=(2**15, 2**15),
        **CPU,
    ),
    "a table of windows": lambda: max_unpool2d(
        *(described((1, 2**12, 2**12, 1)), described((1, 2**12, 2**12, 1), mx.uint8), 17, 1, 8),
        **CPU,
    ),
    "adaptive": lambda: adaptive_max_pool2d(described((8, 2**14, 2**14, 3)), 7, **CPU),
    "fractional": lambda: fractional_max_pool2d(
        described((8, 2**14, 2**14, 3)), 2, output_ratio=0.5, **CPU
    ),
    "derivative": lambda: mx.grad(lambda x: max_pool2d(x, 3, 2, 1, **CPU).sum())(
        described((9, 2**14, 2**14, 1), mx.float16)
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_bigger_arrays_than_an_axis_are_taken(name):
    TAKEN[name]()


@pytest.mark.parametrize("most", [1, 40, 300])
def test_parts_give_what_the_whole_gives(most, monkeypatch):
    """With a limit that small arrays reach: one channel of one image at a time, and more."""
    monkeypatch.setattr(parts, "MOST_ELEMENTS", most)
    random = np.random.default_rng(most)
    for case in generated_cases(60, seed=most):
        x = case.layout.arrange(case.planes, case.dtype)
        expected, flat, window = reference.max_pool(case.planes, case.pool)
        for index_format, codes in (("flat", flat), ("window", window)):
            values, indices = case.max_pool(x, index_format)
            np.testing.assert_array_equal(case.layout.planes_of(values), expected)
            np.testing.assert_array_equal(case.layout.planes_of(indices), codes)
            full = case.layout.planes_of(case.max_unpool(values, indices))
            np.testing.assert_array_equal(full, reference.max_unpool(expected, flat, case.size))
            if case.dtype not in FLOATS:
                continue
            cotangent = random.integers(-3, 4, flat.shape).astype(np.float32)
            _, (pulled,) = mx.vjp(
                lambda x, case=case, f=index_format: case.max_pool(x, f)[0],
                [x],
                [case.layout.arrange(cotangent, case.dtype)],
            )
            np.testing.assert_array_equal(
                case.layout.planes_of(pulled),
                reference.max_pool_vjp(cotangent, flat, case.size),
            )
    for irregular in irregular_cases(40, seed=most):
        values, indices = irregular.max_pool(
            irregular.layout.arrange(irregular.planes, irregular.dtype)
        )
        expected, flat = irregular.expected()
        np.testing.assert_array_equal(irregular.layout.planes_of(values), expected)
        np.testing.assert_array_equal(irregular.layout.planes_of(indices), flat)


def test_window_indices_without_a_table_give_the_same(monkeypatch):
    """What happens to windows so many and so large that a table of them would be too long."""
    from mlx_unpool._backends.cpu import positions

    x = mx.random.normal((2, 9, 11, 3))
    values, indices = max_pool2d(x, 5, 1, 2, return_indices=True, index_format="window")
    indices = mx.where(mx.random.uniform(shape=indices.shape) < 0.2, 200, indices).astype(mx.uint8)
    expected = max_unpool2d(values, indices, 5, 1, 2, **CPU)
    monkeypatch.setattr(positions, "MAX_ENTRIES", 10)
    monkeypatch.setattr(positions, "by_table", None)
    assert mx.array_equal(max_unpool2d(values, indices, 5, 1, 2, **CPU), expected)


def free_memory() -> int:
    if not hasattr(os, "sysconf") or "SC_AVPHYS_PAGES" not in os.sysconf_names:
        return 0
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:  # what the system would give back counts as free
        with open("/proc/meminfo") as file:  # noqa: PTH123
            free = next(int(line.split()[1]) * 1024 for line in file if "MemAvailable" in line)
    except (OSError, StopIteration):
        pass
    return free


@pytest.mark.skipif(
    free_memory() < 12 * GIGABYTE and os.environ.get("CI") != "true",
    reason="takes 8 GB of memory for half a minute",
)
def test_more_than_2_to_the_31_elements_are_pooled_and_unpooled():
    """2.15e9 elements in one plane, most of them equal, with a maximum in the last window of all."""
    height, width = 46342, 46342  # just above 2^31
    with mx.stream(mx.cpu):
        x = mx.zeros((1, height, width, 1), mx.int8)
        x[0, 3, 4, 0] = 5
        x[0, height - 1, width - 2, 0] = 7
        values, indices = max_pool2d(x, 2, return_indices=True, index_format="window")
        mx.eval(values, indices)
        assert values.shape == (1, height // 2, width // 2, 1)
        assert (values[0, 1, 2, 0].item(), indices[0, 1, 2, 0].item()) == (5, 2)
        assert (values[0, -1, -1, 0].item(), indices[0, -1, -1, 0].item()) == (7, 2)
        assert (values != 0).sum().item() == (indices != 0).sum().item() == 2
        full = max_unpool2d(values, indices, 2)
        del values, indices
        assert mx.array_equal(full, x)
        del full, x
        mx.clear_cache()
