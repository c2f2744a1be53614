"""The programs for street scenes: data, weights from PyTorch, training and prediction."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import camvid_train
import mlx.core as mx
import mlx_unpool_zoo as zoo
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_unpool_zoo.enet import ENet
from mlx_unpool_zoo.pytorch import read_state
from mlx_unpool_zoo.segnet import segnet_vgg16, vgg16_names
from PIL import Image
from programs import call
from small_models import randomised, save_state
from support import segmenter as segmenters
from support import street_scenes
from support.camvid import CLASS_NAMES, UNLABELLED, CamVid
from support.segmenter import for_camvid

ROOT = Path(__file__).parents[2]
# A published checkpoint, two pictures of CamVid, and the scores and classes of PyTorch for them.
ENET_CAMVID = Path(os.environ.get("ENET_CAMVID", ROOT.parent / "shared" / "enet_camvid"))


@pytest.fixture(scope="module")
def streets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streets")
    street_scenes.write_streets(folder, {"train": 6, "val": 2, "test": 2}, size=(70, 53))
    return folder


# Data.


def camvid_folder(folder: Path, pictures: str, labels: dict[str, np.ndarray]) -> Path:
    """A folder of pictures and labels with these names."""
    for name in ("train", "trainannot"):
        (folder / name).mkdir(parents=True)
    for name in pictures:
        Image.new("RGB", (4, 3)).save(folder / "train" / f"{name}.png")
    for name, classes in labels.items():
        Image.fromarray(classes.astype(np.uint8)).save(folder / "trainannot" / f"{name}.png")
    return folder


def test_a_folder_and_labels_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"it has no val/.*trainannot, valannot, testannot"):
        CamVid(tmp_path, "val")
    for number, (pictures, labels, says) in enumerate(
        (
            ("", {}, "has no PNG files"),
            ("ab", {"a": np.zeros((3, 4))}, r"train and trainannot of .* differ in b.png"),
            ("a", {"a": np.full((3, 4), 12)}, "has class 12; the last one is 11"),
            ("a", {"a": np.zeros((4, 3))}, r"class number per pixel .*\(3, 4\), but .*\(4, 3\)"),
            ("a", {"a": np.zeros((3, 4, 3))}, r"its shape is \(3, 4, 3\)"),
        )
    ):
        folder = camvid_folder(tmp_path / str(number), pictures, labels)
        with pytest.raises(ValueError, match=says):
            CamVid(folder, "train")[0]


def test_rare_classes_weigh_more_and_unlabelled_pixels_nothing(tmp_path):
    labels = {"a": np.zeros((3, 4)), "b": np.full((3, 4), UNLABELLED)}
    labels["a"][0, :3] = 1
    data = CamVid(camvid_folder(tmp_path, "ab", labels), "train")
    assert data.class_shares().tolist() == [9 / 24, 3 / 24, *[0] * 9, 12 / 24]
    weights = camvid_train.class_weights(data)
    assert weights[:3] == pytest.approx([1 / np.log(v) for v in (1.395, 1.145, 1.02)])
    assert weights[UNLABELLED] == 0


def test_an_epoch_has_every_picture_once_mirrored_with_its_labels(streets):
    data, segmenter = CamVid(streets, "train"), for_camvid("enet", inputs="raw")
    originals = [(p[:48, :64], c[:48, :64]) for p, c in (data[n] for n in range(6))]
    known = {  # what each picture and its mirror image are recognised by
        (p[:, ::step].tobytes(), c[:, ::step].astype(int).tobytes()): (number, step)
        for number, (p, c) in enumerate(originals)
        for step in (1, -1)
    }
    batches, orders, mirrored = camvid_train.training_batches(data, 2, segmenter, 0), [], set()
    for _ in range(2):
        found = []
        for pictures, classes in (next(batches) for _ in range(3)):
            assert pictures.shape == (2, 48, 64, 3)  # multiples of 8, for ENet
            for picture, named in zip(np.array(pictures), np.array(classes)):
                key = picture.astype(np.uint8).tobytes(), named.astype(int).tobytes()
                found.append(known[key])
        order, steps = zip(*found)
        assert sorted(order) == list(range(6))
        orders.append(order)
        mirrored.update(steps)
    assert orders[0] != orders[1]
    assert mirrored == {1, -1}


# Weights from PyTorch.


def vgg16_state() -> dict[str, np.ndarray]:
    """A state dict with the names and shapes of torchvision's ``vgg16_bn``."""
    random, state, number, inputs = np.random.default_rng(0), {}, 0, 3
    for channels in (64, 64, 0, 128, 128, 0, *[256] * 3, 0, *[512] * 3, 0, *[512] * 3):
        if not channels:  # a pooling layer
            number += 1
            continue
        state[f"features.{number}.weight"] = random.normal(0, 0.02, (channels, inputs, 3, 3))
        state[f"features.{number}.bias"] = random.normal(size=channels)
        for kind in ("weight", "bias", "running_mean", "running_var"):
            state[f"features.{number + 1}.{kind}"] = random.uniform(0.5, 1.5, channels)
        state[f"features.{number + 1}.num_batches_tracked"] = np.array(7)
        number, inputs = number + 3, channels
    state["classifier.0.weight"] = np.zeros((2, 2))
    return {name: value.astype(np.float32) for name, value in state.items()}


def test_segnet_starts_from_the_weights_of_vgg16(tmp_path):
    state, target = vgg16_state(), tmp_path / "start"
    source = save_state(tmp_path / "vgg16_bn.safetensors", state)
    command = ["convert.py", "segnet", source, target, "--config", "num_classes=12"]
    call(*command)
    model = zoo.from_pretrained(target)
    expected = json.loads(json.dumps(segnet_vgg16(12).config))  # lists instead of tuples
    assert json.loads(json.dumps(model.config)) == expected
    named = []
    for name, value in tree_flatten(model.parameters()):
        for key in vgg16_names(name):
            named.append(key)
            wanted = state[key].transpose(0, 2, 3, 1) if value.ndim == 4 else state[key]
            assert np.array_equal(value, wanted), name
    assert len(named) == len(set(named)) == 13 * 6
    size = sum(value.size for _, value in tree_flatten(model.trainable_parameters()))
    assert 29.4e6 < size < 29.5e6  # as in the paper
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
    for name in ("0001TP_006690", "0016E5_07959"):
        with Image.open(ENET_CAMVID / f"{name}.png") as image:
            picture = mx.array(np.asarray(image.convert("RGB"))[None].astype(np.float32))
        scores = np.array(model(picture)[0])
        logits = expected[f"{name}_logits"].transpose(1, 2, 0)
        assert np.abs(scores[::4, ::4] - logits).max() < 2e-3 * np.abs(logits).max()
        best = np.sort(scores, axis=-1)
        clear = best[..., -1] - best[..., -2] > 1e-3
        assert clear.mean() > 0.99
        assert np.array_equal(scores.argmax(-1)[clear], expected[f"{name}_classes"][clear])


# Training and prediction.


def test_training_leaves_weights_metrics_and_a_picture(tmp_path):
    options = "--smoke", "--model", "segnet", "--width", 1 / 16, "--output", tmp_path
    call("camvid_train.py", *options)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"data", "segnet", "segnet.json", "segnet.png"}
    report = json.loads((tmp_path / "segnet.json").read_text())
    # The metrics are those of the weights that were written.
    segmenter = segmenters.load(tmp_path / "segnet")
    assert camvid_train.metrics_of(segmenter, CamVid(tmp_path / "data", "test")) == report["test"]


def test_metrics_leave_unlabelled_pixels_out(tmp_path, monkeypatch):
    classes = np.full((3, 4), UNLABELLED)
    classes[0] = [0, 0, 1, 1]
    data = CamVid(camvid_folder(tmp_path, "a", {"a": classes}), "train")
    prediction = np.zeros((3, 4), np.uint8)
    prediction[0, 3] = 1
    segmenter = for_camvid("segnet", 1 / 64)
    monkeypatch.setattr(segmenter, "predict", lambda pictures: prediction)
    found = camvid_train.metrics_of(segmenter, data)
    assert found["iou"] == {"sky": 2 / 3, "building": 1 / 2} | dict.fromkeys(CLASS_NAMES[2:-1])
    assert found["miou"] == pytest.approx(7 / 12)
    assert found["pixel_accuracy"] == 3 / 4


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
