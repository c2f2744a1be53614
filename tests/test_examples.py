"""The training programs on drawn scenes, signals and volumes: a few steps, their results and their data."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
import segnet_brain
import segnet_digits
from mlx_unpool_zoo.segnet import SegNet
from programs import EXAMPLES, call, environment, run
from support import brain_scans, digit_scenes, ecg, metrics
from unet_max_pool import UNet, discs

import mlx_unpool
from mlx_unpool import MaxUnpool2d

DIGITS = "segnet-unpool-seed0.safetensors"


def start(program: str, *options: object) -> subprocess.Popen:
    command = [sys.executable, EXAMPLES / program, *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(list(map(str, command)), env=environment(), **pipes)


def metrics_of(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


# Digits over photographs.


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("smoke")
    return folder, run("segnet_digits.py", "--output", folder, "--smoke")


def test_a_run_writes_weights_metrics_and_a_picture_and_describes_itself(smoke):
    folder, result = smoke
    names = {path.name for path in folder.iterdir()}
    assert names == {DIGITS, "metrics.json", "segnet.png"}
    assert (folder / "segnet.png").read_bytes().startswith(b"\x89PNG")
    found = metrics_of(folder)["unpool"][0]
    for split in ("validation", "test"):
        assert set(found[split]) == {"iou", "miou", "boundary_f_score", "pixel_accuracy"}
        assert len(found[split]["iou"]) == 11
    for line in ("IoU background", "IoU 9", "mean IoU", "boundary F-score", "pixel accuracy"):
        assert line in result.stdout
    assert "step/s" in result.stderr  # the progress bar
    first, *_, last = result.stdout.strip().splitlines()
    assert first.startswith("Training a SegNet to label every pixel")
    assert "handwritten digits over photographs" in result.stdout
    assert "6 steps of 8 scenes: about 1 min on 2 CPU cores" in result.stdout
    written = last.removeprefix("Wrote ").split(", ")
    assert {Path(path) for path in written} == set(folder.iterdir())


def test_the_same_seed_gives_the_same_metrics_and_weights(smoke, tmp_path):
    folder, _ = smoke
    call("segnet_digits.py", "--output", tmp_path, "--smoke", "--seeds", "0", "1")
    same, other = metrics_of(tmp_path)["unpool"]
    assert [same] == metrics_of(folder)["unpool"]
    assert other["test"] != same["test"]
    assert (tmp_path / DIGITS).read_bytes() == (folder / DIGITS).read_bytes()


def test_the_weights_give_the_same_metrics_in_another_process(smoke):
    folder, _ = smoke
    images, truth = segnet_digits.evaluation_scenes("test", 5)
    prediction = segnet_digits.predict(segnet_digits.load("unpool", folder / DIGITS), images)
    expected = metrics_of(folder)["unpool"][0]["test"]
    assert metrics.segmentation_metrics(truth, prediction, digit_scenes.CLASS_NAMES) == expected


def test_all_decoders_are_compared(tmp_path):
    result = call("segnet_digits.py", "--output", tmp_path, "--smoke", "--compare")
    assert "6 steps of 8 scenes, 4 times" in result.stdout
    results, scores = metrics_of(tmp_path), set()
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
    x = mx.zeros((1, 15, 18, 3))
    assert SegNet(11, decoder=decoder)(x).shape == (1, 15, 18, 11)
    assert not calls
    with pytest.raises(TypeError):  # this decoder calls it, and gets None here
        SegNet(11, decoder="unpool")(x)
    assert len(calls) == 1


@pytest.mark.parametrize("decoder", ["nearest", "bilinear"])
def test_upsampling_follows_the_definitions_of_pytorch(decoder):
    x = np.random.default_rng(0).normal(size=(1, 3, 2, 4)).astype(np.float32)
    up = np.array(SegNet(11, decoder=decoder).up(mx.array(x), None, (1, 7, 4, 4)))
    assert np.array_equal(up[:, 6], up[:, 5])  # an odd size: the last row is repeated
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


def test_ctrl_c_saves_the_weights(tmp_path):
    options = ["--output", tmp_path, "--steps", "500"]
    process, said = start("segnet_digits.py", *options), ""
    while ", loss=" not in said:
        said += process.stderr.read(64)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"of 500 steps. To continue:\n    {shlex.join([*process.args, '--resume'])}" in out
    assert str(tmp_path / DIGITS) in out
    images, _ = segnet_digits.evaluation_scenes("test", 5)
    model = segnet_digits.load("unpool", tmp_path / DIGITS)
    assert segnet_digits.predict(model, images).shape == (2, 64, 64)


def test_training_validation_and_test_data_are_disjoint():
    ids = [set(digit_scenes.digit_ids(split).tolist()) for split in digit_scenes.SPLITS]
    assert sum(map(len, ids)) == len(set.union(*ids)) == 1797
    assert min(map(len, ids)) > 150
    columns = sorted(digit_scenes._FLOWER_COLUMNS.values())
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(columns))


def test_scenes_have_the_documented_shapes_and_ranges():
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
    # A boundary in another scene of the batch does not count as near.
    two = np.array([[[0, 1]], [[0, 0]]])
    assert metrics.boundary_f_score(two, two[::-1]) == 0
    assert metrics.segmentation_metrics(truth, shifted, ("a", "b"))["pixel_accuracy"] == 3 / 4
    truth, names = np.array([0, 1, 1, 2]), ("other", "a", "b")
    assert metrics.dice(truth, truth, names) == {"a": 1, "b": 1}
    assert metrics.dice(truth, np.array([1, 1, 1, 0]), names) == {"a": 4 / 5, "b": 0}


# Signals and volumes.

PROGRAMS = {
    "segnet_ecg.py": ("ecg.png", ecg.CLASS_NAMES),
    "segnet_brain.py": ("brain.png", brain_scans.CLASS_NAMES[1:]),
}
FEW_SCANS = {"segnet_ecg.py": [], "segnet_brain.py": ["--scans", 2]}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_run_in_1d_or_3d_writes_weights_metrics_and_a_picture(program, tmp_path):
    result = call(program, "--smoke", "--output", tmp_path)
    assert "3/3" in result.stderr
    assert "step/s" in result.stderr
    picture, classes = PROGRAMS[program]
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"segnet-unpool.safetensors", "metrics.json", picture}
    assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    assert {"steps", "validation", "test"} <= set(metrics_of(tmp_path))
    for name in classes:
        assert name in result.stdout
    weights = mx.load(str(tmp_path / "segnet-unpool.safetensors"))
    assert ("coarse_classifier.weight" in weights) == (program == "segnet_brain.py")


def test_kept_positions_have_the_size_of_each_pooling_stage_and_no_channels():
    model = SegNet(2, channels=(4, 6), convolutions=(1, 1))
    kept = model.kept_positions(mx.random.normal((3, 9, 14, 3), key=mx.random.key(0)))
    assert [x.shape for x in kept] == [(3, 9, 14), (3, 4, 7)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_interrupted_run_continues_with_the_same_result(program, tmp_path):
    options = ["--steps", 6, "--batch", 1, *FEW_SCANS[program], "--output"]
    call(program, *options, tmp_path / "whole")
    process, said = start(program, *options, tmp_path / "broken"), ""
    while "1/6" not in said:
        said += process.stderr.read(1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate()
    if process.returncode == 130:  # the run may end before the signal arrives
        assert "To continue:\n    " in out
        call(program, *options, tmp_path / "broken", "--resume")
    for name in ("metrics.json", "segnet-unpool.safetensors"):
        one, other = ((tmp_path / run / name).read_bytes() for run in ("whole", "broken"))
        assert one == other, name


def test_the_brain_is_the_template_of_nilearn():
    bright, classes = brain_scans.brain()
    assert bright.shape == classes.shape == (99, 117, 95)
    assert 0 <= bright.min() < bright.max() < 1
    shares = np.bincount(classes.ravel()) / classes.size
    assert shares == pytest.approx([0.80, 0.12, 0.07], abs=0.01)
    # White matter is brighter than grey in this kind of scan.
    assert bright[classes == 2].mean() > bright[classes == 1].mean() > bright[classes == 0].mean()


def test_training_patches_do_not_overlap_the_slabs(monkeypatch):
    size = (40, 117, 40)
    position = np.broadcast_to(np.arange(117.0)[:, None], size)  # the value of a voxel is its row
    monkeypatch.setattr(brain_scans, "scanned", lambda bright, random: bright)
    classes = np.ones(size, np.int32)
    batches = brain_scans.training_batches(position, classes, count=8, seed=0)
    seen = np.unique(np.concatenate([np.array(next(batches)[0]).ravel() for _ in range(40)]))
    assert len(seen) > 60
    for first, last in brain_scans.SLABS.values():
        assert not ((seen >= first - brain_scans.GAP) & (seen < last + brain_scans.GAP)).any()


def test_two_thresholds_have_the_best_scores_of_a_grid():
    random, names = np.random.default_rng(0), brain_scans.CLASS_NAMES
    truth, volume = random.integers(0, 3, 200), random.uniform(0, 5, 200)
    best = max(
        itertools.combinations(np.linspace(1, 4, 25), 2),
        key=lambda pair: sum(metrics.dice(truth, np.digitize(volume, pair), names).values()),
    )
    assert brain_scans.two_thresholds(volume, truth) == best


def test_the_coarse_loss_uses_the_middle_of_each_window():
    model = SegNet(3, (2, 4), (1, 1), inputs=1, dims=3)
    volumes = mx.random.normal((1, 8, 8, 8, 1))
    classes = mx.random.randint(0, 3, (1, 8, 8, 8))
    scores, coarse = model.scores(volumes)
    middles = np.array(classes).reshape(2, 4, 2, 4, 2, 4)[:, 2, :, 2, :, 2]
    expected = nn.losses.cross_entropy(scores, classes).mean() + segnet_brain.COARSE_WEIGHT * (
        nn.losses.cross_entropy(coarse[0], mx.array(middles)).mean()
    )
    assert segnet_brain.loss_of(model, volumes, classes).item() == pytest.approx(expected.item())


def test_beats_are_disjoint_and_their_waves_are_labelled():
    spans = sorted(beat[:2] for beat in ecg.BEATS.values())
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    for start_, stop, *waves in ecg.BEATS.values():
        edges = [start_, *itertools.chain.from_iterable(waves), stop]
        assert edges == sorted(edges)
    for split in ecg.BEATS:
        trace, classes = ecg.beat(split)
        assert trace.max() == 1
        assert classes[trace.argmax()] == 2  # the peak is in the QRS complex
        assert set(classes) == {0, 1, 2, 3}


def test_recordings_keep_signal_and_labels_together():
    signals, truth = ecg.recordings("test", 20, np.random.default_rng(0))
    assert signals.shape == truth.shape == (20, ecg.SAMPLES)
    again, _ = ecg.recordings("test", 20, np.random.default_rng(0))
    assert np.array_equal(signals, again)
    # The highest sample of almost every recording is a peak of a heartbeat.
    peaks = truth[np.arange(20), signals.argmax(axis=1)]
    assert (peaks == 2).mean() > 0.9


# A U-Net with the max pooling of mlx.nn and with ours.


def test_both_poolings_reach_the_same_losses_and_leave_no_files(tmp_path):
    said = run("unet_max_pool.py", "--smoke", cwd=tmp_path).stdout
    losses = re.findall(r"^ +\d+ +([\d.]+) +([\d.]+)$", said, re.MULTILINE)
    assert len(losses) == 4
    for theirs, ours in losses:
        assert float(ours) == pytest.approx(float(theirs), rel=1e-3)
    assert re.search(r"mlx\.nn [\d.]+ ms, mlx_unpool [\d.]+ ms\.\n$", said)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_network_is_the_same_after_its_pools_are_replaced(dims):
    model, x = UNet(dims, 2, 3, (4, 6, 8)), mx.random.normal((2, *[8] * dims, 2))
    expected = model(x)
    assert expected.shape == (2, *[8] * dims, 3)
    mlx_unpool.replace_max_pools(model)
    assert not isinstance(model.pool, getattr(nn, f"MaxPool{dims}d"))
    assert mx.array_equal(model(x), expected)


def test_pictures_are_brighter_inside_the_disc():
    images, classes = discs(16, 32)
    assert (images.shape, classes.shape) == ((16, 32, 32, 1), (16, 32, 32))
    assert 0.02 < classes.astype(mx.float32).mean() < 0.3
    inside = mx.where(classes == 1, images[..., 0], 0).sum() / classes.sum()
    assert inside.item() == pytest.approx(0.5, abs=0.05)
