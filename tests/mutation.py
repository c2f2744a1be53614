"""Makes small changes to the code, one at a time, and runs the tests on each.

    python tests/mutation.py                         # 200 changes of the package, drawn with seed 0
    python tests/mutation.py --module ops/ --count 20 --seed 3
    python tests/mutation.py --module metal/ --count 100
    python tests/mutation.py --module examples/ --count 100

A change is one operator, number, condition, call, keyword or statement of the Python code or of the kernel
source; comments, docstrings, annotations and messages are left alone. Each change is made in a copy of the
repository, where pytest stops at the first failure. The program prints each change and the test that noticed
it. Changes of kernels and of the GPU backend need Linux and g++. See mutation.md for the last results.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import importlib
import itertools
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PARTS = {"mlx_unpool": "*.py", "metal": "*", "examples": "*.py"}
# The quick ones first: most changes are noticed by one of these.
CORE = """test_literal test_reference test_arguments test_layers test_hostile test_checking test_formats
    test_transforms test_fuzz test_ops test_settings test_streams test_architecture test_export test_caches"""
KERNELS = """metal/test_metal_parity metal/test_metal_subnormals metal/test_metal_outside_window
    metal/test_metal_limits metal/test_metal_views metal/test_metal_safety"""
LAUNCHES = f"""test_export test_architecture cuda/test_cuda {KERNELS} metal/test_metal_language
    metal/test_metal_export metal/test_metal_variants metal/test_metal_traffic"""
ZOO = """ex_zoo_errors ex_zoo_files ex_zoo_pytorch ex_zoo ex_camvid ex_brain_segment"""
# The tests of a file, by the start of its path; "ex" is short for test_examples.
TESTS = {
    "metal/cuda.h": "cuda/test_cuda_emulated",
    "metal/": KERNELS,
    "mlx_unpool/selftest": "metal/test_metal_selftest test_architecture",
    "mlx_unpool/(_backends/gpu|_kernels)": LAUNCHES,
    "mlx_unpool/": CORE,
    "examples/zoo/.*card": "ex_zoo_files",
    "examples/zoo/.*/files": "ex_files ex_outputs ex_zoo_errors",
    "examples/zoo/.*(enet|segnet|autoencoders|fastsurfer|quicknat)": f"ex_zoo {ZOO}",
    "examples/zoo/": ZOO,
    "examples/(support/)?brain_(segment|volumes)": "ex_brain_segment",
    "examples/support/command_line": "ex_zoo_files ex_brain_segment ex_camvid",
    "examples/support/(camvid|street)": "ex_camvid",
    "examples/(support/segmenter|camvid)": "ex_camvid ex_zoo_errors",
    "examples/support/training": "ex ex_ranks",
    "examples/support/": "ex ex_camvid",
    "examples/segnet_digits": "ex ex_ranks",
    "examples/(segnet|unet)": "ex",
    "examples/": "ex_zoo_files ex_zoo_errors ex_deploy",
}
# Of a change of a kernel, the tests that run first: those of kernels that few cases reach.
FIRST = {
    "pool_(large|chunks)": "[26-",
    "(pool|accumulate)_regions": "adaptive_and",
    "": "every_function",
}
# Too slow, about other files, or in need of certain kernel source: an expression for pytest -k.
LEFT_OUT = """the_page or tests_and_files_that_pages_name or (parity and flushing) or flipped_bit or killed
    or launcher or an_interrupted_run_continues or mistakes_are_noticed or would_be_noticed
    or waits_for_a_long_chain"""
LIMIT = 400  # seconds of processor time; what takes longer hangs, which is noticed as well
ENVIRONMENT = {"FUZZ_EXAMPLES": "100", "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
# What takes the place of an operator or a word, in Python and in kernel source.
SWAPPED = {"is": "is not", "is not": "is", "in": "not in", "not in": "in", "%": "//", "^": "|"}
PAIRS = re.findall("[^ ]+", "< <= > >= == != + - & | >> << && || += -= true false max min")
SWAPPED |= dict(zip(PAIRS[::2], PAIRS[1::2])) | dict(zip(PAIRS[1::2], PAIRS[::2]))
SWAPPED |= {"*": "+", "/": "*", "//": "*", "**": "*", "|=": "&="}


@dataclass(frozen=True)
class Change:
    """A part of a file, as offsets into its bytes, and what stands there instead."""

    path: str
    start: int
    stop: int
    text: str

    def made(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.stop :]

    def __str__(self) -> str:
        source = (ROOT / self.path).read_bytes()
        start, stop = source.rfind(b"\n", 0, self.start) + 1, source.find(b"\n", self.stop)
        longer = len(self.text) + self.start - self.stop
        lines = source[start:stop].split(), self.made(source)[start : stop + longer].split()
        what = " ->  ".join(b" ".join(line).decode() for line in lines)
        return f"{self.path}:{source.count(10, 0, self.start) + 1}: {what}"


class Finder(ast.NodeVisitor):
    """Every change of one file."""

    def __init__(self, path: Path) -> None:
        self.path, self.source = str(path.relative_to(ROOT)), path.read_bytes()
        self.starts = [0]
        for line in self.source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.changes: list[Change] = []
        self.visit(ast.parse(self.source))
        for change in self.changes:
            ast.parse(change.made(self.source))  # is Python

    def at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        start = self.at(node.lineno, node.col_offset)
        return start, self.at(node.end_lineno or 0, node.end_col_offset or 0)

    def text(self, node: ast.expr | ast.stmt) -> str:
        start, stop = self.span(node)
        return self.source[start:stop].decode()

    def change(self, node: ast.expr | ast.stmt, text: str) -> None:
        self.changes.append(Change(self.path, *self.span(node), text))

    def swap(self, node: ast.expr, left: ast.expr, right: ast.expr) -> None:
        operator = self.source[self.span(left)[1] : self.span(right)[0]].decode().strip(" \n()")
        if operator in SWAPPED:
            self.change(node, f"(({self.text(left)}) {SWAPPED[operator]} ({self.text(right)}))")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            self.swap(node, node.left, node.comparators[0])
        else:
            self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.swap(node, node.left, node.right)

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
            self.changes.append(Change(self.path, start, stop, "if True"))
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


# Parts of kernel source. A binary operator has a space on both sides; brackets of templates have none.
TOKEN = re.compile(
    r"(?P<swap>(?<=\s)[-+*/%&|<>=]+(?=\s)|(?<=\s)!=(?=\s)|\b(?:true|false)\b|(?<![^\W_])(?:max|min)(?=_|\())"
    r"|(?P<number>\b(?:0x[0-9a-f]+|\d+)(?=u?\b))|(?P<sign>(?<=[(\s])[-!](?=[\w(]))"
    r"|(?P<choice>(?= \? ))|(?P<condition>\bif \()"
    r"|(?P<statement>^ +(?:continue|return|\w+(?:<[^;(]*>)?\([^;{}]*\)"
    r"|[\w.]+(?:\[[^;=]*\])* [-+|]?= [^;{}]*);)",
    re.MULTILINE,
)
INSTEAD = {
    **{"sign": [""], "choice": [" && false", " || true"]},
    **{"condition": ["true", "false"], "statement": [";"]},
}


def kernel_changes(path: Path) -> Iterator[Change]:
    """Every change of one file of kernel source."""
    # Without comments and lines of the preprocessor.
    code = re.sub("//.*|^ *#.*", lambda m: " " * len(m[0]), path.read_text(), flags=re.MULTILINE)
    assert code.isascii()
    at = 0
    while match := TOKEN.search(code, at):
        kind, old, (start, stop) = match.lastgroup, match[0], match.span()
        at, texts = stop, INSTEAD.get(kind or "", [])
        if kind == "swap" and old in SWAPPED:
            texts = [SWAPPED[old].replace("//", "/")]
        elif kind == "number":
            texts = [str(int(old, 0) + 1)]
        elif kind == "choice":
            at += 1
        elif kind == "condition":
            start, depth = stop, 1
            while depth:
                depth += {"(": 1, ")": -1}.get(code[stop], 0)
                stop += 1
            stop -= 1
        elif kind == "statement":
            at = start + len(old) - len(old.lstrip()) + 1  # on to the changes inside it
        yield from (Change(str(path.relative_to(ROOT)), start, stop, text) for text in texts)


def copy_of_the_repository(folder: Path) -> Path:
    """What the tests read."""
    ignored = (".git", ".venv*", "__pycache__", "site", "demo", "dist", "results", ".pytest_cache")
    shutil.copytree(ROOT, folder / "copy", ignore=shutil.ignore_patterns(*ignored))
    return folder / "copy"


def tests_of(path: str) -> list[str]:
    names = next(tests for start, tests in TESTS.items() if re.match(start, path)).split()
    names = [re.sub(r"^ex(?=_|$)", "test_examples", name) for name in names]
    names.sort(key=lambda name: Path(path).stem.strip("_") not in name)
    return [f"tests/{name}.py" for name in dict.fromkeys(names)]


class Gradually:
    """Compiles more kernels each time that one is missing, and not all of them before the first test."""

    def __init__(self, path: str) -> None:
        self.path, self.waiting, self.at_once = path, {}, 1

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.path.startswith("metal/"):
            first = next(test for start, test in FIRST.items() if re.search(start, self.path))
            items.sort(key=lambda item: (first not in item.name, "every_" not in item.name))

    def pytest_collection_finish(self) -> None:
        if metal_host := sys.modules.get("metal_host"):
            self.compile, metal_host.compile_launches = metal_host.compile_launches, self.gradually

    def gradually(self, launches: list) -> None:
        if len(launches) > 1:
            self.waiting.update({launch.text: launch for launch in launches})
        elif launches[0].text in self.waiting:
            others = itertools.dropwhile(lambda text: text != launches[0].text, [*self.waiting])
            some = itertools.islice(others, self.at_once)
            self.compile([self.waiting.pop(text) for text in some])
            self.at_once = min(2 * self.at_once, 64)
        else:
            self.compile(launches)


def start(copy: Path, change: Change | None, path: str) -> int:
    """Makes a change in a copy and forks a process that runs the tests there; its number.

    What takes long to import is imported already. MLX has not run yet, so a fork loses nothing.
    """
    if change:
        (copy / path).write_bytes(change.made((ROOT / path).read_bytes()))
    child = os.fork()
    if child:
        return child
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
    output = os.open(copy / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.chdir(copy)
    folders = [str(copy), str(copy / "examples" / "zoo")]
    os.environ.update({**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(folders)})
    sys.path[:0] = folders
    left_out = f"not ({' '.join(LEFT_OUT.split())})"
    options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", "-k", left_out]
    code = 1
    try:
        code = pytest.main([*options, *tests_of(path)], [Gradually(path)])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def noticed(copy: Path, status: int) -> str | None:
    """The first test that failed, or None."""
    if status == 0:
        return None
    lines = (copy / "output.txt").read_text(errors="replace").splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    if not failed and not os.WIFSIGNALED(status):
        sys.exit("\n".join(["pytest did not run:", *lines[-20:]]))
    return failed[0].removeprefix("FAILED tests/") if failed else f"signal {os.WTERMSIG(status)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="how many changes")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--module", default="mlx_unpool/", help="what a file's path has in it")
    parser.add_argument("--workers", type=int, default=2, help="how many at a time")
    parser.add_argument("--unchecked", action="store_true", help="the tests are known to pass")
    arguments = parser.parse_args()
    files = [f for part, names in PARTS.items() for f in sorted((ROOT / part).rglob(names))]
    files = [f for f in files if f.is_file() and arguments.module in f"{f.relative_to(ROOT)}"]
    found = (Finder(p).changes if p.suffix == ".py" else kernel_changes(p) for p in files)
    changes = [change for changes in found for change in changes]
    todo = random.Random(arguments.seed).sample(changes, len(changes))
    print(f"{arguments.count} of {len(todo)} changes", flush=True)
    for name in ("mlx.nn", "numpy", "scipy.ndimage", "matplotlib.pyplot", "nibabel", "torch"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    total: collections.Counter[str] = collections.Counter()
    survived: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        copies = [copy_of_the_repository(Path(folder) / str(n)) for n in range(arguments.workers)]
        lists = {} if arguments.unchecked else {f"{tests_of(c.path)}": c.path for c in todo}
        for path in lists.values():
            _, status = os.waitpid(start(copies[0], None, path), 0)
            if status:
                sys.exit(f"The tests fail without a change: {noticed(copies[0], status)}")
        running: dict[int, tuple[Path, Change]] = {}
        todo = todo[::-1]
        while running or (todo and total.total() < arguments.count):
            while todo and copies and total.total() + len(running) < arguments.count:
                copy, change = copies.pop(), todo.pop()
                running[start(copy, change, change.path)] = copy, change
            child, status = os.wait()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # what the tests left running
            copy, change = running.pop(child)
            by = noticed(copy, status)
            (copy / change.path).write_bytes((ROOT / change.path).read_bytes())
            copies.append(copy)
            if by and f"AssertionError: {os.environ.get('CXX', 'g++')} " in by:
                continue  # the kernel does not compile
            total[change.path] += 1
            survived[change.path] += by is None
            print(f"{change}\n    {by or 'NOT NOTICED'}", flush=True)
    print("\n| module | changes | noticed |\n|---|---|---|")
    for path in sorted(total):
        print(f"| `{path}` | {total[path]} | {total[path] - survived[path]} |")
    print(f"| all | {total.total()} | {total.total() - survived.total()} |")


if __name__ == "__main__":
    main()
