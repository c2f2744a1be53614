"""Small cases with answers written out: the documentation's examples and every rule for special values."""

from __future__ import annotations

import math

import mlx.core as mx
import pytest
from arrays import FLOATS, INTEGERS, to_numpy

import mlx_unpool
from mlx_unpool import (
    MaxPool2d,
    MaxPool3d,
    MaxUnpool2d,
    MaxUnpool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    max_unpool1d,
    max_unpool2d,
)

INF, NAN = math.inf, math.nan


def line(numbers, dtype=mx.float32) -> mx.array:
    """A sequence as (1, W, 1)."""
    return mx.array(numbers, dtype).reshape(1, -1, 1)


def same(got: list, expected: list) -> bool:
    return len(got) == len(expected) and all(
        a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(got, expected)
    )


# input, kernel_size, stride, padding, dilation, values, flat indices, window indices
POOL_1D = {
    "the maximum and its place": ([1, 3, 2, 5], 2, 2, 0, 1, [3, 5], [1, 3], [1, 1]),
    "the first of equal values": ([4, 4, 4, 4], 2, 2, 0, 1, [4, 4], [0, 2], [0, 0]),
    "ties across overlapping windows": ([1, 7, 7, 1], 3, 1, 0, 1, [7, 7], [1, 1], [1, 0]),
    "NaN is larger than any number": ([NAN, INF, 1, NAN], 2, 2, 0, 1, [NAN, NAN], [0, 3], [0, 1]),
    "the last NaN is taken": ([NAN, NAN, 5, NAN], 4, 4, 0, 1, [NAN], [3], [3]),
    "-inf gives the first tap inside": ([-INF] * 3, 3, 2, 1, 1, [-INF, -INF], [0, 1], [1, 0]),
    "padding is skipped, not compared": ([-5, -7], 2, 2, 1, 1, [-5, -7], [0, 1], [1, 0]),
    "dilation skips places": ([1, 9, 2, 8, 3], 3, 1, 0, 2, [3], [4], [2]),
    "a window without a place": ([5], 2, 1, 1, 2, [-INF], [-1], [0]),
}


@pytest.mark.parametrize("name", POOL_1D)
@pytest.mark.parametrize("dtype", FLOATS)
def test_pooling(name, dtype):
    x, kernel_size, stride, padding, dilation, values, flat, window = POOL_1D[name]
    for index_format, expected in (("flat", flat), ("window", window)):
        got, indices = max_pool1d(
            line(x, dtype),
            kernel_size,
            stride,
            padding,
            dilation=dilation,
            return_indices=True,
            index_format=index_format,
        )
        assert same(to_numpy(got).ravel().tolist(), values)
        assert indices.reshape(-1).tolist() == expected


def test_one_element_of_a_window_inside_on_every_axis():
    """Elements at -1, 2 and 5 of axes of 5."""
    x = mx.arange(125.0).reshape(5, 5, 5, 1)
    for index_format, expected in (("flat", 2 * 25 + 2 * 5 + 2), ("window", 1 * 9 + 1 * 3 + 1)):
        options = {"dilation": 3, "return_indices": True, "index_format": index_format}
        values, indices = max_pool3d(x, 3, 1, 1, **options)
        assert (values.item(), indices.item()) == (62, expected)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_window_without_a_place_has_the_least_value_of_an_integer_type(dtype):
    x = line([5], dtype)
    values, indices = max_pool1d(x, 2, 1, 1, dilation=2, return_indices=True)
    assert values.item() == mx.iinfo(dtype).min
    assert indices.item() == -1
    assert max_unpool1d(values, indices, 2, 1, 1, output_size=1, dilation=2).item() == 0


def test_a_window_without_a_place_touches_nothing_backwards():
    for index_format in ("flat", "window"):

        def total(x, index_format=index_format):
            values, indices = max_pool1d(
                x, 2, 1, 1, dilation=2, return_indices=True, index_format=index_format
            )
            unpooled = max_unpool1d(values, indices, 2, 1, 1, output_size=1, dilation=2)
            return mx.maximum(values, -1).sum() + unpooled.sum()

        assert mx.grad(total)(line([5.0])).tolist() == [[[0.0]]]


# size, kernel_size, stride, padding, dilation, ceil_mode, pooled size
SIZES = [
    (5, 2, 2, 0, 1, False, 2),
    (5, 2, 2, 0, 1, True, 3),
    (4, 2, 2, 1, 1, False, 3),
    (7, 3, 2, 1, 1, True, 4),
    (5, 3, 1, 0, 2, False, 1),
    (2, 1, 2, 0, 1, True, 1),
    (3, 2, 2, 1, 1, True, 2),  # a third window would start at 3, past the input
    (1, 2, 2, 0, 1, True, 1),  # hangs over the end
]


@pytest.mark.parametrize(("size", "k", "s", "p", "d", "ceil_mode", "expected"), SIZES)
def test_pooled_sizes(size, k, s, p, d, ceil_mode, expected):
    x = mx.zeros((1, size, 1))
    assert max_pool1d(x, k, s, p, dilation=d, ceil_mode=ceil_mode).shape == (1, expected, 1)


def test_the_2d_example_of_the_documentation():
    x = mx.array([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]])[None, ..., None]
    values, indices = MaxPool2d(2, stride=2, return_indices=True)(x)
    unpooled = MaxUnpool2d(2, stride=2)(values, indices)
    assert unpooled[0, ..., 0].tolist() == [
        [0, 0, 0, 0],
        [0, 6, 0, 8],
        [0, 0, 0, 0],
        [0, 14, 0, 16],
    ]


def test_the_odd_2d_example_of_the_documentation():
    x = mx.arange(1, 21).reshape(1, 4, 5, 1)
    values, indices = MaxPool2d(2, stride=2, return_indices=True)(x)
    for output_size in (x.shape, x.shape[1:], x.shape[1:3], [4, 5]):
        unpooled = MaxUnpool2d(2, stride=2)(values, indices, output_size=output_size)
        assert unpooled[0, ..., 0].tolist() == [
            [0, 0, 0, 0, 0],
            [0, 7, 0, 9, 0],
            [0, 0, 0, 0, 0],
            [0, 17, 0, 19, 0],
        ]


def test_the_3d_example_of_the_documentation():
    layout = {"data_format": "channels_first"}
    x = mx.random.normal((20, 16, 51, 33, 15))
    values, indices = MaxPool3d(3, stride=2, return_indices=True, **layout)(x)
    assert MaxUnpool3d(3, stride=2, **layout)(values, indices).shape == (20, 16, 51, 33, 15)


@pytest.mark.parametrize(
    ("layer", "pooled", "output_size", "expected"),
    [
        (MaxUnpool2d, (1, 64, 14, 14), None, (1, 64, 28, 28)),
        (MaxUnpool2d, (1, 16, 7, 7), (1, 16, 15, 15), (1, 16, 15, 15)),
        (MaxUnpool3d, (1, 32, 4, 4, 4), None, (1, 32, 8, 8, 8)),
        (MaxUnpool3d, (1, 8, 3, 3, 3), (1, 8, 7, 7, 7), (1, 8, 7, 7, 7)),
    ],
)
def test_the_shape_examples_of_the_documentation(layer, pooled, output_size, expected):
    unpool = layer(2, stride=2, data_format="channels_first")
    got = unpool(mx.ones(pooled), mx.zeros(pooled, mx.int32), output_size=output_size)
    assert got.shape == expected
    # Every cell names place 0 of its plane, where the last one stays.
    assert got.sum().item() == pooled[0] * pooled[1]


def test_the_gradient_example_of_the_documentation():
    pool = MaxPool3d(2, stride=2, data_format="channels_first")
    x = mx.array([3, 1, 4, 1, 5, 9, 2, 6, 2, 7, 1, 8, 2, 8, 1, 8], mx.float32)
    x = x.reshape(1, 2, 2, 2, 2)
    assert pool(x).reshape(-1).tolist() == [9, 8]
    gradient = mx.grad(lambda x: pool(x).sum())(x)
    assert gradient.reshape(-1).tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]


def test_of_several_cells_that_name_one_place_the_last_wins():
    got = max_unpool1d(line([1.0, 2, 3]), line([2, 2, 0], mx.int32), 2)
    assert got.reshape(-1).tolist() == [3, 0, 2, 0, 0, 0]


def test_an_index_outside_the_plane_is_dropped():
    got = max_unpool1d(line([1.0, 2, 3]), line([-1, 6, 5], mx.int32), 2)
    assert got.reshape(-1).tolist() == [0, 0, 0, 0, 0, 3]


def test_unpooling_tells_index_formats_apart_by_their_dtype():
    for dtype in (mx.uint8, mx.uint16):
        got = max_unpool1d(line([1.0, 2]), line([1, 0], dtype), 2)
        assert got.reshape(-1).tolist() == [0, 1, 2, 0]
    for dtype in (mx.int8, mx.int16, mx.int32, mx.int64, mx.uint32, mx.uint64):
        got = max_unpool1d(line([1.0, 2]), line([1, 0], dtype), 2)
        assert got.reshape(-1).tolist() == [2, 1, 0, 0]


def test_window_indices_take_two_bytes_beyond_256_taps():
    for kernel, dtype in ((16, mx.uint8), (17, mx.uint16), (256, mx.uint16)):
        x = mx.zeros((1, kernel, kernel, 1))
        x[0, -1, -1, 0] = 1
        values, indices = max_pool2d(x, kernel, return_indices=True, index_format="window")
        assert indices.dtype == dtype
        assert indices.item() == kernel * kernel - 1
        assert mx.array_equal(max_unpool2d(values, indices, kernel), x)
        outside = max_unpool2d(values, indices, kernel, kernel, 1)  # the last one is padding
        assert outside.shape == (1, kernel - 2, kernel - 2, 1)
        assert not outside.any().item()
        gradient = mx.grad(lambda x, k=kernel: (max_pool2d(x, k, index_format="window") * 2).sum())
        assert mx.array_equal(gradient(x), 2 * x)


def test_flat_indices_take_eight_bytes_only_where_a_plane_needs_them():
    from mlx_unpool._types import flat_dtype

    assert flat_dtype((1, 1, 2**31 - 1)) == mx.int32
    assert flat_dtype((1, 2**16, 2**15)) == mx.int64
    # A call makes that choice by shape alone: nothing of this array is ever allocated.
    for width, dtype in ((2**16, mx.int64), (2**16 - 1, mx.int32)):
        x = mx.broadcast_to(mx.array(0, mx.int8), (1, 2**15, width, 1))
        assert max_pool2d(x, 2**7, return_indices=True)[1].dtype == dtype


def test_flat_indices_are_the_same_numbers_in_either_layout():
    x = mx.random.normal((2, 6, 7, 3))
    _, last = max_pool2d(x, 2, return_indices=True)
    _, first = max_pool2d(
        x.transpose(0, 3, 1, 2), 2, return_indices=True, data_format="channels_first"
    )
    assert mx.array_equal(last, first.transpose(0, 2, 3, 1))


def test_sizes_that_pytorch_rejects_are_taken():
    # Dilation: a kernel of 2 with dilation 3 spans 4 places, of which PyTorch's formula knows 2.
    x = mx.random.normal((1, 9, 1))
    values, indices = max_pool1d(x, 2, 2, dilation=3, return_indices=True)
    assert max_unpool1d(values, indices, 2, 2, output_size=9, dilation=3).shape == x.shape
    # ceil_mode: the last window hangs over, so the input is smaller than the windows span.
    x = mx.array([1, 3, 2, 6, 5, 4, 7]).reshape(1, 7, 1)
    values, indices = max_pool1d(x, 3, 3, ceil_mode=True, return_indices=True)
    unpooled = max_unpool1d(values, indices, 3, 3, output_size=7)
    assert unpooled.reshape(-1).tolist() == [0, 3, 0, 6, 0, 0, 7]


def test_indices_of_any_origin_need_no_window():
    got = mlx_unpool.max_unpool2d(
        mx.array([5.0, 6]).reshape(1, 1, 2, 1),
        mx.array([7, 2]).reshape(1, 1, 2, 1),
        None,
        output_size=(2, 4),
    )
    assert got.reshape(2, 4).tolist() == [[0, 0, 6, 0], [0, 0, 0, 5]]


def test_elements_outside_the_input_cost_nothing():
    """A window of two million elements over ten: built in an instant, and with their results."""
    x = line([3, 1, 4, 1, 5, 9, 2, 6, 5, 3])
    for index_format in ("flat", "window"):
        values, indices = max_pool1d(
            x, 2**16, padding=2**15, return_indices=True, index_format=index_format
        )
        assert values.item() == 9
        assert indices.item() == (5 if index_format == "flat" else 2**15 + 5)
    for stride in (None, 1):
        values, indices = max_pool1d(x, 2**21, stride, 2**20, return_indices=True)
        assert values.reshape(-1).tolist() == [9] * (1 if stride is None else 11)
        assert indices.reshape(-1).tolist() == [5] * (1 if stride is None else 11)
    gradient = mx.grad(lambda x: max_pool1d(x, 2**21, 1, 2**20).sum())(x)
    assert gradient.reshape(-1).tolist() == [0, 0, 0, 0, 0, 11, 0, 0, 0, 0]
    values, indices = max_pool1d(x, 2, 1, 2**20, dilation=2**21, return_indices=True)
    assert same(values.reshape(-1).tolist(), [-INF] * 10)
    assert indices.reshape(-1).tolist() == [-1] * 10
