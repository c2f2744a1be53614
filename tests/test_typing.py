"""Type checkers infer the types of typical uses and find mistakes."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "tests" / "typing"


def test_mypy_finds_the_mistakes_and_nothing_else(tmp_path):
    """``mypy --strict``. MLX lacks some types and does not mark re-exports."""
    config = tmp_path / "mypy.ini"
    # `make lint` checks the package itself.
    config.write_text(
        "[mypy]\nstrict = True\ndisallow_untyped_calls = False\n"
        "[mypy-mlx_unpool.*]\nfollow_imports = silent\n"
        "[mypy-mlx.*]\nimplicit_reexport = True\nfollow_imports = silent\n"
    )
    lines = (FOLDER / "mistakes.py").read_text().splitlines()
    wrong = [str(number) for number, line in enumerate(lines, start=1) if "  # wrong" in line]
    assert len(wrong) > 7
    command = [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", tmp_path]
    command += [FOLDER / "good.py", FOLDER / "mistakes.py"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 1, result.stderr
    errors = re.findall(r"^(.+?):(\d+): error", result.stdout, re.MULTILINE)
    found = dict.fromkeys(errors)  # a line may have several
    assert list(found) == [("tests/typing/mistakes.py", number) for number in wrong], result.stdout
