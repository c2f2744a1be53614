"""Arrays that begin anywhere, are tiny, transposed or broadcast: results are those of fresh copies.

MLX hands a kernel an array as it is if its rows are contiguous, so ``x[1:]`` begins wherever an element may.
The emulated device puts inputs where they begin, so that a load that wants more alignment is reported.
"""

from __future__ import annotations

import emulator
import metal_host
import mlx.core as mx
import numpy as np
import pytest
from emulator import DEVICES, FLUSHING, device
from kernel_cases import same_bits

import mlx_unpool

SHAPE = (2, 6, 8, 4)
TYPES = (mx.int8, mx.uint8, mx.float16, mx.bfloat16, mx.int16, mx.float32, mx.int64)


def part(x: mx.array, first: int) -> mx.array:
    """An array with the numbers of ``x`` that begins ``first`` elements into a larger one."""
    larger = mx.concatenate([mx.zeros((first,), x.dtype), x.reshape(-1)])
    mx.eval(larger)
    return larger[first:].reshape(x.shape)


def transposed(x: mx.array) -> mx.array:
    there = mx.contiguous(x.transpose(3, 1, 2, 0))
    mx.eval(there)
    return there.transpose(3, 1, 2, 0)


def reversed_rows(x: mx.array) -> mx.array:
    there = mx.contiguous(x[:, ::-1])
    mx.eval(there)
    return there[:, ::-1]


VIEWS = {
    **{f"from element {n} on": (lambda x, n=n: part(x, n)) for n in (1, 2, 3, 5, 7)},
    "transposed": transposed,
    "reversed": reversed_rows,
    "every second": lambda x: mx.repeat(x, 2, axis=2)[:, :, ::2],
}


def whole(shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    x = mx.array(np.random.default_rng(0).integers(-9, 9, shape)).astype(dtype)
    mx.eval(x)
    return x


def everything(x: mx.array, view=lambda x: x) -> list[mx.array]:
    """Pools and unpools views of arrays; of floats also the derivatives, of views of cotangents."""
    out: list[mx.array] = []
    size = x.shape[1:3]
    for window, index_format in (((2, 2), "window"), ((3, 2, 1), "flat")):
        values, indices = mlx_unpool.max_pool2d(
            view(x), *window, return_indices=True, index_format=index_format
        )
        mx.eval(values, indices)
        unpool = lambda v, i, w=window: mlx_unpool.max_unpool2d(v, i, *w, output_size=size)  # noqa: E731
        out += [values, indices, unpool(view(values), view(indices))]
        if mx.issubdtype(x.dtype, mx.floating):
            pool = lambda x, w=window: mlx_unpool.max_pool2d(x, *w)  # noqa: E731
            out += mx.vjp(pool, [view(x)], [view(values)])[1]
            from_view = lambda v, i=indices, unpool=unpool: unpool(v, view(i))  # noqa: E731
            out += mx.vjp(from_view, [view(values)], [view(x)])[1]
    values, indices = mlx_unpool.adaptive_max_pool2d(view(x), (4, 3), return_indices=True)
    mx.eval(values, indices)
    out += [values, indices]
    out.append(mlx_unpool.max_unpool2d(view(values), view(indices), None, output_size=size))
    return out


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """The kernels of this module, compiled together."""
    if "emulated" in DEVICES and not metal_host.compiler_missing():
        emulator.compile_all(
            [lambda dtype=dtype: everything(whole(SHAPE, dtype)) for dtype in TYPES]
        )


@pytest.mark.parametrize("name", [*DEVICES, *FLUSHING])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_views_give_what_copies_give(dtype, view, name):
    x = whole(SHAPE, dtype)
    with device("cpu"):
        expected = everything(x)
        mx.eval(expected)
    with device(name):
        got = everything(x, VIEWS[view])
        mx.eval(got)
    assert all(same_bits(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("name", [*DEVICES, *FLUSHING])
@pytest.mark.parametrize("shape", [(1, 1, 3, 1), (1, 2, 1, 3), (1, 2, 2, 1)], ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_tiny_views_which_lie_in_constant_memory(dtype, shape, name):
    x = whole(shape, dtype)
    with device("cpu"):
        expected = mlx_unpool.max_pool2d(x, 2, 1, 1, return_indices=True)
        full = mlx_unpool.max_unpool2d(*expected, 2, 1, 1, output_size=shape[1:3])
        mx.eval(expected, full)
    for first in (1, 2, 3):
        with device(name):
            values, indices = mlx_unpool.max_pool2d(part(x, first), 2, 1, 1, return_indices=True)
            mx.eval(values, indices)
            again = mlx_unpool.max_unpool2d(
                part(values, first), part(indices, first), 2, 1, 1, output_size=shape[1:3]
            )
            mx.eval(again)
        assert same_bits(values, expected[0])
        assert same_bits(indices, expected[1])
        assert same_bits(again, full)


@pytest.mark.parametrize("name", [*DEVICES, *FLUSHING])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_broadcast_arrays(dtype, name):
    x = mx.broadcast_to(whole((1, 6, 1, 4), dtype), SHAPE)
    with device("cpu"):
        expected = everything(mx.array(np.array(x.astype(mx.float32))).astype(dtype))
        mx.eval(expected)
    with device(name):
        got = everything(x)
        mx.eval(got)
    assert all(same_bits(a, b) for a, b in zip(got, expected, strict=True))


def test_the_emulated_device_knows_where_an_array_begins():
    x = mx.arange(64, dtype=mx.int8)
    mx.eval(x)
    for first in (0, 1, 5, 17):
        tail = x[first:]
        mx.eval(tail)
        assert metal_host.offset_of(tail) == first % metal_host.ALIGNMENT
    columns = mx.zeros((4, 4))[:, 1:]
    mx.eval(columns)
    assert metal_host.offset_of(columns) == 0  # MLX makes a copy of it


def test_a_load_that_wants_more_alignment_than_an_element_is_reported():
    x = mx.arange(65, dtype=mx.float32)
    mx.eval(x)

    def load_four(x: mx.array) -> mx.array:
        kernel = mx.fast.metal_kernel(
            name="load_four",
            input_names=["x"],
            output_names=["out"],
            source="uint n = thread_position_in_grid.x; struct alignas(16) Four { float v[4]; };"
            "out[n] = ((const device Four*)x)[n].v[3];",
        )
        return kernel(
            inputs=[x],
            grid=(16, 1, 1),
            threadgroup=(16, 1, 1),
            output_shapes=[(16,)],
            output_dtypes=[mx.float32],
        )[0]

    for array, clean in ((x[:64], True), (x[1:], False)):
        metal = emulator.Emulator()
        metal.must_be_clean = False
        with metal.installed():
            mx.eval(load_four(array))
        assert metal.reports[0].clean == clean
