"""Type checkers infer the types of typical uses and find mistakes."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "tests" / "typing"


def mypy(path: Path, folder: Path) -> set[int]:
    """The lines in which mypy --strict finds a mistake."""
    config = folder / "mypy.ini"
    # `make lint` checks the package itself. MLX lacks some types and does not mark re-exports.
    config.write_text(
        "[mypy]\nstrict = True\ndisallow_untyped_calls = False\n"
        "[mypy-mlx_unpool.*]\nfollow_imports = silent\n"
        "[mypy-mlx.*]\nimplicit_reexport = True\nfollow_imports = silent\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", folder, path]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode in (0, 1), result.stderr
    errors = re.findall(r"^(.+?):(\d+): error", result.stdout, re.MULTILINE)
    assert {ROOT / name for name, _ in errors} <= {path}, result.stdout
    return {int(number) for _, number in errors}


def test_typical_uses_pass(tmp_path):
    assert mypy(FOLDER / "good.py", tmp_path) == set()


def test_mistakes_are_found(tmp_path):
    lines = (FOLDER / "mistakes.py").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, start=1) if "  # wrong" in line}
    assert len(wrong) > 7
    assert mypy(FOLDER / "mistakes.py", tmp_path) == wrong


def test_typical_uses_run():
    network = runpy.run_path(str(FOLDER / "good.py"))["Network"]()
    import mlx.core as mx

    assert network(mx.ones((1, 5, 5, 2))).shape == (1, 5, 5, 2)
