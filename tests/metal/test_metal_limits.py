"""Kernels at the largest sizes: no product leaves its type, and no access leaves its array.

Arrays are as large as MLX allows, and only what the first and last threads touch takes memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import emulator
import metal_host
import mlx.core as mx
import numpy as np
import pytest

import mlx_unpool
from mlx_unpool import _backends
from mlx_unpool._geometry import Geometry, adaptive_geometry

MOST_NUMBERS = 2**16  # of an array that a kernel gets as it is; larger ones hold zeros


class Sparse(emulator.Emulator):
    """Runs the first, middle and last threads of every launch, and answers with zeros."""

    def _make(self, *, source: str, **arguments: Any) -> Callable[..., list[mx.array]]:
        kernel = emulator._metal_kernel(source=self.edit(source), **arguments)

        def call(*, inputs: list[mx.array], **options: Any) -> list[mx.array]:
            options["stream"] = mx.gpu
            examples = [mx.broadcast_to(mx.array(0, x.dtype), x.shape) for x in inputs]
            (launch,), _, _ = metal_host.launches_of(
                lambda *arrays: kernel(inputs=list(arrays), **options), *examples
            )
            self.launches.append(launch)
            arrays = [x if x.size <= MOST_NUMBERS else None for x in inputs]
            threads = int(np.prod(launch.grid, dtype=np.int64))
            order = {n for n in (0, 1, threads // 2, threads - 2, threads - 1) if 0 <= n < threads}
            with metal_host.Run(launch, metal_host.input_buffers(launch, arrays)) as running:
                report = running.walk(sorted(order), track=False)
            assert not report.failures, (launch.name, report.first)
            return [mx.broadcast_to(mx.array(0, dtype), shape) for shape, dtype in launch.outputs]

        return call


def huge(shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    return mx.broadcast_to(mx.array(0, dtype), shape)


def there_and_back(
    shape: tuple[int, ...],
    *window: Any,
    index_format: str = "flat",
    dtype: mx.Dtype = mx.int8,
    **options: Any,
) -> Callable[[], object]:
    """Pools, unpools, and takes the derivatives of both."""
    rank = len(shape) - 2
    max_pool = getattr(mlx_unpool, f"max_pool{rank}d")
    max_unpool = getattr(mlx_unpool, f"max_unpool{rank}d")

    def pool(x: mx.array) -> tuple[mx.array, mx.array]:
        return max_pool(x, *window, return_indices=True, index_format=index_format, **options)

    def call() -> None:
        x = huge(shape, dtype)
        values, indices = pool(x)

        def unpool(v: mx.array) -> mx.array:
            return max_unpool(v, indices, *window, output_size=shape[1:-1], **options)

        mx.vjp(lambda x: pool(x)[0], [x], [values])
        mx.vjp(unpool, [values], [x])

    return call


def adaptive(shape: tuple[int, ...], count: int) -> Callable[[], object]:
    """Adaptive pooling of one axis and its derivative, without the values of a table of every position."""
    size, cells = (1, 1, shape[1]), (1, 1, count)
    g = adaptive_geometry(size, cells)
    indices = mx.int32 if shape[1] < 2**31 else mx.int64

    def call() -> None:
        pooled = (shape[0], *cells, shape[2])
        metal = _backends.get("metal")
        metal.accumulate(huge(pooled, mx.int8), huge(pooled, indices), g)

    return call


END = 2**31 - 1  # the longest axis
CALLS = {
    "windows of one element": there_and_back((1, END, 1), 1),
    "disjoint windows, an axis that is no multiple": there_and_back((1, END, 1), 2),
    "disjoint windows, offsets": there_and_back((1, END, 1), 2, index_format="window"),
    "overlapping windows": there_and_back((1, END, 1), 3, 2, 1),
    "windows at every position": there_and_back((1, END, 1), 3, 1, 1),
    "windows at every position, offsets": there_and_back(
        (1, END, 1), 3, 1, 1, index_format="window"
    ),
    "many elements": there_and_back((1, END, 1), 40, 1, 19),
    "a plane just below 2^31": there_and_back((1, 46340, 46341, 1), 3, 1, 1),
    "a plane just above 2^31": there_and_back((1, 46341, 46342, 1), 3, 1, 1, index_format="window"),
    "long strides": there_and_back((1, END, 1), 2, 2**30),
    "long dilation": there_and_back((1, END, 1), 2, 1, 0, dilation=2**31 - 10),
    "long dilation, offsets": there_and_back(
        (1, END, 1), 2, 1, 0, dilation=2**31 - 10, index_format="window"
    ),
    "padding longer than the axis": there_and_back((1, 5, 1), 3, 1, 2**30, dilation=2**30),
    "padding and stride": there_and_back((1, END, 1), 3, 2**30, 2**30, dilation=2**30),
    "many far elements": there_and_back((1, END, 1), 100, 5, 0, dilation=21_000_000),
    "many far elements, offsets": there_and_back(
        (1, END, 1), 100, 5, 0, dilation=21_000_000, index_format="window"
    ),
    "a pool of everything": lambda: mlx_unpool.adaptive_max_pool1d(
        huge((1, END, 1), mx.int8), 1, return_indices=True
    ),
    "adaptive windows on more than 2^30": adaptive((1, 2**30 + 3, 1), 5),
    "adaptive windows on the longest axis": adaptive((1, END - 2, 1), 5),
    "many channels": there_and_back((2**15, 2, 2**16), 2, dtype=mx.int8),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_access_out_of_bounds_and_no_overflow(name):
    device = Sparse()
    with device.installed():
        CALLS[name]()
    assert device.launches


def test_a_mistake_would_be_found():
    old = "const AXIS d0 = s.d * SD - PD, h0 = s.h * SH - PH, w0 = s.w * SW - PW;"
    device = Sparse(lambda text: text.replace(old, old.replace("s.w * SW", "int(s.w) * SW * 2")))
    with pytest.raises(AssertionError, match="undefined behaviour"), device.installed():
        CALLS["windows of one element"]()


@pytest.mark.parametrize("index_format", ["flat", "window"])
def test_padding_and_dilation_near_2_to_the_31(index_format):
    """Elements 2^30 apart: a product of two of these numbers does not fit into 32 bits."""
    x = mx.array([[[3.0], [1.0]]])

    def call(length: int) -> list[mx.array]:
        window = {"kernel_size": 3, "stride": 1, "padding": 2**30, "dilation": 2**30}
        pooled = mlx_unpool.max_pool1d(
            x[:, :length], **window, return_indices=True, index_format=index_format
        )
        return [*pooled, mlx_unpool.max_unpool1d(*pooled, **window, output_size=(length,))]

    for length in (1, 2):
        expected = call(length)
        device = emulator.Emulator()
        with device.installed():
            got = call(length)
        assert all(mx.array_equal(a, b).item() for a, b in zip(expected, got, strict=True))


@pytest.mark.parametrize("width", [65537, 65536])
def test_numbers_of_pooled_values_are_32_bits_wide(width):
    """Windows too large for one thread: a plane has 2^31 - 32769 pooled values, or 2^31."""
    pooled = (1, 32767 if width == 65537 else 32768, width, 1)
    values, indices = huge(pooled, mx.int8), huge(pooled, mx.int32)
    g = Geometry((1, 4, 4), (1, *pooled[1:3]))
    device = Sparse()
    with device.installed():
        if width == 65537:
            _backends.get("metal").place(values[None], indices[None], g)
            assert device.launches
        else:
            with pytest.raises(ValueError, match="at most 2147483647 pooled values"):
                _backends.get("metal").place(values[None], indices[None], g)
