"""Bad input: the error's type, and a message that names caller, argument, what it was and what is allowed."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from errors import fails

import mlx_unpool

RANKS = (1, 2, 3)


def x(rank: int, dtype=mx.float32) -> mx.array:
    return mx.zeros((2, *[8] * rank, 3), dtype)


# argument, value, error, what the message says besides the names and the value
WINDOWS = [
    ("kernel_size", 0, ValueError, "1 or more"),
    ("kernel_size", -2, ValueError, "1 or more"),
    ("kernel_size", True, TypeError, "an integer"),
    ("kernel_size", 2.0, TypeError, "an integer"),
    ("kernel_size", "2", TypeError, "an integer"),
    ("kernel_size", (2, 2, 2, 2), ValueError, "an integer"),
    ("kernel_size", (), ValueError, "an integer"),
    ("stride", 0, ValueError, "1 or more"),
    ("stride", -1, ValueError, "1 or more"),
    ("stride", False, TypeError, "an integer"),
    ("stride", 1.5, TypeError, "an integer"),
    ("padding", -1, ValueError, "0 or more"),
    ("padding", 2, ValueError, "at most half the window"),
    ("padding", True, TypeError, "an integer"),
    ("dilation", 0, ValueError, "1 or more"),
    ("dilation", True, TypeError, "an integer"),
    ("dilation", 1.0, TypeError, "an integer"),
    ("data_format", "NCHW", ValueError, "'channels_last' or 'channels_first'"),
]
POOLS = [
    *WINDOWS,
    ("ceil_mode", 1, TypeError, "True or False"),
    ("return_indices", "yes", TypeError, "True or False"),
    ("index_format", "packed", ValueError, "'flat' or 'window'"),
]


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize(("name", "value", "error", "allowed"), POOLS)
def test_pools_name_what_is_wrong(rank, name, value, error, allowed):
    arguments = {"kernel_size": 3, name: value}
    function = getattr(mlx_unpool, f"max_pool{rank}d")
    fails(
        lambda: function(x(rank), **arguments),
        error,
        f"max_pool{rank}d",
        name,
        allowed,
        repr(value),
    )
    layer = getattr(mlx_unpool, f"MaxPool{rank}d")
    fails(lambda: layer(**arguments), error, f"MaxPool{rank}d", name, allowed, repr(value))


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize(("name", "value", "error", "allowed"), WINDOWS)
def test_unpools_name_what_is_wrong(rank, name, value, error, allowed):
    arguments = {"kernel_size": 3, name: value}
    indices = mx.zeros(x(rank).shape, mx.int32)
    function = getattr(mlx_unpool, f"max_unpool{rank}d")
    call = lambda: function(x(rank), indices, **arguments)  # noqa: E731
    fails(call, error, f"max_unpool{rank}d", name, allowed, repr(value))
    layer = getattr(mlx_unpool, f"MaxUnpool{rank}d")
    fails(lambda: layer(**arguments), error, f"MaxUnpool{rank}d", name, allowed, repr(value))


@pytest.mark.parametrize("rank", RANKS)
def test_padding_may_be_half_the_dilated_window_and_no_more(rank):
    function = getattr(mlx_unpool, f"max_pool{rank}d")
    assert function(x(rank), 3, 1, 2, dilation=2).shape == (2, *[8] * rank, 3)
    for padding, dilation in ((2, 1), (3, 2)):
        fails(
            lambda p=padding, d=dilation: function(x(rank), 3, 1, p, dilation=d),
            ValueError,
            f"max_pool{rank}d",
            "padding",
            "half the window",
        )


@pytest.mark.parametrize("rank", RANKS)
def test_arrays_of_another_rank(rank):
    pool, unpool = (getattr(mlx_unpool, f"max_{kind}{rank}d") for kind in ("pool", "unpool"))
    for shape in ((3,), (1,) * (rank + 3)):
        wrong = mx.zeros(shape)
        for data_format, order in (("channels_last", "C)"), ("channels_first", "(N, C,")):
            fails(
                lambda a=wrong, f=data_format: pool(a, 2, data_format=f),
                *(ValueError, f"max_pool{rank}d", "x", order, str(shape)),
            )
            fails(
                lambda a=wrong, f=data_format: unpool(a, a.astype(mx.int32), 2, data_format=f),
                *(ValueError, f"max_unpool{rank}d", "x", order, str(shape)),
            )
    layer = getattr(mlx_unpool, f"MaxPool{rank}d")(2)
    fails(lambda: layer(mx.zeros((3,))), ValueError, f"MaxPool{rank}d", "x")


@pytest.mark.parametrize("dtype", [mx.complex64, mx.bool_])
def test_values_of_other_types(dtype):
    bad, indices = mx.zeros((1, 4, 1), dtype), mx.zeros((1, 4, 1), mx.int32)
    name = str(dtype)
    fails(lambda: mlx_unpool.max_pool1d(bad, 2), TypeError, "max_pool1d", "x", name, "float32")
    call = lambda: mlx_unpool.max_unpool1d(bad, indices, 2)  # noqa: E731
    fails(call, TypeError, "max_unpool1d", "x", name, "float32")


@pytest.mark.parametrize("value", [np.zeros((1, 4, 1)), [[1.0]], None, 3.0])
def test_values_and_indices_must_be_mlx_arrays(value):
    good = mx.zeros((1, 4, 1))
    name = type(value).__name__
    fails(lambda: mlx_unpool.max_pool1d(value, 2), TypeError, "max_pool1d", "x", name)
    call = lambda: mlx_unpool.max_unpool1d(good, value, 2)  # noqa: E731
    fails(call, TypeError, "max_unpool1d", "indices", name)


def test_indices_of_other_types_and_shapes():
    values = mx.zeros((1, 4, 4, 1))
    for dtype in (mx.float32, mx.float16, mx.bool_, mx.complex64):
        call = lambda d=dtype: mlx_unpool.max_unpool2d(values, values.astype(d), 2)  # noqa: E731
        fails(call, TypeError, "max_unpool2d", "indices", "integer", str(dtype))
    for shape in ((1, 4, 4), (1, 4, 5, 1), (4, 4, 1), (1, 4, 4, 2)):
        call = lambda s=shape: mlx_unpool.max_unpool2d(values, mx.zeros(s, mx.int32), 2)  # noqa: E731
        fails(call, ValueError, "max_unpool2d", "indices", "(1, 4, 4, 1)", str(shape))


def test_a_window_that_does_not_fit():
    small = mx.zeros((1, 3, 3, 1))
    for call in (
        lambda: mlx_unpool.max_pool2d(small, 4),
        lambda: mlx_unpool.max_pool2d(small, 2, dilation=3),
        lambda: mlx_unpool.max_pool2d(small, (1, 4)),
        lambda: mlx_unpool.max_pool2d(mx.zeros((1, 0, 3, 1)), 1),
    ):
        fails(call, ValueError, "max_pool2d", "kernel_size", "fit", "(")
    assert mlx_unpool.max_pool2d(small, 4, 1, 1).shape == (1, 2, 2, 1)


def test_window_indices_of_more_taps_than_two_bytes_can_name():
    big = mx.zeros((1, 257, 257, 1), mx.int8)
    call = lambda: mlx_unpool.max_pool2d(big, 257, index_format="window")  # noqa: E731
    fails(call, ValueError, "max_pool2d", "index_format", "65536", "66049")
    layer = lambda: mlx_unpool.MaxPool2d(257, index_format="window")  # noqa: E731
    fails(layer, ValueError, "MaxPool2d", "index_format", "65536")


OUTPUT_SIZES = [
    ((8,), ValueError, "2 integers"),
    ([], ValueError, "2 integers"),
    ((8, 8, 8), ValueError, "2 integers"),
    ((1, 8, 8, 2), ValueError, "2 integers"),  # other channels
    ((3, 8, 8, 1), ValueError, "2 integers"),  # another batch
    ((1, 1, 8, 8), ValueError, "2 integers"),  # another layout
    ((8.0, 8), TypeError, "integers"),
    ((True, 8), TypeError, "integers"),
    ("88", TypeError, "integers"),
    ((0, 8), ValueError, "1 or more"),
    ((-8, 8), ValueError, "1 or more"),
    ((6, 8), ValueError, "one stride of (8, 8), the size that (4, 4) windows span"),
    ((10, 8), ValueError, "(7 to 9, 7 to 9)"),
    ((8, 100), ValueError, "(7 to 9, 7 to 9)"),
    ((1, 8, 100, 1), ValueError, "(7 to 9, 7 to 9)"),
]


@pytest.mark.parametrize(("output_size", "error", "allowed"), OUTPUT_SIZES)
def test_output_sizes_that_no_pool_gives(output_size, error, allowed):
    values, indices = mx.zeros((1, 4, 4, 1)), mx.zeros((1, 4, 4, 1), mx.int32)
    call = lambda: mlx_unpool.max_unpool2d(values, indices, 2, output_size=output_size)  # noqa: E731
    fails(call, error, "max_unpool2d", "output_size", allowed)
    layer = mlx_unpool.MaxUnpool2d(2)
    fails(lambda: layer(values, indices, output_size), error, "MaxUnpool2d", "output_size", allowed)


@pytest.mark.parametrize(
    ("output_size", "expected"),
    [
        ((7, 9), (7, 9)),
        ([9, 7], (9, 7)),
        ((1, 7, 9, 1), (7, 9)),
        ((9, 7, 1), (9, 7)),
        (None, (8, 8)),
    ],
)
def test_output_sizes_that_pools_give(output_size, expected):
    values, indices = mx.zeros((1, 4, 4, 1)), mx.zeros((1, 4, 4, 1), mx.int32)
    got = mlx_unpool.max_unpool2d(values, indices, 2, output_size=output_size).shape
    assert got == (1, *expected, 1)


def test_a_default_size_that_is_empty_must_be_given():
    values, indices = mlx_unpool.max_pool1d(mx.ones((1, 1, 1)), 2, 2, 1, return_indices=True)
    call = lambda: mlx_unpool.max_unpool1d(values, indices, 2, 2, 1)  # noqa: E731
    fails(call, ValueError, "max_unpool1d", "output_size", "empty")
    assert mlx_unpool.max_unpool1d(values, indices, 2, 2, 1, output_size=1).item() == 1


def test_without_a_window():
    values = mx.zeros((1, 4, 4, 1))
    flat, window = values.astype(mx.int32), values.astype(mx.uint8)
    unpool = mlx_unpool.max_unpool2d
    owner = "max_unpool2d"
    fails(lambda: unpool(values, flat, None), ValueError, owner, "output_size", "kernel_size")
    call = lambda: unpool(values, window, None, output_size=(8, 8))  # noqa: E731
    fails(call, ValueError, owner, "kernel_size", "uint8")
    for name, value in (("stride", 2), ("padding", 1), ("dilation", 2)):
        call = lambda n=name, v=value: unpool(values, flat, None, output_size=(8, 8), **{n: v})  # noqa: E731
        fails(call, ValueError, owner, name, "kernel_size", str(value))
        fails(
            lambda n=name, v=value: mlx_unpool.MaxUnpool2d(None, **{n: v}),
            *(ValueError, "MaxUnpool2d", name, "kernel_size"),
        )


def test_more_cells_than_32_bits_can_number():
    shape = (1, 2**16, 2**15, 1)
    values = mx.broadcast_to(mx.array(0, mx.int8), shape)  # nothing is allocated
    indices = mx.broadcast_to(mx.array(0, mx.int32), shape)
    call = lambda: mlx_unpool.max_unpool2d(values, indices, None, output_size=(4, 4))  # noqa: E731
    fails(call, ValueError, "max_unpool2d", "x", "2^31", "kernel_size", str(2**31))
    shape = (1, 2**31 - 1, 1)  # as many as can be
    values = mx.broadcast_to(mx.array(0, mx.int8), shape)
    indices = mx.broadcast_to(mx.array(0, mx.int32), shape)
    assert mlx_unpool.max_unpool1d(values, indices, None, output_size=4).shape == (1, 4, 1)


@pytest.mark.parametrize("stream", ["cpu", 0, mx.float32])
def test_streams_of_other_types(stream):
    values, indices = x(2), x(2).astype(mx.int32)
    name = type(stream).__name__
    call = lambda: mlx_unpool.max_pool2d(values, 2, stream=stream)  # noqa: E731
    fails(call, TypeError, "max_pool2d", "stream", "device", name)
    call = lambda: mlx_unpool.MaxUnpool2d(2)(values, indices, stream=stream)  # noqa: E731
    fails(call, TypeError, "MaxUnpool2d", "stream", "device", name)


def test_integers_of_other_libraries_are_integers():
    two = np.int64(2)
    assert mlx_unpool.max_pool2d(x(2), two, (two, np.int32(2))).shape == (2, 4, 4, 3)
    assert mlx_unpool.MaxPool2d([2, 2])(x(2)).shape == (2, 4, 4, 3)
    layer = mlx_unpool.MaxPool2d([two, two], two)
    assert repr(layer) == "MaxPool2d(kernel_size=(2, 2), stride=2, padding=0)"


HUGE = [2**31, 2**63, 2**70, 10**5000]


@pytest.mark.parametrize("value", HUGE, ids=["2^31", "2^63", "2^70", "10^5000"])
@pytest.mark.parametrize("name", ["kernel_size", "stride", "padding", "dilation"])
def test_integers_that_no_axis_can_hold(name, value):
    arguments = {"kernel_size": 3, name: value}
    for kind in ("MaxPool1d", "MaxUnpool2d"):
        call = lambda k=kind: getattr(mlx_unpool, k)(**arguments)  # noqa: E731
        fails(call, ValueError, kind, name, "2^31 - 1")


@pytest.mark.parametrize("value", HUGE, ids=["2^31", "2^63", "2^70", "10^5000"])
def test_output_sizes_that_no_axis_can_hold(value):
    values, indices = mx.zeros((1, 4, 1)), mx.zeros((1, 4, 1), mx.int32)
    parts = (ValueError, "output_size", "2^31 - 1")
    for caller, call in (
        ("max_unpool1d", lambda: mlx_unpool.max_unpool1d(values, indices, 2, output_size=value)),
        ("max_unpool1d", lambda: mlx_unpool.max_unpool1d(values, indices, 2**30)),
        ("check_indices", lambda: mlx_unpool.check_indices(indices, value)),
        ("convert_indices", lambda: mlx_unpool.convert_indices(indices, "flat", "onnx", value)),
        ("adaptive_max_pool1d", lambda: mlx_unpool.adaptive_max_pool1d(values, value)),
    ):
        fails(call, parts[0], caller, *parts[1:])


def test_an_array_in_place_of_its_shape():
    values, indices = mx.zeros((1, 4, 1)), mx.zeros((1, 4, 1), mx.int32)
    call = lambda: mlx_unpool.max_unpool1d(values, indices, 2, output_size=values)  # noqa: E731
    fails(call, TypeError, "max_unpool1d", "output_size", "pass its shape", "(1, 4, 1)")
    call = lambda: mlx_unpool.max_unpool1d(values, values, 2)  # noqa: E731
    fails(call, TypeError, "max_unpool1d", "indices", "return_indices=True?")


def test_too_many_positional_arguments():
    values, indices = x(2), x(2).astype(mx.int32)
    for caller, call, given in (
        ("max_pool2d", lambda: mlx_unpool.max_pool2d(values, 2, 2, 0, 1), 5),
        (
            "max_unpool2d",
            lambda: mlx_unpool.max_unpool2d(values, indices, 2, 2, 0, (16, 16), 1),
            7,
        ),
        ("MaxPool2d", lambda: mlx_unpool.MaxPool2d(2, 2, 0, 1), 4),
        ("MaxUnpool2d", lambda: mlx_unpool.MaxUnpool2d(2, 2, 0, 1), 4),
    ):
        fails(call, TypeError, caller, "dilation", "keyword", "kernel_size", f"{given} of them")
    call = lambda: mlx_unpool.AdaptiveMaxPool1d(2, True)  # noqa: E731
    fails(call, TypeError, "AdaptiveMaxPool1d", "return_indices", "keyword", "output_size", "2 of")


def test_check_indices_names_what_is_wrong():
    flat = mx.zeros((1, 4, 1), mx.int32)
    check = mlx_unpool.check_indices
    fails(lambda: check([1], 8), TypeError, "check_indices", "indices", "list")
    fails(lambda: check(flat.astype(mx.float32), 8), TypeError, "check_indices", "indices")
    fails(lambda: check(flat, (8, 8, 8, 8)), ValueError, "check_indices", "output_size")
    fails(lambda: check(flat, 0), ValueError, "check_indices", "output_size")
    fails(lambda: check(flat, 8.0), TypeError, "check_indices", "output_size")
    fails(lambda: check(flat, (2, 2, 2)), ValueError, "check_indices", "output_size", "(1, 4, 1)")


@pytest.mark.parametrize(
    "number",
    [-(10**5000), -(2**70), 2**31, 2**63, 2**70, 10**5000],
    ids=["-10^5000", "-2^70", "2^31", "2^63", "2^70", "10^5000"],
)
def test_sizes_beyond_every_array_are_refused_by_name(number):
    values, flat = x(2), mx.zeros(x(2).shape, mx.int32)
    for size in (number, (number, 8), (8, number)):
        for call, caller in (
            (
                lambda s=size: mlx_unpool.max_unpool2d(values, flat, 2, output_size=s),
                "max_unpool2d",
            ),
            (
                lambda s=size: mlx_unpool.max_unpool2d(values, flat, None, output_size=s),
                "max_unpool2d",
            ),
            (lambda s=size: mlx_unpool.adaptive_max_pool2d(values, s), "adaptive_max_pool2d"),
            (lambda s=size: mlx_unpool.check_indices(flat, s), "check_indices"),
            (lambda s=size: mlx_unpool.convert_indices(flat, "flat", "onnx", s), "convert_indices"),
        ):
            fails(call, ValueError, caller, "output_size")
    for size in (2**31 - 1, (2**31 - 1, 8), (2**30, 2**30), (2**30, 8)):
        call = lambda s=size: mlx_unpool.adaptive_max_pool2d(values, s)  # noqa: E731
        fails(call, ValueError, "adaptive_max_pool2d", "output_size", "2^31")
    assert mlx_unpool.adaptive_max_pool2d(values, (2**27, 8)).shape == (2, 2**27, 8, 3)
