"""Small cases with literal results: the examples of PyTorch's documentation and the special values."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from arrays import FLOATS, INTEGERS, copies_bits, to_numpy

import mlx_unpool
from mlx_unpool import (
    MaxPool2d,
    MaxPool3d,
    MaxUnpool2d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    fractional_max_pool2d,
    max_pool1d,
    max_pool2d,
    max_unpool1d,
    max_unpool2d,
)

INF, NAN = math.inf, math.nan
FORMATS = ("flat", "window")


def line(numbers, dtype=mx.float32) -> mx.array:
    """A sequence as (1, W, 1)."""
    return mx.array(numbers, dtype).reshape(1, -1, 1)


def same(got: mx.array, expected: list) -> bool:
    numbers = to_numpy(got).ravel()
    return np.array_equal(numbers, np.array(expected), equal_nan=numbers.dtype.kind == "f")


# input, kernel_size, stride, padding, dilation, values, flat indices, window indices
POOL_1D = {
    "the maximum and its position": ([1, 3, 2, 5], 2, 2, 0, 1, [3, 5], [1, 3], [1, 1]),
    "the first of equal values": ([4, 4, 4, 4], 2, 2, 0, 1, [4, 4], [0, 2], [0, 0]),
    "ties across overlapping windows": ([1, 7, 7, 1], 3, 1, 0, 1, [7, 7], [1, 1], [1, 0]),
    "NaN is larger than any number": ([NAN, INF, 1, NAN], 2, 2, 0, 1, [NAN, NAN], [0, 3], [0, 1]),
    "the last NaN wins": ([NAN, NAN, 5, NAN], 4, 4, 0, 1, [NAN], [3], [3]),
    "-inf gives the first element inside": ([-INF] * 3, 3, 2, 1, 1, [-INF] * 2, [0, 1], [1, 0]),
    "padding is skipped, not compared": ([-5, -7], 2, 2, 1, 1, [-5, -7], [0, 1], [1, 0]),
    "dilation skips positions": ([1, 9, 2, 8, 3], 3, 1, 0, 2, [3], [4], [2]),
    "a window outside the input": ([5], 2, 1, 1, 2, [-INF], [-1], [0]),
    "zeros of both signs are equal": ([-0.0, 0.0, 0.0, -0.0], 2, 2, 0, 1, [0, 0], [0, 2], [0, 0]),
}


@pytest.mark.parametrize("name", POOL_1D)
@pytest.mark.parametrize("dtype", FLOATS)
def test_pooling(name, dtype):
    numbers, *parameters, dilation, values, flat, window = POOL_1D[name]
    for index_format, expected in (("flat", flat), ("window", window)):
        for data_format, axes in (("channels_last", (0, 1, 2)), ("channels_first", (0, 2, 1))):
            names = {"index_format": index_format, "data_format": data_format}
            x, options = line(numbers, dtype).transpose(axes), {"dilation": dilation, **names}
            got, indices = max_pool1d(x, *parameters, return_indices=True, **options)
            assert same(got, values)
            assert same(indices, expected)
            if "signs" in name and copies_bits():
                assert np.signbit(to_numpy(got)).ravel().tolist() == [True, False]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_window_outside_the_input_has_the_least_value_of_an_integer_type(dtype):
    values, indices = max_pool1d(line([5], dtype), 2, 1, 1, dilation=2, return_indices=True)
    assert values.item() == mx.iinfo(dtype).min
    assert indices.item() == -1
    assert max_unpool1d(values, indices, 2, 1, 1, output_size=1, dilation=2).item() == 0


# size, kernel_size, stride, padding, dilation, ceil_mode, pooled size
SIZES = [
    *((5, 2, 2, 0, 1, False, 2), (5, 2, 2, 0, 1, True, 3), (4, 2, 2, 1, 1, False, 3)),
    *((7, 3, 2, 1, 1, True, 4), (5, 3, 1, 0, 2, False, 1), (2, 1, 2, 0, 1, True, 1)),
    (3, 2, 2, 1, 1, True, 2),  # a third window would start at 3, past the input
    (1, 2, 2, 0, 1, True, 1),  # the window ends past the input
]


@pytest.mark.parametrize(("size", "k", "s", "p", "d", "ceil_mode", "expected"), SIZES)
def test_pooled_sizes(size, k, s, p, d, ceil_mode, expected):
    x = mx.zeros((1, size, 1))
    assert max_pool1d(x, k, s, p, dilation=d, ceil_mode=ceil_mode).shape == (1, expected, 1)


# The examples of PyTorch's documentation


def test_unpooling_in_two_dimensions():
    x = mx.arange(1, 17).reshape(1, 4, 4, 1)
    unpooled = MaxUnpool2d(2, stride=2)(*MaxPool2d(2, stride=2, return_indices=True)(x))
    assert same(unpooled, [0, 0, 0, 0, 0, 6, 0, 8, 0, 0, 0, 0, 0, 14, 0, 16])
    x = mx.arange(1, 21).reshape(1, 4, 5, 1)
    values, indices = MaxPool2d(2, stride=2, return_indices=True)(x)
    for output_size in (x.shape, x.shape[1:], x.shape[1:3], [4, 5]):
        unpooled = MaxUnpool2d(2, stride=2)(values, indices, output_size=output_size)
        rows = [[0, 0, 0, 0, 0], [0, 7, 0, 9, 0], [0, 0, 0, 0, 0], [0, 17, 0, 19, 0]]
        assert unpooled[0, ..., 0].tolist() == rows


# Unpooling


def test_the_last_of_several_values_with_one_index_wins_and_an_index_outside_is_dropped():
    for window in ((2,), (None, None, 0, 6)):
        for indices, expected in (
            ([2, 2, 0], [3, 0, 2, 0, 0, 0]),
            ([-1, 6, 5], [0, 0, 0, 0, 0, 3]),
        ):
            assert same(max_unpool1d(line([1, 2, 3]), line(indices, mx.int32), *window), expected)


def test_unpooling_distinguishes_index_formats_by_their_dtype():
    for dtype in INTEGERS:
        expected = [0, 1, 2, 0] if dtype in (mx.uint8, mx.uint16) else [2, 1, 0, 0]
        assert same(max_unpool1d(line([1, 2]), line([1, 0], dtype), 2), expected)


def test_window_indices_have_two_bytes_for_more_than_256_elements():
    for kernel, dtype in (
        *(((16, 16), mx.uint8), ((1, 257), mx.uint16), ((256, 256), mx.uint16)),
        ((257, 256), None),  # more than 65,536 elements
    ):
        x = mx.zeros((1, *kernel, 1))
        x[0, -1, -1, 0] = 1
        assert mx.array_equal(mx.grad(total(lambda x, k=kernel: max_pool2d(x, k) * 2))(x), 2 * x)
        if dtype is None:
            continue
        values, indices = max_pool2d(x, kernel, return_indices=True, index_format="window")
        assert indices.dtype == dtype
        assert indices.item() == x.size - 1
        assert mx.array_equal(max_unpool2d(values, indices, kernel), x)
        outside = max_unpool2d(values, indices, kernel, padding=(0, 1))  # the last one is padding
        assert outside.shape == (1, kernel[0], kernel[1] - 2, 1)
        assert not outside.any().item()


def test_elements_outside_the_input_cost_nothing():
    """A window of two million elements over an input of ten is fast and gives the maximum of the ten."""
    x = line([3, 1, 4, 1, 5, 9, 2, 6, 5, 3])
    for index_format, expected in (("flat", 5), ("window", 2**15 + 5)):
        options = {"return_indices": True, "index_format": index_format}
        values, indices = max_pool1d(x, 2**16, padding=2**15, **options)
        assert (values.item(), indices.item()) == (9, expected)
    for stride, count in ((None, 1), (1, 11)):
        values, indices = max_pool1d(x, 2**21, stride, 2**20, return_indices=True)
        assert same(values, [9] * count)
        assert same(indices, [5] * count)
    assert same(
        mx.grad(total(lambda x: max_pool1d(x, 2**21, 1, 2**20)))(x), [0] * 5 + [11] + [0] * 4
    )
    values, indices = max_pool1d(x, 2, 1, 2**20, dilation=2**21, return_indices=True)
    assert same(values, [-INF] * 10)
    assert same(indices, [-1] * 10)


# Derivatives


def total(call):
    return lambda x: call(x).sum()


# function, input, gradient of the sum of its results
PEAK, OUTSIDE = line([0.0, 0, 9, 0, 0]), line([2, 2, -1, 99], mx.int32)
GRADIENTS = {
    "the documentation's example": (
        MaxPool3d(2, stride=2, data_format="channels_first"),
        mx.array([3, 1, 4, 1, 5, 9, 2, 6, 2, 7, 1, 8, 2, 8, 1, 8.0]).reshape(1, 2, 2, 2, 2),
        [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
    ),
    "a sum where windows overlap": (lambda x: max_pool1d(x, 3, 1), PEAK, [0, 0, 3, 0, 0]),
    "a sum where windows overlap, window indices": (
        lambda x: max_pool1d(x, 3, 1, return_indices=True, index_format="window")[0],
        *(PEAK, [0, 0, 3, 0, 0]),
    ),
    "zero for a value that does not win and for a dropped index": (
        lambda v: max_unpool1d(v, OUTSIDE, 2),
        *(line([1.0, 2, 3, 4]), [0, 1, 0, 0]),
    ),
    "zero for those without a window, too": (
        lambda v: max_unpool1d(v, OUTSIDE, None, output_size=16),
        *(line([1.0, 2, 3, 4]), [0, 1, 0, 0]),
    ),
    "the third derivative": (
        mx.grad(total(mx.grad(total(lambda x: max_pool1d(x, 4) ** 3)))),
        *(line([2.0, 4, 3, 1]), [0, 6, 0, 0]),
    ),
}
for name in FORMATS:

    def empty(x, index_format=name):
        options = {"dilation": 2, "return_indices": True, "index_format": index_format}
        values, indices = max_pool1d(x, 2, 1, 1, **options)
        full = max_unpool1d(values, indices, 2, 1, 1, output_size=1, dilation=2)
        return mx.maximum(values, -1).sum() + full.sum()

    GRADIENTS[f"zero for a window outside the input, {name}"] = empty, line([5.0]), [0]


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    function, x, expected = GRADIENTS[name]
    assert same(mx.grad(total(function))(x), expected)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_gradients_of_16_bit_values_are_summed_in_32_bits(dtype):
    """A sum of ones in the type itself stops at 2,048 (float16) or 256 (bfloat16)."""
    x = mx.zeros((1, 64, 64, 1), dtype)
    x[0, 31, 31, 0] = 1
    for index_format in FORMATS:
        options = {"return_indices": True, "index_format": index_format}
        pool = lambda x, options=options: max_pool2d(x, 33, 1, **options)[0]  # noqa: E731
        _, (got,) = mx.vjp(pool, [x], [mx.full((1, 32, 32, 1), 3, dtype)])
        assert got[0, 31, 31, 0].item() == 3 * 32 * 32
        assert mx.array_equal(got != 0, x != 0)
    one = mx.zeros((1, 1, 1, 3), dtype)  # each of 32 x 32 windows contains only this element
    cotangent = mx.full((1, 32, 32, 3), 3, dtype)
    _, (got,) = mx.vjp(lambda x: adaptive_max_pool2d(x, 32), [one], [cotangent])
    assert got.dtype == dtype
    assert same(got, [3 * 32 * 32] * 3)


# Adaptive and fractional pooling


# input, output_size, values, indices
NANS = [3, 3, NAN, NAN, 1, -INF, -INF]
ADAPTIVE_1D = {
    "windows of different lengths": ([5, 1, 4, 2, 3], 3, [5, 4, 3], [0, 2, 4]),
    "more windows than positions": ([7, 8], 5, [7, 7, 8, 8, 8], [0, 0, 1, 1, 1]),
    "ties and NaN": (NANS, 4, [3, NAN, NAN, -INF], [0, 3, 3, 5]),
}


@pytest.mark.parametrize("name", ADAPTIVE_1D)
def test_adaptive_pooling(name):
    x, output_size, *expected = ADAPTIVE_1D[name]
    assert all(map(same, adaptive_max_pool1d(line(x), output_size, return_indices=True), expected))


def test_adaptive_windows_of_long_axes():
    """The products of the formula, up to 5 * 10^9, need 64 bits."""
    x = mx.arange(100_000.0)
    starts = np.arange(50_001) * 100_000 // 50_001
    stops = -(-np.arange(1, 50_002) * 100_000 // 50_001)
    assert same(adaptive_max_pool1d(x[:, None], 50_001), stops - 1)
    assert same(adaptive_max_pool1d(-x[:, None], 50_001), -starts)


def test_none_keeps_an_axis():
    x = mx.random.normal((2, 5, 7, 3))
    assert adaptive_max_pool2d(x, (None, 2)).shape == (2, 5, 2, 3)
    assert mx.array_equal(adaptive_max_pool2d(x, (None, None)), x)
    assert mx.array_equal(adaptive_max_pool2d(x, 1)[:, 0, 0], x.max(axis=(1, 2)))


def test_fractional_windows_start_at_the_positions_of_the_formula():
    x = mx.arange(9.0).reshape(1, 9, 1)  # ascending: the maximum is the last element of a window
    # a = (9 - 2) / (4 - 1); floor((i + 0.5) * a) - floor(0.5 * a) = 0, 2, 4, and the last one at 7
    samples = mx.array([[[0.9, 0.5]]])
    values = fractional_max_pool2d(x, (1, 2), output_size=(1, 4), random_samples=samples)
    assert same(values, [1, 3, 5, 8])


def test_a_ratio_is_rounded_down():
    x = mx.zeros((1, 10, 9, 1))
    assert fractional_max_pool2d(x, 2, output_ratio=0.5).shape == (1, 5, 4, 1)
    assert fractional_max_pool2d(x, 2, output_ratio=[0.79, 0.5]).shape == (1, 7, 4, 1)


def test_a_key_makes_fractional_pooling_reproducible():
    x = mx.random.normal((2, 20, 20, 8))
    pool = mlx_unpool.FractionalMaxPool2d(2, output_ratio=0.6)
    one, two, other = (pool(x, key=mx.random.key(n)) for n in (1, 1, 2))
    assert mx.array_equal(one, two)
    assert not mx.array_equal(one, other)
    mx.random.seed(5)
    first, then = pool(x), pool(x)
    mx.random.seed(5)
    assert mx.array_equal(pool(x), first)
    assert not mx.array_equal(first, then)


def test_images_and_channels_draw_separate_windows():
    x = mx.broadcast_to(mx.arange(40.0)[:, None], (3, 1, 40, 4))
    starts = fractional_max_pool2d(x, (1, 2), output_size=(1, 15), key=mx.random.key(0))
    rows = starts.transpose(0, 3, 1, 2).reshape(12, 15).tolist()
    assert len(set(map(tuple, rows))) == 5  # all possible starts


@pytest.mark.parametrize("sample", [-5.0, 7.0, INF, -INF, NAN, 1e30, 2.0**24, 2.0**25, -(2.0**24)])
def test_random_samples_out_of_range_stay_inside_the_plane(sample):
    """Near 2^24, float32 rounds by more than one, which must not move a window past the plane."""
    x = mx.random.normal((1, 9, 9, 2))

    def pool(x, sample=sample):
        options = {"random_samples": mx.full((1, 2, 2), sample), "return_indices": True}
        return fractional_max_pool2d(x, 2, output_size=5, **options)

    values, indices = pool(x)
    assert mx.array_equal(indices, pool(x, 1.0 if sample > 0 else 0.0)[1])
    assert ((indices >= 0) & (indices < 81)).all().item()
    # The last window of each axis is always the last possible one.
    assert (indices[0, 4] // 9 >= 7).all().item()
    assert (indices[0, :, 4] % 9 >= 7).all().item()
    assert mx.grad(total(lambda x: pool(x)[0]))(x).sum().item() == values.size
    picked = mx.take_along_axis(x.reshape(81, 2), indices.reshape(25, 2), axis=0)
    assert mx.array_equal(picked, values.reshape(25, 2))
