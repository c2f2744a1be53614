"""Generated calls of every rank, layout, window and dtype give what the contract's reference gives."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
import reference
from arrays import FLOATS, INTEGERS, generated_cases, to_numpy

import mlx_unpool
from mlx_unpool import _geometry, _requests

SEEDS = range(8)
CASES = 60  # a seed


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("index_format", ["flat", "window"])
def test_pooling_gives_the_values_and_indices_of_the_reference(seed, index_format):
    for case in generated_cases(CASES, seed):
        x = case.layout.arrange(case.planes, case.dtype)
        values, indices = case.max_pool(x, index_format)
        expected, flat, window = reference.max_pool(case.planes, case.pool)
        assert values.dtype == case.dtype
        assert indices.dtype == (mx.int32 if index_format == "flat" else mx.uint8)
        np.testing.assert_array_equal(case.layout.planes_of(values), expected, err_msg=str(case))
        got = case.layout.planes_of(indices)
        if index_format == "window":
            # A window without a place has no meaningful offset: whatever it holds names no place.
            got = reference.flat_of_window(got, case.pool, case.size, case.cells)
        np.testing.assert_array_equal(got, flat, err_msg=str(case))
        has_place = flat >= 0
        if index_format == "window":
            codes = case.layout.planes_of(indices)
            np.testing.assert_array_equal(codes[has_place], window[has_place], err_msg=str(case))


@pytest.mark.parametrize("seed", SEEDS)
def test_flat_indices_by_way_of_offsets_are_those_of_the_reference(seed, monkeypatch):
    """What planes of 256 and of more than 2,048 columns take, here for every plane."""
    monkeypatch.setattr(_geometry, "MAX_TABLE_SIZE", -1)
    _requests._plan.cache_clear()
    for case in generated_cases(CASES, seed + 600):
        _, indices = case.max_pool(case.layout.arrange(case.planes, case.dtype), "flat")
        expected = reference.max_pool(case.planes, case.pool)[1]
        got = case.layout.planes_of(indices)
        np.testing.assert_array_equal(got, expected, err_msg=str(case))
    _requests._plan.cache_clear()


WIDE = [
    reference.Pool((2, 2), (2, 2), (0, 0), (1, 1)),
    reference.Pool((3, 3), (2, 2), (1, 1), (1, 1)),
    reference.Pool((3, 3), (1, 1), (1, 1), (2, 2)),
    reference.Pool((7, 3), (2, 5), (3, 1), (1, 3)),
]


@pytest.mark.parametrize("pool", WIDE)
def test_wide_planes(pool):
    x = np.random.default_rng(0).integers(-50, 50, (2, 14, 300)).astype(np.float32)
    expected, flat, offsets = reference.max_pool(x, pool)
    for index_format, numbers in (("flat", flat), ("window", offsets)):
        values, indices = mlx_unpool.max_pool2d(
            mx.array(x),
            pool.kernel,
            pool.stride,
            pool.padding,
            dilation=pool.dilation,
            return_indices=True,
            index_format=index_format,
            data_format="channels_first",
        )
        np.testing.assert_array_equal(np.array(values), expected)
        np.testing.assert_array_equal(np.array(indices), numbers)


@pytest.mark.parametrize("seed", SEEDS)
def test_unpooling_gives_the_reference_for_indices_of_a_pool(seed):
    for case in generated_cases(CASES, seed + 100):
        x = case.layout.arrange(case.planes, case.dtype)
        expected_values, flat, _ = reference.max_pool(case.planes, case.pool)
        expected = reference.max_unpool(expected_values, flat, case.size)
        for index_format in ("flat", "window"):
            values, indices = case.max_pool(x, index_format)
            got = case.layout.planes_of(case.max_unpool(values, indices))
            np.testing.assert_array_equal(got, expected, err_msg=f"{index_format} {case}")


@pytest.mark.parametrize("seed", SEEDS)
def test_unpooling_gives_the_reference_for_any_flat_indices(seed):
    random = np.random.default_rng(seed)
    for case in generated_cases(CASES, seed + 200):
        places = int(np.prod(case.size))
        flat = random.integers(-2, places + 2, (case.layout.planes, *case.cells))
        values = random.integers(-9, 9, flat.shape).astype(np.float32)
        wide = [d for d in (mx.int16, mx.int32, mx.int64) if places + 2 < 2**15 or d != mx.int16]
        index_dtype = wide[random.integers(len(wide))]
        got = case.max_unpool(
            case.layout.arrange(values, mx.float32), case.layout.arrange(flat, index_dtype)
        )
        expected = reference.max_unpool(values, flat, case.size)
        np.testing.assert_array_equal(case.layout.planes_of(got), expected, err_msg=str(case))


@pytest.mark.parametrize("seed", SEEDS)
def test_unpooling_gives_the_reference_for_any_window_indices(seed):
    random = np.random.default_rng(seed)
    for case in generated_cases(CASES, seed + 300):
        taps = int(np.prod(case.pool.kernel))
        codes = random.integers(0, min(taps + 2, 256), (case.layout.planes, *case.cells))
        codes[random.random(codes.shape) < 0.05] = 255
        flat = reference.flat_of_window(codes, case.pool, case.size, case.cells)
        values = random.integers(-9, 9, flat.shape).astype(np.float32)
        for dtype in (mx.uint8, mx.uint16):
            got = case.max_unpool(
                case.layout.arrange(values, mx.float32), case.layout.arrange(codes, dtype)
            )
            expected = reference.max_unpool(values, flat, case.size)
            np.testing.assert_array_equal(case.layout.planes_of(got), expected, err_msg=str(case))


@pytest.mark.parametrize("seed", SEEDS)
def test_indices_of_any_origin_are_unpooled_without_a_window(seed):
    import mlx_unpool

    random = np.random.default_rng(seed)
    for case in generated_cases(CASES, seed + 400):
        places = int(np.prod(case.size))
        flat = random.integers(-1, places + 1, (case.layout.planes, *case.cells))
        values = random.integers(-9, 9, flat.shape).astype(np.float32)
        got = getattr(mlx_unpool, f"max_unpool{case.layout.rank}d")(
            case.layout.arrange(values, mx.float32),
            case.layout.arrange(flat, mx.int32),
            None,
            output_size=case.size,
            data_format=case.layout.data_format,
        )
        expected = reference.max_unpool(values, flat, case.size)
        np.testing.assert_array_equal(case.layout.planes_of(got), expected, err_msg=str(case))


def test_the_generated_cases_cover_what_they_are_meant_to():
    cases = [case for seed in SEEDS for case in generated_cases(CASES, seed)]
    assert {case.layout.rank for case in cases} == {1, 2, 3}
    assert {case.layout.data_format for case in cases} == {"channels_last", "channels_first"}
    assert {case.layout.batch for case in cases} == {None, 1, 2}
    assert {case.dtype for case in cases} == {*FLOATS, *INTEGERS}
    assert {case.pool.ceil_mode for case in cases} == {True, False}
    assert any(max(case.pool.padding) > 0 for case in cases)
    assert any(max(case.pool.dilation) > 1 for case in cases)
    assert any(min(case.pool.stride) < min(case.pool.kernel) for case in cases)
    empty = [case for case in cases if (reference.max_pool(case.planes, case.pool)[1] < 0).any()]
    assert empty, "no case has a window without a place"


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_negative_zero_and_zero_tie_and_keep_their_sign(data_format):
    from mlx_unpool import max_pool1d

    x = mx.array([-0.0, 0.0, 0.0, -0.0]).reshape(
        (1, 4, 1) if data_format == "channels_last" else (1, 1, 4)
    )
    for dtype in FLOATS:
        values, indices = max_pool1d(
            x.astype(dtype), 2, return_indices=True, data_format=data_format
        )
        assert indices.reshape(-1).tolist() == [0, 2]
        assert np.signbit(to_numpy(values)).ravel().tolist() == [True, False]
