"""Compare the max pooling of mlx.nn with that of mlx_unpool on this machine, in less than a minute.

Print a Markdown table that can be pasted into an issue: forward passes of layers in eval() mode, and
forward and gradient (of a sum of squares) for six windows, on MLX's default device. A ratio is the time
of mlx.nn divided by that of mlx_unpool: above 1, mlx_unpool is faster. It is the median of alternating
measurements, with the lowest and the highest; each call is built while the one before it runs. GB/s
counts each input and output of a pass once.

With --model, print the time of a training step of a network with the pools of each library instead. With
--all, check the kernels as mlx_unpool.selftest does, then print both tables.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

from . import layers
from ._replace import replace_max_pools
from .selftest import check, device_name, print_versions

_CASES = {  # name: class, kernel_size, stride and padding, shape of one image
    "2x2/2": ("MaxPool2d", (2, 2, 0), (112, 112, 64)),
    "3x3/2": ("MaxPool2d", (3, 2, 1), (112, 112, 64)),
    "3x3/1": ("MaxPool2d", (3, 1, 1), (112, 112, 64)),
    "1-D 3/2": ("MaxPool1d", (3, 2, 1), (12544, 64)),
    "2x2x2/2": ("MaxPool3d", (2, 2, 0), (32, 32, 32, 32)),
    "3x3x3/2": ("MaxPool3d", (3, 2, 1), (32, 32, 32, 32)),
}
_GPU_BATCH = 16  # 50 MB, so that a pass takes longer than building its graph
_TURNS = 5  # measurements per median
_WARM_UP = 1.0  # seconds, enough for a GPU to raise its clock rate
_NOISE = 1.3  # highest ratio of a row divided by its lowest, above which there is a warning


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


class Comparison(NamedTuple):
    """Median seconds per call of two functions, and the sorted ratios of all turns."""

    ours: float
    theirs: float
    ratios: list[float]

    def __str__(self) -> str:
        low, median, high = self.ratios[0], statistics.median(self.ratios), self.ratios[-1]
        return f"{median:.2f} ({low:.2f} to {high:.2f})"

    @property
    def is_noisy(self) -> bool:
        """Whether the ratios differ so much that the machine was busy with other work."""
        return self.ratios[-1] > _NOISE * self.ratios[0]


def compared(ours: Callable[[], Any], theirs: Callable[[], Any], seconds: float) -> Comparison:
    """Compare the time per call of two functions, which take turns of ``seconds`` each."""
    turns = [[seconds_per_call(run, seconds) for run in (ours, theirs)] for _ in range(_TURNS)]
    ratios = sorted(their_time / our_time for our_time, their_time in turns)
    our_median, their_median = map(statistics.median, zip(*turns))
    return Comparison(our_median, their_median, ratios)


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


def _concatenated(*arrays: mx.array) -> mx.array:
    return mx.concatenate(list(arrays), -1)


def _block(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, *then: Any) -> Any:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm(outputs), *then)


class _SPPF(nn.Module):
    """The pooling pyramid of YOLOv5 and later versions, for feature maps with 256 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.reduce, self.join = _block(256, 128, 1, 1, nn.silu), _block(512, 256, 1, 1, nn.silu)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def __call__(self, x: mx.array) -> mx.array:
        maps = [self.reduce(x)]
        for _ in range(3):
            maps.append(self.pool(maps[-1]))
        return self.join(_concatenated(*maps))


def _inception(inputs: int, *outputs: int) -> Any:
    one, before_second, second, before_third, third, pooled = outputs
    paths = [
        _block(inputs, one, 1, 1, nn.relu),
        _block(inputs, before_second, 1, 1, nn.relu, _block(before_second, second, 3, 1, nn.relu)),
        _block(inputs, before_third, 1, 1, nn.relu, _block(before_third, third, 3, 1, nn.relu)),
        nn.Sequential(nn.MaxPool2d(3, 1, 1), _block(inputs, pooled, 1, 1, nn.relu)),
    ]
    return _Join(_concatenated, *paths)


_INCEPTIONS = [
    (192, 64, 96, 128, 16, 32, 32),
    (256, 128, 128, 192, 32, 96, 64),
    (480, 192, 96, 208, 16, 48, 64),
    (512, 160, 112, 224, 24, 64, 64),
    (512, 128, 128, 256, 24, 64, 64),
    (512, 112, 144, 288, 32, 64, 64),
    (528, 256, 160, 320, 32, 128, 128),
    (832, 256, 160, 320, 32, 128, 128),
    (832, 384, 192, 384, 48, 128, 128),
]


def _googlenet() -> nn.Module:
    blocks = [_inception(*channels) for channels in _INCEPTIONS]
    blocks[7:7], blocks[2:2] = [nn.MaxPool2d(2)], [nn.MaxPool2d(3, 2, 1)]
    stem = [_block(3, 64, 7, 2, nn.relu), nn.MaxPool2d(3, 2, 1), _block(64, 64, 1, 1, nn.relu)]
    stem += [_block(64, 192, 3, 1, nn.relu), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, lambda x: x.mean(axis=(1, 2)), nn.Linear(1024, 1000))


def _resnet18() -> nn.Module:
    layers = [_block(3, 64, 7, 2, nn.relu), nn.MaxPool2d(3, 2, 1)]
    for inputs, outputs in pairwise((64, 64, 64, 128, 128, 256, 256, 512, 512)):
        stride = outputs // inputs
        body = _block(inputs, outputs, 3, stride, nn.relu, _block(outputs, outputs))
        skip = nn.Identity() if stride == 1 else _block(inputs, outputs, 1, stride)
        layers += [_Join(mx.add, body, skip), nn.relu]
    return nn.Sequential(*layers, lambda x: x.mean(axis=(1, 2)), nn.Linear(512, 1000))


def _unet() -> nn.Module:
    level = _block(64, 128)
    for inputs, outputs in ((32, 64), (16, 32), (3, 16)):
        inside = nn.Sequential(nn.MaxPool2d(2), level, nn.relu, nn.Upsample(2))
        join = _Join(_concatenated, nn.Identity(), inside)
        level = _block(inputs, outputs, 3, 1, nn.relu, join, _block(3 * outputs, outputs))
    return nn.Sequential(level, nn.relu, nn.Conv2d(16, 2, 1))


_MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {  # shape of one input
    "sppf": (_SPPF, (20, 20, 256)),  # an image of 640x640 in YOLOv5
    "googlenet": (_googlenet, ()),  # an image of --size
    "resnet18": (_resnet18, ()),
    "unet": (_unet, ()),
}


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


def compare_models(names: Iterable[str], size: int, batch: int, seconds: float) -> list[str]:
    """Print a table of training steps with the pools of each library. Return the noisy rows."""
    print("| training step | input | mlx.nn, ms | mlx_unpool, ms | mlx.nn / mlx_unpool |")
    print("|---|---|---|---|---|")
    noisy = []
    for name in names:
        new, shape = _MODELS[name]
        x = mx.random.normal((batch, *(shape or (size, size, 3))))
        ours, theirs = (training_step(model, x) for model in (replace_max_pools(new()), new()))
        found = compared(ours, theirs, seconds)
        times = f"{1e3 * found.theirs:.4g} | {1e3 * found.ours:.4g}"
        print(f"| {name} | {'x'.join(map(str, x.shape))} | {times} | {found} |", flush=True)
        noisy += [name] * found.is_noisy
        mx.clear_cache()
    return noisy


def compare_windows(on_gpu: bool, seconds: float) -> list[str]:
    """Print a table of forward passes, and of forward and gradient. Return the noisy rows."""
    batch = _GPU_BATCH if on_gpu else 1
    measures, noisy = ("forward", "forward and gradient"), []
    columns = (f" {name}, mlx.nn / mlx_unpool | GB/s | mlx.nn GB/s |" for name in measures)
    print("| window | input |", *columns, "\n", "|---" * 8, "|", sep="")
    x = mx.random.normal((batch, 112, 112, 64))
    seconds_per_call(lambda: x + 1, _WARM_UP if seconds else 0)
    for name, (layer, window, shape) in _CASES.items():
        x = mx.random.normal((batch, *shape))
        ours, theirs = (getattr(library, layer)(*window) for library in (layers, nn))
        size = x.nbytes + ours(x).nbytes
        cells = [name, "x".join(map(str, x.shape))]
        runs = zip(measures, passes(ours, x), passes(theirs, x))
        for count, (kind, our_pass, their_pass) in enumerate(runs, 1):
            found = compared(our_pass, their_pass, seconds)
            cells += [str(found), *(f"{count * size / t / 1e9:.2f}" for t in found[:2])]
            noisy += [f"{name} {kind}"] * found.is_noisy
        print(f"| {' | '.join(cells)} |", flush=True)
        mx.clear_cache()
    copy = statistics.median(seconds_per_call(lambda: x + 1, seconds) for _ in range(_TURNS))
    print(f"\nx + 1, for comparison: {2 * x.nbytes / copy / 1e9:.2f} GB/s.")
    return noisy


def main(arguments: list[str] | None = None) -> int:
    """Print the report. Return 1 if the self-test of ``--all`` finds a kernel that does not agree."""
    on_gpu = mx.default_device().type == mx.gpu
    size, batch = (224, 32) if on_gpu else (96, 2)
    parser = argparse.ArgumentParser(prog="python -m mlx_unpool.benchmark", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    either, add = parser.add_mutually_exclusive_group(), parser.add_argument
    either.add_argument("--all", action="store_true", help="the self-test, layers and models")
    either.add_argument("--model", choices=_MODELS, help="measure training steps instead")
    add("--seconds", type=float, default=0.2, help="seconds per measurement (default 0.2)")
    add("--size", type=int, default=size, help=f"height and width of images (default {size})")
    add("--batch", type=int, default=batch, help=f"inputs per step (default {batch})")
    options = parser.parse_args(arguments)
    if options.size % 32 or options.size < 64 or options.batch < 1:
        parser.error("--size must be a multiple of 32 above 32, and --batch 1 or more")
    print("```text")
    status = 0
    if options.all:
        status = check()
    else:
        print_versions(device=device_name(mx.default_device()))
    limit, load = keep_free_buffers(), os.getloadavg()[0]
    print(f"limit of free buffers (mx.set_cache_limit): {limit / 2**30:.4g} GiB; load: {load:.2f}")
    print("```\n")
    start, cpu_start, noisy = time.perf_counter(), time.process_time(), []
    if not options.model:
        noisy += compare_windows(on_gpu, options.seconds)
    if options.model or options.all:
        print()
        names = [options.model] if options.model else _MODELS
        noisy += compare_models(names, options.size, options.batch, options.seconds)
    cpu = time.process_time() - cpu_start
    print(f"\nElapsed: {time.perf_counter() - start:.1f} s, CPU time: {cpu:.1f} s.")
    if noisy:
        print(f"The ratios of the turns differ by more than 30 % in: {', '.join(noisy)}.")
        print("Was the machine busy? Please run it again.")
    return int(status == 1)


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        mx.clear_streams()  # otherwise MLX may crash when the interpreter exits
