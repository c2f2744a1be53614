"""Models of the zoo as folders, what authors publish, and exported models."""

import copy
import json
import pickle
import re
import warnings

import mlx.core as mx
import mlx.nn as nn
import mlx_unpool_zoo as zoo
import pytest
import yaml
from digit_scenes import scenes_to_evaluate
from helpers.programs import ROOT
from helpers.small_models import SMALL, save_state, sizes_of, small_model
from mlx.utils import tree_flatten
from mlx_unpool_zoo.segnet import DECODERS

import mlx_unpool
from mlx_unpool.porting import to_state_dict


@pytest.mark.parametrize("model_type", SMALL)
def test_a_saved_model_comes_back(model_type, tmp_path):
    model, x = small_model(model_type)
    classes = [{"name": "sky", "colour": [128, 128, 128]}] * model.config["num_classes"]
    model.about.classes, model.about.source = classes, "random numbers"
    folder = tmp_path / "a" / "model"
    model.save_pretrained(folder)
    metadata = mx.load(str(folder / "model.safetensors"), return_metadata=True)[1]
    saved = json.loads((folder / "config.json").read_text())
    card = (folder / "README.md").read_text()
    assert {"note": saved["note"]} | json.loads(metadata["config.json"]) == saved
    assert (metadata["format"], saved["model_type"]) == ("mlx", model.model_type)
    assert saved["about"]["classes"] == classes
    assert "licence_text" not in saved["about"]  # but in LICENSE
    assert set(saved["about"]["input"]) == {"normalisation"}
    texts = ("random numbers", "sky", model.facts.paper, "bibtex\n@article{")
    assert [text for text in texts if text not in card] == []
    assert ("**Not for clinical use" in card) == bool(model.facts.notice)

    again = zoo.from_pretrained(folder)
    assert (type(again), again.training, again.about) == (type(model), False, model.about)
    assert json.dumps(again.config) == json.dumps(model.config)
    assert mx.array_equal(again(x), model(x))


@pytest.mark.parametrize("model_type", SMALL)
def test_copies_and_pickles_have_the_configuration(model_type):
    model, x = small_model(model_type)
    assert [*model.config] == [*type(model).__signature__.parameters]
    for again in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert (again.config, again.about) == (model.config, model.about)
        assert again.channels == model.channels
        assert mx.array_equal(again(x), model(x))


@pytest.mark.parametrize("model_type", SMALL)
def test_weights_go_to_pytorch_and_back_and_are_exported(model_type, tmp_path):
    """The shapes determine all arguments except the inner size of VINN."""
    model, x = small_model(model_type)
    state, path = to_state_dict(model, model.pytorch_names), tmp_path / "model.mlxfn"
    again = zoo.from_pytorch(model.model_type, state, **sizes_of(model))
    with mlx_unpool.exporting():  # before a call, which would evaluate the weights
        mx.export_function(str(path), again, x)
    assert mx.array_equal(again(x), model(x))
    assert all(memoryview(value).c_contiguous for _, value in tree_flatten(again.parameters()))
    (scores,) = mx.import_function(str(path))(x)
    assert mx.abs(scores - model(x)).max() < 1e-6 * mx.abs(model(x)).max()


def test_the_card_has_what_the_hub_reads(tmp_path):
    model, _ = small_model("fastsurfer_vinn")
    model = zoo.from_pytorch("fastsurfer_vinn", to_state_dict(model), **sizes_of(model))
    model.about.plane, model.about.licence = "axial", "Apache-2.0"
    model.about.licence_text, model.about.source = "Apache License\n", "Zenodo 10390573"
    model.save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    head, body = re.fullmatch(r"---\n(.*?)\n---\n(.*)", card, re.DOTALL).groups()
    assert yaml.safe_load(head) == {
        "library_name": "mlx-unpool",
        "license": "apache-2.0",
        "license_link": "LICENSE",
        "pipeline_tag": "image-segmentation",
        "tags": ["mlx", "mlx-unpool", "fastsurfer_vinn", "axial"],
    }
    texts = ["# FastSurferVINN for MLX, axial slices", "@article{henschel"]
    texts += ["**Not for clinical use.** For research only; ", "Weights: Zenodo 10390573"]
    assert [text for text in texts if text not in body] == []
    assert (tmp_path / "LICENSE").read_text() == "Apache License\n"
    (tmp_path / "LICENSE").write_text("of another model")
    assert zoo.from_pretrained(tmp_path).about == model.about  # the copy of the licence as well

    model.about.licence, model.about.licence_text = "See Zenodo", ""
    model.about.licence_link = "https://zenodo.org/records/10390573"
    card = str(model.model_card())
    assert "license: other\nlicense_name: See Zenodo\nlicense_link: https://zenodo" in card
    assert "See Zenodo (https://zenodo.org/records/10390573)" in card


def test_a_class_loads_its_own_folders(tmp_path):
    model, x = small_model("fastsurfer_vinn")
    model.save_pretrained(tmp_path)
    assert mx.array_equal(zoo.FastSurferVINN.from_pretrained(str(tmp_path))(x), model(x))
    with pytest.raises(
        ValueError, match=r"be one of quicknat, .* use FastSurferVINN.from_pretrained, or"
    ):
        zoo.QuickNAT.from_pretrained(tmp_path)
    save_state(tmp_path / "model.safetensors", model, {"format": "pt"})  # as published for PyTorch
    assert mx.array_equal(zoo.from_pretrained(tmp_path)(x), model(x))


@pytest.mark.parametrize("dtype", [mx.float16, "bfloat16"], ids=str)
@pytest.mark.parametrize("model_type", SMALL)
def test_models_of_other_types(model_type, dtype, tmp_path):
    model, x = small_model(model_type)
    model.save_pretrained(tmp_path)
    again = zoo.from_pretrained(tmp_path, dtype=dtype)
    wanted = getattr(mx, str(dtype).removeprefix("mlx.core."))
    scores = again(x.astype(wanted))
    assert {v.dtype for _, v in tree_flatten(again.parameters())} == {wanted}
    assert (scores.dtype, scores.shape) == (wanted, model(x).shape)
    assert mx.isfinite(scores.astype(mx.float32)).all()


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=str)
@pytest.mark.parametrize("decoder", DECODERS)
def test_every_decoder_keeps_the_type(decoder, dtype):
    model = zoo.SegNet(3, (4, 4), (1, 1), decoder=decoder).eval()
    model.set_dtype(dtype)
    assert model(mx.zeros((1, 9, 8, 3), dtype)).dtype == dtype


def test_loading_that_is_not_strict_keeps_the_initial_values_of_missing_arrays(tmp_path):
    model, _ = small_model("quicknat")
    model.save_pretrained(tmp_path)
    weights = dict(tree_flatten(model.parameters()))
    weights["head.weight"] = weights.pop("classifier.conv.bias")
    save_state(tmp_path / "model.safetensors", weights, {"format": "mlx"})
    with pytest.raises(ValueError, match=r"missing: classifier.conv.bias; not used: head.weight"):
        zoo.from_pretrained(tmp_path)
    new, ignored = "new random values: classifier.conv.bias", "ignored: head.weight"
    with pytest.warns(UserWarning, match=new), pytest.warns(UserWarning, match=ignored):
        again = zoo.from_pretrained(tmp_path, strict=False)
    assert mx.array_equal(again.encode1.conv1.weight, model.encode1.conv1.weight)


def test_a_quantised_model_comes_back(tmp_path):
    model, x = zoo.QuickNAT(num_filters=64).eval(), mx.random.normal((1, 32, 32, 1))
    bits = {"encode1.SELayer.cSE.fc1": 4, "decode4.SELayer.cSE.fc1": 8}
    chosen = lambda n, _: n in bits and {"group_size": 64, "bits": bits[n], "mode": "affine"}
    nn.quantize(model, class_predicate=chosen)
    model.save_pretrained(tmp_path)
    again = zoo.from_pretrained(tmp_path)
    assert again.decode4.SELayer.cSE.fc1.bits == 8
    assert mx.array_equal(again(x), model(x))


@pytest.mark.parametrize("page", ["docs/zoo.md", "docs/fine_tuning.md", "docs/export.md"])
def test_every_block_of_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Parameters with new random values")
            exec(compile(block, page, "exec"), names)
    assert page != "docs/zoo.md" or names["classes"].shape == (3, 32, 32)


def test_the_page_has_the_number_of_parameters_of_every_model():
    page = (ROOT / "docs" / "zoo.md").read_text()
    rows = re.findall(r"^\| [^|]*, `(\w+)` \|[^|]*\|[^|]*\| ([\d,]+) \|", page, re.MULTILINE)
    networks = [("segnet", zoo.SegNet.vgg16(12))]
    for name, kind in zoo.MODELS.items():
        networks.append((name, kind(12) if name in ("enet", "segnet") else kind()))
    for name, model in networks:
        count = sum(value.size for _, value in tree_flatten(model.trainable_parameters()))
        rows.remove((name, f"{count:,}"))
    assert rows == []


def test_the_network_in_the_package_finds_digits():
    """In the test scenes of its card, whose digits and parts of photographs are new to it."""
    model = zoo.from_pretrained("digits")
    dtypes = {value.dtype for _, value in tree_flatten(model.parameters())}
    assert (dtypes, model.training) == ({mx.float16}, False)
    found = scenes_to_evaluate("test", 100).metrics_of(model)
    assert found["miou"] == pytest.approx(0.836, abs=0.005)
    assert zoo.from_pretrained("digits", dtype="float32").about.classes[4]["name"] == "7"
    card = str(model.model_card())
    assert "license: mit\n" in card
    for source in ("scikit-learn (BSD-3-Clause)", "china.jpg", "flower.jpg", "CC BY 2.0"):
        assert source in card
    assert zoo.SegNet.from_pretrained("digits").config == model.config
