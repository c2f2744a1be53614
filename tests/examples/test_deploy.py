"""Exported networks and the program that exports them.

Run from C++, the networks give the same classes as in Python.
"""

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
import pytest
from export import export
from helpers import programs
from helpers.small_models import VINN, randomised, save_state, small_model, strided
from mlx.utils import tree_flatten


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    """``segment`` of docs/export.md, built with the commands there and the MLX of this Python."""
    if not shutil.which("c++"):
        pytest.skip("no C++ compiler: c++ was not found")
    folder = tmp_path_factory.mktemp("build")
    text = (programs.ROOT / "docs" / "export.md").read_text()
    (source,), (commands,) = (
        re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("cpp", "sh")
    )
    (folder / "segment.cpp").write_text(source)
    script = f'set -e\npython() {{ {shlex.quote(sys.executable)} "$@"; }}\n{commands}'
    subprocess.run(["bash", "-c", script], cwd=folder, check=True)
    return folder / "segment"


MODELS = {
    "segnet": ({"num_classes": 8, "channels": (8, 12, 16)}, (2, 22, 35, 3)),
    "fastsurfer_cnn": ({"num_classes": 79, "num_filters": 8}, (1, 64, 48, 7)),
    "fastsurfer_vinn": ({"num_classes": 51, **VINN, "height": 64, "width": 64}, (1, 64, 48, 7)),
}


@pytest.mark.parametrize("name", MODELS)
def test_classes_in_cpp_are_those_in_python(program, tmp_path, name):
    config, shape = MODELS[name]
    model = randomised(zoo.MODELS[name](**config), all_weights=True)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    np.save(tmp_path / "input.npy", x)
    expected = np.array(mx.argmax(model(mx.array(x)), axis=-1))
    assert len(np.unique(expected)) > 2
    assert export(strided(model), [shape], tmp_path / "network.mlxfn") < 1e-6
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    result = subprocess.run(
        program, cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=60
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert np.array_equal(np.load(tmp_path / "classes.npy"), expected)


def test_export_is_a_program_for_several_shapes(tmp_path):
    model, file = zoo.MODELS["segnet"](3, (4,), (1,)), tmp_path / "network.mlxfn"
    model.save_pretrained(tmp_path / "model")
    x = mx.random.uniform(shape=(2, 8, 8, 3))
    shapes = ["--shape", 1, 8, 8, 3, "--shape", 2, 8, 8, 3]
    programs.call("export.py", tmp_path / "model", file, *shapes, "--device", "cpu")
    read = mx.import_function(str(file))
    assert all(mx.allclose(read(part)[0], model.eval()(part), atol=1e-6) for part in (x, x[:1]))


def test_lazily_loaded_weights_are_exported(tmp_path):
    model, x = small_model("segnet")
    lazy = save_state(tmp_path / "lazy.safetensors", dict(tree_flatten(model.parameters())))
    model.load_weights(str(lazy))  # MLX alone cannot export them
    assert export(model, [x.shape], tmp_path / "lazy.mlxfn") < 1e-6


def test_export_refuses_what_it_cannot_mend(tmp_path):
    matrix = mx.arange(12.0).reshape(3, 4).T  # strided, and not a parameter
    mx.eval(matrix)
    with pytest.raises(ValueError, match="scores that differ from the model's"):
        export(nn.Sequential(lambda x: x @ matrix).eval(), [(2, 4)], tmp_path / "hidden.mlxfn")
    assert list(tmp_path.iterdir()) == []
