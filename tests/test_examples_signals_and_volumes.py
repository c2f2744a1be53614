"""The programs in 1-D and 3-D train, evaluate and draw, on data that is kept apart."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
import segnet_brain
import segnet_ecg
from mlx_unpool_zoo.segnet import SegNet
from support import brain_scans, ecg, metrics

EXAMPLES = Path(segnet_ecg.__file__).parent
PROGRAMS = {"segnet_ecg.py": "ecg.png", "segnet_brain.py": "brain.png"}


def start(program: str, *options: object) -> subprocess.Popen:
    command = [sys.executable, EXAMPLES / program, *options]
    return subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(("program", "picture"), PROGRAMS.items())
def test_a_run_leaves_weights_metrics_and_a_picture(program, picture, tmp_path):
    process = start(program, "--smoke", "--output", tmp_path)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "3/3" in err
    assert "step/s" in err
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"segnet-unpool.safetensors", "metrics.json", picture}
    assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    report = json.loads((tmp_path / "metrics.json").read_text())
    assert {"steps", "validation", "test"} <= set(report)
    for name in ecg.CLASS_NAMES if "ecg" in program else brain_scans.CLASS_NAMES[1:]:
        assert name in out


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_interrupted_run_continues_with_the_same_result(program, tmp_path):
    options = ["--steps", 6, "--batch", 1]
    whole = start(program, *options, "--output", tmp_path / "whole")
    whole.communicate()
    process = start(program, *options, "--output", tmp_path / "broken")
    said = ""
    while "1/6" not in said:
        said += process.stderr.read(1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate()
    if process.returncode == 130:  # it may be done before it hears of it
        assert "To continue:\n    " in out
        start(program, *options, "--output", tmp_path / "broken", "--resume").communicate()
    for name in ("metrics.json", "segnet-unpool.safetensors"):
        one, other = ((tmp_path / run / name).read_bytes() for run in ("whole", "broken"))
        assert one == other, name


def test_the_brain_is_where_nilearn_has_it():
    bright, classes = brain_scans.brain()
    assert bright.shape == classes.shape == (99, 117, 95)
    assert 0 <= bright.min() < bright.max() < 1
    shares = np.bincount(classes.ravel()) / classes.size
    assert shares == pytest.approx([0.80, 0.12, 0.07], abs=0.01)
    # White matter is brighter than grey in this kind of scan.
    assert bright[classes == 2].mean() > bright[classes == 1].mean() > bright[classes == 0].mean()


def test_patches_keep_away_from_the_slabs():
    size = (40, 117, 40)
    position = np.broadcast_to(np.arange(117.0)[:, None], size)  # each voxel says where it is
    classes = np.ones(size, np.int32)
    monkey = pytest.MonkeyPatch()
    monkey.setattr(brain_scans, "scanned", lambda bright, random: bright)
    batches = brain_scans.training_batches(position, classes, count=8, seed=0)
    seen = np.unique(np.concatenate([np.array(next(batches)[0]).ravel() for _ in range(40)]))
    monkey.undo()
    assert len(seen) > 60
    for first, last in brain_scans.SLABS.values():
        assert not ((seen >= first - brain_scans.GAP) & (seen < last + brain_scans.GAP)).any()


def test_dice_of_small_cases():
    truth = np.array([0, 1, 1, 2])
    names = ("other", "a", "b")
    assert metrics.dice(truth, truth, names) == {"a": 1, "b": 1}
    assert metrics.dice(truth, np.array([1, 1, 1, 0]), names) == {"a": 4 / 5, "b": 0}


def test_two_thresholds_part_what_they_can():
    truth = np.array([0, 0, 1, 1, 2, 2])
    volume = np.array([0.5, 1.2, 1.9, 2.2, 3.0, 3.4])
    low, high = brain_scans.two_thresholds(volume, truth)
    assert np.array_equal(np.digitize(volume, (low, high)), truth)


def test_the_coarse_loss_looks_at_the_middle_of_each_window():
    model = SegNet(3, (2, 4), (1, 1), inputs=1, dims=3)
    volumes = mx.random.normal((1, 8, 8, 8, 1))
    classes = mx.random.randint(0, 3, (1, 8, 8, 8))
    scores, coarse = model.scores(volumes)
    middles = np.array(classes).reshape(2, 4, 2, 4, 2, 4)[:, 2, :, 2, :, 2]
    expected = nn.losses.cross_entropy(scores, classes).mean() + segnet_brain.COARSE_WEIGHT * (
        nn.losses.cross_entropy(coarse[0], mx.array(middles)).mean()
    )
    assert segnet_brain.loss_of(model, volumes, classes).item() == pytest.approx(expected.item())


def test_beats_are_kept_apart_and_waves_are_labelled_inside_them():
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


def test_recordings_carry_their_labels_along():
    signals, truth = ecg.recordings("test", 20, np.random.default_rng(0))
    assert signals.shape == truth.shape == (20, ecg.SAMPLES)
    again, _ = ecg.recordings("test", 20, np.random.default_rng(0))
    assert np.array_equal(signals, again)
    # The highest sample of almost every recording is a peak of a heartbeat.
    peaks = truth[np.arange(20), signals.argmax(axis=1)]
    assert (peaks == 2).mean() > 0.9
