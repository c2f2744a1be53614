"""``python -m mlx_unpool.selftest`` where there is no GPU; tests/metal runs it on the emulated device."""

from __future__ import annotations

import subprocess
import sys

import mlx.core as mx
import pytest

from mlx_unpool import _backends, functional, selftest


def run(*options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "mlx_unpool.selftest", *options]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(_backends, "is_available", lambda name: name == "ops")


def test_help_says_what_is_checked_and_what_the_exit_status_means():
    result = run("--help")
    assert result.returncode == 0
    assert "bit for bit" in result.stdout
    assert "Exit status: 0 if" in result.stdout


@pytest.mark.skipif(mx.metal.is_available() or mx.cuda.is_available(), reason="here is a GPU")
def test_without_a_gpu_it_checks_the_cpu_and_says_that_this_is_all():
    result = run()
    assert result.returncode == 2
    assert "NO KERNEL WAS TESTED, only the CPU backend" in result.stdout
    assert result.stdout.startswith("```text\nmlx_unpool ")
    assert "234 of its 234 results agree" in result.stdout


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("max_pool2d", ["pool", "gradient of pool"]),
        ("max_unpool3d", ["unpool, flat", "unpool, window", "gradient of unpool"]),
    ],
)
def test_a_wrong_cpu_backend_is_found_and_named(no_gpu, monkeypatch, capsys, name, wrong):
    right = getattr(functional, name)

    def doubled(*arguments, **options):
        result = right(*arguments, **options)
        return (2 * result[0], result[1]) if isinstance(result, tuple) else 2 * result

    monkeypatch.setattr(functional, name, doubled)
    assert selftest.main([]) == 1
    said = capsys.readouterr().out
    for result in wrong:
        assert f"DOES NOT AGREE: {result}, {name[-2]}-D, window 3x3/1, float16" in said
    assert "1-D" not in said
