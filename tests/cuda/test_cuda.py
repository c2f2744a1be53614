"""The kernels compile as CUDA, and their grids keep CUDA's limits. Nothing runs here: that takes a GPU."""

from __future__ import annotations

import os
import sys
from math import prod

import cuda_text
import mlx.core as mx
import pytest

import mlx_unpool
from mlx_unpool import _backends
from mlx_unpool._backends.gpu import threadgroup

DTYPES = (mx.float32, mx.float16, mx.bfloat16, mx.int8, mx.int32, mx.uint64)
WINDOWS = ((2, 2, 0), (3, 2, 1), (3, 1, 1))


def everything() -> list[cuda_text.CudaLaunch]:
    """The launches of every function and derivative, in several types, formats, ranks and layouts."""
    recorder = cuda_text.Recorder()
    with recorder.installed():
        for dtype in DTYPES:
            for window in WINDOWS:
                for index_format in ("flat", "window"):
                    both(mx.zeros((2, 9, 8, 20), dtype), window, index_format)
        both(mx.zeros((1, 2, 2, 1)), (2, 2, 0), "flat")
        both(mx.zeros((2, 3, 9, 8)), (2, 2, 0), "window", data_format="channels_first")
        x = mx.zeros((1, 6, 6, 6, 4))
        values, indices = mlx_unpool.max_pool3d(x, (3, 2, 2), 2, return_indices=True)
        mlx_unpool.max_unpool3d(values, indices, (3, 2, 2), 2, output_size=(6, 6, 6))
        mlx_unpool.max_pool1d(
            mx.zeros((1, 600, 2)), 300, return_indices=True, index_format="window"
        )
    return list({launch.text: launch for launch in recorder.launches}.values())


def both(x, window, index_format, **layout) -> None:
    def there_and_back(x):
        values, indices = mlx_unpool.max_pool2d(
            x, *window, return_indices=True, index_format=index_format, **layout
        )
        size = x.shape[2:] if layout else x.shape[1:3]
        y = mlx_unpool.max_unpool2d(values, indices, *window, output_size=size, **layout)
        if index_format == "flat":
            y = y + mlx_unpool.max_unpool2d(values, indices, None, output_size=size, **layout)
        return y

    mx.vjp(there_and_back, [x], [there_and_back(x)])
    mx.jvp(there_and_back, [x], [x])


@pytest.fixture
def nvrtc() -> None:
    if cuda_text.compiler() is None:
        missing = "NVRTC is not installed (extra 'cuda-check')"
        if os.environ.get("CI") == "true" and sys.platform == "linux":
            pytest.fail(missing)
        pytest.skip(missing)


@pytest.mark.parametrize("architecture", ["compute_80", "sm_90a"])
def test_every_kernel_compiles(architecture, nvrtc):
    launches = everything()
    assert len(launches) > 100
    assert {launch.name.split("_")[3] for launch in launches} == {
        "pool",
        "place",
        "pick",
        "stray",
        "own",
    }
    assert cuda_text.compile_text(cuda_text.unit_text(launches), architecture) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lowest<T>()", "metal::numeric_limits<T>::lowest()"),
        ("x_shape[1]", "x_strides[1]"),
        ("best[v] = value;", "best[v] = value; x[from] = value;"),
        ("if (first ||", "if first ||"),
    ],
)
def test_mistakes_do_not_compile(old, new, nvrtc):
    recorder = cuda_text.Recorder()
    with recorder.installed():
        mlx_unpool.max_pool2d(mx.zeros((1, 4, 4, 8)), 2)
    text = cuda_text.unit_text(recorder.launches)
    assert cuda_text.compile_text(text, "compute_80") == ""
    assert old in text
    assert "error" in cuda_text.compile_text(text.replace(old, new), "compute_80")


GRIDS = [
    (1, 1, 1),
    (896, 56, 8),
    (28, 28, 131072),  # 131,072 planes: channels first
    (300, 300_000, 1),
    (1, 70_000, 131_072),
    (2**31 - 1, 1, 1),
    (5, 2_000_000, 3),
    (7, 7, 2_000_000),
]


@pytest.mark.parametrize("grid", GRIDS)
def test_blocks_keep_cudas_limits(grid):
    block = threadgroup(grid)
    assert prod(block) <= 1024  # which is Metal's limit as well
    assert block[2] <= 64
    for axis, most in enumerate((2**31 - 1, 65535, 65535)):
        assert -(-grid[axis] // block[axis]) <= most
    if prod(grid) >= 256:
        assert prod(block) >= 32  # and are no waste


def test_a_gpu_that_is_not_apples_is_cudas(monkeypatch):
    class Stream:
        device = mx.Device(mx.gpu)

    monkeypatch.setattr(_backends, "is_available", lambda name: name in ("ops", "cuda"))
    assert _backends.choose(Stream) is _backends.get("cuda")
    monkeypatch.setattr(_backends, "is_available", lambda name: name in ("ops", "metal"))
    assert _backends.choose(Stream) is _backends.get("metal")
    assert _backends.choose(mx.default_stream(mx.cpu)) is _backends.get("ops")
