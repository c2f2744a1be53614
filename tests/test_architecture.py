"""Structure of the package: layers of modules, lazy evaluation, examples in the documentation."""

import ast
import dataclasses
import doctest
import importlib
import inspect
import itertools
import re
import subprocess
import sys
from functools import partial
from importlib.metadata import version
from importlib.util import resolve_name
from pathlib import Path
from typing import get_args, get_type_hints

import mlx.core as mx
import pytest
from support import transforms

import mlx_unpool

ROOT = Path(__file__).parent.parent
PACKAGE, ZOO = ROOT / "mlx_unpool", ROOT / "examples/zoo/mlx_unpool_zoo"
MODULES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in MODULES}
# From top to bottom: a module imports only modules from lines below its own.
LAYERS = """
__main__
benchmark
selftest
_report
porting
porting.comparison
porting.state_dicts porting.pools
porting.arrays porting.names porting.translation
porting.messages
__init__
_replace unpooling
pooling adaptive fractional _index_formats
_layer _requests
_derivatives
_backends
_backends.gpu _backends.cpu
_backends.launches
_backends.cpu.maxima _backends.cpu.positions
_backends.cpu.offsets
_backends.cpu.values
_backends.cpu.padding
_backends.cpu.axes _backends.cpu.arrays _backends.kernel_source
_index_checks
_index_arithmetic
_arguments
_layout _bounds
_types _scopes
_geometry
"""
ZOO_LAYERS = """
__main__
commands.convert commands.predict commands.recolor commands.train
runs
batches
data
data.records
data.class_file
data.proposal
__init__ data.folders data.masks
enet fastsurfer hair quicknat relaynet segnet
stages
model
checkpoints model_card saving training data.pictures
published state_dicts
about commands.command_line commands.run_options drawing inputs progress torch_files
classes commands commands.outputs files hair_colour layers messages metrics pickles tensorflow_lite
"""


def module_name(path: Path, folder: Path = PACKAGE) -> str:
    parts = list(path.relative_to(folder).with_suffix("").parts)
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


@pytest.mark.parametrize(("folder", "layers"), [(PACKAGE, LAYERS), (ZOO, ZOO_LAYERS)])
def test_imports_go_down_only(folder, layers):
    """Also those in functions and for type checkers."""
    lines = enumerate(layers.splitlines())
    height = {name: number for number, line in lines for name in line.split()}
    paths = sorted(folder.rglob("*.py"))
    assert set(height) == {module_name(path, folder) for path in paths}
    for path in paths:
        package = ".".join((folder.name, *path.parent.relative_to(folder).parts))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = resolve_name("." * node.level + (node.module or ""), package)
                base = base.partition(".")[2]
                for alias in node.names:
                    longer = f"{base}.{alias.name}".strip(".")
                    imported = longer if longer in height else base or "__init__"
                    assert height[module_name(path, folder)] < height[imported], (path, imported)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.py")), ids=str)
def test_examples_and_the_zoo_import_no_private_name_of_the_package(path):
    imports = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mlx_unpool.")
        for alias in node.names
    ]
    assert [name for name in imports if "._" in name] == []


def test_python_without_assertions_checks_the_same_arguments():
    """``python -O`` removes assertions: they only tell a type checker the class of an object."""
    nodes = (node for tree in TREES.values() for node in ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Assert):
            assert re.fullmatch(r"isinstance\([\w.]+, \w+Geometry\)", ast.unparse(node.test))


@pytest.fixture
def evaluation_refused(monkeypatch):
    """Make every explicit evaluation of arrays fail."""

    def refuse(*arguments, **options):
        raise AssertionError("an array was evaluated")

    for name in ("eval", "async_eval", "synchronize"):
        monkeypatch.setattr(mx, name, refuse)


@pytest.mark.parametrize(("row", "column"), transforms.cells())
def test_no_call_and_no_derivative_looks_at_a_number(row, column, evaluation_refused):
    """Arrays have no values while a function is compiled: ``int(x)`` or ``if x:`` is an error."""
    for case in transforms.ROWS[row]:
        given = partial(dataclasses.replace, case)
        call = lambda *inputs, given=given: transforms.COLUMNS[column](
            given(inputs=[*inputs]), False
        )
        assert mx.compile(call)(*case.inputs)


def test_no_conversion_looks_at_a_number(evaluation_refused):
    names = get_args(get_type_hints(mlx_unpool.convert_indices)["source"])
    for source, target in itertools.product(names, names):
        indices = mx.zeros((2, 3, 4, 5), mx.uint8 if source == "window" else mx.int32)
        options = {"source": source, "target": target, "output_size": (6, 8), "kernel_size": 2}
        mx.compile(partial(mlx_unpool.convert_indices, **options))(indices)
    with pytest.raises(ValueError, match="Attempting to eval"):
        mx.compile(lambda indices: mlx_unpool.check_indices(indices, (4,)))(
            mx.zeros((1, 2, 1), mx.int32)
        )


def test_importing_the_package_chooses_no_device_and_imports_nothing_slow():
    code = (
        "import sys, mlx.core as mx\n"
        "before = set(sys.modules)\n"
        "def refuse(*a): raise AssertionError('read a device')\n"
        "for f in (mx.metal, mx.cuda): f.is_available = refuse\n"
        "mx.default_device = mx.default_stream = refuse\n"
        "import mlx_unpool, mlx_unpool._backends, mlx_unpool.selftest\n"
        "slow = {'importlib.metadata', 'email', 'numpy'} & (set(sys.modules) - before)\n"
        "assert not slow, slow\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_examples_in_docstrings_run(path):
    name = module_name(path)
    module = importlib.import_module("mlx_unpool" if name == "__init__" else f"mlx_unpool.{name}")
    results = doctest.testmod(module, extraglobs={"mlx_unpool": mlx_unpool})
    assert results.failed == 0
    assert results.attempted >= path.read_text().count(">>> ")


WITHOUT_RESULT = "check_indices", "checking", "exporting", "use_backend"


@pytest.mark.parametrize("name", mlx_unpool.__all__)
def test_public_names_document_arguments_results_and_an_example(name):
    """Every docstring has each section once, in this order.

    A layer describes more than its function.
    """
    thing = getattr(mlx_unpool, name)
    text, arguments = inspect.getdoc(thing), inspect.signature(thing).parameters
    layer = getattr(
        mlx_unpool, "".join(word[0].upper() + word[1:] for word in name.split("_")), None
    )
    results, described = ["Returns"] * (name not in WITHOUT_RESULT), text
    if layer:
        constructor, call = inspect.getdoc(layer.__init__), inspect.getdoc(layer.__call__)
        assert re.search("\nArgs:.*dtype.*\nExample:", constructor, re.DOTALL)
        assert re.search("\nArgs:.*\nReturns:.*\nRaises:", call, re.DOTALL)
        described = constructor if thing is layer else constructor + text
        results = ["Shape"] if thing is layer else []
        shapes = re.findall(r"\(N, ([^\d)]*)\)", text)
        assert {len(shape.split(", ")) - 1 for shape in shapes} == {int(name[-2])}
        other = "ax_?pool" if "npool" in name else "ax_?unpool"
        assert re.search(f"^See also: ``({layer.__name__}|__init__)`` .*{other}", text, re.I | re.M)
    if thing is not layer:
        results = ["Args"] * bool(arguments) + results
    sections = re.findall(r"^(Args|Returns|Shape|Example|See also):", text, re.MULTILINE)
    assert sections == [*results, "Example", "See also"]
    assert not [
        argument
        for argument in arguments
        if not re.search(rf"^ +.*\b{argument}\b.*:", described, re.M)
    ]
    assert re.search(r">>> .*\n[^>\n]", text)  # a result


def test_versions_stand_in_one_place():
    files = ("CHANGELOG.md", "CITATION.cff", "pyproject.toml", "README.md")
    changes, citation, project, readme = ((ROOT / name).read_text() for name in files)
    assert version("mlx-unpool") == mlx_unpool.__version__
    assert mlx_unpool.__version__ in changes
    assert f"\nversion: {mlx_unpool.__version__}\n" in citation
    (oldest,) = set(re.findall(r"\"mlx(?:\[\w+\])?>=([\d.]+)", project))
    assert f"MLX {oldest} or later" in " ".join(readme.split())


PAGES = "README docs/export docs/guarantees docs/indices_and_sizes docs/porting docs/replace_mlx_nn"


@pytest.mark.parametrize("page", [f"{page}.md" for page in PAGES.split()])
def test_python_examples_of_the_pages_run(page, capsys):
    """A ``text`` block after an example is what it prints."""
    pattern, names = r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", {}
    blocks = re.findall(pattern, (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    for block, printed in blocks:
        exec(compile(block, page, "exec"), names)
        assert capsys.readouterr().out == printed


def test_tests_that_pages_name_are_there():
    folders = (ROOT, ROOT / "docs", ROOT / "benchmarks", ROOT / "examples")
    pages = [page for folder in folders for page in folder.glob("*.md")]
    for page in (*pages, ROOT / "tests/metal/emulated_mac/skips.txt"):
        text = page.read_text()
        for path, test in re.findall(r"[` ](tests/[\w/]+\.py)(?:::(\w+))?", text):
            assert (ROOT / path).is_file(), (page.name, path)
            assert not test or f"def {test}(" in (ROOT / path).read_text(), (page.name, test)
