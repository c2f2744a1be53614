"""Typical uses and their types; tests/test_typing.py runs type checkers on this file."""

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn

import mlx_unpool
from mlx_unpool import MaxPool2d, MaxUnpool2d

if TYPE_CHECKING:
    from typing_extensions import assert_type

    x = mx.zeros((1, 4, 6, 3))

    # A pool returns an array or, with return_indices, a pair: uses of either kind are accepted.
    assert_type(mlx_unpool.max_pool2d(x, 2), mx.array | Any)
    total: mx.array = mlx_unpool.max_pool2d(x, (2, 2), 2, 0, return_indices=False) + 1
    pooled: mx.array = mlx_unpool.adaptive_max_pool2d(x, (None, 2))
    mx.eval((MaxPool2d(2)(x) * 2).sum(), -mlx_unpool.fractional_max_pool2d(x, 2, output_ratio=0.5))
    values, indices = mlx_unpool.max_pool3d(x[None], 2, return_indices=True, index_format="window")
    assert_type(mlx_unpool.max_unpool2d(values, indices, 2, output_size=x.shape), mx.array)

    def pair() -> tuple[mx.array, mx.array]:
        """A pair must be unpacked before it is returned."""
        values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
        return values, indices

    mx.eval(MaxPool2d(3, 2, "same")(x), mlx_unpool.max_pool2d(x, 3, 2, [1, (0, 2)]))
    pool = MaxPool2d(2, return_indices=True, data_format="channels_first")
    values, indices = pool(x)
    unpool = MaxUnpool2d.from_pool(pool)
    assert_type(unpool, MaxUnpool2d)
    assert_type(unpool(values, indices, output_size=x.shape), mx.array)
    assert_type(mlx_unpool.MaxUnpool1d(None, index_format="flat"), mlx_unpool.MaxUnpool1d)
    assert_type(MaxUnpool2d(2, index_format=None)(x, indices, 4, stream=mx.cpu), mx.array)
    assert_type(mlx_unpool.max_unpool2d(values, indices, 2, index_format="window"), mx.array)
    assert_type(mlx_unpool.replace_max_pools(nn.Sequential(nn.MaxPool2d(2))), nn.Sequential)

    assert_type(mlx_unpool.convert_indices(indices, "flat", "tensorflow_batch", (4, 6)), mx.array)
    first = mlx_unpool.convert_indices(
        indices, "pytorch", "window", x.shape, (2, 2), target_data_format="channels_first"
    )
    mlx_unpool.check_indices(first, (4, 6), 2, padding=((0, 1), 1), data_format="channels_first")
    mlx_unpool.check_indices(first, (4, 6), 2, index_format="window")
    with mlx_unpool.use_backend("ops"), mlx_unpool.checking(), mlx_unpool.exporting():
        mx.eval(first)
