"""Measures whether indices of 2 bits would be worth it for 2x2 windows, as in the SegNet paper.

    python benchmarks/packed.py

On the CPU, pool and unpool are timed with and without packing, which uses the fewest possible MLX operations.
On a GPU, a kernel would pack while it writes, so only bytes are counted.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from harness import timing

import mlx_unpool

SIZES = [(112, 64), (56, 128), (28, 256)]


def pack(indices: mx.array) -> mx.array:
    """Window indices (0 to 3) with four neighbouring channels packed into one byte."""
    a, b, c, d = (indices[..., n::4] for n in range(4))
    return (a | (b << 2)) | ((c | (d << 2)) << 4)


def unpack(packed: mx.array) -> mx.array:
    """The unpacked indices."""
    parts = (packed[..., None] >> mx.array([0, 2, 4, 6], mx.uint8)) & mx.array(3, mx.uint8)
    return parts.reshape(*packed.shape[:-1], -1)


def main() -> None:
    """Prints a table for the CPU and one for GPUs."""
    rows: list[dict[str, Any]] = []
    for size, channels in SIZES:
        x = mx.random.normal((1, size, size, channels))
        values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True, index_format="window")
        packed = pack(indices)
        assert mx.array_equal(unpack(packed), indices)

        def pool(x: mx.array = x) -> tuple[mx.array, mx.array]:
            return mlx_unpool.max_pool2d(x, 2, return_indices=True, index_format="window")

        def packed_pool(pool: Any = pool) -> tuple[mx.array, mx.array]:
            values, indices = pool()
            return values, pack(indices)

        runs = {
            "pool": lambda pool=pool: mx.eval(pool()),
            "pool, packed": lambda pool=packed_pool: mx.eval(pool()),
            "unpool": lambda v=values, i=indices: mx.eval(mlx_unpool.max_unpool2d(v, i, 2)),
            "unpool, packed": lambda v=values, p=packed: mx.eval(
                mlx_unpool.max_unpool2d(v, unpack(p), 2)
            ),
        }
        rows.append({"shape": [1, size, size, channels], "seconds": timing.medians(runs)})
    timing.save("packed", rows)
    lines: list[list[Any]] = []
    for name in ("pool", "unpool"):
        ratios = [timing.ratio(row["seconds"], f"{name}, packed", name) for row in rows]
        lines.append([name, timing.geometric_mean(ratios)])
    print(timing.table(["CPU, 2x2/2, float32", "packed / window"], lines))
    print()
    lines = []
    for dtype, size in (("float32", 4), ("float16, bfloat16", 2)):
        others = 4 * size + size  # bytes of the input and of the value, per pooled value
        lines.append([dtype, others + 1, others + 0.25, (others + 0.25) / (others + 1)])
    header = ["GPU, 2x2/2, bytes per pooled value", "window", "packed", "packed / window"]
    print(timing.table(header, lines))


if __name__ == "__main__":
    main()
