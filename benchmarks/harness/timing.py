"""How every benchmark here measures: rivals in one process, in turns, after warm-up, medians and ratios.

These machines are shared and noisy. A ratio of medians of interleaved runs is worth something; an absolute
time is not, and no page of this project quotes one.
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

RESULTS = Path(__file__).parent.parent / "results"
clock = time.perf_counter  # time.process_time on a machine that is busy with something else


def medians(
    rivals: dict[str, Callable[[], Any]], turns: int = 3, seconds: float = 0.03
) -> dict[str, float]:
    """Median seconds of each rival: they take turns, in which it runs twice as long as it is counted.

    The first ``seconds`` of a turn (two runs at least) do not count: they bring back what the rival before
    pushed out of the caches, and wake the thread that MLX runs on, which takes tens of milliseconds on a
    busy machine. The next ``seconds`` do (three runs at least).
    """
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(turns):
        for name, run in rivals.items():
            each(run, 2, seconds)
            times[name] += each(run, 3, seconds)
    return {name: statistics.median(measured) for name, measured in times.items()}


def each(run: Callable[[], Any], least: int, seconds: float) -> list[float]:
    """What each run takes, of ``least`` runs or as many as fit into ``seconds``."""
    times: list[float] = []
    while len(times) < least or sum(times) < seconds:
        start = clock()
        run()
        times.append(clock() - start)
    return times


def ratio(figures: dict[str, float], ours: str, theirs: str) -> float:
    """How long ours takes, in units of theirs."""
    return figures[ours] / figures[theirs]


def geometric_mean(numbers: list[float]) -> float:
    """The mean for ratios."""
    return statistics.geometric_mean(numbers)


def machine() -> dict[str, Any]:
    """What a figure must not be quoted without."""
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
    }


def save(name: str, rows: list[dict[str, Any]]) -> None:
    """Writes the rows of a benchmark as JSON, with the machine."""
    RESULTS.mkdir(exist_ok=True)
    content = {"benchmark": name, "machine": machine(), "rows": rows}
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def table(header: list[str], rows: list[list[Any]]) -> str:
    """A table in Markdown; numbers with two digits behind the point."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in rows:
        cells = [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def figure(name: str, draw: Callable[[Any], None]) -> None:
    """Draws one plot into the results folder."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    canvas, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    draw(axes)
    axes.grid(visible=True, alpha=0.3)
    RESULTS.mkdir(exist_ok=True)
    canvas.savefig(RESULTS / f"{name}.png", dpi=120)
    plt.close(canvas)
