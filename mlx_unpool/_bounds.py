"""The bounds (start and stop) of windows that differ in size or distance, as arrays.

Their shape is (1, n, 2, 1) if the windows are the same for all images and channels, otherwise (B, n, 2, 1 or
C). n is OD + OH + OW: the windows along the depth, then the height, then the width.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from ._geometry import AdaptiveGeometry, BoundsFormula, FractionalGeometry, Triple


def bounds_array(table: Any, formula: BoundsFormula, counts: Triple) -> mx.array:
    """``formula(axis, n)`` for every ``n`` below the count of each axis, as int32 (n, 2).

    It is a constant if ``table`` contains the pairs. Otherwise it is computed lazily, like every array.
    """
    if table is not None:
        return mx.array(table).reshape(-1, 2)
    numbers = (mx.arange(count, dtype=mx.int64) for count in counts)
    both = [mx.stack(list(formula(axis, n)), axis=1) for axis, n in enumerate(numbers)]
    return mx.concatenate(both).astype(mx.int32)


def adaptive_bounds(g: AdaptiveGeometry) -> mx.array:
    """The bounds of adaptive windows."""
    return bounds_array(g.bounds_table, g.ends, g.pooled)[None, ..., None]


def fractional_bounds(samples: mx.array, g: FractionalGeometry) -> mx.array:
    """The bounds of fractional windows from samples ``u`` (B, rank, C), one for each spatial axis.

    Window ``i`` starts at ``floor((i + u) * a) - floor(u * a)`` with ``a = (L - k) / (n - 1)``, the last one
    at ``L - k`` (after Graham, "Fractional Max-Pooling", 2014). As in PyTorch, this is computed in float32.
    Samples are clipped to the range from 0 to 1, and NaN becomes 0.
    """
    samples = samples.astype(mx.float32)
    samples = mx.where(samples > 0, mx.minimum(samples, 1), 0)
    batch, rank, channels = samples.shape
    starts, lengths = [], []
    for axis, (length, n, k) in enumerate(zip(g.size, g.pooled, g.longest)):
        last = length - k
        number = axis - (3 - rank)  # of the sample; the axes before the first spatial one have none
        if n > 1 and number >= 0:
            u = samples[:, number, None]
            step = last / (n - 1)
            start = mx.floor((mx.arange(n - 1)[:, None] + u) * step) - mx.floor(u * step)
            # float32 cannot represent odd numbers above 2^24, so rounding up could exceed the axis.
            starts.append(mx.minimum(start.astype(mx.int32), last))
        starts.append(mx.full((batch, 1, channels), last, mx.int32))
        lengths.append(mx.full((n, 1), k, mx.int32))
    start = mx.concatenate(starts, axis=1)
    return mx.stack([start, start + mx.concatenate(lengths)], axis=2)
