"""Errors of the zoo: each names the file, the key and the allowed values, and no partial result is left."""

from __future__ import annotations

import importlib
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


CONFIGS = [
    ("{", {}, "Expecting property name"),
    ("[1]", {}, "config.json"),
    (None, {"model_type": "unet"}, "'model_type' must be one of .*quicknat"),
    (None, {"num_filters": "4"}, r"num_filters\n  Input should be a valid integer"),
    (None, {"num_filters": -4}, r"num_filters\n  Input should be greater than 0"),
    (None, {"se_block": "both"}, r"se_block\n  Input should be 'NONE', 'CSE', 'SSE' or 'CSSE'"),
    (None, {"depth": 3}, r"depth\n  Unexpected keyword argument"),
    (None, {"drop_out": 2}, "dropout"),
    (None, {"about": {"plane": "oblique"}}, r"plane\n  Input should be 'axial', 'coronal' or"),
    (
        None,
        {"about": {"classes": [{"name": "sky", "colour": [1, 2, 300]}]}},
        r"classes.0.colour.2\n",
    ),
    (
        None,
        {"about": {"input": {"normalisation": {"scale": 1}}}},
        r"normalisation.mean\n  Field req",
    ),
]


@pytest.mark.parametrize(("text", "changes", "says"), CONFIGS, ids=lambda v: str(v)[:40])
def test_errors_of_a_configuration_name_the_file_and_the_key(
    quicknat, tmp_path, text, changes, says
):
    folder = copy_of(quicknat, tmp_path / "model", **changes)
    if text:
        (folder / "config.json").write_text(text)
    with pytest.raises(ValueError, match=says) as error:
        zoo.from_pretrained(folder)
    assert str(error.value).startswith(str(folder / "config.json"))


# Folders, the Hub, damaged files.


def test_models_of_the_hub_are_loaded_and_uploaded_by_its_library(quicknat, monkeypatch):
    model, x = small_model("quicknat")
    calls = []

    def download(name: str, **options: Any) -> str:
        calls.append(options | {"name": name})
        return str(quicknat)

    monkeypatch.setattr("mlx_unpool_zoo.model.snapshot_download", download)
    options = {"revision": "v1.0", "token": "t", "cache_dir": "c", "local_files_only": True}
    assert mx.array_equal(zoo.QuickNAT.from_pretrained("someone/it", **options)(x), model(x))
    assert calls[0].items() >= {"name": "someone/it", **options}.items()

    uploaded = {}

    class Api:
        def __init__(self, **options: Any) -> None:
            pass

        def create_repo(self, repo_id: str, **options: Any) -> Any:
            return types.SimpleNamespace(repo_id=repo_id)

        def upload_folder(self, folder_path: Path, **options: Any) -> str:
            uploaded.update({p.name: p.read_bytes() for p in Path(folder_path).iterdir()})
            return "address"

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", Api)
    assert model.push_to_hub("someone/it") == "address"
    assert uploaded == {path.name: path.read_bytes() for path in quicknat.iterdir()}


def test_damaged_weights_are_refused(quicknat, tmp_path):
    folder = copy_of(quicknat, tmp_path / "model")
    file = folder / "model.safetensors"
    contents = file.read_bytes()
    for damaged in (contents[:-4], contents[9:], b"something else", b""):
        file.write_bytes(damaged)
        with pytest.raises(
            ValueError, match=r"model\.safetensors is damaged, or not a safetensors"
        ):
            zoo.from_pretrained(folder)


def test_a_new_head_keeps_the_other_weights(quicknat):
    model, _ = small_model("quicknat")
    says = r"classifier.conv.weight: \(33, 1, 1, 4\) instead of \(5, 1, 1, 4\)"
    with pytest.raises(ValueError, match=says):
        zoo.from_pretrained(quicknat, num_classes=5)
    with pytest.warns(UserWarning, match="random values: classifier.conv.weight"):
        new = zoo.from_pretrained(quicknat, num_classes=5, ignore_mismatched_sizes=True)
    assert new.config["num_classes"] == 5
    assert new.classifier.conv.weight.shape[0] == 5
    assert mx.array_equal(new.encode1.conv1.weight, model.encode1.conv1.weight)


# Weights.


def test_every_spelling_of_the_number_of_classes():
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
def test_entries_of_the_authors_configurations_are_accepted(model_type, published):
    config = {name.lower(): value for name, value in published.items()}
    state = to_state_dict(small_model(model_type)[0])
    assert zoo.from_pytorch(model_type, state, **config).config["pool"] == 2


IMAGES = {"encoder.0.weight": np.zeros((8, 1, 3, 3)), "encoder.0.bias": np.zeros(8)}
SURPLUS = {f"a{n}": np.zeros(1) for n in range(12)}


@pytest.mark.parametrize(
    ("model_type", "state", "options", "says"),
    [
        ("unet", SURPLUS, {}, r"'model_type' must be one of .*segnet.* but got 'unet'"),
        ("quicknat", None, {"depth": 3}, r"depth\n  Unexpected keyword argument"),
        (
            "quicknat",
            None,
            {"num_classes": "33"},
            r"num_classes\n  Input should be a valid integer",
        ),
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
    assert cause.startswith("QuickNAT cannot load the weights: ")
    changed = copy_of(quicknat, tmp_path / "model", num_filters=5)
    with pytest.raises(ValueError, match=r"QuickNAT cannot load the weights: \d+") as error:
        zoo.from_pretrained(changed)
    assert len(str(error.value).splitlines()) == 12


def test_arguments_that_a_model_refuses():
    vinn, x = small_model("fastsurfer_vinn")
    hypvinn, pair = small_model("hypvinn")
    for call, says in (
        (lambda: zoo.QuickNAT(se_block="both"), "se_block"),
        (lambda: zoo.HypVINN(crop_position="left"), "crop_position"),
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


def test_a_segmenter_names_what_it_needs(tmp_path):
    for name in ("enet", "quicknat"):
        small_model(name)[0].save_pretrained(tmp_path / name)
        with pytest.raises(ValueError, match=r"segments pictures and names its classes"):
            segmenter.load(str(tmp_path / name))


def test_a_prediction_has_the_size_of_the_image():
    model, _ = small_model("enet")
    picture = np.random.default_rng(0).integers(0, 256, (43, 50, 3)).astype(np.uint8)
    classes = model.predict(Image.fromarray(picture))
    assert classes.shape == (1, 43, 50)
    assert np.array_equal(model.predict(np.stack([picture] * 2))[1], classes[0])
    padded = np.pad(picture, [(0, 5), (0, 6), (0, 0)], mode="edge")
    expected = mx.argmax(model(mx.array(padded[None].astype(np.float32))), axis=-1)
    assert np.array_equal(classes, np.array(expected)[:, :43, :50])
    quicknat, _ = small_model("quicknat")
    assert quicknat.predict(np.zeros((40, 30), np.uint8)).shape == (1, 40, 30)
    assert np.allclose(quicknat.preprocess(np.full((4, 4), 255)), 1)


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
    run(*command)
    about = zoo.from_pretrained(tmp_path / "x").about
    assert (about.plane, len(about.classes), about.classes[1]["label"]) == ("coronal", 79, 2)


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
        normalised = loaded.about.input["normalisation"] is not None
        assert normalised == (name == "normalised")
        assert [entry["name"] for entry in loaded.about.classes][:2] == ["sky", "building"]
    street, drawing = tmp_path / "street.png", tmp_path / "classes.png"
    run("camvid_predict.py", tmp_path / "raw", street, "--output", drawing)
    assert drawing.exists()


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
        assert says in "\n".join(lines)
        assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(ValueError, match="number name red green blue"):
        zoo.read_classes(tmp_path / "empty.txt")
    (tmp_path / "words.txt").write_text("1 see pages 2 3\n4 name 5 6 7 0\n")
    assert zoo.read_classes(tmp_path / "words.txt") == [
        {"name": "name", "colour": [5, 6, 7], "label": 4}
    ]


@pytest.mark.parametrize("name", ["huggingface_hub", "numpy", "pydantic", "safetensors"])
def test_an_import_without_the_libraries_says_what_to_install(name, monkeypatch):
    for module in [m for m in sys.modules if m.startswith("mlx_unpool_zoo")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    says = rf'mlx_unpool_zoo needs {name}: pip install "mlx-unpool\[zoo\]"'
    with pytest.raises(ImportError, match=says):
        importlib.import_module("mlx_unpool_zoo")
