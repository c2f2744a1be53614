"""The CUDA kernels give the same bits as the CPU backend, wherever arrays begin: run on the CPU, as C++.

Every access is checked: a word of several elements must be aligned to its size.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

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
    same_bits,
    wide_case,
    wild_case,
    window_case,
)

import mlx_unpool
from mlx_unpool._backends import gpu

# Words of every size and number, runs of columns, channels that no word or half of the words divides.
WORDS = [
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
CALLS = {f"words {n}": results(case, n) for n, case in enumerate(WORDS)}
CALLS |= {"dtypes": pool_of_dtypes, "large windows": large_windows}
CALLS |= {
    "fractional": irregular_results(wild_case(2.0**24), 0),
    "adaptive": irregular_results(wide_case(), 0),
    "every pair of indices": every_pair_of_indices,
}


DIFFERS = "another result"  # no access is wrong
# The source, its replacement, the number of channels, where inputs begin, and what is reported
MISTAKES = {
    "arrays that begin anywhere": (
        *("size_t(array) % sizeof(Word<T, M>) == 0", "true", 16, 1, "undefined behaviour"),
    ),
    "channels that words do not divide": ("step % M == 0", "true", 12, None, "undefined behaviour"),
    "rows that words do not divide": (
        *("uint(length) * V | uint(first) * V", "uint(first) * V", 1, None, "undefined behaviour"),
    ),
    "columns that words do not divide": (
        *("uint(length) * V | uint(first) * V", "0u", 2, None, "undefined behaviour"),
    ),
    "words after the last channel": ("if (n < lanes) {", "{", 12, None, "access out of bounds"),
    "every word the first": ("M>*)(from + n)", "M>*)(from)", 16, None, DIFFERS),
    "elements besides words": (
        "return true",
        "return false",
        16,
        None,
        "second write to one place",
    ),
    "no elements": ("return false", "return true", 5, None, "unwritten"),
}


def pool_and_unpool(channels: int) -> list[mx.array]:
    x = mx.random.normal((2, 6, 6, channels), key=mx.random.key(2)).astype(mx.float16)
    values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
    return [values, indices, mlx_unpool.max_unpool2d(values, indices, 2)]


def edit(old: str, new: str) -> Callable[[str], str]:
    def edited(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return edited


@pytest.fixture(scope="module", autouse=True)
def compiled() -> list[metal_host.Launch]:
    """The launches of all calls, whose kernels are compiled together."""
    if sys.platform != "linux":
        pytest.skip("the emulated device runs on Linux only")
    if missing := metal_host.compiler_missing():
        pytest.skip(missing)
    launches = emulator.recorded(CALLS.values(), cuda_text.Emulator())
    others = []
    for old, new, channels, _, _ in MISTAKES.values():
        for source in (lambda text: text, edit(old, new)):
            call = partial(pool_and_unpool, channels)
            others += emulator.recorded([call], cuda_text.Emulator(source))
    metal_host.compile_launches(launches + others)
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


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_noticed(name):
    old, new, channels, shift, expected = MISTAKES[name]
    results = []
    for device in (
        cuda_text.Emulator(shift=shift),
        cuda_text.Emulator(edit(old, new), shift=shift, must_be_clean=False),
    ):
        with device.installed():
            results.append(pool_and_unpool(channels))
            mx.eval(results[-1])
    if expected == DIFFERS:
        assert not device.problems()
        assert not all(same_bits(a, b) for a, b in zip(*results, strict=True))
    else:
        assert expected in device.problems()
