"""Times the MLX operations on the CPU that no implementation of pooling and unpooling can avoid.

python benchmarks/floor.py
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import ops
from harness import rivals, timing

# The operations that are timed for each primitive. Everything else is computed before, and indices are not
# checked.
PARTS = {
    "pool": "two `maximum`, no index",
    "unpool": "`zeros` and `put_along_axis`",
    "pool backward": "`zeros` and `put_along_axis`",
    "unpool backward": "one `take_along_axis`",
}


def parts(case: ops.Case) -> dict[str, Any]:
    """Functions that run the operations of :data:`PARTS` for 2x2 windows."""
    batch, height, width, channels = case.x.shape
    place = case.flat.reshape(batch, -1, channels) * channels + mx.arange(channels)
    place = place.reshape(batch, -1).astype(mx.uint32)
    values, full = case.values.reshape(batch, -1), case.full.reshape(batch, -1)
    mx.eval(place, values, full)

    def maxima() -> mx.array:
        rows = mx.maximum(case.x[:, :, 1::2], case.x[:, :, ::2])
        return mx.maximum(rows[:, 1::2], rows[:, ::2])

    def put() -> mx.array:
        zeros = mx.zeros((batch, height * width * channels))
        return mx.put_along_axis(zeros, place, values, axis=1)

    def take() -> mx.array:
        return mx.take_along_axis(full, place, axis=1)

    runs = (maxima, put, put, take)
    return {name: ops.mlx_run(run) for name, run in zip(PARTS, runs, strict=True)}


def main() -> None:
    """Prints the table of RESULTS.md."""
    rows = []
    for size, channels in ops.SIZES:
        for batch in ops.BATCHES:
            case = ops.Case(batch, size, channels, "2x2/2", "float32")
            for operation, part in parts(case).items():
                torch_run = rivals.with_threads(1, case.torch_run(operation, False, "cpu"))
                implementations = case.rivals(operation)
                runs = {f: implementations[f"ours, {f}"] for f in ops.FORMATS}
                times = timing.medians({**runs, "part": part, "torch": torch_run})
                rows.append(
                    {
                        "operation": operation,
                        "shape": [batch, size, size, channels],
                        "seconds": times,
                    }
                )
    timing.save("floor", rows)
    lines: list[list[Any]] = []
    for operation, part in PARTS.items():
        chosen = [row["seconds"] for row in rows if row["operation"] == operation]
        ratios = [
            timing.geometric_mean([timing.ratio(s, who, "torch") for s in chosen])
            for who in ("part", *ops.FORMATS)
        ]
        lines.append([operation, part, *ratios])
    header = ["2x2/2, float32, / torch NCHW, 1 thread", "these operations", "alone"]
    header += [f"whole operation, {f}" for f in ops.FORMATS]
    print(timing.table(header, lines))


if __name__ == "__main__":
    main()
