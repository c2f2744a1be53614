"""Layers are ordinary ``mlx.nn`` layers: attributes, repr, models, streams."""

import copy
import inspect
import pickle
import pickletools
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from support.errors import fails

import mlx_unpool
from mlx_unpool import AdaptiveMaxPool2d, FractionalMaxPool2d, MaxPool2d, MaxUnpool2d

LAYERS = [name for name in mlx_unpool.__all__ if name[0].isupper()]
FIRST = {"data_format": "channels_first"}
WITH_INDICES = {"return_indices": True}
ALL = {"kernel_size": (3, 2), "stride": 2, "padding": (1, 0), "dilation": (1, 2), "ceil_mode": True}
ALL |= {"return_indices": True, "index_format": "window", **FIRST}


ALONE, RATIO = "return_indices=False", "output_ratio=(0.5, 0.6)"
# a layer, its arguments in its repr
REPRS = [
    (MaxPool2d(2), "kernel_size=2, stride=2, padding=0, return_indices=False"),
    (MaxPool2d([np.int64(2), 2], np.int32(3)), f"kernel_size=(2, 2), stride=3, padding=0, {ALONE}"),
    # A list could be changed unnoticed.
    (
        MaxPool2d(3, 2, ([0, 1], [2, 0])),
        f"kernel_size=3, stride=2, padding=((0, 1), (2, 0)), {ALONE}",
    ),
    (MaxPool2d(3, padding=[[0, 1], 1]), f"kernel_size=3, stride=3, padding=((0, 1), 1), {ALONE}"),
    (MaxUnpool2d(3, 2, "same"), "kernel_size=3, stride=2, padding='same'"),
    (MaxPool2d(**ALL), ", ".join(f"{name}={value!r}" for name, value in ALL.items())),
    (
        mlx_unpool.MaxUnpool3d((2, 2, 1), dilation=3, **FIRST),
        "kernel_size=(2, 2, 1), stride=(2, 2, 1), padding=0, dilation=3, "
        "data_format='channels_first'",
    ),
    (mlx_unpool.AdaptiveMaxPool1d(3), "output_size=3, return_indices=False"),
    (
        mlx_unpool.AdaptiveMaxPool3d([None, 2, 3], **WITH_INDICES, **FIRST),
        "output_size=(None, 2, 3), return_indices=True, data_format='channels_first'",
    ),
    (
        FractionalMaxPool2d(2, output_ratio=(0.5, 0.6)),
        f"kernel_size=2, output_size=None, {RATIO}, {ALONE}",
    ),
]


@pytest.mark.parametrize(("layer", "arguments"), REPRS)
def test_repr_shows_the_window_and_what_is_not_default(layer, arguments):
    assert repr(layer) == f"{type(layer).__name__}({arguments})"


def made(name: str, **options) -> nn.Module:
    """A layer with the given class name and its required arguments."""
    options |= {"output_size": 2} if name.startswith("Fractional") else {}
    layer = getattr(mlx_unpool, name)
    return layer(2 if name.startswith(("Adaptive", "Fractional")) else [2] * layer.rank, **options)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_have_no_parameters_and_are_frozen_trained_and_updated_as_any(name):
    layer = made(name)
    before = repr(layer)
    layer.set_dtype(mx.float16)
    assert layer.freeze().unfreeze().update({}).update_modules({}).load_weights([]) is layer
    assert layer.apply(lambda parameter: parameter * 0) is layer
    assert repr(layer) == before
    assert layer.parameters() == layer.trainable_parameters() == layer.children() == {}
    assert nn.Sequential(layer).leaf_modules() == {"layers": [layer]}
    assert [layer.eval().training, layer.train().training] == [False, True]


@pytest.mark.parametrize("name", LAYERS)
def test_defaults_of_functions_are_those_of_layers(name):
    """The function has every argument of the constructor and of the call, with the same default."""
    x = mx.random.normal((1, 3, 9, 9))
    assert all(map(mx.array_equal, MaxPool2d(**ALL)(x), mlx_unpool.max_pool2d(x, **ALL)))
    layer = getattr(mlx_unpool, name)
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()  # MaxPool2d: max_pool2d
    function = inspect.signature(getattr(mlx_unpool, words)).parameters
    arguments = dict(inspect.signature(layer).parameters)
    arguments |= dict(list(inspect.signature(layer.__call__).parameters.items())[1:])
    assert set(arguments) == set(function)
    for argument, parameter in arguments.items():
        assert parameter.default == function[argument].default, argument
        assert parameter.annotation == function[argument].annotation, argument


WITHOUT_INDICES = (ValueError, "return_indices=True")
NO_POOLS = [
    (mlx_unpool.MaxPool1d(2), TypeError, "be a 2-D pooling layer", "got MaxPool1d("),
    (MaxPool2d, TypeError, "got <class 'mlx_unpool.pooling.MaxPool2d'>.$"),
    (nn.MaxPool2d(2), TypeError, "got MaxPool2d(", " The pools of mlx.nn return no indices.$"),
    (MaxUnpool2d(2), TypeError, "got MaxUnpool2d("),
    (2, TypeError, "got 2.$"),
    (
        *(MaxPool2d(2), *WITHOUT_INDICES),
        "MaxPool2d(kernel_size=2, stride=2, padding=0, return_indices=False)",
    ),
    (
        *(AdaptiveMaxPool2d(3), *WITHOUT_INDICES),
        "AdaptiveMaxPool2d(output_size=3, return_indices=False)",
    ),
]


def test_from_pool_copies_every_parameter_of_pools_of_its_rank_with_indices():
    original = MaxPool2d(3, 2, 1, dilation=2, return_indices=True, **FIRST)
    window = "kernel_size=3, stride=2, padding=1, dilation=2"
    expected = f"MaxUnpool2d({window}, index_format='flat', data_format='channels_first')"
    assert repr(MaxUnpool2d.from_pool(original)) == expected
    for given, error, *parts in NO_POOLS:
        call = lambda given=given: MaxUnpool2d.from_pool(given)
        fails(call, error, "MaxUnpool2d", "pool", *parts)


@pytest.mark.parametrize(("old", "new"), [("flat", "window"), ("window", "flat")])
def test_a_layer_made_by_from_pool_notices_another_index_format_of_the_pool(old, new):
    pool = MaxPool2d(2, return_indices=True, index_format=old)
    unpool = MaxUnpool2d.from_pool(pool)
    assert unpool.index_format == old
    x = mx.zeros((1, 4, 4, 1))
    assert unpool(*pool(x), x.shape).shape == x.shape
    pool.index_format = new
    call = lambda: unpool(*pool(x), x.shape)
    fails(call, TypeError, "MaxUnpool2d", "indices", f"{old} indices", "call from_pool again")


def test_indices_of_an_adaptive_pool_are_flat():
    unpool = MaxUnpool2d.from_pool(mlx_unpool.AdaptiveMaxPool2d(1, return_indices=True))
    call = lambda: unpool(mx.zeros((1, 1, 1, 1)), mx.zeros((1, 1, 1, 1), mx.uint8), 4)
    fails(call, TypeError, "MaxUnpool2d", "indices", "flat indices", "uint8")


def test_from_pool_of_an_adaptive_or_fractional_pool():
    x = mx.abs(mx.random.normal((2, 8, 8, 3)))
    for name in ("AdaptiveMaxPool2d", "FractionalMaxPool2d"):
        pool = made(name, **WITH_INDICES)
        full = MaxUnpool2d.from_pool(pool)(*pool(x), output_size=x.shape)
        assert mx.array_equal(mx.where(full > 0, full, x), x)
        assert full.any().item()
        unpool = MaxUnpool2d.from_pool(made(name, **WITH_INDICES, **FIRST))
        window = "kernel_size=None, stride=None, padding=0"
        options = "index_format='flat', data_format='channels_first'"
        assert repr(unpool) == f"MaxUnpool2d({window}, {options})"


def test_a_layer_made_by_from_pool_requires_output_size_if_several_sizes_are_possible():
    x = mx.random.normal((1, 9, 9, 2))
    for window in ((2,), (3, (1, 2)), (3, (2, 1))):
        pool = MaxPool2d(*window, return_indices=True)
        unpool = MaxUnpool2d.from_pool(pool)
        call = lambda p=pool, u=unpool: u(*p(x))
        fails(call, ValueError, "MaxUnpool2d", "output_size", "None")
        assert unpool(*pool(x), output_size=x.shape).shape == x.shape
    pool = MaxPool2d(3, 1, return_indices=True)
    assert MaxUnpool2d.from_pool(pool)(*pool(x)).shape == x.shape


AFTER_A_PAIR = (  # layers of mlx.nn that raise an error for the pair of a pool
    *(nn.Conv2d(3, 3, 3), nn.Linear(3, 3), nn.LayerNorm(3), nn.Softmax()),
    *(nn.ReLU(), nn.SiLU(), nn.Sigmoid(), nn.Tanh(), nn.PReLU()),
    *(nn.BatchNorm(3), nn.GroupNorm(3, 3), nn.Dropout(), nn.MaxPool2d(2), nn.Upsample(2)),
    *(nn.GELU(), nn.LeakyReLU()),
)


@pytest.mark.parametrize("layer", AFTER_A_PAIR, ids=lambda layer: type(layer).__name__)
def test_the_page_has_the_message_of_a_layer_after_a_pool_that_returns_a_pair(layer):
    page = (Path(__file__).parent.parent / "docs/indices_and_sizes.md").read_text()
    table = page.partition("### Pools in a container")[2].partition("###")[0].splitlines()
    (row,) = [
        line for line in table if line.startswith("|") and f"`{type(layer).__name__}`" in line
    ]
    with pytest.raises((TypeError, ValueError, AttributeError)) as raised:
        nn.Sequential(MaxPool2d(2, return_indices=True), layer)(mx.zeros((1, 8, 8, 3)))
    assert row.split("|")[2].strip(" `") in str(raised.value)


def test_attributes_are_also_items_and_can_be_set_and_deleted():
    x = mx.random.normal((1, 9, 9, 2))
    for size in (2, (2, 2)):  # mlx.nn keeps numbers and tuples in different places
        pool = MaxPool2d(size)
        pool(x)
        pool["kernel_size"] = 3
        text = f"MaxPool2d(kernel_size=3, stride={size}, padding=0, return_indices=False)"
        assert repr(pool) == text
        assert mx.array_equal(pool(x), mlx_unpool.max_pool2d(x, 3, 2))
        pool.kernel_size = [4, 3]  # mlx.nn treats a list as a list of layers
        assert pool["kernel_size"] == (4, 3)
        assert pool.parameters() == {}
        pool.dilation = np.array([2, 2])  # an error in the next call only
        assert "dilation=array([2, 2])" in repr(pool)
        pool.dilation = 1
        pool.return_indices, pool.index_format = True, "window"
        expected = mlx_unpool.max_pool2d(x, (4, 3), 2, return_indices=True, index_format="window")
        assert all(map(mx.array_equal, pool(x), expected))
        pool["kernel_size"] = [5, 3]
        pool.stride = 1
        assert pool(x)[0].shape == (1, 5, 7, 2)
        pool.stride = True  # equals 1
        fails(lambda p=pool: p(x), TypeError, "MaxPool2d", "stride", "True")
        del pool.stride
        with pytest.raises(AttributeError, match="stride"):
            pool(x)


CHANGES = {  # of a pool of 2x2 windows, and the shape of the next result
    "setattr": (lambda pool: setattr(pool, "kernel_size", 3), (1, 4, 4, 2)),
    "setattr, equal to 1": (lambda pool: setattr(pool, "dilation", 1.0), TypeError),
    "setattr, equal to (2, 2)": (lambda pool: setattr(pool, "stride", (2.0, 2)), TypeError),
    "setattr, equal to (0, 0)": (lambda pool: setattr(pool, "padding", (False, 0)), TypeError),
    "del": (lambda pool: delattr(pool, "stride"), AttributeError),
    "vars": (lambda pool: vars(pool).update(kernel_size=5), (1, 3, 3, 2)),
    "vars, a bool": (lambda pool: vars(pool).update(dilation=True), TypeError),
    "dict.update": (lambda pool: dict.update(pool, padding=(1, 1)), (1, 5, 5, 2)),
    "a class attribute": (
        lambda pool: setattr(pool, "__class__", mlx_unpool.MaxPool1d),
        ValueError,
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("in_a_thread", [False, True])
def test_a_change_of_a_layer_takes_effect_in_the_next_call(change, in_a_thread):
    pool, x = MaxPool2d(2, (2, 2), (0, 0)), mx.zeros((1, 9, 9, 2))
    apply, expected = CHANGES[change]
    assert pool(x).shape == pool(x).shape == (1, 4, 4, 2)
    with ThreadPoolExecutor(1) as other:
        other.submit(pool, x).result()  # the same request is also kept for this thread
        other.submit(apply, pool).result() if in_a_thread else apply(pool)
        for call in (lambda: pool(x), lambda: other.submit(pool, x).result()):
            if isinstance(expected, tuple):
                assert call().shape == expected
            else:
                with pytest.raises(expected):
                    call()


@pytest.mark.parametrize("name", LAYERS)
def test_pickles_and_copies_contain_public_classes_and_all_attributes(name):
    layer = made(name)
    layer.request = "mine"  # an attribute that a base class might use as well
    x = mx.zeros((1, *[6] * layer.rank, 3))
    layer(x, x.astype(mx.int32)) if "Unpool" in name else layer(x)
    data = pickle.dumps(layer)
    words = {word for _, word, _ in pickletools.genops(data) if isinstance(word, str)}
    module = type(layer).__module__
    assert {module, name} < words
    assert not {word for word in words if "mlx_unpool" in word} - {module}
    for again in (pickle.loads(data), copy.deepcopy(layer)):
        assert (repr(again), vars(again), again.request) == (repr(layer), vars(layer), "mine")


POOLS = [(name, {}) for name in LAYERS if "Unpool" not in name]
POOLS += [(name, {"index_format": "window"}) for name, _ in POOLS if name.startswith("Max")]


@pytest.mark.parametrize(("batch", "channels"), [(0, 3), (2, 0)])
@pytest.mark.parametrize(("name", "options"), POOLS)
def test_empty_batches_and_no_channels(name, options, batch, channels):
    layer = made(name, **WITH_INDICES, **options)
    before, after = ((batch, *[n] * layer.rank, channels) for n in (6, 3 if name[0] == "M" else 2))
    values, indices = layer(mx.zeros(before, mx.float16))
    assert values.shape == indices.shape == after
    assert (values.dtype, indices.dtype) == (mx.float16, mx.uint8 if options else mx.int32)
    unpool = getattr(mlx_unpool, f"MaxUnpool{layer.rank}d").from_pool(layer)
    full = unpool(values, indices, output_size=6)
    assert (full.shape, full.dtype) == (before, mx.float16)
