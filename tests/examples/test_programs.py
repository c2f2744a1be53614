"""The training programs on drawn scenes, signals and volumes: a few steps, their results and their data."""

import itertools
import json
import re
import signal
import sys
from pathlib import Path

from support import brain_scans, digit_scenes, training

import mlx.core as mx
import numpy as np
import pytest
import segnet_digits
import segnet_ecg
from mlx_unpool_zoo import metrics
from mlx_unpool_zoo.segnet import SegNet
from programs import call, run

from mlx_unpool import MaxUnpool2d

DIGITS = "segnet-unpool-seed0.safetensors"


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
    assert names == {DIGITS, DIGITS.replace("unpool", "nearest"), "metrics.json", "segnet.png"}
    assert (folder / "segnet.png").read_bytes().startswith(b"\x89PNG")
    assert {"validation", "test"} <= set(metrics_of(folder)["unpool"][0])
    for line in ("IoU background", "IoU 7", "mean IoU", "boundary F-score", "pixel accuracy"):
        assert line in result.stdout
    assert result.stderr == ""  # no progress bar
    assert "unpool, seed 0, step 6 of 6: loss" in result.stdout
    first, *_, last = result.stdout.strip().splitlines()
    assert first.startswith("Training a SegNet to label every pixel")
    assert "6 steps of 8 scenes, 2 times: about 10 s on a CPU" in result.stdout
    assert result.stdout.count("The figure is in ") == 2  # after each network
    written = last.removeprefix("Wrote ").split(", ")
    assert {Path(path) for path in written} == set(folder.iterdir())


def test_the_same_seed_gives_the_same_metrics_and_weights(smoke, tmp_path):
    folder, _ = smoke
    call("segnet_digits.py", "--output", tmp_path, "--smoke", "--seeds", "0", "1")
    same, other = metrics_of(tmp_path)["unpool"]
    assert [same] == metrics_of(folder)["unpool"]
    assert other["test"] != same["test"]
    assert (tmp_path / DIGITS).read_bytes() == (folder / DIGITS).read_bytes()


def test_all_decoders_are_compared(tmp_path):
    result = call("segnet_digits.py", "--output", tmp_path, "--smoke", "--compare")
    assert "6 steps of 8 scenes, 4 times" in result.stdout
    results, scores = metrics_of(tmp_path), set()
    for decoder in ("unpool", "nearest", "bilinear", "skip"):
        assert f"{decoder}, seed 0, step 6 of 6" in result.stdout
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


@pytest.mark.parametrize(
    ("decoder", "expected"), [("nearest", [0, 0, 4, 4, 4]), ("bilinear", [0, 1, 3, 4, 4])]
)
def test_upsampling_follows_the_definitions_of_pytorch(decoder, expected):
    """With align_corners=False. For an odd size the last row is repeated."""
    x = mx.array([0.0, 4]).reshape(1, 2, 1, 1)
    up = SegNet(11, decoder=decoder).up(x, None, (1, 5, 2, 1))
    assert up[0, :, 1, 0].tolist() == pytest.approx(expected)


def test_training_validation_and_test_data_are_disjoint():
    ids = [set(digit_scenes.digit_ids(split).tolist()) for split in digit_scenes.SPLITS]
    assert sum(map(len, ids)) == len(set.union(*ids)) == 720
    for spans in (
        sorted(digit_scenes._FLOWER_COLUMNS.values()),
        sorted(beat[:2] for beat in segnet_ecg.BEATS.values()),
    ):
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_metrics_of_small_cases():
    truth = np.array([[[0, 0, 1, 1]]])
    assert metrics.class_iou(truth, truth, 2).tolist() == [1, 1]
    shifted = np.array([[[0, 1, 1, 1]]])
    assert metrics.class_iou(truth, shifted, 2).tolist() == [1 / 2, 2 / 3]
    assert np.isnan(metrics.class_iou(truth, truth, 3)[2])
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


# All training programs.

RUNS = {  # what a program writes and prints, and further options
    "segnet_digits.py": ("segnet.png", digit_scenes.CLASS_NAMES, ["--save-every", 2]),
    "segnet_ecg.py": ("ecg.png", segnet_ecg.CLASS_NAMES, []),
    "train.py": ("predictions.png", ["IoU background", "IoU 7", "mean IoU"], []),  # has dropout
}


@pytest.mark.parametrize("program", RUNS)
def test_an_interrupted_run_continues_with_the_same_result(program, tmp_path, monkeypatch):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    picture, classes, more = RUNS[program]
    options = ["--smoke", *more, "--output"]
    monkeypatch.setattr(sys, "orig_argv", ["python", "a file.py"])

    def stopped(number: int, error: Exception | None, *more: str) -> str:
        """Run the program until one of its steps fails or, without an error, gets Ctrl-C."""
        steps = itertools.count(1)

        def share_of(batch: tuple) -> tuple:
            if next(steps) == number:
                if error:
                    raise error
                signal.raise_signal(signal.SIGINT)
            return batch

        with monkeypatch.context() as patch:
            patch.setattr(training, "share_of", share_of)
            return call(program, *options, broken, *more, status=1 if error else 130).stdout

    result = call(program, *options, whole)
    assert not re.search(r"[^\n -~±]", result.stdout + result.stderr)  # nothing for a terminal
    assert [name for name in classes if name not in result.stdout] == []
    assert (whole / picture).read_bytes().startswith(b"\x89PNG")

    said, last = stopped(2, None), 2
    assert re.search(r"after 2 of \d+ steps. To continue:\n    python 'a file.py' --resume", said)
    if program == "segnet_digits.py":
        assert str(broken / DIGITS) in said
        segnet_digits.load("unpool", broken / DIGITS)
        stopped(3, OSError("as if killed"), "--resume")
        last = 4
    assert f"Resuming after step {last} of" in call(program, *options, broken, "--resume").stdout
    one, other = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}
        for folder in (whole, broken)
    )
    assert [name for name in one | other if one.get(name) != other.get(name)] == []
    if program != "train.py":  # which can continue beyond its end
        (line,) = call(program, *options, broken, "--resume", status=1).stderr.splitlines()
        assert line.startswith("There is nothing to resume: ")


# Signals and volumes.


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
