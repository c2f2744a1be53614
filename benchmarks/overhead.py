"""Measures the time that Python needs to build the graph of one call, without evaluating it.

    python benchmarks/overhead.py

It also measures two parts of that time. One is what this library adds to the primitive: checks, a look-up
of the cached geometry, and reshapes. The other is the Python part of a pool on a GPU, with an empty kernel.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from harness import timing

import mlx_unpool
from mlx_unpool import _backends, _derivatives
from mlx_unpool._backends import gpu
from mlx_unpool._geometry import WindowGeometry
from mlx_unpool._requests import window_of

X = mx.zeros((1, 112, 112, 64))
CALLS = 100
TURNS = 15


def microseconds(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The median time of each call. The calls take turns, and their results are not evaluated."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(TURNS + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            if turn:  # the first turn warms up
                times[name].append(1e6 * (time.perf_counter() - start) / CALLS)
    return {name: statistics.median(measured) for name, measured in times.items()}


def layers() -> dict[str, Callable[[], Any]]:
    """Calls of the public layers."""
    theirs = nn.MaxPool2d(2)
    calls: dict[str, Callable[[], Any]] = {"mlx.nn.MaxPool2d(2)": lambda: theirs(X)}
    for window in ((2, 2, 0), (3, 2, 1)):
        for index_format in ("flat", "window"):
            pool = mlx_unpool.MaxPool2d(*window, return_indices=True, index_format=index_format)
            unpool = mlx_unpool.MaxUnpool2d.from_pool(pool)
            values, indices = pool(X)
            mx.eval(values, indices)
            name = f"{window[0]}x{window[0]}/{window[1]}, {index_format}"
            calls[f"pool {name}"] = lambda pool=pool: pool(X)
            calls[f"unpool {name}"] = lambda u=unpool, v=values, i=indices: u(
                v, i, output_size=(112, 112)
            )
    return calls


def parts() -> dict[str, float]:
    """Times in microseconds of the parts of a 2x2/2 call with flat indices."""
    pool = mlx_unpool.MaxPool2d(2, return_indices=True)
    unpool = mlx_unpool.MaxUnpool2d.from_pool(pool)
    values, indices = pool(X)
    folded, v, i = X[:, None], values[:, None], indices[:, None]
    mx.eval(folded, v, i)
    g = WindowGeometry((1, 112, 112), (1, 56, 56), window_of("", 2, 2))
    here = _backends.where(None)
    metal = _backends.get("metal")
    nothing = lambda *_, **__: [v, i]  # noqa: E731
    made, mx.fast.metal_kernel = mx.fast.metal_kernel, lambda *_, **__: nothing
    try:
        times = microseconds(
            {
                "pool": lambda: pool(X),
                "pool, primitive": lambda: _derivatives.pool(folded, None, g, mx.int32, here),
                "unpool": lambda: unpool(values, indices, output_size=(112, 112)),
                "unpool, primitive": lambda: _derivatives.linear("place", v, i, g, here),
                "GPU pool": lambda: metal.pool(folded, g, mx.int32),
            }
        )
    finally:
        mx.fast.metal_kernel = made
        gpu._build.cache_clear()
    return {
        "pool, part outside the primitive": times["pool"] - times["pool, primitive"],
        "unpool, part outside the primitive": times["unpool"] - times["unpool, primitive"],
        "pool on a GPU, Python part": times["GPU pool"],
    }


def first_calls() -> dict[str, float]:
    """Time in microseconds of the first call with a shape. Every call has another shape."""
    sizes = iter(range(8, 10**6))
    pool = mlx_unpool.MaxPool2d(2, return_indices=True)
    made = {"pool, first call with a shape": lambda: pool(mx.zeros((1, 8, 8, next(sizes))))}
    return microseconds(made)


def main() -> None:
    """Prints the table."""
    mx.eval(X)
    calls = layers()
    compiled = {
        f"{name}, compiled": mx.compile(lambda call=call: call()) for name, call in calls.items()
    }
    times = microseconds({**calls, **compiled})
    base = {False: times["mlx.nn.MaxPool2d(2)"], True: times["mlx.nn.MaxPool2d(2), compiled"]}
    times |= parts() | first_calls()
    rows = [{"call": name, "microseconds": t} for name, t in times.items()]
    timing.save("overhead", rows)
    lines = [[name, t, t / base[name.endswith("compiled")]] for name, t in times.items()]
    print(timing.table(["call", "microseconds", "/ mlx.nn.MaxPool2d"], lines))


if __name__ == "__main__":
    main()
