"""What the benchmarks share: their command line, stored runs, and the tables of the pages.

The alternatives run in one process and take turns. The machines are shared, so times vary; ratios
of medians vary much less. ``python benchmarks/harness.py`` writes the tables of all stored runs.
"""

import argparse
import importlib
import json
import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from mlx_unpool import _report, benchmark
from mlx_unpool._report import Times, times_of

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "docs" / "benchmarks.md", ROOT / "README.md")
RESULTS = Path(__file__).parent / "results"
CACHE_LIMIT = benchmark.keep_free_buffers()  # bytes
MOST_WAITING, WAKE_UP = 1.15, 2e-5  # elapsed time per CPU time, and seconds to wake MLX's thread
PACKAGES = ("mlx", "mlx-cpu", "mlx-cuda-13", "torch", "numpy", "mlx-unpool")
Run = dict[str, Any]  # the machine, and the rows that were measured


def medians(
    rivals: dict[str, Callable[[], Any]], turns: int = 3, seconds: float = 0.03
) -> dict[str, Times]:
    """The median times of each function. The functions take turns.

    In a turn, a function first runs for ``seconds`` (at least two runs) without counting. This
    fills the caches again and wakes MLX's thread, which takes tens of milliseconds on a busy
    machine. Then it runs for ``seconds`` (at least three runs) that count.
    """
    times: dict[str, list[Times]] = {name: [] for name in rivals}
    for _ in range(turns):
        for name, run in rivals.items():
            times_of(run, seconds, 2)
            times[name] += times_of(run, seconds, 3)
    return {name: _report.medians(measured) for name, measured in times.items()}


def is_quiet(times: Times) -> bool:
    """Whether elapsed time is at most 15 % above CPU time, so that no other work was measured."""
    elapsed, cpu = times
    return elapsed <= MOST_WAITING * cpu + WAKE_UP


def machine() -> dict[str, Any]:
    """The machine, the versions and the time, which belong to every result."""
    found = {d.metadata["Name"]: d.version for d in distributions()}
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        processor = names[0].partition(":")[2].strip() if names else processor
    return {
        "time": time.time(),
        "load": os.getloadavg()[0],
        "system": platform.system(),
        "processor": processor,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: found[name] for name in PACKAGES if name in found},
        "cache_limit": CACHE_LIMIT,
    }


def description(runs: list[Run], packages: Sequence[str]) -> str:
    """The machine of some runs of one benchmark, in words."""
    facts = runs[-1]["machine"]
    versions = ", ".join(f"{name} {facts['versions'][name]}" for name in packages)
    times = (time.gmtime(run["machine"]["time"]) for run in runs)
    days = dict.fromkeys(time.strftime("%Y-%m-%d", moment) for moment in times)
    loads = " and ".join(f"{run['machine']['load']:.2f}" for run in runs)
    return (
        f"Machine: {facts['processor']}, {facts['cores']} cores, {facts['system']}; {versions}, "
        f"Python {facts['python']}; {' and '.join(days)}, load at the start {loads}."
    )


def save(name: str, start: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Store a run beside the run before it: ``machine()`` at its start, and its rows."""
    path = RESULTS / f"{name}.json"
    runs = load(name)[-1:] if path.exists() else []
    texts = []
    for run in [*runs, {"machine": start, "rows": rows}]:
        lines = ",\n".join(map(json.dumps, run["rows"]))
        texts.append(f'{{"machine": {json.dumps(run["machine"])}, "rows": [\n{lines}\n]}}')
    RESULTS.mkdir(exist_ok=True)
    path.write_text("[\n" + ",\n".join(texts) + "\n]\n")


def load(name: str) -> list[Run]:
    """The stored runs of a benchmark, at most two."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def two_runs(name: str) -> list[dict[str, Any]]:
    """The stored runs, which must be two, ten minutes apart, each started with a free core."""
    runs = load(name)
    starts = [run["machine"] for run in runs]
    if len(runs) < 2 or starts[1]["time"] - starts[0]["time"] < 600:
        raise SystemExit(f"{name}: pages show what two runs confirm that are ten minutes apart.")
    if any(start["load"] >= start["cores"] for start in starts):
        raise SystemExit(f"{name}: a run started without a free core.")
    return runs


def factor(ratio: float) -> str:
    """How many times faster: two digits, or two after the point if it is below 1."""
    return f"{ratio:.{2 if round(ratio, 2) < 1 else 1 if ratio < 9.95 else 0}f}x"


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_tables(text: str) -> str:
    """The text of a page with all its tables."""

    def table(match: re.Match[str]) -> str:
        begin, name, part, end = match.groups()
        runs = load(name)[-1:] if name == "memory" else two_runs(name)
        return f"{begin}\n\n{importlib.import_module(name).TABLES[part](runs)}\n\n{end}"

    found = r"(<!-- table: (\w+) (\w+) -->).*?(<!-- end of table -->)"
    return re.sub(found, table, text, flags=re.DOTALL)


def main(name: str, about: str | None, measure: Callable[[], Any], tables: dict[str, Any]) -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--store", action="store_true", help="store the run")
    options = parser.parse_args()
    start = machine()
    rows = measure()
    if options.store:
        save(name, start, rows)
    print("\n\n".join(table([{"machine": start, "rows": rows}]) for table in tables.values()))


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text()))
