"""Models of the zoo as folders, what authors publish, and exported models."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_unpool_zoo as zoo
import numpy as np
import pytest
from export import export
from mlx.utils import tree_flatten, tree_map
from mlx_unpool_zoo.layers import BatchNorm, resize
from mlx_unpool_zoo.near_ties import pooled_indices, share_of_flips
from mlx_unpool_zoo.pytorch import from_pytorch, read_state, state_of, to_pytorch
from programs import EXAMPLES, run

import mlx_unpool

SMALL: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "segnet": ({"classes": 4, "channels": [4, 6], "convolutions": [1, 2]}, (1, 21, 22, 3)),
    "enet": ({"classes": 4}, (1, 24, 16, 3)),
    "fastsurfer_cnn": ({"num_classes": 5, "num_filters": 4}, (1, 32, 16, 7)),
    "fastsurfer_vinn": (
        {"num_filters": 4, "num_filters_interpol": 3, "height": 16, "width": 32},
        (1, 32, 40, 7),
    ),
    "quicknat": ({"num_filters": 4, "se_block": "SSE"}, (1, 21, 35, 1)),
    "inception_autoencoder": ({"n_filters": 2, "kernel_sizes": [3, 5, 7]}, (2, 40, 1)),
    "conv_autoencoder_3d": ({"channels": [2, 4]}, (1, 7, 9, 8, 1)),
}


def small_model(model_type: str) -> tuple[zoo.Model, mx.array]:
    """A small model with weights and statistics that leave nothing as it was made, and an input."""
    config, shape = SMALL[model_type]
    mx.random.seed(1)
    model = zoo.MODELS[model_type](**config)
    weights = tree_map(
        lambda v: mx.random.uniform(0.5, 1.5, v.shape) if v.ndim < 2 else v, model.parameters()
    )
    model.update(weights)
    return model.eval(), mx.random.normal(shape)


# Folders.


def test_the_registry_has_every_model_and_a_small_one_is_tested():
    assert list(zoo.MODELS) == list(SMALL)
    for name, model in zoo.MODELS.items():
        assert model.model_type == name
        assert model.default_about.paper


@pytest.mark.parametrize("model_type", SMALL)
def test_a_saved_model_comes_back(model_type, tmp_path):
    model, x = small_model(model_type)
    model.about.classes = [{"name": "sky", "colour": [128, 128, 128]}]
    model.about.source, model.about.licence = "random numbers", "CC0-1.0"
    model.save_pretrained(tmp_path / "a" / "model")
    files = {path.name for path in (tmp_path / "a" / "model").iterdir()}
    assert files == {"model.safetensors", "config.json", "README.md"}
    assert mx.load(str(tmp_path / "a/model/model.safetensors"), return_metadata=True)[1] == {
        "format": "mlx"
    }
    saved = json.loads((tmp_path / "a/model/config.json").read_text())
    assert saved["model_type"] == model_type
    assert saved["classes"] == model.about.classes
    assert {"planes", "size", "multiple_of", "normalisation"} <= set(saved["input"])
    assert saved["input"]["planes"] == x.shape[-1]
    card = (tmp_path / "a/model/README.md").read_text()
    for said in ("license: cc0-1.0", "random numbers", "sky", model.about.paper, "channels last"):
        assert said in card

    again = zoo.from_pretrained(tmp_path / "a" / "model")
    assert type(again) is type(model)
    assert not again.training
    assert again.about == model.about
    assert json.loads(json.dumps(again.config)) == json.loads(json.dumps(model.config))
    assert mx.array_equal(again(x), model(x))
    again.save_pretrained(tmp_path / "b")  # and again
    assert (tmp_path / "b/model.safetensors").read_bytes() == (
        tmp_path / "a/model/model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("model_type", SMALL)
def test_weights_under_the_names_of_the_authors_go_both_ways(model_type):
    """Without a word about the arguments: the shapes tell them."""
    model, x = small_model(model_type)
    state = to_pytorch(model, model.pytorch_names)
    sizes = {name: model.config[name] for name in ("height", "width") if name in model.config}
    again = zoo.from_pytorch(model_type, state, **sizes)
    assert mx.array_equal(again(x), model(x))
    own = dict(tree_flatten(again.parameters()))
    assert all(memoryview(value).c_contiguous for value in own.values())
    assert set(model.sanitize(state)) == set(own)


def test_weights_published_for_pytorch_beside_a_configuration_are_read(tmp_path):
    model, x = small_model("quicknat")
    model.save_pretrained(tmp_path)
    state = to_pytorch(model, model.pytorch_names)
    mx.save_safetensors(
        str(tmp_path / "model.safetensors"),
        {name: mx.array(value) for name, value in state.items()},
        {"format": "pt"},
    )
    assert mx.array_equal(zoo.from_pretrained(tmp_path)(x), model(x))


def test_arguments_by_the_names_that_authors_use():
    model, _ = small_model("quicknat")
    state = to_pytorch(model)
    for name in ("num_class", "num_classes", "classes"):
        assert zoo.from_pytorch("quicknat", state, **{name: 33}).config["num_class"] == 33
    model, _ = small_model("fastsurfer_cnn")
    published = {"NUM_CLASSES": 5, "NUM_CHANNELS": 7, "STRIDE_CONV": 1, "LOSS_FUNC": "combined"}
    config = {name.lower(): value for name, value in published.items()}
    assert zoo.from_pytorch("fastsurfer_cnn", to_pytorch(model), **config).config["pool"] == 2


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"'model_type' must be one of segnet, .* but got 'unet'"):
        zoo.from_pytorch("unet", {"a": np.zeros(1)})
    model, _ = small_model("quicknat")
    state = to_pytorch(model)
    with pytest.raises(ValueError, match=r"must hold none but num_class, .*, but got 'depth'"):
        zoo.from_pytorch("quicknat", state, depth=3)
    with pytest.raises(ValueError, match=r"weights of quicknat .* no 'encode1.conv1.weight'"):
        zoo.from_pytorch("quicknat", {"a": np.zeros(1)})
    del state["decode2.prelu.weight"]
    state["extra"] = np.zeros(2)
    with pytest.raises(ValueError, match=r"missing: decode2.prelu.weight\nnot used: extra"):
        zoo.from_pytorch("quicknat", state)
    with pytest.raises(ValueError, match="'se_block' must be one of NONE, CSE, SSE, CSSE"):
        zoo.MODELS["quicknat"](se_block="both")
    with pytest.raises(ValueError, match=r"'crop_position' must be one of center, top_left"):
        zoo.MODELS["fastsurfer_vinn"](crop_position="left")
    vinn, x = small_model("fastsurfer_vinn")
    with pytest.raises(ValueError, match="'scale_factor' must be a number"):
        vinn(x, [1.0, 1.0, 1.0])


def test_folders_that_are_none_say_so(tmp_path):
    with pytest.raises(ValueError, match=r"must be a folder or 'owner/name' but got 'nowhere'"):
        zoo.from_pretrained("nowhere")
    with pytest.raises(ValueError, match=r"config.json is not there. Convert weights first"):
        zoo.from_pretrained(tmp_path)
    model, _ = small_model("conv_autoencoder_3d")
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(
        ValueError, match=r"model\.safetensors is damaged, or not a safetensors file"
    ):
        zoo.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is no JSON"):
        zoo.from_pretrained(tmp_path)


def test_models_of_the_hub_come_through_its_library(tmp_path, monkeypatch):
    model, x = small_model("conv_autoencoder_3d")
    model.save_pretrained(tmp_path / "fetched")
    asked = []

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        asked.append(name)
        return str(tmp_path / "fetched")

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match="'pip install huggingface_hub' is needed"):
        zoo.from_pretrained("someone/some-model")
    library: Any = types.ModuleType("huggingface_hub")
    library.snapshot_download = snapshot_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    assert mx.array_equal(zoo.from_pretrained("someone/some-model")(x), model(x))
    assert asked == ["someone/some-model"]


# What authors publish.


class WithRoot(nn.Module):
    """A parameter at the root, layers of all ranks, and a list of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.log_sigma = mx.array(0.5)
        self.layers = [
            nn.Conv1d(2, 3, 5),
            nn.Conv3d(2, 3, 5),
            nn.ConvTranspose1d(2, 3, 5),
            nn.ConvTranspose3d(2, 3, 5),
            nn.Linear(2, 3),
        ]


def test_parameters_at_the_root_and_weights_of_all_ranks_go_both_ways():
    torch = pytest.importorskip("torch")
    model = WithRoot()
    twin = torch.nn.Module()
    twin.log_sigma = torch.nn.Parameter(torch.tensor(0.0))
    twin.layers = torch.nn.ModuleList(
        [
            torch.nn.Conv1d(2, 3, 5),
            torch.nn.Conv3d(2, 3, 5),
            torch.nn.ConvTranspose1d(2, 3, 5),
            torch.nn.ConvTranspose3d(2, 3, 5),
            torch.nn.Linear(2, 3),
        ]
    )
    state = to_pytorch(model)
    twin.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    assert twin.log_sigma.item() == 0.5
    back = from_pytorch({name: v.numpy() for name, v in twin.state_dict().items()}, model)
    for name, value in tree_flatten(model.parameters()):
        assert mx.array_equal(back[name], value), name
        assert memoryview(back[name]).c_contiguous
    for number, length in enumerate((9, 9, 9, 9)):
        rank = 1 if number in (0, 2) else 3
        x = np.random.default_rng(number).normal(size=(1, *[length] * rank, 2)).astype(np.float32)
        expected = twin.layers[number](torch.from_numpy(np.moveaxis(x, -1, 1).copy()))
        found = np.moveaxis(np.array(model.layers[number](mx.array(x))), -1, 1)
        assert np.abs(found - expected.detach().numpy()).max() < 1e-5


@pytest.mark.parametrize(
    "around",
    [
        lambda s: s,
        lambda s: {"state_dict": s, "epoch": 3},
        lambda s: {"model_state": s, "optimizer_state": {"state": {}}},
        lambda s: {"model": s},
        lambda s: {"network": s, "losses": [0.5]},
        lambda s: {"model": {"state_dict": s}},
        lambda s: {f"module.{name}": value for name, value in s.items()},
        lambda s: {"state_dict": {f"module.{name}": value for name, value in s.items()}},
    ],
)
def test_a_state_dict_is_found_wherever_it_lies(around, tmp_path):
    torch = pytest.importorskip("torch")
    state = {"a.weight": torch.arange(6.0).reshape(2, 3), "log_sigma": torch.tensor(0.5)}
    torch.save(around(state), tmp_path / "some.pth")
    read = read_state(tmp_path / "some.pth")
    assert {name: value.tolist() for name, value in read.items()} == {
        "a.weight": [[0, 1, 2], [3, 4, 5]],
        "log_sigma": 0.5,
    }
    assert state_of(around(state)).keys() == read.keys()


PUBLISHER = """
    import sys, torch
    from torch import nn

    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 2, 3)
            self.norm = nn.BatchNorm2d(2)
            self.blocks = nn.Sequential(nn.PReLU(), nn.Linear(2, 3, bias=False))
            self.log_sigma = nn.Parameter(torch.zeros(()))
            self.register_buffer("scratch", torch.zeros(1), persistent=False)

    torch.manual_seed(0)
    model = Dense()
    torch.save(model, sys.argv[1])
    torch.save({"epoch": 3, "model": model}, sys.argv[2])
    torch.save(model.state_dict(), sys.argv[3])
"""


def test_a_whole_pickled_model_is_read_without_its_code(tmp_path):
    pytest.importorskip("torch")
    names = [tmp_path / name for name in ("whole.pth.tar", "inside.pth", "state.pth")]
    script = tmp_path / "publisher.py"
    script.write_text(textwrap.dedent(PUBLISHER))
    subprocess.run([sys.executable, script, *names], check=True)
    expected = read_state(names[2])
    assert "blocks.1.weight" in expected
    for path in names[:2]:
        found = read_state(path)  # its class is in a script that is not here
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


class Bomb:
    """Would make a file if it were unpickled as it asks for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_code_in_a_checkpoint_is_never_run(tmp_path):
    torch = pytest.importorskip("torch")
    bomb, weight = Bomb(tmp_path / "ran"), torch.ones(2)
    torch.save({"state_dict": {"a": weight, "b": bomb}}, tmp_path / "bad.pth")
    with pytest.raises(ValueError, match=r"'b' is .* export its state dict: torch.save\("):
        read_state(tmp_path / "bad.pth")
    # Beside the weights it does no harm, and is not run either.
    torch.save({"state_dict": {"a": weight}, "config": bomb}, tmp_path / "beside.pth")
    assert list(read_state(tmp_path / "beside.pth")) == ["a"]
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(bomb))
    with pytest.raises(ValueError, match=r"plain\.pkl"):
        read_state(tmp_path / "plain.pkl")
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(bomb))
    assert (tmp_path / "ran").exists()  # it would have


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "no state dict but list"),
        ({}, "it is empty"),
        ({"epoch": 3}, "'epoch' is int"),
    ],
)
def test_a_checkpoint_without_weights_says_how_to_export_them(content, message, tmp_path):
    torch = pytest.importorskip("torch")
    torch.save(content, tmp_path / "none.pth")
    with pytest.raises(ValueError, match=message) as error:
        read_state(tmp_path / "none.pth")
    assert "torch.save(model.state_dict(), 'weights.pth')" in str(error.value)


def test_files_that_are_no_checkpoints_are_one_line(tmp_path):
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match="There is no file"):
        read_state(tmp_path / "missing.pth")
    for name in ("text.pth", "text.safetensors"):
        (tmp_path / name).write_text("not a checkpoint")
        with pytest.raises(ValueError, match=f"{name} is (no checkpoint|damaged)") as error:
            read_state(tmp_path / name)
        assert "\n" not in str(error.value)


# Converting.


def test_convert_writes_a_folder_with_a_card(tmp_path):
    model, x = small_model("fastsurfer_vinn")
    state = to_pytorch(model)
    source = tmp_path / "weights.safetensors"
    mx.save_safetensors(str(source), {name: mx.array(value) for name, value in state.items()})
    table = tmp_path / "colours.tsv"
    table.write_text(
        "ID\tLabelName\tR\tG\tB\tA\n0\tUnknown\t0\t0\t0\t0\n2\tLeft-White\t1\t2\t3\t0\n"
    )
    command = ["fastsurfer_vinn", source, "out", "--config", "height=16", "width=32"]
    options = ["--classes", table, "--licence", "Apache-2.0", "--source", "the authors"]
    result = run("convert.py", *command, *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    again = zoo.from_pretrained(tmp_path / "out")
    assert mx.array_equal(again(x), model(x))
    assert again.about.classes[1] == {"name": "Left-White", "colour": [1, 2, 3], "label": 2}
    assert "Licence of the weights: Apache-2.0" in (tmp_path / "out/README.md").read_text()


def test_convert_says_in_a_line_what_is_wrong(tmp_path):
    result = run("convert.py", "quicknat", tmp_path / "missing.pth", tmp_path / "out")
    assert result.returncode == 1
    assert result.stderr.splitlines() == [f"There is no file {tmp_path / 'missing.pth'}."]
    assert not (tmp_path / "out").exists()
    (tmp_path / "empty.txt").write_text("nothing")
    with pytest.raises(ValueError, match="number name red green blue"):
        zoo.read_classes(tmp_path / "empty.txt")


# Exported models.


@pytest.mark.parametrize("model_type", SMALL)
def test_converted_weights_are_exported_as_they_are(model_type, tmp_path):
    model, x = small_model(model_type)
    sizes = {name: model.config[name] for name in ("height", "width") if name in model.config}
    converted = zoo.from_pytorch(model_type, to_pytorch(model, model.pytorch_names), **sizes)
    with mlx_unpool.exporting():
        mx.export_function(str(tmp_path / "model.mlxfn"), converted, x)
    (found,) = mx.import_function(str(tmp_path / "model.mlxfn"))(x)
    assert np.abs(np.array(found - model(x))).max() < 1e-6 * np.abs(np.array(model(x))).max()


def test_a_loaded_model_can_be_exported(tmp_path):
    model, x = small_model("quicknat")
    model.save_pretrained(tmp_path)
    export(zoo.from_pretrained(tmp_path), [x.shape], tmp_path / "model.mlxfn")
    (found,) = mx.import_function(str(tmp_path / "model.mlxfn"))(x)
    assert np.allclose(found, model(x), atol=1e-5)


def test_export_mends_strided_and_lazily_loaded_weights(tmp_path):
    """What MLX does with them alone is shown first: this test fails when it has learnt better."""
    model, x = small_model("segnet")
    strided = tree_map(
        lambda v: v if v.ndim < 4 else mx.contiguous(v.transpose(3, 1, 2, 0)).transpose(3, 1, 2, 0),
        model.parameters(),
    )
    model.update(strided)
    mx.eval(model.parameters())
    with mlx_unpool.exporting():
        mx.export_function(str(tmp_path / "wrong.mlxfn"), model, x)
    (wrong,) = mx.import_function(str(tmp_path / "wrong.mlxfn"))(x)
    assert np.abs(np.array(wrong - model(x))).max() > 0.1
    export(model, [x.shape], tmp_path / "right.mlxfn")
    (right,) = mx.import_function(str(tmp_path / "right.mlxfn"))(x)
    assert np.allclose(right, model(x), atol=1e-5)

    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(tmp_path / "lazy.safetensors"), weights)
    model.load_weights(str(tmp_path / "lazy.safetensors"))
    with mlx_unpool.exporting(), pytest.raises(ValueError, match="serialize primitive Load"):
        mx.export_function(str(tmp_path / "lazy.mlxfn"), model, x)
    export(model, [x.shape], tmp_path / "lazy.mlxfn")


class Hidden(nn.Module):
    """Holds a strided array where nobody looks for parameters."""

    def __init__(self) -> None:
        super().__init__()
        matrix = mx.arange(12.0).reshape(3, 4).T
        mx.eval(matrix)
        self.function = lambda x: x @ matrix

    def __call__(self, x: mx.array) -> mx.array:
        return self.function(x)


def test_export_refuses_what_it_cannot_mend(tmp_path):
    with pytest.raises(ValueError, match="gives other scores than the model"):
        export(Hidden().eval(), [(2, 4)], tmp_path / "hidden.mlxfn")
    assert not (tmp_path / "hidden.mlxfn").exists()


# Layers.


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
@pytest.mark.parametrize("size", [(48, 64), (20, 25), (7, 90), (33, 41)])
def test_resize_gives_what_pytorch_gives(mode, size):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(size=(2, 33, 41, 3)).astype(np.float32)
    options = {"align_corners": False} if mode in ("bilinear", "bicubic") else {}
    first = torch.from_numpy(np.moveaxis(x, -1, 1).copy())
    expected = torch.nn.functional.interpolate(first, size=size, mode=mode, **options).numpy()
    found = np.moveaxis(np.array(resize(mx.array(x), size, mode)), -1, 1)
    assert np.abs(found - expected).max() < 5e-6
    with pytest.raises(ValueError, match="'mode' must be one of nearest"):
        resize(mx.array(x), (5, 5), "linear")


@pytest.mark.parametrize(
    "position", ["center", "top_left", "top_right", "bottom_left", "bottom_right"]
)
def test_slices_are_cropped_and_padded_where_the_position_says(position):
    model = zoo.MODELS["fastsurfer_vinn"](2, 1, 2, 2, crop_position=position)
    x = mx.arange(48.0).reshape(1, 6, 8, 1)
    rows = slice(2, 6) if "bottom" in position else slice(0, 4)
    columns = slice(4, 8) if "right" in position else slice(0, 4)
    if position == "center":
        rows, columns = slice(1, 5), slice(2, 6)
    cropped, _ = model.zoom(x, [[1.0, 1.0]], (4, 4))
    assert mx.array_equal(cropped, x[:, rows, columns])
    padded, _ = model.zoom(x, [[1.0, 1.0]], (12, 16))
    top = 6 if "bottom" in position else 3 * (position == "center")
    left = 8 if "right" in position else 4 * (position == "center")
    assert mx.array_equal(padded[:, top : top + 6, left : left + 8], x)
    assert padded.sum() == x.sum()


def test_batch_norm_of_volumes_is_that_of_their_voxels():
    torch = pytest.importorskip("torch")
    twin, norm = torch.nn.BatchNorm3d(4), BatchNorm(4)
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 4, 4)).astype(np.float32)
    first = torch.from_numpy(np.moveaxis(x, -1, 1).copy())
    for mode in (True, False):
        expected = twin.train(mode)(first).detach().numpy()
        found = np.moveaxis(np.array(norm.train(mode)(mx.array(x))), -1, 1)
        # The running variance is another one: PyTorch's is that of a sample, MLX's is of all.
        assert np.abs(found - expected).max() < (1e-5 if mode else 1e-2)


def test_indices_are_noted_and_replaced_in_the_order_of_the_calls():
    model, x = small_model("quicknat")
    with pooled_indices() as found:
        scores = model(x)
    assert [i.shape for i in found] == [(1, 10, 17, 4), (1, 5, 8, 4), (1, 2, 4, 4), (1, 1, 2, 4)]
    with pooled_indices(feed=found) as again:
        assert mx.array_equal(model(x), scores)
    assert share_of_flips(again, found) == 0
    other = [mx.zeros_like(i) for i in found]
    with pooled_indices(feed=other):
        assert not np.allclose(model(x), scores)
    assert 0.9 < share_of_flips(other, found) <= 1
    assert mx.array_equal(model(x), scores)  # all as before
    with pytest.raises(ValueError, match="must have the same shapes"):
        share_of_flips(found, [*found[:3], mx.zeros(1)])


# Programs.

PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "first_steps.py")


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_explains_itself_in_whatever_folder(program, tmp_path):
    result = run(program, "--help", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) > 5
    assert not list(tmp_path.iterdir())


def test_the_first_steps_are_those_that_they_print(tmp_path):
    result = run("first_steps.py", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    for said in ("[13, 15]", "[0, 6, 0, 8]", "gradient of the bias"):
        assert said in result.stdout


@pytest.mark.parametrize(
    "options",
    [
        ["camvid_predict.py", "missing", "picture.png"],
        ["camvid_train.py", "--data", "missing"],
        ["camvid_train.py", "--smoke", "--start", "missing", "--output", "out"],
        ["camvid_convert.py", "enet", "missing.pth", "out"],
        ["convert.py", "enet", "missing.pth", "out"],
    ],
)
def test_missing_files_are_one_line(options, tmp_path):
    program, *rest = options
    result = run(program, *rest, cwd=tmp_path)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "missing" in result.stderr
