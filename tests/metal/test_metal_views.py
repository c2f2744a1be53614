"""Arrays that begin anywhere give the same results as copies, also tiny ones.

MLX passes a row-contiguous array to a kernel without a copy, so ``x[1:]`` begins at any element. The emulated
device gives its inputs the same alignment and reports loads that need a larger one. It does so for every call
of ``test_metal_parity.py``; MLX passes arrays of fewer than 8 elements in constant memory.
"""

import emulator
import mlx.core as mx
import numpy as np
import pytest
from emulator import DEVICES, evaluated
from support.kernel_cases import assert_same_bits

import mlx_unpool


def part(x: mx.array, first: int) -> mx.array:
    """An array with the elements of ``x`` that begins ``first`` elements after another."""
    larger = mx.concatenate([mx.zeros((first,), x.dtype), x.reshape(-1)])
    mx.eval(larger)
    return larger[first:].reshape(x.shape)


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("shape", [(1, 1, 3, 1), (1, 1, 7, 1), (1, 2, 1, 3), (2, 6, 7, 4)], ids=str)
@pytest.mark.parametrize("dtype", [mx.int8, mx.float16, mx.float32, mx.int64], ids=str)  # of every size
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
        return emulator.run_source("out[n] = x[n];", {"x": x}, {"out": x.dtype})[0]

    for size, first in ((7, 4), (8, 1)):  # 8 elements are not in constant memory
        x = part(mx.arange(size).astype(mx.int8), first)
        assert mx.array_equal(evaluated(lambda x=x: call(x), "emulated"), x)
    with pytest.raises(AssertionError, match="constant input that is not 4-byte aligned: x, byte 1"):
        evaluated(lambda: call(part(mx.arange(7).astype(mx.int8), 1)), "emulated")
