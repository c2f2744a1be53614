"""From the shapes that callers use to the one shape that everything below works on, and back.

Inside the library an array is (B, D, H, W, C). ``channels_last`` input (N, [D, [H,]] W, C) has B = N;
``channels_first`` input (N, C, [D, [H,]] W) has B = N * C and C = 1. Either is a reshape, never a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import mlx.core as mx

from . import _arguments
from ._geometry import Triple, triple

DATA_FORMATS = ("channels_last", "channels_first")


@dataclass(frozen=True)
class Layout:
    """How the arrays of one call are laid out."""

    rank: int
    channels_first: bool
    batched: bool
    batch: int
    channels: int

    def fold(self, x: mx.array) -> mx.array:
        """``x`` as (B, D, H, W, C)."""
        size = triple(self.spatial(x.shape))
        if self.channels_first:
            return x.reshape(self.batch * self.channels, *size, 1)
        return x.reshape(self.batch, *size, self.channels)

    def fold_bounds(self, x: mx.array) -> mx.array:
        """Numbers (N, C, n, 2) of every image and channel as (B, n, 2, C), to go with folded arrays."""
        if self.channels_first:
            return x.reshape(self.batch * self.channels, *x.shape[2:], 1)
        return x.transpose(0, 2, 3, 1)

    def pooled(
        self,
        x: mx.array,
        cells: Triple,
        index_dtype: mx.Dtype,
        pool: Callable[[mx.array], tuple[mx.array, mx.array]],
    ) -> tuple[mx.array, mx.array]:
        """Values and indices of ``x`` in the caller's layout, from what ``pool`` makes of it folded.

        Where there are no images or no channels, there is nothing to run.
        """
        if x.size == 0:
            shape = self.shape(cells[3 - self.rank :])
            return mx.zeros(shape, x.dtype), mx.zeros(shape, index_dtype)
        values, indices = pool(self.fold(x))
        return self.unfold(values), self.unfold(indices)

    def unfold(self, x: mx.array) -> mx.array:
        """An array (B, D, H, W, C) in the caller's layout."""
        return x.reshape(self.shape(x.shape[4 - self.rank : 4]))

    def shape(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """The caller's shape of an array with these spatial axes."""
        batch = (self.batch,) if self.batched else ()
        if self.channels_first:
            return (*batch, self.channels, *spatial)
        return (*batch, *spatial, self.channels)

    def spatial(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The spatial part of a caller's shape."""
        end = len(shape) - (not self.channels_first)
        return tuple(shape[end - self.rank : end])

    def spatial_of_full_shape(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """The spatial part of ``shape``, with or without batch, or None if the rest does not fit."""
        for batched in {self.batched, False}:
            other = replace(self, batched=batched)
            spatial = other.spatial(shape)
            if len(spatial) == self.rank and other.shape(spatial) == tuple(shape):
                return spatial
        return None


def layout_of(owner: str, name: str, x: mx.array, rank: int, data_format: str) -> Layout:
    """The layout of the array ``x`` that the caller passed as ``name``."""
    _arguments.choice(owner, "data_format", data_format, DATA_FORMATS)
    channels_first = data_format == "channels_first"
    if x.ndim not in (rank + 1, rank + 2):
        axes = ("D", "H", "W")[3 - rank :]
        order = ("C", *axes) if channels_first else (*axes, "C")
        raise ValueError(
            f"[{owner}] '{name}' must have shape (N, {', '.join(order)}) or ({', '.join(order)}) for "
            f"data_format='{data_format}' but got an array of shape {x.shape}."
        )
    batched = x.ndim == rank + 2
    return Layout(
        rank=rank,
        channels_first=channels_first,
        batched=batched,
        batch=x.shape[0] if batched else 1,
        channels=x.shape[-rank - 1] if channels_first else x.shape[-1],
    )
