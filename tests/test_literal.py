"""Small cases with literal results.

Special values, and sizes and samples at the limits of number types.
"""

import math
from functools import partial

import mlx.core as mx
import numpy as np
import pytest
from support.arrays import FLOATS, to_numpy

import mlx_unpool
from mlx_unpool import fractional_max_pool2d, max_pool1d, max_pool2d, max_unpool2d

INF, NAN = math.inf, math.nan
total = lambda call: lambda x: call(x).sum()


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
    "padding 'valid' is none": ([1, 3, 2], 2, 2, "valid", 1, [3], [1], [1]),
    "padding 'same' keeps the rest": ([1, 3, 2], 2, 2, "same", 1, [3, 2], [1, 2], [1, 0]),
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


# kernel_size, stride, padding, dilation, and the length that three windows are unpooled to
DEFAULT_LENGTHS = [
    (2, 2, 0, 1, 6),
    (2, 5, 0, 1, 12),
    (2, 2, 0, 3, 8),
    (3, 2, "valid", 1, 7),
    (3, 2, 1, 1, 5),
    (3, 2, ((1, 0),), 1, 6),
    (3, 2, ((0, 2),), 1, 5),
    (3, 1, "same", 1, 3),
]


@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation", "length"), DEFAULT_LENGTHS)
def test_the_default_size_of_unpooling(kernel, stride, padding, dilation, length):
    values, indices = line([1, 2, 3]), line([-1, -1, -1], mx.int32)
    full = mlx_unpool.max_unpool1d(values, indices, kernel, stride, padding, dilation=dilation)
    assert full.shape == (1, length, 1)


# As sums of ones: 256 in bfloat16, 2048 in float16
@pytest.mark.parametrize("windows", [600, 4096])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_gradient_of_many_windows_is_summed_in_float32(dtype, windows):
    x = line([0.0] * (windows - 1) + [1.0] + [0.0] * (windows - 1), dtype)
    gradient = mx.grad(total(lambda x: max_pool1d(x, windows, 1)))(x)
    assert same(gradient, [0.0] * (windows - 1) + [windows] + [0.0] * (windows - 1))


FAR = [2**10, 715827882, 715827883, 2**30, 2**31 - 1]  # times 3: below 2^31, above it, above 2^32


@pytest.mark.parametrize("dilation", FAR)
def test_the_distance_between_elements_can_exceed_every_type_of_an_index(dilation):
    x, padding = mx.arange(9.0).reshape(1, 3, 3, 1), ((dilation - 1,) * 2, (0, 0))
    options = {"dilation": (dilation, 1), "return_indices": True}
    values, indices = max_pool2d(x, (2, 1), (dilation - 1, 1), padding, **options)
    assert same(values, [3, 4, 5, 0, 1, 2])
    assert same(indices, [3, 4, 5, 0, 1, 2])


# Modulo 2^32, positions below 2^31 and above it
@pytest.mark.parametrize("d", [2**31 - 1, 2**31 - 256])
def test_the_distance_between_elements_can_exceed_the_integers_of_a_double(d):
    length, step = 2**22 + 1, 2**20
    x = mx.broadcast_to(mx.array(0, mx.int8), (1, 3, length, 1))
    options = {"dilation": (d, 1), "return_indices": True}
    _, indices = max_pool2d(x, (2, 1), (d - 1, step), ((d - 1,) * 2, (0, 0)), **options)
    assert same(indices, [*range(length, 2 * length, step), *range(0, length, step)])


def test_adaptive_windows_of_long_axes():
    """The products of the formula, up to 5 * 10^9, need 64 bits."""
    x = mx.arange(100_000.0)
    starts = np.arange(50_001) * 100_000 // 50_001
    stops = -(-np.arange(1, 50_002) * 100_000 // 50_001)
    pool = lambda x: mlx_unpool.adaptive_max_pool1d(x[:, None], 50_001)
    assert same(pool(x), stops - 1)
    assert same(pool(-x), -starts)


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("as_layer", [True, False], ids=["layer", "function"])
def test_a_key_makes_fractional_pooling_reproducible(as_layer, rank):
    x = mx.random.normal((2, *[13] * rank, 8))
    pool = partial(
        getattr(mlx_unpool, f"fractional_max_pool{rank}d"), kernel_size=2, output_ratio=0.6
    )
    if as_layer:
        pool = getattr(mlx_unpool, f"FractionalMaxPool{rank}d")(2, output_ratio=0.6)
    one, two, other = (pool(x, key=mx.random.key(n)) for n in (1, 1, 2))
    assert one.shape == (2, *[7] * rank, 8)  # 7.8 rounded down
    assert (mx.array_equal(one, two), mx.array_equal(one, other)) == (True, False)


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


def test_samples_of_16_bits_are_those_of_32_bits():
    x, u = mx.random.normal((1, 1, 2000, 1)), mx.array([[[0, 0.3]]], mx.float16)
    pool = lambda u: fractional_max_pool2d(x, (1, 2), output_size=(1, 1500), random_samples=u)
    assert mx.array_equal(pool(u), pool(u.astype(mx.float32)))
