"""Layers are ordinary ``mlx.nn`` layers: attributes, repr, models, streams."""

from __future__ import annotations

import copy
import inspect
import pickle
import pickletools
import re

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from errors import fails

import mlx_unpool
from mlx_unpool import (
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    FractionalMaxPool2d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
    _requests,
)
from mlx_unpool.layers import _MaxPool

PAIRS = [(MaxPool1d, MaxUnpool1d), (MaxPool2d, MaxUnpool2d), (MaxPool3d, MaxUnpool3d)]
LAYERS = [name for name in mlx_unpool.__all__ if name[0].isupper()]
LAYOUTS = ["channels_last", "channels_first"]
FIRST = {"data_format": "channels_first"}


def test_attributes_hold_what_was_given():
    given = {"kernel_size": (3, 2), "stride": 2, "padding": (1, 0), "dilation": (1, 2), **FIRST}
    given |= {"ceil_mode": True, "return_indices": True, "index_format": "window"}
    pool = MaxPool2d(**given)
    assert {name: getattr(pool, name) for name in given} == given
    unpool = MaxUnpool3d(2, padding=1, dilation=3)
    assert (unpool.kernel_size, unpool.stride, unpool.padding) == (2, 2, 1)
    assert (unpool.dilation, unpool.data_format) == (3, "channels_last")
    assert AdaptiveMaxPool3d([None, 2, 3]).output_size == (None, 2, 3)


# a layer, its arguments in its repr
REPRS = [
    (MaxPool2d(2), "kernel_size=2, stride=2, padding=0"),
    (MaxPool1d((3,), 2, 1, dilation=2), "kernel_size=(3,), stride=2, padding=1, dilation=2"),
    (
        MaxPool2d(2, dilation=2, ceil_mode=True, return_indices=True),
        "kernel_size=2, stride=2, padding=0, dilation=2, ceil_mode=True, return_indices=True",
    ),
    (
        MaxUnpool3d((2, 2, 1), **FIRST),
        "kernel_size=(2, 2, 1), stride=(2, 2, 1), padding=0, data_format='channels_first'",
    ),
    (AdaptiveMaxPool1d(3), "output_size=3"),
    (
        AdaptiveMaxPool3d([None, 2, 3], return_indices=True, **FIRST),
        "output_size=(None, 2, 3), return_indices=True, data_format='channels_first'",
    ),
    (
        FractionalMaxPool2d(2, output_ratio=(0.5, 0.6)),
        "kernel_size=2, output_size=None, output_ratio=(0.5, 0.6)",
    ),
]


@pytest.mark.parametrize(("layer", "arguments"), REPRS)
def test_repr_shows_the_window_and_what_is_not_default(layer, arguments):
    expected = f"{type(layer).__name__}({arguments})"
    assert repr(layer) == expected
    assert f"(layers.0): {expected}" in repr(nn.Sequential(layer))


def made(name: str, **options) -> nn.Module:
    """A layer with the given class name and its required arguments."""
    layer = getattr(mlx_unpool, name)
    if name.startswith("Fractional"):
        options |= {"output_size": 2}
    return layer(2 if name.startswith(("Adaptive", "Fractional")) else [2] * layer.rank, **options)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_have_no_parameters_and_are_frozen_trained_and_updated_as_any(name):
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
        assert layer.parameters() == layer.trainable_parameters() == layer.children() == {}
        assert layer.leaf_modules() == {}  # the layer is one of its own modules
    assert nn.Sequential(layer).leaf_modules() == {"layers": [layer]}
    assert not layer.training
    assert layer.train().training


@pytest.mark.parametrize("name", LAYERS)
def test_flags_of_constructors_must_be_bools_and_names_known(name):
    taken = inspect.signature(getattr(mlx_unpool, name)).parameters
    assert ("ceil_mode" in taken) == ("index_format" in taken) == name.startswith("MaxPool")
    assert ("return_indices" in taken) == ("Unpool" not in name)
    for flag in {"ceil_mode", "return_indices"} & set(taken):
        for value in (0, 1, None, "yes", mx.array(True)):
            fails(lambda f=flag, v=value: made(name, **{f: v}), TypeError, name, flag, "True or")
    for option in {"data_format", "index_format"} & set(taken):
        for value in ("", "Flat", None, 1, ("flat",)):
            fails(lambda o=option, v=value: made(name, **{o: v}), ValueError, name, option)


@pytest.mark.parametrize("name", LAYERS)
def test_defaults_of_functions_are_those_of_layers(name):
    """The function has every argument of the constructor and of the call, with the same default."""
    layer = getattr(mlx_unpool, name)
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()  # MaxPool2d: max_pool2d
    function = inspect.signature(getattr(mlx_unpool, words)).parameters
    arguments = dict(inspect.signature(layer).parameters)
    arguments |= dict(list(inspect.signature(layer.__call__).parameters.items())[1:])
    assert set(arguments) == set(function)
    for argument, parameter in arguments.items():
        assert parameter.default == function[argument].default, argument
        assert parameter.annotation == function[argument].annotation, argument


@pytest.mark.parametrize(("pool", "unpool"), PAIRS)
def test_positional_order_is_that_of_pytorch_up_to_padding(pool, unpool):
    window = ["kernel_size", "stride", "padding"]
    for function, expected in (
        (pool, window),
        (unpool, window),
        (getattr(mlx_unpool, f"max_pool{pool.rank}d"), ["x", *window]),
        (getattr(mlx_unpool, f"max_unpool{pool.rank}d"), ["x", "indices", *window, "output_size"]),
    ):
        parameters = inspect.signature(function).parameters.values()
        positional = [p.name for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD]
        assert positional == expected


@pytest.mark.parametrize(("pool", "unpool"), PAIRS)
def test_from_pool_copies_every_parameter(pool, unpool):
    original = pool(3, 2, 1, dilation=2, return_indices=True, **FIRST)
    copy = unpool.from_pool(original)
    assert type(copy) is unpool
    names = list(inspect.signature(unpool).parameters)
    assert names == ["kernel_size", "stride", "padding", "dilation", "data_format"]
    assert all(getattr(copy, name) == getattr(original, name) for name in names)


WITHOUT_INDICES = (ValueError, "return_indices=True")
NO_POOLS = [
    (MaxPool1d(2), TypeError, "got mlx_unpool.layers.MaxPool1d"),
    (AdaptiveMaxPool1d(2, return_indices=True), TypeError, "got mlx_unpool.layers.AdaptiveMaxPool1d"),
    (nn.MaxPool2d(2), TypeError, "got mlx.nn.layers.pooling.MaxPool2d", "mlx.nn return no"),
    (MaxUnpool2d(2), TypeError, "got mlx_unpool.layers.MaxUnpool2d"),
    (2, TypeError, "got builtins.int"),
    (MaxPool2d(2), *WITHOUT_INDICES, "MaxPool2d(kernel_size=2, stride=2, padding=0)"),
    (AdaptiveMaxPool2d(3), *WITHOUT_INDICES, "AdaptiveMaxPool2d(output_size=3)"),
]  # fmt: skip


def test_from_pool_accepts_pools_of_its_rank_with_indices_only():
    for given, error, *parts in NO_POOLS:
        call = lambda given=given: MaxUnpool2d.from_pool(given)  # noqa: E731
        fails(call, error, "MaxUnpool2d", "pool", *parts)


INDICES = {"return_indices": True}


@pytest.mark.parametrize(
    "pool", [AdaptiveMaxPool2d((3, 5), **INDICES), FractionalMaxPool2d(2, output_ratio=0.6, **INDICES)]
)  # fmt: skip
def test_from_pool_of_an_adaptive_or_fractional_pool(pool):
    x = mx.abs(mx.random.normal((2, 8, 8, 3)))
    values, indices = pool(x)
    full = MaxUnpool2d.from_pool(pool)(values, indices, output_size=x.shape)
    assert mx.array_equal(full, mlx_unpool.max_unpool2d(values, indices, None, output_size=(8, 8)))
    assert mx.array_equal(mx.where(full > 0, full, x), x)


def test_a_layer_made_by_from_pool_requires_output_size_if_several_sizes_are_possible():
    x = mx.random.normal((1, 9, 9, 2))
    for window in ((2,), (3, (1, 2))):
        pool = MaxPool2d(*window, return_indices=True)
        unpool = MaxUnpool2d.from_pool(pool)
        call = lambda p=pool, u=unpool: u(*p(x))  # noqa: E731
        fails(call, ValueError, "MaxUnpool2d", "output_size", "None")
        assert unpool(*pool(x), output_size=x.shape).shape == x.shape
    pool = MaxPool2d(3, 1, return_indices=True)
    assert MaxUnpool2d.from_pool(pool)(*pool(x)).shape == x.shape


@pytest.mark.parametrize("layer", [MaxPool2d, MaxUnpool2d])
def test_a_misspelled_attribute_has_no_effect_as_documented(layer):
    pool = layer(2)
    expected = repr(pool)
    pool.kernel_sise = 3
    assert repr(pool) == expected
    assert "(``pool.kernel_sise = 3``) raises no error" in MaxPool2d.__init__.__doc__


def test_attributes_that_are_set_later_take_effect():
    pool, x = MaxPool2d(2, return_indices=True), mx.random.normal((1, 9, 9, 2))
    pool(x)
    pool.kernel_size = [3, 3]  # mlx.nn treats a list as a list of layers
    pool.stride, pool.index_format = 3, "window"
    assert pool.kernel_size == (3, 3)
    assert pool.parameters() == {}
    expected = mlx_unpool.max_pool2d(x, 3, return_indices=True, index_format="window")
    assert all(map(mx.array_equal, pool(x), expected))
    pool.stride = 0
    fails(lambda: pool(x), ValueError, "MaxPool2d", "stride", "1 or more")


def test_attributes_are_also_items_that_can_be_set_and_deleted():
    x = mx.random.normal((1, 9, 9, 2))
    for size in (2, (2, 2)):  # mlx.nn keeps numbers and tuples in different places
        pool = MaxPool2d(size)
        pool(x)
        pool["kernel_size"] = 3
        assert repr(pool) == f"MaxPool2d(kernel_size=3, stride={size}, padding=0)"
        assert mx.array_equal(pool(x), mlx_unpool.max_pool2d(x, 3, 2))
        pool["kernel_size"] = [4, 3]
        assert mx.array_equal(pool(x), mlx_unpool.max_pool2d(x, (4, 3), 2))
        pool.stride = 1
        assert pool(x).shape == (1, 6, 7, 2)
        pool.stride = True  # equals 1
        fails(lambda p=pool: p(x), TypeError, "MaxPool2d", "stride", "True")
        del pool.stride
        with pytest.raises(AttributeError, match="stride"):
            pool(x)


class Named(MaxPool2d):
    """A subclass with an attribute that a base class might use as well."""

    def __init__(self):
        super().__init__(2)
        self.request = "mine"


def test_attributes_of_a_subclass_stay():
    pool = Named()
    pool.stride = 1
    assert pool(mx.zeros((1, 4, 4, 1))).shape == (1, 3, 3, 1)
    assert pool.request == "mine"
    assert pickle.loads(pickle.dumps(pool)).request == "mine"


@pytest.mark.parametrize("name", LAYERS)
def test_pickles_contain_public_classes_only(name):
    layer = made(name, data_format="channels_first")
    layer._request()
    data = pickle.dumps(layer)
    words = {word for _, word, _ in pickletools.genops(data) if isinstance(word, str)}
    assert {"mlx_unpool.layers", name} < words
    assert not {word for word in words if "mlx_unpool" in word} - {"mlx_unpool.layers"}
    again = pickle.loads(data)
    assert repr(again) == repr(layer)
    assert vars(again) == vars(layer)
    assert again._request() is layer._request()


def test_deep_copies_share_the_plan():
    x, pool = mx.zeros((1, 9, 7, 2)), MaxPool2d((3, 2), 2)
    pool(x)
    before = _requests._plan.cache_info()
    for copied in [copy.deepcopy(pool) for _ in range(50)]:
        copied(x)
    after = _requests._plan.cache_info()
    assert (after.misses, after.hits) == (before.misses, before.hits + 50)


class Permuted(_MaxPool):
    """A layer whose constructor takes its arguments in another order than the functions."""

    rank, _request_type = 2, _requests.MaxPooling

    def __init__(self, data_format, index_format, return_indices, ceil_mode, dilation, padding, stride,
                 kernel_size):  # fmt: skip
        options = {"ceil_mode": ceil_mode, "return_indices": return_indices, "dilation": dilation}
        options |= {"index_format": index_format, "data_format": data_format}
        super().__init__(kernel_size, stride, padding, **options)


def test_arguments_are_passed_by_name():
    x = mx.random.normal((1, 3, 9, 9))
    pool = Permuted("channels_first", "window", True, True, 1, 0, 2, 3)
    options = {"ceil_mode": True, "return_indices": True, "index_format": "window", **FIRST}
    expected = mlx_unpool.max_pool2d(x, 3, 2, **options)
    assert all(map(mx.array_equal, pool(x), expected))


@pytest.mark.parametrize(("batch", "channels"), [(0, 3), (2, 0)])
@pytest.mark.parametrize("data_format", LAYOUTS)
@pytest.mark.parametrize(("pool", "unpool"), PAIRS)
def test_empty_batches_and_no_channels(pool, unpool, data_format, batch, channels):
    last = data_format == "channels_last"
    kinds = [("", 3), ("Adaptive", 2), *([("Fractional", 2)] if pool.rank > 1 else [])]
    for kind, length in kinds:
        layer = made(kind + pool.__name__, return_indices=True, data_format=data_format)
        before, after = (
            (batch, *[n] * pool.rank, channels) if last else (batch, channels, *[n] * pool.rank)
            for n in (6, length)
        )
        values, indices = layer(mx.zeros(before, mx.float16))
        assert values.shape == indices.shape == after
        assert (values.dtype, indices.dtype) == (mx.float16, mx.int32)
        assert unpool.from_pool(layer)(values, indices, output_size=6).shape == before


@pytest.mark.parametrize("kernel", [3, 8, 33, 40, 64])
@pytest.mark.parametrize("dtype", [mx.int8, mx.float16, mx.float32, mx.int64])
def test_long_windows_accept_arrays_with_gaps(kernel, dtype):
    """One axis with a step, reversed or with stride 0, for each implementation of long windows."""
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
