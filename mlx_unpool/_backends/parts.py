"""Arrays that are too big for one go, in parts.

MLX counts the elements of an axis in 32 bits, and plain operations flatten: every image to one axis, some of
them all images. Images and channels have nothing to do with each other, so arrays of 2^31 elements and more
are halved until their parts fit. Where one channel of one image does not, there is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import mlx.core as mx

from .._geometry import Geometry, RegionGeometry, Triple, WindowGeometry

MOST_ELEMENTS = 2**31 - 1


class PlaneTooBigError(ValueError):
    """A plane cannot be worked on by plain operations."""

    def __init__(self, size: Triple, caller: str = "mlx_unpool", name: str = "x") -> None:
        self.size = size
        super().__init__(
            f"[{caller}] '{name}' must have fewer than 2^31 - 1 positions in a plane for this call on the "
            f"CPU but got {size}."
        )

    def named(self, caller: str, name: str, rank: int) -> ValueError:
        """The same of a caller's argument."""
        return ValueError(str(PlaneTooBigError(self.size[3 - rank :], caller, name)))


class InParts:
    """A backend of plain operations for arrays of any size."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def pool(
        self, x: mx.array, g: WindowGeometry, index_dtype: mx.Dtype
    ) -> tuple[mx.array, mx.array]:
        """As of every backend, as all of these."""
        return self._run("pool", [x], g, index_dtype)

    def pool_regions(
        self, x: mx.array, bounds: mx.array, g: RegionGeometry, index_dtype: mx.Dtype
    ) -> tuple[mx.array, mx.array]:
        return self._run("pool_regions", [x, bounds], g, index_dtype)

    def place(self, values: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        return self._run("place", [values, indices], g)

    def accumulate(self, values: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        return self._run("accumulate", [values, indices], g)

    def pick(self, full: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        return self._run("pick", [full, indices], g)

    def pick_winners(self, full: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        return self._run("pick_winners", [full, indices], g)

    def _run(self, name: str, arrays: Sequence[mx.array], g: Geometry, *more: mx.Dtype) -> Any:
        batch, *_, channels = arrays[0].shape
        # Behind the elements of a plane there may be a spare one for each channel.
        if batch * channels * (g.most_positions + 1) <= MOST_ELEMENTS:
            return getattr(self._backend, name)(*arrays, g, *more)
        axis, length = (0, batch) if batch > 1 else (4, channels)
        if length > 1:
            halves = zip(*(_halves(x, axis, length // 2) for x in arrays))
            both = [self._run(name, half, g, *more) for half in halves]
            if isinstance(both[0], tuple):
                return tuple(mx.concatenate(list(pair), axis) for pair in zip(*both))
            return mx.concatenate(both, axis)
        try:
            return getattr(self._backend, name)(*arrays, g, *more)
        except OverflowError as error:
            raise PlaneTooBigError(max(g.size, g.pooled, key=prod)) from error


def _halves(x: mx.array, axis: int, middle: int) -> Sequence[mx.array]:
    """Two parts of an array; both are all of it where it has one row for all."""
    axis -= 5 - x.ndim if axis else 0  # the channels are the last axis
    return [x, x] if x.shape[axis] == 1 else list(mx.split(x, [middle], axis))
