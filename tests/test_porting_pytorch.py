"""State dicts and results of PyTorch for MLX models."""

import functools
import re
import runpy
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten

import mlx_unpool
from mlx_unpool.porting import compare_port, convert_state_dict, load_state_dict, to_state_dict
from mlx_unpool.porting.arrays import numpy_array

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.external
ROOT = Path(__file__).parent.parent

from helpers.pytorch_twins import first_to_last, last_to_first, randomise  # noqa: E402
from torch.nn.utils.prune import l1_unstructured  # noqa: E402


def largest_difference(model: nn.Module, twin: Any, shape: tuple[int, ...]) -> float:
    """The largest difference between the outputs for an input of this shape, channels last."""
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    scores = np.array(model.eval()(mx.array(x)))
    return float(np.abs(scores - first_to_last(twin(last_to_first(x)))).max())


SHAPE = (4, 5, 6)  # of a feature map in PyTorch: channels, height, width


def test_a_linear_layer_after_a_flatten_is_reordered_on_request():
    tn, linear = torch.nn, [(4 * 5 * 6, 8), (8, 4 * 5 * 6)]
    twin = tn.Sequential(tn.Conv2d(1, 4, 3), tn.BatchNorm2d(4), tn.PReLU(), tn.Flatten())
    twin += tn.Sequential(*(tn.Linear(*sizes) for sizes in linear), tn.Unflatten(1, SHAPE))
    twin = randomise(twin.append(tn.ConvTranspose2d(4, 1, 3)), 0).eval()
    flatten, unflatten = lambda x: x.flatten(1), lambda x: x.reshape(-1, 5, 6, 4)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm(4), nn.PReLU(), flatten)
    model.layers += [
        *(nn.Linear(*sizes) for sizes in linear),
        unflatten,
        nn.ConvTranspose2d(4, 1, 3),
    ]
    layers = {"flatten": {"layers.4": SHAPE}, "unflatten": {"layers.5": SHAPE}}
    report = load_state_dict(model, twin, **layers)
    assert largest_difference(model, twin, (2, 7, 8, 1)) < 1e-6
    assert set(report.loaded) == {name for name, _ in tree_flatten(model.parameters())}
    assert (report.missing, report.unexpected) == ([], [])
    assert report.ignored == ["1.num_batches_tracked"]
    there = to_state_dict(model, **layers)
    twin.load_state_dict({name: torch.from_numpy(value) for name, value in there.items()})
    assert largest_difference(model, twin, (2, 7, 8, 1)) < 1e-6
    load_state_dict(model, twin)  # without the request, the order of PyTorch is kept
    assert largest_difference(model, twin, (2, 7, 8, 1)) > 0.01
    with pytest.raises(ValueError, match=r"with 120 elements for 'layers.4', but got \(4, 5, 5\)"):
        load_state_dict(model, twin, flatten={"layers.4": (4, 5, 5)})
    with pytest.raises(ValueError, match="must name layers of the model, but got head"):
        load_state_dict(model, twin, flatten={"head": SHAPE})


UTILS = (torch.nn.utils, torch.nn.utils.parametrizations)
NORMS = [functools.partial(u.weight_norm, dim=dim) for u in UTILS for dim in (0, 1, None)]
WRAPS = [u.spectral_norm for u in UTILS] + [
    functools.partial(l1_unstructured, name="weight", amount=0.5)
]
FOLDED = [(wrap, "Conv1d") for wrap in NORMS]
FOLDED += [(wrap, layer) for wrap in WRAPS for layer in ("Conv2d", "ConvTranspose2d")]


@pytest.mark.filterwarnings("ignore:.*(weight|spectral)_norm")
@pytest.mark.parametrize(("wrap", "layer"), FOLDED)
def test_normalisation_and_pruning_are_folded(wrap, layer):
    sizes, shape = ((3, 5, 3), (2, 9, 3)) if layer == "Conv1d" else ((4, 4, 3), (2, 9, 9, 4))
    twin, model = wrap(getattr(torch.nn, layer)(*sizes)), getattr(nn, layer)(*sizes)
    if layer == "Conv1d":
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.uniform_(0.5, 2)
    for _ in range(5):
        twin.train()(last_to_first(np.random.default_rng(1).random(shape, np.float32)))
    assert "weight" not in twin.state_dict()
    assert load_state_dict(model, twin.eval()).loaded == ["weight", "bias"]
    assert largest_difference(model, twin, shape) < 1e-5


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """The names in examples/port_segnet.py after it ran."""
    return runpy.run_path(str(ROOT / "examples" / "port_segnet.py"))


def blocks_of(page: str, language: str) -> list[str]:
    """The blocks of a page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_example_of_a_port_agrees_with_pytorch_and_is_the_one_of_the_page(example):
    originals = {name for name, _ in example["original"].named_parameters()}
    assert set(example["found"].gradients) == originals
    assert max(example["found"].gradients.values()) < 1e-5
    script = (ROOT / "examples" / "port_segnet.py").read_text()
    assert blocks_of("docs/porting.md", "py")[0] == script.split('"""\n\n', 1)[1]
    printed = re.sub(r"\d.\de-\d\d|decoder.1.bias", "*", blocks_of("docs/porting.md", "text")[0])
    ours = re.sub(r"\d.\de-\d\d|\([\w.]+\)", "*", f"{example['loaded']}\n{example['found']}\n")
    assert ours == printed.replace("(*)", "*")


def test_the_changes_in_the_readme_are_those_of_the_example():
    before, after = (ROOT / "examples" / "port_segnet.py").read_text().split("\nclass SegNet(")
    (changes,) = blocks_of("README.md", "diff")
    for line in changes.splitlines():
        parts = {"-": [before], "+": [after], " ": [before, after]}[line[0]]
        assert all(line[1:] in map(str.strip, part.splitlines()) for part in parts), line


class Recurrent(nn.Module):
    """One pool called twice, one without indices, and two outputs, in ``dims`` dimensions."""

    def __init__(self, dims: int) -> None:
        super().__init__()
        pool = getattr(mlx_unpool, f"MaxPool{dims}d")
        self.conv, self.plain = getattr(nn, f"Conv{dims}d")(3, 3, 1), pool(2)
        self.pool = pool(2, return_indices=True)

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:
        x, _ = self.pool(self.plain(self.conv(x)))
        return x, self.pool(x)[0]


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_recipe_of_the_page_records_layers_and_functions_of_all_ranks(dims, example):
    conv, kind = getattr(torch.nn, f"Conv{dims}d")(3, 3, 1), getattr(torch.nn, f"MaxPool{dims}d")
    x, port = torch.rand(2, 3, *(16, 18, 20)[:dims]), Recurrent(dims)
    load_state_dict(port.conv, conv.state_dict())
    with example["Recorder"]() as recorder:
        first, _ = kind(2, return_indices=True)(kind(2)(conv(x)))
        second, _ = getattr(torch.nn.functional, f"max_pool{dims}d")(first, 2, return_indices=True)
    scores = first_to_last(first), first_to_last(second)
    found = compare_port(port, [mx.array(first_to_last(x))], scores, recorder.indices)
    assert (found.layers, found.flips, len(found.outputs)) == (["pool"] * 2, [0, 0], 2)
    assert found.scores < 1e-5


CONVOLUTIONS = ("Conv1d", "Conv3d", "ConvTranspose1d", "ConvTranspose3d")
LAYERS = {**dict.fromkeys(CONVOLUTIONS, (2, 3, 5)), "Linear": (2, 3)}


def test_parameters_at_the_root_and_weights_of_all_ranks_go_both_ways():
    model, twin = nn.Module(), torch.nn.Module()
    model.log_sigma, twin.log_sigma = mx.array(0.5), torch.nn.Parameter(torch.zeros(()))
    model.layers = [getattr(nn, name)(*sizes) for name, sizes in LAYERS.items()]
    twin.layers = torch.nn.ModuleList(
        getattr(torch.nn, name)(*sizes) for name, sizes in LAYERS.items()
    )
    twin.load_state_dict(
        {name: torch.from_numpy(value) for name, value in to_state_dict(model).items()}
    )
    assert twin.log_sigma.item() == 0.5
    back = convert_state_dict(model, {name: v.numpy() for name, v in twin.state_dict().items()})
    for name, value in tree_flatten(model.parameters()):
        assert mx.array_equal(back[name], value), name
        assert memoryview(back[name]).c_contiguous
    for ours, theirs, name in zip(model.layers, twin.layers, CONVOLUTIONS):
        shape = (1, 9, 2) if "1d" in name else (1, 9, 9, 9, 2)
        assert largest_difference(ours, theirs, shape) < 1e-5, name


ARRAYS = (
    (torch.eye(3).to_sparse(), "torch.float32, torch.sparse_coo, on cpu"),
    (torch.ones(3, device="meta"), "torch.float32, torch.strided, on meta"),
    (np.array(["a"]), "<U1"),
    (np.array([None]), "object"),
)


@pytest.mark.parametrize(("value", "kind"), ARRAYS, ids=[kind for _, kind in ARRAYS])
def test_arrays_without_numbers_are_named(value, kind):
    with pytest.raises(
        ValueError, match=f"^a.weight must be a dense array of numbers, .* of {kind}.$"
    ):
        numpy_array("a.weight", value)


RECURRENT = ("LSTM", "GRU", "RNN")


class Sequence(nn.Module):
    """A recurrent layer."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self[kind.lower()] = getattr(nn, kind)(3, 5)

    def __call__(self, x: mx.array) -> mx.array:
        (layer,) = self.children().values()
        output = layer(x)
        return output[0] if isinstance(output, tuple) else output  # an LSTM also returns its cells


@pytest.mark.parametrize("kind", RECURRENT)
def test_the_recipes_of_the_page_for_recurrent_layers(kind):
    twin, x, name = torch.nn.Module(), torch.rand(2, 7, 3), kind.lower()
    twin.add_module(name, getattr(torch.nn, kind)(3, 5, batch_first=True))
    output, _ = twin.get_submodule(name)(x)
    output.square().mean().backward()
    gradients = {name: parameter.grad for name, parameter in twin.named_parameters()}
    before = {name: value.clone() for name, value in twin.state_dict().items()}
    state = dict(twin.state_dict())
    recipe = next(
        block
        for block in blocks_of("docs/porting.md", "py")
        if f'"{name.replace("rnn", "lstm")}.Wx"' in block
    )
    for old, new in (("Wh", "Whh"), ("Wx", "Wxh"), ("lstm", "rnn")) if kind == "RNN" else ():
        recipe = recipe.replace(old, new)
    exec(recipe, {"state_dict": state, "gradients": gradients, "torch": torch})
    assert all(torch.equal(value, before[name]) for name, value in twin.state_dict().items())
    port = Sequence(kind)
    load_state_dict(port, state)
    options: dict[str, Any] = {"loss": lambda y: mx.square(y).mean(), "gradients": gradients}
    found = compare_port(port, [mx.array(x.numpy())], output, [], **options)
    assert found.scores < 1e-5
    assert found.not_compared == {}
    assert max(found.gradients.values()) < 1e-4


@pytest.mark.parametrize("size", [3, 6])
def test_the_page_on_output_padding(size):
    """MLX's own gradient of the input is wrong; with the recipe of the page it is right."""
    twin, model = torch.nn.ConvTranspose2d(8, 4, 3, 2, 0, 1), nn.ConvTranspose2d(8, 4, 3, 2)
    load_state_dict(model, twin)
    x = torch.rand(1, 8, size, size + 1, requires_grad=True)
    twin(x).square().sum().backward()
    recipe = next(
        code for code in blocks_of("docs/porting.md", "python") if "output_padding" in code
    )
    line = next(line for line in recipe.splitlines() if line.startswith("y = "))
    padded = lambda x: eval(line.removeprefix("y = "), {"mx": mx, "layer": model, "x": x})
    ours = mx.array(first_to_last(x))
    assert np.abs(np.array(padded(ours)) - first_to_last(twin(x))).max() < 1e-5
    gradient = mx.grad(lambda x: mx.square(padded(x)).sum())(ours)
    assert np.abs(np.array(gradient) - first_to_last(x.grad)).max() < 1e-4
