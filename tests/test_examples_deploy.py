"""An exported network runs from C++ and gives the classes that the model gives in Python."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx_unpool_zoo as zoo
import numpy as np
import programs
import pytest
from export import export
from mlx.utils import tree_map
from needs import needed

DEPLOY = programs.EXAMPLES / "deploy"


def build_lines() -> list[str]:
    """The shell commands of the README that build the program."""
    (block,) = re.findall(r"```sh\n(MLX=.*?)```", (DEPLOY / "README.md").read_text(), re.DOTALL)
    return block.splitlines()


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    """``segment``, built as the README says, with this Python's MLX."""
    needed(None if shutil.which("c++") else "no C++ compiler: c++ was not found")
    folder = tmp_path_factory.mktemp("build")
    (folder / "segment.cpp").write_bytes((DEPLOY / "segment.cpp").read_bytes())
    script = "\n".join(
        ["set -e", f'python() {{ {shlex.quote(sys.executable)} "$@"; }}', *build_lines()]
    )
    subprocess.run(["bash", "-c", script], cwd=folder, check=True)
    return folder / "segment"


def random_weights(model: nn.Module) -> nn.Module:
    """Weights that leave nothing as it was made, statistics, slopes and biases as well."""
    random = np.random.default_rng(0)

    def drawn(array: mx.array) -> mx.array:
        if array.ndim < 2:
            return mx.array(random.uniform(0.5, 1.5, array.shape).astype(np.float32))
        deviation = (2 / np.prod(array.shape[1:])) ** 0.5
        return mx.array(random.normal(0, deviation, array.shape).astype(np.float32))

    model.update(tree_map(drawn, model.parameters()))
    return model.eval()


def strided(model: nn.Module) -> nn.Module:
    """The same weights, but not contiguous: kept in another order of axes, as conversion leaves them."""
    model.update(
        tree_map(
            lambda v: mx.swapaxes(mx.contiguous(mx.swapaxes(v, 0, -1)), 0, -1) if v.ndim > 1 else v,
            model.parameters(),
        )
    )
    mx.eval(model.parameters())
    return model


def run(program: Path, *words: object) -> subprocess.CompletedProcess:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [str(word) for word in (program, *words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


MODELS = {
    "SegNet": (lambda: zoo.MODELS["segnet"](8, (8, 12, 16)), (2, 22, 35, 3)),
    "FastSurferCNN": (lambda: zoo.MODELS["fastsurfer_cnn"](79, num_filters=8), (1, 64, 48, 7)),
    "FastSurferVINN": (
        lambda: zoo.MODELS["fastsurfer_vinn"](
            51, num_filters=8, num_filters_interpol=4, height=64, width=64
        ),
        (1, 64, 48, 7),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_classes_in_cpp_are_those_in_python(program, tmp_path, name):
    build, shape = MODELS[name]
    model = random_weights(build())
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    np.save(tmp_path / "input.npy", x)
    expected = np.array(mx.argmax(model(mx.array(x)), axis=-1))
    assert len(np.unique(expected)) > 2
    assert export(strided(model), [shape], tmp_path / "network.mlxfn") < 1e-6
    result = run(program, *(tmp_path / n for n in ("network.mlxfn", "input.npy", "classes.npy")))
    assert result.stderr == ""
    assert result.returncode == 0
    assert np.array_equal(np.load(tmp_path / "classes.npy"), expected)


def test_the_program_says_what_is_wrong(program, tmp_path):
    def fails(*words: object) -> str:
        result = run(program, *words)
        assert result.returncode in (1, 2)
        return result.stderr

    network, array = tmp_path / "network.mlxfn", tmp_path / "input.npy"
    assert fails().startswith("usage: ")
    assert str(network) in fails(network, array, "out.npy")
    export(zoo.MODELS["segnet"](3, (4,), (1,)), [(1, 8, 8, 3)], network)
    assert str(array) in fails(network, array, "out.npy")
    np.save(array, np.zeros((1, 8, 9, 3), np.float32))
    assert "(1,8,8,3) float32" in fails(network, array, "out.npy")  # what it takes


def test_export_is_a_program(tmp_path):
    model = zoo.MODELS["segnet"](3, (4,), (1,))
    model.save_pretrained(tmp_path / "model")
    x = mx.random.uniform(shape=(2, 8, 8, 3))

    def export_program(*words: object) -> subprocess.CompletedProcess:
        return programs.run("export.py", *words)

    file = tmp_path / "network.mlxfn"
    shapes = ["--shape", 1, 8, 8, 3, "--shape", 2, 8, 8, 3]
    done = export_program(tmp_path / "model", file, *shapes, "--device", "cpu")
    assert (done.returncode, done.stderr) == (0, "")
    assert str(file) in done.stdout
    read = mx.import_function(str(file))
    for part in (x, x[:1]):
        assert mx.allclose(read(part)[0], model.eval()(part), atol=1e-6)
    for words in (
        [tmp_path / "none", file, *shapes],
        [tmp_path / "model", file, "--shape", 1, 8, 8, 4],
    ):
        wrong = export_program(*words)
        assert wrong.returncode == 1
        assert len(wrong.stderr.splitlines()) == 1, wrong.stderr
    assert "--shape" in export_program("--help").stdout


def test_an_export_that_is_wrong_gets_no_name(tmp_path, monkeypatch):
    model = zoo.MODELS["segnet"](3, (4,), (1,))
    monkeypatch.setattr("export.tree_map", lambda function, tree: tree)  # strides stay
    with pytest.raises(ValueError, match="scores that differ from the model's"):
        export(strided(model), [(1, 8, 8, 3)], tmp_path / "network.mlxfn")
    assert list(tmp_path.iterdir()) == []
