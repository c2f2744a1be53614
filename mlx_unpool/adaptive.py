"""Adaptive max pooling, to a given number of windows: ``adaptive_max_pool2d`` and so on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import mlx.core as mx

from . import _arguments as arguments
from ._geometry import Geometry, RegionGeometry, Triple, Window, WindowGeometry, triple, untriple
from ._layer import PoolingLayer
from ._layout import Plan
from ._requests import Pooling, checked_once, interned
from ._types import LARGEST_AXIS, ArrayOrPair, DataFormat, Stream


@dataclass(frozen=True, eq=False)
class AdaptiveGeometry(RegionGeometry):
    """On ``L`` positions, window ``i`` of ``n`` is ``range(i * L // n, ceil((i + 1) * L / n))``."""

    def bounds(self, axis: int, number: Any) -> tuple[Any, Any]:
        """See ``RegionGeometry``."""
        return _adaptive_bounds(number, self.size[axis], self.pooled[axis])

    def covering(self, axis: int, position: Any) -> tuple[Any, Any]:
        """See ``RegionGeometry``."""
        return _adaptive_bounds(position, self.pooled[axis], self.size[axis])


def _adaptive_bounds(number: Any, length: int, count: int) -> tuple[Any, Any]:
    """The start and the end of window ``number`` out of ``count`` adaptive windows."""
    return number * length // count, ((number + 1) * length + count - 1) // count


def adaptive_geometry(size: Triple, pooled: Triple) -> Geometry:
    """Windows of adaptive pooling: a ``WindowGeometry`` if they are equal and equally spaced."""
    longest: list[int] = []
    regular: list[tuple[int, int] | None] = []
    for length, n in zip(size, pooled):
        each, rest = divmod(length, n)
        # Rounding the start down and the end up extends no window, one side of a window, or both
        # sides. The windows are equal and equally spaced if the rest is 0 or 1.
        sides = 2 if rest and n % rest else min(rest, 1)
        longest.append(each + sides)
        regular.append((longest[-1], each) if rest <= 1 and each > 0 else None)
    equal = [axis for axis in regular if axis]
    regions = AdaptiveGeometry(size, pooled, tuple(longest), tuple(regular))
    if len(equal) < 3:
        return regions
    kernel, stride = zip(*equal)
    return WindowGeometry(size, pooled, Window(kernel=kernel, stride=stride), regions)


@dataclass(frozen=True, eq=False)
class AdaptivePooling(Pooling):
    """Max pooling to a given number of windows."""

    output_size: int | tuple[int | None, ...] | None  # one number for all axes or a tuple, as given

    @staticmethod
    @checked_once
    def of(
        caller: str, rank: int, output_size: Any, return_indices: Any, data_format: Any
    ) -> AdaptivePooling:
        """The request with these arguments, checked."""
        given = arguments.sequence(output_size, rank)
        needed = f"be an integer or a tuple of {rank} integers or Nones"
        numbers = given if output_size is None else [n for n in given if n is not None]
        is_complete = len(given) == rank
        checked = arguments.checked_integers(
            caller, "output_size", output_size, needed, numbers, is_complete, 1
        )
        arguments.check_flag(caller, "return_indices", return_indices)
        remaining = iter(checked)
        sizes = tuple(None if n is None else next(remaining) for n in given)
        sizes = arguments.as_given(output_size, sizes)
        first = arguments.channels_come_first(caller, data_format)
        return interned(AdaptivePooling, caller, rank, first, return_indices, sizes)

    def plan(self, shape: tuple[int, ...]) -> Plan:
        """See ``Request``."""
        layout = self.layout(shape)
        size = self.nonempty_size(layout, shape)
        kept = zip(arguments.sequence(self.output_size, self.rank), untriple(size, self.rank))
        pooled = triple([length if n is None else n for n, length in kept])
        if sum(pooled) > LARGEST_AXIS:
            needed = "add up to less than 2^31 over all axes"
            raise self.error("output_size", needed, self.output_size)
        return self.plan_with(layout, adaptive_geometry(size, pooled))


def adaptive_max_pool1d(
    x: mx.array,
    output_size: int | Sequence[int | None],
    *,
    return_indices: bool = False,
    data_format: DataFormat = "channels_last",
    stream: Stream = None,
) -> ArrayOrPair:
    """Max-pool to a given output size.

    Args:
        x (array): Shape ``(N, W, C)``, or ``(N, C, W)`` with the channels first; N is optional.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.adaptive_max_pool1d(x, 2, return_indices=True)
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([3.0, 5.0], [1, 3])

    See also: ``AdaptiveMaxPool1d`` for the other arguments, results and errors; ``max_unpool1d``.
    """
    request = AdaptivePooling.of("adaptive_max_pool1d", 1, output_size, return_indices, data_format)
    return request.run(x, stream)


def adaptive_max_pool2d(
    x: mx.array,
    output_size: int | Sequence[int | None],
    *,
    return_indices: bool = False,
    data_format: DataFormat = "channels_last",
    stream: Stream = None,
) -> ArrayOrPair:
    """Max-pool to a given output size.

    Args:
        x (array): Shape ``(N, H, W, C)``, or ``(N, C, H, W)`` with the channels first; N is
            optional.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:
        >>> x = mx.arange(15.0).reshape(1, 5, 3, 1)
        >>> values, indices = mlx_unpool.adaptive_max_pool2d(x, (2, None), return_indices=True)
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([[6.0, 7.0, 8.0], [12.0, 13.0, 14.0]], [[6, 7, 8], [12, 13, 14]])
        >>> mlx_unpool.max_unpool2d(values, indices, None, output_size=x.shape).shape
        (1, 5, 3, 1)

    See also: ``AdaptiveMaxPool2d`` for the other arguments, results and errors; ``max_unpool2d``.
    """
    request = AdaptivePooling.of("adaptive_max_pool2d", 2, output_size, return_indices, data_format)
    return request.run(x, stream)


def adaptive_max_pool3d(
    x: mx.array,
    output_size: int | Sequence[int | None],
    *,
    return_indices: bool = False,
    data_format: DataFormat = "channels_last",
    stream: Stream = None,
) -> ArrayOrPair:
    """Max-pool to a given output size.

    Args:
        x (array): Shape ``(N, D, H, W, C)``, or ``(N, C, D, H, W)`` with the channels first; N is
            optional.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:
        >>> x = mx.arange(24.0).reshape(1, 2, 3, 4, 1)
        >>> mlx_unpool.adaptive_max_pool3d(x, (1, 1, 2)).squeeze().tolist()
        [21.0, 23.0]

    See also: ``AdaptiveMaxPool3d`` for the other arguments, results and errors; ``max_unpool3d``.
    """
    request = AdaptivePooling.of("adaptive_max_pool3d", 3, output_size, return_indices, data_format)
    return request.run(x, stream)


class _AdaptiveMaxPool(PoolingLayer):
    _repr_names = ("output_size",)
    _request_of = staticmethod(AdaptivePooling.of)
    _given = attrgetter(*_repr_names, "return_indices", "data_format")

    @arguments.checked_call
    def __init__(
        self,
        output_size: int | Sequence[int | None],
        *,
        return_indices: bool = False,
        data_format: DataFormat = "channels_last",
    ) -> None:
        """Create the layer.

        On a spatial axis of length ``L``, window ``i`` of ``n`` covers the positions from
        ``floor(i * L / n)`` to ``ceil((i + 1) * L / n) - 1``, as in PyTorch. If ``n`` does not
        divide ``L``, some neighbouring windows overlap. Ties and NaN are treated as in
        ``MaxPool2d``.

        Args:
            output_size (int, or tuple of int and None): Number of windows on each axis. None in a
                tuple keeps the length of that axis.
            return_indices (bool): Return ``(values, indices)``, to unpool with
                ``kernel_size=None``.
            data_format (str): ``"channels_last"``, ``(N, ..., C)``, or ``"channels_first"``,
                ``(N, C, ...)``.

        The dtypes are those of ``MaxPool2d``. There is no ``index_format``, because the windows can
        differ in size: indices are flat.

        Example:
            >>> mlx_unpool.AdaptiveMaxPool2d((7, None))(mx.zeros((8, 32, 20, 64))).shape
            (8, 7, 20, 64)
        """
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices
        self.data_format = data_format
        self._request()


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Adaptive max pooling over a sequence: a fixed output size, for any input size.

    Shape:
        - Input: ``(N, W, C)``, or ``(N, C, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, W_out, C)``, or ``(N, C, W_out)``.

    Example:
        >>> pool = mlx_unpool.AdaptiveMaxPool1d(2)
        >>> pool(mx.array([[1.0], [3.0], [2.0], [5.0], [4.0]])).squeeze().tolist()
        [3.0, 5.0]

    See also: ``__init__`` for the arguments; ``MaxUnpool1d.from_pool``; ``adaptive_max_pool1d``.
    """

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Adaptive max pooling over height and width: a fixed output size, for any input size.

    Shape:
        - Input: ``(N, H, W, C)``, or ``(N, C, H, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, H_out, W_out, C)``, or ``(N, C, H_out, W_out)``.

    Example:
        >>> pool = mlx_unpool.AdaptiveMaxPool2d((2, None), return_indices=True)
        >>> values, indices = pool(mx.arange(15.0).reshape(1, 5, 3, 1))
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([[6.0, 7.0, 8.0], [12.0, 13.0, 14.0]], [[6, 7, 8], [12, 13, 14]])
        >>> mlx_unpool.MaxUnpool2d.from_pool(pool)(values, indices, output_size=(5, 3)).shape
        (1, 5, 3, 1)

    See also: ``__init__`` for the arguments; ``MaxUnpool2d.from_pool``; ``adaptive_max_pool2d``.
    """

    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Adaptive max pooling over depth, height and width: a fixed output size, for any input size.

    Shape:
        - Input: ``(N, D, H, W, C)``, or ``(N, C, D, H, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, D_out, H_out, W_out, C)``, or ``(N, C, D_out, H_out, W_out)``.

    Example:
        >>> pool = mlx_unpool.AdaptiveMaxPool3d((1, 1, 2))
        >>> pool(mx.arange(24.0).reshape(1, 2, 3, 4, 1)).squeeze().tolist()
        [21.0, 23.0]

    See also: ``__init__`` for the arguments; ``MaxUnpool3d.from_pool``; ``adaptive_max_pool3d``.
    """

    rank = 3
