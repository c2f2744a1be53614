"""``python -m mlx_unpool benchmark``: its report on small arrays, independent of the times."""

import inspect
import re

import mlx.core as mx
import mlx.nn as nn
import networks
import pytest
from mlx.utils import tree_flatten

from mlx_unpool import benchmark

WINDOWS = "2x2/2", "3x3/2", "3x3/1", "1-D 3/2", "2x2x2/2", "3x3x3/2"


@pytest.fixture
def small(monkeypatch):
    """Arrays with one image, and with axes of at most 9, 8 and 7 positions and 4 channels."""
    normal = mx.random.normal

    def small_normal(shape, *more, **options):
        sizes = (1, *(9, 8, 7)[: len(shape) - 2], 4)
        return normal([min(pair) for pair in zip(shape, sizes)], *more, **options)

    monkeypatch.setattr(mx.random, "normal", small_normal)


@pytest.fixture
def times(monkeypatch):
    """Replace measured times: seconds per call, one after the other, then the last one."""

    def replace(*seconds: float) -> None:
        left = list(seconds)
        next_time = lambda *_: left.pop(0) if len(left) > 1 else left[0]
        monkeypatch.setattr(benchmark, "seconds_per_call", next_time)

    return replace


def rows(said: str) -> dict[str, list[str]]:
    cells = [line.strip("| ").split(" | ") for line in said.splitlines() if line.startswith("| ")]
    return {name: numbers for name, *numbers in cells}


def test_the_report_has_ratios_of_the_turns_and_a_warning_if_they_differ(small, times, capsys):
    turns = [(2e-6, 1e-6), (2e-6, 1.2e-6), (2e-6, 0.8e-6), (2e-6, 1e-6), (1e-6, 0.5e-6)]
    times(1, *(time for turn in turns for time in turn), 1e-6)
    assert benchmark.report(seconds=0) == 0
    said = capsys.readouterr().out
    assert re.match(r"```text\nmlx_unpool +\d.*\nmlx +\d.*\nPython .*\nsystem .*\ndevice +\w", said)
    assert re.search(r"\nlimit of free buffers .*: [\d.]+ GiB; load: [\d.]+\n```\n", said)
    assert re.search(r"\nfirst call of MaxPool2d\(4, 3\): [\d.]+ ms\n", said)
    (_, header), *_ = (table := rows(said)).items()
    assert list(table)[1:] == list(WINDOWS)
    assert header[1::3] == [
        f"{of}, mlx.nn / mlx_unpool" for of in ("forward", "forward and gradient")
    ]
    assert table["2x2/2"][1] == "0.50 (0.40 to 0.60)"
    assert table["2x2/2"][4] == "1.00 (1.00 to 1.00)"
    size = 4 * 9 * 8 * 4 + 4 * 4 * 4 * 4  # an image and its pooled values, float32
    for numbers, bytes_per_second in (
        (table["2x2/2"][2:4], (size / 2e-6, size / 1e-6)),
        (table["2x2/2"][5:7], (2 * size / 1e-6,) * 2),  # forward and gradient
        (re.findall(r"comparison: (.*) GB/s", said), (2 * 9 * 8 * 7 * 4 * 4 / 1e-6,)),
    ):
        assert [float(n) for n in numbers] == pytest.approx(
            [n / 1e9 for n in bytes_per_second], abs=0.005
        )
    warning = "The ratios of the turns differ by more than 30 % in: 2x2/2 forward.\n"
    assert said.endswith(f"{warning}Was the machine busy? Please run it again.\n")


MODELS = {  # pools, parameters
    "sppf": (1, 164_608),
    "googlenet": (13, 6_624_904),
    "resnet18": (1, 11_689_512),
    "unet": (3, 243_090),
}


@pytest.mark.parametrize("name", networks.MODELS)
def test_the_networks_are_those_of_the_papers(name):
    """GoogLeNet and ResNet-18 have as many parameters as in torchvision."""
    new, shape = networks.MODELS[name]
    model = new()
    parameters = dict(tree_flatten(model.trainable_parameters()))
    pools = sum(isinstance(module, nn.MaxPool2d) for module in model.modules())
    assert (pools, sum(values.size for values in parameters.values())) == MODELS[name]
    size = (8, 8, shape[-1]) if shape else (32, 32, 3)
    step = benchmark.training_step(model, mx.random.normal((2, *size)))
    mx.eval(step())
    for path, values in tree_flatten(model.trainable_parameters()):
        assert not mx.array_equal(values, parameters[path]), path


def test_training_steps_of_a_block_are_compared(monkeypatch, capsys):
    kinds = []

    def seconds_per_call(step, _):
        model = inspect.getclosurevars(step).nonlocals["model"]
        kind = next(type(m).__module__ for m in model.modules() if "MaxPool" in type(m).__name__)
        kinds.append(kind)
        return 4 if kind.startswith("mlx.nn") else 3

    monkeypatch.setattr(benchmark, "seconds_per_call", seconds_per_call)
    benchmark.compare_block(2, 0)
    assert kinds == ["mlx_unpool.pooling", "mlx.nn.layers.pooling"] * 5
    found = rows(capsys.readouterr().out)["SPPF block"]
    assert found == ["2x20x20x256", "4000", "3000", "1.33 (1.33 to 1.33)"]


def test_all_checks_the_kernels_and_measures_layers_and_a_block(times, monkeypatch, capsys):
    times(1)
    for status in (0, 1, 2):
        monkeypatch.setattr(benchmark, "check", lambda status=status: print("self-test") or status)
        assert benchmark.report(everything=True) == (status == 1)
        said = capsys.readouterr().out
        assert said.startswith("```text\nself-test\nfirst call")
        assert {*WINDOWS, "SPPF block"} < set(rows(said))


@pytest.mark.parametrize(("before", "expected"), [(2**25, 2**30), (2**32, 2**32)])
def test_the_limit_of_free_buffers_is_raised_and_never_lowered(before, expected):
    original = mx.set_cache_limit(before)
    try:
        assert benchmark.keep_free_buffers() == expected
        assert mx.set_cache_limit(before) == expected
    finally:
        mx.set_cache_limit(original)


@pytest.fixture
def comparison():
    """The module ``mlx_nn``, which raises the limit of free buffers when it is imported."""
    limit = mx.set_cache_limit(2**25)
    import mlx_nn

    mx.set_cache_limit(limit)
    return mlx_nn


def test_the_page_names_rows_in_which_mlx_nn_is_faster(comparison):
    """Of two runs the slower one counts; rows of a busy machine do not."""

    def run(*ratios: float) -> dict:
        rows = []
        for name, ratio in zip(("8x112x112x64, 2x2/2", "8x4096x64, 4/4", "1x8x8x8, 2x2/2"), ratios):
            times = {"ours": [0.001 * ratio] * 2, "mlx.nn": [0.001] * 2}
            rows.append({"case": name, "forward and gradient": times})
        return {"rows": rows}

    runs = [run(0.8, 1.04, 1), run(0.5, 1.25, 1)]
    said = comparison.TABLES["slower"](runs)
    assert " 1.05 times the time of `mlx.nn`: `8x4096x64, 4/4` (1.25). " in said
    assert said.endswith("calls of 0.5 ms or more: geometric mean 1.00, highest 1.25.")
    runs[1]["rows"][1]["forward and gradient"]["ours"][1] /= 2  # half of the time was other work
    said = comparison.TABLES["slower"](runs)
    assert ": none. " in said
    assert said.endswith("geometric mean 0.89, highest 1.00.")


def test_windows_of_the_comparison_have_padding_only_if_they_overlap(comparison):
    windows = {(name.rpartition(", ")[2], case.window) for name, case in comparison.CASES.items()}
    assert {("3x3/2", (3, 2, 1)), ("3x3/3", (3, 3, 0)), ("31x31/31", (31, 31, 0))} < windows


def test_forward_runs_in_eval_mode_and_the_gradient_in_training_mode():
    modes: list[bool] = []
    call = lambda layer, x: modes.append(layer.training) or x
    layer = type("Recorder", (nn.Module,), {"__call__": call})()
    for run in benchmark.passes(layer, mx.ones(3)):
        run()
    assert modes == [False, True]
