"""Compare pooling with indices, unpooling and their derivatives with PyTorch on one thread.

    python benchmarks/ops.py            measure and print the table (a minute or two)
    python benchmarks/ops.py --store    the same, and store the run beside the last one

The page shows the last two stored runs, of each speed-up the smaller one. On a GPU, PyTorch's GPU
is measured as well.
"""

import itertools
import math
import os
import statistics
from collections.abc import Callable, Sequence
from typing import Any

# Otherwise PyTorch's idle threads spin on the core that the next measurement needs.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["KMP_BLOCKTIME"] = "0"

import harness
import mlx.core as mx
import numpy as np

import mlx_unpool
from mlx_unpool import _backends, _derivatives

SIZES = [(112, 64), (56, 128), (28, 256)]  # (height and width, channels) of a SegNet decoder
BATCHES = (1, 8)
WINDOWS = {"2x2/2": (2, 2, 0), "3x3/2": (3, 2, 1), "3x3/1": (3, 1, 1)}
OPERATIONS = ("pool", "gradient of the pool", "unpool", "gradient of the unpool")
FORMATS = ("flat", "window")
LAYOUTS = {"NCHW": "contiguous_format", "channels_last": "channels_last"}  # of torch


class Case:
    """A size and a window, with every operation in both libraries."""

    def __init__(self, batch: int, size: int, channels: int, window: str) -> None:
        self.window, self.size = WINDOWS[window], (size, size)
        shape = (batch, size, size, channels)
        self.x, self.full = (mx.random.normal(shape, key=mx.random.key(n)) for n in range(2))
        self.pooled = {name: self.pool(name) for name in FORMATS}
        self.plan = mlx_unpool.MaxPool2d(*self.window)._request().plan(shape)
        mx.eval(self.x, self.full, self.pooled)

    def pool(self, index_format: str) -> Any:
        options = {"return_indices": True, "index_format": index_format}
        return mlx_unpool.max_pool2d(self.x, *self.window, **options)

    def ours(self, operation: str, index_format: str) -> Any:
        """The result of this library. A derivative runs without the forward pass."""
        if operation == "pool":
            return self.pool(index_format)
        values, indices = self.pooled[index_format]
        if operation == "unpool":
            return mlx_unpool.max_unpool2d(values, indices, *self.window, self.size)
        of_pool = operation == "gradient of the pool"
        name, rule, x = ("scatter", "sum", values) if of_pool else ("gather", "last", self.full)
        arguments = x[:, None], indices[:, None], self.plan, _backends.target_of(None)
        return _derivatives.linear(name, rule, *arguments)

    def theirs(self, operation: str, layout: str, device: str) -> Callable[[], Any]:
        """A function that runs PyTorch on one thread, and waits for its GPU."""
        import torch

        functional, (kernel, stride, padding) = torch.nn.functional, self.window
        x, full = (
            torch.from_numpy(np.array(a))
            .permute(0, 3, 1, 2)
            .to(device)
            .contiguous(memory_format=getattr(torch, LAYOUTS[layout]))
            for a in (self.x, self.full)
        )
        values, indices = functional.max_pool2d(x, *self.window, return_indices=True)
        flat = [np.array(a) for a in self.pooled["flat"]]
        for ours, found in zip(flat, (values, indices)):
            assert np.array_equal(ours, found.cpu().permute(0, 2, 3, 1).numpy())
        unpooled = values.clone().requires_grad_()
        y = functional.max_unpool2d(unpooled, indices, *self.window, output_size=self.size)
        assert np.array_equal(
            np.array(self.ours("unpool", "flat")), y.detach().cpu().permute(0, 2, 3, 1).numpy()
        )
        attributes = [kernel] * 2, [stride] * 2, [padding] * 2, [1, 1], False
        run = {
            "pool": lambda: functional.max_pool2d(x, *self.window, return_indices=True),
            "gradient of the pool": lambda: torch.ops.aten.max_pool2d_with_indices_backward(
                values, x, *attributes, indices
            ),
            "unpool": lambda: functional.max_unpool2d(
                values, indices, *self.window, output_size=self.size
            ),
            "gradient of the unpool": lambda: torch.autograd.grad(
                y, unpooled, full, retain_graph=True
            ),
        }[operation]
        wait = {"cpu": lambda: None, "cuda": torch.cuda.synchronize, "mps": torch.mps.synchronize}
        return lambda: (run(), wait[device]())[1]  # nothing for mx.eval


def devices() -> list[str]:
    """The devices of PyTorch on this machine."""
    import torch

    gpus = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return ["cpu", *(name for name, is_available in gpus.items() if is_available)]


def measured(operation: str, window: str) -> dict[str, Any]:
    """The times of an operation in both libraries, for each size and batch size."""
    seconds: dict[str, list[harness.Times]] = {}
    for (size, channels), batch in itertools.product(SIZES, BATCHES):
        case = Case(batch, size, channels, window)
        runs = {f: lambda c=case, f=f: c.ours(operation, f) for f in FORMATS}
        for layout, device in itertools.product(LAYOUTS, devices()):
            runs[f"{layout}, {device}"] = case.theirs(operation, layout, device)
        for name, times in harness.medians(runs).items():
            seconds.setdefault(name, []).append(times)
    return {"operation": operation, "window": window, "seconds": seconds}


def ratio(row: dict[str, Any], ours: str, theirs: str) -> float:
    """The geometric mean of PyTorch's times divided by those of this library.

    NaN if one is not quiet.
    """
    pairs = list(zip(row["seconds"][ours], row["seconds"][theirs]))
    if not all(harness.is_quiet(times) for times, _ in pairs):
        return math.nan
    return statistics.geometric_mean(torch[0] / mlx[0] for mlx, torch in pairs)


def cell(rows: Sequence[dict[str, Any]], theirs: str) -> str:
    """The speed-up over one kind of tensor with each index format: the smaller one of the runs."""
    cells = []
    for ours in FORMATS:
        found = [ratio(row, ours, theirs) for row in rows]
        is_busy = any(map(math.isnan, found))
        cells.append("machine busy" if is_busy else harness.factor(min(found)))
    return " / ".join(cells)


def table(runs: list[harness.Run]) -> str:
    """The speed-ups, with a row for each operation and window."""
    columns = [name for name in runs[-1]["rows"][0]["seconds"] if ", " in name]
    lines = []
    for rows in zip(*(run["rows"] for run in runs)):
        name = f"{rows[0]['operation']}, {rows[0]['window']}"
        lines.append([name, *(cell(rows, column) for column in columns)])
    layouts = [column.removesuffix(", cpu").replace("channels_last", "NHWC") for column in columns]
    found = harness.table(["operation, window", *layouts], lines)
    return f"{found}\n\n{harness.description(runs, ('mlx', 'torch'))}"


def measure_all() -> list[dict[str, Any]]:
    """The rows of the table."""
    import torch

    torch.set_num_threads(1)
    return [measured(o, w) for o in OPERATIONS for w in WINDOWS]


TABLES = {"table": table}


if __name__ == "__main__":
    harness.main("ops", __doc__, measure_all, TABLES)
