"""The training programs on drawn scenes: a few steps, their results, their data, and interrupted runs."""

import itertools
import json
import re
import signal
import sys

from common import digit_scenes, training

import mlx.core as mx
import numpy as np
import pytest
import segnet_digits
from helpers.programs import call
from mlx_unpool_zoo import metrics
from mlx_unpool_zoo.segnet import SegNet

DIGITS = "segnet-unpool-seed0.safetensors"


def test_decoders_and_seeds_are_compared_and_the_results_described(tmp_path):
    result = call("segnet_digits.py", "--output", tmp_path, "--smoke", "--compare", "--seeds", 0, 1)
    results = json.loads((tmp_path / "metrics.json").read_text())
    decoders, parameters, scores = ("unpool", "nearest", "bilinear", "skip"), results["parameters"], set()
    for decoder in decoders:
        for seed, run in enumerate(results[decoder]):
            assert f"{decoder}, seed {seed}, step 6 of 6: loss" in result.stdout
            assert {"validation", "test"} <= set(run)
            scores.add(run["test"]["miou"])
    assert len(scores) == 8  # of different networks
    assert parameters["unpool"] == parameters["nearest"] == parameters["bilinear"]
    assert parameters["skip"] > parameters["unpool"]  # it concatenates
    weights = {f"segnet-{decoder}-seed{seed}.safetensors" for decoder in decoders for seed in (0, 1)}
    assert {path.name for path in tmp_path.iterdir()} == {*weights, "metrics.json", "segnet.png"}
    first, *_, last = result.stdout.strip().splitlines()
    assert first.startswith("Training a SegNet to label every pixel")
    assert "6 steps of 8 scenes, 8 times: about " in result.stdout
    assert result.stdout.count("The figure is in ") == 4  # after each decoder
    written = last.removeprefix("Wrote ").split(", ")
    assert set(written) == {str(path) for path in tmp_path.iterdir()}
    assert result.stderr == ""  # no progress bar


@pytest.mark.parametrize("decoder", ["nearest", "bilinear", "skip"])
def test_the_other_decoders_do_not_use_indices(decoder):
    x, model = mx.random.normal((1, 15, 18, 3)), SegNet(11, decoder=decoder).eval()
    pooled, stages = model.encode(x)
    scores, without = model(x), [(None, 0 * features) for _, features in stages]
    assert scores.shape == (1, 15, 18, 11)
    assert not mx.array_equal(model.decode(0 * pooled, stages), scores)
    assert mx.array_equal(model.decode(pooled, without), scores) == (decoder != "skip")


def test_training_validation_and_test_data_are_disjoint():
    ids = [set(digit_scenes.digit_ids(split).tolist()) for split in digit_scenes.SPLITS]
    assert sum(map(len, ids)) == len(set.union(*ids)) == 720
    flowers = np.concatenate([digit_scenes.photographs(split)[0] for split in digit_scenes.SPLITS], axis=1)
    assert len({column.tobytes() for column in np.moveaxis(flowers, 1, 0)}) == flowers.shape[1] == 640


def test_dice_scores():
    truth, names = np.array([0, 1, 1, 2]), ("other", "a", "b")
    assert metrics.dice(truth, truth, names) == {"a": 1, "b": 1}
    assert metrics.dice(truth, np.array([1, 1, 1, 0]), names) == {"a": 4 / 5, "b": 0}


RUNS = {  # what a program writes and prints, and further options; train.py has dropout
    "segnet_digits.py": ("segnet.png", digit_scenes.CLASS_NAMES, ["--save-every", 2, "--decoder", "unpool"]),
    "train.py": ("predictions.png", ["IoU background", "IoU 7", "mean IoU"], []),
}


@pytest.mark.parametrize("program", RUNS)
def test_an_interrupted_run_continues_with_the_same_result(program, tmp_path, monkeypatch):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    picture, words, more = RUNS[program]
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
    assert [word for word in words if word not in result.stdout] == []
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
    if program == "segnet_digits.py":  # train.py can continue beyond its end
        (line,) = call(program, *options, broken, "--resume", status=1).stderr.splitlines()
        assert line.startswith("There is nothing to resume: ")
