"""Layers are ordinary ``mlx.nn`` layers: attributes, repr, models, streams."""

from __future__ import annotations

import inspect
import re

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from errors import fails

import mlx_unpool
from mlx_unpool import MaxPool1d, MaxPool2d, MaxPool3d, MaxUnpool1d, MaxUnpool2d, MaxUnpool3d

PAIRS = [(MaxPool1d, MaxUnpool1d), (MaxPool2d, MaxUnpool2d), (MaxPool3d, MaxUnpool3d)]
LAYERS = [name for name in mlx_unpool.__all__ if name[0].isupper()]


def test_attributes_hold_what_was_given():
    pool = MaxPool2d(
        (3, 2),
        2,
        (1, 0),
        dilation=(1, 2),
        ceil_mode=True,
        return_indices=True,
        index_format="window",
        data_format="channels_first",
    )
    assert (pool.kernel_size, pool.stride, pool.padding) == ((3, 2), 2, (1, 0))
    assert (pool.dilation, pool.ceil_mode, pool.return_indices) == ((1, 2), True, True)
    assert (pool.index_format, pool.data_format) == ("window", "channels_first")
    unpool = MaxUnpool3d(2, padding=1, dilation=3)
    assert (unpool.kernel_size, unpool.stride, unpool.padding) == (2, 2, 1)
    assert (unpool.dilation, unpool.data_format) == (3, "channels_last")


def test_repr_shows_the_window_and_what_is_not_default():
    assert repr(MaxPool2d(2)) == "MaxPool2d(kernel_size=2, stride=2, padding=0)"
    assert repr(MaxPool1d((3,), 2, 1, dilation=2, ceil_mode=True, return_indices=True)) == (
        "MaxPool1d(kernel_size=(3,), stride=2, padding=1, dilation=2, ceil_mode=True, "
        "return_indices=True)"
    )
    assert repr(MaxUnpool3d((2, 2, 1), data_format="channels_first")) == (
        "MaxUnpool3d(kernel_size=(2, 2, 1), stride=(2, 2, 1), padding=0, "
        "data_format='channels_first')"
    )
    assert "(pool): MaxPool2d(kernel_size=2" in repr(Model())


def made(name: str, **options) -> nn.Module:
    """A layer of this name, with the arguments that it must have."""
    if name.startswith("Adaptive"):
        return getattr(mlx_unpool, name)(2, **options)
    if name.startswith("Fractional"):
        return getattr(mlx_unpool, name)(2, output_size=2, **options)
    return getattr(mlx_unpool, name)([2] * getattr(mlx_unpool, name).rank, **options)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_have_no_parameters(name):
    layer = made(name)
    assert layer.parameters() == {}
    assert layer.trainable_parameters() == {}
    assert layer.children() == {}
    assert layer.leaf_modules() == {}  # it is one itself
    assert nn.Sequential(layer).leaf_modules() == {"layers": [layer]}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_frozen_trained_and_updated_as_any(name):
    layer = made(name)
    before = repr(layer)
    for change in (
        layer.freeze,
        layer.unfreeze,
        layer.eval,
        layer.train,
        lambda: layer.train(False),
        lambda: layer.update({}),
        lambda: layer.update_modules({}),
        lambda: layer.set_dtype(mx.float16) or layer,
        lambda: layer.apply(lambda parameter: parameter * 0),
        lambda: layer.load_weights([]),
    ):
        assert change() is layer
        assert repr(layer) == before
        assert layer.parameters() == {}
    assert not layer.training
    assert layer.train().training


@pytest.mark.parametrize("name", LAYERS)
def test_flags_of_constructors_must_be_bools_and_names_known(name):
    taken = inspect.signature(getattr(mlx_unpool, name)).parameters
    flags = [flag for flag in ("ceil_mode", "return_indices") if flag in taken]
    assert (
        flags
        == {
            "Max": ["ceil_mode", "return_indices"],
            "Adaptive": ["return_indices"],
            "Fractional": ["return_indices"],
            "Unpool": [],
        }["Unpool" if "Unpool" in name else name.partition("Max")[0] or "Max"]
    )
    for flag in flags:
        for value in (0, 1, None, "yes", mx.array(True)):
            fails(lambda f=flag, v=value: made(name, **{f: v}), TypeError, name, flag, "True or")
    for option in ("data_format", "index_format"):
        if option in taken:
            for value in ("", "Flat", None, 1, ("flat",)):
                fails(lambda o=option, v=value: made(name, **{o: v}), ValueError, name, option)
    assert ("index_format" in taken) == name.startswith("MaxPool")


@pytest.mark.parametrize("name", LAYERS)
def test_defaults_of_functions_are_those_of_layers(name):
    """Every argument of a constructor or of a call is one of the function, with the same default."""
    layer = getattr(mlx_unpool, name)
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()  # MaxPool2d: max_pool2d
    function = inspect.signature(getattr(mlx_unpool, words)).parameters
    arguments = dict(inspect.signature(layer).parameters)
    arguments |= {
        argument: parameter
        for argument, parameter in inspect.signature(layer.__call__).parameters.items()
        if argument != "self"
    }
    assert set(arguments) == set(function)
    for argument, parameter in arguments.items():
        assert parameter.default == function[argument].default, argument
        assert parameter.annotation == function[argument].annotation, argument


@pytest.mark.parametrize(("pool", "unpool"), PAIRS)
def test_from_pool_copies_every_parameter(pool, unpool):
    made = pool(3, 2, 1, dilation=2, data_format="channels_first", return_indices=True)
    copy = unpool.from_pool(made)
    assert type(copy) is unpool
    for name in ("kernel_size", "stride", "padding", "dilation", "data_format"):
        assert getattr(copy, name) == getattr(made, name)
    # every parameter that an unpool has, so that a new one cannot be forgotten
    assert set(inspect.signature(unpool).parameters) == {
        *("kernel_size", "stride", "padding", "dilation", "data_format")
    }


def test_from_pool_takes_pools_of_its_rank_alone():
    for wrong, named in (
        (MaxPool1d(2), "mlx_unpool.layers.MaxPool1d"),
        (nn.MaxPool2d(2), "mlx.nn.MaxPool2d, whose pools return no indices"),
        (MaxUnpool2d(2), "mlx_unpool.layers.MaxUnpool2d"),
        (2, "int"),
    ):
        call = lambda wrong=wrong: MaxUnpool2d.from_pool(wrong)  # noqa: E731
        fails(call, TypeError, "MaxUnpool2d", "pool", "an mlx_unpool.MaxPool2d", f"got {named}.")


def test_from_pool_wants_indices():
    for pool in (MaxPool2d(2), mlx_unpool.AdaptiveMaxPool2d(3)):
        call = lambda pool=pool: MaxUnpool2d.from_pool(pool)  # noqa: E731
        fails(call, ValueError, "MaxUnpool2d", "pool", "return_indices=True", repr(pool))


def test_attributes_that_are_set_later_take_effect():
    pool, x = MaxPool2d(2, return_indices=True), mx.random.normal((1, 9, 9, 2))
    pool(x)
    pool.kernel_size = [3, 3]  # mlx.nn takes a list for a list of layers
    pool.stride, pool.index_format = 3, "window"
    assert pool.kernel_size == (3, 3)
    assert pool.parameters() == {}
    expected = mlx_unpool.max_pool2d(x, 3, return_indices=True, index_format="window")
    assert all(map(mx.array_equal, pool(x), expected))
    pool.stride = 0
    fails(lambda: pool(x), ValueError, "MaxPool2d", "stride", "1 or more")


@pytest.mark.parametrize(("pool", "unpool"), PAIRS)
def test_positional_order_is_pytorchs_up_to_padding(pool, unpool):
    for function, expected in (
        (pool, ["kernel_size", "stride", "padding"]),
        (unpool, ["kernel_size", "stride", "padding"]),
        (getattr(mlx_unpool, f"max_pool{pool.rank}d"), ["x", "kernel_size", "stride", "padding"]),
        (
            getattr(mlx_unpool, f"max_unpool{pool.rank}d"),
            ["x", "indices", "kernel_size", "stride", "padding", "output_size"],
        ),
    ):
        parameters = inspect.signature(function).parameters.values()
        positional = [p.name for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD]
        assert positional == expected


@pytest.mark.parametrize(("pool", "unpool"), PAIRS)
def test_without_return_indices_a_pool_is_mlx_nns(pool, unpool):
    x = mx.random.normal((2, *[9] * pool.rank, 4))
    theirs = getattr(nn, pool.__name__)
    for arguments in ((2,), (3, 2), (3, 2, 1), (3, 1, 1)):
        assert mx.array_equal(pool(*arguments)(x), theirs(*arguments)(x))


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize(("pool", "unpool"), PAIRS)
def test_unbatched_input_is_a_batch_of_one(pool, unpool, data_format):
    x = mx.random.normal((4, *[6] * pool.rank, 4))
    pool_ = pool(2, return_indices=True, data_format=data_format)
    unpool_ = unpool.from_pool(pool_)
    values, indices = pool_(x)
    for n in range(4):
        value, index = pool_(x[n])
        assert mx.array_equal(value, values[n])
        assert mx.array_equal(index, indices[n])
        assert mx.array_equal(unpool_(value, index), unpool_(values, indices)[n])


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize(("pool", "unpool"), PAIRS)
def test_empty_batches_and_no_channels(pool, unpool, data_format):
    pool_ = pool(2, return_indices=True, data_format=data_format)
    unpool_ = unpool.from_pool(pool_)
    for batch, channels in ((0, 3), (2, 0)):
        sizes = {
            "channels_last": lambda n, b=batch, c=channels: (b, *[n] * pool.rank, c),
            "channels_first": lambda n, b=batch, c=channels: (b, c, *[n] * pool.rank),
        }[data_format]
        values, indices = pool_(mx.zeros(sizes(6), mx.float16))
        assert (values.shape, values.dtype) == (sizes(3), mx.float16)
        assert (indices.shape, indices.dtype) == (sizes(3), mx.int32)
        assert unpool_(values, indices).shape == sizes(6)


@pytest.mark.parametrize("view", ["transposed", "strided", "broadcast", "reversed"])
def test_arrays_need_not_be_contiguous(view):
    x = mx.random.normal((2, 8, 8, 4))
    x = {
        "transposed": lambda: x.transpose(0, 2, 1, 3),
        "strided": lambda: mx.random.normal((2, 16, 8, 8))[:, ::2, :, ::2],
        "broadcast": lambda: mx.broadcast_to(x[:1, :1], (2, 8, 8, 4)),
        "reversed": lambda: x[:, ::-1],
    }[view]()
    copy = mx.array(x.tolist())
    values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
    expected = mlx_unpool.max_pool2d(copy, 2, return_indices=True)
    assert mx.array_equal(values, expected[0])
    assert mx.array_equal(indices, expected[1])
    assert mx.array_equal(
        mlx_unpool.max_unpool2d(values[:, ::-1], indices[:, ::-1], 2),
        mlx_unpool.max_unpool2d(
            mx.array(values[:, ::-1].tolist()), mx.array(indices[:, ::-1].tolist()), 2
        ),
    )


@pytest.mark.parametrize("kernel", [3, 8, 33, 40, 64])
@pytest.mark.parametrize("dtype", [mx.int8, mx.float16, mx.float32, mx.int64])
def test_long_windows_take_arrays_with_gaps(kernel, dtype):
    """One axis in steps, backwards, or of stride 0, whichever way long windows are made."""
    x = (mx.random.normal((1, 700, 2)) * 20).astype(dtype)
    row = mx.broadcast_to(x[:, :1, :1], (1, 350, 1))
    for view in (x[:, ::2, :1], x[:, ::-2, 1:], x[:, 350:, 1:], row, x.transpose(2, 1, 0)[:, ::7]):
        for stride in (1, 9, kernel, kernel + 1):
            got = mlx_unpool.max_pool1d(view, kernel, stride, return_indices=True)
            copy = mx.array(np.array(view))
            expected = mlx_unpool.max_pool1d(copy, kernel, stride, return_indices=True)
            assert all(mx.array_equal(a, b) for a, b in zip(got, expected, strict=True))
            plane = mlx_unpool.max_pool2d(view[..., None], (kernel, 1), (stride, 1))
            assert mx.array_equal(plane[..., 0], expected[0])


def test_streams_and_devices_are_taken():
    x = mx.random.normal((1, 8, 8, 4))
    pool = MaxPool2d(2, return_indices=True)
    unpool = MaxUnpool2d.from_pool(pool)
    expected_values, expected_indices = pool(x)
    expected = unpool(expected_values, expected_indices)
    streams = (mx.cpu, mx.Device(mx.cpu), mx.default_stream(mx.cpu), mx.new_stream(mx.cpu))
    for stream in (*streams, mx.new_thread_local_stream(mx.cpu), None):
        values, indices = pool(x, stream=stream)
        assert mx.array_equal(values, expected_values)
        assert mx.array_equal(indices, expected_indices)
        assert mx.array_equal(unpool(values, indices, stream=stream), expected)
        gradient = mx.grad(lambda x, s=stream: unpool(*pool(x, stream=s), stream=s).sum())(x)
        assert gradient.sum().item() == 64


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.pool = MaxPool2d(2, return_indices=True)
        self.unpool = MaxUnpool2d.from_pool(self.pool)

    def __call__(self, x):
        return self.unpool(*self.pool(self.conv(x)))


def test_models_with_these_layers_are_saved_and_loaded(tmp_path):
    model, other, x = Model(), Model(), mx.random.normal((1, 8, 8, 1))
    model.save_weights(str(tmp_path / "model.safetensors"))
    other.load_weights(str(tmp_path / "model.safetensors"))
    assert mx.array_equal(model(x), other(x))
    assert set(mx.load(str(tmp_path / "model.safetensors"))) == {"conv.weight", "conv.bias"}


def test_a_pool_stands_in_a_sequence():
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), MaxPool2d(2), nn.Conv2d(2, 1, 1))
    assert network(mx.zeros((1, 10, 10, 1))).shape == (1, 4, 4, 1)


def test_results_are_the_same_bits_every_time():
    x = mx.random.normal((2, 33, 31, 8)).astype(mx.float16)
    pool = MaxPool2d(3, 2, 1, return_indices=True)
    unpool = MaxUnpool2d.from_pool(pool)

    def total(x):
        values, indices = pool(x)
        return (unpool(values**2, indices, output_size=(33, 31)) * 0.37).sum()

    first = mx.grad(total)(x)
    for _ in range(5):
        assert mx.array_equal(mx.grad(total)(x), first)
