"""The CUDA kernels give the same bits as the CPU backend, wherever arrays begin: run on the CPU, as C++."""

from __future__ import annotations

import sys

import cuda_text
import emulator
import metal_host
import mlx.core as mx
import pytest
from arrays import FLOATS, INTEGERS
from kernel_cases import (
    assert_same_bits,
    every_pair_of_indices,
    first,
    irregular_results,
    last,
    results,
    wide_case,
    wild_case,
    window_case,
)

import mlx_unpool
from mlx_unpool._backends import gpu

# Runs of columns, and numbers of channels that threads do not divide evenly.
RUNS = [
    *(window_case(2, 2, size=(4, 6), layout=last(c), dtype=mx.float16) for c in (4, 12)),
    window_case(3, 2, 1, size=(5, 8), layout=last(6)),
    window_case(3, 2, 1, size=(6, 16), layout=first(2), dtype=mx.bfloat16),
]


def pool_of_dtypes() -> list[mx.array]:
    """Pooling and unpooling of 16 channels in every dtype, with window indices."""
    out = []
    for dtype in (*FLOATS, *INTEGERS):
        x = mx.random.randint(0, 9, (1, 4, 6, 16), key=mx.random.key(0)).astype(dtype)
        values, i = mlx_unpool.max_pool2d(x, 2, return_indices=True, index_format="window")
        out += [values, i, mlx_unpool.max_unpool2d(values, i, 2)]
    return out


def large_windows() -> list[mx.array]:
    """Windows that several threads share."""
    x = mx.random.normal((2, 10, 9, 8), key=mx.random.key(1)).astype(mx.float16)
    return mlx_unpool.adaptive_max_pool2d(x, 1, return_indices=True)


# The rest of the source is that of Metal, which tests/metal/test_metal_parity.py runs.
CALLS = {f"runs {n}": results(case, n) for n, case in enumerate(RUNS)}
CALLS |= {"dtypes": pool_of_dtypes, "large windows": large_windows}
CALLS |= {
    "fractional": irregular_results(wild_case(2.0**24), 0),
    "adaptive": irregular_results(wide_case(), 0),
    "every pair of indices": every_pair_of_indices,
}


@pytest.fixture(scope="module", autouse=True)
def compiled() -> list[metal_host.Launch]:
    """The launches of all calls, whose kernels are compiled together."""
    if sys.platform != "linux":
        pytest.skip("the emulated device runs on Linux only")
    if missing := metal_host.compiler_missing():
        pytest.skip(missing)
    launches = emulator.recorded(CALLS.values(), cuda_text.Emulator())
    metal_host.compile_launches(launches)
    return launches


@pytest.mark.parametrize("shift", [None, 1, 2, 4])
@pytest.mark.parametrize("name", CALLS)
def test_every_function_and_derivative_agrees_with_the_cpu(name, shift):
    with cuda_text.Emulator(shift=shift).installed():
        got = CALLS[name]()
        mx.eval(got)
    assert_same_bits(got, emulator.evaluated(CALLS[name], "cpu"))


def test_the_calls_reach_every_kernel_and_every_dtype(compiled):
    assert {launch.body for launch in compiled} == {kernel.name for kernel in gpu.KERNELS}
    types = {value for launch in compiled for _, value in launch.template}
    assert types >= {*FLOATS, *INTEGERS}
