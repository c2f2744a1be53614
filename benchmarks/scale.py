"""Measures how the time of a call depends on the size of the array and on the size of the window.

python benchmarks/scale.py
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import torch
from harness import rivals, timing

import mlx_unpool

CHANNELS = 32
SIDES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # rows and columns: 0.5 KB to 128 MB in float32
KERNELS = (1, 2, 3, 4, 5, 7, 9, 13)


def times(side: int, kernel: int, stride: int, padding: int) -> dict[str, float]:
    """Seconds of pool and unpool with window indices, and of PyTorch's pool in channels_last."""
    x = mx.random.normal((1, side, side, CHANNELS))
    window = (kernel, stride, padding)
    values, indices = mlx_unpool.max_pool2d(x, *window, return_indices=True, index_format="window")
    mx.eval(x, values, indices)
    tensor = rivals.to_torch(x, "float32", channels_last=True)
    torch.set_num_threads(1)
    runs = {
        "pool": lambda: mx.eval(
            mlx_unpool.max_pool2d(x, *window, return_indices=True, index_format="window")
        ),
        "unpool": lambda: mx.eval(
            mlx_unpool.max_unpool2d(values, indices, *window, output_size=(side, side))
        ),
        "torch pool": lambda: torch.nn.functional.max_pool2d(tensor, *window, return_indices=True),
    }
    return timing.medians(runs)


def main() -> None:
    """Prints two tables and draws two plots."""
    sizes = [
        {"side": side, "bytes": side * side * CHANNELS * 4, **times(side, 2, 2, 0)}
        for side in SIDES
    ]
    windows = [{"kernel": k, **times(112, k, 1, k // 2)} for k in KERNELS]
    timing.save("scale", [*sizes, *windows])
    names = ("pool", "unpool", "torch pool")
    # Time per byte of the plane, in units of the shortest one of all sizes.
    best = {name: min(row[name] / row["bytes"] for row in sizes) for name in names}
    lines: list[list[Any]] = [
        [
            f"{row['bytes'] / 1024:.0f} KB",
            *(row[name] / row["bytes"] / best[name] for name in names),
        ]
        for row in sizes
    ]
    print(timing.table(["plane, 2x2/2", *(f"{name}, time per byte" for name in names)], lines))
    print()
    least = {name: windows[0][name] for name in names}
    lines = [[row["kernel"], *(row[name] / least[name] for name in names)] for row in windows]
    print(timing.table(["kernel, stride 1", *(f"{name} / kernel 1" for name in names)], lines))

    def by_size(axes: Any) -> None:
        for name in names:
            axes.loglog(
                [row["bytes"] for row in sizes],
                [row[name] / row["bytes"] / best[name] for row in sizes],
                marker="o",
                label=name,
            )
        axes.set_xlabel("bytes of the plane (float32, 2x2/2)")
        axes.set_ylabel("time per byte / shortest of all sizes")
        axes.legend()

    def by_window(axes: Any) -> None:
        for name in names:
            axes.plot(KERNELS, [row[name] / least[name] for row in windows], marker="o", label=name)
        axes.set_xlabel("kernel size (stride 1, 112 x 112 x 32)")
        axes.set_ylabel("time / kernel size 1")
        axes.legend()

    timing.figure("scale-size", by_size)
    timing.figure("scale-window", by_window)


if __name__ == "__main__":
    main()
