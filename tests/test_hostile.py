"""Invalid indices are dropped, and no memory outside the arrays is read or written."""

from __future__ import annotations

from functools import partial

import mlx.core as mx
import numpy as np
import pytest
import reference
from arrays import Layout
from properties import check_unpool

import mlx_unpool
from mlx_unpool import max_unpool2d

SIZE, CELLS = (6, 8), (3, 4)
HOSTILE = {
    mx.int8: [-1, -128, 48, 127],
    mx.int16: [-1, -(2**15), 48, 2**15 - 1],
    mx.int32: [-1, -(2**31), 48, 2**31 - 1, 2**31 - 64, 2**30, -(2**30)],
    mx.int64: [-1, -(2**63), 48, 2**63 - 1, 2**32, 2**32 + 5, -(2**32) + 5, 2**40, 2**31, 2**62],
    mx.uint32: [48, 2**32 - 1, 2**31, 2**31 + 5],
    mx.uint64: [48, 2**64 - 1, 2**63, 2**63 + 5, 2**32, 2**32 + 5, 2**64 - 2**32 + 5],
    mx.uint8: [4, 5, 128, 255],
    mx.uint16: [4, 255, 256, 2**15, 2**16 - 1],
}
LAYOUTS = [Layout(2, 2, 3, "channels_last"), Layout(2, 2, 3, "channels_first")]


@pytest.fixture(autouse=True)
def bounds_are_checked(monkeypatch):
    """Check the numbers of MLX's scatters and gathers, which read and write wherever they point."""

    def checked(run, x, numbers, *rest, axis):
        assert ((numbers >= 0) & (numbers < x.shape[axis])).all().item()
        return run(x, numbers, *rest, axis=axis)

    for name in ("put_along_axis", "take_along_axis"):
        monkeypatch.setattr(mx, name, partial(checked, getattr(mx, name)))


def indices_with(
    hostile: list[int], dtype: mx.Dtype, layout: Layout
) -> tuple[mx.array, np.ndarray]:
    """Indices of a 2x2 pool with every third one replaced, and their flat indices, -1 for dropped ones."""
    name = str(dtype).removeprefix("mlx.core.")
    is_window = dtype in (mx.uint8, mx.uint16)
    pool = reference.Pool((2, 2), (2, 2), (0, 0), (1, 1))
    random = np.random.default_rng(0)
    planes = random.standard_normal((layout.planes, *SIZE)).astype(np.float32)
    _, flat, window = reference.max_pool(planes, pool)
    given = (window if is_window else flat).astype(name)
    expected = flat.copy()
    at = np.arange(0, given.size, 3)
    given.ravel()[at] = np.resize(np.array(hostile, dtype=name), at.size)
    expected.ravel()[at] = -1
    return layout.arrange(given, dtype), expected


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.data_format)
@pytest.mark.parametrize("dtype", HOSTILE)
def test_hostile_indices_are_dropped_forwards_and_backwards(dtype, layout):
    indices, flat = indices_with(HOSTILE[dtype], dtype, layout)
    assert indices.dtype == dtype
    values = np.random.default_rng(1).standard_normal((layout.planes, *CELLS)).astype(np.float32)
    values[flat < 0] = np.nan  # dropped, not multiplied by zero
    options = {"output_size": SIZE, "data_format": layout.data_format}
    for kernel_size in [2] if dtype in (mx.uint8, mx.uint16) else [2, None]:
        unpool = lambda v, k=kernel_size: max_unpool2d(v, indices, k, **options)  # noqa: E731
        check_unpool(unpool, values, mx.float32, layout, flat, SIZE)


@pytest.mark.parametrize("offset", range(9))
def test_window_indices_of_elements_outside_the_plane_are_dropped(offset):
    """The first window of an axis starts in the padding: element 0 of 3 is outside the plane."""
    pool = reference.Pool((3, 3), (2, 2), (1, 1), (1, 1))
    offsets = np.full((1, 3, 3), offset)
    flat = reference.flat_of_window(offsets, pool, (5, 5), (3, 3))
    layout = Layout(2, 1, 1, "channels_last")
    indices = layout.arrange(offsets, mx.uint8)
    unpool = lambda v: max_unpool2d(v, indices, 3, 2, 1, output_size=(5, 5))  # noqa: E731
    check_unpool(unpool, np.ones((1, 3, 3), np.float32), mx.float32, layout, flat, (5, 5))


@pytest.mark.parametrize("kernel_size", [1, None])
@pytest.mark.parametrize("positions", [84, 85, 86, 21844, 21845, 21846])
def test_the_first_index_beyond_the_end_is_dropped(positions, kernel_size):
    """At the limits of the narrowest dtype for 3 channels: 85 * 3 = 255, 21,845 * 3 = 65,535."""
    indices = np.arange(positions)[:, None].repeat(3, axis=1)
    indices[0, :] = indices[7, 1] = positions
    kept = indices < positions
    values = np.arange(1, 3 * positions + 1, dtype=np.float32).reshape(positions, 3)
    for dtype in (mx.int32, mx.int64, mx.uint32):
        given = mx.array(indices).astype(dtype)
        (full,), (gradient,) = mx.vjp(
            lambda v, i=given: mlx_unpool.max_unpool1d(v, i, kernel_size, output_size=positions),
            [mx.array(values)],
            [mx.array(values)],
        )
        assert mx.array_equal(full, mx.array(np.where(kept, values, 0)))
        assert mx.array_equal(gradient, full)


@pytest.mark.parametrize("count", [255, 256, 257, 65535, 65536, 65537])
def test_where_every_index_is_dropped_the_gradient_is_zero(count):
    """Pooled values are numbered in the narrowest dtype: these counts are at the limits of the dtypes."""
    values = mx.ones((1, count, 1))
    for bad in (-1, 4):
        indices = mx.full((1, count, 1), bad, mx.int32)
        (full,), (gradient,) = mx.vjp(
            lambda v, i=indices: mlx_unpool.max_unpool1d(v, i, None, output_size=4),
            [values],
            [mx.ones((1, 4, 1))],
        )
        assert not full.any().item()
        assert not gradient.any().item()
    # if all indices are equal, the last value wins
    indices = mx.zeros((1, count, 1), mx.int32)
    numbers = mx.arange(1.0, count + 1).reshape(1, count, 1)
    (full,), (gradient,) = mx.vjp(
        lambda v: mlx_unpool.max_unpool1d(v, indices, None, output_size=4),
        [numbers],
        [mx.ones((1, 4, 1))],
    )
    assert full.reshape(-1).tolist() == [count, 0, 0, 0]
    assert mx.array_equal(gradient, numbers == count)
