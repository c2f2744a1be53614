"""How long does Python take to build the graph of one call, before anything runs?

python benchmarks/overhead.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import timing

import mlx_unpool

X = mx.zeros((1, 112, 112, 64))
CALLS = 200


def microseconds(call: Callable[[], Any]) -> float:
    """Median over batches of calls, the results of which are thrown away unevaluated."""
    for _ in range(20):
        call()
    batches = []
    for _ in range(15):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        batches.append((time.perf_counter() - start) / CALLS)
    return 1e6 * statistics.median(batches)


def main() -> None:
    """Prints a table."""
    mx.eval(X)
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
    compiled = {
        f"{name}, compiled": mx.compile(lambda call=call: call()) for name, call in calls.items()
    }
    rows = [
        {"call": name, "microseconds": microseconds(call)}
        for name, call in {**calls, **compiled}.items()
    ]
    timing.save("overhead", rows)
    base = {False: rows[0]["microseconds"], True: rows[len(calls)]["microseconds"]}
    lines = [
        [
            row["call"],
            row["microseconds"],
            row["microseconds"] / base[row["call"].endswith("compiled")],
        ]
        for row in rows
    ]
    print(timing.table(["call", "microseconds", "/ mlx.nn.MaxPool2d"], lines))


if __name__ == "__main__":
    main()
