"""What the zoo refuses: errors name the file, the key and what is allowed, and nothing is left behind."""

from __future__ import annotations

import json
import random
import sys
import types
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_unpool_zoo as zoo
import numpy as np
import pytest
from mlx_unpool_zoo.convert import plane_of
from mlx_unpool_zoo.pytorch import to_state_dict
from programs import run
from small_models import SMALL, small_model
from support import segmenter

import mlx_unpool

CONFIG = {"num_filters": 4, "se_block": "SSE"}


@pytest.fixture(scope="module")
def quicknat(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("quicknat")
    small_model("quicknat")[0].save_pretrained(folder)
    return folder


def copy_of(folder: Path, target: Path, **changes: Any) -> Path:
    """A folder with changes to its configuration; None removes a key."""
    config = json.loads((folder / "config.json").read_text())
    target.mkdir()
    for name, value in changes.items():
        config[name] = value
        if value is None:
            del config[name]
    (target / "config.json").write_text(json.dumps(config))
    (target / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    return target


def refusal(folder: Path, **options: Any) -> str:
    """The message of the error that a folder leads to; it starts with the configuration's name."""
    with pytest.raises(ValueError, match=r"config\.json") as error:
        zoo.from_pretrained(folder, **options)
    message = str(error.value)
    assert message.startswith(str(folder / "config.json"))
    assert len(message.splitlines()) == 1
    return message.removeprefix(str(folder / "config.json"))


# config.json.


@pytest.mark.parametrize(
    ("text", "says"),
    {
        "[1, 2]": " must contain a JSON object, but got [1, 2].",
        "null": " must contain a JSON object, but got null.",
        "[" * 200_000: " must contain a JSON object, but it is nested too deeply.",
        '{"a": ' * 200_000: " must contain a JSON object, but it is nested too deeply.",
        "{": " must contain a JSON object: Expecting property name",
        "": " must contain a JSON object: Expecting value",
        '"\udcff"': " must contain a JSON object: 'utf-8' codec",
        "{}": ": 'model_type' must be one of segnet, ",
    }.items(),
    ids=["list", "null", "deep list", "deep object", "cut", "empty", "no UTF-8", "no keys"],
)
def test_a_configuration_that_is_no_object(quicknat, tmp_path, text, says):
    folder = copy_of(quicknat, tmp_path / "model")
    (folder / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    assert refusal(folder).startswith(says)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model_type": 5}, "'model_type' must be one of segnet, enet, "),
        ({"model_type": "unet"}, 'conv_autoencoder_3d, but got "unet"'),
        ({"model_type": ["segnet"]}, 'but got ["segnet"]'),
        (
            {"config": None},
            "'config' must be an object with the arguments of quicknat (num_classes, ",
        ),
        ({"config": [1]}, "se_block, drop_out), but got [1]."),
        ({"surprise": 1}, "allows only the keys paper, input, classes, plane, source, "),
        (
            {"config": CONFIG | {"depth": 3}},
            "'config' of quicknat allows only the keys num_classes, ",
        ),
        (
            {"config": CONFIG | {"num_filters": "4"}},
            "'num_filters' of quicknat must be an integer from 1",
        ),
        (
            {"config": CONFIG | {"num_filters": True}},
            "must be an integer from 1 to 65,536, but got true",
        ),
        ({"config": CONFIG | {"num_filters": -4}}, "but got -4."),
        ({"config": CONFIG | {"num_filters": 10**400}}, "but got 1000"),
        ({"config": CONFIG | {"num_filters": 4.0}}, "but got 4.0"),
        (
            {"config": CONFIG | {"drop_out": [0.1]}},
            "'drop_out' of quicknat must be a number, but got [0.1]",
        ),
        ({"config": CONFIG | {"se_block": 3}}, "'se_block' of quicknat must be a string or null"),
        (
            {"config": CONFIG | {"se_block": "both"}},
            "'se_block' must be one of NONE, CSE, SSE, CSSE",
        ),
        (
            {"config": CONFIG | {"drop_out": 2}},
            "'config' of quicknat is not accepted: The dropout",
        ),
        ({"config": CONFIG | {"classes": 3, "num_class": 3}}, "'num_classes' must be given once"),
        ({"paper": 5}, "'paper' must be a string, but got 5."),
        ({"plane": "oblique"}, "'plane' must be null or one of axial, coronal, sagittal"),
        ({"input": []}, "'input' must be an object, but got []."),
        ({"input": {"planes": "one"}}, "'input': 'planes' must be an integer"),
        (
            {"input": {"colours": 3}},
            "'input' allows only the keys planes, size, multiple_of, normal",
        ),
        (
            {"input": {"normalisation": {"scale": 1}}},
            "'normalisation' must have mean, std as well.",
        ),
        (
            {"input": {"normalisation": {"mean": ["a"]}}},
            "'mean' must be a list, each element a number",
        ),
        ({"classes": {"sky": 1}}, "'classes' must be a list, each element an object"),
        (
            {"classes": [{"name": "sky"}]},
            "each of 'classes' must have a 'name' and a 'colour' of three",
        ),
        ({"classes": [{"name": "sky", "colour": [1, 2, 300]}]}, "from 0 to 255, but got "),
        ({"sha256": 12}, "'sha256' must be the 64 hexadecimal digits of a SHA-256, but got 12."),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_configuration_with_wrong_keys_or_types(quicknat, tmp_path, changes, says):
    assert says in refusal(copy_of(quicknat, tmp_path / "model", **changes))


def test_configurations_of_sequences(tmp_path):
    model, _ = small_model("segnet")
    model.save_pretrained(tmp_path / "segnet")
    config = json.loads(json.dumps(model.config))
    for value in (5, "ab", [4, "6"], [[4]], [4] * 65, {}):
        changed = {"config": config | {"channels": value}}
        folder = copy_of(tmp_path / "segnet", tmp_path / f"{value!s:.5}", **changed)
        assert "'channels' of segnet must be a list, each element an integer" in refusal(folder)
    changed = {"config": config | {"channels": [4]}}  # fewer than convolutions
    folder = copy_of(tmp_path / "segnet", tmp_path / "fewer", **changed)
    with pytest.raises(
        ValueError, match=r"SegNet cannot load .*model.safetensors: \d+ differences"
    ):
        zoo.from_pretrained(folder)


def test_a_partial_description_keeps_the_defaults(quicknat, tmp_path):
    folder = copy_of(quicknat, tmp_path / "model", input={"size": "small"}, paper=None)
    about = zoo.from_pretrained(folder).about
    assert about.input["size"] == "small"
    assert about.input["planes"] == 1
    assert "QuickNAT" in about.paper


# Folders, the Hub, damaged files.


def test_folders_that_are_not_there(tmp_path):
    for name in ("nowhere", str(tmp_path / "none"), "a/b/c", "./a/b", "~/a", "a/"):
        with pytest.raises(ValueError, match="and there is no such folder") as error:
            zoo.from_pretrained(name)
        assert repr(name) in str(error.value)
    with pytest.raises(ValueError, match=r"there is no config.json. Convert weights first"):
        zoo.from_pretrained(tmp_path)


def fake_hub(monkeypatch, answer: Any) -> list[dict]:
    """A ``huggingface_hub`` that gives a folder or raises an error; the calls."""
    calls = []

    def snapshot_download(name: str, **options: Any) -> str:
        calls.append({"name": name} | options)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    library: Any = types.ModuleType("huggingface_hub")
    library.snapshot_download = snapshot_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    return calls


def test_models_of_the_hub_come_through_its_library(quicknat, monkeypatch):
    model, x = small_model("quicknat")
    calls = fake_hub(monkeypatch, quicknat)
    assert mx.array_equal(zoo.from_pretrained("someone/some-model")(x), model(x))
    assert mx.array_equal(zoo.QuickNAT.from_pretrained("someone/it", revision="v1.0")(x), model(x))
    assert [(call["name"], call["revision"]) for call in calls] == [
        ("someone/some-model", None),
        ("someone/it", "v1.0"),
    ]
    assert {"*.json", "*.safetensors", "LICENSE"} <= set(calls[0]["allow_patterns"])


class LocalEntryNotFoundError(FileNotFoundError):
    """As the library of the Hub has it, for a machine without a network."""


@pytest.mark.parametrize(
    "error",
    [LocalEntryNotFoundError("No network.\nMore lines"), ConnectionError("x"), RuntimeError()],
    ids=lambda error: type(error).__name__,
)
def test_a_hub_that_cannot_be_reached(monkeypatch, error):
    fake_hub(monkeypatch, error)
    with pytest.raises(ValueError, match="There is no folder a/b, and it cannot be loaded") as info:
        zoo.from_pretrained("a/b", revision="main")
    (line,) = str(info.value).splitlines()
    assert "Hub at revision 'main': " + type(error).__name__ in line


def test_a_hub_without_its_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"no folder a/b. .* pip install huggingface_hub"):
        zoo.from_pretrained("a/b")


def test_any_flipped_bit_of_the_weights_is_found(quicknat, tmp_path):
    folder, bits = copy_of(quicknat, tmp_path / "model"), random.Random(0)
    file = folder / "model.safetensors"
    contents = file.read_bytes()
    for position in [0, 9, len(contents) - 1, *bits.sample(range(len(contents)), 20)]:
        flipped = bytearray(contents)
        flipped[position] ^= 1 << bits.randrange(8)
        file.write_bytes(flipped)
        with pytest.raises(ValueError, match="is damaged or was replaced: its SHA-256 is") as error:
            zoo.from_pretrained(folder)
        assert str(error.value).startswith(str(file))
    file.write_bytes(contents[:-4])
    with pytest.raises(ValueError, match="is damaged or was replaced"):
        zoo.from_pretrained(folder)
    file.write_bytes(contents)
    zoo.from_pretrained(folder)


def test_other_contents_without_a_checksum(quicknat, tmp_path):
    folder = copy_of(quicknat, tmp_path / "model", sha256=None)
    (folder / "model.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged, or not a safetensors"):
        zoo.from_pretrained(folder)


@pytest.mark.parametrize("dtype", [mx.int32, "float16", mx.complex64], ids=str)
def test_types_that_are_no_floating_point(quicknat, dtype):
    with pytest.raises(ValueError, match=r"'dtype' must be one of mx\.float32"):
        zoo.from_pretrained(quicknat, dtype=dtype)


# Weights.


def test_one_spelling_for_the_number_of_classes():
    for name, cls in zoo.MODELS.items():
        config = SMALL[name][0]
        if "autoencoder" in name:
            continue
        rest = {key: value for key, value in config.items() if key != "num_classes"}
        for spelling in ("num_classes", "classes", "num_class"):
            assert cls(**rest, **{spelling: 3}).config["num_classes"] == 3
        with pytest.raises(TypeError, match="'num_classes' must be given once"):
            cls(**rest, classes=3, num_class=3)
    state = to_state_dict(small_model("quicknat")[0])
    for spelling in ("num_classes", "classes", "num_class"):
        assert zoo.from_pytorch("quicknat", state, **{spelling: 33}).config["num_classes"] == 33


@pytest.mark.parametrize(
    ("model_type", "published"),
    {
        "fastsurfer_cnn": {"NUM_CLASSES": 5, "STRIDE_CONV": 1, "LOSS_FUNC": "combined"},
        "cerebnet": {"NUM_CLASSES": 5, "HEIGHT": 128, "DILATION": 1, "WEIGHT_MASK": True},
        "hypvinn": {"HEIGHT": 16, "WIDTH": 32, "MODE": "t1t2", "MULTI_AUTO_W": True},
    }.items(),
)
def test_the_entries_of_authors_configurations_are_taken(model_type, published):
    config = {name.lower(): value for name, value in published.items()}
    state = to_state_dict(small_model(model_type)[0])
    assert zoo.from_pytorch(model_type, state, **config).config["pool"] == 2


def test_weights_that_do_not_fit_are_listed_and_the_cause_is_last():
    with pytest.raises(ValueError, match=r"'model_type' must be one of segnet, .* but got 'unet'"):
        zoo.from_pytorch("unet", {"a": np.zeros(1)})
    state = to_state_dict(small_model("quicknat")[0])
    with pytest.raises(ValueError, match=r"allows only the keys num_classes, .*, but got 'depth'"):
        zoo.from_pytorch("quicknat", state, depth=3)
    with pytest.raises(ValueError, match=r"'num_classes' of quicknat must be an integer .* \"33\""):
        zoo.from_pytorch("quicknat", state, num_classes="33")
    with pytest.raises(
        ValueError, match=r"no 'encode1.conv1.weight'. It has a0, .*, a9, ... and 2 more"
    ):
        zoo.from_pytorch("quicknat", {f"a{n}": np.zeros(1) for n in range(12)})
    del state["decode2.prelu.weight"]
    state["extra"] = np.zeros(2)
    with pytest.raises(
        ValueError, match=r"^missing: decode2.prelu.weight\nnot used: extra\nQuickNAT"
    ):
        zoo.from_pytorch("quicknat", state)
    few = {name: value for name, value in state.items() if name.startswith(("encode1", "class"))}
    with pytest.raises(ValueError, match=r"^missing: ") as error:
        zoo.from_pytorch("quicknat", few)
    lines = str(error.value).splitlines()
    assert len(lines) == 12
    assert lines[10].startswith("... and ")
    assert lines[11].startswith("QuickNAT cannot load the state dict: ")


def test_the_weights_of_another_model_name_the_file(quicknat, tmp_path):
    changed = copy_of(quicknat, tmp_path / "model", config=CONFIG | {"num_filters": 5})
    with pytest.raises(
        ValueError, match=r"QuickNAT cannot load .*model\.safetensors: \d+"
    ) as error:
        zoo.from_pretrained(changed)
    assert len(str(error.value).splitlines()) == 12


def test_a_network_for_images_is_no_network_for_volumes():
    images = {"encoder.0.weight": np.zeros((8, 1, 3, 3)), "encoder.0.bias": np.zeros(8)}
    says = r"with 5 axes, but got the shape \(8, 1, 3, 3\). This is a network for 2-D images"
    with pytest.raises(ValueError, match=says):
        zoo.from_pytorch("conv_autoencoder_3d", images)
    with pytest.raises(ValueError, match="but got no such parameter"):
        zoo.from_pytorch("conv_autoencoder_3d", {"other.weight": np.zeros((8, 1, 3, 3, 3))})


def test_arguments_that_a_model_refuses():
    with pytest.raises(ValueError, match="'se_block' must be one of NONE, CSE, SSE, CSSE"):
        zoo.QuickNAT(se_block="both")
    with pytest.raises(
        ValueError, match=r"\[HypVINN\] 'crop_position' must be one of center, top_l"
    ):
        zoo.HypVINN(crop_position="left")
    with pytest.raises(ValueError, match="'num_channels' must be even"):
        zoo.HypVINN(num_channels=13)
    vinn, x = small_model("fastsurfer_vinn")
    with pytest.raises(ValueError, match="'scale_factor' must be a number"):
        vinn(x, [1.0, 1.0, 1.0])
    for scale in (0, -1.0, float("nan"), [[1.0, float("inf")]]):
        with pytest.raises(ValueError, match="'scale_factor' must be positive"):
            vinn(x, scale)
    hypvinn, x = small_model("hypvinn")
    pair = mx.concatenate([x, x])
    for weights in (1.0, (1, 0, 0), [[1, 0], [0, 1]]):
        with pytest.raises(
            ValueError, match="'weight_factor' must be two numbers, the same for all"
        ):
            hypvinn(pair, weight_factor=weights)


# Inputs.


@pytest.mark.parametrize("model_type", SMALL)
def test_channels_first_inputs_are_named(model_type):
    model, x = small_model(model_type)
    channels = x.shape[-1]
    axes = "0, 2, 1" if x.ndim == 3 else "0, 2, 3, 1" if x.ndim == 4 else "0, 2, 3, 4, 1"
    with pytest.raises(ValueError, match=rf"channels first, pass x.transpose\({axes}\)") as error:
        model(mx.moveaxis(x, -1, 1))
    assert str(error.value).startswith(f"[{type(model).__name__}] inputs must be (N, ")
    assert f", {channels}), channels last, but got " in str(error.value)
    for other in (x[0], mx.concatenate([x, x], axis=-1)):
        with pytest.raises(ValueError, match=r"inputs must be \(N, .*channels last, but got \(\d+"):
            model(other)


def test_export_names_a_wrong_shape_and_leaves_nothing(tmp_path):
    small_model("fastsurfer_vinn")[0].save_pretrained(tmp_path / "vinn")
    file = tmp_path / "new" / "network.mlxfn"
    result = run("export.py", tmp_path / "vinn", file, "--shape", 1, 64, 64, 3)
    assert result.returncode == 1
    assert result.stderr == (
        "[FastSurferVINN] inputs must be (N, H, W, 7), channels last, but got (1, 64, 64, 3).\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["vinn"]


# Segmenters, and near-ties.


def test_a_segmenter_takes_a_str_and_says_what_it_needs(tmp_path):
    model, _ = small_model("enet")
    model.save_pretrained(tmp_path / "enet")
    with pytest.raises(ValueError, match=r"'classes' in its config.json is empty: .* --classes"):
        segmenter.load(str(tmp_path / "enet"))
    model.about.classes = [{"name": str(n), "colour": [n] * 3} for n in range(4)]
    model.save_pretrained(tmp_path / "enet")
    assert segmenter.load(str(tmp_path / "enet")).kind == "enet"
    small_model("quicknat")[0].save_pretrained(tmp_path / "quicknat")
    with pytest.raises(ValueError, match=r"with 3 channels.* it is a quicknat \(channels: 1\)"):
        segmenter.load(tmp_path / "quicknat")


def test_functional_pools_are_not_seen():
    x = mx.random.normal((1, 4, 4, 1))
    feed = [mx.zeros((1, 2, 2, 1), mx.int32)]
    says = r"'feed' has 1 arrays, but 0 calls .* functions such as"
    with pytest.raises(ValueError, match=says), zoo.pooled_indices(feed):
        mlx_unpool.max_pool2d(x, 2, return_indices=True)
    pool = mlx_unpool.MaxPool2d(2, return_indices=True)
    says = "'feed' has 1 arrays, but there are more calls"
    with pytest.raises(ValueError, match=says), zoo.pooled_indices(feed):
        pool(x), pool(x)
    assert "max_pool2d" in zoo.pooled_indices.__doc__


# Converting.


@pytest.mark.parametrize(
    ("path", "plane"),
    {
        "aparc_vinn_axial_v2.0.0.pkl": "axial",
        "weights/CerebNet_coronal_v1.0.0.pkl": "coronal",
        "HypVINN_sagittal_v1.1.0.pkl": "sagittal",
        "Sagittal_Weights_FastSurferCNN/ckpts/Epoch_30_training_state.pkl": "sagittal",
        "weights.pth": None,
        "axial_or_coronal.pth": None,
    }.items(),
)
def test_the_plane_is_in_the_name_of_the_authors_file(path, plane):
    assert plane_of(Path("/data") / path) == plane


def weights_file(model_type: str, path: Path) -> Path:
    model, _ = small_model(model_type)
    state = to_state_dict(model, model.pytorch_names)
    mx.save_safetensors(str(path), {name: mx.array(value) for name, value in state.items()})
    return path


def test_converting_stores_the_plane_and_the_licence(tmp_path):
    source = weights_file("cerebnet", tmp_path / "CerebNet_axial_v1.0.0.safetensors")
    (tmp_path / "copy.txt").write_text("Apache License\n")
    options = ["--licence", "Apache-2.0", "--licence-file", tmp_path / "copy.txt"]
    result = run("convert.py", "cerebnet", source, tmp_path / "axial", *options)
    assert result.returncode == 0, result.stderr
    assert result.stdout.rstrip().endswith("axial slices")
    about = zoo.from_pretrained(tmp_path / "axial").about
    assert (about.plane, about.base_model, about.source) == (
        "axial",
        "Deep-MI/FastSurfer",
        source.name,
    )
    assert (tmp_path / "axial" / "LICENSE").read_text() == "Apache License\n"
    result = run("convert.py", "cerebnet", source, tmp_path / "x", "--plane", "coronal")
    assert result.returncode == 1
    assert result.stderr == f"--plane is coronal, but the name of {source} says axial.\n"
    assert not (tmp_path / "x").exists()
    plain = source.rename(tmp_path / "weights.safetensors")
    result = run("convert.py", "cerebnet", plain, tmp_path / "x", "--plane", "coronal")
    assert zoo.from_pretrained(tmp_path / "x").about.plane == "coronal"


def test_a_converted_enet_predicts(tmp_path):
    """With the classes of CamVid and the values that the published weights were trained on."""
    from PIL import Image

    mx.random.seed(0)
    model = zoo.ENet(12)
    state = to_state_dict(model, model.pytorch_names)
    source = tmp_path / "best.safetensors"
    mx.save_safetensors(str(source), {name: mx.array(value) for name, value in state.items()})
    Image.new("RGB", (24, 16), "red").save(tmp_path / "street.png")
    for name, options, normalised in (
        ("default", [], False),
        ("raw", ["--input", "raw"], False),
        ("normalised", ["--input", "normalised"], True),
    ):
        result = run("convert.py", "enet", source, tmp_path / name, *options)
        assert result.returncode == 0, result.stderr
        loaded = segmenter.load(tmp_path / name)
        assert (loaded.model.about.input["normalisation"] is not None) == normalised
        assert [entry["name"] for entry in loaded.classes][:2] == ["sky", "building"]
    drawing = tmp_path / "classes.png"
    result = run(
        "camvid_predict.py", tmp_path / "raw", tmp_path / "street.png", "--output", drawing
    )
    assert result.returncode == 0, result.stderr
    assert drawing.exists()
    source = weights_file("quicknat", tmp_path / "quicknat.safetensors")
    result = run("convert.py", "quicknat", source, tmp_path / "q", "--input", "raw")
    assert result.stderr == "--input is only for models of pictures, not for quicknat.\n"
    assert not (tmp_path / "q").exists()


def test_converting_other_weights_leaves_nothing(tmp_path):
    source = weights_file("quicknat", tmp_path / "quicknat.safetensors")
    before = sorted(tmp_path.iterdir())
    for words in (
        ["fastsurfer_cnn", source, tmp_path / "a" / "b"],
        ["quicknat", source, tmp_path / "a", "--config", "num_filters=many"],
        ["quicknat", source, tmp_path / "a", "--licence-file", tmp_path / "none"],
        ["quicknat", tmp_path / "missing.pth", tmp_path / "a"],
    ):
        result = run("convert.py", *words)
        assert result.returncode == 1
        assert 0 < len(result.stderr.splitlines()) <= 13
        assert "Traceback" not in result.stderr
        assert str(words[1]) in result.stderr.splitlines()[-1] or "--licence-file" in words
        assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_cannot_be_written_is_removed_again(tmp_path, monkeypatch):
    model, _ = small_model("quicknat")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mlx_unpool_zoo.model.model_card", full)
    with pytest.raises(OSError, match="No space left"):
        model.save_pretrained(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").mkdir()
    with pytest.raises(OSError, match="No space left"):
        model.save_pretrained(tmp_path / "old")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
