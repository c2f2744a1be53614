"""Runs Python as on a Mac: the default device is a GPU, emulated on the CPU.

    python tests/metal/as_on_a_mac.py -m pytest tests/test_literal.py    the arguments are Python's
    python tests/metal/as_on_a_mac.py examples/first_steps.py
    python tests/metal/as_on_a_mac.py --all                              what CI runs

Processes that the program starts run in the same way. ``--all`` runs the core's tests, with the
examples in docstrings and pages, fewer generated calls than on the CPU, then the first notebook,
and every program that needs no arguments, in its smoke mode if it has one. The other notebooks
train the models of these programs.
"""

import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REFERENCE = str(ROOT / "tests" / "test_reference.py")
FOLDERS = (HERE / "emulated_mac", HERE, ROOT, ROOT / "tests", ROOT / "benchmarks")
SKIPS = HERE / "emulated_mac" / "skips.txt"


def skipped() -> list[str]:
    """The tests and files in the list of those that cannot run so."""
    return [line.strip() for line in SKIPS.read_text().splitlines() if line.startswith(" ")]


def environment() -> dict[str, str]:
    """The environment of a Python that runs as on a Mac."""
    paths = [*map(str, FOLDERS), *filter(None, [os.environ.get("PYTHONPATH")])]
    options = shlex.join(f"--deselect={test}" for test in skipped())
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTEST_ADDOPTS": options}


def core_tests() -> list[str]:
    """The files of the core's tests, as the Makefile has them."""
    others = "site", "package", "typing", "reference", "ops"  # the last one: the CPU's primitives
    paths = sorted((ROOT / "tests").glob("test_*.py"))
    files = [str(path) for path in paths if not path.stem.removeprefix("test_").startswith(others)]
    return [file for file in files if file.removeprefix(f"{ROOT}/") not in skipped()]


def programs(folder: str) -> list[list[str]]:
    """The programs that need no arguments, in their smoke modes."""
    commands = [[str(ROOT / "examples/first_steps.py")]]
    for path in sorted((ROOT / "examples").glob("*.py")):
        text = path.read_text()
        output = ["--output", f"{folder}/{path.stem}"] if ".output" in text else []
        if "smoke" in text:
            commands.append([str(path), "--smoke", *output])
    return commands


def run_all() -> int:
    """Runs everything and returns the exit status."""
    pytest = ["-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]
    with tempfile.TemporaryDirectory() as folder:
        commands = [
            [*pytest, *core_tests()],
            [*pytest, REFERENCE, "--hypothesis-seed=0"],
            [*pytest, str(ROOT / "tests" / "examples" / "test_notebooks.py"), "-k", "first_tour"],
            *programs(folder),
        ]
        failed = []
        for command in commands:
            name = " ".join(command[:4]).replace(f"{ROOT}/", "")
            print(f"== {name}", flush=True)
            start = time.monotonic()
            # fewer, because each compiles kernels
            fewer = {"FUZZ_EXAMPLES": "100"} if REFERENCE in command else {}
            done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment() | fewer)
            print(f"== {time.monotonic() - start:.0f} s, exit status {done.returncode}", flush=True)
            if done.returncode:
                failed.append(name)
    print(f"As on a Mac: {len(commands)} commands, {len(failed)} failed", *failed, sep="\n  ")
    return int(bool(failed))


if __name__ == "__main__":
    if sys.argv[1:] == ["--all"]:
        sys.exit(run_all())
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], environment())
