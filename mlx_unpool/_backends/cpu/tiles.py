"""Scatters by comparison instead of by index, for small windows that cover the plane exactly."""

from __future__ import annotations

from typing import TypeGuard

import mlx.core as mx

from ..._geometry import Geometry, WindowGeometry
from ..._types import TRAITS, is_window
from .arrays import repeated, unfused


def windows_are_tiles(g: Geometry, indices: mx.array) -> TypeGuard[WindowGeometry]:
    """Whether small windows cover the plane exactly and there are enough channels for vector operations."""
    return (
        is_window(indices.dtype)
        and isinstance(g, WindowGeometry)
        and g.window.elements <= 4
        and indices.shape[4] >= 16
        and g.window.kernel == g.window.stride
        and all(axis.is_tiled for axis in g.axes)
    )


def scatter_to_tiles(values: mx.array, indices: mx.array, g: WindowGeometry) -> mx.array:
    """Every value at its offset in its window and zeros elsewhere; an invalid offset matches no element."""
    batch, d, h, w, channels = indices.shape
    kd, kh, kw = g.window.kernel
    split = (batch * d, 1, h, 1, w, 1, channels)
    full = (batch * d, kd, h, kh, w, kw, channels)
    offsets = mx.arange(g.window.elements, dtype=indices.dtype).reshape(1, kd, 1, kh, 1, kw, 1)
    hit = repeated(indices.reshape(split), full) == repeated(offsets, full)
    # Multiplied as integers, because NaN * 0 is NaN and -1.0 * 0 is -0.0.
    bits = values.view(TRAITS[values.dtype].unsigned)
    factor = unfused(hit.view(mx.uint8).astype(bits.dtype))
    result = repeated(bits.reshape(split), full) * factor
    return result.view(values.dtype).reshape(batch, *g.size, channels)
