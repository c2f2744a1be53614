"""The release: its files are complete, and the wheel works alone. How commands install it."""

import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import mlx.core as mx
import pytest
from support.installation import check_installations, declared

import mlx_unpool
from mlx_unpool._backends import gpu, kernel_source

ROOT = Path(__file__).parent.parent
KERNELS = {path.name for path in (ROOT / "metal").iterdir()}
ZOO = {
    str(path.relative_to(ROOT / "examples/zoo")) for path in (ROOT / "examples/zoo").rglob("*.*")
}
ZOO = {name for name in ZOO if "__pycache__" not in name}
MODULES = {str(path.relative_to(ROOT)) for path in (ROOT / "mlx_unpool").rglob("*.py")}
MODULES |= {"mlx_unpool/py.typed"}


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The folder of an sdist, and of a wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True)
    return folder


def test_the_sdist_holds_the_package_its_kernels_and_its_papers(dist):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    expected = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"} | MODULES
    expected |= {f"metal/{name}" for name in KERNELS} | {f"examples/zoo/{name}" for name in ZOO}
    assert names - {"PKG-INFO", ".gitignore"} == expected


@pytest.fixture(scope="module")
def wheel(dist):
    """The path of the wheel, the names of its files, and its metadata."""
    (path,) = dist.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return path, archive.namelist(), archive.read(metadata).decode()


def test_the_wheel_holds_the_package_and_its_kernels_and_nothing_else(wheel):
    path, names, metadata = wheel
    assert path.name == f"mlx_unpool-{mlx_unpool.__version__}-py3-none-any.whl"
    kernels = {f"mlx_unpool/_metal/{name}" for name in KERNELS}
    package = {name for name in names if ".dist-info/" not in name}
    assert package == MODULES | kernels | ZOO
    needed, others = re.findall(r"Requires-Dist: ((?!.*extra ==).*)", metadata)
    assert re.fullmatch(r"mlx>=[\d.]+; sys_platform == 'darwin'", needed)  # on Linux by an extra
    assert others == "numpy"
    extras = re.findall("Provides-Extra: (.*)", metadata)  # the others are dependency groups
    assert sorted(extras) == ["cpu", "cuda12", "cuda13", "train", "zoo"]
    assert set(extras) == declared("project.optional-dependencies")


def text_of(path: Path) -> str:
    """What a reader sees of a page, a notebook or another file."""
    if path.suffix != ".ipynb":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells)


def test_commands_on_pages_install_the_clone_or_from_the_repository():
    pages = [ROOT / "llms.txt", ROOT / "pyproject.toml"]
    for folder in (ROOT, ROOT / ".github", ROOT / "docs", ROOT / "examples"):
        pages += folder.glob("*.md")
    pages += (ROOT / "examples" / "notebooks").glob("*.ipynb")
    counts = {page.name: check_installations(text_of(page)) for page in pages}
    assert sum(count > 0 for count in counts.values()) > 7, counts


def test_make_installs_the_clone_and_a_group_with_a_pip_that_knows_groups():
    for build in ("cpu", "cuda13"):
        make = ["make", "--dry-run", "-C", ROOT, "VENV=.venv-none", f"GPU={build}", "demo"]
        printed = subprocess.run(make, check=True, capture_output=True, text=True).stdout
        first, second = re.findall("pip install .*", printed)
        assert first.endswith('"pip>=25.1"')
        assert "--group examples" in second
        assert f'".[{build}]"' in second
        assert check_installations(printed) == 1


def test_the_first_page_has_no_relative_link_on_a_package_index(wheel):
    head, _, readme = wheel[2].partition("\n\n")
    assert "Description-Content-Type: text/markdown" in head
    home = re.search(r"Project-URL: Repository, (\S+)", head)[1]
    raw = home.replace("github.com", "raw.githubusercontent.com")
    own = []  # whether each link is a picture
    for mark, target in re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", readme):
        assert target.startswith("https://"), target
        prefix = f"{raw if mark else f'{home}/blob'}/v{mlx_unpool.__version__}/"
        if target.startswith((home, raw)):
            assert (ROOT / target.removeprefix(prefix).partition("#")[0]).is_file(), target
            own.append(bool(mark))
    assert len(own) > 10
    assert any(own)


def run_in(
    folder: Path, python: str, program: str, **variables: str
) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= variables
    options = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
    return subprocess.run([python, "-c", program], **options)


@pytest.fixture
def clean(wheel, tmp_path):
    """The Python of an environment with the wheel alone, and its folder of packages."""
    venv.create(tmp_path / "clean", with_pip=False)
    python = tmp_path / "clean" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    pip += ["install", "-q"]
    subprocess.run([*pip, "--no-deps", wheel[0]], check=True)
    return str(python), next((tmp_path / "clean" / "lib").glob("python*")) / "site-packages"


def test_without_mlx_one_line_says_what_to_install(clean, tmp_path):
    """On Linux with the build of MLX for a CPU, or with another whose files are there."""
    python, packages = clean
    for build in ("cpu", "cuda13"):
        extra = f"[zoo,{build}]" if sys.platform == "linux" else "[zoo]"
        for module, says in (("mlx_unpool", "[cpu]"), ("mlx_unpool_zoo", extra)):
            run = {"cwd": tmp_path, "capture_output": True, "text": True}
            (line,) = subprocess.run([python, "-m", module], **run).stderr.splitlines()
            assert f'pip install "mlx-unpool{says} @ git+https://' in line
            result = run_in(tmp_path, python, f"import {module}")
            assert result.stderr.splitlines()[-1].startswith("ImportError: mlx_unpool")
        (packages / "mlx_cuda_13-1.dist-info").mkdir(exist_ok=True)
        (packages / "mlx_cuda_13-1.dist-info" / "METADATA").write_text(
            "Name: mlx-cuda-13\nVersion: 1\n"
        )


def test_the_wheel_works_without_the_checkout(clean, tmp_path):
    python, packages = clean
    (packages / "mlx.pth").write_text(str(Path(mx.__file__).parent.parent))  # of this environment
    program = """
import mlx.core as mx, mlx_unpool, pathlib
print(pathlib.Path(mlx_unpool.__file__).parent)
print(mlx_unpool.max_pool1d(mx.array([[1.0], [3], [2], [0]]), 2, stream=mx.cpu).tolist())
with mlx_unpool.exporting(), mlx_unpool.use_backend("metal"):
    mlx_unpool.max_pool1d(mx.zeros((4, 1)), 2)
"""
    result = run_in(tmp_path, python, program)
    assert result.stdout == f"{packages / 'mlx_unpool'}\n[[3.0], [2.0]]\n", result.stderr
    # The kernels are found: without Metal, MLX is what refuses them.
    assert "No Metal back-end" in result.stderr or mx.metal.is_available()
    assert "kernel file" not in result.stderr


def test_a_package_without_its_kernels_says_so_where_it_needs_them(monkeypatch, tmp_path):
    monkeypatch.setattr(kernel_source, "_FOLDER", tmp_path)
    kernel_source.text.cache_clear()
    gpu._build.cache_clear()
    missing = r"^\[mlx_unpool\] the kernel file 'pool.metal' is missing .* Install mlx_unpool again"
    with (
        mlx_unpool.exporting(),
        mlx_unpool.use_backend("metal"),
        pytest.raises(RuntimeError, match=missing),
    ):
        mlx_unpool.max_pool1d(mx.zeros((1, 4, 1)), 2)
