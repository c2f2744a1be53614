"""Fail if functions have a cyclomatic complexity above 10: any in mlx_unpool, 5 or more elsewhere.

They are those that ``radon cc -n C mlx_unpool examples benchmarks`` lists. Tests do not count.
"""

import sys
from pathlib import Path

from radon.complexity import cc_visit

ROOT = Path(__file__).parent.parent
HIGHEST = 10
ALLOWED = {("mlx_unpool",): 0, ("examples", "benchmarks"): 4}  # functions above it


def complex_functions(folder: Path) -> list[str]:
    """The place, name and complexity of each function above the highest."""
    functions = []
    for path in sorted(folder.rglob("*.py")):
        for block in cc_visit(path.read_text(encoding="utf-8")):
            if block.complexity > HIGHEST:
                place = f"{path.relative_to(ROOT)}:{block.lineno}"
                functions.append(f"{place}: {block.name} {block.complexity}")
    return functions


def main() -> int:
    """Print the functions where there are too many, and return the exit status."""
    status = 0
    for folders, allowed in ALLOWED.items():
        functions = [line for folder in folders for line in complex_functions(ROOT / folder)]
        if len(functions) > allowed:
            places = " and ".join(folders)
            print(f"{len(functions)} functions above {HIGHEST} in {places}, {allowed} allowed:")
            print("\n".join(functions))
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
