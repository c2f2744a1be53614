"""Conversion of index formats: results of other frameworks, round trips, indices out of range."""

import json
from contextlib import nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from typing import get_args, get_type_hints

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import reference
from support.arrays import generated_cases
from support.properties import draws, equal

import mlx_unpool
from mlx_unpool import convert_indices

DIGITS = [int(digit) for digit in "31415926535897932384626433832795"]
LAST = mx.array(DIGITS, mx.float32).reshape(2, 2, 4, 2)
FIRST = mx.moveaxis(LAST, -1, 1)
VOLUME = mx.array(DIGITS, mx.float32).reshape(1, 2, 2, 2, 4)
LAYOUTS = {"data_format": "channels_last"}, {"data_format": "channels_first"}

# Flattened indices from TensorFlow 2.21 (max_pool_with_argmax) and ONNX Runtime 1.31 (MaxPool).
ROWS, COLUMN_MAJOR = (1, 2, 1), [2, 6, 8, 14, 3, 7, 11, 13, 18, 20, 24, 28, 17, 23, 27, 31]
GIVEN = [
    ("tensorflow", LAST, 2, [8, 11, 12, 5, 2, 3, 14, 13]),
    ("tensorflow_batch", LAST, 2, [8, 11, 12, 5, 18, 19, 30, 29]),
    ("onnx", FIRST, 2, [4, 6, 13, 10, 17, 23, 25, 30]),
    ("onnx_column_major", FIRST, 2, [1, 5, 11, 12, 18, 23, 26, 29]),
    ("onnx", VOLUME, 2, [5, 14, 29, 30]),
    ("onnx_column_major", VOLUME, 2, [6, 11, 23, 27]),
    ("onnx", VOLUME, ROWS, [4, 5, 2, 7, 12, 13, 14, 11, 20, 17, 18, 19, 24, 29, 30, 31]),
    ("onnx_column_major", VOLUME, ROWS, COLUMN_MAJOR),
]


@pytest.mark.parametrize(("name", "x", "window", "given"), GIVEN)
def test_what_other_frameworks_give(name, x, window, given):
    rank = x.ndim - 2
    layout, size = (LAYOUTS[0], x.shape[1:-1]) if x is LAST else (LAYOUTS[1], x.shape[2:])
    pool = getattr(mlx_unpool, f"max_pool{rank}d")
    for index_format in ("flat", "window"):
        ours = pool(x, window, return_indices=True, index_format=index_format, **layout)[1]
        theirs = mx.array(given, mx.int64).reshape(ours.shape)
        for way, start, expected in (
            ((name, index_format), theirs, ours),
            ((index_format, name), ours, theirs),
        ):
            got = convert_indices(start, *way, size, window, **layout)
            assert (got.dtype, got.tolist()) == (expected.dtype, expected.tolist())


def test_same_padding_is_that_of_tensorflow():
    """The file contains ``argmax`` of this program, with the same ``numbers``::

    y = tf.nn.relu(tf.nn.conv2d(numbers(2, 7, 5, 2), numbers(3, 3, 2, 3), 1, "SAME"))
    y, argmax = tf.nn.max_pool_with_argmax(y, 2, 2, "SAME", include_batch_in_index=True)
    """
    numbers = lambda *shape: mx.array(
        np.sin(np.arange(np.prod(shape)) ** 2, dtype=np.float32)
    ).reshape(shape)
    path = Path(__file__).parent / "support" / "same_padding_in_tensorflow.json"
    weights = mx.moveaxis(numbers(3, 3, 2, 3), -1, 0)
    features = nn.relu(mx.conv2d(numbers(2, 7, 5, 2), weights, padding=1))
    indices = mlx_unpool.max_pool2d(features, 2, padding="same", return_indices=True)[1]
    argmax = convert_indices(indices, "flat", "tensorflow_batch", features.shape)
    assert argmax.tolist() == json.loads(path.read_text())


FORMATS = get_args(get_type_hints(convert_indices)["source"])
assert FORMATS[:2] == ("flat", "window")


def number(index, name, n, c, N, C, size):
    """The index of one position by the formulas in the docstring of ``convert_indices``."""
    D, H, W = (1,) * (3 - len(size)) + tuple(size)
    d, h, w = np.unravel_index(index, (D, H, W))
    return {
        "pytorch": (d * H + h) * W + w,
        "tensorflow": ((d * H + h) * W + w) * C + c,
        "tensorflow_batch": (((n * D + d) * H + h) * W + w) * C + c,
        "onnx": (((n * C + c) * D + d) * H + h) * W + w,
        "onnx_column_major": (((n * C + c) * W + w) * H + h) * D + d,
    }[name]


@draws(60, shrink=False)
@given(st.integers(0, 2**32 - 1))
def test_generated_indices_have_the_numbers_of_the_table_and_come_back(seed):
    (case,) = generated_cases(1, seed)
    layout, C = case.layout, case.layout.channels
    given = dict(zip(("kernel_size", "stride", "padding"), case.parameters))
    given |= {"dilation": case.pool.dilation, "data_format": layout.data_format}
    convert = partial(convert_indices, output_size=case.size, **given)
    flat, window = (case.max_pool(case.x, name)[1] for name in FORMATS[:2])
    assert mx.array_equal(convert(window, "window", "flat"), flat), str(case)
    numbers = layout.planes_of(flat).reshape(layout.planes, -1).tolist()
    for name in FORMATS[2:]:
        expected = [
            -1 if i < 0 else number(i, name, *divmod(n, C), layout.batch or 1, C, case.size)
            for n, row in enumerate(numbers)
            for i in row
        ]
        assert layout.planes_of(convert(flat, "flat", name)).ravel().tolist() == expected
    for middle, other in product(FORMATS, FORMATS):
        there = convert(convert(flat, "flat", middle), middle, other)
        assert mx.array_equal(convert(there, other, "flat"), flat), (middle, other, str(case))
    # any flat index becomes its offset in the window or the largest number, any offset
    # its flat index or -1
    random, shape = np.random.default_rng(seed), (layout.planes, *case.cells)
    elements = np.prod(case.pool.kernel)
    flat = random.integers(-1, np.prod(case.size) + 4, shape)
    offsets = random.integers(0, elements + random.integers(2), shape)
    flat_of = partial(reference.flat_of_window, pool=case.pool, size=case.size, pooled=case.cells)
    offsets_of_flat = np.full(shape, 255)
    for offset in range(elements):
        offsets_of_flat[(flat >= 0) & (flat_of(np.full(shape, offset)) == flat)] = offset
    for source, target, dtype, drawn, expected, invalid in (
        ("flat", "window", mx.int32, flat, offsets_of_flat, 255),
        ("window", "flat", mx.uint8, offsets, flat_of(offsets), -1),
    ):
        indices = layout.arrange(drawn, dtype)
        equal(layout.planes_of(convert(indices, source, target)), expected, case)
        refused = pytest.raises(ValueError, match="must be from")
        with refused if (expected == invalid).any() else nullcontext():
            mlx_unpool.check_indices(indices, case.size, **given)


@pytest.mark.parametrize("name", ["flat", *FORMATS[2:]])
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_an_index_that_is_not_of_its_own_plane_becomes_minus_one(name, data_format):
    shape = (2, 3, 1, 1) if data_format == "channels_first" else (2, 1, 1, 3)
    size, layout = (4, 5), {"data_format": data_format}
    zeros = mx.zeros(shape, mx.int32)
    first = convert_indices(zeros, "flat", name, size, **layout)
    end = convert_indices(zeros + 19, "flat", name, size, **layout)
    assert mx.array_equal(convert_indices(end, name, "flat", size, **layout), zeros + 19)
    numbers = [-1, -2, -(2**63), -(2**63) + 7, 2**63 - 1, 2**63 - 2]
    numbers += [np.uint64(2**64 - 1), np.uint64(2**64 - 100), np.uint32(2**32 - 1)]
    strangers = [mx.array(np.full(shape, n)) for n in numbers]
    strangers += [end + (3 if name.startswith("tensorflow") else 1)]  # after the plane
    if name.startswith("tensorflow"):
        strangers += [mx.roll(first, 1, axis=shape.index(3))]  # of another channel
    if name in ("tensorflow_batch", "onnx", "onnx_column_major"):
        strangers += [mx.roll(first, 1, axis=0)]  # of another image
    for stranger in strangers:
        got = convert_indices(stranger, name, "flat", size, **layout)
        assert (got == -1).all().item(), (stranger.tolist(), got.tolist())


def test_window_indices_of_one_byte_may_be_of_a_window_of_more_elements():
    """A caller may pass uint8 indices even if a pool with this window returns uint16."""
    indices = mx.array([[0], [255]], mx.uint8)
    assert convert_indices(indices, "window", "flat", (600,), 300).tolist() == [[0], [555]]
    with mlx_unpool.checking():
        full = mlx_unpool.max_unpool1d(mx.ones((2, 1)), indices, 300)
    assert mx.argmax(full[300:]).item() == 255
    with pytest.raises(ValueError, match=r"'indices' must be from 0 to 299 .* got 255 at \(1, 0\)"):
        mlx_unpool.check_indices(indices, (550,), 300, 300)


INTEGERS = mx.int8, mx.int16, mx.int32, mx.int64, mx.uint8, mx.uint16, mx.uint32, mx.uint64
LINE = mx.array([[5.0], [6.0]])  # pooled from [0, 5, 0, 6] with windows of 2
UNPOOLED = [  # format, indices and what unpooling LINE gives
    ("flat", [1, 3], [0, 5, 0, 6]),
    ("flat", [2, 3], [0, 0, 5, 6]),  # 2 is in the other window
    ("flat", [1, 1], [0, 6, 0, 0]),
    ("flat", [0, 4], [5, 0, 0, 0]),
    ("window", [1, 1], [0, 5, 0, 6]),
    ("window", [2, 0], [0, 0, 6, 0]),
]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize(("index_format", "indices", "expected"), UNPOOLED)
def test_a_format_means_the_same_for_every_dtype(index_format, indices, expected, dtype):
    given = mx.array(indices, dtype)[:, None]
    full = mlx_unpool.max_unpool1d(LINE, given, 2, index_format=index_format)
    assert full.flatten().tolist() == expected


@pytest.mark.parametrize("dtype", [mx.int32, mx.int64, mx.uint64], ids=str)
@pytest.mark.parametrize("elements", [255, 256, 65535, 65536])
def test_wide_offsets_of_large_windows(elements, dtype):
    values = mx.arange(1, 5).reshape(1, 4, 1)
    given = mx.array([0, elements - 1, elements, 2**31 - 1], dtype)
    full = mlx_unpool.max_unpool1d(values, given.reshape(1, 4, 1), elements, index_format="window")
    assert full.sum() == 3
    assert full[0, 0] == 1
    assert full[0, 2 * elements - 1] == 2


def test_wide_offsets_in_transformations():
    unpool = partial(mlx_unpool.max_unpool1d, kernel_size=2, index_format="window")
    given = mx.array([[1], [-1]])
    expected = unpool(LINE, given).tolist()
    assert mx.compile(unpool)(LINE, given).tolist() == expected
    assert mx.vmap(unpool)(LINE[None], given[None])[0].tolist() == expected
    assert mx.grad(lambda v: unpool(v, given).sum())(LINE).tolist() == [[1], [0]]


# Outside windows of 2 and small planes; cast to another integer type, many would be 0 or 1
OUTSIDE = [-1, -2, 256, 257, *(sign * 2**n for sign in (1, -1) for n in (8, 16, 31, 32, 62))]
OUTSIDE += [2**63, -(2**63)]


@pytest.mark.parametrize("dtype", [dtype for dtype in INTEGERS if dtype != mx.uint8], ids=str)
@pytest.mark.parametrize("index_format", ["flat", "window"])
def test_indices_that_are_outside_drop_their_values(index_format, dtype):
    limits = mx.iinfo(dtype)
    given = [n for n in OUTSIDE if limits.min <= n <= limits.max]
    values, indices = mx.ones((len(given), 1)), mx.array(np.array(given, str(dtype)[9:]))[:, None]
    full = mlx_unpool.max_unpool1d(values, indices, 2, index_format=index_format)
    assert not full.any()


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_without_a_window_flat_indices_may_be_anywhere_and_of_any_dtype(dtype):
    """Also the largest number of a small dtype."""
    last = min(mx.iinfo(dtype).max, 70_000)
    given = mx.array([[last], [0]], dtype)
    full = mlx_unpool.max_unpool1d(LINE, given, None, output_size=last + 1, index_format="flat")
    assert (full[0].item(), full[last].item(), full.sum().item()) == (6, 5, 11)


@pytest.mark.parametrize(("kernel", "dtype"), [(255, mx.uint8), (256, mx.uint16)])
def test_flat_indices_outside_their_window_become_the_largest_number(kernel, dtype):
    flat = mx.array([[0], [kernel + 1], [-1]], mx.int32)
    window = convert_indices(flat, "flat", "window", (3 * kernel,), kernel)
    assert window.dtype == dtype
    assert window.reshape(-1).tolist() == [0, 1, mx.iinfo(dtype).max]
    assert mlx_unpool.max_unpool1d(mx.ones(window.shape), window, kernel).sum().item() == 2


def test_the_result_can_be_laid_out_the_other_way():
    convert = partial(convert_indices, target="onnx", output_size=(2, 4))
    for x in (LAST, LAST[0]):
        indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)[1]
        onnx = convert(indices, "flat", target_data_format="channels_first")
        assert mx.array_equal(onnx, mx.moveaxis(convert(indices, "flat"), -1, -3))
        layouts = {"data_format": "channels_first", "target_data_format": "channels_last"}
        assert mx.array_equal(convert(onnx, "onnx", target="flat", **layouts), indices)


def test_planes_too_big_for_32_bits_keep_their_numbers():
    indices, size = mx.array([[[[2**31 + 5]]]], mx.int64), (2**16, 2**16)
    for name in FORMATS[2:]:
        back = convert_indices(convert_indices(indices, "flat", name, size), name, "flat", size)
        assert (back.dtype, back.item()) == (mx.int64, 2**31 + 5)
    indices = mx.zeros((1, 1, 1, 1), mx.int8)
    for size, dtype in (((2**16, 2**15 - 1), mx.int32), ((2**16, 2**15), mx.int64)):
        for name in ("flat", "pytorch"):
            assert convert_indices(indices, "onnx", name, size).dtype == dtype


def test_no_index_wraps_around_into_the_largest_planes():
    largest = ((2**31 - 1,) * 2, 1), ((2**30, 2**31 - 1), 3), ((2**21, 2**20, 2**20), 3), ((7,), 3)
    numbers = (*range(-(2**63), -(2**63) + 5), -(2**62), -1)
    for (size, channels), name, number in product(largest, FORMATS[2:], numbers):
        signed = mx.full((1, *[1] * len(size), channels), number, mx.int64)
        for indices in (signed, signed.view(mx.uint64)):
            assert (convert_indices(indices, name, "flat", size) == -1).all().item(), (name, number)


def test_conversions_can_be_mapped_and_may_have_no_elements():
    indices = mlx_unpool.max_pool2d(LAST, 2, return_indices=True)[1]
    there = partial(convert_indices, source="flat", target="onnx", output_size=(2, 4))
    many = mx.stack([indices, indices + 1])
    assert mx.array_equal(mx.vmap(there)(many), mx.stack([there(each) for each in many]))
    for shape, name in product(((0, 2, 2, 3), (2, 2, 2, 0)), FORMATS[2:]):
        got = convert_indices(mx.zeros(shape, mx.int32), "flat", name, (4, 4))
        assert got.shape == convert_indices(got, name, "flat", (4, 4)).shape == shape
