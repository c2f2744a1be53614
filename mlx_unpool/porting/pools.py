"""Record the indices of a model's pooling layers, or replace them by those of its original."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import mlx.core as mx

from .. import MaxPool1d, MaxPool2d, MaxPool3d, convert_indices
from .._layer import instead_of_pooling
from .._scopes import set_inside

Format = Literal["flat", "tensorflow", "tensorflow_batch", "onnx", "onnx_column_major", "pytorch"]


class PoolCall(NamedTuple):
    """A call of a pooling layer with ``return_indices=True``.

    Attributes:
        layer: The layer.
        indices: The flat indices that it computed.
        flips: How many given indices differ from these.
        gap: The largest difference between the maximum of a window and the value at the given
            index, divided by the largest absolute value of the layer's input. Near-ties give 1e-6
            or less.
        duplicates: How many positions are the given index of several windows.
    """

    layer: Any
    indices: mx.array
    flips: mx.array | int = 0
    gap: mx.array | float = 0.0
    duplicates: mx.array | int = 0


@contextlib.contextmanager
def pooled_indices(
    feed: Sequence[Any] | None = None, *, values: bool = False, format: Format = "flat"
) -> Iterator[list[mx.array]]:
    """Return a context manager that records flat indices of pooling layers and can replace them.

    Only the layers ``MaxPool1d``, ``MaxPool2d`` and ``MaxPool3d`` with ``return_indices=True`` are
    recorded, in the thread or task of the ``with`` block. Not supported: functions such as
    ``mlx_unpool.max_pool2d``, and adaptive and fractional pools.

    Args:
        feed: Indices to return instead: one array per call, in the layer's layout.
        values: Whether the layers also return the values at these indices, so that gradients flow
            to them.
        format: The format of ``feed``, a ``source`` of ``convert_indices`` except ``"window"``.

    Yields the list to which each call appends the indices that it computed.

    Example:
        >>> pool = MaxPool1d(2, return_indices=True)
        >>> with pooled_indices() as indices:
        ...     values, _ = pool(mx.array([[1.0], [3], [2], [0]]))
        >>> indices[0].tolist()
        [[1], [2]]
    """
    found: list[mx.array] = []
    with each_call(lambda call: found.append(call.indices), feed, values, format):
        yield found


@contextlib.contextmanager
def each_call(
    record: Callable[[PoolCall], None], feed: Sequence[Any] | None, values: bool, format: Format
) -> Iterator[None]:
    """Pass each call of a pooling layer to ``record``; see ``pooled_indices`` for the rest."""
    count = 0

    def pool(layer: Any, x: mx.array, stream: Any) -> Any:
        nonlocal count
        with set_inside(instead_of_pooling, None):  # so that the layer itself pools
            is_recorded = isinstance(layer, MaxPool1d | MaxPool2d | MaxPool3d)
            if not is_recorded or not layer.return_indices:
                return layer(x, stream=stream)
            maxima, indices = flat_pool(layer, x, stream)
        count += 1
        if feed is None:
            record(PoolCall(layer, indices))
            return maxima, converted(indices, "flat", layer.index_format, layer, x)
        given = converted(given_to_call(feed, count, indices.shape), format, "flat", layer, x)
        # A window without an element has no index.
        there = mx.where(indices < 0, maxima, values_at(given, layer, x))
        record(compared_call(layer, x, maxima, indices, there, given))
        return there if values else maxima, converted(given, "flat", layer.index_format, layer, x)

    with set_inside(instead_of_pooling, pool):
        yield
    if feed is not None and count < len(feed):
        raise ValueError(
            f"[pooled_indices] 'feed' has {len(feed)} arrays, but {count} calls of layers were "
            "recorded. Calls of functions such as mlx_unpool.max_pool2d are not recorded."
        )


def flat_pool(layer: Any, x: mx.array, stream: Any) -> tuple[mx.array, mx.array]:
    """The maxima and their flat indices, whatever the layer's own format."""
    flat_layer = copy.copy(layer)
    flat_layer.index_format = "flat"
    return flat_layer(x, stream=stream)


def given_to_call(feed: Sequence[Any], number: int, shape: tuple[int, ...]) -> mx.array:
    """The indices in ``feed`` for a call, counted from 1, whose pooled array has this shape."""
    if number > len(feed):
        raise ValueError(
            f"[pooled_indices] 'feed' has {len(feed)} arrays, but there are more calls of layers."
        )
    given = mx.array(feed[number - 1])
    if not mx.issubdtype(given.dtype, mx.integer):
        raise TypeError(
            f"[pooled_indices] 'feed' must have arrays of integers, but call {number} got "
            f"{given.dtype}. TensorFlow returns integers, but Keras layers often cast their "
            "indices to floatx: use indices.astype(mx.int64) to convert them to integers."
        )
    if given.shape != shape:
        raise ValueError(
            "[pooled_indices] 'feed' must have arrays of the shapes of the indices, but call "
            f"{number} got {given.shape} instead of {shape}."
        )
    return given


def compared_call(
    layer: Any, x: mx.array, maxima: mx.array, indices: mx.array, there: mx.array, given: mx.array
) -> PoolCall:
    """How given indices, with the values ``there``, differ from those that a layer computed."""
    difference = mx.where(there == maxima, 0, mx.abs(maxima - there)).max()
    largest = mx.abs(mx.where(mx.isfinite(x), x, 0)).max()
    gap = mx.where(difference == 0, 0, difference / largest)
    flips = (given != indices).sum()
    return PoolCall(layer, indices, flips, gap, repeated_positions(given, layer))


def repeated_positions(indices: mx.array, layer: Any) -> mx.array:
    """How many positions occur several times among the indices of their channel."""
    first, last = spatial_axes(layer)
    ordered = mx.sort(mx.moveaxis(indices.flatten(first, last), last, -1), axis=-1)
    is_again = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)
    # A position that occurs n times is there again n - 1 times, n - 2 of them after another one.
    return is_again.sum() - (is_again[..., 1:] & is_again[..., :-1]).sum()


def converted(indices: mx.array, source: Any, target: Any, layer: Any, x: mx.array) -> mx.array:
    """Indices of a layer's input in another format of ``convert_indices``."""
    if source == target:
        return indices
    return convert_indices(
        indices,
        source,
        target,
        spatial_size(layer, x),
        layer.kernel_size,
        layer.stride,
        layer.padding,
        dilation=layer.dilation,
        data_format=layer.data_format,
    )


def values_at(indices: mx.array, layer: Any, x: mx.array) -> mx.array:
    """The values of a layer's input at flat indices."""
    first, last = spatial_axes(layer)
    planes = x.flatten(first, last)
    positions = mx.clip(indices.flatten(first, last), 0, planes.shape[last] - 1)
    return mx.take_along_axis(planes, positions, axis=last).reshape(indices.shape)


def spatial_axes(layer: Any) -> tuple[int, int]:
    """The first and the last spatial axis of a layer's arrays, counted from the end."""
    last = -1 if layer.data_format == "channels_first" else -2
    return last - layer.rank + 1, last


def spatial_size(layer: Any, x: mx.array) -> tuple[int, ...]:
    """The spatial shape of a layer's input."""
    first, last = spatial_axes(layer)
    return x.shape[first : last + 1 or None]
