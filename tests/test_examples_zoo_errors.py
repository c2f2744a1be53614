"""Errors of the zoo: each names the file, the key and the allowed values, and no partial result is left."""

from __future__ import annotations

import json
import random
import shutil
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
from PIL import Image
from programs import errors_of, run
from small_models import SMALL, edit_config, save_state, small_model
from support import segmenter

import mlx_unpool

CONFIG = {"num_filters": 4, "se_block": "SSE"}


@pytest.fixture(scope="module")
def quicknat(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("quicknat")
    small_model("quicknat")[0].save_pretrained(folder)
    return folder


def copy_of(folder: Path, target: Path, **changes: Any) -> Path:
    """A copy of a folder, with changes to its configuration; None removes a key."""
    shutil.copytree(folder, target)
    edit_config(target, **changes)
    return target


def refusal(folder: Path) -> str:
    """The error message for a folder, after the name of its configuration, with which it starts."""
    with pytest.raises(ValueError, match=r"config\.json") as error:
        zoo.from_pretrained(folder)
    (line,) = str(error.value).splitlines()
    assert line.startswith(str(folder / "config.json"))
    return line.removeprefix(str(folder / "config.json"))


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


WRONG_KEYS = [
    ({"model_type": 5}, "'model_type' must be one of segnet, enet, "),
    ({"model_type": "unet"}, 'conv_autoencoder_3d, but got "unet"'),
    ({"model_type": ["segnet"]}, 'but got ["segnet"]'),
    ({"config": None}, "'config' must be an object with the arguments of quicknat (num_classes, "),
    ({"config": [1]}, "se_block, drop_out), but got [1]."),
    ({"surprise": 1}, "allows only the keys paper, input, classes, plane, source, "),
    ({"paper": 5}, "'paper' must be a string, but got 5."),
    ({"plane": "oblique"}, "'plane' must be null or one of axial, coronal, sagittal"),
    ({"input": []}, "'input' must be an object, but got []."),
    ({"input": {"planes": "one"}}, "'input': 'planes' must be an integer"),
    ({"input": {"colours": 3}}, "'input' allows only the keys planes, size, multiple_of, normal"),
    ({"input": {"normalisation": {"scale": 1}}}, "'normalisation' must have mean, std as well."),
    ({"input": {"normalisation": {"mean": ["a"]}}}, "'mean' must be a list, each element a number"),
    ({"classes": {"sky": 1}}, "'classes' must be a list, each element an object"),
    (
        {"classes": [{"name": "sky"}]},
        "each of 'classes' must have a 'name' and a 'colour' of three",
    ),
    ({"classes": [{"name": "sky", "colour": [1, 2, 300]}]}, "from 0 to 255, but got "),
    ({"sha256": 12}, "'sha256' must be the 64 hexadecimal digits of a SHA-256, but got 12."),
]
WRONG_ARGUMENTS = [
    ({"depth": 3}, "'config' of quicknat allows only the keys num_classes, "),
    ({"num_filters": "4"}, "'num_filters' of quicknat must be an integer from 1"),
    ({"num_filters": True}, "must be an integer from 1 to 65,536, but got true"),
    ({"num_filters": -4}, "but got -4."),
    ({"num_filters": 10**400}, "but got 1000"),
    ({"num_filters": 4.0}, "but got 4.0"),
    ({"drop_out": [0.1]}, "'drop_out' of quicknat must be a number, but got [0.1]"),
    ({"drop_out": 2}, "'config' of quicknat is not accepted: The dropout"),
    ({"se_block": 3}, "'se_block' of quicknat must be a string or null"),
    ({"se_block": "both"}, "'se_block' must be one of NONE, CSE, SSE, CSSE"),
    ({"classes": 3, "num_class": 3}, "'num_classes' must be given once"),
]


@pytest.mark.parametrize(
    ("changes", "says"),
    [*WRONG_KEYS, *(({"config": CONFIG | wrong}, says) for wrong, says in WRONG_ARGUMENTS)],
    ids=lambda value: str(value)[:60],
)
def test_a_configuration_with_wrong_keys_or_types(quicknat, tmp_path, changes, says):
    assert says in refusal(copy_of(quicknat, tmp_path / "model", **changes))


def test_configurations_of_sequences(tmp_path):
    model, _ = small_model("segnet")
    model.save_pretrained(tmp_path / "segnet")
    config = json.loads(json.dumps(model.config))
    for value in (5, "ab", [4, "6"], [[4]], [4] * 65, {}):
        edit_config(tmp_path / "segnet", config=config | {"channels": value})
        says = refusal(tmp_path / "segnet")
        assert "'channels' of segnet must be a list, each element an integer" in says
    edit_config(tmp_path / "segnet", config=config | {"channels": [4]})  # fewer than convolutions
    says = r"SegNet cannot load .*model.safetensors: \d+ differences"
    with pytest.raises(ValueError, match=says):
        zoo.from_pretrained(tmp_path / "segnet")


def test_a_partial_description_keeps_the_defaults(quicknat, tmp_path):
    folder = copy_of(quicknat, tmp_path / "model", input={"size": "small"}, paper=None)
    about = zoo.from_pretrained(folder).about
    assert (about.input["size"], about.input["planes"]) == ("small", 1)
    assert "QuickNAT" in about.paper


# Folders, the Hub, damaged files.


def test_folders_that_do_not_exist(tmp_path):
    for name in ("nowhere", str(tmp_path / "none"), "a/b/c", "./a/b", "~/a", "a/"):
        with pytest.raises(ValueError, match="and there is no such folder") as error:
            zoo.from_pretrained(name)
        assert repr(name) in str(error.value)
    with pytest.raises(ValueError, match=r"there is no config.json. Convert weights first"):
        zoo.from_pretrained(tmp_path)


def fake_hub(monkeypatch, answer: Any) -> list[dict]:
    """Install a ``huggingface_hub`` that gives a folder or raises an error; the list of its calls."""
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


def test_models_of_the_hub_are_loaded_through_its_library(quicknat, monkeypatch):
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
    """The error of the Hub's library on a machine without a network."""


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


def test_changed_and_damaged_weights_are_found(quicknat, tmp_path):
    folder, bits = copy_of(quicknat, tmp_path / "model"), random.Random(0)
    file = folder / "model.safetensors"
    contents, broken = file.read_bytes(), []
    for position in [0, 9, len(contents) - 1, *bits.sample(range(len(contents)), 20)]:
        broken.append(bytearray(contents))
        broken[-1][position] ^= 1 << bits.randrange(8)
    for damaged in (*broken, contents[:-4]):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match="is damaged or was replaced: its SHA-256 is") as error:
            zoo.from_pretrained(folder)
        assert str(error.value).startswith(str(file))
    file.write_bytes(contents)
    zoo.from_pretrained(folder)
    edit_config(folder, sha256=None)
    file.write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged, or not a safetensors"):
        zoo.from_pretrained(folder)


@pytest.mark.parametrize("dtype", [mx.int32, "float16", mx.complex64], ids=str)
def test_types_that_are_not_floating_point(quicknat, dtype):
    with pytest.raises(ValueError, match=r"'dtype' must be one of mx\.float32"):
        zoo.from_pretrained(quicknat, dtype=dtype)


# Weights.


def test_every_spelling_of_the_number_of_classes():
    spellings = ("num_classes", "classes", "num_class")
    for name, cls in zoo.MODELS.items():
        if "autoencoder" not in name:
            rest = {key: v for key, v in SMALL[name][0].items() if key != "num_classes"}
            for spelling in spellings:
                assert cls(**rest, **{spelling: 3}).config["num_classes"] == 3
            with pytest.raises(TypeError, match="'num_classes' must be given once"):
                cls(**rest, classes=3, num_class=3)
    state = to_state_dict(small_model("quicknat")[0])
    for spelling in spellings:
        assert zoo.from_pytorch("quicknat", state, **{spelling: 33}).config["num_classes"] == 33


@pytest.mark.parametrize(
    ("model_type", "published"),
    {
        "fastsurfer_cnn": {"NUM_CLASSES": 5, "STRIDE_CONV": 1, "LOSS_FUNC": "combined"},
        "cerebnet": {"NUM_CLASSES": 5, "HEIGHT": 128, "DILATION": 1, "WEIGHT_MASK": True},
        "hypvinn": {"HEIGHT": 16, "WIDTH": 32, "MODE": "t1t2", "MULTI_AUTO_W": True},
    }.items(),
)
def test_entries_of_the_authors_configurations_are_accepted(model_type, published):
    config = {name.lower(): value for name, value in published.items()}
    state = to_state_dict(small_model(model_type)[0])
    assert zoo.from_pytorch(model_type, state, **config).config["pool"] == 2


IMAGES = {"encoder.0.weight": np.zeros((8, 1, 3, 3)), "encoder.0.bias": np.zeros(8)}
SURPLUS = {f"a{n}": np.zeros(1) for n in range(12)}


@pytest.mark.parametrize(
    ("model_type", "state", "options", "says"),
    [
        ("unet", SURPLUS, {}, r"'model_type' must be one of segnet, .* but got 'unet'"),
        ("quicknat", None, {"depth": 3}, r"allows only the keys num_classes, .*, but got 'depth'"),
        ("quicknat", None, {"num_classes": "33"}, r"'num_classes' of quicknat must be an in.*\"33"),
        ("quicknat", SURPLUS, {}, r"no 'encode1.conv1.weight'. It has a0, .*, a9, ... and 2 more"),
        (
            "conv_autoencoder_3d",
            IMAGES,
            {},
            r"with 5 axes, but got the shape \(8, 1, 3, 3\). This is a network for 2-D images",
        ),
        (
            "conv_autoencoder_3d",
            {"other.weight": np.zeros((8, 1, 3, 3, 3))},
            {},
            "but got no such parameter",
        ),
    ],
)
def test_weights_and_arguments_of_another_model(model_type, state, options, says):
    state = to_state_dict(small_model(model_type)[0]) if state is None else state
    with pytest.raises(ValueError, match=says):
        zoo.from_pytorch(model_type, state, **options)


def test_weights_that_do_not_fit_are_listed_and_the_cause_is_last(quicknat, tmp_path):
    state = to_state_dict(small_model("quicknat")[0])
    del state["decode2.prelu.weight"]
    state["extra"] = np.zeros(2)
    says = r"^missing: decode2.prelu.weight\nnot used: extra\nQuickNAT"
    with pytest.raises(ValueError, match=says):
        zoo.from_pytorch("quicknat", state)
    few = {name: value for name, value in state.items() if name.startswith(("encode1", "class"))}
    with pytest.raises(ValueError, match=r"^missing: ") as error:
        zoo.from_pytorch("quicknat", few)
    *differences, more, cause = str(error.value).splitlines()
    assert len(differences) == 10
    assert more.startswith("... and ")
    assert cause.startswith("QuickNAT cannot load the state dict: ")
    changed = copy_of(quicknat, tmp_path / "model", config=CONFIG | {"num_filters": 5})
    says = r"QuickNAT cannot load .*model\.safetensors: \d+"
    with pytest.raises(ValueError, match=says) as error:
        zoo.from_pretrained(changed)
    assert len(str(error.value).splitlines()) == 12


def test_arguments_that_a_model_refuses():
    vinn, x = small_model("fastsurfer_vinn")
    hypvinn, pair = small_model("hypvinn")
    for call, says in (
        (lambda: zoo.QuickNAT(se_block="both"), "'se_block' must be one of NONE, CSE, SSE, CSSE"),
        (
            lambda: zoo.HypVINN(crop_position="left"),
            r"\[HypVINN\] 'crop_position' must be one of center, top_l",
        ),
        (lambda: zoo.HypVINN(num_channels=13), "'num_channels' must be even"),
        (lambda: vinn(x, [1.0, 1.0, 1.0]), "'scale_factor' must be a number"),
    ):
        with pytest.raises(ValueError, match=says):
            call()
    for scale in (0, -1.0, float("nan"), [[1.0, float("inf")]]):
        with pytest.raises(ValueError, match="'scale_factor' must be positive"):
            vinn(x, scale)
    for weights in (1.0, (1, 0, 0), [[1, 0], [0, 1]]):
        with pytest.raises(ValueError, match="'weight_factor' must be two numbers, the same for"):
            hypvinn(mx.concatenate([pair, pair]), weight_factor=weights)


# Inputs.


@pytest.mark.parametrize("model_type", SMALL)
def test_channels_first_inputs_are_named(model_type):
    model, x = small_model(model_type)
    axes = ", ".join(map(str, [0, *range(2, x.ndim), 1]))
    with pytest.raises(ValueError, match=rf"channels first, pass x.transpose\({axes}\)") as error:
        model(mx.moveaxis(x, -1, 1))
    assert str(error.value).startswith(f"[{type(model).__name__}] inputs must be (N, ")
    assert f", {x.shape[-1]}), channels last, but got " in str(error.value)
    for other in (x[0], mx.concatenate([x, x], axis=-1)):
        with pytest.raises(ValueError, match=r"inputs must be \(N, .*channels last, but got \(\d+"):
            model(other)


def test_export_names_a_wrong_shape_and_leaves_nothing(tmp_path):
    small_model("fastsurfer_vinn")[0].save_pretrained(tmp_path / "vinn")
    file = tmp_path / "new" / "network.mlxfn"
    (line,) = errors_of("export.py", tmp_path / "vinn", file, "--shape", 1, 64, 64, 3)
    says = "[FastSurferVINN] inputs must be (N, H, W, 7), channels last, but got (1, 64, 64, 3)."
    assert line == says
    assert [path.name for path in tmp_path.iterdir()] == ["vinn"]


# Segmenters, and near-ties.


def test_a_segmenter_takes_a_str_and_names_what_it_needs(tmp_path):
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


def test_functional_pools_are_not_recorded():
    x, feed = mx.random.normal((1, 4, 4, 1)), [mx.zeros((1, 2, 2, 1), mx.int32)]
    pool = mlx_unpool.MaxPool2d(2, return_indices=True)
    for calls, says in (
        (lambda: mlx_unpool.max_pool2d(x, 2, return_indices=True), "0 calls .* functions such as"),
        (lambda: [pool(x), pool(x)], "there are more calls"),
    ):
        with pytest.raises(ValueError, match=f"'feed' has 1 arrays, but {says}"):  # noqa: SIM117
            with zoo.pooled_indices(feed):
                calls()
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


def test_converting_stores_classes_plane_and_licence(tmp_path):
    model, x = small_model("fastsurfer_vinn")
    source = save_state(tmp_path / "aparc_vinn_axial_v2.0.0.safetensors", model)
    (tmp_path / "copy.txt").write_text("Apache License\n")
    head = "ID\tLabelName\tR\tG\tB\tA\n0\tUnknown\t0\t0\t0\t0\n"
    (tmp_path / "colours.tsv").write_text(f"{head}2\tLeft-White\t1\t2\t3\t0\n")
    sizes = ["--config", "height=16", "width=32"]
    options = ["--licence", "Apache-2.0", "--licence-file", "copy.txt", "--classes", "colours.tsv"]
    command = ["convert.py", "fastsurfer_vinn", source, "axial", *sizes, *options]
    result = run(*command, "--source", "the authors", cwd=tmp_path)
    assert result.stdout.rstrip().endswith("axial slices")
    again = zoo.from_pretrained(tmp_path / "axial")
    assert mx.array_equal(again(x), model(x))
    expected = ("axial", "Deep-MI/FastSurfer", "the authors")
    assert (again.about.plane, again.about.base_model, again.about.source) == expected
    assert again.about.classes[1] == {"name": "Left-White", "colour": [1, 2, 3], "label": 2}
    assert (tmp_path / "axial" / "LICENSE").read_text() == "Apache License\n"
    assert "Licence of the weights: Apache-2.0" in (tmp_path / "axial" / "README.md").read_text()

    command = [
        "convert.py",
        "fastsurfer_vinn",
        source,
        tmp_path / "x",
        "--plane",
        "coronal",
        *sizes,
    ]
    assert errors_of(*command) == [f"--plane is coronal, but the name of {source} says axial."]
    assert not (tmp_path / "x").exists()
    command[2] = source.rename(tmp_path / "weights.safetensors")
    run(*command)
    about = zoo.from_pretrained(tmp_path / "x").about
    assert (about.plane, about.source) == ("coronal", "weights.safetensors")


def test_a_converted_enet_predicts(tmp_path):
    """With the classes of CamVid and the range of values that the published weights were trained on."""
    mx.random.seed(0)
    source = save_state(tmp_path / "best.safetensors", zoo.ENet(12))
    Image.new("RGB", (24, 16), "red").save(tmp_path / "street.png")
    for name, options in (
        ("default", []),
        ("raw", ["--input", "raw"]),
        ("normalised", ["--input", "normalised"]),
    ):
        run("convert.py", "enet", source, tmp_path / name, *options)
        loaded = segmenter.load(tmp_path / name)
        normalised = loaded.model.about.input["normalisation"] is not None
        assert normalised == (name == "normalised")
        assert [entry["name"] for entry in loaded.classes][:2] == ["sky", "building"]
    street, drawing = tmp_path / "street.png", tmp_path / "classes.png"
    run("camvid_predict.py", tmp_path / "raw", street, "--output", drawing)
    assert drawing.exists()
    source = save_state(tmp_path / "quicknat.safetensors", small_model("quicknat")[0])
    says = "--input is only for models of pictures, not for quicknat."
    assert errors_of("convert.py", "quicknat", source, tmp_path / "q", "--input", "raw") == [says]
    assert not (tmp_path / "q").exists()


def test_converting_other_weights_leaves_nothing(tmp_path):
    source = save_state(tmp_path / "quicknat.safetensors", small_model("quicknat")[0])
    (tmp_path / "empty.txt").write_text("nothing")
    before = sorted(tmp_path.iterdir())
    missing = tmp_path / "missing.pth"
    for words, says in (
        (["fastsurfer_cnn", source, tmp_path / "a" / "b"], str(source)),
        (["quicknat", source, tmp_path / "a", "--config", "num_filters=many"], str(source)),
        (["quicknat", source, tmp_path / "a", "--licence-file", tmp_path / "none"], ""),
        (["quicknat", missing, tmp_path / "a"], f"There is no file {missing}."),
    ):
        lines = errors_of("convert.py", *words)
        assert 0 < len(lines) <= 13
        assert says in lines[-1]
        assert sorted(tmp_path.iterdir()) == before
    assert lines == [says]
    with pytest.raises(ValueError, match="number name red green blue"):
        zoo.read_classes(tmp_path / "empty.txt")
    (tmp_path / "words.txt").write_text("1 see pages 2 3\n4 name 5 6 7 0\n")
    assert zoo.read_classes(tmp_path / "words.txt") == [
        {"name": "name", "colour": [5, 6, 7], "label": 4}
    ]


def test_a_folder_that_cannot_be_written_is_removed_again(tmp_path, monkeypatch):
    model, _ = small_model("quicknat")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mlx_unpool_zoo.model.model_card", full)
    (tmp_path / "old").mkdir()
    for name in ("new", "old"):
        with pytest.raises(OSError, match="No space left"):
            model.save_pretrained(tmp_path / name)
        assert [path.name for path in tmp_path.iterdir()] == ["old"]
