"""The bounds (start and stop) of windows that differ in size or distance, as arrays.

Their shape is (1, n, 2, 1), or (B, n, 2, 1 or C) for windows that are random. n is OD + OH + OW:
the windows along the depth, then the height, then the width.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from ._geometry import BoundsFormula, RegionGeometry, Triple


def bounds_array(table: Any, formula: BoundsFormula, counts: Triple) -> mx.array:
    """``formula(axis, n)`` for every ``n`` below the count of each axis, as int32 (n, 2).

    It is a constant if ``table`` contains the pairs. Otherwise it is computed lazily, like every
    array.
    """
    if table is not None:
        return mx.array(table).reshape(-1, 2)
    numbers = (mx.arange(count, dtype=mx.int64) for count in counts)
    both = [mx.stack(list(formula(axis, n)), axis=1) for axis, n in enumerate(numbers)]
    return mx.concatenate(both).astype(mx.int32)


def fixed_bounds(g: RegionGeometry) -> mx.array:
    """The bounds of windows that are not random."""
    return bounds_array(g.bounds_table, g.bounds, g.pooled)[None, ..., None]
