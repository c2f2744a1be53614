"""Runs programs of the examples, with the packages of this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def environment() -> dict[str, str]:
    """The environment in which Python finds the two packages of this checkout, installed or not."""
    before = os.environ.get("PYTHONPATH")
    folders = [str(ROOT), str(EXAMPLES / "zoo"), *([before] if before else [])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(folders)}


def run(program: str, *options: object, **more: Any) -> subprocess.CompletedProcess:
    """A program of the examples with its options, run to its end; what it writes is kept as text."""
    command = [sys.executable, EXAMPLES / program, *options]
    more = {"capture_output": True, "text": True, "env": environment()} | more
    return subprocess.run([str(word) for word in command], **more)
