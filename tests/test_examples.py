"""The example trains, evaluates, draws and keeps its word, in a few steps."""

from __future__ import annotations

import itertools
import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_unpool_zoo import segnet
from support import digit_scenes, metrics

from mlx_unpool import MaxUnpool2d

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(output: Path, *options: str) -> subprocess.CompletedProcess:
    command = [
        sys.executable,
        str(EXAMPLES / "segnet_digits.py"),
        "--output",
        str(output),
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def metrics_of(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("smoke")
    return folder, run(folder, "--smoke")


def test_a_run_leaves_weights_metrics_and_a_picture(smoke):
    folder, result = smoke
    names = {path.name for path in folder.iterdir()}
    assert names == {"segnet-unpool-seed0.safetensors", "metrics.json", "segnet.png"}
    assert (folder / "segnet.png").read_bytes().startswith(b"\x89PNG")
    found = metrics_of(folder)["unpool"][0]
    for split in ("validation", "test"):
        assert set(found[split]) == {"iou", "miou", "boundary_f_score", "pixel_accuracy"}
        assert len(found[split]["iou"]) == 11
    for line in ("IoU background", "IoU 9", "mean IoU", "boundary F-score", "pixel accuracy"):
        assert line in result.stdout
    assert "step/s" in result.stderr  # the progress bar


def test_a_run_says_what_it_trains_on_what_for_how_long_and_what_it_wrote(smoke):
    folder, result = smoke
    first, *_, last = result.stdout.strip().splitlines()
    assert first.startswith("Training a SegNet to label every pixel")
    assert "handwritten digits over photographs" in result.stdout
    assert "6 steps of 8 scenes: about 1 min on 2 CPU cores" in result.stdout
    written = last.removeprefix("Wrote ").split(", ")
    assert {Path(path) for path in written} == set(folder.iterdir())


def test_a_seed_gives_the_same_figures_and_weights_again(smoke, tmp_path):
    folder, _ = smoke
    run(tmp_path, "--smoke")
    assert metrics_of(tmp_path) == metrics_of(folder)
    weights = "segnet-unpool-seed0.safetensors"
    assert (tmp_path / weights).read_bytes() == (folder / weights).read_bytes()
    other = tmp_path / "other"
    run(other, "--smoke", "--seeds", "1")
    assert metrics_of(other) != metrics_of(folder)


def test_the_weights_predict_again_in_another_process(smoke):
    folder, _ = smoke
    import segnet_digits

    model = segnet_digits.load("unpool", folder / "segnet-unpool-seed0.safetensors")
    images, truth = segnet_digits.evaluation_scenes("test", 8)
    prediction = segnet_digits.predict(model, images)
    expected = metrics_of(folder)["unpool"][0]["test"]
    assert metrics.segmentation_metrics(truth, prediction, digit_scenes.CLASS_NAMES) == expected


def test_all_decoders_are_compared(tmp_path):
    result = run(tmp_path, "--smoke", "--compare")
    assert "6 steps of 8 scenes, 4 times" in result.stdout
    results = metrics_of(tmp_path)
    scores = set()
    for decoder in ("unpool", "nearest", "bilinear", "skip"):
        assert f"{decoder}, seed 0" in result.stderr
        (of_seed_0,) = results[decoder]
        scores.add(of_seed_0["test"]["miou"])
        assert (tmp_path / f"segnet-{decoder}-seed0.safetensors").exists()
    assert len(scores) == 4
    parameters = results["parameters"]
    assert parameters["unpool"] == parameters["nearest"] == parameters["bilinear"]
    assert parameters["skip"] > parameters["unpool"]  # it concatenates


@pytest.mark.parametrize("decoder", ["nearest", "bilinear", "skip"])
def test_the_other_decoders_do_not_use_indices(monkeypatch, decoder):
    calls = []
    monkeypatch.setattr(MaxUnpool2d, "__call__", lambda *args, **more: calls.append(args))
    model, x = segnet.SegNet(11, decoder=decoder), mx.zeros((1, 15, 18, 3))
    assert model(x).shape == (1, 15, 18, 11)
    assert not calls
    with pytest.raises(TypeError):  # this one does call it, and gets None here
        segnet.SegNet(11, decoder="unpool")(x)
    assert len(calls) == 1


@pytest.mark.parametrize("decoder", ["nearest", "bilinear"])
def test_upsampling_is_what_pytorch_calls_so(decoder):
    x = np.random.default_rng(0).normal(size=(1, 3, 2, 4)).astype(np.float32)
    up = np.array(segnet.SegNet(11, decoder=decoder).up(mx.array(x), None, (1, 7, 4, 4)))
    assert np.array_equal(up[:, 6], up[:, 5])  # an odd size: the last row once more
    if decoder == "nearest":
        expected = x.repeat(2, axis=1).repeat(2, axis=2)
    else:  # align_corners=False: an output pixel's centre lies a quarter of the way to a neighbour
        for axis in (1, 2):
            n = x.shape[axis]
            before = np.take(x, [max(i - 1, 0) for i in range(n)], axis)
            after = np.take(x, [min(i + 1, n - 1) for i in range(n)], axis)
            pairs = np.stack([0.75 * x + 0.25 * before, 0.75 * x + 0.25 * after], axis + 1)
            x = pairs.reshape(*x.shape[:axis], 2 * n, *x.shape[axis + 1 :])
        expected = x
    assert up[:, :6] == pytest.approx(expected, abs=1e-6)


def test_another_decoder_is_trained_alone(tmp_path):
    run(tmp_path, "--smoke", "--decoder", "nearest")
    assert set(metrics_of(tmp_path)) == {"steps", "batch", "parameters", "nearest"}


def test_help_explains(tmp_path):
    said = run(tmp_path, "--help").stdout
    for option in ("--decoder", "--compare", "--smoke", "--seeds", "--output", "Ctrl-C"):
        assert option in said


def test_ctrl_c_leaves_the_last_weights_saved(tmp_path):
    command = [sys.executable, str(EXAMPLES / "segnet_digits.py"), "--output", str(tmp_path)]
    command += ["--steps", "500"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = ""
    while "/500" not in said or "step/s, loss" not in said:
        said += process.stderr.read(64)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "of 500 steps. To continue:\n    " + shlex.join([*command, "--resume"]) in out
    weights = tmp_path / "segnet-unpool-seed0.safetensors"
    assert str(weights) in out
    import segnet_digits

    images, _ = segnet_digits.evaluation_scenes("test", 2)
    assert segnet_digits.predict(segnet_digits.load("unpool", weights), images).shape == (2, 64, 64)


def test_training_validation_and_test_share_nothing():
    ids = [set(digit_scenes.digit_ids(split).tolist()) for split in digit_scenes.SPLITS]
    assert sum(map(len, ids)) == len(set.union(*ids)) == 1797
    assert min(map(len, ids)) > 150
    columns = sorted(digit_scenes._FLOWER_COLUMNS.values())
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(columns))


def test_scenes_are_what_they_say():
    images, classes = digit_scenes.Scenes("test", 64, (3, 6), seed=0).batch(6)
    assert images.shape == (6, 64, 64, 3)
    assert images.dtype == np.float32
    assert 0 <= images.min() <= images.max() <= 1
    assert classes.shape == (6, 64, 64)
    assert set(np.unique(classes)) <= set(range(11))
    again, _ = digit_scenes.Scenes("test", 64, (3, 6), seed=0).batch(6)
    assert np.array_equal(images, again)


def test_metrics_of_small_cases():
    truth = np.array([[[0, 0, 1, 1]]])
    assert metrics.class_iou(truth, truth, 2).tolist() == [1, 1]
    shifted = np.array([[[0, 1, 1, 1]]])
    assert metrics.class_iou(truth, shifted, 2).tolist() == [1 / 2, 2 / 3]
    assert np.isnan(metrics.class_iou(truth, truth, 3)[2])
    assert metrics.boundaries(truth).tolist() == [[[False, True, False, False]]]
    assert metrics.boundary_f_score(truth, shifted, tolerance=1) == 1
    assert metrics.boundary_f_score(truth, shifted, tolerance=0) == 0
    assert metrics.boundary_f_score(np.zeros((1, 2, 2)), np.zeros((1, 2, 2))) == 1
    # A boundary of the scene before does not count as near.
    two = np.array([[[0, 1]], [[0, 0]]])
    assert metrics.boundary_f_score(two, two[::-1]) == 0
    assert metrics.segmentation_metrics(truth, shifted, ("a", "b"))["pixel_accuracy"] == 3 / 4
