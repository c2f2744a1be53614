"""Compare max pooling in this library with max pooling in mlx.nn: single calls and whole training steps.

    python benchmarks/mlx_nn.py                     print the tables of MLX_NN.md (about 10 minutes)
    python benchmarks/mlx_nn.py --quick             the same with small arrays, to check that the program runs
    python benchmarks/mlx_nn.py --write             write them into MLX_NN.md, docs/benchmarks.md, README.md
    python benchmarks/mlx_nn.py --write --stored    write the results of the last run again
    python benchmarks/mlx_nn.py --write --memory    write only the memory of the forward pass (takes seconds)

Times are medians of five rounds in one process on MLX's default device. The two libraries take turns. The
bytes that a GPU would move are counted, not measured, and are the same on every machine: for mlx.nn from
MLX's graph, for this library on the emulated device of tests/metal.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from harness import chart, timing

import mlx_unpool

sys.path.append(str(Path(__file__).parent.parent / "examples"))
sys.path.append(str(Path(__file__).parent.parent / "tests" / "metal"))

import emulator
from unet_max_pool import UNet

PAGE = Path(__file__).with_name("MLX_NN.md")
USERS_PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
CHART = USERS_PAGE.with_suffix(".svg")
README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- table: python benchmarks/mlx_nn.py --write -->", "<!-- end of table -->"
BEGIN_MEMORY = "<!-- table: python benchmarks/mlx_nn.py --write --memory -->"
ROUNDS = 5  # over all cases, because the load of a shared machine changes
TURNS = 5  # of at least three runs each, because 3x3/2 needs 15 runs to warm up


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


PLANE, VOLUME = (1, 112, 112, 64), (1, 32, 32, 32, 32)
CASES = [
    Case("2x2/2", PLANE, (2, 2, 0)),
    Case("2x2/2, odd width", (1, 112, 113, 64), (2, 2, 0)),
    Case("3x3/2", PLANE, (3, 2, 1)),
    Case("3x3/1", PLANE, (3, 1, 1)),
    Case("2x2/2, float16", PLANE, (2, 2, 0), mx.float16),
    Case("3x3/2, float16", PLANE, (3, 2, 1), mx.float16),
    Case("2x2/2, bfloat16", PLANE, (2, 2, 0), mx.bfloat16),
    Case("3x3/2, bfloat16", PLANE, (3, 2, 1), mx.bfloat16),
    Case("1-D 2/2", (1, 16384, 64), (2, 2, 0)),
    Case("1-D 3/2", (1, 16384, 64), (3, 2, 1)),
    Case("2x2x2/2", VOLUME, (2, 2, 0)),
    Case("3x3x3/2", VOLUME, (3, 2, 1)),
]
# The fixed cost of a call is a large part of the time here, so these rows are not part of the means.
SMALL = [
    Case("2x2/2, 14x14x512", (1, 14, 14, 512), (2, 2, 0)),
    Case("3x3/2, 14x14x512", (1, 14, 14, 512), (3, 2, 1)),
]
MEASURES = {
    "forward": lambda pool: pool,
    "gradient of a sum": lambda pool: mx.grad(lambda x: pool(x).sum()),
    "value and gradient of a sum of squares": lambda pool: mx.value_and_grad(
        lambda x: pool(x).square().sum()
    ),
}
MEMORY = "peak memory of value and gradient"
FORWARD_MEMORY = "peak memory of forward"
LARGE = Case("32x32/32", (1, 224, 224, 64), (32, 32, 0))  # only in the table of memory
# The columns of docs/benchmarks.md and the rows of its chart.
SHORT = dict(zip(MEASURES, ("forward", "gradient", "value and gradient")))
*_, TRAINING = MEASURES
CHART_CASES = ["2x2/2", "2x2/2, odd width", "3x3/2", "3x3/1", "2x2x2/2", "3x3x3/2"]
CHART_CASES += ["2x2/2, 14x14x512"]
README_CASES = [*CHART_CASES[:4], "1-D 3/2", *CHART_CASES[4:]]
# MLX primitives that return a view. Reshape and Flatten copy an array that is not contiguous.
VIEWS = {"AsStrided", "Broadcast", "Copy", "ExpandDims", "Flatten", "Reshape", "Slice", "Split"}
VIEWS |= {"Squeeze", "StopGradient", "Transpose", "Unflatten"}
STRIDED, RESHAPING = {"AsStrided", "Slice", "Transpose"}, {"Flatten", "Reshape"}
FUSED = {"AsType", "Divide", "Equal", "Multiply"}  # by mx.compile, of those in mlx.nn's pools


def measured(case: Case) -> dict[str, Any]:
    """Times and peak memory of each library."""
    x = mx.random.normal(case.shape, key=mx.random.key(0)).astype(case.dtype)
    pools = case.pools()
    mx.eval(x)
    assert mx.array_equal(*(pool(x) for pool in pools.values()))
    row: dict[str, Any] = {"case": case.name, "shape": case.shape}
    for measure, of in MEASURES.items():
        functions = {who: of(pool) for who, pool in pools.items()}
        runs = {who: lambda f=f: mx.eval(f(x)) for who, f in functions.items()}
        row[measure] = timing.medians(runs, turns=TURNS)
    row[MEMORY] = {who: peak(run) for who, run in runs.items()}
    return row


def median_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The medians of rows that were measured in several rounds."""
    medians = dict(rows[0])
    for name, figures in medians.items():
        if isinstance(figures, dict):
            found = {who: [row[name][who] for row in rows] for who in figures}
            medians[name] = {who: statistics.median(each) for who, each in found.items()}
    return medians


def forward_memory(case: Case) -> dict[str, Any]:
    """Bytes of the input, and the peak memory of the forward pass of each library."""
    x = mx.random.normal(case.shape, key=mx.random.key(0)).astype(case.dtype)
    mx.eval(x)
    peaks = {who: peak(lambda p=pool: mx.eval(p(x))) for who, pool in case.pools().items()}
    return {"case": case.name, "input": x.nbytes, FORWARD_MEMORY: peaks}


def peak(run: Callable[[], Any]) -> float:
    """The peak memory of a run in bytes, without its input: the median of three runs."""
    found = []
    for _ in range(3):
        mx.clear_cache()
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        run()
        found.append(mx.get_peak_memory() - before)
    return statistics.median(found)


def graph_cost(
    function: Callable[..., Any], *arrays: mx.array, compiled: bool = False
) -> tuple[int, int, int]:
    """Bytes that a function's primitives move, with a perfect cache and without one, and kernel launches.

    Creating a view counts as 0 bytes. A primitive that reads a view reads each element of the underlying
    array once. Without a cache, it reads the elements of overlapping windows once per window. With
    ``compiled``, arrays between two elementwise primitives are neither written nor read.
    """
    nodes: list[dict[str, Any]] = []
    mx.export_function(nodes.append, function, *arrays)
    nodes = [node for node in nodes if node.get("type") == "primitive"]
    broadcast: dict[str, str] = {}  # the array that a view repeats
    readers: dict[str, set[str]] = {}
    for node in nodes:
        inputs = [broadcast.get(name, name) for name, *_ in node["inputs"]]
        if node["name"] == "Broadcast":
            broadcast[node["outputs"][0][0]] = inputs[0]
        else:
            for name in inputs:
                readers.setdefault(name, set()).add(node["name"])
    totals, launches = [0, 0], 0
    underlying: tuple[dict[str, int], dict[str, int]] = {}, {}
    strided: set[str] = set()
    for node in nodes:
        size = {name: prod(s) * t.size for name, s, t in [*node["inputs"], *node["outputs"]]}
        names, outputs = ([name for name, *_ in node[key]] for key in ("inputs", "outputs"))
        copies = node["name"] in RESHAPING and names[0] in strided
        view = node["name"] in VIEWS and not copies
        if node["name"] in STRIDED or (view and names[0] in strided):
            strided.update(outputs)
        fused = compiled and node["name"] in FUSED and readers.get(outputs[0], {""}) <= FUSED
        launches += not view and not fused
        for cached, sizes in zip((True, False), underlying):
            if fused:
                sizes[outputs[0]] = 0
            inputs = [sizes.get(name, size[name]) for name in names]
            if not view:
                totals[not cached] += sum(inputs) + sum(sizes.get(n, size[n]) for n in outputs)
            elif cached or node["name"] != "AsStrided":
                sizes.update({name: min(inputs[0], size[name]) for name in outputs})
        if node["name"] == "Pad":  # fills the output, then copies the input into it
            launches += 1
            totals = [total + size[names[0]] for total in totals]
    return totals[0], totals[1], launches


def kernel_cost(function: Callable[..., Any], *arrays: mx.array) -> tuple[int, int, int]:
    """Bytes that this library's kernels move, bytes of the lines that SIMD groups access, and launches."""
    device = emulator.Emulator()
    device.count = True
    with device.installed():
        mx.eval(function(*arrays))
    unique = touched = 0
    for launch, report in zip(device.launches, device.reports, strict=True):
        constant = {p["name"] for p in launch.parameters if "constant" in p["type"].split()}
        for (name, _), traffic in report.traffic.items():
            if name not in constant:
                unique += traffic["unique_bytes"]
                touched += 128 * traffic["simd_lines"]
    return unique, touched, len(device.launches)


def counted(case: Case) -> dict[str, Any]:
    """Bytes of a forward and a backward pass on a GPU."""
    x = mx.random.normal(case.shape, key=mx.random.key(0)).astype(case.dtype)
    pools = case.pools()
    cotangent = mx.ones_like(pools["mlx.nn"](x))
    mx.eval(x, cotangent)

    def both(who: str) -> Callable[..., Any]:
        return lambda x, cotangent: [y[0] for y in mx.vjp(pools[who], [x], [cotangent])]

    figures = {"mlx.nn": graph_cost(both("mlx.nn"), x, cotangent)}
    figures["mlx.nn, compiled"] = graph_cost(both("mlx.nn"), x, cotangent, compiled=True)
    figures["ours"] = kernel_cost(both("ours"), x, cotangent)
    return {"case": case.name, "bytes": figures}


class ResNet18(nn.Module):
    """ResNet-18 (He et al., 2016), which has one pooling layer, 3x3/2."""

    def __init__(self, classes: int = 10, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.norm = nn.BatchNorm(width)
        self.pool = nn.MaxPool2d(3, 2, 1)
        widths = [width, *(width << stage for stage in range(4) for _ in range(2))]
        self.blocks = [ResidualBlock(i, o) for i, o in itertools.pairwise(widths)]
        self.classifier = nn.Linear(widths[-1], classes)

    def __call__(self, x: mx.array) -> mx.array:
        x = self.pool(nn.relu(self.norm(self.stem(x))))
        for block in self.blocks:
            x = block(x)
        return self.classifier(x.mean(axis=(1, 2)))


class ResidualBlock(nn.Module):
    """Two convolutions and a shortcut. Halves the spatial size if the number of channels doubles."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = [nn.BatchNorm(outputs), nn.BatchNorm(outputs)]
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride)

    def __call__(self, x: mx.array) -> mx.array:
        y = nn.relu(self.norms[0](self.first(x)))
        return nn.relu(self.norms[1](self.second(y)) + self.shortcut(x))


MODELS = {  # name: (model, shape of a batch)
    "U-Net, 2x64x64": (lambda: UNet(2, 3, 2, (16, 32, 64)), (2, 64, 64, 3)),
    "ResNet-18, 8x32x32": (ResNet18, (8, 32, 32, 3)),
    "3-D U-Net, 1x24x24x24": (lambda: UNet(3, 1, 2, (8, 16, 32)), (1, 24, 24, 24, 1)),
}


def training_step(model: nn.Module, x: mx.array) -> Callable[[], None]:
    """A whole training step: forward pass, backward pass and update."""
    optimizer = optim.AdamW(1e-3)
    gradient_of = nn.value_and_grad(model, lambda model: model(x).square().mean())

    def step() -> None:
        loss, gradients = gradient_of(model)
        optimizer.update(model, gradients)
        mx.eval(loss, model.state, optimizer.state)

    return step


def trained(name: str, quick: bool) -> dict[str, Any]:
    """Times of a training step with the pooling layers of each library."""
    make, (batch, *size, channels) = MODELS[name]
    x = mx.random.normal((batch, *(n // 2 if quick else n for n in size), channels))
    ours = mlx_unpool.replace_max_pools(make())
    runs = {"ours": training_step(ours, x), "mlx.nn": training_step(make(), x)}
    times: dict[str, list[float]] = {who: [] for who in runs}
    for turn in range(3 if quick else 13):
        for who, run in runs.items():
            once = timing.each(run, 1, 0)
            times[who] += once if turn else []  # the first run warms up
    return {"model": name, "step": {who: statistics.median(found) for who, found in times.items()}}


def lines_of(rows: list[dict[str, Any]], small: list[dict[str, Any]]) -> list[str]:
    """The table of times and memory with means, and the cases where mlx.nn is better."""
    measures = [*MEASURES, MEMORY]
    ratios = {
        row["case"]: [timing.ratio(row[measure], "mlx.nn", "ours") for measure in measures]
        for row in rows + small
    }
    columns = list(zip(*(ratios[row["case"]] for row in rows)))
    body = [[name, *map(factor, numbers)] for name, numbers in ratios.items()]
    means = map(factor, map(timing.geometric_mean, columns))
    body.insert(len(rows), ["**geometric mean**", *means])
    body.insert(len(rows) + 1, ["**lowest**", *map(factor, map(min, columns))])
    worse = []
    for number, measure in enumerate(measures):
        cases = {name: r[number] for name, r in ratios.items() if is_below_one(r[number])}
        names = [f"{name} ({factor(ratio)})" for name, ratio in cases.items()]
        worse.append(f"- {measure}: {'; '.join(names) or 'none of these cases'}")
    table = timing.table(["mlx.nn / mlx_unpool", *measures], body)
    heading = "Cases in which `mlx.nn` is faster or needs less memory:"
    return [table, "", heading, "", *worse]


def byte_lines(rows: list[dict[str, Any]]) -> str:
    """The table of bytes and kernel launches."""
    body = []
    for row in rows:
        found = row["bytes"]
        ours, uncached, _ = found["ours"]
        body.append([row["case"], *(f"{cost[0] / 1e6:.1f}" for cost in found.values())])
        body[-1] += [found[who][0] / ours for who in ("mlx.nn", "mlx.nn, compiled")]
        body[-1] += [found["mlx.nn"][1] / uncached, *(cost[2] for cost in found.values())]
    who = ["mlx.nn", "mlx.nn, compiled", "mlx_unpool"]
    header = ["forward + backward", *(f"MB, {name}" for name in who)]
    header += ["ratio", "ratio, compiled", "ratio without a cache"]
    return timing.table([*header, *(f"launches, {name}" for name in who)], body)


def is_below_one(ratio: float) -> bool:
    """Whether mlx.nn is better. A ratio that rounds to 1.00 is a tie."""
    return round(ratio, 2) < 1


def factor(ratio: float) -> str:
    """How many times faster, or how many times less memory."""
    return f"{ratio:.{2 if is_below_one(ratio) else 1 if ratio < 9.95 else 0}f}x"


def readme_lines(rows: list[dict[str, Any]]) -> str:
    """The table of README.md: mlx.nn divided by mlx_unpool."""
    body = []
    for name in README_CASES:
        row: dict[str, Any] = {}
        for found in rows:
            row |= found if found.get("case") == name else {}
        ratios = [timing.ratio(row[m], "mlx.nn", "ours") for m in (TRAINING, "forward", MEMORY)]
        costs = row.get("bytes")
        ratios += [costs["mlx.nn"][0] / costs["ours"][0]] if costs else []
        body.append([name, *map(factor, ratios), *[""] * (4 - len(ratios))])
    header = ["pooling layer, float32", "forward and gradient", "forward", "peak memory"]
    return timing.table([*header, "bytes on a GPU"], body)


def memory_lines(rows: list[dict[str, Any]]) -> str:
    """The table of the memory of the forward pass."""
    body = []
    for row in rows:
        sizes = row["input"], *(row[FORWARD_MEMORY][who] for who in ("mlx.nn", "ours"))
        body.append([row["case"], *(size / 1e6 for size in sizes)])
    header = ["MB", "input", "forward, `mlx.nn`", "forward, `mlx_unpool`"]
    return timing.table(header, body)


def in_ms(seconds: float) -> str:
    """A time in milliseconds with three significant digits."""
    time = 1e3 * seconds
    return f"{time:.{max(0, 2 - math.floor(math.log10(time)))}f}"


def time_lines(rows: list[dict[str, Any]]) -> str:
    """The table of docs/benchmarks.md: times in milliseconds, and in which cases mlx.nn is faster."""
    body, slower = [], []
    for row in rows:
        line = [row["case"]]
        for measure, name in SHORT.items():
            ours, theirs = (row[measure][who] for who in ("ours", "mlx.nn"))
            line += [in_ms(theirs), in_ms(ours)]
            if is_below_one(theirs / ours):
                slower.append(f"| {row['case']} | {name} | {in_ms(theirs)} | {in_ms(ours)} |")
        body.append(line)
    header = [f"{name}, {who}" for name in SHORT.values() for who in ("`mlx.nn`", "`mlx_unpool`")]
    lines = [timing.table(["times in ms", *header], body), "", "`mlx.nn` is faster in these cases:"]
    header = "| case | measure | `mlx.nn`, ms | `mlx_unpool`, ms |\n|---|---|---|---|"
    return "\n".join([*lines, "", header, *slower])


def draw(rows: list[dict[str, Any]]) -> None:
    """Draw the chart of docs/benchmarks.md."""
    found = {row["case"]: row for row in rows}
    groups = {
        name: [(SHORT[m], found[name][m]["ours"], found[name][m]["mlx.nn"]) for m in MEASURES]
        for name in CHART_CASES
        if name in found
    }
    chart.comparison(CHART, "mlx_unpool", "mlx.nn", groups)


def put(page: Path, report: str, begin: str = BEGIN) -> None:
    """Replace the tables of a page that follow ``begin``."""
    before, _, rest = page.read_text().partition(begin)
    after = rest[rest.index(END) :]
    page.write_text(f"{before}{begin}\n\n{report}\n\n{after}")


def measure_all(quick: bool) -> list[dict[str, Any]]:
    """The rows of all tables."""
    cases = (
        [c._replace(shape=(1, *(13,) * (len(c.shape) - 2), 8)) for c in CASES] if quick else CASES
    )
    rounds = []
    for _ in range(1 if quick else ROUNDS):
        rounds.append([measured(case) for case in (*cases, *SMALL)])
        rounds[-1] += [trained(name, quick) for name in MODELS]
    rows = [median_row(same) for same in zip(*rounds)]
    with mx.stream(mx.cpu):
        rows += [counted(case) for case in cases]
    return rows


def main() -> None:
    """Print the tables or write them into the pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = functools.partial(parser.add_argument, action="store_true")
    add("--quick", help="use small arrays, to check that the program runs")
    add("--write", help="write the tables into MLX_NN.md, docs/benchmarks.md and README.md")
    add("--stored", help="do not measure: use benchmarks/results/mlx_nn.json")
    add("--busy", help="compare CPU time instead of elapsed time")
    add("--memory", help="measure only the memory of the forward pass")
    options = parser.parse_args()
    if options.busy:
        timing.clock = time.process_time
    if options.quick and (options.write or options.stored):
        sys.exit("--quick cannot be combined with --write or --stored")
    memory = memory_lines([forward_memory(case) for case in (*CASES, LARGE)])
    print(memory)
    if options.write:
        put(USERS_PAGE, memory, BEGIN_MEMORY)
    if options.memory:
        return
    name = "mlx_nn-quick" if options.quick else "mlx_nn"
    if options.stored:
        rows = json.loads((timing.RESULTS / f"{name}.json").read_text())["rows"]
    else:
        rows = measure_all(options.quick)
        timing.save(name, rows)
    times = [row for row in rows if MEMORY in row]
    small = [row for row in times if row["case"] in {case.name for case in SMALL}]
    means = [row for row in times if row not in small]
    counts = [row for row in rows if "bytes" in row]
    steps = [
        [row["model"], timing.ratio(row["step"], "mlx.nn", "ours")] for row in rows if "step" in row
    ]
    step_table = timing.table(["training step", "mlx.nn / mlx_unpool"], steps)
    report = "\n".join([*lines_of(means, small), "", step_table, "", byte_lines(counts)])
    if not options.write:
        print(f"{report}\n\n{time_lines(times)}")
        return
    put(PAGE, report)
    put(USERS_PAGE, time_lines(times))
    put(README, readme_lines(rows))
    draw(times)


if __name__ == "__main__":
    main()
