"""Measures the memory of indices, and the peak memory of a forward and backward pass.

    python benchmarks/memory.py

Each measurement runs in a separate process. The peak is the most memory that the process held, minus what it
held before the pass.
"""

from __future__ import annotations

import json
import subprocess
import sys

from harness import timing

SHAPE = (4, 224, 224, 64)
POOLED = 4 * 112 * 112 * 64  # number of pooled values

MLX = """
import mlx.core as mx, mlx_unpool
x = mx.random.normal({shape}); mx.eval(x)
before = mx.get_active_memory()
pool = mlx_unpool.MaxPool2d(2, return_indices=True, index_format="{format}")
unpool = mlx_unpool.MaxUnpool2d.from_pool(pool)
values, indices = pool(x); mx.eval(values, indices)
kept = mx.get_active_memory() - before - values.nbytes
del values, indices
mx.clear_cache(); mx.reset_peak_memory(); before = mx.get_active_memory()
mx.eval(mx.grad(lambda x: unpool(*pool(x)).square().sum())(x))
peak = mx.get_peak_memory() - before
"""
TORCH = """
import torch
torch.set_num_threads(1)
x = torch.randn({shape}).permute(0, 3, 1, 2).contiguous().requires_grad_()
from torch.profiler import profile, ProfilerActivity
values, indices = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
kept = indices.untyped_storage().nbytes()
del values, indices
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
    values, indices = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    torch.nn.functional.max_unpool2d(values, indices, 2).square().sum().backward()
held = peak = 0
for event in watched.profiler.kineto_results.events():
    if event.name() == "[memory]":
        held += event.nbytes()
        peak = max(peak, held)
"""


def measure(code: str) -> dict[str, int]:
    """The numbers of bytes that a program prints."""
    program = f"{code}\nimport json; print(json.dumps(dict(kept=kept, peak=peak)))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout.splitlines()[-1])


def main() -> None:
    """Prints the table of RESULTS.md."""
    programs = {
        "ours, window": MLX.format(shape=SHAPE, format="window"),
        "ours, flat": MLX.format(shape=SHAPE, format="flat"),
        "torch": TORCH.format(shape=SHAPE),
    }
    rows = [{"who": name, **measure(code)} for name, code in programs.items()]
    timing.save("memory", rows)
    peak = rows[-1]["peak"]
    lines = [
        [row["who"], row["kept"] / POOLED, row["peak"] / POOLED, row["peak"] / peak] for row in rows
    ]
    header = ["indices", "index, bytes per pooled value", "peak, bytes per pooled value", "/ torch"]
    print(timing.table(header, lines))


if __name__ == "__main__":
    main()
