"""Pooled values to their positions without a scatter, where windows tile the plane."""

from __future__ import annotations

import mlx.core as mx

from ..._geometry import Triple, Window
from ..._indices import is_window
from .arrays import repeated, unfused, unsigned_like
from .positions import tiles


def can_spread(indices: mx.array, window: Window, size: Triple) -> bool:
    """Whether small windows cover the plane exactly, with channels enough for vectors."""
    pooled = indices.shape[1:4]
    return (
        is_window(indices.dtype)
        and window.taps <= 4
        and indices.shape[4] >= 16
        and window.kernel == window.stride
        and all(tiles(window, size, pooled, axis) for axis in range(3))
    )


def spread(values: mx.array, indices: mx.array, window: Window) -> mx.array:
    """Every value at its offset in its window and zero at the others; no index can go astray."""
    batch, *pooled, channels = indices.shape
    (d, h, w), (kd, kh, kw) = pooled, window.kernel
    split = (batch * d, 1, h, 1, w, 1, channels)
    full = (batch * d, kd, h, kh, w, kw, channels)

    offsets = mx.arange(window.taps, dtype=indices.dtype).reshape(1, kd, 1, kh, 1, kw, 1)
    hit = repeated(indices.reshape(split), full) == repeated(offsets, full)
    # As integers, because NaN * 0 is not 0 and -1.0 * 0 has a sign.
    bits = values.view(unsigned_like(values))
    factor = unfused(hit.view(mx.uint8).astype(bits.dtype))
    result = repeated(bits.reshape(split), full) * factor
    return result.view(values.dtype).reshape(batch, d * kd, h * kh, w * kw, channels)
