"""State dicts of PyTorch for MLX models: for users' own networks, and published ones."""

import functools
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_unpool_zoo import compare_port, pytorch
from mlx_unpool_zoo.checkpoints import arrays_of, read_state
from mlx_unpool_zoo.pytorch import convert_state_dict, to_state_dict

import mlx_unpool

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.external
ROOT = Path(__file__).parents[2]

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
    model.layers += [*(nn.Linear(*sizes) for sizes in linear), unflatten, nn.ConvTranspose2d(4, 1, 3)]
    layers = {"flatten": {"layers.4": SHAPE}, "unflatten": {"layers.5": SHAPE}}
    report = pytorch.load_state_dict(model, twin, **layers)
    assert largest_difference(model, twin, (2, 7, 8, 1)) < 1e-6
    assert set(report.loaded) == {name for name, _ in tree_flatten(model.parameters())}
    assert (report.missing, report.unexpected) == ([], [])
    assert report.ignored == ["1.num_batches_tracked"]
    there = to_state_dict(model, **layers)
    twin.load_state_dict({name: torch.from_numpy(value) for name, value in there.items()})
    assert largest_difference(model, twin, (2, 7, 8, 1)) < 1e-6
    pytorch.load_state_dict(model, twin)  # without the request, the order of PyTorch is kept
    assert largest_difference(model, twin, (2, 7, 8, 1)) > 0.01
    with pytest.raises(ValueError, match=r"with 120 elements for 'layers.4', but got \(4, 5, 5\)"):
        pytorch.load_state_dict(model, twin, flatten={"layers.4": (4, 5, 5)})
    with pytest.raises(ValueError, match="must name layers of the model, but got head"):
        pytorch.load_state_dict(model, twin, flatten={"head": SHAPE})


UTILS = (torch.nn.utils, torch.nn.utils.parametrizations)
NORMS = [functools.partial(u.weight_norm, dim=dim) for u in UTILS for dim in (0, 1, None)]
WRAPS = [u.spectral_norm for u in UTILS] + [functools.partial(l1_unstructured, name="weight", amount=0.5)]
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
    assert pytorch.load_state_dict(model, twin.eval()).loaded == ["weight", "bias"]
    assert largest_difference(model, twin, shape) < 1e-5


def test_a_part_of_the_weights_can_be_loaded():
    layer, state = nn.Linear(2, 3), {"weight": np.ones((3, 2)), "head": np.ones(4), "epoch": 7}
    before = layer.bias
    report = pytorch.load_state_dict(layer, state, strict=False)
    assert report == pytorch.Report(["weight"], ["bias"], ["head"], ["epoch"])
    assert mx.array_equal(layer.weight, mx.ones((3, 2)))
    assert mx.array_equal(layer.bias, before)
    with pytest.raises(ValueError, match=r"^Linear cannot load .*: missing: bias; not used: head\.$"):
        pytorch.load_state_dict(layer, state)
    with pytest.raises(ValueError, match=r"shape \(2, 2\) instead of \(3, 2\): weight"):
        pytorch.load_state_dict(layer, {"weight": np.ones((2, 2))}, strict=False)
    names = {"weight": ("weight", "twin"), "bias": ("bias",)}
    with pytest.raises(ValueError, match="not shared with weight: twin"):
        pytorch.load_state_dict(layer, {"weight": np.ones((3, 2)), "twin": np.zeros((3, 2))}, names.get)


def test_the_example_of_a_port_agrees_with_pytorch_and_is_the_one_of_the_page():
    path = ROOT / "examples" / "port_segnet.py"
    names = runpy.run_path(str(path))
    assert set(names["found"].gradients) == {name for name, _ in names["original"].named_parameters()}
    assert max(names["found"].gradients.values()) < 1e-5
    page, script = (ROOT / "docs" / "porting.md").read_text(), path.read_text()
    port, *others = re.findall(r"```py(?:thon)?\n(.*?)```", page, re.DOTALL)
    comparison = next(code for code in others if "compare_port(" in code)
    for code in (port.partition("\n\n\n")[2], *comparison.split("\n\n")):
        assert code.strip() in script
    (changes,) = re.findall(r"```diff\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    before, after = script.split("\nclass SegNet(")
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
def test_the_recipe_of_the_page_records_layers_and_functions_of_all_ranks(dims):
    names = runpy.run_path(str(ROOT / "examples" / "port_segnet.py"))
    names["Recorder"].__torch_function__.__globals__["indices"] = indices = []
    conv, kind = getattr(torch.nn, f"Conv{dims}d")(3, 3, 1), getattr(torch.nn, f"MaxPool{dims}d")
    x, port = torch.rand(2, 3, *(16, 18, 20)[:dims]), Recurrent(dims)
    pytorch.load_state_dict(port.conv, conv.state_dict())
    with names["Recorder"]():
        first, _ = kind(2, return_indices=True)(kind(2)(conv(x)))
        second, _ = getattr(torch.nn.functional, f"max_pool{dims}d")(first, 2, return_indices=True)
    scores = first_to_last(first), first_to_last(second)
    found = compare_port(port, [mx.array(first_to_last(x))], scores, indices)
    assert (found.layers, found.flips, len(found.outputs)) == (["pool"] * 2, [0, 0], 2)
    assert found.scores < 1e-5


CONVOLUTIONS = ("Conv1d", "Conv3d", "ConvTranspose1d", "ConvTranspose3d")
LAYERS = {**dict.fromkeys(CONVOLUTIONS, (2, 3, 5)), "Linear": (2, 3)}


def test_parameters_at_the_root_and_weights_of_all_ranks_go_both_ways():
    model, twin = nn.Module(), torch.nn.Module()
    model.log_sigma, twin.log_sigma = mx.array(0.5), torch.nn.Parameter(torch.zeros(()))
    model.layers = [getattr(nn, name)(*sizes) for name, sizes in LAYERS.items()]
    twin.layers = torch.nn.ModuleList(getattr(torch.nn, name)(*sizes) for name, sizes in LAYERS.items())
    twin.load_state_dict({name: torch.from_numpy(value) for name, value in to_state_dict(model).items()})
    assert twin.log_sigma.item() == 0.5
    back = convert_state_dict(model, {name: v.numpy() for name, v in twin.state_dict().items()})
    for name, value in tree_flatten(model.parameters()):
        assert mx.array_equal(back[name], value), name
        assert memoryview(back[name]).c_contiguous
    for ours, theirs, name in zip(model.layers, twin.layers, CONVOLUTIONS):
        shape = (1, 9, 2) if "1d" in name else (1, 9, 9, 9, 2)
        assert largest_difference(ours, theirs, shape) < 1e-5, name


@pytest.mark.parametrize("shape", [(13, 3, 3, 3), (2, 3, 4, 4)])
def test_a_weight_that_may_be_in_another_layout_is_a_warning(shape, recwarn):
    layer = nn.Module()
    layer.weight = mx.zeros(shape)
    pytorch.load_state_dict(layer, {"weight": np.zeros(shape)})
    texts = [str(warning.message) for warning in recwarn]
    assert ["'weight' is not transposed, because" in text for text in texts] == [True] * (shape[0] == 13)


class Dense(torch.nn.Module):
    """A network whose class is in a module that cannot be imported."""

    __module__ = "authors"

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)
        self.blocks = torch.nn.Sequential(torch.nn.PReLU(), torch.nn.Linear(2, 3, bias=False))
        self.log_sigma = torch.nn.Parameter(torch.zeros(()))
        self.twin = self.norm  # listed twice
        self.register_buffer("scratch", torch.zeros(1), persistent=False)


def test_a_whole_pickled_model_is_read_without_its_code(tmp_path, monkeypatch):
    model, names = Dense(), [tmp_path / name for name in ("whole.pth.tar", "inside.pth", "old.pth")]
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "authors", sys.modules[__name__])
        torch.save(model, names[0])
        torch.save({"epoch": 3, "model": model}, names[1])
        # As PyTorch 0.3: plain parameters with requires_grad, volatile and hooks, and the source of layers.
        old = lambda self, _: (torch.nn.Parameter, (self.data,), (True, False, {}))
        patch.setattr(torch.nn.Parameter, "__reduce_ex__", old)
        torch.save(model, names[2], _use_new_zipfile_serialization=False)
    names[2].write_bytes(names[2].read_bytes().replace(b"def forward", b"def FORWARD"))  # which has changed
    expected = model.state_dict()
    for path in names:
        state = read_state(path)
        assert state.keys() == expected.keys()
        assert all(np.array_equal(state[name], expected[name]) for name in expected)


def test_nested_modules_and_expanded_tensors_take_neither_time_nor_memory(tmp_path):
    """2^20 modules, tensors of petabytes."""
    path, model = tmp_path / "large.pth", torch.nn.Linear(1, 1)
    for _ in range(20):
        outer = torch.nn.Module()
        outer.a, outer.b, model = model, model, outer
    torch.save(model, path)
    with pytest.raises(ValueError, match=r"large\.pth: the names in a model must have at most 10 million"):
        read_state(path)
    one, large = torch.zeros(1).half(), torch.zeros(10**6).half()
    for state in (
        {f"a{n}": one.expand(10**6) for n in range(10**4)},
        {f"a{n}": large.view(10, -1) for n in range(10**4)},
    ):
        torch.save(state, path)
        with pytest.raises(ValueError, match=r": a\d* \(\d.* is expanded from a few stored elements"):
            read_state(path)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_torchscript_file_and_arrays_without_numbers_are_named(tmp_path):
    torch.jit.trace(torch.nn.Linear(2, 3), torch.zeros(1, 2)).save(tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"a.pth: .*a TorchScript file.* torch.save\(model.state_dict"):
        read_state(tmp_path / "a.pth")
    for value, kind in (
        (torch.eye(3).to_sparse(), "torch.float32, torch.sparse_coo, on cpu"),
        (torch.ones(3, device="meta"), "torch.float32, torch.strided, on meta"),
        (np.array(["a"]), "<U1"),
        (np.array([None]), "object"),
    ):
        with pytest.raises(ValueError, match=f"^a.weight must be a dense array of numbers, .* of {kind}.$"):
            arrays_of({"a.weight": value})
