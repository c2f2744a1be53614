"""Inputs: numbers of all bit patterns, then arrays that begin anywhere.

Comparisons are right also on a device that flushes subnormal numbers to zero. Apple's GPUs flush
those of 32-bit floats (and so of bfloat16, which is widened) but not of float16. The expected
results are computed in float64, which represents all these numbers exactly.
"""

import mlx.core as mx
import numpy as np
import pytest
from emulator import DEVICES, evaluated, run_source
from support.kernel_cases import assert_same_bits, bits

import mlx_unpool

# dtype: the unsigned integer of the same size, and the number of bits of the mantissa
FORMATS = {mx.float16: (np.uint16, 10), mx.bfloat16: (np.uint16, 7), mx.float32: (np.uint32, 23)}


def pairs(dtype: mx.Dtype) -> np.ndarray:
    """Pairs of patterns, (2, n).

    Each is paired with a neighbour and with a random one, every eleventh with each limit.

    All patterns of a 16-bit dtype; for float32 all exponents, both signs and seven mantissas. The
    limits are zero, subnormal numbers and their neighbours, one, infinity and NaN, of both signs.
    """
    word, at = FORMATS[dtype]
    sign = 1 << (8 * dtype.size - 1)
    infinity = sign - (1 << at)
    positive = [0, 1, (1 << at) - 1, 1 << at, infinity // 2 >> at << at]
    positive += [infinity - 1, infinity, infinity + 1]
    limits = np.array([*positive, *(p | sign for p in positive)], word)
    every = np.arange(1 << 16, dtype=word)
    if dtype == mx.float32:
        mantissas = np.array([0, 1, 2, 0x2AAAAA, 0x400000, 0x7FFFFE, 0x7FFFFF], word)
        every = (np.arange(1 << 9, dtype=word)[:, None] << 23 | mantissas).reshape(-1)
    some = every[::11]
    first = [every, every, np.tile(some, len(limits))]
    second = [every ^ 1, np.random.default_rng(0).permutation(every), np.repeat(limits, len(some))]
    return np.stack([np.concatenate(first), np.concatenate(second)])


def exact(words: np.ndarray, dtype: mx.Dtype) -> np.ndarray:
    """The numbers of bit patterns."""
    if dtype == mx.bfloat16:
        words = words.astype(np.uint32) << 16
    return words.view(f"f{words.itemsize}").astype(np.float64)


def second_wins(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Whether the second number is the maximum: of equal numbers the first, of NaNs the last."""
    return np.isnan(second) | (second > first)


POOLS = {
    "max_pool": lambda x: mlx_unpool.max_pool1d(x, 2, 1, return_indices=True),
    "adaptive": lambda x: mlx_unpool.adaptive_max_pool1d(x, 2, return_indices=True),
}


@pytest.mark.parametrize("name", ["cpu", *DEVICES])
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.filterwarnings("ignore:invalid value")  # NumPy converts signalling NaNs
def test_every_pattern_against_its_partners(dtype, pool, name):
    first, second = pairs(dtype)
    a, b = exact(first, dtype), exact(second, dtype)
    # Two windows of two elements contain each pair in both orders.
    x = mx.array(np.stack([first, second, first])[None]).view(dtype)
    wins = np.stack([second_wins(a, b), second_wins(b, a)])[None]
    values, indices = evaluated(lambda: POOLS[pool](x), name)
    np.testing.assert_array_equal(np.array(indices), wins + np.array([[[0], [1]]]))
    expected = np.where(wins, np.stack([second, first]), np.stack([first, second]))
    np.testing.assert_array_equal(np.array(bits(values)), expected)


@pytest.mark.parametrize("name", DEVICES)
def test_the_flushing_device_flushes_32_bit_numbers_only(name):
    tiny = mx.array([2.0**-149, 2.0**-126, 1.0], mx.float32)
    small = mx.array([2.0**-24, 2.0**-14, 1.0], mx.float16)
    source, outputs = "a[n] = x[n] * 0.5f; b[n] = y[n] > half(0);", {"a": mx.float32, "b": mx.uint8}
    half, positive = evaluated(lambda: run_source(source, {"x": tiny, "y": small}, outputs), name)
    assert half.tolist() == [0.0, 2.0**-127 if name == "emulated" else 0.0, 0.5]
    assert positive.tolist() == [1, 1, 1]


# ---- arrays that begin anywhere
#
# MLX passes a row-contiguous array to a kernel without a copy, so ``x[1:]`` begins at any element.
# The emulated device gives its inputs the same alignment and reports loads that need a larger one,
# also in the calls of test_metal_parity.py. MLX passes arrays of fewer than 8 elements in
# constant memory.


def part(x: mx.array, first: int) -> mx.array:
    """An array with the elements of ``x`` that begins ``first`` elements after another."""
    larger = mx.concatenate([mx.zeros((first,), x.dtype), x.reshape(-1)])
    mx.eval(larger)
    return larger[first:].reshape(x.shape)


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("shape", [(1, 1, 3, 1), (1, 1, 7, 1), (1, 2, 1, 3), (2, 6, 7, 4)], ids=str)
# dtypes of every size
@pytest.mark.parametrize("dtype", [mx.int8, mx.float16, mx.float32, mx.int64], ids=str)
def test_views_give_the_same_results_as_copies(dtype, shape, name):
    x = mx.array(np.random.default_rng(0).integers(-9, 9, shape)).astype(dtype)
    mx.eval(x)

    def call(first: int) -> list[mx.array]:
        values, indices = mlx_unpool.max_pool2d(part(x, first), 2, 1, 1, return_indices=True)
        mx.eval(values, indices)
        again = part(values, first), part(indices, first)
        return [values, indices, mlx_unpool.max_unpool2d(*again, 2, 1, 1, output_size=shape[1:3])]

    expected = evaluated(lambda: call(0), "cpu")
    for first in (1, 2, 3, 5):
        assert_same_bits(evaluated(lambda first=first: call(first), name), expected)


def test_an_input_in_constant_memory_must_be_4_byte_aligned():
    def call(x: mx.array) -> mx.array:
        return run_source("out[n] = x[n];", {"x": x}, {"out": x.dtype})[0]

    for size, first in ((7, 4), (8, 1)):  # 8 elements are not in constant memory
        x = part(mx.arange(size).astype(mx.int8), first)
        assert mx.array_equal(evaluated(lambda x=x: call(x), "emulated"), x)
    with pytest.raises(
        AssertionError, match="constant input that is not 4-byte aligned: x, byte 1"
    ):
        evaluated(lambda: call(part(mx.arange(7).astype(mx.int8), 1)), "emulated")
