"""Compare the max pooling of mlx.nn with that of mlx_unpool on this machine, in about a minute.

Print a report that can be pasted into an issue: forward passes and training (value and gradient of a sum of
squares) for six windows, on MLX's default device. A ratio is the time of mlx_unpool divided by that of
mlx.nn, both medians of alternating measurements. GB/s counts each input and output of a pass once.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from . import layers
from .selftest import device_name, print_versions

_CASES = {  # name: class, kernel_size, stride and padding, shape of one image
    "2x2/2": ("MaxPool2d", (2, 2, 0), (112, 112, 64)),
    "3x3/2": ("MaxPool2d", (3, 2, 1), (112, 112, 64)),
    "3x3/1": ("MaxPool2d", (3, 1, 1), (112, 112, 64)),
    "1-D 3/2": ("MaxPool1d", (3, 2, 1), (12544, 64)),
    "2x2x2/2": ("MaxPool3d", (2, 2, 0), (32, 32, 32, 32)),
    "3x3x3/2": ("MaxPool3d", (3, 2, 1), (32, 32, 32, 32)),
}
_GPU_BATCH = 16  # 50 MB, so that a pass takes longer than building its graph
_TURNS = 3  # measurements per median
_WARM_UP = 1.0  # seconds, enough for a GPU to raise its clock rate


def seconds_per_call(run: Callable[[], Any], seconds: float) -> float:
    """Mean time per call over ``seconds``. The next call is built and queued while one is running."""
    running = run()
    mx.eval(running)
    calls, start = 0, time.perf_counter()
    while calls == 0 or time.perf_counter() - start < seconds:
        queued = run()
        mx.async_eval(queued)
        mx.eval(running)
        running = queued
        calls += 1
    mx.eval(running)
    return (time.perf_counter() - start) / calls


def medians(runs: list[Callable[[], Any]], seconds: float) -> list[float]:
    """Median time per call of each of ``runs``, which are measured in turns of ``seconds``."""
    turns = [[seconds_per_call(run, seconds) for run in runs] for _ in range(_TURNS)]
    return [statistics.median(times) for times in zip(*turns)]


def passes(pool: nn.Module, x: mx.array) -> list[Callable[[], Any]]:
    """A forward pass, and a forward and backward pass."""
    training = mx.value_and_grad(lambda x: pool(x).square().sum())
    return [lambda: pool(x), lambda: training(x)]


def main(arguments: list[str] | None = None) -> int:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m mlx_unpool.benchmark", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=0.4, help="length of each of 72 measurements (default 0.4)"
    )
    seconds = parser.parse_args(arguments).seconds
    device = mx.default_device()
    on_gpu = device.type == mx.gpu
    print("```text")
    print_versions(device=device_name(device))
    print("```\n")
    print("| window | forward, ratio | GB/s | mlx.nn GB/s | training, ratio | GB/s | mlx.nn GB/s |")
    print("|---|---|---|---|---|---|---|")
    slower = []
    x = mx.random.normal((_GPU_BATCH if on_gpu else 1, 112, 112, 64))
    seconds_per_call(lambda: x + 1, _WARM_UP if seconds else 0)
    for name, (layer, window, shape) in _CASES.items():
        x = mx.random.normal((_GPU_BATCH if on_gpu else 1, *shape))
        ours, theirs = (getattr(library, layer)(*window) for library in (layers, nn))
        size = x.nbytes + ours(x).nbytes
        cells = [name]
        runs = zip(("forward", "training"), passes(ours, x), passes(theirs, x))
        for count, (kind, *pair) in enumerate(runs, 1):
            times = medians(pair, seconds)
            ratio = times[0] / times[1]
            cells += [f"{ratio:.2f}", *(f"{count * size / t / 1e9:.2f}" for t in times)]
            if ratio > 1:
                slower.append(f"{name} {kind}")
        print(f"| {' | '.join(cells)} |", flush=True)
        mx.clear_cache()
    (copy,) = medians([lambda: x + 1], seconds)
    print(f"\nx + 1, for comparison: {2 * x.nbytes / copy / 1e9:.2f} GB/s.")
    print(f"mlx.nn is faster in: {', '.join(slower) or 'none of these'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
