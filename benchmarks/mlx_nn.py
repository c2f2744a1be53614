"""Compare max pooling in this library with max pooling in mlx.nn: layers and whole training steps.

    python benchmarks/mlx_nn.py            measure and print the tables (about 4 minutes)
    python benchmarks/mlx_nn.py --store    the same, and store the run beside the last one

The pages show the last two stored runs, of each row the one with the smaller ratio. The runs must
be ten minutes apart. A cell says "machine busy" if the elapsed time is more than 15 % above the CPU
time.

Times are medians in one process on MLX's default device. The two libraries take turns.
"""

import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import harness
import mlx.core as mx
import mlx.nn as nn
import networks

import mlx_unpool
from mlx_unpool import _report, benchmark


class Case(NamedTuple):
    """A pooling window, and the shape and dtype of an array."""

    name: str
    shape: tuple[int, ...]
    window: tuple[int, int, int]  # kernel size, stride, padding
    dtype: mx.Dtype = mx.float32

    def pools(self) -> dict[str, nn.Module]:
        """The pooling layer of each library."""
        name = f"MaxPool{len(self.shape) - 2}d"
        return {
            "ours": getattr(mlx_unpool, name)(*self.window),
            "mlx.nn": getattr(nn, name)(*self.window),
        }


def training(
    shape: tuple[int, ...], kernel: int, stride: int, dtype: mx.Dtype = mx.float32
) -> Case:
    """A pool of a network in training; overlapping windows of odd length have padding."""
    name = "x".join(map(str, shape)) + f", {'x'.join([str(kernel)] * (len(shape) - 2))}/{stride}"
    name += "" if dtype == mx.float32 else f", {str(dtype).rpartition('.')[2]}"
    has_padding = kernel % 2 == 1 and stride < kernel
    return Case(name, shape, (kernel, stride, kernel // 2 if has_padding else 0), dtype)


def side_by_side(*shape: int, kernel: int, dtype: mx.Dtype = mx.float32) -> Case:
    """A pool whose stride is its kernel size."""
    return training(shape, kernel, kernel, dtype)


STAGES = [(8, 112, 112, 64), (8, 56, 56, 128), (16, 28, 28, 256), (32, 14, 14, 512)]
TRAINING = [
    training((1, 112, 112, 64), 2, 2),
    *(training(shape, 2, 2) for shape in STAGES),  # SegNet, U-Net
    training((8, 113, 113, 64), 2, 2),
    training((8, 112, 112, 32), 2, 2),
    training((8, 224, 224, 3), 2, 2),
    training((8, 64, 64, 1), 2, 2),
    training((1, 8, 8, 8), 2, 2),  # the fixed cost of a call
    *(training(STAGES[n], 2, 2, dtype) for dtype in (mx.float16, mx.bfloat16) for n in (0, 3)),
    *(training(shape, 3, 2) for shape in STAGES),  # ResNet, GoogLeNet
    training((8, 57, 57, 64), 3, 2),
    training((8, 112, 112, 3), 3, 2),
    training(STAGES[1], 3, 2, mx.bfloat16),
    training((8, 28, 28, 128), 3, 1),  # Inception blocks
    training((8, 14, 14, 512), 3, 1),
    training((8, 20, 20, 128), 5, 1),  # SPPF block
    training((8, 4096, 64), 2, 2),
    training((8, 4096, 64), 3, 2),
    training((8, 4096, 16), 2, 2),
    training((2, 32, 32, 32, 32), 2, 2),
    training((4, 48, 48, 48, 16), 2, 2),
    training((2, 32, 32, 32, 32), 3, 2),
]
SIDE_BY_SIDE = [
    side_by_side(8, 111, 111, 64, kernel=3),
    side_by_side(8, 111, 111, 3, kernel=3),
    side_by_side(8, 112, 112, 64, kernel=4),
    side_by_side(16, 28, 28, 256, kernel=4),
    side_by_side(8, 112, 112, 64, kernel=4, dtype=mx.bfloat16),
    side_by_side(8, 112, 112, 64, kernel=7),
    side_by_side(2, 112, 112, 256, kernel=7),
    side_by_side(8, 112, 112, 3, kernel=7),
    side_by_side(4, 110, 110, 64, kernel=10),
    side_by_side(4, 60, 60, 3, kernel=10),
    side_by_side(4, 119, 119, 64, kernel=17),
    side_by_side(4, 124, 124, 64, kernel=31),
    side_by_side(8, 4095, 64, kernel=3),
    side_by_side(8, 4096, 64, kernel=4),
    side_by_side(4, 4096, 128, kernel=4),
    side_by_side(8, 4096, 64, kernel=16),
    side_by_side(2, 33, 33, 33, 32, kernel=3),
    side_by_side(2, 32, 32, 32, 32, kernel=4),
    side_by_side(2, 32, 32, 32, 32, kernel=8),
]
CASES = {case.name: case for case in [*TRAINING, *SIDE_BY_SIDE]}
MEASURES = {
    "forward": lambda pool: pool.eval(),
    "forward and gradient": lambda pool: mx.value_and_grad(
        lambda x: pool.train()(x).square().sum()
    ),
}
HEADINGS = ("forward", "training")
SLOWER = 1.05  # times the time of mlx.nn, from which the page names a row
SHORTEST = 5e-4  # seconds: shorter calls are mostly overhead
# Rows of the other tables
MEMORY = [
    "8x112x112x64, 2x2/2",
    "8x112x112x64, 3x3/2",
    "8x28x28x128, 3x3/1",
    "8x20x20x128, 5x5/1",
    "8x112x112x64, 2x2/2, float16",
    "8x224x224x3, 2x2/2",
    "8x112x112x3, 3x3/2",
    "2x32x32x32x32, 2x2x2/2",
    "8x112x112x64, 7x7/7",
    "8x112x112x3, 7x7/7",
    "4x119x119x64, 17x17/17",
    "8x4096x64, 4/4",
]
BUILT = [training(STAGES[2], *window) for window in ((2, 2), (3, 2), (4, 4))]
NAMES = {
    "sppf": "SPPF block of YOLOv5",
    "googlenet": "GoogLeNet",
    "resnet18": "ResNet-18",
    "unet": "U-Net with three pools",
}


def measured(case: Case) -> dict[str, Any]:
    """Times and peak memory of each library."""
    x = mx.random.normal(case.shape, key=mx.random.key(0)).astype(case.dtype)
    pools = case.pools()
    mx.eval(x)
    assert mx.array_equal(*(pool(x) for pool in pools.values()))
    row: dict[str, Any] = {"case": case.name, "input": x.nbytes}
    for measure, of in MEASURES.items():
        functions = {who: of(pool) for who, pool in pools.items()}
        runs = {who: lambda f=f: f(x) for who, f in functions.items()}
        row[measure] = harness.medians(runs)
        row[f"memory, {measure}"] = {who: peak(run) for who, run in runs.items()}
    return row


def built(case: Case) -> dict[str, Any]:
    """Times to build a call, without evaluation: of a forward pass, and with its gradient.

    An operation of 25 MB before each call empties the processor's caches, as the layers of a
    network do.
    """
    x, other = mx.zeros(case.shape), mx.zeros(25_000_000 // 4)
    row: dict[str, Any] = {"case": case.name}
    for measure, of in MEASURES.items():
        functions = {who: of(pool) for who, pool in case.pools().items()}
        times: dict[str, list[harness.Times]] = {who: [] for who in functions}
        for _ in range(200):
            for who, function in functions.items():
                mx.eval(x, other + 1)
                start, cpu_start = time.perf_counter(), time.process_time()
                result = function(x)
                times[who].append([time.perf_counter() - start, time.process_time() - cpu_start])
                del result
        row[f"build, {measure}"] = {who: _report.medians(each) for who, each in times.items()}
    return row


def peak(run: Callable[[], Any]) -> float:
    """The peak memory of a run in bytes, without its input: the median of three runs."""
    found = []
    for _ in range(3):
        mx.clear_cache()
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        mx.eval(run())
        found.append(mx.get_peak_memory() - before)
    return statistics.median(found)


def trained(name: str) -> dict[str, Any]:
    """Times of a training step with the pools of each library, and of the pools of mlx.nn alone."""
    make, shape = networks.MODELS[name]
    x = mx.random.normal((2, *(shape or (96, 96, 3))))
    found, call = [], nn.MaxPool2d.__call__

    def recorded(pool: nn.MaxPool2d, x: mx.array) -> mx.array:
        found.append((pool, x))
        return call(pool, x)

    with mock.patch.object(nn.MaxPool2d, "__call__", recorded):
        mx.eval(make()(x), [x for _, x in found])
    backward = [lambda p=p, x=x: mx.vjp(p, [x], [mx.ones_like(p(x))]) for p, x in found]
    models = {"ours": mlx_unpool.replace_max_pools(make()), "mlx.nn": make()}
    runs = {who: benchmark.training_step(model, x) for who, model in models.items()}
    runs["pools"] = lambda: [run() for run in backward]
    return {"model": name, "shape": x.shape, "step": harness.medians(runs, seconds=0)}


def measure_all() -> list[dict[str, Any]]:
    """The rows of all tables."""
    return [*map(measured, CASES.values()), *map(trained, networks.MODELS), *map(built, BUILT)]


def ratio(row: dict[str, Any], measure: str) -> float:
    """The elapsed time of mlx.nn divided by that of this library."""
    return row[measure]["mlx.nn"][0] / row[measure]["ours"][0]


def confirmed(runs: list[dict[str, Any]], measure: str) -> list[dict[str, Any]]:
    """The rows with a measure: of each row quiet in all runs, the one with the smaller ratio."""
    found = []
    for rows in zip(*(run["rows"] for run in runs)):
        if measure in rows[0] and all(
            harness.is_quiet(t) for r in rows for t in r[measure].values()
        ):
            found.append(min(rows, key=lambda row: ratio(row, measure)))
    return found


def both_times(row: dict[str, Any], measure: str) -> str:
    """The times of mlx.nn and of this library in milliseconds, with three significant digits."""
    times = [1e3 * row[measure][who][0] for who in ("mlx.nn", "ours")]
    return " / ".join(f"{time:.{max(0, 2 - math.floor(math.log10(time)))}f}" for time in times)


def times_table(runs: list[harness.Run], cases: list[Case]) -> str:
    """Speed-ups and times of the layers."""
    lines = {case.name: [case.name] for case in cases}
    for measure in MEASURES:
        found = {row["case"]: row for row in confirmed(runs, measure)}
        for name, line in lines.items():
            row = found.get(name)
            speed_up = row and harness.factor(ratio(row, measure))
            line.append(f"{speed_up} ({both_times(row, measure)})" if row else "machine busy")
    return harness.table(["input, window", *HEADINGS], list(lines.values()))


def slower_rows(runs: list[harness.Run]) -> str:
    """Sentences about training: rows slower than mlx.nn, and the mean without overlap."""
    separate, slower = [], []
    for row in confirmed(runs, "forward and gradient"):
        relative = 1 / ratio(row, "forward and gradient")
        kernel, stride, _ = CASES[row["case"]].window
        is_long = row["forward and gradient"]["mlx.nn"][0] >= SHORTEST
        if is_long and stride >= kernel:
            separate.append(relative)
        if relative > SLOWER:
            slower.append(f"`{row['case']}` ({relative:.2f})")
    names = ", ".join(slower) or "none"
    text = f"In training, more than {SLOWER} times the time of `mlx.nn`: {names}."
    if separate:
        mean, most = statistics.geometric_mean(separate), max(separate)
        text += (
            " This factor for windows without overlap, in calls of "
            f"{1e3 * SHORTEST:g} ms or more: geometric mean {mean:.2f}, highest {most:.2f}."
        )
    return text


def build_table(runs: list[harness.Run]) -> str:
    """Times to build a call."""
    lines: dict[str, list[str]] = {case.name: [case.name] for case in BUILT}
    for measure in MEASURES:
        found = {row["case"]: row for row in confirmed(runs, f"build, {measure}")}
        for name, line in lines.items():
            row = found.get(name)
            line += build_cells(row[f"build, {measure}"]) if row else ["machine busy", "-"]
    header = [cell for heading in HEADINGS for cell in (f"{heading}, µs", "ratio")]
    return harness.table(["input, window", *header], list(lines.values()))


def build_cells(times: dict[str, harness.Times]) -> list[str]:
    """The microseconds of mlx.nn and of this library, and their ratio."""
    theirs, ours = (1e6 * times[who][0] for who in ("mlx.nn", "ours"))
    return [f"{theirs:.0f} / {ours:.0f}", f"{ours / theirs:.1f}"]


def memory_table(runs: list[dict[str, Any]]) -> str:
    """Peak memory of some layers."""
    lines = []
    for row in runs[-1]["rows"]:
        if "input" in row and row["case"] in MEMORY:
            lines.append([f"{row['case']}: {row['input'] / 1e6:.1f}"])
            for found in (row[f"memory, {measure}"] for measure in MEASURES):
                lines[-1].append(f"{found['mlx.nn'] / 1e6:.1f} / {found['ours'] / 1e6:.1f}")
    return harness.table(["input, window: size of the input", *HEADINGS], lines)


def steps_table(runs: list[dict[str, Any]]) -> str:
    """Training steps, and the share of the pools in them."""
    lines = []
    for row in confirmed(runs, "step"):
        share = row["step"]["pools"][0] / row["step"]["mlx.nn"][0]
        name = f"{NAMES[row['model']]}, {'x'.join(map(str, row['shape']))}"
        step = f"{ratio(row, 'step'):.2f}x ({both_times(row, 'step')})"
        lines.append([name, f"{100 * share:.1f} %", step])
    return harness.table(["block or network, input", "pools", "step"], lines)


TABLES = {
    "machine": partial(harness.description, packages=("mlx",)),
    "times": partial(times_table, cases=TRAINING),
    "side_by_side": partial(times_table, cases=SIDE_BY_SIDE),
    "slower": slower_rows,
    "build": build_table,
    "steps": steps_table,
    "memory": memory_table,
}


if __name__ == "__main__":
    harness.main("mlx_nn", __doc__, measure_all, TABLES)
