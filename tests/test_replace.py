"""``replace_max_pools``, and a table of calls that only ``mlx.nn`` or only this library accepts."""

import operator
from collections import namedtuple

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from support.errors import fails

import mlx_unpool
from mlx_unpool import replace_max_pools

Pair = namedtuple("Pair", "first second")


class Subclass(nn.MaxPool2d):
    pass


class Block(nn.Module):
    """A module with a pool in each kind of attribute."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 64, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self._private = nn.MaxPool2d((3, 2), (2, 1), (1, 0))
        self.list = [nn.MaxPool1d(4, 2, 1), nn.ReLU(), [nn.MaxPool3d(2)]]
        self.dict = {"deep": {"pool": nn.MaxPool2d(3)}, "average": nn.AvgPool2d(2)}
        self.tuple = (nn.MaxPool2d(5), (nn.GELU(), {"in": nn.MaxPool2d(6)}))
        self.pair = Pair(nn.Linear(64, 64), nn.MaxPool2d(7))
        self.sequence = nn.Sequential(nn.Conv2d(64, 64, 3), nn.MaxPool2d(2, 2), nn.relu)
        self.number = 3

    def __call__(self, x):
        return self.sequence(self.pool(self.convolution(x)))


def test_pools_are_found_in_every_container_and_keep_their_windows():
    model, x = Block(), mx.random.normal((2, 16, 16, 3))
    before = {name: repr(getattr(model, name)) for name in model}
    linear, expected = model.pair.first, model(x)
    assert replace_max_pools(model) is model
    after = {name: repr(getattr(model, name)) for name in model}
    assert str(after).count(", return_indices=False)") == str(before).count("MaxPool")
    plain = {name: text.replace(", return_indices=False", "") for name, text in after.items()}
    assert plain == before
    assert list(model) == list(before)
    found = [model.pool, model._private, model.list[0], model.list[2][0], model.pair.second]
    found += [model.tuple[0], model.tuple[1][1]["in"]]
    found += [model.sequence.layers[1], model.dict["deep"]["pool"]]
    assert {type(pool).__module__ for pool in found} == {"mlx_unpool.pooling"}
    assert (type(model.dict["average"]), type(model.pair)) == (nn.AvgPool2d, Pair)
    assert model.pair.first is linear
    assert mx.array_equal(model(x), expected)


@pytest.mark.parametrize("padding", [None, [(1, 2), (0, 1)], [[2, 0], [2, 2]], [(1, 1), (1, 1)]])
def test_a_model_that_is_a_pool_is_returned_as_a_new_layer(padding):
    """Also with padding that was set by hand."""
    pool, x = nn.MaxPool2d(3, 2, 1).eval(), mx.random.normal((2, 8, 9, 3))
    if padding:
        pool._padding = padding
    new = replace_max_pools(pool)
    assert isinstance(new, mlx_unpool.MaxPool2d)
    assert isinstance(pool, nn.MaxPool2d)
    assert not new.training
    assert replace_max_pools(new) is new
    assert mx.array_equal(new(x), pool(x))


def test_what_is_shared_stays_shared_and_cycles_end():
    model = nn.Module()
    model.a = pool = nn.MaxPool2d(2)
    model.list = [pool, [pool]]
    model.tuple = model.again = (pool, 1)
    model.untouched = untouched = (nn.ReLU(), (1, 2))
    model._parent = model
    replace_max_pools(model)
    assert isinstance(model.a, mlx_unpool.MaxPool2d)
    assert model.list[0] is model.list[1][0] is model.tuple[0] is model.a
    assert model.tuple is model.again
    assert model.untouched is untouched


class Blocks(tuple):
    """A subclass of tuple, whose constructor may take other arguments."""


def test_one_warning_lists_what_is_left():
    model, inside = nn.Module(), nn.Sequential(nn.MaxPool1d(2))
    model.blocks = [
        nn.MaxPool2d(2),
        nn.Sequential(Subclass(2)),
        Blocks([nn.ReLU(), nn.MaxPool2d(2)]),
    ]
    model.wide, model.uneven = nn.MaxPool1d(2, 2, 2), nn.MaxPool2d(2)
    model.uneven._padding, model.kept = [(0, 1), (0, 1)], Blocks([nn.ReLU(), inside])
    in_blocks = lambda: (model.blocks[1].layers[0], model.blocks[2])
    those = lambda: (*in_blocks(), model.wide, model.uneven, model.kept)
    left = those()
    with pytest.warns(UserWarning, match="not replaced") as caught:
        replace_max_pools(model)
    (warning,) = caught
    assert warning.filename == __file__
    reasons = {
        "[replace_max_pools] not replaced": "",
        "wide": "'padding' must be less than the window",
        "uneven": "padding [(0, 1), (0, 1)] is only after the axes",
        "blocks.2": "Blocks is a subclass of tuple",
        "blocks.1.layers.0": "Subclass is a subclass",
    }
    for line, (name, reason) in zip(
        str(warning.message).splitlines(), reasons.items(), strict=True
    ):
        assert line.split(":")[0].strip() == name
        assert reason in line
    assert all(map(operator.is_, those(), left))  # == of two pools would be True
    assert isinstance(model.blocks[0], mlx_unpool.MaxPool2d)
    assert isinstance(inside.layers[0], mlx_unpool.MaxPool1d)  # a list in such a tuple is changed
    with pytest.warns(UserWarning, match=r"the model: Subclass"):
        assert type(replace_max_pools(Subclass(2))) is Subclass


def test_models_may_be_nested_deeply():
    pool = model = nn.Sequential(nn.MaxPool2d(2))
    for _ in range(400):  # Python's limit is 1000 calls, and each level would take several
        model = nn.Sequential(model, (nn.ReLU(),))
    replace_max_pools(model)
    assert isinstance(pool.layers[0], mlx_unpool.MaxPool2d)


def test_a_model_without_pools_gives_a_warning():
    none = r"^\[replace_max_pools\] 'model' contains no max pooling layer"
    with pytest.warns(UserWarning, match=none):
        replace_max_pools(nn.Sequential(nn.ReLU()))
    model = nn.Sequential(nn.MaxPool2d(2))
    for pool in (model, model, nn.Sequential(mlx_unpool.AdaptiveMaxPool1d(2))):
        replace_max_pools(pool)  # a warning would be an error
    for thing in (None, 3, [nn.MaxPool2d(2)], nn.MaxPool2d, {"a": 1}):
        fails(
            lambda t=thing: replace_max_pools(t), TypeError, "replace_max_pools", "model", "mlx.nn"
        )


def test_pools_of_a_later_mlx_are_left_or_a_clear_error():
    for name in ("_kernel_size", "_stride", "_padding"):
        pool = nn.MaxPool2d(2)
        delattr(pool, name)
        with pytest.raises(RuntimeError, match=r"cannot read the window of MaxPool2d in MLX \d"):
            replace_max_pools(nn.Sequential(pool))
    for name, value in {"_dilation": [2, 2], "_padding_value": np.array([1.0, 2.0])}.items():
        pool = nn.MaxPool2d(2)
        setattr(pool, name, value)
        with pytest.warns(
            UserWarning, match="the model: attributes of this MaxPool2d were changed"
        ):
            assert type(replace_max_pools(pool)) is nn.MaxPool2d


@pytest.mark.parametrize("keys", [None, "bias"])
def test_frozen_models_stay_frozen(keys):
    model, x = Block(), mx.random.normal((1, 16, 16, 3))
    loss = lambda model, x: model(x).square().mean()
    names = lambda tree: [name for name, _ in tree_flatten(tree)]
    model.freeze(keys=keys)
    model.convolution.unfreeze()
    model.eval()
    trainable = names(model.trainable_parameters())
    gradients = names(nn.value_and_grad(model, loss)(model, x)[1])
    replace_max_pools(model)
    assert names(model.trainable_parameters()) == trainable
    assert not any(module.training for module in model.modules())
    assert names(nn.value_and_grad(model, loss)(model, x)[1]) == gradients
    assert not any(type(module) is nn.MaxPool2d for module in model.modules())


# One row per call: which libraries accept it.

X = mx.random.normal((2, 12, 14, 3), key=mx.random.key(0))


def shapeless(pool, *inputs):
    """The last result of one compiled function."""
    function = mx.compile(pool, shapeless=True)
    return [function(x) for x in inputs][-1]


def exported(pool):
    mx.export_function("/dev/null", pool, X)
    return pool(X)


MLX_ONLY, OURS_ONLY, NEITHER = [nn], [mlx_unpool], []
CALLS = {
    "padding of the length of the window": (MLX_ONLY, lambda of: of.MaxPool2d(2, 2, 2)(X)),
    "bool": (MLX_ONLY, lambda of: of.MaxPool2d(2)(X > 0)),
    "a window larger than the input": (MLX_ONLY, lambda of: of.MaxPool2d(20)(X)),
    "`mx.export_function` outside `exporting()`": (MLX_ONLY, lambda of: exported(of.MaxPool2d(2))),
    "no batch dimension": (OURS_ONLY, lambda of: of.MaxPool2d(2)(X[0])),
    "`mx.compile(shapeless=True)`, one size, windows that tile the input": (
        MLX_ONLY, lambda of: shapeless(of.MaxPool2d(2), X),
    ),
    "`mx.compile(shapeless=True)`, several sizes": (
        NEITHER, lambda of: shapeless(of.MaxPool2d(2), X, X[:, :7]),
    ),
}  # fmt: skip


def accepts(library, call):
    try:
        mx.eval(call(library))
        return True
    except (TypeError, ValueError, RuntimeError):
        return False


@pytest.mark.parametrize("name", CALLS)
def test_who_accepts_a_call(name):
    who, call = CALLS[name]
    assert [library for library in (nn, mlx_unpool) if accepts(library, call)] == who
