"""Find out whether two frameworks differ because of near-ties.

If two values in a window differ only in the last bit, their order can change in another framework. Then the
index is different, and the unpooled value is at another position. With the indices of the other framework, a
correctly ported network gives the same scores up to rounding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx

from mlx_unpool import MaxPool1d, MaxPool2d, MaxPool3d


@contextlib.contextmanager
def pooled_indices(feed: Sequence[Any] | None = None) -> Iterator[list[mx.array]]:
    """Record the flat indices of pooling layers, in the order of the calls, and optionally replace them.

    Only the layers ``MaxPool1d``, ``MaxPool2d`` and ``MaxPool3d`` with ``return_indices=True`` are recorded.
    Not supported: functions such as ``mlx_unpool.max_pool2d``, and adaptive and fractional pools.

    Args:
        feed: Indices to return instead: one array per call of a layer with indices, in the layer's layout.

    Yields the list to which each call appends the indices that it computed.
    """
    found: list[mx.array] = []
    layers = (MaxPool1d, MaxPool2d, MaxPool3d)
    originals = [layer.__call__ for layer in layers]

    def noting(original: Any) -> Any:
        def call(self: Any, x: mx.array, **options: Any) -> Any:
            if not self.return_indices:
                return original(self, x, **options)
            index_format, self.index_format = self.index_format, "flat"  # as in other frameworks
            try:
                values, indices = original(self, x, **options)
            finally:
                self.index_format = index_format
            found.append(indices)
            if feed is not None and len(found) > len(feed):
                raise ValueError(
                    f"[pooled_indices] 'feed' has {len(feed)} arrays, but there are more calls of layers."
                )
            return values, indices if feed is None else mx.array(feed[len(found) - 1])

        return call

    for layer, original in zip(layers, originals):
        layer.__call__ = noting(original)  # type: ignore[method-assign]
    try:
        yield found
        if feed is not None and len(found) < len(feed):
            raise ValueError(
                f"[pooled_indices] 'feed' has {len(feed)} arrays, but {len(found)} calls of layers were "
                "recorded. Calls of functions such as mlx_unpool.max_pool2d are not recorded."
            )
    finally:
        for layer, original in zip(layers, originals):
            layer.__call__ = original  # type: ignore[method-assign]
