"""Run example programs with the packages of this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def environment() -> dict[str, str]:
    """Environment variables with which Python imports both packages from this checkout."""
    before = os.environ.get("PYTHONPATH")
    folders = [str(ROOT), str(EXAMPLES / "zoo"), *([before] if before else [])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(folders)}


def run(program: str, *options: object, **more: Any) -> subprocess.CompletedProcess:
    """Run an example program to its end and capture its output as text."""
    command = [sys.executable, EXAMPLES / program, *options]
    more = {"capture_output": True, "text": True, "env": environment()} | more
    return subprocess.run([str(word) for word in command], **more)
