"""``python -m mlx_unpool.benchmark``: its report on small arrays, independent of the times."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

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
    for _, numbers in table:
        assert len(numbers) == len(header[1]) == 6
        assert all(float(number) >= 0 for number in numbers)
    assert re.search(r"\nx \+ 1, for comparison: [\d.]+ GB/s\.\nmlx.nn is faster in: .+\.\n$", said)


def test_it_says_where_mlx_nn_is_faster(small, monkeypatch, capsys):
    times = iter([2e-6, 1e-6, *[1e-6, 2e-6] * 10, 3e-6, 1e-6])
    monkeypatch.setattr(benchmark, "medians", lambda runs, _: [next(times, 1e-6) for _ in runs])
    assert benchmark.main(["--seconds", "0"]) == 0
    said = capsys.readouterr().out
    assert "mlx.nn is faster in: 2x2/2 forward, 3x3x3/2 training." in said
    table = rows(said)
    assert table["2x2/2"][0] == "2.00"
    assert table["3x3x3/2"][3] == "3.00"
    size = 4 * 9 * 8 * 4 + 4 * 4 * 4 * 4  # an image and its pooled values, float32
    assert float(table["2x2/2"][2]) == pytest.approx(size / 1e-6 / 1e9, rel=0.5)


def test_a_measurement_ends_and_takes_turns(monkeypatch):
    calls = []

    def run(name):
        calls.append(name)
        return []

    monkeypatch.setattr(benchmark, "_TURNS", 2)
    first, second = benchmark.medians([lambda: run("a"), lambda: run("b")], 0)
    assert first > 0 < second
    assert calls == ["a", "a", "b", "b"] * 2


def test_help_says_what_is_measured():
    command = [sys.executable, "-m", "mlx_unpool.benchmark", "--help"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "value and gradient" in said
    assert "--seconds" in said
