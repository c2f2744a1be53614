"""The command line of the benchmarks."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import timing

Run = dict[str, Any]  # the machine, and the rows that were measured


def main(
    name: str,
    description: str | None,
    measure: Callable[[bool], list[dict[str, Any]]],
    report: Callable[[Run], str],
    pages: Callable[[], dict[Path, str]],
) -> None:
    """Measure and print a report, or write the pages.

    Args:
        name: The name of the stored runs.
        description: The docstring of the program.
        measure: Returns the rows; the argument is whether to measure small arrays only.
        report: The text to print.
        pages: Returns the text of each page with the stored runs.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--quick", action="store_true", help="use small arrays, to check that it runs")
    either.add_argument("--store", action="store_true", help="store the run")
    either.add_argument("--write", action="store_true", help="write the pages from the stored runs")
    options = parser.parse_args()
    if options.write:
        for page, text in pages().items():
            page.write_text(text)
        return
    start = timing.machine()
    run = {"machine": start, "rows": measure(options.quick)}
    if options.store:
        timing.save(name, start, run["rows"])
    print(report(run))
