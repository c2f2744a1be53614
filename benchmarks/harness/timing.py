"""Timing for all benchmarks: the alternatives run in one process and take turns, and medians are compared.

The machines are shared, so times vary. Ratios of medians of interleaved runs vary much less.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mlx_unpool.benchmark import keep_free_buffers

RESULTS = Path(__file__).parent.parent / "results"
CACHE_LIMIT = keep_free_buffers()  # bytes
clock = time.perf_counter  # or time.process_time, on a machine that is busy with other work


def medians(
    rivals: dict[str, Callable[[], Any]], turns: int = 3, seconds: float = 0.03
) -> dict[str, float]:
    """The median time of each function in seconds. The functions take turns.

    In a turn, a function first runs for ``seconds`` (at least two runs) without counting. This fills the
    caches again and wakes MLX's thread, which takes tens of milliseconds on a busy machine. Then it runs for
    ``seconds`` (at least three runs) that count.
    """
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(turns):
        for name, run in rivals.items():
            each(run, 2, seconds)
            times[name] += each(run, 3, seconds)
    return {name: statistics.median(measured) for name, measured in times.items()}


def each(run: Callable[[], Any], least: int, seconds: float) -> list[float]:
    """The times of at least ``least`` runs, or of as many as fit into ``seconds``."""
    times: list[float] = []
    while len(times) < least or sum(times) < seconds:
        start = clock()
        run()
        times.append(clock() - start)
    return times


def ratio(figures: dict[str, float], numerator: str, denominator: str) -> float:
    """Divide one of the figures by another."""
    return figures[numerator] / figures[denominator]


def geometric_mean(numbers: list[float]) -> float:
    """The geometric mean, which is the appropriate mean for ratios."""
    return statistics.geometric_mean(numbers)


def machine() -> dict[str, Any]:
    """The machine and the versions, which belong to every result."""
    versions = {}
    for package in ("mlx", "mlx-cpu", "mlx-cuda-13", "torch", "numpy", "mlx-unpool"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        processor = names[0].partition(":")[2].strip() if names else processor
    return {
        "system": platform.system(),
        "processor": processor,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
        "cache_limit": CACHE_LIMIT,
        "load": os.getloadavg(),
    }


def save(name: str, rows: list[dict[str, Any]]) -> None:
    """Write the rows of a benchmark and the machine as JSON."""
    RESULTS.mkdir(exist_ok=True)
    content = {"benchmark": name, "machine": machine(), "rows": rows}
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def table(header: list[str], rows: list[list[Any]]) -> str:
    """A Markdown table. Floats have two decimals."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in rows:
        cells = [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
