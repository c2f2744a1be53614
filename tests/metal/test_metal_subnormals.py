"""Comparisons are right for every pattern of bits, also on a device that takes subnormal numbers for zero.

Apple's GPUs do that with 32-bit floats (so with bfloat16, which is widened) and keep the subnormal numbers of
16-bit ones. The contract is what IEEE says of the numbers, which float64 holds exactly.
"""

from __future__ import annotations

import emulator
import mlx.core as mx
import numpy as np
import pytest
from emulator import FLUSHING, device
from kernel_cases import bits

import mlx_unpool

DEVICES = ["cpu", *emulator.DEVICES, *FLUSHING]
WORD = {mx.float16: np.uint16, mx.bfloat16: np.uint16, mx.float32: np.uint32}
EXPONENT_AT = {mx.float16: 10, mx.bfloat16: 7, mx.float32: 23}


def partners(dtype: mx.Dtype) -> np.ndarray:
    """Patterns around the edges of a type: zeros, subnormal numbers and their neighbours, infinity, NaN."""
    at, width = EXPONENT_AT[dtype], 8 * dtype.size
    infinity = (1 << (width - 1)) - (1 << at)
    one = infinity // 2 >> at << at
    positive = [0, 1, (1 << at) - 1, 1 << at, one, infinity - 1, infinity, infinity + 1]
    return np.array([*positive, *(p | 1 << (width - 1) for p in positive)], WORD[dtype])


def patterns(dtype: mx.Dtype) -> np.ndarray:
    """Every pattern of a 16-bit type; of float32 every exponent, both signs and seven mantissas."""
    if dtype != mx.float32:
        return np.arange(1 << 16, dtype=np.uint16)
    exponents = np.arange(1 << 9, dtype=np.uint32)[:, None] << 23
    mantissas = np.array([0, 1, 2, 0x2AAAAA, 0x400000, 0x7FFFFE, 0x7FFFFF], np.uint32)
    return (exponents | mantissas).reshape(-1)


def pairs(dtype: mx.Dtype) -> np.ndarray:
    """Two rows of patterns, (2, n): each pattern beside each partner, a neighbour in size and one drawn."""
    every = patterns(dtype)
    drawn = np.random.default_rng(0).permutation(every)
    beside = [np.full_like(every, p) for p in partners(dtype)] + [every ^ 1, drawn]
    return np.stack([np.tile(every, len(beside)), np.concatenate(beside)])


def exact(words: np.ndarray, dtype: mx.Dtype) -> np.ndarray:
    """The numbers that patterns stand for, worked out from sign, exponent and mantissa."""
    at = EXPONENT_AT[dtype]
    width = 8 * dtype.size
    words = words.astype(np.int64)
    exponent, mantissa = words >> at & (1 << (width - 1 - at)) - 1, words & (1 << at) - 1
    bias, top = (1 << (width - 2 - at)) - 1, (1 << (width - 1 - at)) - 1
    number = np.ldexp(
        mantissa + np.where(exponent > 0, 1 << at, 0.0), np.maximum(exponent, 1) - bias - at
    )
    number = np.where(exponent == top, np.where(mantissa == 0, np.inf, np.nan), number)
    return np.where(words >> (width - 1) == 1, -number, number)


def second_wins(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Whether the second of two numbers is the maximum: the first of equals wins, and the last NaN."""
    return np.isnan(second) | (second > first)


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("windows", ["alike", "adaptive"])
@pytest.mark.parametrize("dtype", WORD, ids=str)
def test_every_pattern_against_its_partners(dtype, windows, name):
    first, second = pairs(dtype)
    a, b = exact(first, dtype), exact(second, dtype)
    # Of three elements, first, second and first again, two windows of two: either order of each pair.
    x = mx.array(np.stack([first, second, first])[None]).view(dtype)
    wins = np.stack([second_wins(a, b), second_wins(b, a)])[None]
    with device(name):
        if windows == "alike":
            values, indices = mlx_unpool.max_pool1d(x, 2, 1, return_indices=True)
        else:
            values, indices = mlx_unpool.adaptive_max_pool1d(x, 2, return_indices=True)
        mx.eval(values, indices)
    np.testing.assert_array_equal(np.array(indices), wins + np.array([[[0], [1]]]))
    expected = np.where(wins, np.stack([second, first]), np.stack([first, second]))
    np.testing.assert_array_equal(np.array(bits(values)), expected)


def test_the_flushing_device_flushes_and_keeps_what_is_16_bits_wide():
    tiny = mx.array([2.0**-149, 2.0**-126, 1.0], mx.float32)
    small = mx.array([2.0**-24, 2.0**-14, 1.0], mx.float16)

    def halves() -> list[mx.array]:
        made = mx.fast.metal_kernel(
            name="halves",
            input_names=["x", "y"],
            output_names=["a", "b"],
            source="uint n = thread_position_in_grid.x; a[n] = x[n] * 0.5f; b[n] = y[n] > half(0);",
        )
        return made(
            inputs=[tiny, small],
            grid=(3, 1, 1),
            threadgroup=(3, 1, 1),
            output_shapes=[(3,), (3,)],
            output_dtypes=[mx.float32, mx.uint8],
        )

    for name in (*emulator.DEVICES, *FLUSHING):
        with device(name):
            half, positive = halves()
            mx.eval(half, positive)
        flushes = name != "emulated"
        assert half.tolist() == [0.0, 0.0 if flushes else 2.0**-127, 0.5]
        assert positive.tolist() == [1, 1, 1]
