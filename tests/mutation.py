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
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path

import mlx.nn  # noqa: F401 (imported once, for all)
import numpy  # noqa: F401
import pytest

ROOT = Path(__file__).parent.parent
# The quick ones first: most changes are noticed by one of these.
TESTS = [
    *("test_literal", "test_reference", "test_arguments", "test_layers", "test_hostile"),
    *("test_checking", "test_formats", "test_transforms", "test_fuzz", "test_ops"),
    *("test_settings", "test_streams", "test_architecture", "test_export", "test_caches"),
]
# Likely to notice a change of a module, and therefore run first.
OWN = {
    "formats.py": ["test_formats", "test_checking"],
    "_indices.py": ["test_checking", "test_formats"],
    "_arguments.py": ["test_arguments"],
    "layers.py": ["test_layers"],
    "_settings.py": ["test_settings"],
    "_derivatives.py": ["test_transforms"],
    "_requests.py": ["test_literal", "test_arguments"],
}
KERNELS = [
    *("cuda/test_cuda", "metal/test_metal_language", "metal/test_metal_parity"),
    *("metal/test_metal_safety", "metal/test_metal_export", "metal/test_metal_variants"),
    "metal/test_metal_traffic",
]
# Too slow, or about other files than the package.
LEFT_OUT = ["test_the_page", "test_tests_and_files_that_pages_name"]
LIMIT = 1200  # seconds; what takes longer hangs, which is noticed as well
ENVIRONMENT = {"FUZZ_EXAMPLES": "100", "PYTHONDONTWRITEBYTECODE": "1"}

COMPARISONS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
}
COMPARISONS |= {ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"}
OPERATORS = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.FloorDiv: "*",
    ast.Div: "*",
    ast.Mod: "//",
}
OPERATORS |= {ast.Pow: "*", ast.BitAnd: "|", ast.BitOr: "&", ast.BitXor: "|"}
OPERATORS |= {ast.RShift: "<<", ast.LShift: ">>"}


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
        start = self.at(node.lineno, node.col_offset)
        return start, self.at(node.end_lineno or 0, node.end_col_offset or 0)

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

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        for value in ("True", "False"):
            self.change(node.test, value)
        self.generic_visit(node)

    visit_IfExp = visit_If

    def visit_With(self, node: ast.With) -> None:
        (item, *more) = node.items
        if not more and item.optional_vars is None:
            start, stop = self.at(node.lineno, node.col_offset), self.span(item.context_expr)[1]
            what = f"with {self.text(item.context_expr)}:  ->  if True:"
            self.changes.append(Change(self.path, start, stop, "if True", node.lineno, what))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign | ast.Expr) -> None:
        self.change(node, "pass")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):  # a check, most of the time
            self.visit_AugAssign(node)

    def visit_Call(self, node: ast.Call) -> None:
        for word in node.keywords:
            if word.arg and len(node.args) + len(node.keywords) > 1:
                rest = [self.text(argument) for argument in node.args]
                for other in node.keywords:
                    if other is not word:
                        name = f"{other.arg}=" if other.arg else "**"
                        rest.append(name + self.text(other.value))
                self.change(node, f"{self.text(node.func)}({', '.join(rest)})")
        self.generic_visit(node)

    def skip(self, node: ast.AST) -> None:
        """Messages are not changed, nor assertions, which are there for a type checker."""

    visit_Raise = visit_Assert = visit_JoinedStr = skip

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


def copy_of_the_repository(folder: Path) -> Path:
    """What the tests read."""
    ignored = (".git", ".venv*", "__pycache__", "site", "demo", "dist", "results", ".pytest_cache")
    shutil.copytree(ROOT, folder / "copy", ignore=shutil.ignore_patterns(*ignored))
    return folder / "copy"


def tests_of(path: str) -> list[str]:
    if path.endswith("selftest.py"):
        names = ["metal/test_metal_selftest", "test_architecture"]
    elif path.endswith(("gpu.py", "_kernels.py")):
        names = ["test_export", "test_architecture", *KERNELS]
    else:
        own = OWN.get(path.rpartition("/")[2], [])
        names = [*own, *(name for name in TESTS if name not in own)]
    return [f"tests/{name}.py" for name in names]


def start(copy: Path, change: Change | None, path: str) -> int:
    """Makes a change in a copy and forks a process that runs the tests there; its number.

    What takes long to import is imported already. MLX has not run yet, so a fork loses nothing.
    """
    if change:
        (copy / path).write_bytes(change.made((ROOT / path).read_bytes()))
    child = os.fork()
    if child:
        return child
    signal.alarm(LIMIT)
    output = os.open(copy / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.chdir(copy)
    os.environ.update({**ENVIRONMENT, "PYTHONPATH": str(copy)})
    sys.path.insert(0, str(copy))
    left_out = " and ".join(f"not {name}" for name in LEFT_OUT)
    options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", "-k", left_out]
    code = 1
    try:
        code = pytest.main([*options, *tests_of(path)])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def noticed(copy: Path, status: int) -> str | None:
    """The first test that failed, or None."""
    if status == 0:
        return None
    lines = (copy / "output.txt").read_text().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    ended = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"ended with {status}"
    return failed[0].removeprefix("FAILED tests/") if failed else f"pytest {ended}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="how many changes")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--module", default="", help="only files whose path has this in it")
    parser.add_argument("--without", default="?", help="not files whose path has this in it")
    parser.add_argument("--workers", type=int, default=2, help="how many at a time")
    parser.add_argument("--unchecked", action="store_true", help="the tests are known to pass")
    arguments = parser.parse_args()
    files = sorted((ROOT / "mlx_unpool").rglob("*.py"))
    changes = [c for path in files for c in Finder(path).changes if arguments.module in c.path]
    for change in changes:
        ast.parse(change.made((ROOT / change.path).read_bytes()))  # is Python
    drawn = random.Random(arguments.seed).sample(changes, min(arguments.count, len(changes)))
    drawn = [change for change in drawn if arguments.without not in change.path]
    print(f"{len(drawn)} of {len(changes)} changes", flush=True)
    total: collections.Counter[str] = collections.Counter()
    survived: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        copies = [copy_of_the_repository(Path(folder) / str(n)) for n in range(arguments.workers)]
        for path in () if arguments.unchecked else sorted({change.path for change in drawn}):
            _, status = os.waitpid(start(copies[0], None, path), 0)
            if status:
                sys.exit(f"The tests fail without a change: {noticed(copies[0], status)}")
        running: dict[int, tuple[Path, Change]] = {}
        todo = drawn[::-1]
        while todo or running:
            while todo and copies:
                copy, change = copies.pop(), todo.pop()
                running[start(copy, change, change.path)] = copy, change
            child, status = os.wait()
            copy, change = running.pop(child)
            by = noticed(copy, status)
            (copy / change.path).write_bytes((ROOT / change.path).read_bytes())
            copies.append(copy)
            total[change.path] += 1
            survived[change.path] += by is None
            print(f"{change.path}:{change.line}: {change.what}", flush=True)
            print(f"    {by or 'NOT NOTICED'}", flush=True)
    print("\n| module | changes | noticed |\n|---|---|---|")
    for path in sorted(total):
        print(f"| `{path}` | {total[path]} | {total[path] - survived[path]} |")
    print(f"| all | {total.total()} | {total.total() - survived.total()} |")


if __name__ == "__main__":
    main()
