"""What commands that install this package must have, wherever they are printed or written."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
REPOSITORY = "git+https://github.com/mlx-unpool/mlx-unpool"
BUILDS = {"cpu", "cuda12", "cuda13"}


def declared(table: str) -> set[str]:
    """The names in a table of pyproject.toml."""
    _, _, rest = (ROOT / "pyproject.toml").read_text().partition(f"\n[{table}]\n")
    content, _, _ = rest.partition("\n[")
    return set(re.findall(r"^(\w+) = \[", content, re.MULTILINE))


def check_installations(text: str) -> int:
    """Check every command in a text that installs this package, and return how many there are.

    A dependency group contains ``mlx-unpool``, which no index has: the same command must install
    the clone. Without a clone, the address follows the name. Both need a build of MLX for Linux.
    """
    count = 0
    for command in re.findall("pip install ([^`\n]*)", text):
        groups = set(re.findall(r"--group (\S+)", command))
        if not groups and "mlx-unpool" not in command and "--editable" not in command:
            continue
        clone = re.search(r'--editable "\.\[([\w,]+)\]"', command)
        package = re.search(r'"mlx-unpool\[([\w,]+)\] @ (\S+)"', command)
        assert bool(clone) != bool(package), command
        assert clone or not groups, command
        assert clone or package[2] == REPOSITORY, command
        extras = set((clone or package)[1].split(","))
        assert len(extras & BUILDS) == 1, command
        assert extras <= declared("project.optional-dependencies"), command
        assert groups - {"NAME"} <= declared("dependency-groups"), command
        count += 1
    return count
