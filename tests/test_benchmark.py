"""``python -m mlx_unpool.benchmark``: its report on small arrays, independent of the times."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from mlx_unpool import benchmark


@pytest.fixture
def small(monkeypatch):
    cases = {
        name: (layer, window, (*(9, 8, 7)[: len(shape) - 1], 4))
        for name, (layer, window, shape) in benchmark._CASES.items()
    }
    monkeypatch.setattr(benchmark, "_CASES", cases)
    monkeypatch.setattr(benchmark, "_GPU_BATCH", 1)


def rows(said: str) -> dict[str, list[str]]:
    cells = [line.strip("| ").split(" | ") for line in said.splitlines() if line.startswith("| ")]
    return {name: numbers for name, *numbers in cells}


def test_the_report_has_a_row_for_each_window(small, capsys):
    assert benchmark.main(["--seconds", "0"]) == 0
    said = capsys.readouterr().out
    assert re.match(r"```text\nmlx_unpool +\d.*\nmlx +\d.*\nPython .*\nsystem .*\ndevice +\w", said)
    header, *table = rows(said).items()
    assert [name for name, _ in table] == list(benchmark._CASES)
    assert len(benchmark._CASES) == 6
    ratios = [f"{measure}, mlx.nn / mlx_unpool" for measure in ("forward", "forward and gradient")]
    assert header[1][::3] == ratios
    for _, numbers in table:
        assert len(numbers) == len(header[1]) == 6
        assert all(float(number.rstrip("x")) >= 0 for number in numbers)
    assert re.search(r"\nx \+ 1, for comparison: [\d.]+ GB/s\.\nmlx.nn is faster in: .+\.\n$", said)


def test_it_says_where_mlx_nn_is_faster(small, monkeypatch, capsys):
    times = iter([2e-6, 1e-6, 1e-6, 0.996e-6, *[1e-6, 2e-6] * 9, 3e-6, 1e-6])
    monkeypatch.setattr(benchmark, "medians", lambda runs, _: [next(times, 1e-6) for _ in runs])
    assert benchmark.main(["--seconds", "0"]) == 0
    said = capsys.readouterr().out
    assert "mlx.nn is faster in: 2x2/2 forward, 3x3x3/2 forward and gradient." in said
    table = rows(said)
    assert (table["2x2/2"][0], table["2x2/2"][3]) == ("0.50x", "1.00x")
    assert table["3x3x3/2"][3] == "0.33x"
    size = 4 * 9 * 8 * 4 + 4 * 4 * 4 * 4  # an image and its pooled values, float32
    assert float(table["2x2/2"][2]) == pytest.approx(size / 1e-6 / 1e9, rel=0.5)


@pytest.mark.parametrize(("name", "pools"), [("resnet18", 1), ("unet", 3)])
def test_the_networks_are_those_of_the_papers(name, pools):
    model = benchmark._MODELS[name]()
    size = sum(values.size for _, values in tree_flatten(model.trainable_parameters()))
    assert name != "resnet18" or size == 11_689_512  # as in torchvision
    assert sum(isinstance(module, nn.MaxPool2d) for module in model.modules()) == pools
    x = mx.random.normal((2, 32, 32, 3))
    step, weight = benchmark.training_step(model, x), model.layers[-1].weight
    losses = [step()[0].item() for _ in range(3)]
    assert losses[-1] < losses[0]
    assert not mx.array_equal(model.layers[-1].weight, weight)


VERDICTS = [
    (3.0, "1 image", "The ratio, mlx.nn / mlx_unpool, is 1.324."),
    (3.95, "2 images", "The ranges overlap: no measurable difference."),
]


@pytest.mark.parametrize(("ours", "images", "verdict"), VERDICTS)
def test_training_steps_of_a_network_are_compared(ours, images, verdict, monkeypatch, capsys):
    kinds = []

    def seconds_per_call(step, _):
        model = inspect.getclosurevars(step).nonlocals["model"]
        kind = next(type(m).__module__ for m in model.modules() if "MaxPool" in type(m).__name__)
        kinds.append(kind)
        return (4 if kind.startswith("mlx.nn") else ours) + 0.01 * len(kinds)

    monkeypatch.setattr(benchmark, "seconds_per_call", seconds_per_call)
    assert benchmark.main(["--model", "unet", "--size", "32", "--batch", images[0]]) == 0
    said = capsys.readouterr().out
    assert kinds == ["mlx.nn.layers.pooling", "mlx_unpool.layers"] * 5
    assert f"\nunet, {images} of 32x32: training step" in said
    assert "\n- mlx.nn: 4.05 s (4.01 to" in said
    assert said.strip().splitlines()[-1] == verdict


SIZES = "--size must be a multiple of 32 and --batch 1 or more"
SMALLEST = "--batch must be 2 or more for --model resnet18 with --size 32"
REFUSED = {
    **dict.fromkeys(("unet --size 33", "unet --size 0", "resnet18 --batch 0"), SIZES),
    "resnet18 --size 32 --batch 1": SMALLEST,
}


@pytest.mark.parametrize(("options", "message"), REFUSED.items())
def test_sizes_that_a_network_cannot_pool_are_refused(options, message):
    command = [sys.executable, "-m", "mlx_unpool.benchmark", "--model", *options.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"error: {message}" in done.stderr


def test_a_measurement_ends_and_takes_turns(monkeypatch):
    calls = []
    monkeypatch.setattr(benchmark, "_TURNS", 2)
    runs = [lambda name=name: calls.append(name) or [] for name in "ab"]
    assert min(benchmark.medians(runs, 0)) > 0
    assert calls == ["a", "a", "b", "b"] * 2


@pytest.mark.parametrize(("before", "expected"), [(2**25, 2**30), (2**32, 2**32)])
def test_the_limit_of_free_buffers_is_raised_and_never_lowered(before, expected):
    original = mx.set_cache_limit(before)
    try:
        assert benchmark.keep_free_buffers() == expected
        assert mx.set_cache_limit(before) == expected
    finally:
        mx.set_cache_limit(original)


def test_forward_runs_in_eval_mode_and_the_gradient_in_training_mode():
    modes = []

    class Recorder(nn.Module):
        def __call__(self, x):
            modes.append(self.training)
            return x

    for run in benchmark.passes(Recorder(), mx.ones(3)):
        run()
    assert modes == [False, True]
