"""Compare pooling with indices, unpooling and their derivatives with PyTorch and with plain MLX operations.

    python benchmarks/ops.py [--quick]

The compiled variants need a C++ compiler: ``mx.compile`` calls the first ``g++`` on PATH, which may
be a script that calls another compiler.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import torch
from harness import rivals, timing

import mlx_unpool
from mlx_unpool import _backends, _derivatives
from mlx_unpool._geometry import WindowGeometry
from mlx_unpool._requests import window_of

SIZES = [(112, 64), (56, 128), (28, 256)]  # (height and width, channels) of a SegNet decoder
BATCHES = (1, 8)
WINDOWS = {"2x2/2": (2, 2, 0), "3x3/2": (3, 2, 1), "3x3/1": (3, 1, 1)}
OPERATIONS = ("pool", "unpool", "pool backward", "unpool backward")
FORMATS = ("window", "flat")


def mlx_run(run: Callable[[], Any]) -> Callable[[], None]:
    """A function that calls ``run`` and evaluates the result."""
    return lambda: mx.eval(run())


class Case:
    """A size, window and dtype, with every operation in every implementation."""

    def __init__(self, batch: int, size: int, channels: int, window: str, dtype: str) -> None:
        self.parameters = WINDOWS[window]
        self.dtype, self.size = dtype, size
        shape = (batch, size, size, channels)
        kernel, stride, padding = self.parameters
        x = mx.random.normal(shape, key=mx.random.key(0)).astype(getattr(mx, dtype))
        self.x, self.full = x, mx.random.normal(shape, key=mx.random.key(1)).astype(x.dtype)
        options = [{"return_indices": True, "index_format": f} for f in FORMATS]
        self.pooled = {
            o["index_format"]: mlx_unpool.max_pool2d(x, *self.parameters, **o) for o in options
        }
        self.values, self.flat = self.pooled["flat"]
        pooled = (1, *self.values.shape[1:3])
        self.geometry = WindowGeometry((1, size, size), pooled, window_of("", 2, *self.parameters))
        mx.eval(self.x, self.full, self.pooled)
        self.torch = {last: rivals.to_torch(x, dtype, last) for last in (False, True)}
        self.torch_full = {last: rivals.to_torch(self.full, dtype, last) for last in (False, True)}
        self.torch_pooled = {
            last: torch.nn.functional.max_pool2d(t, kernel, stride, padding, return_indices=True)
            for last, t in self.torch.items()
        }
        self.check()

    def check(self) -> None:
        """Check that results are correct before anything is timed."""
        values, indices = self.torch_pooled[False]
        theirs = values.float().permute(0, 2, 3, 1).numpy()
        assert np.array_equal(np.array(self.values.astype(mx.float32)), theirs)
        assert np.array_equal(np.array(self.flat), indices.permute(0, 2, 3, 1).numpy())
        naive = rivals.naive_unpool(self.values, self.flat, (self.size,) * 2)
        for index_format in FORMATS:
            run, arrays = self.ours("unpool", index_format)
            assert mx.array_equal(run(*arrays), naive)

    def ours(
        self, operation: str, index_format: str
    ) -> tuple[Callable[..., Any], tuple[mx.array, ...]]:
        """The function of this library for an operation, and its arguments.

        A derivative runs without the forward pass.
        """
        values, indices = self.pooled[index_format]
        size = (self.size, self.size)
        if operation == "pool":
            options = {"return_indices": True, "index_format": index_format}
            pool = lambda x: mlx_unpool.max_pool2d(x, *self.parameters, **options)  # noqa: E731
            return pool, (self.x,)
        if operation == "unpool":
            unpool = lambda x, i: mlx_unpool.max_unpool2d(x, i, *self.parameters, size)  # noqa: E731
            return unpool, (values, indices)
        backward = operation == "pool backward"
        name, rule, x = ("scatter", "sum", values) if backward else ("gather", "last", self.full)
        target = _backends.target_of(None)
        linear = lambda x, i: _derivatives.linear(name, rule, x, (i,), self.geometry, target)  # noqa: E731
        return linear, (x[:, None], indices[:, None])

    def rivals(self, operation: str) -> dict[str, Callable[[], Any]]:
        """All implementations of an operation, by name."""
        size = (self.size, self.size)
        runs: dict[str, Callable[[], Any]] = {}
        for index_format in FORMATS:
            run, arrays = self.ours(operation, index_format)
            runs[f"ours, {index_format}"] = mlx_run(lambda r=run, a=arrays: r(*a))
            if self.dtype == "float32":
                compiled = mx.compile(run)
                runs[f"ours compiled, {index_format}"] = mlx_run(lambda r=compiled, a=arrays: r(*a))
        naive = {
            "pool": lambda: rivals.naive_pool(self.x, *self.parameters),
            "unpool": lambda: rivals.naive_unpool(self.values, self.flat, size),
            "unpool backward": lambda: rivals.naive_unpool_backward(self.full, self.flat),
        }.get(operation)
        if naive:
            runs["naive mlx"] = mlx_run(naive)
        for last, name in ((False, "torch NCHW"), (True, "torch channels_last")):
            run = self.torch_run(operation, last, "cpu")
            runs[f"{name}, 1 thread"] = rivals.with_threads(1, run)
            if not last:
                runs[f"{name}, 2 threads"] = rivals.with_threads(2, run)
            for device in rivals.devices():
                run = self.torch_run(operation, last, device)
                runs[f"{name}, {device}"] = rivals.finished(device, run)
        return runs

    def torch_run(self, operation: str, last: bool, device: str) -> Callable[[], Any]:
        """PyTorch's implementation of an operation, in one of its layouts on one of its devices."""
        functional, aten = torch.nn.functional, torch.ops.aten
        kernel, stride, padding = self.parameters
        size = (self.size, self.size)
        x, full = self.torch[last].to(device), self.torch_full[last].to(device)
        values, indices = (t.to(device) for t in self.torch_pooled[last])
        if operation == "pool":
            return lambda: functional.max_pool2d(x, kernel, stride, padding, return_indices=True)
        if operation == "unpool":
            return lambda: functional.max_unpool2d(
                values, indices, kernel, stride, padding, output_size=size
            )
        if operation == "pool backward":
            window = [kernel] * 2, [stride] * 2, [padding] * 2, [1, 1], False
            return lambda: aten.max_pool2d_with_indices_backward(values, x, *window, indices)
        unpooled = values.clone().requires_grad_()
        y = functional.max_unpool2d(unpooled, indices, kernel, stride, padding, output_size=size)
        return lambda: torch.autograd.grad(y, unpooled, full, retain_graph=True)


# Other ranks, channels-first arrays and long windows: (rank, size, channels, window, data format).
OTHERS = {
    "1-D 2/2": (1, (16384,), 64, (2, 2, 0), "channels_last"),
    "1-D 3/2": (1, (16384,), 64, (3, 2, 1), "channels_last"),
    "3-D 2x2x2/2": (3, (32, 32, 32), 64, (2, 2, 0), "channels_last"),
    "3-D 3x3x3/2": (3, (32, 32, 32), 64, (3, 2, 1), "channels_last"),
    "2x2/2, channels first": (2, (112, 112), 64, (2, 2, 0), "channels_first"),
    "3x3/2, channels first": (2, (112, 112), 64, (3, 2, 1), "channels_first"),
    "1,024 points": (1, (1024,), 1024, (1024, 1024, 0), "channels_last"),
    "2,500 points": (1, (2500,), 1024, (2500, 2500, 0), "channels_last"),
    "2,500 points, channels first": (1, (2500,), 1024, (2500, 2500, 0), "channels_first"),
}


def other(name: str) -> dict[str, dict[str, float]]:
    """Seconds of pool and unpool in another rank or layout, in this library and in PyTorch on one thread."""
    rank, size, channels, window, data_format = OTHERS[name]
    last = data_format == "channels_last"
    shape = (1, *size, channels) if last else (1, channels, *size)
    x = mx.random.normal(shape, key=mx.random.key(0))
    tensor = torch.from_numpy(np.array(mx.moveaxis(x, -1, 1) if last else x)).contiguous()
    pool = getattr(mlx_unpool, f"max_pool{rank}d")
    unpool = getattr(mlx_unpool, f"max_unpool{rank}d")
    torch_pool = getattr(torch.nn.functional, f"max_pool{rank}d")
    torch_unpool = getattr(torch.nn.functional, f"max_unpool{rank}d")
    theirs = torch_pool(tensor, *window, return_indices=True)
    pooling: dict[str, Callable[[], Any]] = {}
    unpooling: dict[str, Callable[[], Any]] = {}
    for index_format in FORMATS:
        options = {"index_format": index_format, "data_format": data_format}
        run = lambda options=options: pool(x, *window, return_indices=True, **options)  # noqa: E731
        values, indices = run()
        mx.eval(values, indices)
        assert np.array_equal(
            np.array(mx.moveaxis(values, -1, 1) if last else values), theirs[0].numpy()
        )
        pooling[f"ours, {index_format}"] = mlx_run(run)
        unpooling[f"ours, {index_format}"] = mlx_run(
            lambda v=values, i=indices: unpool(
                v, i, *window, output_size=size, data_format=data_format
            )
        )
    pooling["torch NCHW, 1 thread"] = rivals.with_threads(
        1, lambda: torch_pool(tensor, *window, return_indices=True)
    )
    unpooling["torch NCHW, 1 thread"] = rivals.with_threads(
        1, lambda: torch_unpool(*theirs, *window, output_size=size)
    )
    return {"pool": timing.medians(pooling), "unpool": timing.medians(unpooling)}


def main() -> None:
    """Print tables of ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="use one small size, to check that the program runs"
    )
    parser.add_argument(
        "--busy", action="store_true", help="compare CPU time, without PyTorch on two threads"
    )
    dtypes = ["float32", "float16", "bfloat16"]
    parser.add_argument("--dtypes", nargs="+", default=dtypes, help="dtypes (default: all)")
    parser.add_argument(
        "--windows", nargs="+", default=list(WINDOWS), help="windows (default: all)"
    )
    options = parser.parse_args()
    quick = options.quick
    if options.busy:
        timing.clock = time.process_time
    sizes = [(28, 32)] if quick else SIZES
    batches = (1,) if quick else BATCHES
    rows: list[dict[str, Any]] = []
    for dtype in options.dtypes:
        for window in options.windows:
            for size, channels in sizes:
                for batch in batches if dtype == "float32" else (1,):
                    case = Case(batch, size, channels, window, dtype)
                    for operation in OPERATIONS:
                        implementations = case.rivals(operation)
                        if options.busy:
                            implementations = {
                                n: r for n, r in implementations.items() if "2 threads" not in n
                            }
                        times = timing.medians(implementations)
                        rows.append(
                            {
                                "operation": operation,
                                "window": window,
                                "dtype": dtype,
                                "shape": [batch, size, size, channels],
                                "seconds": times,
                            }
                        )
    others = {} if quick else {name: other(name) for name in OTHERS}
    rows += [
        {"operation": operation, "other": name, "dtype": "float32", "seconds": seconds}
        for name, operations in others.items()
        for operation, seconds in operations.items()
    ]
    name = "ops-quick" if quick else "ops"
    timing.save(name, rows)
    report([row for row in rows if "window" in row])
    lines = [
        [operation, name, *(timing.ratio(s, f"ours, {f}", "torch NCHW, 1 thread") for f in FORMATS)]
        for name, operations in others.items()
        for operation, s in operations.items()
    ]
    header = ["operation", "window", *(f"{f} / torch NCHW, 1 thread" for f in FORMATS)]
    print()
    print(timing.table(header, lines) if lines else "")
    lines = []
    for operation in OPERATIONS:
        for window in options.windows:
            key = (operation, window, "float32")
            chosen = [
                row["seconds"]
                for row in rows
                if (row["operation"], row.get("window"), row["dtype"]) == key
            ]
            if not chosen:
                continue
            ratios = (
                [timing.ratio(s, f"ours compiled, {f}", f"ours, {f}") for s in chosen]
                for f in FORMATS
            )
            lines.append([operation, window, *map(timing.geometric_mean, ratios)])
    print()
    print(timing.table(["compiled / uncompiled", "window", *FORMATS], lines))


def report(rows: list[dict[str, Any]]) -> None:
    """Print geometric means over sizes, as ratios to each other implementation."""
    theirs = {who for row in rows for who in row["seconds"] if "ours" not in who}
    columns = sorted(theirs, key=lambda who: (who != "torch NCHW, 1 thread", who))
    lines = []
    for dtype in ("float32", "float16", "bfloat16"):
        for operation in OPERATIONS:
            for window in WINDOWS:
                chosen = [
                    row["seconds"]
                    for row in rows
                    if (row["dtype"], row["operation"], row["window"]) == (dtype, operation, window)
                ]
                for ours in FORMATS:
                    line: list[Any] = [operation, window, dtype, ours]
                    if not chosen:
                        continue
                    for who in columns:
                        ratios = [timing.ratio(s, f"ours, {ours}", who) for s in chosen if who in s]
                        line.append(timing.geometric_mean(ratios) if ratios else "")
                    lines.append(line)
    header = ["operation", "window", "dtype", "indices", *(f"/ {who}" for who in columns)]
    print(timing.table(header, lines))


if __name__ == "__main__":
    main()
