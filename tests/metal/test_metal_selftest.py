"""``python -m mlx_unpool.selftest`` reports what is true, here on the emulated device."""

from __future__ import annotations

import subprocess
import sys

import as_on_a_mac
import emulator
import mlx.core as mx
import pytest

from mlx_unpool import _kernels, selftest

SMALL_PLANES = {"_SMALL": ((1, 1, 7, 6, 5),), "_BIG": (1, 1, 6, 6, 8), "_REPEATS": 1}


@pytest.fixture
def run(monkeypatch, capsys):
    """A function that returns the exit status and the output of the self-test with small planes."""
    cpu_stream, info = mx.default_stream(mx.cpu), mx.device_info(mx.cpu)
    monkeypatch.setattr(mx, "default_stream", lambda _: cpu_stream)
    monkeypatch.setattr(mx, "device_info", lambda _: info)
    for name, value in SMALL_PLANES.items():
        monkeypatch.setattr(selftest, name, value)

    def run(edit=lambda text: text) -> tuple[int, str]:
        emulator.compile_all([lambda: mx.array(selftest.main([]))], emulator.Emulator(edit))
        capsys.readouterr()
        with emulator.Emulator(edit).installed():
            return selftest.main([]), capsys.readouterr().out

    return run


def test_kernels_that_agree_are_reported(run):
    status, said = run()
    assert status == 0
    assert "All agree." in said
    assert "(metal)" in said
    assert said.endswith("```\n")
    table = said[said.index("primitive ") : said.index("All agree.")].rstrip()
    rows = [line.split() for line in table.splitlines()][1:-1]
    # dtypes x (windows x (primitives in each format) + primitives of adaptive windows)
    assert len(rows) == 3 * (3 * (5 + 6) + 2)
    assert all("yes" in row for row in rows)


def test_the_device_of_a_mac_is_found(run):
    run()  # compiles the kernels together, which the program would compile one by one
    program = f"""
from mlx_unpool import selftest
vars(selftest).update({SMALL_PLANES})
selftest.sys.exit(selftest.main([]))
"""
    command = [sys.executable, as_on_a_mac.__file__, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "device      Emulated Apple GPU applegpu_g13s (metal)" in result.stdout
    assert "All agree." in result.stdout


def test_a_kernel_that_does_not_agree_is_reported(run):
    right = "(rank > held) | nan"
    assert _kernels.text("pool.metal").count(right) == 1
    status, said = run(lambda text: text.replace(right, "(rank < held) | nan"))
    assert status == 1
    assert "18 DO NOT AGREE." in said
    rows = {" ".join(line.split()[:5]) for line in said.splitlines()}
    assert {
        "pool 2x2/2 flat float16 NO",
        "place 2x2/2 flat float16 yes",
        "pool adaptive flat float16 yes",
    } <= rows
