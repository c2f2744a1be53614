"""Layers that MLX lacks, or supports only for some numbers of dimensions."""

from __future__ import annotations

import functools
from typing import Literal, get_args

import mlx.core as mx
import mlx.nn as nn
import numpy as np

ResizeMode = Literal["nearest", "bilinear", "bicubic", "area"]
RESIZE_MODES = get_args(ResizeMode)


class BatchNorm(nn.BatchNorm):
    """``mlx.nn.BatchNorm`` that also accepts volumes (N, D, H, W, C)."""

    def __call__(self, x: mx.array) -> mx.array:
        if x.ndim < 5:
            return super().__call__(x)
        return super().__call__(x.flatten(1, -2)).reshape(x.shape)


def resize(x: mx.array, size: tuple[int, int], mode: str = "bilinear") -> mx.array:
    """Resize images (N, H, W, C) to a size, as PyTorch's ``interpolate(x, size=..., mode=...)`` does.

    ``mlx.nn.Upsample`` takes scale factors, which cannot express every size.

    Args:
        x: The images.
        size: Height and width of the result.
        mode: ``"nearest"``, ``"bilinear"``, ``"bicubic"`` (both with ``align_corners=False``) or ``"area"``.
    """
    for axis, length in zip((1, 2), size):
        if x.shape[axis] != length:
            weights = mx.array(resize_weights(x.shape[axis], length, mode)).astype(x.dtype)
            x = mx.moveaxis(mx.tensordot(x, weights, axes=[[axis], [1]]), -1, axis)
    return x


@functools.lru_cache(maxsize=64)
def resize_weights(before: int, after: int, mode: str) -> np.ndarray:
    """The matrix (new length, old length) that resizes an axis."""
    if mode not in RESIZE_MODES:
        raise ValueError(
            f"[resize] 'mode' must be one of {', '.join(RESIZE_MODES)} but got {mode!r}."
        )
    weights = np.zeros((after, before), np.float32)
    rows = np.arange(after)
    if mode == "area":
        for row in rows:
            start, stop = row * before // after, -(-(row + 1) * before // after)
            weights[row, start:stop] = 1 / (stop - start)
        return weights
    # In float32 as in PyTorch, because the nearest element can depend on the last bit.
    scale = np.float32(before) / np.float32(after)
    if mode == "nearest":
        nearest = np.floor(rows.astype(np.float32) * scale).astype(int)
        weights[rows, np.minimum(nearest, before - 1)] = 1
        return weights
    # Rounded once, like a fused multiply-add.
    position = ((rows + 0.5) * np.float64(scale) - 0.5).astype(np.float32)
    if mode == "bilinear":
        position = np.maximum(position, 0)
    first = np.floor(position).astype(int)
    t = position - first.astype(np.float32)
    parts = {0: 1 - t, 1: t} if mode == "bilinear" else cubic_parts(t)
    for offset, part in parts.items():
        np.add.at(weights, (rows, np.clip(first + offset, 0, before - 1)), part)
    return weights


def cubic_parts(t: np.ndarray) -> dict[int, np.ndarray]:
    """The weights of elements -1 to 2 for a position ``t`` from 0 to 1: Keys' kernel with a = -0.75."""
    a = np.float32(-0.75)

    def near(d: np.ndarray) -> np.ndarray:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: np.ndarray) -> np.ndarray:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return {-1: far(t + 1), 0: near(t), 1: near(1 - t), 2: far(2 - t)}
