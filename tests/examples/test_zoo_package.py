"""Installing ``mlx_unpool_zoo`` as a copy and editable. tests/test_package.py lists the files of a wheel."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import mlx.core as mx
from programs import EXAMPLES, ROOT

# Names of modules of the examples, now or in earlier versions, that a user's modules may have.
NAMES = ("common", "data", "zoo", "support", "files", "model", "layers", "pytorch")
SCRIPT = f"""
import pathlib, sys
from mlx_unpool_zoo import FastSurferVINN, from_pretrained
import mlx.core as mx, mlx_unpool, mlx_unpool_zoo

model = FastSurferVINN(2, 7, 2, 2, height=16, width=16)
model.save_pretrained("model")
x = mx.random.normal((1, 20, 24, 7))
assert mx.array_equal(from_pretrained("model")(x), model.eval()(x))
assert not {set(NAMES)} & set(sys.modules)
import common
assert common.MINE
print(pathlib.Path(mlx_unpool_zoo.__file__).parent)
print(pathlib.Path(mlx_unpool.__file__).parent)
"""


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
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    options = {"cwd": work, "env": environment, "capture_output": True, "text": True}
    (work / "script.py").write_text(SCRIPT)
    result = subprocess.run([python, "script.py"], **options)
    assert result.returncode == 0, result.stderr
    return [Path(line) for line in result.stdout.splitlines()]


def test_an_installed_copy_works_next_to_modules_of_any_name(tmp_path):
    zoo, library = installed(tmp_path, ROOT)
    assert zoo.parent == library.parent
    assert tmp_path in zoo.parents


def test_an_editable_installation_imports_this_checkout(tmp_path):
    zoo, library = installed(tmp_path, "--editable", ROOT)
    assert (zoo, library) == (EXAMPLES / "zoo" / "mlx_unpool_zoo", ROOT / "mlx_unpool")
