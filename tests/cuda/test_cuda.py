"""The kernels compile as CUDA, and their grids respect CUDA's limits. No kernel runs here."""

import functools
import re
from math import prod

import cuda_text
import mlx.core as mx
import pytest
from support.arrays import FLOATS, INTEGERS
from support.kernel_cases import CHOSEN_CALLS, huge, pool_windows

from mlx_unpool import AdaptiveMaxPool2d, MaxPool2d, _backends, adaptive_max_pool2d
from mlx_unpool._backends.launches import KERNELS, threadgroup

# What MLX passes for an A100 and an H100.
ARCHITECTURES = ("sm_80", "sm_90a")
DTYPES = (*FLOATS, *INTEGERS)


@functools.cache
def launches() -> list[cuda_text.Launch]:
    """Launches with every template argument and every type of an array of each kernel."""
    recorder = cuda_text.Recorder()
    with recorder.installed():
        for call in CHOSEN_CALLS.values():
            call()
        large = (1, 2**16, 2**15, 1)  # 64-bit numbers
        pool_windows(large, (9, 8), dtype=mx.uint8)
        adaptive_max_pool2d(huge(large, mx.uint8), 3)
        x = huge((2, 20, 30, 3), mx.float32)
        for pool in (MaxPool2d(2), MaxPool2d(9), AdaptiveMaxPool2d(7)):
            pool.eval()(x)
        MaxPool2d(9).eval()(huge((2**15, 20, 30, 3), mx.float32))  # one thread per window
    chosen, seen = [], set()
    for launch in recorder.launches:
        signature = launch.function.partition("{")[0].partition("(")[2]
        found = {(launch.body, *pair) for pair in launch.template}
        found |= {(launch.body, parameter) for parameter in signature.split(",")}
        if found - seen:
            chosen.append(launch)
        seen |= found
    return chosen


def test_the_launches_cover_every_kernel_dtype_and_switch():
    seen: dict[tuple[str, str], set] = {}
    for launch in launches():
        for name, value in launch.template:
            if len(re.findall(rf"\b{name}\b", launch.function)) > 1:  # used, not only declared
                seen.setdefault((launch.body, name), set()).add(value)
    assert {body for body, _ in seen} == {kernel.name for kernel in KERNELS}
    for (body, name), values in seen.items():
        if isinstance(next(iter(values)), bool):
            assert values == {False, True}, (body, name)
        elif name == "N":  # of coordinates and indices
            assert values >= {mx.int32, mx.int64}, body
        elif name == "T":  # of values
            assert values >= {*(FLOATS if body == "scatter_regions" else DTYPES)}, body


@pytest.fixture
def nvrtc() -> None:
    if cuda_text.compiler() is None:
        pytest.skip("NVRTC is not here (dependency group 'external')")


@pytest.mark.external
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_compiles_and_keeps_its_arrays_in_registers(architecture, nvrtc):
    # One source serves all variants, so some contain unused constants, unreachable loops and
    # comparisons of unsigned numbers with zero.
    options = ("--ptxas-options=-v", "--diag-suppress=177,128,186")
    good, said = cuda_text.compile_text(cuda_text.unit(launches()), architecture, *options)
    assert good, said
    assert "warning" not in said, said
    memory = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+)", said)
    assert memory == [("0", "0", "0")] * len(launches())


def assert_cuda_can_launch(grid, threadgroup) -> None:
    """Check CUDA's limits for every compute capability."""
    blocks, block = cuda_text.blocks_of(grid, threadgroup)
    assert all(1 <= n <= 2**31 for n in (*grid, *threadgroup))  # int in MLX, which rounds grids up
    assert prod(block) <= 1024
    assert block[2] <= 64
    assert blocks[0] < 2**31
    assert max(blocks[1:]) <= 65535
    # A position is 32 bits wide.
    assert all(n * of <= 2**32 for n, of in zip(blocks, block, strict=True))


@pytest.mark.parametrize(
    ("shape", "window", "options"),
    [
        ((64, 2048, 28, 28), (2, 2), {"data_format": "channels_first"}),  # 131,072 planes
        ((1000, 2000, 8), (2, 2), {"data_format": "channels_first"}),  # 2,000,000 planes
        ((64, 512, 7, 7), (7, 7), {"data_format": "channels_first"}),  # one pooled value per plane
        ((1, 300_000, 4, 8), (3, 1, 1), {}),  # 300,000 rows
        ((70_000, 70_000, 1, 1), ((2, 1), (2, 1)), {"index_format": "window"}),
        ((1, 2**31 - 2, 1), (2, 2), {}),  # as many positions as int32 indices allow
        ((1, 16, 2**20 * 300), (2, 2), {"dtype": mx.float16}),
        ((1, 1, 1, 1), (1, 1), {}),
    ],
)
def test_grids_keep_cudas_limits(shape, window, options):
    recorder = cuda_text.Recorder()
    with recorder.installed():
        pool_windows(shape, *window, **options)
    assert recorder.launches
    for launch in recorder.launches:
        assert_cuda_can_launch(launch.grid, launch.threadgroup)


MOST_ROWS, MOST_PLANES = 65535 * 1024, 65535 * 64
# Usual grids and one at each limit; grids beyond a limit of CUDA; grids beyond a limit of both
POSSIBLE = [
    (2**31 - 1, 1, 1),
    (448, 56, 8),
    (448, 3, 8),
    (20, 56, 2),
    (300, 2 * 65535 + 1, 1),
    (300, 1, 65536),
]
POSSIBLE += [(1, MOST_ROWS, 1), (1, MOST_ROWS // 64, MOST_PLANES), (1, 1, MOST_PLANES)]
BEYOND_CUDA = [(1, MOST_ROWS + 1, 1), (1, 65535 * 512, 65535 * 4), (1, 1, MOST_PLANES + 1)]
BEYOND_BOTH = [(2**31, 1, 1), (1, 2**31, 1), (1, 1, 2**31)]


@pytest.mark.parametrize("grid", [*POSSIBLE, *BEYOND_CUDA, *BEYOND_BOTH])
def test_threadgroups_keep_limits(grid):
    for dialect in ("cuda", "metal"):
        if grid in BEYOND_BOTH or (dialect == "cuda" and grid in BEYOND_CUDA):
            most = "2147483647 threads" if grid in BEYOND_BOTH else "65535 blocks"
            with pytest.raises(ValueError, match=rf"\[pool\] the grid must have at most {most}"):
                threadgroup(grid, dialect, "pool")
            continue
        group = threadgroup(grid, dialect)
        assert prod(group) >= 64
        if dialect == "cuda":
            assert_cuda_can_launch(grid, group)
        else:
            assert prod(group) <= 256  # a pipeline may allow fewer than 1,024


def test_a_gpu_without_metal_uses_cuda(monkeypatch):
    class Stream:
        device = mx.Device(mx.gpu)

    monkeypatch.setattr(_backends, "is_available", lambda name: name in ("ops", "cuda"))
    assert _backends.target_of(Stream)[1] is _backends.get("cuda")
    monkeypatch.setattr(_backends, "is_available", lambda name: name in ("ops", "metal"))
    assert _backends.target_of(Stream)[1] is _backends.get("metal")
    assert _backends.target_of(mx.default_stream(mx.cpu))[1] is _backends.get("ops")
