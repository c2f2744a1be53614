"""Ports: state dicts, the indices of pools, and the comparison of a port with its original."""

import copy
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

import mlx_unpool
from mlx_unpool import porting
from mlx_unpool.porting import (
    compare_port,
    convert_state_dict,
    load_state_dict,
    pooled_indices,
    to_state_dict,
)


def test_the_package_alone_imports_no_numpy():
    code = (
        "import sys, mlx_unpool; assert 'numpy' not in sys.modules\n"
        "from mlx_unpool import porting; assert 'numpy' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# State dicts.


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = [nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)], nn.Conv2d(8, 5, 1)


def test_a_part_of_the_weights_can_be_loaded():
    layer, state = nn.Linear(2, 3), {"weight": np.ones((3, 2)), "head": np.ones(4), "epoch": 7}
    before = layer.bias
    report = load_state_dict(layer, state, strict=False)
    assert (report.loaded, report.missing) == (["weight"], ["bias"])
    assert (report.unexpected, report.ignored) == (["head"], ["epoch"])
    assert str(report) == "Report(1 loaded; 1 missing: bias; 1 unexpected: head; 1 ignored: epoch)"
    assert mx.array_equal(layer.weight, mx.ones((3, 2)))
    assert mx.array_equal(layer.bias, before)
    with pytest.raises(
        ValueError, match=r"^Linear cannot load .*: missing: bias; not used: head\.$"
    ):
        load_state_dict(layer, state)
    with pytest.raises(ValueError, match=r"shape \(2, 2\) instead of \(3, 2\): weight"):
        load_state_dict(layer, {"weight": np.ones((2, 2))}, strict=False)
    names = {"weight": ("weight", "twin"), "bias": ("bias",)}
    report = load_state_dict(
        layer, {"a.weight": np.ones((3, 2)), "a.bias": np.ones(3)}, "a.{}".format
    )
    assert report.loaded == ["weight", "bias"]
    with pytest.raises(ValueError, match="not shared with weight: twin"):
        load_state_dict(layer, {"weight": np.ones((3, 2)), "twin": np.zeros((3, 2))}, names.get)


def test_a_conversion_leaves_the_model_as_it_is_and_names_what_it_ignores():
    layer, state = nn.Linear(2, 3), STATE | {"head": np.ones(4)}
    before = layer.weight
    with pytest.warns(UserWarning, match=r"^Entries that are ignored: epoch, head\.$"):
        weights = convert_state_dict(layer, state | {"epoch": 7}, strict="missing")
    assert mx.array_equal(weights["weight"], mx.ones((3, 2)))
    assert mx.array_equal(layer.weight, before)


STATE = {"weight": np.ones((3, 2)), "bias": np.ones(3)}
CHECKPOINTS = {
    "a list": ([1], r"^'state_dict' must be a dict of arrays, but got list\.$"),
    "nothing": ({}, "must contain arrays, but it has nothing"),
    "no arrays": ({"epoch": 3, 5: np.ones(2)}, "must contain arrays, but it has epoch, 5"),
    "a checkpoint": (
        {"epoch": 3, "net": STATE},
        r"it has epoch, net\. Of a checkpoint, pass .* such as checkpoint\['net'\]\.$",
    ),
    "a checkpoint with an array": (
        {"epoch": np.ones(()), "net": STATE, "ema": STATE},
        r"has net, ema\. Of .* such as checkpoint\['net'\] or checkpoint\['ema'\]\.$",
    ),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_what_is_not_a_state_dict_is_an_error(name):
    given, says = CHECKPOINTS[name]
    with pytest.raises(ValueError, match=says):
        load_state_dict(nn.Linear(2, 3), given)


@pytest.mark.parametrize("shape", [(13, 3, 3, 3), (2, 3, 4, 4)])
def test_a_weight_that_may_be_in_another_layout_is_a_warning(shape, recwarn):
    layer = nn.Module()
    layer.weight = mx.zeros(shape)
    load_state_dict(layer, {"weight": np.zeros(shape)})
    texts = [str(warning.message) for warning in recwarn]
    is_said = ["'weight' is not transposed, because" in text for text in texts]
    assert is_said == [True] * (shape[0] == 13)


class Private(nn.Module):
    """A layer in an attribute that MLX ignores, and optionally one in another."""

    def __init__(self, has_head: bool) -> None:
        super().__init__()
        self._encoder = nn.Linear(2, 3)
        if has_head:
            self.head = nn.Linear(2, 3)


PRIVATE = {
    f"{layer}.{n}": v
    for layer in ("_encoder", "head")
    for n, v in to_state_dict(nn.Linear(2, 3)).items()
}


@pytest.mark.parametrize("has_head", [True, False])
def test_names_that_begin_with_an_underscore_are_explained(has_head):
    says = r"not used: _encoder\.weight; .* MLX ignores .* '_encoder': name the layer 'encoder' and"
    with pytest.raises(ValueError, match=says):
        load_state_dict(Private(has_head), PRIVATE)


def test_a_model_in_which_nothing_is_loaded_is_an_error_also_if_that_is_not_strict():
    says = r"^Private has no parameter .*: _encoder\.weight.* It has no parameters\. MLX ignores"
    with pytest.raises(ValueError, match=says):
        load_state_dict(Private(has_head=False), PRIVATE, strict=False)
    says = r"^Net has no parameter with one of these names: a, b\. It has encoder[^M]*$"
    with pytest.raises(ValueError, match=says):
        load_state_dict(Net(), {"a": np.ones(2), "b": np.ones(2)}, strict=False)


ADDITIONS = {  # before all names, after "encoder.", and what is removed
    "Lightning": ("model.", "", "'model.'"),
    "Lightning, compiled": ("model._orig_mod.", "", "'_orig_mod.' and 'model.'"),
    "FSDP": ("_fsdp_wrapped_module.", "", "'_fsdp_wrapped_module.'"),
    "a list": ("net.0.", "", "'net.0.'"),
    "an encoder in DataParallel": ("model.", "module.", "'module.' and 'model.'"),
    "a compiled encoder": ("", "_orig_mod.", "'_orig_mod.'"),
}


@pytest.mark.parametrize("name", ADDITIONS)
def test_what_wrappers_add_to_names_is_removed(name):
    start, inside, says = ADDITIONS[name]
    state = {
        start + key.replace("encoder.", f"encoder.{inside}"): value
        for key, value in to_state_dict(Net()).items()
    }
    with pytest.warns(UserWarning, match=f"^Removed {says} from the names of") as warned:
        report = load_state_dict(Net(), state)
    assert [warning.filename for warning in warned] == [__file__]
    assert (len(report.loaded), report.unexpected) == (6, [])


def test_names_without_the_prefix_of_the_model_are_unexpected():
    state = {f"model.{name}": value for name, value in to_state_dict(Net()).items()}
    state["criterion.weight"] = np.ones(3)
    with pytest.warns(UserWarning, match="^Removed 'model.'"):
        report = load_state_dict(Net(), state, strict=False)
    assert (len(report.loaded), report.unexpected) == (6, ["criterion.weight"])


@pytest.mark.parametrize("strict", [True, False])
def test_a_prefix_without_all_names_of_the_model_is_an_error_that_names_the_way_out(strict):
    state = {f"model.{name}": value for name, value in to_state_dict(Net()).items()}
    del state["model.head.bias"]
    with pytest.raises(ValueError, match=r"To remove 'model\.' anyway, pass (\{.*\})\.$") as error:
        load_state_dict(Net(), state, strict=strict)
    expression = re.search(r"pass (\{.*\})\.$", str(error.value))[1]
    report = load_state_dict(Net(), eval(expression, {"state_dict": state}), strict=False)
    assert (len(report.loaded), report.missing) == (5, ["head.bias"])


def test_a_prefix_that_the_model_has_itself_stays():
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Sequential(nn.Linear(4, 2), nn.ReLU())

    state = to_state_dict(Own())
    others = {name.replace("module.", "module.base."): value for name, value in state.items()}
    assert load_state_dict(Own(), state | others, strict=False).unexpected == [*others]
    with pytest.warns(UserWarning, match="^Removed '_orig_mod.' from"):
        load_state_dict(Own(), {f"_orig_mod.{name}": value for name, value in state.items()})
    wrapped = {f"module.{name}": value for name, value in state.items()}
    assert len(load_state_dict(Own(), wrapped).loaded) == 2


def test_the_attribute_model_of_a_model_stays():
    model = nn.Module()
    model.model = nn.Linear(4, 2)
    state = to_state_dict(model)
    assert load_state_dict(model, state | {"model.other": np.ones(1)}, strict=False).missing == []
    with pytest.raises(ValueError, match=r"missing: model\.bias; not used: bias"):
        load_state_dict(model, {"model.weight": state["model.weight"], "bias": np.ones(2)})
    with pytest.warns(UserWarning, match="^Removed 'model.'"):
        load_state_dict(model, {f"model.{name}": value for name, value in state.items()})


def test_a_part_of_a_wrapper_in_two_places_is_removed():
    twice = {
        f"_orig_mod.{n.replace('er.', 'er._orig_mod.')}": v for n, v in to_state_dict(Net()).items()
    }
    with pytest.warns(UserWarning, match="^Removed '_orig_mod.' from"):
        load_state_dict(Net(), twice)


def test_two_copies_of_the_weights_are_errors():
    state = to_state_dict(Net())
    both = {f"module.{name}": value for name, value in state.items()}
    assert load_state_dict(Net(), state | both, strict=False).unexpected == [*both]
    averaged = both | {"n_averaged": np.ones((), int)}
    assert load_state_dict(Net(), averaged, strict=False).unexpected == ["n_averaged"]
    starts = ("online_model", "ema_model")
    averages = {f"{start}.{name}": value for start in starts for name, value in state.items()}
    del state["head.bias"]
    for strict in (True, False):
        says = r"fit without 'ema_model\.' and without 'online_model\.': pass"
        with pytest.raises(ValueError, match=says):
            load_state_dict(Net(), averages, strict=strict)
        says = r"have both 'encoder\.0\.weight' and 'module\.encoder\.0\.weight'"
        with pytest.raises(ValueError, match=says):
            load_state_dict(Net(), state | both, strict=strict)


def convolutions(*shapes: tuple[int, int, int]) -> nn.Module:
    """A model of convolutions with these numbers of inputs and outputs and kernel sizes."""
    model = nn.Module()
    model.layers = [nn.Conv2d(*shape) for shape in shapes]
    return model


ASSUMED = {
    "the only weight": (convolutions((3, 8, 3)), ["layers.0.weight"]),
    "1 x 1, which is the same in both layouts": (
        convolutions((3, 3, 3), (1, 3, 1)),
        ["layers.0.weight"],
    ),
    "another weight tells": (convolutions((3, 8, 3), (8, 5, 1)), []),
    "nothing to transpose": (nn.Linear(3, 3), []),
}


@pytest.mark.parametrize("name", ASSUMED)
def test_a_layout_that_no_shape_tells_is_reported(name, recwarn):
    model, assumed = ASSUMED[name]
    report = load_state_dict(model, to_state_dict(model))
    assert report.assumed == assumed
    assert ("assumed to be in PyTorch's layout: layers.0.weight" in str(report)) == bool(assumed)
    assert [*recwarn] == []


# Comparison.


class Port(nn.Module):
    """Unpools an image, whose first two elements are equal, after pooling."""

    def __init__(self, data_format: str = "channels_last") -> None:
        super().__init__()
        x = mx.random.normal((1, 4, 6, 3), key=mx.random.key(0))
        x[0, 0, :2] = 5.0
        self.image = x if data_format == "channels_last" else x.transpose(0, 3, 1, 2)
        self.pool = mlx_unpool.MaxPool2d(2, return_indices=True, data_format=data_format)
        self.unpool = mlx_unpool.MaxUnpool2d.from_pool(self.pool)

    def __call__(self, factor: float) -> mx.array:
        values, indices = self.pool(factor * self.image)
        return self.unpool(values, indices, output_size=(4, 6))


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_a_near_tie_is_told_from_a_mistake(data_format):
    port = Port(data_format)
    values, indices = port.pool(port.image)
    other = np.array(indices)
    other[other == 0] = 1  # as if the second element were larger in the last bit
    scores = port.unpool(values, mx.array(other), output_size=(4, 6))
    gradient = np.array(2 * scores)  # of the sum of the squares
    options = {
        "loss": lambda full: mx.square(full).sum(),
        "gradients": {"image": gradient, "a": None},
    }
    comparison = compare_port(port, [1.0], scores, [other], **options)
    assert (comparison.layers, comparison.flips, comparison.gap) == (["pool"], [3], 0)
    assert (comparison.scores, comparison.gradients) == (0, {"image": 0})
    shape = port.image.shape if data_format == "channels_last" else (1, 4, 6, 3)
    converted = mx.array(other), "flat", "tensorflow", shape[1:3]
    theirs = np.array(mlx_unpool.convert_indices(*converted, data_format=data_format))
    assert compare_port(port, [1.0], scores, [theirs], format="tensorflow", **options) == comparison
    keras = theirs.astype(np.float32).astype(np.int64)  # cast to floatx, then as the page says
    assert compare_port(port, [1.0], scores, [keras], format="tensorflow", **options) == comparison
    for wrong in (theirs, np.full_like(other, -1)):
        assert compare_port(port, [1.0], scores, [wrong]).gap > 0.01
    with pooled_indices([other]):  # without the values there
        ours = nn.value_and_grad(port, lambda: mx.square(port(1.0)).sum())()[1]["image"]
    assert not np.allclose(ours, gradient)
    comparison = compare_port(port, [-1.0], scores, [other])
    assert min(comparison.flips[0] / 18, comparison.gap, comparison.scores) > 0.3


def test_a_network_without_pools_has_no_gap():
    found = compare_port(nn.Linear(2, 2), [mx.zeros(2)], mx.arange(2), [])
    assert found.gap is None
    assert str(found).startswith("pools: none\n")


class Pools(nn.Module):
    """Three pools, with a layer before each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(3, 3) for _ in range(3)]
        self.pool = mlx_unpool.MaxPool1d(2, return_indices=True)

    def __call__(self, x: mx.array) -> mx.array:
        for layer in self.layers:
            x, _ = self.pool(layer(x))
        return x


def test_the_first_pool_after_a_mistake_is_named():
    model, x = Pools(), mx.random.normal((4, 64, 3), key=mx.random.key(0))
    with pooled_indices() as indices:
        scores = model(x)
    model.layers[1].weight = -model.layers[1].weight
    found = compare_port(model, [x], scores, indices)
    assert [gap > 0.01 for gap in found.gaps] == [False, True, True]
    assert "first above 1e-06 in call 2 (pool)" in str(found)


def test_the_mode_of_a_port_in_training_is_said():
    """As after the constructor, where MLX differs from a model that was prepared for evaluation."""
    model, x = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)), mx.zeros((1, 2))
    assert str(compare_port(model, [x], model(x), [])).endswith("\nmode: training")
    assert "mode" not in str(compare_port(model.eval(), [x], model(x), []))


def test_the_statistics_of_a_port_in_training_mode_stay():
    model, x = nn.BatchNorm(3), mx.random.normal((8, 3)) + 5
    scores = (x - x.mean(0)) * mx.rsqrt(mx.var(x, axis=0) + model.eps)
    given = {"weight": np.array((2 * scores * scores).sum(0)), "bias": None}
    found = compare_port(model, [x], scores, [], loss=lambda y: mx.square(y).sum(), gradients=given)
    assert found.scores < 1e-5
    assert found.gradients["weight"] < 1e-5
    assert mx.array_equal(model.running_mean, mx.zeros(3))
    assert mx.array_equal(model.running_var, mx.ones(3))


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_positions_with_several_values_are_counted(data_format):
    """In the first channel, 9 is the maximum of three windows and 8 of two; the second has none."""
    pool = mlx_unpool.MaxPool1d(3, 1, 1, return_indices=True, data_format=data_format)
    rows = mx.array([[1, 2, 9, 3, 8, 4], [6, 5, 4, 3, 2, 1]])[None]
    x = rows if data_format == "channels_first" else rows.swapaxes(1, 2)
    values, indices = pool(x)
    flat = indices if data_format == "channels_first" else indices.swapaxes(1, 2)
    assert flat.tolist() == [[[1, 2, 2, 2, 4, 4], [0, 0, 1, 2, 3, 4]]]
    found = compare_port(pool, [x], (values, indices), [indices])
    assert found.duplicates == [3]
    assert "\nduplicates: 3 positions have several values; see docs/guarantees.md#dup" in str(found)
    once = mlx_unpool.MaxPool1d(3, return_indices=True, data_format=data_format)
    values, indices = once(x)
    assert "duplicates" not in str(compare_port(once, [x], (values, indices), [indices]))


SCORES, INDICES = np.zeros((1, 4, 6, 3)), np.zeros((1, 2, 3, 3), np.int32)
MISUSES = {
    "inputs of NumPy": (
        ([np.ones(2)], SCORES, [INDICES]),
        {},
        (TypeError, r"such as \[mx.array\(x\)\], but got a list with ndarray\.$"),
    ),
    "one input without a list": ((mx.ones(2), SCORES, [INDICES]), {}, (TypeError, "but got array")),
    "a gradient of no parameter": (
        ([1.0], SCORES, [INDICES]),
        {"loss": mx.sum, "gradients": {"bias": np.ones(2)}},
        (ValueError, "these 'gradients': bias"),
    ),
    "a gradient of another shape": (
        ([1.0], SCORES, [INDICES]),
        {"loss": mx.sum, "gradients": {"image": np.ones(2)}},
        (ValueError, r"gradient 'image' must have the shape \(1, 4, 6, 3\) but got \(2,\)"),
    ),
    "a loss alone": (
        ([1.0], SCORES, [INDICES]),
        {"loss": mx.sum},
        (ValueError, "'loss' and 'gradients' must be given together"),
    ),
    "scores of another shape": (
        ([1.0], np.zeros(2), [INDICES]),
        {},
        (ValueError, r"'scores' must have the shape \(1, .* but got \(2,\)"),
    ),
    "indices of another shape": (
        ([1.0], SCORES, [INDICES[0]]),
        {},
        (ValueError, r"call 1 got \(\d, \d, \d\) instead of \(1, "),
    ),
    "indices of Keras": (
        ([1.0], SCORES, [INDICES.astype(np.float32)]),
        {},
        (
            TypeError,
            r"float32\. .* Keras .*: use indices\.astype\(mx\.int64\) to convert them to integers",
        ),
    ),
    "loaded that is no report": (
        ([1.0], SCORES, [INDICES]),
        {"loss": mx.sum, "gradients": {"image": np.ones(SCORES.shape)}, "loaded": ["image"]},
        (TypeError, "'loaded' must be the result of load_state_dict, but got list"),
    ),
    "no scores": (([1.0], None, [INDICES]), {}, (ValueError, "'scores' must have the shape")),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuses_are_explained(name):
    arguments, options, (kind, says) = MISUSES[name]
    with pytest.raises(kind, match=says):
        compare_port(Port(), *arguments, **options)


def test_calls_that_do_not_fit_the_indices_are_counted():
    port = Port()
    with (
        pytest.raises(ValueError, match=r"'feed' has 1 arrays, but 0 calls"),
        pooled_indices([INDICES]),
    ):
        mlx_unpool.max_pool2d(port.image, 2, return_indices=True)
    with (
        pooled_indices([INDICES]),
        pytest.raises(ValueError, match="1 arrays, but there are more calls"),
    ):
        _ = [port(1.0), port(1.0)]


class Several(nn.Module):
    """A network with several outputs, in a list, tuple or dict."""

    def __init__(self, form: Any) -> None:
        super().__init__()
        self.layer, self.form = nn.Linear(3, 2), form

    def __call__(self, x: mx.array) -> Any:
        return self.form(self.layer(x))


FORMS = {
    "a tuple": (lambda y, z: (y, z), "scores.1"),
    "a list in a list": (lambda y, z: [y, [z]], "scores.1.0"),
    "a dict": (lambda y, z: {"a": y, "b": {"c": z}}, "scores.b.c"),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_of_several_outputs_is_compared_and_the_one_that_differs_is_named(form):
    (make, name), x = FORMS[form], mx.random.normal((4, 3))
    model = Several(lambda y: make(y, 2 * y))
    assert set(compare_port(model, [x], model(x), []).outputs.values()) == {0}
    y = np.array(model.layer(x))
    found = compare_port(model, [x], make(y, 3 * y), [])
    assert found.scores == max(found.outputs.values())
    assert [*found.outputs] == [name, *set(found.outputs) - {name}]
    assert f"outputs: largest difference {found.scores:.2g} ({name})\n" in str(found)
    with pytest.raises(
        ValueError, match=rf"^'{name}' must have the shape \(4, 2\) but got \(2,\)\.$"
    ):
        compare_port(model, [x], make(y, y[0]), [])
    with pytest.raises(
        ValueError, match=r"^'scores.*' must have the shape \(4, 2\) but got None\.$"
    ):
        compare_port(model, [x], [y], [])


def test_a_difference_is_relative_to_the_largest_score_or_to_the_range_if_that_is_larger():
    """Scores from 200 to 200.2 of a correct port differ by more than 1e-5 of their range."""
    x = mx.array(np.random.default_rng(0).uniform(200, 200.2, (64, 64)).astype(np.float32))
    model = nn.Identity()
    rounded = np.nextafter(np.array(x), np.float32(np.inf))
    assert np.abs(rounded - np.array(x)).max() > 5e-5 * np.ptp(rounded)
    assert 0 < compare_port(model, [x], rounded, []).scores < 1e-6
    x = mx.array([-1.0, 1.0])
    assert compare_port(model, [x], x + 0.5, []).scores == 0.25


RIGHT = {
    "integers": (mx.array([1, 2, 3]), np.array([1, 2, 3])),
    "booleans": (mx.array([True, False]), np.array([True, False])),
    "large numbers": (mx.array([3e38, -3e38]), np.array([3e38, -3e38], np.float32)),
    "float16": (mx.array([1, 6e4], mx.float16), np.array([1, 6e4], np.float16)),
    "infinities and NaN in both": (mx.array([mx.inf, -mx.inf, 1]), np.array([np.inf, -np.inf, 1])),
    "one element": (mx.array(5.0), np.array(5.0)),
    "no element": (mx.zeros((0, 3)), np.zeros((0, 3))),
    "None beside an array": ((mx.ones(2), None), (np.ones(2), None)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_equal_outputs_of_any_kind_have_no_difference(name, recwarn):
    ours, theirs = RIGHT[name]
    model = Several(lambda y: ours)
    assert compare_port(model, [mx.zeros((1, 3))], theirs, []).scores == 0
    assert [*recwarn] == []


@pytest.mark.parametrize(("value", "difference"), [(0, 0), (4, 1), (-4, 1)])
def test_constant_scores_are_named(value, difference):
    x, model = mx.random.normal((4, 3)), Several(lambda y: nn.relu(y - 1e3))
    found = compare_port(model, [x], np.full((4, 2), value), [])
    assert (found.scores, found.constant) == (difference, ["scores"])
    assert f"\noutputs: largest difference {difference}; constant: scores\n" in str(found)


@pytest.mark.parametrize(("ours", "difference"), [(mx.nan, np.inf), (mx.inf, 0), (-mx.inf, np.inf)])
def test_a_score_that_is_not_finite_differs_unless_it_is_the_same(ours, difference):
    x, model = mx.ones((1, 3)), Several(lambda y: mx.array([1.0, ours]))
    assert compare_port(model, [x], np.array([1.0, np.inf]), []).scores == difference


# Gradients.


class Layers(nn.Module):
    """Two layers whose gradients for the sum of outputs are known; the second times ``scale``."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.a, self.b, self.scale = nn.Linear(2, 3), nn.Linear(2, 3), scale

    def __call__(self, x: mx.array) -> mx.array:
        return self.a(x) + self.scale * self.b(x)


ONES = {"weight": np.ones((3, 2)), "bias": np.ones(3)}


def gradients_of(**factors: float) -> dict[str, np.ndarray]:
    """The gradients of ``Layers`` for an input of ones, those of each layer times a factor."""
    return {
        f"{name}.{n}": factor * value
        for name, factor in factors.items()
        for n, value in ONES.items()
    }


def compared(scale: float, gradients: dict[str, Any]) -> porting.Comparison:
    model, x = Layers(scale), mx.ones((1, 2))
    return compare_port(model, [x], model(x), [], loss=mx.sum, gradients=gradients)


@pytest.mark.parametrize("size", [1, 1e-30, 1e30])
def test_equal_gradients_are_all_compared(size):
    """Whatever their size: the squares of 1e-30 and 1e30 are 0 and infinite in float32."""
    model, x = Layers(1), mx.ones((1, 2))
    given = gradients_of(a=size, b=size)
    loss = lambda y: size * y.sum()
    found = compare_port(model, [x], model(x), [], loss=loss, gradients=given)
    found.gradients = {name: round(value, 6) for name, value in found.gradients.items()}
    assert found.gradients == dict.fromkeys(["a.weight", "a.bias", "b.weight", "b.bias"], 0)
    assert found.not_compared == {}
    assert "\ngradients: largest difference 0 (a.weight); 4 of 4 compared\n" in str(found)


def test_gradients_that_are_too_small_are_named():
    found = compared(1e-8, gradients_of(a=1, b=1e-8))
    assert [*found.gradients] == ["a.weight", "a.bias"]
    assert found.not_compared == {"b.weight": "too small", "b.bias": "too small"}
    assert "(a.weight); 2 of 4 compared; too small: b.weight, b.bias\n" in str(found)


@pytest.mark.parametrize(("ours", "theirs"), [(1, 1e-8), (1, 0), (1e-8, 1), (0, 1), (1, -1)])
def test_a_layer_whose_gradients_are_all_wrong_is_found_even_if_one_of_them_is_tiny(ours, theirs):
    found = compared(ours, gradients_of(a=1, b=theirs))
    assert [*found.gradients][:2] == ["b.weight", "b.bias"]
    assert min(found.gradients["b.weight"], found.gradients["b.bias"]) > 0.9
    assert np.isfinite([*found.gradients.values()]).all()
    assert found.not_compared == {}


def test_gradients_that_are_not_given_are_named():
    found = compared(1, gradients_of(a=1) | {"b.weight": None})
    assert found.not_compared == {"b.weight": "not given", "b.bias": "not given"}
    assert "; 2 of 4 compared; not given: b.weight, b.bias\n" in str(found)


def test_a_gradient_that_is_not_a_number_differs_by_more_than_any_tolerance():
    found = compared(1, gradients_of(a=1, b=1) | {"b.bias": np.full(3, np.nan)})
    assert found.gradients["b.bias"] == np.inf


def test_gradients_that_are_all_zero_are_an_error():
    with pytest.raises(
        ValueError, match=r"^all 'gradients' are 0, so nothing can be compared: use"
    ):
        compared(1, gradients_of(a=0, b=0))


SHAPE = (4, 5, 6)  # of a feature map in PyTorch: channels, height, width


class Flattened(nn.Module):
    """A ``Linear`` layer between two feature maps (N, H, W, C)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(120, 8), nn.Linear(8, 120)

    def __call__(self, x: mx.array) -> mx.array:
        return self.last(nn.relu(self.first(x.flatten(1)))).reshape(-1, 5, 6, 4)


def test_what_was_loaded_with_options_is_compared_with_loaded():
    """Without it, a correct port would have gradients in another order: an error says so."""
    model, x, loss = Flattened(), mx.random.normal((2, 5, 6, 4)), lambda y: mx.square(y).sum()
    names = lambda name: f"_{name}"
    state = {f"_{name}": value for name, value in to_state_dict(model).items()}
    shapes = {"flatten": {"first": SHAPE}, "unflatten": {"last": SHAPE}}
    loaded = load_state_dict(model, state, names, **shapes)
    back = to_state_dict(model, **loaded.options)
    assert all(np.array_equal(back[name], value) for name, value in state.items())
    _, tree = nn.value_and_grad(model, lambda: loss(model(x)))()
    given = {"loss": loss, "gradients": to_state_dict(model, arrays=tree, **loaded.options)}
    found = compare_port(model, [x], model(x), [], **given, loaded=loaded)
    assert set(found.gradients) == set(state)
    assert max(found.gradients.values()) < 1e-6
    assert compare_port(model, [x], model(x), []).scores == 0
    with pytest.raises(ValueError, match=r"^'loaded' must be .* loaded with 'names', 'flatten' or"):
        compare_port(model, [x], model(x), [], **given)
    outer = nn.Module()
    outer.inner = copy.deepcopy(model)
    with pytest.raises(ValueError, match=r"^'loaded' must be the result of load_state_dict"):
        compare_port(outer, [x], model(x), [], **given)
    load_state_dict(model, to_state_dict(model))  # without options
    with pytest.raises(ValueError, match=r"no trainable parameter has .*: _first\.weight"):
        compare_port(model, [x], model(x), [], **given)


def test_flatten_must_name_linear_layers():
    """In MLX, with ``layers``: for another name, the weight would keep its order in silence."""
    model = nn.Sequential(nn.Sequential(nn.Linear(120, 2)), nn.PReLU())
    for name in ("layers.0", "0.0", "layers.1"):
        says = rf"must name layers .* got {name}\. Its Linear layers are layers\.0\.layers\.0\."
        with pytest.raises(ValueError, match=says):
            load_state_dict(model, to_state_dict(model), flatten={name: SHAPE})


class Shared(nn.Module):
    """A layer that has two names and is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.all = [self.first]

    def __call__(self, x: mx.array) -> mx.array:
        return self.all[0](nn.relu(self.first(x)))


def test_the_gradient_of_a_shared_layer_is_compared_once():
    """MLX gives 0 to all names but the last, PyTorch lists one of them."""
    model, x = Shared(), mx.random.normal((4, 3))

    def loss(weight: mx.array, bias: mx.array) -> mx.array:
        layer = lambda x: x @ weight.T + bias
        return layer(nn.relu(layer(x))).sum()

    both = mx.grad(loss, argnums=(0, 1))(model.first.weight, model.first.bias)
    for name in ("first", "all.0"):
        given = dict(zip([f"{name}.weight", f"{name}.bias"], both))
        found = compare_port(model, [x], model(x), [], loss=mx.sum, gradients=given)
        assert set(found.gradients) == set(given)
        assert max(found.gradients.values()) < 1e-5
        assert found.not_compared == {}


# Indices.


def test_each_thread_records_its_own_calls_of_a_pool_in_common():
    pool, meeting = (
        mlx_unpool.MaxPool2d(2, return_indices=True, index_format="window"),
        threading.Barrier(2),
    )

    def recorded(calls: int) -> list[tuple[int, ...]]:
        with pooled_indices() as found:
            meeting.wait()
            for n in range(calls):
                pool(mx.zeros((1, 4, 2 * calls, n + 1)))
            meeting.wait()
        assert all(indices.dtype == mx.int32 for indices in found)
        return [indices.shape for indices in found]

    with ThreadPoolExecutor(3) as threads:
        others, more = threads.submit(recorded, 2), threads.submit(recorded, 3)
        pool(mx.zeros((1, 4, 4, 1)))  # in this thread, nothing is recorded
        assert others.result() == [(1, 2, 2, 1), (1, 2, 2, 2)]
        assert more.result() == [(1, 2, 3, 1), (1, 2, 3, 2), (1, 2, 3, 3)]
