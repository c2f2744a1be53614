"""Invalid indices are dropped, and no memory outside the arrays is read or written."""

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
WINDOW = 3, 2, 1  # kernel_size, stride, padding: the first window of an axis starts in the padding
HOSTILE = {
    mx.int8: [-1, -128, 48, 127],
    mx.int16: [-1, -(2**15), 48, 2**15 - 1],
    mx.int32: [-1, -(2**31), 48, 2**31 - 1, 2**31 - 64, 2**30, -(2**30)],
    mx.int64: [-1, -(2**63), 48, 2**63 - 1, 2**32, 2**32 + 5, -(2**32) + 5, 2**40, 2**31, 2**62],
    mx.uint32: [48, 2**32 - 1, 2**31, 2**31 + 5],
    mx.uint64: [48, 2**64 - 1, 2**63, 2**63 + 5, 2**32, 2**32 + 5, 2**64 - 2**32 + 5],
    mx.uint8: [*range(11), 128, 255],
    mx.uint16: [*range(11), 255, 256, 2**15, 2**16 - 1],
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


def indices_with(dtype: mx.Dtype, layout: Layout) -> tuple[mx.array, np.ndarray]:
    """Indices of a pool with every third one replaced, and their flat indices, -1 for dropped ones."""
    name = str(dtype).removeprefix("mlx.core.")
    is_window = dtype in (mx.uint8, mx.uint16)
    pool = reference.Pool(*((n, n) for n in (*WINDOW, 1)))
    planes = np.random.default_rng(0).standard_normal((layout.planes, *SIZE)).astype(np.float32)
    _, flat, window = reference.max_pool(planes, pool)
    given = (window if is_window else flat).astype(name)
    given.ravel()[::3] = np.resize(np.array(HOSTILE[dtype], dtype=name), given.size // 3)
    flat.ravel()[::3] = -1
    if is_window:
        flat = reference.flat_of_window(given, pool, SIZE, CELLS)
    return layout.arrange(given, dtype), flat


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.data_format)
@pytest.mark.parametrize("dtype", HOSTILE)
def test_hostile_indices_are_dropped_forwards_and_backwards(dtype, layout):
    indices, flat = indices_with(dtype, layout)
    assert indices.dtype == dtype
    values = np.random.default_rng(1).standard_normal((layout.planes, *CELLS)).astype(np.float32)
    values[flat < 0] = np.nan  # dropped, not multiplied by zero
    options = {"output_size": SIZE, "data_format": layout.data_format}
    for window in [WINDOW] if dtype in (mx.uint8, mx.uint16) else [WINDOW, (None,)]:
        unpool = lambda v, w=window: max_unpool2d(v, indices, *w, **options)
        check_unpool(unpool, values, mx.float32, layout, flat, SIZE)


# Shape and window: planes of almost 256 elements, in which positions are numbered in the narrowest dtype
OVERLAPPING = [((1, *shape), (3, 2, 1)) for shape in ((5, 5, 10), (5, 5, 9), (3, 17, 5), (8, 8, 1))]
OVERLAPPING += [((1, 8, 8, 1), (3, 1, 1)), ((1, 200, 1), (3, 1)), ((1, 7, 8, 4), (3, 1))]


@pytest.mark.parametrize(("shape", "window"), OVERLAPPING, ids=str)
@pytest.mark.parametrize("offset", [9, 128, 200, 255])
def test_invalid_offsets_of_overlapping_windows_drop_their_values(shape, window, offset):
    rank = len(shape) - 2
    values = getattr(mlx_unpool, f"max_pool{rank}d")(mx.ones(shape), *window)
    indices = mx.full(values.shape, offset, mx.uint8)
    full = getattr(mlx_unpool, f"max_unpool{rank}d")(values, indices, *window, output_size=shape[1:-1])
    assert not mx.any(full)


def test_an_offset_that_is_outside_the_plane_is_dropped():
    """Offset 5 of a 3x3 window is the right neighbour, which the last column does not have."""
    x = mx.arange(1.0, 65).reshape(1, 8, 8, 1)
    full = max_unpool2d(x, mx.full(x.shape, 5, mx.uint8), 3, 1, 1)
    expected = mx.concatenate([mx.zeros((1, 8, 1, 1)), x[:, :, :7]], axis=2)
    assert mx.array_equal(full, expected)


@pytest.mark.parametrize("kernel_size", [1, None])
@pytest.mark.parametrize("positions", [84, 85, 86, 21844, 21845, 21846])
def test_the_first_index_beyond_the_end_is_dropped(positions, kernel_size):
    """At the limits of the narrowest dtype for 3 channels: 85 * 3 = 255, 21,845 * 3 = 65,535."""
    layout = Layout(1, None, 3, "channels_last")
    flat = np.tile(np.arange(positions), (3, 1))
    flat[:, 0] = flat[1, 7] = positions
    values = np.arange(1, flat.size + 1, dtype=np.float32).reshape(flat.shape)
    for dtype in (mx.int32, mx.int64, mx.uint32):
        unpool = partial(
            mlx_unpool.max_unpool1d,
            indices=layout.arrange(flat, dtype),
            kernel_size=kernel_size,
            output_size=positions,
        )
        check_unpool(unpool, values, mx.float32, layout, flat, (positions,))


@pytest.mark.parametrize("index", [-1, 4, 0])
@pytest.mark.parametrize("count", [255, 256, 257, 65535, 65536, 65537])
def test_of_equal_indices_the_last_one_wins_or_all_are_dropped(count, index):
    """Pooled values are numbered in the narrowest dtype: these counts are at the limits of the dtypes."""
    layout, flat = Layout(1, 1, 1, "channels_last"), np.full((1, count), index)
    values = np.arange(1, count + 1, dtype=np.float32)[None]
    indices = layout.arrange(flat, mx.int32)
    unpool = lambda v: mlx_unpool.max_unpool1d(v, indices, None, output_size=4)
    check_unpool(unpool, values, mx.float32, layout, flat, (4,))
