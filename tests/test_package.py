"""What a user installs: the wheel holds the package and its kernels, and works without the checkout."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_wheel_holds_the_kernels_and_they_are_read_from_it(tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)], check=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    kernels = {path.name for path in (ROOT / "metal").iterdir()}
    assert {f"mlx_unpool/_metal/{name}" for name in kernels} <= set(names)
    assert "mlx_unpool/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "metal", "examples"))]

    # A clean environment that has nothing but MLX from this one.
    venv.create(tmp_path / "clean", with_pip=False)
    python = tmp_path / "clean" / "bin" / "python"
    packages = next((tmp_path / "clean" / "lib").glob("python*")) / "site-packages"
    zipfile.ZipFile(wheel).extractall(packages)
    import mlx.core as mx

    (packages / "mlx.pth").write_text(str(Path(mx.__file__).parent.parent))
    code = (
        "import mlx_unpool, mlx_unpool._kernels as k, pathlib;"
        "here = pathlib.Path(mlx_unpool.__file__).parent;"
        "print(here);"
        "print(sorted(p.name for p in (here / '_metal').iterdir()));"
        "print(all(k.text(p.name) for p in (here / '_metal').iterdir()), k._FOLDER == here / '_metal')"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        [str(python), "-c", code],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    here, found, verdict = result.stdout.splitlines()
    assert Path(here).parent == packages
    assert found == str(sorted(kernels))
    assert verdict == "True True"
