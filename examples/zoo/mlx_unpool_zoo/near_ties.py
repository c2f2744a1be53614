"""Finds out whether two frameworks differ because of near-ties.

Two values of a window that differ in the last bit can change order after a convolution in another framework.
The index changes with them, and the unpooled value goes elsewhere. Fed with the indices of the other
framework a network that was ported well gives the same scores up to rounding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_unpool import MaxPool1d, MaxPool2d, MaxPool3d


@contextlib.contextmanager
def pooled_indices(feed: Sequence[Any] | None = None) -> Iterator[list[mx.array]]:
    """Notes the indices that pooling layers give, in the order of the calls; on request replaces them.

    Args:
        feed: Indices to return instead, one array for each call of a layer that returns indices, in the
            layout of the layer.

    Yields:
        The list to which each call adds the indices that it found itself.
    """
    found: list[mx.array] = []
    layers = (MaxPool1d, MaxPool2d, MaxPool3d)
    originals = [layer.__call__ for layer in layers]

    def noting(original: Any) -> Any:
        def call(self: Any, x: mx.array, **options: Any) -> Any:
            result = original(self, x, **options)
            if not self.return_indices:
                return result
            values, indices = result
            found.append(indices)
            return values, indices if feed is None else mx.array(feed[len(found) - 1])

        return call

    for layer, original in zip(layers, originals):
        layer.__call__ = noting(original)  # type: ignore[method-assign]
    try:
        yield found
    finally:
        for layer, original in zip(layers, originals):
            layer.__call__ = original  # type: ignore[method-assign]


def share_of_flips(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """The share of indices that differ between two lists of arrays of the same shapes."""
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(ours, theirs, strict=True)]
    for a, b in pairs:
        if a.shape != b.shape:
            raise ValueError(
                "[share_of_flips] 'ours' and 'theirs' must have the same shapes "
                f"but got {a.shape} and {b.shape}."
            )
    return sum(int((a != b).sum()) for a, b in pairs) / max(1, sum(a.size for a, _ in pairs))
