"""Plans, and conversion between callers' layouts and the folded layout of the backends.

A folded array is (B, D, H, W, C). ``channels_last`` input (N, [D, [H,]] W, C) has B = N;
``channels_first`` input (N, C, [D, [H,]] W) has B = N * C and C = 1. Both are reshapes, without a
transpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import mlx.core as mx

from ._geometry import Geometry, Triple, triple, untriple
from ._types import LARGEST_AXIS


@dataclass(frozen=True)
class Layout:
    """The layout of the arrays of one call."""

    rank: int
    channels_first: bool
    batched: bool
    batch: int
    channels: int

    @staticmethod
    def of(caller: str, name: str, shape: Sequence[int], rank: int, channels_first: bool) -> Layout:
        """The layout of an array of this shape that the caller passed as ``name``."""
        if len(shape) not in (rank + 1, rank + 2):
            axes = untriple("DHW", rank)
            order = ", ".join(("C", *axes) if channels_first else (*axes, "C"))
            data_format = f"channels_{'first' if channels_first else 'last'}"
            raise ValueError(
                f"[{caller}] '{name}' must have shape (N, {order}) or ({order}) for "
                f"data_format='{data_format}' but got an array of shape {tuple(shape)}."
            )
        batched = len(shape) == rank + 2
        channels = shape[-rank - 1] if channels_first else shape[-1]
        return Layout(rank, channels_first, batched, shape[0] if batched else 1, channels)

    def size(self, shape: Sequence[int]) -> Triple:
        """The (depth, height, width) of an array of this shape."""
        return triple(self.spatial(shape))

    def folded(self, size: Triple) -> tuple[int, ...]:
        """The shape (B, D, H, W, C) of planes of ``size``."""
        if self.channels_first:
            return (self.batch * self.channels, *size, 1)
        return (self.batch, *size, self.channels)

    def fold(self, x: mx.array) -> mx.array:
        """``x`` as (B, D, H, W, C)."""
        return x.reshape(self.folded(self.size(x.shape)))

    def unfold(self, x: mx.array) -> mx.array:
        """An array (B, D, H, W, C) in the caller's layout."""
        return x.reshape(self.shape(x.shape[1:4]))

    def shape(self, size: Triple) -> tuple[int, ...]:
        """The shape, in the caller's layout, of an array with planes of ``size``."""
        batch, spatial = (self.batch,) if self.batched else (), untriple(size, self.rank)
        if self.channels_first:
            return (*batch, self.channels, *spatial)
        return (*batch, *spatial, self.channels)

    def spatial(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The spatial part of a caller's shape."""
        end = len(shape) - (not self.channels_first)
        return tuple(shape[end - self.rank : end])

    def spatial_of_full_shape(
        self, shape: Sequence[int], exact: bool = True
    ) -> tuple[int, ...] | None:
        """The spatial part of a full shape, with or without batch; None if ``shape`` is not full.

        If ``exact``, also None if the batch or the channels differ from this layout.
        """
        spatial = self.spatial(shape)
        if len(shape) not in (self.rank + 1, self.rank + 1 + self.batched):
            return None
        full = replace(self, batched=len(shape) == self.rank + 2).shape(triple(spatial))
        return spatial if not exact or full == tuple(shape) else None


@dataclass(frozen=True, eq=False)
class Plan:
    """How to pool or unpool arrays of one shape."""

    request: Any
    layout: Layout
    folded: tuple[int, ...]  # shape of the input as (B, D, H, W, C)
    shape: tuple[int, ...]  # shape of the result, in the caller's layout
    geometry: Geometry
    index_dtype: mx.Dtype

    def check_planes(self, count: int, is_gpu: bool) -> None:
        """Check the limit of array sizes on the CPU, with one extra position per plane."""
        if count * (self.geometry.most_positions + 1) > LARGEST_AXIS and not is_gpu:
            raise self.too_large(count)

    def too_large(self, planes: int) -> ValueError:
        """The error for arrays that are too large; ``mx.vmap`` has more planes than ``folded``."""
        name = self.request.size_argument if prod(self.shape) > prod(self.folded) else "x"
        shapes = f"{self.layout.shape(self.folded[1:4])} and {self.shape}"
        if planes > self.folded[0] * self.folded[4]:
            shapes += f" in {planes // (self.folded[0] * self.folded[4])} examples of mx.vmap"
        needed = (
            "give arrays of fewer than 2^31 elements on the CPU, with the padding and one extra "
            "position per plane"
        )
        return ValueError(
            f"[{self.request.caller}] '{name}' must {needed}, but got the shapes {shapes}. "
            "Use fewer images per call, or a GPU."
        )


def layout_hint(channels_first: bool) -> str:
    """The end of a message, for a shape that fits this layout and not the one that was passed."""
    order = "first" if channels_first else "last"
    return f" If the array is channels {order}, pass data_format='channels_{order}'."
