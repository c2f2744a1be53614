"""``mlx_unpool_zoo`` beside modules of any name. tests/test_package.py lists the files of a wheel."""

import shutil
import subprocess
import sys
from pathlib import Path

from programs import EXAMPLES, ROOT, environment

# Names of modules of the examples, now or in earlier versions, that a user's modules may have.
NAMES = ("common", "data", "zoo", "support", "files", "model", "layers", "pytorch")
SCRIPT = f"""
import sys
from mlx_unpool_zoo import FastSurferVINN, from_pretrained
import mlx.core as mx, mlx_unpool, mlx_unpool_zoo

model = FastSurferVINN(2, 7, 2, 2, height=16, width=16)
model.save_pretrained("model")
x = mx.random.normal((1, 20, 24, 7))
assert mx.array_equal(from_pretrained("model")(x), model.eval()(x))
assert not {set(NAMES)} & set(sys.modules)
import common
assert common.MINE
print(mlx_unpool.__file__, mlx_unpool_zoo.__file__)
"""


def test_a_copy_of_both_packages_works_next_to_modules_of_any_name(tmp_path):
    ignored, packages = shutil.ignore_patterns("__pycache__"), tmp_path / "packages"
    for source in (ROOT / "mlx_unpool", EXAMPLES / "zoo" / "mlx_unpool_zoo"):
        shutil.copytree(source, packages / source.name, ignore=ignored)
    shutil.copytree(ROOT / "metal", packages / "mlx_unpool" / "_metal")
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("MINE = True\n")
    options = {"cwd": tmp_path, "env": environment() | {"PYTHONPATH": str(packages)}, "text": True}
    found = subprocess.run([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, check=True, **options)
    assert all(packages in Path(file).parents for file in found.stdout.split())
