"""``python -m mlx_unpool.selftest`` says what is so: here on the emulated device, and where there is none."""

from __future__ import annotations

import subprocess
import sys

import emulator
import mlx.core as mx
import pytest

from mlx_unpool import selftest


def run(monkeypatch, edit=None) -> int:
    """The selftest on the emulated device, on planes small enough for it."""
    device = emulator.Emulator(edit)
    cpu_stream, info = mx.default_stream(mx.cpu), mx.device_info(mx.cpu)
    monkeypatch.setattr(mx, "default_stream", lambda _: cpu_stream)
    monkeypatch.setattr(mx, "device_info", lambda _: info)
    monkeypatch.setattr(selftest, "_SMALL", ((1, 1, 7, 6, 5),))
    monkeypatch.setattr(selftest, "_BIG", (1, 1, 6, 6, 8))
    monkeypatch.setattr(selftest, "_REPEATS", 1)
    emulator.compile_all([lambda: mx.array(selftest.main())], edit)
    with device.installed():
        return selftest.main()


def test_kernels_that_agree_are_said_to(monkeypatch, capsys):
    assert run(monkeypatch) == 0
    said = capsys.readouterr().out.rpartition("mlx_unpool ")[
        2
    ]  # the first run was for compiling alone
    assert "All agree." in said
    assert "metal on" in said
    rows = [line for line in said.splitlines() if line.startswith("|")][2:-1]
    # dtypes, windows, primitives with each format; those of adaptive windows
    assert len(rows) == 3 * (3 * (5 + 6) + 2)
    assert all("| yes |" in row for row in rows)


def test_a_kernel_that_does_not_agree_is_named(monkeypatch, capsys):
    wrong = lambda text: text.replace("value > best[v]", "value < best[v]")  # noqa: E731
    assert run(monkeypatch, wrong) == 1
    said = capsys.readouterr().out
    assert "18 DO NOT AGREE." in said
    assert "| pool | 2x2/2 | flat | float16 | NO |" in said
    assert "| place | 2x2/2 | flat | float16 | yes |" in said


@pytest.mark.skipif(mx.metal.is_available() or mx.cuda.is_available(), reason="here is a GPU")
def test_without_a_gpu_it_says_that_nothing_was_tested():
    command = [sys.executable, "-m", "mlx_unpool.selftest"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    assert "NOTHING WAS TESTED" in result.stdout
