"""Compare the speed of this version of the library with that of another checkout, on the CPU.

    python benchmarks/compare.py OTHER_CHECKOUT

The two versions run in turn, each in a subprocess that measures the operations and the building of
their graphs. The program prints the time of this version divided by the time of the other one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ROUNDS = 7
SECONDS = 0.15  # per operation and round
WINDOWS = {"2x2/2": (2, 2, 0), "3x3/2": (3, 2, 1), "3x3/1": (3, 1, 1)}


def operations() -> dict[str, tuple[Callable[[], Any], bool]]:
    """For each operation, a function that runs it and whether to evaluate its result."""
    import mlx.core as mx

    import mlx_unpool

    mx.set_default_device(mx.cpu)
    found: dict[str, tuple[Callable[[], Any], bool]] = {}

    def add(name: str, pool: Any, unpool: Any, x: mx.array) -> None:
        """Add the operations of one pair of layers."""
        values, indices = pool(x)
        size = {"output_size": x.shape}
        mx.eval(values, indices)
        pool_of = lambda x: pool(x)[0].sum()  # noqa: E731
        unpool_of = lambda values: (unpool(values, indices, **size) * x).sum()  # noqa: E731
        found[f"pool {name}"] = (lambda: pool(x)), True
        found[f"unpool {name}"] = (lambda: unpool(values, indices, **size)), True
        found[f"pool backward {name}"] = (lambda: mx.grad(pool_of)(x)), True
        found[f"unpool backward {name}"] = (lambda: mx.grad(unpool_of)(values)), True

    def both(kind: str, *window: Any, **options: Any) -> tuple[Any, Any]:
        pool = getattr(mlx_unpool, kind)(*window, return_indices=True, **options)
        return pool, getattr(mlx_unpool, f"MaxUnpool{kind[-2:]}").from_pool(pool)

    for window, parameters in WINDOWS.items():
        for index_format in ("flat", "window"):
            layers = both("MaxPool2d", *parameters, index_format=index_format)
            for dtype in ("float32", "float16"):
                x = mx.random.normal((4, 56, 56, 128)).astype(getattr(mx, dtype))
                add(f"{window} {index_format} {dtype}", *layers, x)
            pool, unpool = layers
            x = mx.zeros((1, 112, 112, 64))
            values, indices = pool(x)
            mx.eval(values, indices)
            call = lambda u=unpool, v=values, i=indices: u(v, i, output_size=(112, 112))  # noqa: E731
            found[f"graph of a pool {window} {index_format}"] = (lambda p=pool, x=x: p(x)), False
            found[f"graph of an unpool {window} {index_format}"] = call, False
    add("3-D 2/2", *both("MaxPool3d", 2), mx.random.normal((1, 32, 32, 32, 32)))
    add("1-D 100", *both("MaxPool1d", 100), mx.random.normal((8, 10000, 16)))
    add("adaptive", *both("AdaptiveMaxPool2d", 7), mx.random.normal((8, 30, 30, 128)))
    options = {"output_ratio": 0.7}
    add("fractional", *both("FractionalMaxPool2d", 2, **options), mx.random.normal((2, 64, 64, 32)))
    return found


def measure() -> dict[str, float]:
    """The shortest time of each operation in seconds."""
    import mlx.core as mx

    mx.set_cache_limit(2**30)  # MLX's default on the CPU, 32 MB, causes page faults in every call
    times = {}
    for name, (run, evaluated) in operations().items():
        once = (lambda run=run: mx.eval(run())) if evaluated else run
        once()
        times[name], end = math.inf, time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            start = time.perf_counter()
            once()
            times[name] = min(times[name], time.perf_counter() - start)
    return times


def main() -> None:
    """Print the ratios of medians, from large to small, and their geometric mean."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("other", nargs="?", type=Path, help="folder of a checkout of the other version")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure()))
        return
    print(f"mx.set_cache_limit(2**30), load {os.getloadavg()[0]:.2f}")
    rounds: dict[Path, list[dict[str, float]]] = {ROOT: [], arguments.other: []}
    for _ in range(ROUNDS):
        for checkout, measured in rounds.items():
            result = subprocess.run(
                [sys.executable, __file__, "--measure"],
                env={**os.environ, "PYTHONPATH": str(checkout.resolve())},
                capture_output=True,
                text=True,
                check=True,
            )
            measured.append(json.loads(result.stdout))
    median = lambda checkout, name: statistics.median(r[name] for r in rounds[checkout])  # noqa: E731
    names = rounds[ROOT][0]
    ratios = {name: median(ROOT, name) / median(arguments.other, name) for name in names}
    for name, ratio in sorted(ratios.items(), key=lambda item: -item[1]):
        print(f"{ratio:.2f}  {name}")
    print(f"{statistics.geometric_mean(ratios.values()):.3f}  geometric mean of {len(ratios)}")


if __name__ == "__main__":
    main()
