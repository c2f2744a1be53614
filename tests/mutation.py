"""Would the tests notice? Small changes to the package, one at a time, and the core's tests on each.

    python tests/mutation.py                         # 200 changes, drawn with seed 0: half an hour and more
    python tests/mutation.py --count 20 --seed 3
    python tests/mutation.py --module ops/           # changes in these files alone

A change is one operator, number, condition, call, keyword or ``with`` of the Python code; comments,
docstrings, annotations and messages are left alone. Each is made in a copy of the repository, where pytest
stops at the first failure. What no test notices is printed with its line. Changes of the GPU backend run the
kernels' tests as well, which need Linux and g++.

The well-kept tools (mutmut, cosmic-ray) run whole suites for every change of every file; neither draws a
sample.
"""

from __future__ import annotations

import argparse
import ast
import collections
import concurrent.futures
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
# The quick ones first: most changes are noticed by one of these.
TESTS = [
    *("test_literal", "test_reference", "test_gradients", "test_layers", "test_hostile"),
    *("test_arguments", "test_irregular", "test_formats", "test_checking", "test_streams"),
    *("test_settings", "test_house", "test_transforms", "test_export", "test_caches", "test_big"),
    "test_fuzz",
]
# What is likely to notice a change of a module comes before these.
OWN = {
    "formats.py": ["test_formats", "test_checking"],
    "_indices.py": ["test_checking", "test_formats"],
    "_arguments.py": ["test_arguments"],
    "layers.py": ["test_layers", "test_irregular"],
    "_settings.py": ["test_settings"],
    "_derivatives.py": ["test_gradients"],
    "_pooling.py": ["test_literal", "test_arguments", "test_irregular"],
    "_geometry.py": ["test_literal", "test_irregular"],
    "parts.py": ["test_big"],
}
KERNELS = ["metal/test_metal_parity", "metal/test_metal_safety", "metal/test_metal_export"]
# Too slow, or the same as others for another reason.
LEFT_OUT = [
    "test_values_indices_and_gradients_are_those_of_pytorch",
    "test_memory_stays_flat_over_ten_thousand_shapes",
    "test_more_than_2_to_the_31_elements_are_pooled_and_unpooled",
    "test_the_page",
    "test_tests_and_files_that_pages_name",
]
LIMIT = 1200  # seconds; what takes longer hangs, which is noticed as well

ENVIRONMENT = {"FUZZ_EXAMPLES": "100", "PYTHONDONTWRITEBYTECODE": "1"}

COMPARISONS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
OPERATORS = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.FloorDiv: "*",
    ast.Div: "*",
    ast.Mod: "//",
    ast.Pow: "*",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.BitXor: "|",
    ast.RShift: "<<",
    ast.LShift: ">>",
}


@dataclass(frozen=True)
class Change:
    """A part of a file, as offsets into its bytes, and what stands there instead."""

    path: str
    start: int
    stop: int
    text: str
    line: int
    what: str

    def made(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.stop :]


class Finder(ast.NodeVisitor):
    """Every change of one file."""

    def __init__(self, path: Path) -> None:
        self.path, self.source = str(path.relative_to(ROOT)), path.read_bytes()
        self.starts = [0]
        for line in self.source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.changes: list[Change] = []
        self.visit(ast.parse(self.source))

    def at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.at(node.lineno, node.col_offset),
            self.at(node.end_lineno, node.end_col_offset),
        )

    def text(self, node: ast.expr | ast.stmt) -> str:
        start, stop = self.span(node)
        return self.source[start:stop].decode()

    def change(self, node: ast.expr | ast.stmt, text: str) -> None:
        old = " ".join(self.text(node).split())
        what = f"{old[:70]}  ->  {' '.join(text.split())[:70]}"
        self.changes.append(Change(self.path, *self.span(node), text, node.lineno, what))

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            left, right = self.text(node.left), self.text(node.comparators[0])
            self.change(node, f"({left} {COMPARISONS[type(node.ops[0])]} {right})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in OPERATORS:
            left, right = self.text(node.left), self.text(node.right)
            self.change(node, f"(({left}) {OPERATORS[type(node.op)]} ({right}))")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word = " or " if isinstance(node.op, ast.And) else " and "
        self.change(node, f"({word.join(f'({self.text(value)})' for value in node.values)})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, (ast.Not, ast.USub)):
            self.change(node, f"({self.text(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.change(node, str(not node.value))
        elif isinstance(node.value, int):
            self.change(node, str(node.value + 1))

    def visit_If(self, node: ast.If) -> None:
        for value in ("True", "False"):
            self.change(node.test, value)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        for value in ("True", "False"):
            self.change(node.test, value)
        self.generic_visit(node)

    def visit_With(self, node: ast.With) -> None:
        (item, *more) = node.items
        if not more and item.optional_vars is None:
            start, stop = self.at(node.lineno, node.col_offset), self.span(item.context_expr)[1]
            what = f"with {self.text(item.context_expr)}:  ->  if True:"
            self.changes.append(Change(self.path, start, stop, "if True", node.lineno, what))
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):  # a check, most of the time
            self.change(node, "pass")
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.change(node, "pass")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        inner = [*node.args, *(word.value for word in node.keywords)]
        for word in node.keywords:
            if word.arg and len(inner) > 1:
                rest = [self.text(argument) for argument in node.args]
                rest += [
                    f"{other.arg}={self.text(other.value)}"
                    if other.arg
                    else f"**{self.text(other.value)}"
                    for other in node.keywords
                    if other is not word
                ]
                self.change(node, f"{self.text(node.func)}({', '.join(rest)})")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Messages are held by other tests than the ones that a sample is for."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Assertions tell a type checker what it cannot know."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A message."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for part in (*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body):
            self.visit(part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        if not names & {"IntOrTuple", "Stream", "Pooled", "__all__"}:  # types
            self.generic_visit(node)


def files() -> Iterator[Path]:
    yield from sorted((ROOT / "mlx_unpool").rglob("*.py"))


def copy_of_the_repository(folder: Path) -> Path:
    """What the tests look at."""
    ignored = shutil.ignore_patterns(
        *(".git", ".venv*", "__pycache__", "site", "demo", "dist", "results", ".pytest_cache")
    )
    shutil.copytree(ROOT, folder / "copy", ignore=ignored)
    return folder / "copy"


def tests_of(path: str) -> list[str]:
    if path.endswith("selftest.py"):
        names = ["metal/test_metal_selftest", "test_house"]
    elif path.endswith(("gpu.py", "_kernels.py")):
        names = ["test_export", "test_house", *KERNELS]
    else:
        own = OWN.get(path.rpartition("/")[2], [])
        names = [*own, *(name for name in TESTS if name not in own)]
    return [f"tests/{name}.py" for name in names]


def noticed(copy: Path, path: str) -> str | None:
    """The first test that fails in a copy, or None."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header"]
    try:
        result = subprocess.run(
            [
                *command,
                "--tb=no",
                "-k",
                " and ".join(f"not {n}" for n in LEFT_OUT),
                *tests_of(path),
            ],
            cwd=copy,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        return "nothing ended in time"
    if result.returncode == 0:
        return None
    lines = [line for line in result.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0] if lines else f"pytest: {result.returncode} {result.stdout[-300:]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="how many changes")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--module", default="", help="only files whose path has this in it")
    parser.add_argument("--without", default="?", help="not files whose path has this in it")
    parser.add_argument("--workers", type=int, default=2, help="how many at a time")
    arguments = parser.parse_args()
    changes = [c for path in files() for c in Finder(path).changes if arguments.module in c.path]
    for change in changes:
        ast.parse(change.made((ROOT / change.path).read_bytes()))  # is Python
    drawn = random.Random(arguments.seed).sample(changes, min(arguments.count, len(changes)))
    drawn = [change for change in drawn if arguments.without not in change.path]
    print(f"{len(drawn)} of {len(changes)} changes", flush=True)
    total: collections.Counter[str] = collections.Counter()
    survived: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        copies = [copy_of_the_repository(Path(folder) / str(n)) for n in range(arguments.workers)]
        for path in ("layers.py", *({"gpu.py"} & {Path(change.path).name for change in drawn})):
            unchanged = noticed(copies[0], path)
            if unchanged:
                sys.exit(f"The tests fail without a change: {unchanged}")

        def run(change: Change) -> tuple[Change, str | None]:
            copy = copies.pop()
            file = copy / change.path
            source = file.read_bytes()
            try:
                file.write_bytes(change.made(source))
                return change, noticed(copy, change.path)
            finally:
                file.write_bytes(source)
                copies.append(copy)

        with concurrent.futures.ThreadPoolExecutor(arguments.workers) as pool:
            for done in concurrent.futures.as_completed([pool.submit(run, c) for c in drawn]):
                change, by = done.result()
                total[change.path] += 1
                survived[change.path] += by is None
                verdict = "NOT NOTICED" if by is None else by.removeprefix("FAILED tests/")
                print(f"{change.path}:{change.line}: {change.what}\n    {verdict}", flush=True)
    print("\n| module | changes | noticed |\n|---|---|---|")
    for path in sorted(total):
        print(f"| `{path}` | {total[path]} | {total[path] - survived[path]} |")
    print(f"| all | {total.total()} | {total.total() - survived.total()} |")


if __name__ == "__main__":
    main()
