"""Compare the max pooling of mlx.nn with that of mlx_unpool on this machine, in about 20 seconds.

Print a Markdown table that can be pasted into an issue: forward passes of layers in eval() mode,
and forward and gradient (of a sum of squares) for six windows, on MLX's default device. A ratio is
the time of mlx.nn divided by that of mlx_unpool: above 1, mlx_unpool is faster. It is the median of
alternating measurements, with the lowest and the highest; each call is built while the one before
it runs. GB/s counts each input and output of a pass once. The first call of a layer compiles a
kernel on a GPU.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

from . import pooling
from ._replace import replace_max_pools
from ._report import device_name, print_versions, seconds_per_call
from .selftest import check

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

    On the CPU the limit is 32 MB. Larger buffers go back to the system after use, and the page
    faults of the next call vary more between machines than the work itself. A GPU's larger limit is
    kept.
    """
    limit = max(least, mx.set_cache_limit(least))
    mx.set_cache_limit(limit)
    return limit


class Comparison(NamedTuple):
    """Median seconds per call of two functions, and the sorted ratios of all turns."""

    name: str
    ours: float
    theirs: float
    ratios: list[float]

    def __str__(self) -> str:
        low, median, high = self.ratios[0], statistics.median(self.ratios), self.ratios[-1]
        return f"{median:.2f} ({low:.2f} to {high:.2f})"


def compared(
    name: str, ours: Callable[[], Any], theirs: Callable[[], Any], seconds: float
) -> Comparison:
    """Compare the time per call of two functions, which take turns of ``seconds`` each."""
    turns = [[seconds_per_call(run, seconds) for run in (ours, theirs)] for _ in range(_TURNS)]
    ratios = sorted(their_time / our_time for our_time, their_time in turns)
    our_median, their_median = map(statistics.median, zip(*turns))
    return Comparison(name, our_median, their_median, ratios)


def passes(pool: nn.Module, x: mx.array) -> list[Callable[[], Any]]:
    """A forward pass in eval mode, and a forward and backward pass in training mode."""
    gradient = mx.value_and_grad(lambda x: pool.train()(x).square().sum())
    return [lambda: pool.eval()(x), lambda: gradient(x)]


def block(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, *then: Any) -> Any:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm(outputs), *then)


class SPPF(nn.Module):
    """The pooling pyramid of YOLOv5 and later versions, for feature maps with 256 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.reduce, self.join = block(256, 128, 1, 1, nn.silu), block(512, 256, 1, 1, nn.silu)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def __call__(self, x: mx.array) -> mx.array:
        maps = [self.reduce(x)]
        for _ in range(3):
            maps.append(self.pool(maps[-1]))
        return self.join(mx.concatenate(maps, -1))


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


def compare_block(batch: int, seconds: float) -> Comparison:
    """Print a table of a training step with the pools of each library."""
    x = mx.random.normal((batch, 20, 20, 256))  # of an image of 640x640 in YOLOv5
    ours, theirs = (training_step(model, x) for model in (replace_max_pools(SPPF()), SPPF()))
    found = compared("SPPF block", ours, theirs, seconds)
    print("\n| training step | input | mlx.nn, ms | mlx_unpool, ms | mlx.nn / mlx_unpool |")
    print("|---|---|---|---|---|")
    shape = "x".join(map(str, x.shape))
    print(
        f"| {found.name} | {shape} | {1e3 * found.theirs:.4g} | {1e3 * found.ours:.4g} | {found} |"
    )
    return found


def first_call() -> float:
    """Seconds of the first call of a layer, which compiles its kernel on a GPU."""
    mx.eval(x := mx.random.normal((1, 56, 56, 64)))
    start = time.perf_counter()
    # A window that neither the self-test nor the table below has.
    mx.eval(pooling.MaxPool2d(4, 3)(x))
    return time.perf_counter() - start


def compare_windows(on_gpu: bool, seconds: float) -> list[Comparison]:
    """Print a table of forward passes, and of forward and gradient."""
    batch = _GPU_BATCH if on_gpu else 1
    measures = ("forward", "forward and gradient")
    comparisons: list[Comparison] = []
    columns = (f" {name}, mlx.nn / mlx_unpool | GB/s | mlx.nn GB/s |" for name in measures)
    print("| window | input |", *columns, "\n", "|---" * 8, "|", sep="")
    x = mx.random.normal((batch, 112, 112, 64))
    seconds_per_call(lambda: x + 1, _WARM_UP if seconds else 0)
    for name, (layer, window, shape) in _CASES.items():
        x = mx.random.normal((batch, *shape))
        ours, theirs = (getattr(library, layer)(*window) for library in (pooling, nn))
        size = x.nbytes + ours(x).nbytes
        cells = [name, "x".join(map(str, x.shape))]
        runs = zip(measures, passes(ours, x), passes(theirs, x))
        for count, (kind, our_pass, their_pass) in enumerate(runs, 1):
            found = compared(f"{name} {kind}", our_pass, their_pass, seconds)
            cells += [
                str(found),
                *(f"{count * size / t / 1e9:.2f}" for t in (found.ours, found.theirs)),
            ]
            comparisons.append(found)
        print(f"| {' | '.join(cells)} |", flush=True)
        mx.clear_cache()
    copy = statistics.median(seconds_per_call(lambda: x + 1, seconds) for _ in range(_TURNS))
    print(f"\nx + 1, for comparison: {2 * x.nbytes / copy / 1e9:.2f} GB/s.")
    return comparisons


def report(everything: bool = False, seconds: float = 0.1) -> int:
    """Print the report of ``--all`` or a shorter one.

    Return 1 if the former finds a kernel that is wrong.
    """
    on_gpu = mx.default_device().type == mx.gpu
    print("```text")
    status = 0
    if everything:
        status = check()
    else:
        print_versions(device=device_name(mx.default_device()))
    limit, load = keep_free_buffers(), os.getloadavg()[0]
    print(f"first call of MaxPool2d(4, 3): {1e3 * first_call():.1f} ms")
    print(f"limit of free buffers (mx.set_cache_limit): {limit / 2**30:.4g} GiB; load: {load:.2f}")
    print("```\n")
    comparisons = compare_windows(on_gpu, seconds)
    if everything:
        comparisons.append(compare_block(_GPU_BATCH if on_gpu else 2, seconds))
    if noisy := [
        found.name for found in comparisons if found.ratios[-1] > _NOISE * found.ratios[0]
    ]:
        print(f"\nThe ratios of the turns differ by more than 30 % in: {', '.join(noisy)}.")
        print("Was the machine busy? Please run it again.")
    return int(status == 1)


if __name__ == "__main__":
    raise SystemExit("Run it as a command: python -m mlx_unpool benchmark")
