"""Errors of the zoo: each names the file, the key and the allowed values.

No partial result is left.
"""

import importlib
import shutil
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import mlx.core as mx
import mlx.nn as nn
import mlx_unpool_zoo as zoo
import numpy as np
import pytest
import yaml
from helpers.programs import call, environment
from helpers.small_models import (
    SMALL,
    edit_config,
    forget_config,
    save_state,
    sizes_of,
    small_model,
)
from helpers.torch_files import save_checkpoint
from mlx_unpool_zoo.state_dicts import config_of, state_of
from PIL import Image

from mlx_unpool.porting import to_state_dict


@pytest.fixture(scope="module")
def quicknat(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("quicknat")
    small_model("quicknat")[0].save_pretrained(folder)
    return folder


def about_input(**entries: Any) -> dict[str, Any]:
    return {"about": {"input": {"normalisation": {"scale": 1, "mean": [0], "std": [1]} | entries}}}


GREY = {"name": "sky", "colour": [1, 2, 3]}
CONFIGS: list[tuple[Any, str]] = [
    ("{", "Invalid JSON: EOF while parsing an object at line 1 column 1"),
    ("Lizenz für alle", "'utf-8' codec can't decode"),
    ({"model_type": "unet"}, "'model_type' must be one of .*quicknat.*, but got 'unet'"),
    ({"config": {"num_filters": "4"}}, "'num_filters': Input .* valid integer, but got '4'"),
    ({"config": {"num_filters": -4}}, "'num_filters': .* greater than 0, but got -4"),
    ({"config": {"num_filters": 10**9}}, "'num_filters': .* less than or equal to 65536"),
    ({"config": {"se_block": "both"}}, "'se_block': Input should be 'NONE', 'CSE', .* got 'both'"),
    ({"config": {"depth": 3}}, "unexpected keyword argument 'depth'"),
    ({"config": {"drop_out": 2}}, "'drop_out': .* less than 1, but got 2"),
    ({"about": {"plane": "oblique"}}, "'plane': Input should be 'axial', .* got 'oblique'"),
    ({"about": {"licnce": "MIT"}}, "'licnce': Extra inputs are not permitted"),
    ({"about": {"classes": [{"name": "sky", "colour": [1, 2, 300]}]}}, "'classes.0.colour.2':"),
    ({"about": {"classes": [GREY, GREY]}}, "'classes' must have 0 or 33 entries but got 2"),
    (about_input(std=[0]), "'input.normalisation.std.0': .* greater than 0, but got 0"),
    (about_input(mean=[1, 2]), "'mean' must have 1 entries but got 2"),
    (
        {"quantization": {"head": {"bits": 4}}},
        "'quantization' must name Linear layers, but got head",
    ),
]


@pytest.mark.parametrize(("changes", "says"), CONFIGS, ids=lambda v: str(v)[:40])
def test_errors_of_a_configuration_are_one_line_with_the_file_and_the_key(
    quicknat, tmp_path, changes, says
):
    folder = shutil.copytree(quicknat, tmp_path / "model")
    if isinstance(changes, str):
        forget_config(folder)
        (folder / "config.json").write_bytes(changes.encode("latin-1"))
    else:
        edit_config(folder, **changes)
    with pytest.raises(ValueError, match=says) as error:
        zoo.from_pretrained(folder)
    assert str(error.value).startswith(str(folder / "config.json"))
    assert "\n" not in str(error.value)


def test_models_of_the_hub_are_loaded_by_its_library(quicknat, monkeypatch):
    model, x = small_model("quicknat")
    download = mock.Mock(return_value=str(quicknat))
    monkeypatch.setattr("mlx_unpool_zoo.saving.snapshot_download", download)
    options = {"revision": "v1.0", "token": "t", "cache_dir": "c", "local_files_only": True}
    assert mx.array_equal(zoo.QuickNAT.from_pretrained("someone/it", **options)(x), model(x))
    files = ["config.json", "model.safetensors", "LICENSE"]
    download.assert_called_once_with("someone/it", allow_patterns=files, **options)


def test_weights_of_other_types_or_not_finite_are_refused_by_name(quicknat, tmp_path):
    folder = shutil.copytree(quicknat, tmp_path / "model")
    state = to_state_dict(small_model("quicknat")[0])
    finite = "the weights must be finite, but these are not"
    for value, dtype, says in (
        (np.zeros(33, np.int32), "float32", "type mlx.core.int32 instead of mlx.core.float32"),
        (np.full(33, 1e6, np.float32), "float16", finite),
        (np.full(33, np.nan, np.float32), "float32", finite),
    ):
        state["classifier.conv.bias"] = value
        save_state(folder / "model.safetensors", state, {"format": "pt"})
        with pytest.raises(ValueError, match=f"{says}: classifier.conv.bias"):
            zoo.from_pytorch("quicknat", state, dtype=dtype)
        with pytest.raises(ValueError, match=f"model.safetensors.*{says}: classifier.conv.bias"):
            zoo.from_pretrained(folder, dtype=dtype)


def test_a_new_head_keeps_the_other_weights(quicknat, tmp_path):
    model, _ = small_model("quicknat")
    model.about.classes = [GREY] * 33
    model.save_pretrained(tmp_path)
    for dtype in ("int8", mx.int8, np.float32):
        with pytest.raises(
            ValueError, match=r"'dtype' must be one of float32, .*, float64 but got"
        ):
            zoo.from_pretrained(tmp_path, dtype=dtype)
    says = (
        r"shape \(33, .* instead of \(5, .* classifier.conv.weight; .* ignore_mismatched_sizes=True"
    )
    with pytest.raises(ValueError, match=says):
        zoo.from_pretrained(tmp_path, num_classes=5)
    with pytest.warns(UserWarning, match="new random") as warned:
        new = zoo.from_pretrained(tmp_path, num_classes=5, ignore_mismatched_sizes=True)
    names = "classifier.conv.weight, classifier.conv.bias"
    assert [str(w.message) for w in warned] == [f"Parameters with new random values: {names}"]
    assert (new.config["num_classes"], new.about.classes) == (5, [])
    assert new.classifier.conv.weight.shape[0] == 5
    assert mx.array_equal(new.encode1.conv1.weight, model.encode1.conv1.weight)
    edit_config(tmp_path, pipeline="x")
    with pytest.warns(UserWarning, match=r"Unknown keys of config.json: pipeline"):
        zoo.from_pretrained(tmp_path)


def test_a_name_that_is_neither_a_folder_nor_on_the_hub(quicknat, tmp_path, monkeypatch):
    monkeypatch.chdir(quicknat.parent)
    for name in (f"{quicknat.name}/config.json", tmp_path / "none", "none"):
        with pytest.raises(ValueError, match=f"There is no folder {name}. Pass a folder, owner"):
            zoo.from_pretrained(name)

    folder = shutil.copytree(quicknat, tmp_path / "run" / "it")
    says = f"no model.safetensors in the folder .*/run: did you mean {folder}\\?$"
    with pytest.raises(OSError, match=says):
        zoo.from_pretrained(tmp_path / "run")
    download = mock.Mock(side_effect=OSError("401 Client Error"))
    monkeypatch.setattr("mlx_unpool_zoo.saving.snapshot_download", download)
    with pytest.raises(OSError, match=r"no folder owner/name, .* Hub says: 401 Client Error"):
        zoo.from_pretrained("owner/name")


@pytest.mark.parametrize(
    ("model_type", "published"),
    {
        "quicknat": {"CLASSES": 33},
        "fastsurfer_cnn": {"NUM_CLASSES": 5, "STRIDE_CONV": 1, "LOSS_FUNC": "combined"},
        "cerebnet": {"NUM_CLASS": 5, "HEIGHT": 128, "DILATION": 1, "WEIGHT_MASK": True},
        "hypvinn": {"HEIGHT": 16, "WIDTH": 32, "MODE": "t1t2", "MULTI_AUTO_W": True},
    }.items(),
)
def test_the_authors_configurations_are_accepted_as_arguments_and_in_a_checkpoint(
    model_type, published
):
    model, _ = small_model(model_type)
    state = to_state_dict(model)
    config = {n.lower(): v for n, v in published.items()}
    section = {"MODEL": published, "TRAIN": {"HEIGHT": 1}}
    assert zoo.from_pytorch(model_type, state, **config).config == model.config
    for own in (config, section, yaml.safe_dump(section)):
        assert (
            zoo.from_pytorch(model_type, {"model_state": state, "config": own}).config
            == model.config
        )
    merge = "depth: &a {}\nb: {<<: *a}"  # merges may take forever
    for unreadable in ("{", "[" * 5000, 3, None, merge):
        assert config_of({"config": unreadable}) == {}
        zoo.from_pytorch(
            model_type, {"model_state": state, "config": unreadable}, **sizes_of(model)
        )


IMAGES = {"encoder.0.weight": np.zeros((8, 1, 3, 3))}
STATE = to_state_dict(small_model("quicknat")[0])
OTHER = {n: v for n, v in STATE.items() if n != "decode2.prelu.weight"} | {"a\nb": np.zeros(2)}
FEW = {name: value for name, value in OTHER.items() if name.startswith(("encode1", "class"))}
MISFITS: list[tuple[str, Any, dict[str, Any], str]] = [
    ("unet", IMAGES, {}, r"'model_type' must be one of .*segnet.* but got 'unet'"),
    ("quicknat", STATE, {"num_classes": "33"}, "'num_classes': Input should be a valid integer"),
    (
        *("quicknat", IMAGES, {}),
        "names of ai-med/quick.* no 'encode1.conv1.weight' but encoder.0.weight",
    ),
    ("quicknat", STATE, {"num_filters": 5}, r"^QuickNAT cannot load .*: shape.*; ... and \d+ more"),
    ("quicknat", OTHER, {}, r": missing: decode2.prelu.weight; not used: a\\nb\. The"),
    (
        *("quicknat", FEW, {}),
        r"(missing: [\w.]+; ){3}... and \d+ more\. .*those of ai-med/quickNAT_pytorch\.$",
    ),
    (
        *("cerebnet", STATE, {}),
        "not weights of cerebnet with the names of Deep-MI/FastSurfer: there is no",
    ),
]


@pytest.mark.parametrize(
    ("model_type", "state", "options", "says"), MISFITS, ids=lambda v: str(v)[:20]
)
def test_weights_that_do_not_fit(model_type, state, options, says):
    with pytest.raises(ValueError, match=says):
        zoo.from_pytorch(model_type, state, **options)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = [nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)], nn.Conv2d(8, 5, 1)


def test_the_prefix_of_data_parallel_is_removed_before_names_are_read():
    assert zoo.SegNet.canonical({"module.features.3.bias": 1}) == {"encoder.0.1.conv.bias": 1}


def test_warnings_are_about_the_line_of_the_caller():
    model = zoo.ENet(3)
    state = {
        f"model.{name}": value for name, value in to_state_dict(model, model.pytorch_names).items()
    }
    both = {"state_dict": state, "other": state}
    for call_it in (lambda: zoo.from_pytorch("enet", both), lambda: zoo.ENet.from_pytorch(both)):
        with pytest.warns(UserWarning, match="^Removed 'model.'|^Used 'state_dict'") as warned:
            call_it()
        lines = {(warning.filename, warning.lineno) for warning in warned}
        assert (len(warned), lines) == (2, {(__file__, call_it.__code__.co_firstlineno)})


STATE_OF_NET = to_state_dict(Net())
CHECKPOINTS = {
    "Lightning": {"state_dict": {f"module.{name}": value for name, value in STATE_OF_NET.items()}},
    "FastSurfer": {"model_state": STATE_OF_NET},
    "no model but a state dict": {"model": None, "state_dict": STATE_OF_NET},
    "no model but its settings": {
        "model": {"name": "net", "layers": 5},
        "state_dict": STATE_OF_NET,
    },
    "BasicSR": {"params": STATE_OF_NET},
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_state_dict_is_found_under_the_usual_keys(name):
    moments = {"state": {0: {"exp_avg": np.ones(2, np.float32)}}, "param_groups": []}
    rest = {"optimizer": moments, "optimizer_state": {"state": {}}, "epoch": 3, "losses": [0.5]}
    rest |= {"rng": {"cpu": np.ones(9, np.uint8)}, "acc": np.ones((), np.float32)}
    assert len(state_of(CHECKPOINTS[name] | rest)) == 6


def test_another_state_dict_beside_a_usual_key_is_named():
    with pytest.warns(
        UserWarning, match="^Used 'state_dict' .*, not state_dict_ema. Choose one with --key"
    ):
        state_of({"state_dict": STATE_OF_NET, "state_dict_ema": STATE_OF_NET})


@pytest.mark.parametrize(
    "checkpoint", [{"G": STATE_OF_NET, "D": STATE_OF_NET}, {"G": {}, "D": {"a": {}}}]
)
def test_without_a_usual_key_the_error_lists_the_keys(checkpoint):
    says = (
        r"under the usual keys \(state_dict, .*\) but the keys G, D\. "
        r"Choose one with --key NAME .*=NAME"
    )
    with pytest.raises(ValueError, match=says):
        state_of(checkpoint | {"epoch": 3})


def test_arrays_beside_a_dict_of_arrays_are_the_state_dict():
    with pytest.warns(UserWarning, match="entries that are not arrays: statistics"):
        assert state_of(STATE_OF_NET | {"statistics": STATE_OF_NET}) == STATE_OF_NET


def test_the_converter_leaves_out_arrays_and_chooses_a_key_on_request(tmp_path):
    model = zoo.SegNet(5, coarse=False)
    state = {f"model.{name}": np.array(value) for name, value in to_state_dict(model).items()}
    path, both = tmp_path / "run.ckpt", {"G": state | {"criterion.weight": np.ones(5)}, "D": state}
    save_checkpoint(path, {"runs": both})
    command = ["convert", "segnet", path, tmp_path / "out"]
    assert "but the keys runs. Choose one with --key NAME" in call(*command, status=1).stderr
    assert "but the keys G, D. Choose" in call(*command, "--key", "runs", status=1).stderr
    assert "no key 'E' but G, D. Choose" in call(*command, "--key", "runs/E", status=1).stderr
    warnings.filterwarnings("ignore", "Removed 'model.'|Entries that are ignored: criterion.weight")
    printed = call(*command, "--key", "runs/G", status=1).stderr
    assert printed.endswith(
        "not used: criterion.weight. --no-strict leaves out arrays that are not used.\n"
    )
    call(*command, "--key", "runs/G", "--no-strict")
    assert mx.array_equal(
        zoo.from_pretrained(tmp_path / "out").classifier.weight, model.classifier.weight
    )
    del state["model.classifier.bias"]
    save_checkpoint(path, state)
    assert "missing: classifier.bias" in call(*command, "--no-strict", status=1).stderr
    encoder = {n.removeprefix("model."): value for n, value in state.items() if "encoder" in n}
    save_checkpoint(path, encoder)
    printed = call(*command, status=1).stderr
    assert printed.endswith(
        "Pass --config num_classes=VALUE, for example --config num_classes=12.\n"
    )


def test_arguments_that_a_model_refuses():
    vinn, x = small_model("fastsurfer_vinn")
    hypvinn, pair = small_model("hypvinn")
    for refused, says in (
        (lambda: zoo.HypVINN(crop_position="left"), "crop_position"),
        (lambda: zoo.HypVINN(num_channels=13), "'num_channels' must be even"),
        (
            lambda: zoo.HypVINN(27, 14, 80, "6"),
            "'num_filters_interpol': Input should be a valid integer",
        ),
        (lambda: zoo.SegNet(2, (4, 6), (1, 2, 2)), "must have the same length, but got"),
        (lambda: vinn(x, [1.0, 1.0, 1.0]), "'scale_factor' must be positive: a number"),
        (lambda: vinn(x, [[1.0, float("nan")]]), "'scale_factor' must be positive"),
        (
            lambda: zoo.SegNet(2).predict(np.zeros((3, 3, 3), np.uint8)),
            r"at least 8 pos.* \(1, 3, 3, 3\)",
        ),
        (lambda: zoo.QuickNAT(pool=3).predict(np.zeros((3, 3), np.uint8)), "at least 31 positions"),
    ):
        with pytest.raises(ValueError, match=says):
            refused()
    with pytest.raises(
        TypeError, match=r"^\[ENet\] missing .* 'num_classes', and got 'classes'; the arg"
    ):
        zoo.ENet(classes=3)
    with pytest.raises(ValueError, match="'weight_factor' must be two numbers, the same for"):
        hypvinn(mx.concatenate([pair, pair]), weight_factor=[[1, 0], [0, 1]])


def test_channels_first_inputs_are_named():
    for model_type in SMALL:
        model, x = small_model(model_type)
        kind, channels = type(model).__name__, x.shape[-1]
        with pytest.raises(
            TypeError, match=r"must be arrays of MLX, but got ndarray: pass mx.array"
        ):
            model(np.array(x))
        start = rf"^\[{kind}\] inputs must be \(N, .*, {channels}\), channels last, but got \("
        axes = ", ".join(map(str, [0, *range(2, x.ndim), 1]))
        with pytest.raises(
            ValueError, match=rf"{start}.* channels first, pass x.transpose\({axes}\)"
        ):
            model(mx.moveaxis(x, -1, 1))
        for other in (x[0], mx.concatenate([x, x], axis=-1)):
            with pytest.raises(ValueError, match=rf"{start}\d+"):
                model(other)


def test_converting_stores_classes_plane_and_licence(tmp_path, monkeypatch):
    model, x = small_model("fastsurfer_vinn")
    source = save_state(tmp_path / "aparc_vinn_axial_v2.0.0.safetensors", model)
    monkeypatch.chdir(tmp_path)
    Path("copy.txt").write_text("Apache License\n")
    rows = [f"{n}\tClass-{n}\t1\t2\t{n}\t0\n" for n in range(2, 80)]
    table = "ID\tLabelName\tR\tG\tB\tA\n0\tUnknown\t0\t0\t0\t0\n"
    Path("colours.tsv").write_text(table + "".join(rows))
    command = ["convert", "fastsurfer_vinn", source]
    sizes = ["--config", "height=16", "width=32"]
    options = ["--licence", "Apache-2.0", "--licence-file", "copy.txt", "--classes", "colours.tsv"]
    call(*command, "axial", *sizes, *options, "--plane", "axial", "--source", "the authors")
    again = zoo.from_pretrained("axial")
    assert mx.array_equal(again(x), model(x))
    assert (again.about.plane, again.about.source) == ("axial", "the authors")
    assert again.about.classes[1] == {"name": "Class-2", "colour": [1, 2, 2], "label": 2}
    assert Path("axial/LICENSE").read_text() == "Apache License\n"
    assert "Licence of the weights: Apache-2.0" in Path("axial/README.md").read_text()
    call(*command, "x", *sizes)
    about = zoo.from_pretrained("x").about
    assert (about.plane, len(about.classes), about.classes[1]["label"]) == (None, 79, 2)


def test_a_converted_enet_has_the_classes_of_camvid_and_the_range_of_its_training(tmp_path):
    source = save_state(tmp_path / "best.safetensors", zoo.ENet(12))
    for name in ("normalised", "raw"):
        call("convert", "enet", source, tmp_path / name, "--input", name)
        about = zoo.from_pretrained(tmp_path / name).about
        assert (about.input["normalisation"] is not None) == (name == "normalised")
        assert about.classes == zoo.CAMVID
    street = tmp_path / "street.png"
    Image.new("RGB", (24, 16), "red").save(street)
    call("predict", tmp_path / "raw", street, "--output", tmp_path / "classes.png")
    with Image.open(tmp_path / "classes-street.png") as labels:
        colours = np.reshape(labels.getpalette(), (-1, 3))
    assert colours[:12].tolist() == [entry["colour"] for entry in zoo.CAMVID]
    printed = call("predict", tmp_path / "raw", street, street, status=1).stderr
    assert printed == f"images must have different names, but got {street}, {street}.\n"


def test_converting_other_weights_leaves_nothing(tmp_path):
    source = save_state(tmp_path / "quicknat.safetensors", small_model("quicknat")[0])
    missing, folder, words = tmp_path / "missing.pth", tmp_path / "a" / "b", tmp_path / "words.txt"
    words.write_text("nothing")
    before = sorted(tmp_path.iterdir())
    for options, says in (
        (["fastsurfer_cnn", source, folder], str(source)),
        (["quicknat", source, folder, "--config", "num_filters=many"], str(source)),
        (["quicknat", source, folder, "--licence-file", tmp_path / "none"], "none"),
        (["quicknat", source, folder, "--classes", words], "number name red green blue"),
        (["quicknat", missing, folder], f"No such file or directory: '{missing}'"),
    ):
        (line,) = call("convert", *options, status=1).stderr.splitlines()
        assert says in line
        assert sorted(tmp_path.iterdir()) == before
    folder = tmp_path / "published"
    folder.mkdir()
    weights = save_state(folder / "model.safetensors", small_model("quicknat")[0])
    before = weights.read_bytes()
    (line,) = call("convert", "quicknat", weights, folder, status=1).stderr.splitlines()
    assert line == f"{weights} would be replaced: pass another folder than {folder}."
    assert weights.read_bytes() == before
    words.write_text("1 see pages 2 3\n4 name 5 6 7 0\n")
    assert zoo.read_classes(words) == [{"name": "name", "colour": [5, 6, 7], "label": 4}]


@pytest.fixture
def not_imported(monkeypatch) -> None:
    for module in [m for m in sys.modules if m.startswith("mlx_unpool_zoo")]:
        monkeypatch.delitem(sys.modules, module)


@pytest.mark.usefixtures("not_imported")
def test_an_import_without_the_libraries_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    says = (
        r"mlx_unpool_zoo needs safetensors, .* extra \[zoo\] .* "
        r'pip install "mlx-unpool\[zoo.*\] @ git'
    )
    for name in ("from_pretrained", "read_state"):
        with pytest.raises(ImportError, match=says):
            getattr(importlib.import_module("mlx_unpool_zoo"), name)


@pytest.mark.usefixtures("not_imported")
def test_weights_are_read_without_most_packages(monkeypatch, tmp_path):
    for package in ("huggingface_hub", "pooch", "requests", "tflite", "pydantic", "yaml", "PIL"):
        monkeypatch.setitem(sys.modules, package, None)
    package, path = importlib.import_module("mlx_unpool_zoo"), tmp_path / "weights.pkl"
    save_checkpoint(path, {"weight": np.ones((3, 2))})
    assert package.read_state(path)["weight"].shape == (3, 2)
    with pytest.raises(ImportError, match=r"needs \w+, which the extra"):
        _ = package.from_pretrained
    assert set(package.__all__) == set(dir(package))


PICTURES = """
    import sys
    from pathlib import Path
    for package in ("matplotlib", "pi_heif", "pillow_heif", "sklearn", "scipy", "torch"):
        sys.modules[package] = None
    import mlx_unpool_zoo as zoo
    import mlx_unpool_zoo.data
    from mlx_unpool_zoo.data.pictures import read_picture
    from PIL import Image
    Image.new("RGB", (16, 8)).save("a.png")
    model = zoo.SegNet(3, (4,), (1,)).eval()
    assert read_picture(Path("a.png"), model).shape == (8, 16, 3)
    assert model.predict(Image.open("a.png")).shape == (8, 16)
"""


def test_pictures_are_read_with_the_packages_of_the_extra_zoo_alone(tmp_path):
    """Of the packages of other extras and groups, none is needed."""
    command = [sys.executable, "-c", textwrap.dedent(PICTURES)]
    subprocess.run(command, cwd=tmp_path, env=environment(), check=True)
