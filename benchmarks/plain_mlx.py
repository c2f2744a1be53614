"""Compare pooling with indices and unpooling with the lines of plain MLX that do the same.

    python benchmarks/plain_mlx.py            measure and print the tables (half a minute)
    python benchmarks/plain_mlx.py --store    the same, and store the run beside the last one

``pool`` and ``unpool`` below are what one would write without this library. They need windows side
by side that cover the image, and give offsets in the window in place of flat indices. A NaN in a
window does not win. Without ``mx.stop_gradient``, a gradient raises "Cannot calculate VJP with
respect to indices".
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import harness
import mlx.core as mx
import mlx_nn

import mlx_unpool

SHAPES = [(8, 112, 112, 64), (8, 56, 56, 128), (8, 32, 32, 16)]
CALLS = ("pool", "unpool", "training")


def pool(x: mx.array, k: int = 2) -> tuple[mx.array, mx.array]:
    """The maxima of k x k windows with stride k, and their offsets in the windows."""
    n, h, w, c = x.shape
    windows = x.reshape(n, h // k, k, w // k, k, c).transpose(0, 1, 3, 2, 4, 5)
    windows = windows.reshape(n, h // k, w // k, k * k, c)
    offsets = mx.stop_gradient(windows.argmax(axis=3, keepdims=True))
    return mx.take_along_axis(windows, offsets, axis=3).squeeze(3), offsets


def unpool(x: mx.array, offsets: mx.array, k: int = 2) -> mx.array:
    """The values at their offsets in k x k windows, and zeros elsewhere."""
    n, h, w, c = x.shape
    windows = mx.zeros((n, h, w, k * k, c), x.dtype)
    windows = mx.put_along_axis(windows, offsets, x[:, :, :, None], axis=3)
    windows = windows.reshape(n, h, w, k, k, c).transpose(0, 1, 3, 2, 4, 5)
    return windows.reshape(n, h * k, w * k, c)


def library_pool(x: mx.array) -> tuple[mx.array, mx.array]:
    """The same with this library, and with flat indices."""
    return mlx_unpool.max_pool2d(x, 2, return_indices=True)


def library_unpool(x: mx.array, indices: mx.array) -> mx.array:
    """The same with this library."""
    return mlx_unpool.max_unpool2d(x, indices, 2)


LIBRARIES = {"plain MLX": (pool, unpool), "ours": (library_pool, library_unpool)}


def functions(pool: Any, unpool: Any) -> dict[str, Callable[..., Any]]:
    """What each row of the table calls."""
    step = mx.value_and_grad(lambda x: unpool(*pool(x)).square().sum())
    return {"pool": pool, "unpool": unpool, "training": step}


def calls(who: str, x: mx.array) -> dict[str, Callable[[], Any]]:
    """A function without arguments for each row of the table."""
    pool, unpool = LIBRARIES[who]
    pooled = pool(x)
    mx.eval(pooled)
    arguments = {"pool": (x,), "unpool": pooled, "training": (x,)}
    found = functions(pool, unpool)
    return {call: partial(found[call], *arguments[call]) for call in CALLS}


def check_results(x: mx.array) -> None:
    """Check that both sides compute the same."""
    ours, plain = (calls(who, x) for who in ("ours", "plain MLX"))
    assert mx.array_equal(ours["pool"]()[0], plain["pool"]()[0])
    assert mx.array_equal(ours["unpool"](), plain["unpool"]())
    assert mx.array_equal(ours["training"]()[1], plain["training"]()[1])


def launches(function: Callable[..., Any], *arrays: mx.array) -> tuple[int, int]:
    """The kernels that MLX launches on a GPU for these lines, and the bytes they move, at least.

    Counted from MLX's graph, without the multiplications of the loss: an operation reads its inputs
    once and writes its outputs once, of which a gather and a scatter touch only the elements that
    they move. Views cost nothing; ``reshape`` copies what was transposed.
    """
    operations: list[dict[str, Any]] = []

    def record(entry: dict[str, Any]) -> None:
        if entry["type"] == "primitive":
            operations.append(entry)

    mx.export_function(record, function, *arrays)
    transposed = {e["outputs"][0][0] for e in operations if e["name"] == "Transpose"}
    moved = [bytes_moved(operation, transposed) for operation in operations]
    return sum(count > 0 for count in moved), sum(moved)


def bytes_moved(operation: dict[str, Any], transposed: set[str]) -> int:
    """The bytes that an operation of a graph reads and writes, 0 for a view or the loss."""
    inputs = [nbytes(array) for array in operation["inputs"]]
    (output,) = (nbytes(array) for array in operation["outputs"])
    match operation["name"]:
        case "Full":
            return output
        case "Reshape" if operation["inputs"][0][0] in transposed:
            return 2 * output
        case "ArgReduce":
            return inputs[0] + output
        case "GatherAxis":  # array, indices
            return inputs[1] + 2 * output
        case "ScatterAxis":  # array, indices, values
            return inputs[1] + 2 * inputs[2]
    return 0


def nbytes(array: tuple[str, tuple[int, ...], mx.Dtype]) -> int:
    """The size of an array of MLX's graph, given as its name, shape and dtype."""
    _, shape, dtype = array
    return math.prod(shape) * dtype.size


def measured(shape: tuple[int, ...]) -> list[dict[str, Any]]:
    """Times and peak memory of each call with an array of a shape."""
    x = mx.random.normal(shape, key=mx.random.key(0))
    mx.eval(x)
    check_results(x)
    of = {who: calls(who, x) for who in LIBRARIES}
    rows = []
    for call in CALLS:
        rivals = {who: of[who][call] for who in LIBRARIES}
        rows.append(
            {
                "call": call,
                "shape": shape,
                "time": harness.medians(rivals),
                "memory": {who: mlx_nn.peak(run) for who, run in rivals.items()},
            }
        )
    return rows


def measure_all() -> list[dict[str, Any]]:
    """The rows of the table."""
    return [row for shape in SHAPES for row in measured(shape)]


def ratio(row: dict[str, Any]) -> float:
    """The elapsed time of plain MLX divided by that of this library."""
    return row["time"]["plain MLX"][0] / row["time"]["ours"][0]


def line(rows: tuple[dict[str, Any], ...]) -> list[str]:
    """The cells of a row, from the run with the smaller speed-up: call, input, time and memory."""
    row = min(rows, key=ratio)
    milliseconds = [1e3 * row["time"][who][0] for who in LIBRARIES]
    megabytes = [row["memory"][who] / 1e6 for who in LIBRARIES]
    times = f"{harness.factor(ratio(row))} ({milliseconds[0]:.2f} / {milliseconds[1]:.2f})"
    if not all(harness.is_quiet(time) for each in rows for time in each["time"].values()):
        times = "machine busy"
    size = "x".join(map(str, row["shape"]))
    return [row["call"], size, times, f"{megabytes[0]:.1f} / {megabytes[1]:.1f}"]


def table(runs: list[harness.Run]) -> str:
    """Times in ms and memory in MB, of plain MLX and of this library."""
    lines = [line(rows) for rows in zip(*(run["rows"] for run in runs))]
    return harness.table(["call", "input", "time", "memory"], lines)


def short_table(runs: list[harness.Run]) -> str:
    """The rows of the middle size, for the README."""
    lines = [line(rows) for rows in zip(*(run["rows"] for run in runs))]
    size = "x".join(map(str, SHAPES[1]))
    return harness.table(
        ["call", "speed-up (ms)", "memory (MB)"],
        [[call, time, memory] for call, shape, time, memory in lines if shape == size],
    )


TABLES = {"table": table, "short": short_table}


if __name__ == "__main__":
    harness.main("plain_mlx", __doc__, measure_all, TABLES)
