"""Models of the zoo as folders, what authors publish, and exported models."""

import copy
import json
import pickle
import re
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_unpool_zoo as zoo
import numpy as np
import pytest
import yaml
from helpers.programs import ROOT
from helpers.small_models import SMALL, save_state, sizes_of, small_model
from mlx.utils import tree_flatten
from mlx_unpool_zoo.near_ties import pooled_indices
from mlx_unpool_zoo.pytorch import to_state_dict

import mlx_unpool


@pytest.mark.parametrize("model_type", SMALL)
def test_a_saved_model_comes_back(model_type, tmp_path):
    model, x = small_model(model_type)
    classes = [{"name": "sky", "colour": [128, 128, 128]}] * model.config["num_classes"]
    model.about.classes, model.about.source = classes, "random numbers"
    folder = tmp_path / "a" / "model"
    model.save_pretrained(folder)
    metadata = mx.load(str(folder / "model.safetensors"), return_metadata=True)[1]
    saved, card = json.loads((folder / "config.json").read_text()), (folder / "README.md").read_text()
    assert json.loads(metadata["config.json"]) | {"saved": metadata["crc32"]} == saved
    assert (metadata["format"], saved["model_type"]) == ("mlx", model.model_type)
    assert saved["about"]["classes"] == classes
    assert "licence_text" not in saved["about"]  # but in LICENSE
    assert set(saved["about"]["input"]) == {"planes", "size", "multiple_of", "normalisation"}
    assert model.about.paper
    texts = ("random numbers", "sky", model.about.paper, "bibtex\n@article{")
    assert [text for text in texts if text not in card] == []
    assert ("**Not for clinical use" in card) == bool(model.facts.notice)

    again = zoo.from_pretrained(folder)
    assert (type(again), again.training, again.about) == (type(model), False, model.about)
    assert json.dumps(again.config) == json.dumps(model.config)
    assert mx.array_equal(again(x), model(x))


@pytest.mark.parametrize("model_type", SMALL)
def test_copies_and_pickles_have_the_configuration(model_type):
    """But mlx.nn.MaxPool2d, which ENet has, cannot be pickled."""
    model, x = small_model(model_type)
    assert [*model.config] == [*type(model).__signature__.parameters]
    pickled = [pickle.loads(pickle.dumps(model))] if model_type != "enet" else []
    for again in (copy.copy(model), *pickled):
        assert (again.config, again.about, again.channels) == (model.config, model.about, model.channels)
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
    texts = ["# FastSurferVINN for MLX, axial slices", "**Not for clinical use.** For research only; "]
    texts += ["@article{henschel", "Weights: Zenodo 10390573"]
    texts += [f"Converted by: mlx_unpool {mlx_unpool.__version__}"]
    assert [text for text in texts if text not in body] == []
    assert (tmp_path / "LICENSE").read_text() == "Apache License\n"
    (tmp_path / "LICENSE").write_text("of another model")
    assert zoo.from_pretrained(tmp_path).about == model.about  # the copy of the licence as well

    model.about.licence, model.about.licence_text, model.about.base_model = "See Zenodo", "", "some/one"
    model.about.licence_link = "https://zenodo.org/records/10390573"
    card = str(model.model_card())
    assert "license: other\nlicense_name: See Zenodo\nlicense_link: https://zenodo" in card
    assert re.search(r"base_model: some/one\n(.|\n)*See Zenodo \(https://zenodo.org/records/10390573\)", card)


def test_a_class_loads_its_own_folders(tmp_path):
    model, x = small_model("fastsurfer_vinn")
    model.save_pretrained(tmp_path)
    assert mx.array_equal(zoo.FastSurferVINN.from_pretrained(str(tmp_path))(x), model(x))
    with pytest.raises(ValueError, match=r"be one of quicknat, .* use FastSurferVINN.from_pretrained, or"):
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


@pytest.mark.parametrize("page", ["docs/porting.md", "docs/zoo.md", "docs/fine_tuning.md"])
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
    entries = re.findall(r"^- \*\*\w+\*\*, `(\w+)`(.*?)\n(?=\n|- )", page, re.MULTILINE | re.DOTALL)
    rows = {name: re.findall(r"\d+(?:,\d{3})+", text) for name, text in entries}
    for name, kind in zoo.MODELS.items():
        models = [kind(12) if name in ("enet", "segnet") else kind()]
        models += [zoo.SegNet.vgg16(12)] if name == "segnet" else []
        counts = [sum(v.size for _, v in tree_flatten(m.trainable_parameters())) for m in models]
        assert [f"{count:,}" for count in counts] == rows.pop(name), name
    assert (rows, {name.partition(",")[0] for name in SMALL}) == ({}, set(zoo.MODELS))


class Port(nn.Module):
    """Unpools an image, whose first two elements are equal, after pooling."""

    def __init__(self, data_format: str) -> None:
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
    options = {"loss": lambda full: mx.square(full).sum(), "gradients": {"image": gradient, "a": None}}
    comparison = zoo.compare_port(port, [1.0], scores, [other], **options)
    assert (comparison.layers, comparison.flips, comparison.gap) == (["pool"], [3], 0)
    assert (comparison.scores, comparison.gradients) == (0, {"image": 0})
    assert zoo.compare_port(nn.Linear(2, 2), [mx.zeros(2)], mx.arange(2), []).gap is None
    shape = port.image.shape if data_format == "channels_last" else (1, 4, 6, 3)
    converted = mx.array(other), "flat", "tensorflow", shape[1:3]
    theirs = np.array(mlx_unpool.convert_indices(*converted, data_format=data_format))
    assert zoo.compare_port(port, [1.0], scores, [theirs], format="tensorflow", **options) == comparison
    for wrong in (theirs, np.full_like(other, -1)):
        assert zoo.compare_port(port, [1.0], scores, [wrong]).gap > 0.01
    with pooled_indices([other]):  # without the values there
        ours = nn.value_and_grad(port, lambda: mx.square(port(1.0)).sum())()[1]["image"]
    assert not np.allclose(ours, gradient)
    comparison = zoo.compare_port(port, [-1.0], scores, [other])
    assert min(comparison.flips[0] / 18, comparison.gap, comparison.scores) > 0.3
    with pytest.raises(TypeError, match=r"such as \[mx.array\(x\)\], but got a list with ndarray\.$"):
        zoo.compare_port(port, [np.ones(2)], scores, [other])
    unknown = {"loss": mx.sum, "gradients": {"bias": np.ones(2)}}
    for theirs, indices, extra, says in (
        (scores, other, unknown, "these 'gradients': bias"),
        (scores, other, {"loss": mx.sum}, "'loss' and 'gradients' must be given together"),
        (np.zeros(2), other, {}, r"'scores' must have the shape \(1, .* but got \(2,\)"),
        (scores, other[0], {}, r"call 1 got \(\d, \d, \d\) instead of \(1, "),
    ):
        with pytest.raises(ValueError, match=says):
            zoo.compare_port(port, [1.0], theirs, [indices], **extra)
    with pytest.raises(ValueError, match=r"'feed' has 1 arrays, but 0 calls"), pooled_indices([other]):
        mlx_unpool.max_pool2d(port.image, 2, return_indices=True)
    with pooled_indices([other]), pytest.raises(ValueError, match="1 arrays, but there are more calls"):
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
    assert set(zoo.compare_port(model, [x], model(x), []).outputs.values()) == {0}
    y = np.array(model.layer(x))
    found = zoo.compare_port(model, [x], make(y, 3 * y), [])
    assert (found.scores, [*found.outputs]) == (
        max(found.outputs.values()),
        [name, *set(found.outputs) - {name}],
    )
    assert f"; scores {found.scores:.2g} ({name}); " in str(found)
    with pytest.raises(ValueError, match=rf"^'{name}' must have the shape \(4, 2\) but got \(2,\)\.$"):
        zoo.compare_port(model, [x], make(y, y[0]), [])
    with pytest.raises(ValueError, match=r"^'scores.*' must have the shape \(4, 2\) but got None\.$"):
        zoo.compare_port(model, [x], [y], [])


def test_constant_scores_have_no_range_and_gradients_of_zero_are_an_error():
    x, model = mx.random.normal((4, 3)), Several(lambda y: nn.relu(y - 1e3))
    for value, difference in ((0, 0), (4, 1), (-4, 1)):
        found = zoo.compare_port(model, [x], np.full((4, 2), value), [])
        assert (found.scores, found.constant) == (difference, ["scores"])
        assert f"; scores {difference}; constant: scores; gradients none" in str(found)
    assert zoo.compare_port(Several(lambda y: 0 * y + 2), [x], np.zeros((4, 2)), []).scores == 2
    gradients = {"layer.weight": np.zeros((2, 3)), "layer.bias": np.zeros(2)}
    with pytest.raises(ValueError, match=r"^all 'gradients' are 0, so nothing can be compared: use"):
        zoo.compare_port(model, [x], np.zeros((4, 2)), [], loss=mx.sum, gradients=gradients)


def test_each_thread_records_its_own_calls_of_a_pool_in_common():
    pool, meeting = mlx_unpool.MaxPool2d(2, return_indices=True, index_format="window"), threading.Barrier(2)

    def recorded(calls: int) -> list[tuple[int, ...]]:
        with pooled_indices() as found:
            meeting.wait()
            for n in range(calls):
                assert pool(mx.zeros((1, 4, 2 * calls, n + 1)))[1].dtype == mx.int32
            meeting.wait()
        return [indices.shape for indices in found]

    with ThreadPoolExecutor(3) as threads:
        others, more = threads.submit(recorded, 2), threads.submit(recorded, 3)
        assert pool(mx.zeros((1, 4, 4, 1)))[1].dtype == mx.uint8  # in this thread, nothing is replaced
        assert others.result() == [(1, 2, 2, 1), (1, 2, 2, 2)]
        assert more.result() == [(1, 2, 3, 1), (1, 2, 3, 2), (1, 2, 3, 3)]
