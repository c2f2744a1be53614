"""Measure the peak memory of a whole SegNet with each of its decoders, inference and training.

    python benchmarks/memory.py            measure and print the table (a minute)
    python benchmarks/memory.py --store    the same, and store the run beside the last one

Each figure is measured in a new process, in two ways: the increase of the process's resident memory
since the model was made, and the bytes that MLX has allocated. MLX allocates arrays before it
computes them, so the second figure can be larger. On a GPU only the second one counts.
"""

import multiprocessing
import resource
import sys
from typing import Any

import harness
import mlx.core as mx
from mlx_unpool_zoo import SegNet

from mlx_unpool import benchmark

INPUTS = {"inference": (1, 512, 512, 3), "training": (2, 256, 256, 3)}
NAMES = {"unpool": "unpooling", "nearest": "nearest neighbour", "bilinear": "bilinear"}
NAMES["skip"] = "skip connections"
FREE = 2**25  # MLX's limit of free buffers on a CPU, in bytes; harness raised it
UNIT = 1 if sys.platform == "darwin" else 1024  # of the system's figure, in bytes


def resident() -> int:
    """The peak resident memory of this process in bytes."""
    return UNIT * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def peaks(decoder: str, use: str, shape: tuple[int, ...]) -> dict[str, int]:
    """The peak memory in bytes, by both counts. Each call needs a new process."""
    model, x = SegNet(5, decoder=decoder, coarse=False), mx.random.normal(shape)
    mx.eval(model.parameters(), x)
    mx.set_cache_limit(FREE)
    mx.reset_peak_memory()
    before = resident()
    if use == "inference":
        mx.eval(model.eval()(x))
    else:
        step = benchmark.training_step(model.train(), x)
        for _ in range(2):  # the state of the optimizer exists from the second step on
            mx.eval(step())
    return {"resident": resident() - before, "allocated": mx.get_peak_memory()}


def measure_all() -> list[dict[str, Any]]:
    """A row for each use and decoder."""
    tasks = [(decoder, *each) for each in INPUTS.items() for decoder in NAMES]
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        found = processes.starmap(peaks, tasks, chunksize=1)
    return [
        {"use": use, "decoder": d, "shape": shape} | p for (d, use, shape), p in zip(tasks, found)
    ]


def table(runs: list[harness.Run]) -> str:
    """Peak memory in MB, resident and allocated, with a row for each decoder."""
    found: dict[str, dict[str, Any]] = {name: {} for name in NAMES}
    for row in runs[-1]["rows"]:
        found[row["decoder"]][row["use"]] = row
    lines = [
        [
            NAMES[name],
            *(f"{r['resident'] / 1e6:.0f} / {r['allocated'] / 1e6:.0f}" for r in uses.values()),
        ]
        for name, uses in found.items()
    ]
    return f"{harness.table(['decoder', *INPUTS], lines)}\n\n{harness.description(runs, ('mlx',))}"


TABLES = {"table": table}


if __name__ == "__main__":
    harness.main("memory", __doc__, measure_all, TABLES)
