"""Compare the max pooling of mlx.nn with that of mlx_unpool on this machine, in less than a minute.

Print a report that can be pasted into an issue: forward passes of layers in eval() mode, and forward and
gradient (of a sum of squares) for six windows, on MLX's default device. A ratio is the time of mlx.nn
divided by that of mlx_unpool, both medians of alternating measurements: above 1, mlx_unpool is faster.
GB/s counts each input and output of a pass once.

With --model, print the time of a training step of a network with the pools of each library instead.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

from . import layers
from ._replace import replace_max_pools
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


def keep_free_buffers(least: int = 2**30) -> int:
    """Raise MLX's limit for free buffers to at least ``least`` bytes, and return the limit.

    On the CPU the limit is 32 MB. Larger buffers go back to the system after use, and the page faults of
    the next call vary more between machines than the work itself. A GPU's larger limit is kept.
    """
    limit = max(least, mx.set_cache_limit(least))
    mx.set_cache_limit(limit)
    return limit


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


def in_turns(runs: list[Callable[[], Any]], seconds: float, turns: int) -> list[list[float]]:
    """Sorted times per call of each of ``runs``. The runs take turns of ``seconds`` each."""
    times = [[seconds_per_call(run, seconds) for run in runs] for _ in range(turns)]
    return [sorted(of_run) for of_run in zip(*times)]


def medians(runs: list[Callable[[], Any]], seconds: float) -> list[float]:
    """Median time per call of each of ``runs``."""
    return [statistics.median(times) for times in in_turns(runs, seconds, _TURNS)]


def passes(pool: nn.Module, x: mx.array) -> list[Callable[[], Any]]:
    """A forward pass in eval mode, and a forward and backward pass in training mode."""
    gradient = mx.value_and_grad(lambda x: pool.train()(x).square().sum())
    return [lambda: pool.eval()(x), lambda: gradient(x)]


class _Join(nn.Module):
    """Paths from the same input, and a function that joins their results."""

    def __init__(self, join: Callable[..., mx.array], *paths: Any) -> None:
        super().__init__()
        self.join, self.paths = join, list(paths)

    def __call__(self, x: mx.array) -> mx.array:
        return self.join(*[path(x) for path in self.paths])


def _block(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Module:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm(outputs))


def _resnet18() -> nn.Module:
    layers = [_block(3, 64, 7, 2), nn.relu, nn.MaxPool2d(3, 2, 1)]
    for inputs, outputs in pairwise((64, 64, 64, 128, 128, 256, 256, 512, 512)):
        stride = outputs // inputs
        body = nn.Sequential(_block(inputs, outputs, 3, stride), nn.relu, _block(outputs, outputs))
        skip = nn.Identity() if stride == 1 else _block(inputs, outputs, 1, stride)
        layers += [_Join(mx.add, body, skip), nn.relu]
    return nn.Sequential(*layers, lambda x: x.mean(axis=(1, 2)), nn.Linear(512, 1000))


def _unet() -> nn.Module:
    level = _block(64, 128)
    for inputs, outputs in ((32, 64), (16, 32), (3, 16)):
        inside = nn.Sequential(nn.MaxPool2d(2), level, nn.relu, nn.Upsample(2))
        join = _Join(lambda *paths: mx.concatenate(list(paths), -1), nn.Identity(), inside)
        level = nn.Sequential(_block(inputs, outputs), nn.relu, join, _block(3 * outputs, outputs))
    return nn.Sequential(level, nn.relu, nn.Conv2d(16, 2, 1))


_MODELS = {"resnet18": _resnet18, "unet": _unet}


def training_step(model: nn.Module, x: mx.array) -> Callable[[], Any]:
    """A step of training, which returns everything that has to be evaluated."""
    optimizer = optim.SGD(1e-3, momentum=0.9)
    classes = mx.zeros(model(x).shape[:-1], mx.int32)
    loss_of = nn.value_and_grad(model, lambda: nn.losses.cross_entropy(model(x), classes).mean())

    def step() -> Any:
        loss, gradients = loss_of()
        optimizer.update(model, gradients)
        return loss, model.parameters(), optimizer.state

    return step


def compare_training(options: argparse.Namespace) -> None:
    """Print the time of a training step with the pools of each library."""
    new, size, batch = _MODELS[options.model], options.size, options.batch
    images = f"{batch} image{'s' * (batch > 1)} of {size}x{size}"
    print(f"{options.model}, {images}: training step, median (range) of 5\n")
    x = mx.random.normal((batch, size, size, 3))
    steps = [training_step(model, x) for model in (new(), replace_max_pools(new()))]
    theirs, ours = times = in_turns(steps, options.seconds, 5)
    for library, (low, _, median, _, high) in zip(("mlx.nn", "mlx_unpool"), times):
        print(f"- {library}: {median:.4g} s ({low:.4g} to {high:.4g})")
    is_clear = ours[-1] < theirs[0] or theirs[-1] < ours[0]
    ratio = f"The ratio, mlx.nn / mlx_unpool, is {theirs[2] / ours[2]:.3f}."
    print("", ratio if is_clear else "The ranges overlap: no measurable difference.", sep="\n")


def compare_windows(options: argparse.Namespace) -> None:
    """Print a table of forward passes, and of forward and gradient."""
    batch = _GPU_BATCH if mx.default_device().type == mx.gpu else 1
    measures, seconds, slower = ("forward", "forward and gradient"), options.seconds, []
    columns = (f" {name}, mlx.nn / mlx_unpool | GB/s | mlx.nn GB/s |" for name in measures)
    print("| window |", *columns, "\n", "|---" * 7, "|", sep="")
    x = mx.random.normal((batch, 112, 112, 64))
    seconds_per_call(lambda: x + 1, _WARM_UP if seconds else 0)
    for name, (layer, window, shape) in _CASES.items():
        x = mx.random.normal((batch, *shape))
        ours, theirs = (getattr(library, layer)(*window) for library in (layers, nn))
        size = x.nbytes + ours(x).nbytes
        cells = [name]
        runs = zip(measures, passes(ours, x), passes(theirs, x))
        for count, (kind, *pair) in enumerate(runs, 1):
            times = medians(pair, seconds)
            ratio = times[1] / times[0]
            cells += [f"{ratio:.2f}x", *(f"{count * size / t / 1e9:.2f}" for t in times)]
            if round(ratio, 2) < 1:
                slower.append(f"{name} {kind}")
        print(f"| {' | '.join(cells)} |", flush=True)
        mx.clear_cache()
    (copy,) = medians([lambda: x + 1], seconds)
    print(f"\nx + 1, for comparison: {2 * x.nbytes / copy / 1e9:.2f} GB/s.")
    print(f"mlx.nn is faster in: {', '.join(slower) or 'none of these'}.")


def main(arguments: list[str] | None = None) -> int:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m mlx_unpool.benchmark", description=__doc__)
    add = parser.add_argument
    add("--seconds", type=float, default=0.4, help="seconds per measurement (default 0.4)")
    add("--model", choices=_MODELS, help="measure training steps instead")
    add("--size", type=int, default=224, help="height and width of --model's images (default 224)")
    add("--batch", type=int, default=32, help="images per step (default 32)")
    options = parser.parse_args(arguments)
    if options.size % 32 or min(options.size, options.batch) < 1:
        parser.error("--size must be a multiple of 32 and --batch 1 or more")
    if options.model == "resnet18" and options.size * options.batch == 32:
        parser.error("--batch must be 2 or more for --model resnet18 with --size 32")
    print("```text")
    limit = keep_free_buffers()
    print_versions(device=device_name(mx.default_device()))
    print(f"limit of free buffers (mx.set_cache_limit): {limit / 2**30:.4g} GiB")
    print("```\n")
    (compare_training if options.model else compare_windows)(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
