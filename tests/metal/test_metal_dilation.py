"""Work grows with the elements of windows, not with the distance between them."""

from __future__ import annotations

from typing import Any

import emulator
import mlx.core as mx
import pytest

import mlx_unpool

COUNT = 256  # pooled values
VALUE, INDEX = 4, 4  # bytes


def read(
    kernel_size: int, dilation: int, index_format: str, backward: bool, **window: Any
) -> tuple[int, int]:
    """Bytes that the last launches read, and the number of outputs."""
    window = {"kernel_size": kernel_size, "stride": 1, "dilation": dilation, **window}
    size = (COUNT - 1) * window["stride"] + dilation * (kernel_size - 1) + 1
    x = mx.random.normal((1, size, 1), key=mx.random.key(0))
    with mx.stream(mx.cpu):
        values, indices = mlx_unpool.max_pool1d(
            x, **window, return_indices=True, index_format=index_format
        )
        mx.eval(values, indices)
    device = emulator.Emulator()
    device.count = True
    with device.installed():
        if backward:
            mx.eval(mx.vjp(lambda x: mlx_unpool.max_pool1d(x, **window), [x], [values])[1])
        else:
            mx.eval(mlx_unpool.max_unpool1d(values, indices, **window, output_size=(size,)))
    traffic = device.reports[-1].traffic  # of the launch that writes the outputs
    return sum(traffic[name, "read"]["bytes"] for name in ("values", "indices")), size


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("index_format", ["flat", "window"])
@pytest.mark.parametrize("dilation", [2, 64, 4096])
def test_an_output_reads_each_window_that_covers_it(dilation, index_format, backward):
    reads, outputs = read(3, dilation, index_format, backward)
    assert reads <= 3 * (VALUE + INDEX) * outputs


@pytest.mark.parametrize("stride", [1, 3, 4])
@pytest.mark.parametrize("index_format", ["flat", "window"])
def test_an_output_of_large_windows_reads_each_window_that_covers_it(index_format, stride):
    """Of 70 elements: sums by the general kernel, whose work a dilation of 1 bounds."""
    near, outputs = read(70, 5, index_format, True, stride=stride)
    far, more_outputs = read(70, 500, index_format, True, stride=stride)
    assert far / more_outputs <= 1.2 * near / outputs
    assert far <= 70 * (VALUE + INDEX) * more_outputs
