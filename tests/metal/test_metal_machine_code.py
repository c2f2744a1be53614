"""The kernels as machine code of an Apple GPU: correct to the byte, and limited by memory, not arithmetic.

``benchmarks/APPLE_GPU.md`` describes what is counted and what is estimated.
"""

from __future__ import annotations

import os
import platform
import random
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from math import prod

import apple_gpu
import emulator
import mlx.core as mx
import numpy as np
import pytest
import traffic
from agx import replay, toolchain
from arrays import SMALLEST

import mlx_unpool

# The most of each figure, by how the machine code was prepared: with LLVM's passes, or without unrolling.
TARGETS = {
    "llvm": {
        **{"geometric mean": 0.40, "rows above 1": 20, "highest": 2.5, "spills": 0, "wrong": 0},
        **{"fewer than 1,024 threads": 0, "code above 12 KB": 0},
    },
    "none": {"geometric mean": 0.45, "rows above 1": 40, "highest": 6.0, "spills": 0, "wrong": 0},
}
SAMPLES = 4  # SIMD groups per launch that run here; the page's table has more


@pytest.fixture(scope="module", autouse=True)
def tools(emulated_device: None) -> None:
    missing = toolchain.missing()
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("the compiler for Apple's GPUs is built for x86-64 Linux")
    # An empty AGX_TOOLS allows CI to run without the compiler.
    if missing and os.environ.get("CI") == "true" and os.environ.get("AGX_TOOLS") != "":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


@pytest.fixture(scope="module")
def tables(tools: None) -> dict[str, list[apple_gpu.Row]]:
    return apple_gpu.measure(apple_gpu.calls(), tuple(TARGETS), samples=SAMPLES)


@pytest.mark.parametrize("passes", TARGETS)
def test_memory_is_the_limit_and_not_arithmetic(passes, tables):
    found = apple_gpu.summary(tables[passes])
    over = {key: found[key] for key, most in TARGETS[passes].items() if found[key] > most}
    assert not over, [str(row.call) for row in tables[passes] if row.ratio("M1 Max") > 1]


def test_the_rows_are_those_that_the_targets_are_about(tables):
    for rows in tables.values():
        assert {row.call for row in rows} == set(apple_gpu.calls())
        assert all(row.wrong == 0 and row.instructions > 0 for row in rows)
    assert len(apple_gpu.calls()) == 248


# The highest ratio of larger windows, by number of elements, and for windows that exceed it.
LARGE_TARGETS = {25: 3.0, 64: 5.0}
EXCEPTIONS = {"4x4x4/1": 6.0, "8x8/1": 5.5}


def test_larger_windows_repeat_few_instructions():
    rows = apple_gpu.measure(apple_gpu.large_calls(), samples=2)["llvm"]
    assert {row.call for row in rows} == set(apple_gpu.large_calls())
    over = {}
    for row in rows:
        rank, kernel_size, *_ = traffic.LARGE_WINDOWS[row.call.windows]
        elements = kernel_size**rank
        most = min(most for count, most in LARGE_TARGETS.items() if elements <= count)
        most = EXCEPTIONS.get(row.call.windows, most)
        figures = row.ratio("M1 Max"), row.code, row.spills, row.wrong
        if any(a > b for a, b in zip(figures, (most, 12 * 1024, 0, 0))):
            over[f"{row.call} {row.kernel}"] = figures
    assert not over


def test_who_wins_where_windows_overlap_at_every_position():
    chosen = [c for c in apple_gpu.calls() if (c.windows, c.primitive) == ("3x3/1", "pick_winners")]
    assert_ratios([call for call in chosen if call.layout == "NHWC 64"], 1.5)


def test_threads_share_a_window_as_large_as_the_plane():
    whole = (apple_gpu.GLOBAL, apple_gpu.GLOBAL_ADAPTIVE)
    assert_ratios([call for call in apple_gpu.further_calls() if call.windows in whole], 2.0)


def assert_ratios(calls: list[apple_gpu.Call], most: float) -> None:
    assert calls
    for row in apple_gpu.measure(calls)["llvm"]:
        assert row.ratio("M1 Max") <= most, row.call
        assert row.wrong == 0, row.call


# ---- machine code and emulated device, byte for byte

WINDOWS = ((2, 2, 2, 0), (2, 3, 2, 1), (2, 3, 1, 1), (3, 2, 2, 0))  # rank, kernel, stride, padding
KINDS = (  # channels and dtype: every number of channels per thread, with and without a remainder
    *((8, mx.float32), (16, mx.float16), (3, mx.float32), (3, mx.float16)),
    *((1, mx.float16), (1, mx.int8)),
)


def numbers(shape: tuple[int, ...], dtype: mx.Dtype, seed: int) -> mx.array:
    """Numbers with ties; for floats also subnormal numbers, zeros of both signs, NaN and infinities."""
    drawn = np.random.default_rng(seed)
    small = drawn.integers(-4, 4, shape).astype(np.float32)
    if dtype in SMALLEST:
        kind = drawn.random(shape)
        small[kind < 0.7] *= np.float32(SMALLEST[dtype])
        small[kind < 0.3] *= -0.0
        small[kind < 0.2] = np.nan
        small[kind < 0.1] = np.inf
        small[kind < 0.05] = -np.inf
    return mx.array(small).astype(dtype)


def calls_of(pool: Callable, unpool: Callable, x: mx.array, anywhere: bool) -> list[Callable]:
    """Pooling, unpooling and their derivatives; with ``anywhere``, also of random flat indices."""
    values, indices = pool(x)
    # Mesa's compiler replaces x + 0 by x, so sums of negative zeros differ; Metal's safe mode forbids that.
    cotangents = np.random.default_rng(1).integers(-3, 4, values.shape)
    cotangents = mx.array(cotangents).astype(x.dtype)
    given = [indices]
    if anywhere:
        drawn = np.random.default_rng(2).integers(-2, prod(x.shape[1:-1]) + 2, indices.shape)
        given.append(mx.array(drawn.astype(np.int32)))
    mx.eval(x, values, cotangents, given)
    calls: list[Callable] = [lambda: pool(x)]
    for indices in given:
        calls.append(partial(unpool, values, indices))
        if x.dtype in SMALLEST:
            from_values = lambda v, i=indices: unpool(v, i)  # noqa: E731
            calls.append(partial(mx.vjp, from_values, [values], [x]))
    if x.dtype in SMALLEST:
        calls.append(lambda: mx.vjp(lambda x: pool(x)[0], [x], [cotangents]))
        calls.append(lambda: mx.jvp(lambda x: pool(x)[0], [x], [x]))
    return calls


def all_calls() -> list[Callable]:
    calls = []
    for (channels, dtype), index_format in product(KINDS, ("window", "flat")):
        for rank, *window in WINDOWS:
            size = (7, 9) if rank == 2 else (4, 5, 6)
            pool = partial(
                getattr(mlx_unpool, f"max_pool{rank}d"),
                **dict(zip(("kernel_size", "stride", "padding"), window)),
                **{"return_indices": True, "index_format": index_format},
            )
            max_unpool = getattr(mlx_unpool, f"max_unpool{rank}d")
            unpool = lambda v, i, f=max_unpool, w=window, s=size: f(v, i, *w, output_size=s)  # noqa: E731
            x = numbers((2, *size, channels), dtype, 0)
            calls += calls_of(pool, unpool, x, index_format == "flat")
    for channels, dtype in KINDS:
        calls += calls_of(
            lambda x: mlx_unpool.adaptive_max_pool2d(x, (3, 4), return_indices=True),
            lambda v, i: mlx_unpool.max_unpool2d(v, i, None, output_size=(7, 9)),
            numbers((2, 7, 9, channels), dtype, 3),
            False,
        )
    return calls


@pytest.fixture(scope="module")
def kept(tools: None) -> list[emulator.Kept]:
    """Launches that ran on the emulated device with subnormal numbers flushed and shifted inputs."""
    calls = all_calls()
    emulator.compile_all(calls)
    device = emulator.Emulator(flush=True, keep=True, shift=3)
    with device.installed():
        for call in calls:
            mx.eval(call())
    return device.kept


@pytest.mark.parametrize("passes", TARGETS)
def test_machine_code_and_emulated_device_agree_byte_for_byte(passes, kept):
    assert len(kept) > 200
    # A random third, the same in every run, which contains every kernel.
    third = random.Random(0).sample(kept, len(kept) // 3)
    kernels = {apple_gpu.kernel_of(one.launch) for one in kept}
    assert {apple_gpu.kernel_of(one.launch) for one in third} == kernels
    compiled = toolchain.Compiled([one.launch for one in third], passes)
    wrong = []
    for one in third:
        replayed = replay.Replay(compiled, one, shift=3)
        replayed.run()
        if replayed.wrong_bytes():
            wrong.append(one.launch.instance)
    assert not wrong
