"""The CUDA text gives what plain operations give, bit for bit, wherever arrays begin: run on the CPU, as C++.

Every access is watched: a word of several elements must lie at a multiple of its size.
"""

from __future__ import annotations

import sys

import cuda_emulator
import metal_host
import mlx.core as mx
import pytest
from arrays import FLOATS, INTEGERS
from emulator import device
from kernel_cases import (
    CHOSEN,
    IRREGULAR,
    first,
    irregular_results,
    last,
    pool_of_dtypes,
    results,
    same_bits,
    window_case,
)
from needs import needed

import mlx_unpool
from mlx_unpool._backends import gpu

# Words of every size and number, runs of columns, channels that no word or half of the words divides.
WORDS = [
    *(window_case(2, 2, size=(4, 6), layout=last(c), dtype=mx.float16) for c in (4, 8, 12, 64)),
    *(window_case(3, 2, 1, size=(5, 8), layout=last(c)) for c in (2, 4, 6, 8)),
    *(window_case(2, 2, size=(4, 16), layout=first(3), dtype=d) for d in (mx.float32, mx.bfloat16)),
    window_case(3, 2, 1, size=(6, 16), layout=first(2), dtype=mx.float16),
    window_case(2, 2, size=(4, 8), layout=last(2), dtype=mx.float16),
    *(window_case(2, 2, size=(4, 8), layout=last(8), dtype=dtype) for dtype in INTEGERS),
]
CALLS = {
    **{f"words {n}": results(case, n) for n, case in enumerate(WORDS)},
    **{f"chosen {n}": results(case, n) for n, case in enumerate(CHOSEN)},
    **{f"irregular {n}": irregular_results(case, n) for n, case in enumerate(IRREGULAR)},
    "types": pool_of_dtypes,
}


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """The kernels of all calls: together they take a fraction of the time."""
    if sys.platform != "linux":
        pytest.skip("the emulated device runs on Linux alone")
    needed(metal_host.compiler_missing())
    cuda_emulator.compile_all(list(CALLS.values()))


@pytest.mark.parametrize("shift", [None, 1, 2, 4])
@pytest.mark.parametrize("name", CALLS)
def test_every_function_and_derivative_agrees_with_plain_ops(name, shift):
    with device("cpu"):
        expected = CALLS[name]()
        mx.eval(expected)
    emulated = cuda_emulator.Emulator()
    emulated.shift = shift
    with emulated.installed():
        got = CALLS[name]()
        mx.eval(got)
    for place, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert same_bits(a, b), f"result {place}"


def test_the_calls_reach_every_kernel_and_every_type():
    recorder = cuda_emulator.Emulator()
    recorder.record = True
    with recorder.installed():
        for call in CALLS.values():
            mx.eval(call())
    assert {launch.body for launch in recorder.launches} == {kernel.name for kernel in gpu.KERNELS}
    types = {value for launch in recorder.launches for _, value in launch.template}
    assert types >= {*FLOATS, *INTEGERS}


# ---- mistakes in the words: what is replaced, by what, channels, where inputs begin, what is seen
ANOTHER = "another result"
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
    "words behind the last channel": ("    if (n < lanes) {", "    {", 12, None, "out of bounds"),
    "every word the first": ("M>*)(from + n)", "M>*)(from)", 16, None, ANOTHER),
    "elements besides words": ("return true", "return false", 16, None, "second write"),
    "no elements": ("return false", "return true", 5, None, "unwritten"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_seen(name):
    old, new, channels, shift, expected = MISTAKES[name]
    x = mx.random.normal((2, 6, 6, channels)).astype(mx.float16)

    def call() -> list[mx.array]:
        values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
        return [values, indices, mlx_unpool.max_unpool2d(values, indices, 2)]

    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    results = []
    for change in (lambda text: text, edit):
        emulated = cuda_emulator.Emulator(change)
        emulated.shift = shift
        emulated.must_be_clean = change is not edit
        with emulated.installed():
            results.append(call())
            mx.eval(results[-1])
    said = [line for report in emulated.reports for line in report.first]
    said += [f"unwritten: {name}" for report in emulated.reports for name in report.unwritten]
    if expected == ANOTHER:
        assert not said
        assert not all(same_bits(a, b) for a, b in zip(*results, strict=True))
    else:
        assert any(expected in line for line in said), said
