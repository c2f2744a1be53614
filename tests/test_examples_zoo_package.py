"""Installing ``mlx_unpool_zoo`` from a wheel, from an sdist, and editable."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import textwrap
import venv
import zipfile
from pathlib import Path

import mlx.core as mx
import pytest
from programs import EXAMPLES, ROOT

import mlx_unpool

MODULES = {path.name for path in (EXAMPLES / "zoo" / "mlx_unpool_zoo").glob("*.*")}
# Names of modules of the examples, now or in earlier versions, that a user's modules may have.
NAMES = ("common", "data", "zoo", "support", "files", "model", "layers", "pytorch")
SCRIPT = """
    import pathlib, sys
    from mlx_unpool_zoo import FastSurferVINN, from_pretrained
    import mlx.core as mx, mlx_unpool, mlx_unpool_zoo

    model = FastSurferVINN(2, 7, 2, 2, height=16, width=16)
    model.save_pretrained("model")
    x = mx.random.normal((1, 20, 24, 7))
    assert mx.array_equal(from_pretrained("model")(x), model.eval()(x))
    assert not {names} & set(sys.modules)
    import common
    assert common.MINE
    print(pathlib.Path(mlx_unpool_zoo.__file__).parent)
    print(pathlib.Path(mlx_unpool.__file__).parent)
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """The folder with an sdist and a wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True)
    return folder


def installed(folder: Path, *what: object) -> list[Path]:
    """The folders of the two packages that a clean environment imports after ``pip install``.

    The environment shares MLX and its dependencies with this one, but not this checkout. The script runs in a
    folder with modules that have the names in NAMES.
    """
    venv.create(folder / "clean", with_pip=False)
    python = folder / "clean" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", *what], check=True)
    packages = next((folder / "clean" / "lib").glob("python*")) / "site-packages"
    (packages / "mlx.pth").write_text(str(Path(mx.__file__).parent.parent))
    work = folder / "work"
    work.mkdir()
    for name in NAMES:
        (work / f"{name}.py").write_text("MINE = True\n")
    (work / "script.py").write_text(textwrap.dedent(SCRIPT).replace("{names}", str(set(NAMES))))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "script.py"]
    result = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return [Path(line) for line in result.stdout.splitlines()]


def test_wheel_and_sdist_contain_the_zoo_and_no_examples(dist):
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {n.partition("/")[0] for n in names} == {
        "mlx_unpool",
        "mlx_unpool_zoo",
        f"mlx_unpool-{mlx_unpool.__version__}.dist-info",
    }
    assert {n for n in names if n.startswith("mlx_unpool_zoo/")} == {
        f"mlx_unpool_zoo/{name}" for name in MODULES
    }
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in files if name.startswith("examples")} == {
        f"examples/zoo/mlx_unpool_zoo/{name}" for name in MODULES
    }


def test_the_wheel_works_next_to_modules_of_any_name(dist, tmp_path):
    (wheel,) = dist.glob("*.whl")
    zoo, library = installed(tmp_path, wheel)
    assert zoo.parent == library.parent
    assert tmp_path in zoo.parents


def test_an_editable_installation_imports_this_checkout(tmp_path):
    zoo, library = installed(tmp_path, "--editable", ROOT)
    assert (zoo, library) == (EXAMPLES / "zoo" / "mlx_unpool_zoo", ROOT / "mlx_unpool")


def test_the_extra_installs_the_imports_of_the_zoo():
    project = (ROOT / "pyproject.toml").read_text()
    (extra,) = re.findall(r"^zoo = (\[.*\])", project, re.MULTILINE)
    for name in ("huggingface_hub", "numpy", "pydantic", "safetensors", "typing_extensions"):
        assert f'"{name}' in extra


def test_no_program_changes_where_python_looks_for_modules():
    paths = [p for s in ("py", "ipynb", "md") for p in EXAMPLES.rglob(f"*.{s}")]
    paths += [ROOT / "docs" / "zoo.md", ROOT / "docs" / "porting.md"]
    assert len(paths) > 30
    assert [path for path in paths if "sys.path" in path.read_text()] == []
