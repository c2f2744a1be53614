"""Processes: workers of ``multiprocessing``, and the self-test without a GPU."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

import mlx_unpool

ROOT = Path(__file__).parent.parent
# Neither Metal nor CUDA works in a child of fork(): docs/reliability.md recommends "spawn".
FORK = pytest.mark.skipif(
    not hasattr(os, "fork") or mx.is_available(mx.gpu), reason="a GPU does not work after a fork"
)


def numbers(seed: int) -> list[float]:
    """Sums of unpooled values, gradients, and values of random and adaptive windows."""
    mx.random.seed(seed)
    x = mx.random.normal((2, 9, 9, 3))
    pool = mlx_unpool.MaxPool2d(3, 2, 1, return_indices=True)
    unpool = mlx_unpool.MaxUnpool2d.from_pool(pool)
    full = unpool(*pool(x), output_size=x.shape)
    gradient = mx.grad(lambda x: (unpool(*pool(x), output_size=x.shape) ** 2).sum())(x)
    random = mlx_unpool.fractional_max_pool2d(x, 2, output_size=4)
    adaptive = mlx_unpool.adaptive_max_pool2d(x, 4)
    return [array.sum().item() for array in (full, gradient, random, adaptive)]


def test_newly_started_workers_work():
    expected = [numbers(seed) for seed in range(2)]  # uses MLX here first
    with multiprocessing.get_context("spawn").Pool(2) as workers:
        assert workers.map_async(numbers, range(2)).get(timeout=120) == expected


FORKED = """
import multiprocessing
import mlx.core as mx, mlx_unpool

def work(seed):
    x = mx.random.normal((2, 9, 9, 3), key=mx.random.key(seed))
    return mx.grad(lambda x: (mlx_unpool.max_pool2d(x, 3, 2, 1) ** 2).sum())(x).sum().item()

with multiprocessing.get_context("fork").Pool(2) as workers:
    got = workers.map(work, range(4))
print(got == [work(seed) for seed in range(4)])
"""


@FORK
def test_workers_that_are_forked_before_mlx_runs_work():
    """Importing the package starts no thread and uses no device, so a fork loses nothing."""
    command = [sys.executable, "-c", FORKED]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stdout) == (0, "True\n"), result.stderr


@pytest.mark.skipif(mx.metal.is_available() or mx.cuda.is_available(), reason="there is a GPU here")
def test_the_self_test_explains_itself_and_needs_a_gpu():
    """tests/metal runs it on the emulated device."""
    command = [sys.executable, "-m", "mlx_unpool.selftest"]
    options = {"capture_output": True, "text": True, "cwd": ROOT}
    said, done = (subprocess.run([*command, *words], **options) for words in (["--help"], []))
    assert (said.returncode, done.returncode) == (0, 2)
    assert "bit for bit" in said.stdout
    assert "Exit status: 0 if" in said.stdout
    assert done.stdout.startswith("```text\nmlx_unpool ")
    assert "no kernel was tested" in done.stdout.lower()
