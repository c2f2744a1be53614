"""Arrays that begin anywhere, are tiny, transposed or broadcast give the same results as copies.

MLX passes a row-contiguous array to a kernel without a copy, so ``x[1:]`` begins at any element. The emulated
device gives its inputs the same alignment and reports loads that need a larger one.
"""

import emulator
import mlx.core as mx
import numpy as np
import pytest
from emulator import DEVICES, evaluated
from kernel_cases import assert_same_bits

import mlx_unpool

DTYPES = (mx.int8, mx.float16, mx.float32, mx.int64)  # of every size


def part(x: mx.array, first: int) -> mx.array:
    """An array with the elements of ``x`` that begins ``first`` elements after another."""
    larger = mx.concatenate([mx.zeros((first,), x.dtype), x.reshape(-1)])
    mx.eval(larger)
    return larger[first:].reshape(x.shape)


def viewed(x: mx.array, view: str) -> mx.array:
    """A view with the elements of ``x``."""
    if view.isdecimal():
        return part(x, int(view))
    if view == "every second":
        return mx.repeat(x, 2, axis=2)[:, :, ::2]
    turned = (lambda x: x.swapaxes(0, 3)) if view == "transposed" else (lambda x: x[:, ::-1])
    copy = mx.contiguous(turned(x))
    mx.eval(copy)
    return turned(copy)


def whole(shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    x = mx.array(np.random.default_rng(0).integers(-9, 9, shape)).astype(dtype)
    mx.eval(x)
    return x


def everything(x: mx.array, view=lambda x: x) -> list[mx.array]:
    """The results of pooling and unpooling views of arrays and, for floats, the derivatives."""
    out: list[mx.array] = []
    size = x.shape[1:3]
    for window, index_format in (((2, 2), "window"), ((3, 2, 1), "flat")):
        options = {"return_indices": True, "index_format": index_format}
        pool = lambda x, w=window, o=options: mlx_unpool.max_pool2d(x, *w, **o)[0]
        unpool = lambda v, i, w=window: mlx_unpool.max_unpool2d(v, view(i), *w, output_size=size)
        values, indices = mlx_unpool.max_pool2d(view(x), *window, **options)
        mx.eval(values, indices)
        out += [values, indices, unpool(view(values), indices)]
        if mx.issubdtype(x.dtype, mx.floating):
            out += mx.vjp(pool, [view(x)], [view(values)])[1]
            out += mx.vjp(lambda v, i=indices, f=unpool: f(v, i), [view(values)], [view(x)])[1]
    values, indices = mlx_unpool.adaptive_max_pool2d(view(x), (4, 3), return_indices=True)
    mx.eval(values, indices)
    return [
        *(*out, values, indices),
        mlx_unpool.max_unpool2d(view(values), view(indices), None, output_size=size),
    ]


SHAPE = (2, 6, 8, 4)


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    emulator.compile_all([lambda d=d: everything(whole(SHAPE, d)) for d in DTYPES])


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("view", ["1", "2", "3", "5", "7", "transposed", "reversed", "every second"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_views_give_the_same_results_as_copies(dtype, view, name):
    x = whole(SHAPE, dtype)
    got = evaluated(lambda: everything(x, lambda x: viewed(x, view)), name)
    assert_same_bits(got, evaluated(lambda: everything(x), "cpu"))


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("shape", [(1, 1, 3, 1), (1, 1, 7, 1), (1, 2, 1, 3)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tiny_views_which_metal_passes_in_constant_memory(dtype, shape, name):
    x = whole(shape, dtype)

    def call(first: int) -> list[mx.array]:
        values, indices = mlx_unpool.max_pool2d(part(x, first), 2, 1, 1, return_indices=True)
        mx.eval(values, indices)
        again = part(values, first), part(indices, first)
        return [values, indices, mlx_unpool.max_unpool2d(*again, 2, 1, 1, output_size=shape[1:3])]

    expected = evaluated(lambda: call(0), "cpu")
    for first in (1, 2, 3):
        assert_same_bits(evaluated(lambda first=first: call(first), name), expected)


def test_an_input_in_constant_memory_must_be_4_byte_aligned():
    def call(x: mx.array) -> mx.array:
        return emulator.run_source("out[n] = x[n];", {"x": x}, {"out": x.dtype})[0]

    for size, first in ((7, 4), (8, 1)):  # 8 elements are not in constant memory
        x = part(mx.arange(size).astype(mx.int8), first)
        assert mx.array_equal(evaluated(lambda x=x: call(x), "emulated"), x)
    with pytest.raises(AssertionError, match="constant input that is not 4-byte aligned: x, byte 1"):
        evaluated(lambda: call(part(mx.arange(7).astype(mx.int8), 1)), "emulated")
