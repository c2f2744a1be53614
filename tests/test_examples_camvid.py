"""The programs for street scenes: data, weights from PyTorch, training and prediction."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import camvid_train
import mlx.core as mx
import mlx.nn as nn
import mlx_unpool_zoo as zoo
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_unpool_zoo.enet import ENet
from mlx_unpool_zoo.near_ties import pooled_indices
from mlx_unpool_zoo.pytorch import convert_state_dict, read_state, to_state_dict
from mlx_unpool_zoo.segnet import segnet_vgg16, vgg16_names
from PIL import Image
from programs import call
from small_models import randomised, save_state
from support import segmenter as segmenters
from support import street_scenes, training
from support.camvid import CLASS_NAMES, UNLABELLED, CamVid
from support.segmenter import for_camvid

ROOT = Path(__file__).parent.parent
# A published checkpoint, two pictures of CamVid, and the scores and classes of PyTorch for them.
ENET_CAMVID = Path(os.environ.get("ENET_CAMVID", ROOT.parent / "shared" / "enet_camvid"))


@pytest.fixture(scope="module")
def streets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streets")
    street_scenes.write_streets(folder, {"train": 6, "val": 2, "test": 2}, size=(70, 53))
    return folder


# Data.


def test_drawn_streets_are_a_camvid_folder_with_all_classes(streets):
    data = CamVid(streets, "train")
    picture, classes = data[0]
    assert len(data) == 6
    assert picture.shape == (53, 70, 3)
    assert picture.dtype == classes.dtype == np.uint8
    seen = set(np.unique([data[n][1] for n in range(len(data))]))
    assert seen == set(range(len(CLASS_NAMES))) - {UNLABELLED}


def camvid_folder(folder: Path, pictures: list[str], labels: dict[str, np.ndarray]) -> Path:
    for name in ("train", "trainannot"):
        (folder / name).mkdir()
    for name in pictures:
        Image.new("RGB", (4, 3)).save(folder / "train" / name)
    for name, classes in labels.items():
        Image.fromarray(classes.astype(np.uint8)).save(folder / "trainannot" / name)
    return folder


def test_what_a_folder_lacks_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"it has no val/.*trainannot, valannot, testannot"):
        CamVid(tmp_path, "val")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="has no PNG files"):
        CamVid(camvid_folder(tmp_path / "empty", [], {}), "train")
    camvid_folder(tmp_path, ["a.png", "b.png"], {"a.png": np.zeros((3, 4))})
    with pytest.raises(ValueError, match=r"train and trainannot of .* differ in b.png"):
        CamVid(tmp_path, "train")


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (np.full((3, 4), 12), "has class 12; the last one is 11"),
        (np.zeros((4, 3)), r"one class number per pixel of its picture, \(3, 4\), but .*\(4, 3\)"),
        (np.zeros((3, 4, 3)), r"its shape is \(3, 4, 3\)"),
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path, classes, message):
    data = CamVid(camvid_folder(tmp_path, ["a.png"], {"a.png": classes}), "train")
    with pytest.raises(ValueError, match=message):
        data[0]


def test_rare_classes_weigh_more_and_unlabelled_pixels_nothing(tmp_path):
    labels = {"a.png": np.zeros((3, 4)), "b.png": np.full((3, 4), UNLABELLED)}
    labels["a.png"][0, :3] = 1
    data = CamVid(camvid_folder(tmp_path, ["a.png", "b.png"], labels), "train")
    assert data.class_shares().tolist() == [9 / 24, 3 / 24, *[0] * 9, 12 / 24]
    weights = camvid_train.class_weights(data)
    assert weights[:3] == pytest.approx([1 / np.log(v) for v in (1.395, 1.145, 1.02)])
    assert weights[UNLABELLED] == 0


def test_an_epoch_has_every_picture_once_mirrored_with_its_labels(streets):
    data, segmenter = CamVid(streets, "train"), for_camvid("enet", inputs="raw")
    originals = [(p[:48, :64], c[:48, :64]) for p, c in (data[n] for n in range(6))]
    batches = camvid_train.training_batches(data, 2, segmenter, seed=0)
    epochs = [[next(batches) for _ in range(3)] for _ in range(2)]
    orders, mirrored = [], set()
    for epoch in epochs:
        order = []
        for pictures, classes in epoch:
            assert pictures.shape == (2, 48, 64, 3)  # multiples of 8, for ENet
            for picture, named in zip(np.array(pictures), np.array(classes)):
                for number, (p, c) in enumerate(originals):
                    for step in (1, -1):
                        if np.array_equal(p[:, ::step], picture):
                            assert np.array_equal(c[:, ::step], named)
                            order.append(number)
                            mirrored.add(step)
        assert sorted(order) == list(range(6))
        orders.append(order)
    assert orders[0] != orders[1]
    assert mirrored == {1, -1}


# Weights from PyTorch.


def test_a_missing_a_left_over_and_a_misshapen_weight_are_named():
    model = ENet(12)
    state = to_state_dict(model, ENet.pytorch_names)
    assert len(convert_state_dict(model, state, ENet.pytorch_names)) == len(
        tree_flatten(model.parameters())
    )
    del state["b23.conv21.weight"]
    state["b23.conv99.weight"] = np.zeros(1)
    state["fullconv.weight"] = state["fullconv.weight"][:, :11]
    state["b40.activation2.weight"] = np.zeros(1)
    with pytest.raises(ValueError, match="ENet cannot load") as error:
        convert_state_dict(model, state, ENet.pytorch_names)
    assert str(error.value).split("\n") == [
        "missing: b23.conv21.weight",
        "not shared with b40.activation.weight: b40.activation2.weight",
        "shape (16, 11, 3, 3) instead of (16, 12, 3, 3): fullconv.weight",
        "not used: b23.conv99.weight",
        "ENet cannot load the weights: 4 differences, listed above.",
    ]


def test_a_square_convolution_is_transposed_by_its_kind_not_by_its_shape():
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.ConvTranspose2d(3, 3, 3))
    state = {}
    for n in (0, 1):
        state[f"{n}.weight"] = np.arange(81, dtype=np.float32).reshape(3, 3, 3, 3)
        state[f"{n}.bias"] = np.zeros(3, np.float32)
    weights = convert_state_dict(model, state, lambda name: (name.removeprefix("layers."),))
    assert weights["layers.0.weight"][0, 0, 1, 2] == 2 * 9 + 1  # out 0, y 0, x 1, in 2
    assert weights["layers.1.weight"][0, 0, 1, 2] == 2 * 27 + 1  # in PyTorch, in comes first


def vgg16_state() -> dict[str, np.ndarray]:
    """A state dict with the names and shapes of torchvision's ``vgg16_bn``."""
    random = np.random.default_rng(0)
    state, number, inputs = {}, 0, 3
    plan = [64, 64, "M", 128, 128, "M", *[256] * 3, "M", *[512] * 3, "M", *[512] * 3, "M"]
    for channels in plan:
        if channels == "M":
            number += 1
            continue
        state[f"features.{number}.weight"] = random.normal(0, 0.02, (channels, inputs, 3, 3))
        for kind in ("weight", "bias", "running_mean", "running_var"):
            state[f"features.{number + 1}.{kind}"] = random.uniform(0.5, 1.5, channels)
        state[f"features.{number}.bias"] = random.normal(size=channels)
        state[f"features.{number + 1}.num_batches_tracked"] = np.array(7)
        number, inputs = number + 3, channels
    for layer in (0, 3, 6):  # small: torchvision's have 120 million parameters
        state[f"classifier.{layer}.weight"] = np.zeros((2, 2))
        state[f"classifier.{layer}.bias"] = np.zeros(2)
    return {name: value.astype(np.float32) for name, value in state.items()}


def test_segnet_starts_from_the_weights_of_vgg16(tmp_path):
    state, target = vgg16_state(), tmp_path / "start"
    source = save_state(tmp_path / "vgg16_bn.safetensors", state)
    command = ["convert.py", "segnet", source, target, "--config", "num_classes=12"]
    call(*command)
    model = zoo.from_pretrained(target)
    expected = json.loads(json.dumps(segnet_vgg16(12).config))  # lists instead of tuples
    assert json.loads(json.dumps(model.config)) == expected
    last = model.encoder[4].layers[2]
    assert np.array_equal(last.conv.weight, state["features.40.weight"].transpose(0, 2, 3, 1))
    assert np.array_equal(last.norm.running_var, state["features.41.running_var"])
    named = []
    for name, value in tree_flatten(model.parameters()):
        for key in vgg16_names(name):
            named.append(key)
            wanted = state[key].transpose(0, 2, 3, 1) if value.ndim == 4 else state[key]
            assert np.array_equal(value, wanted), name
    assert len(named) == len(set(named)) == 13 * 6

    with pytest.raises(ValueError, match="missing a required argument: 'num_classes'"):
        zoo.from_pytorch("segnet", state)
    del state["features.24.bias"]
    save_state(source, state)
    shutil.rmtree(target)
    assert call(*command, status=1).stderr.splitlines() == [
        f"{source}: missing: encoder.3.0.conv.bias",
        "SegNet cannot load the weights: 1 difference, listed above.",
    ]
    assert not target.exists()


def test_segnet_has_the_size_of_the_paper():
    parameters = dict(tree_flatten(segnet_vgg16(12).trainable_parameters()))
    assert 29.4e6 < sum(value.size for value in parameters.values()) < 29.5e6
    convolutions = [name for name in parameters if name.endswith(("conv.weight", "fier.weight"))]
    assert len(convolutions) == 26


def test_enet_names_the_sizes_that_it_accepts():
    with pytest.raises(ValueError, match=r"multiples of 8, but got \(1, 48, 60, 3\)"):
        ENet(12)(mx.zeros((1, 48, 60, 3)))


@(
    pytest.mark.external
    if ENET_CAMVID.is_dir()
    else pytest.mark.skip("the trained ENet is not here (ENET_CAMVID)")
)
def test_a_trained_enet_gives_what_pytorch_gives_on_camvid():
    pytest.importorskip("torch", reason="reads the checkpoint")
    state, expected = (
        read_state(ENET_CAMVID / "best_model.pth"),
        np.load(ENET_CAMVID / "reference.npz"),
    )
    model = zoo.from_pytorch("enet", state)
    back = to_state_dict(model, ENet.pytorch_names)
    assert set(state) - set(back) == {name for name in state if "num_batches" in name}
    assert all(np.array_equal(value, state[name]) for name, value in back.items())
    for name in ("0001TP_006690", "0016E5_07959"):
        with Image.open(ENET_CAMVID / f"{name}.png") as image:
            picture = mx.array(np.asarray(image.convert("RGB"))[None].astype(np.float32))
        with pooled_indices() as indices:
            scores = np.array(model(picture)[0])
        logits = expected[f"{name}_logits"].transpose(1, 2, 0)
        assert np.abs(scores[::4, ::4] - logits).max() < 2e-3 * np.abs(logits).max()
        best = np.sort(scores, axis=-1)
        clear = best[..., -1] - best[..., -2] > 1e-3
        assert clear.mean() > 0.99
        assert np.array_equal(scores.argmax(-1)[clear], expected[f"{name}_classes"][clear])
        # Two values of a window could differ by rounding alone. Here no index differs.
        for number, found in enumerate(indices, start=1):
            total = int(found.astype(mx.int64).sum())
            assert total == expected[f"{name}_indices{number}_sum"], number


# Training and prediction.


@pytest.mark.parametrize("kind", ["segnet", "enet"])
def test_training_leaves_weights_metrics_and_a_picture(kind, tmp_path):
    options = ["--smoke", "--model", kind, "--width", 1 / 16, "--output", tmp_path]
    result = call("camvid_train.py", *options)
    assert "step/s" in result.stderr
    for said in ("IoU sky", "mean IoU", "pixel accuracy"):
        assert said in result.stdout
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"data", kind, f"{kind}.json", f"{kind}.png"}
    report = json.loads((tmp_path / f"{kind}.json").read_text())
    # The metrics are those of the weights that were written.
    segmenter = segmenters.load(tmp_path / kind)
    assert camvid_train.metrics_of(segmenter, CamVid(tmp_path / "data", "test")) == report["test"]


def test_metrics_leave_unlabelled_pixels_out(tmp_path, monkeypatch):
    classes = np.full((3, 4), UNLABELLED)
    classes[0] = [0, 0, 1, 1]
    data = CamVid(camvid_folder(tmp_path, ["a.png"], {"a.png": classes}), "train")
    prediction = np.zeros((3, 4), np.uint8)
    prediction[0, 3] = 1
    segmenter = for_camvid("segnet", 1 / 64)
    monkeypatch.setattr(segmenter, "predict", lambda pictures: prediction)
    found = camvid_train.metrics_of(segmenter, data)
    assert found["iou"] == {"sky": 2 / 3, "building": 1 / 2} | dict.fromkeys(CLASS_NAMES[2:-1])
    assert found["miou"] == pytest.approx(7 / 12)
    assert found["pixel_accuracy"] == 3 / 4


def test_a_continued_run_draws_the_same_dropout(streets, tmp_path):
    data = CamVid(streets, "train")

    def train(steps: int, checkpoint: Path, resume: bool = False) -> list[float]:
        mx.random.seed(0)
        segmenter = for_camvid("enet")
        return training.train(
            segmenter,
            training.adamw(1e-3, 4),
            lambda model, x, y: nn.losses.cross_entropy(model(x), y, reduction="mean"),
            camvid_train.training_batches(data, 2, segmenter, seed=0),
            steps,
            checkpoint,
            resume=resume,
        )

    whole = train(4, tmp_path / "whole.safetensors")
    first = train(2, tmp_path / "broken.safetensors")
    mx.random.normal((7,))  # unrelated draws in between
    assert first + train(4, tmp_path / "broken.safetensors", resume=True) == whole
    broken, whole = (tmp_path / f"{name}.safetensors" for name in ("broken", "whole"))
    assert broken.read_bytes() == whole.read_bytes()


def test_pictures_of_any_size_keep_their_size(tmp_path):
    segmenter = for_camvid("enet", inputs="raw")
    randomised(segmenter)
    picture = np.random.default_rng(0).integers(0, 256, (1, 43, 50, 3)).astype(np.uint8)
    classes = segmenter.predict(picture)
    assert classes.shape == (1, 43, 50)
    padded = np.pad(picture, [(0, 0), (0, 5), (0, 6), (0, 0)], mode="edge")
    assert np.array_equal(segmenter.predict(padded)[:, :43, :50], classes)
    # A saved folder keeps all settings.
    segmenter.save_pretrained(tmp_path / "enet")
    again = segmenters.load(tmp_path / "enet")
    assert again.about == segmenter.about
    assert np.array_equal(again.predict(picture), classes)


def test_unusable_weights_and_data_are_named(tmp_path):
    zoo.MODELS["conv_autoencoder_3d"](channels=(2,)).save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match="its classes, but it is a conv_autoencoder_3d for 1 channels"
    ):
        segmenters.load(tmp_path)
    options = "--data", tmp_path, "--output", tmp_path / "out"
    (line,) = call("camvid_train.py", *options, status=1).stderr.splitlines()
    assert "is not a CamVid folder: it has no train/" in line
