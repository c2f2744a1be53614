"""Runs Python as on a Mac: the default device is a GPU, emulated on the CPU.

    python tests/metal/as_on_a_mac.py -m pytest tests/test_literal.py
    python tests/metal/as_on_a_mac.py examples/first_steps.py

The arguments are Python's. Processes that the program starts run in the same way.
See docs/testing_metal.md.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FOLDERS = (HERE / "emulated_mac", HERE, ROOT, ROOT / "tests" / "support", ROOT / "benchmarks")


def environment() -> dict[str, str]:
    """The environment of a Python that runs as on a Mac."""
    paths = [*map(str, FOLDERS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


if __name__ == "__main__":
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], environment())
