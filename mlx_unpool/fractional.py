"""Fractional max pooling, over windows at random positions: ``fractional_max_pool2d`` and so on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from operator import attrgetter
from typing import Any

import mlx.core as mx

from . import _arguments as arguments
from ._geometry import RegionGeometry, triple, untriple
from ._layer import PoolingLayer
from ._layout import Plan
from ._requests import Pooling, cached_plan, checked_once, interned
from ._types import ArrayOrPair, DataFormat, IntOrTuple, Stream, is_float


@dataclass(frozen=True, eq=False)
class FractionalGeometry(RegionGeometry):
    """Windows of one length at random starts.

    Window ``i`` starts at ``floor((i + u) * a) - floor(u * a)`` with ``a = (L - k) / (n - 1)``
    (Graham, "Fractional Max-Pooling", 2014). For every ``u`` from 0 to 1 this is ``floor(i * a)``
    or one more, plus a float32 rounding error below ``L / 2^20``.
    """

    def covering(self, axis: int, position: Any) -> tuple[Any, Any]:
        """See ``RegionGeometry``."""
        length, n, k = self.size[axis], self.pooled[axis], self.longest[axis]
        last = length - k  # start of the last window
        if n == 1:
            return position * 0, position * 0 + (position >= last)
        # Computed in units of 2^-20 positions if the products stay below 2^63.
        unit = 2**20 if length <= 2**20 else 1
        rounding = -(-length * unit // 2**20)
        first = _positive((position - k) * unit - rounding) * (n - 1)
        first = (first + last * unit - 1) // (last * unit)
        following = ((position + 1) * unit + rounding) * (n - 1)
        following = (following + last * unit - 1) // (last * unit)
        most = n - (position < last)  # the start of the last window is not random
        return first, most - _positive(most - following)


def _positive(x: Any) -> Any:
    """``max(x, 0)`` for an integer or an array."""
    return x * (x > 0)


def fractional_bounds(samples: mx.array, g: FractionalGeometry) -> mx.array:
    """The bounds of the windows of ``g`` from samples ``u`` (B, rank, C), one per spatial axis.

    The last window starts at ``L - k``. As in PyTorch, the starts are computed in float32. Samples
    are clipped to the range from 0 to 1, and NaN becomes 0.
    """
    samples = samples.astype(mx.float32)
    samples = mx.where(samples > 0, mx.minimum(samples, 1), 0)
    batch, rank, channels = samples.shape
    starts, lengths = [], []
    for axis, (length, n, k) in enumerate(zip(g.size, g.pooled, g.longest)):
        last = length - k
        number = axis - (3 - rank)  # of the sample; the axes before the first spatial one have none
        if n > 1 and number >= 0:
            u = samples[:, number, None]
            step = last / (n - 1)
            start = mx.floor((mx.arange(n - 1)[:, None] + u) * step) - mx.floor(u * step)
            # float32 cannot represent odd numbers above 2^24: rounding up could exceed the axis and
            # int32.
            starts.append(mx.minimum(start.astype(mx.uint32), last).astype(mx.int32))
        starts.append(mx.full((batch, 1, channels), last, mx.int32))
        lengths.append(mx.full((n, 1), k, mx.int32))
    start = mx.concatenate(starts, axis=1)
    return mx.stack([start, start + mx.concatenate(lengths)], axis=2)


@dataclass(frozen=True, eq=False)
class FractionalPooling(Pooling):
    """Max pooling over windows at random positions."""

    # Each as given: one number for all axes, or a tuple. One of the last two is None.
    kernel_size: Any
    output_size: Any
    output_ratio: Any

    @staticmethod
    @checked_once
    def of(
        caller: str,
        rank: int,
        kernel_size: Any,
        output_size: Any,
        output_ratio: Any,
        return_indices: Any,
        data_format: Any,
    ) -> FractionalPooling:
        """The request with these arguments, checked."""
        kernel = arguments.integers(caller, "kernel_size", kernel_size, rank, least=1)
        if (output_size is None) == (output_ratio is None):
            raise ValueError(
                f"[{caller}] exactly one of 'output_size' and 'output_ratio' must be given but got "
                f"{arguments.short_repr(output_size)} and {arguments.short_repr(output_ratio)}."
            )
        if output_size is not None:
            numbers = arguments.integers(caller, "output_size", output_size, rank, least=1)
            output_size = arguments.as_given(output_size, numbers)
        else:
            ratios = _ratios(caller, "output_ratio", output_ratio, rank)
            output_ratio = arguments.as_given(output_ratio, ratios)
        arguments.check_flag(caller, "return_indices", return_indices)
        first = arguments.channels_come_first(caller, data_format)
        kernel_size = arguments.as_given(kernel_size, kernel)
        sizes = kernel_size, output_size, output_ratio
        return interned(FractionalPooling, caller, rank, first, return_indices, *sizes)

    def run_at(self, samples: Any, key: Any, x: Any, stream: Any, training: bool = True) -> Any:
        """Like ``run``; ``samples`` and ``key`` are ``random_samples`` and ``key`` of the call."""
        target = self.target(x, stream)
        if samples is not None and key is not None:
            raise self.error("key", "be None if 'random_samples' is given", key)
        self._check_array("random_samples", "an array of floats", samples, is_float)
        self._check_array(
            "key", "a key of mx.random (a uint32 array)", key, lambda d: d == mx.uint32
        )
        if key is not None and key.shape != (2,):
            raise self.error("key", "have the shape (2,)", key.shape)
        of_samples = None if samples is None else samples.shape
        plan = cached_plan(self, target.backend.is_gpu, x.shape, of_samples)
        with mx.stream(target.stream):
            bounds = self._random_bounds(samples, key, plan)
            return self.pooled(x, target, plan, training, bounds)

    def _check_array(
        self, name: str, needed: str, x: Any, is_right: Callable[[mx.Dtype], bool]
    ) -> None:
        if x is not None and not (isinstance(x, mx.array) and is_right(x.dtype)):
            got = x.dtype if isinstance(x, mx.array) else type(x).__name__
            raise TypeError(f"[{self.caller}] '{name}' must be {needed} but got {got}.")

    def _random_bounds(
        self, samples: mx.array | None, key: mx.array | None, plan: Plan
    ) -> mx.array:
        layout = plan.layout
        if samples is None:
            samples = mx.random.uniform(shape=(layout.batch, layout.channels, self.rank), key=key)
        # Positions have no derivative. Without stop_gradient MLX would differentiate mx.random.
        samples = mx.stop_gradient(samples)
        folded = samples.transpose(0, 2, 1)
        if layout.channels_first:
            folded = samples.reshape(layout.batch * layout.channels, self.rank, 1)
        assert isinstance(plan.geometry, FractionalGeometry)
        return fractional_bounds(folded, plan.geometry)

    def plan(self, shape: tuple[int, ...], of_samples: tuple[int, ...] | None) -> Plan:
        """See ``Request``."""
        layout = self.layout(shape)
        size = self.nonempty_size(layout, shape)
        lengths = untriple(size, self.rank)
        kernel = triple(arguments.sequence(self.kernel_size, self.rank))
        count = self._windows(lengths, untriple(kernel, self.rank))
        of_uniform = layout.batch, layout.channels, self.rank
        if of_samples not in (None, of_uniform):
            raise self.error("random_samples", f"have the shape {of_uniform}", of_samples)
        regular = tuple((k, k) if k == length else None for length, k in zip(size, kernel))
        return self.plan_with(layout, FractionalGeometry(size, triple(count), kernel, regular))

    def _windows(self, lengths: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
        """The number of windows on each axis, if so many fit."""
        room = tuple(n - k + 1 for n, k in zip(lengths, kernel))
        if min(room) < 1:
            needed = f"fit into an input of size {lengths}"
            raise self.error("kernel_size", needed, self.kernel_size)
        if self.output_ratio is None:
            name, given = "output_size", self.output_size
            count = tuple(arguments.sequence(given, self.rank))
        else:
            name, given = "output_ratio", self.output_ratio
            ratios = arguments.sequence(given, self.rank)
            count = tuple(int(n * ratio) for n, ratio in zip(lengths, ratios))
        if any(not 1 <= n <= most for n, most in zip(count, room)):
            windows = f"at most {room} windows (input size - kernel_size + 1), not {count},"
            raise self.error(name, f"give at least 1 and {windows}", given)
        return count


def _ratios(caller: str, name: str, value: Any, count: int) -> tuple[float, ...]:
    """Check a number or a sequence; return one number between 0 and 1 per axis."""
    given = arguments.sequence(value, count)
    if any(isinstance(r, bool) or not isinstance(r, Real) for r in given):
        raise TypeError(
            arguments.message(caller, name, f"be a number or a tuple of {count} numbers", value)
        )
    if len(given) != count or not all(0 < r < 1 for r in given):
        needed = f"be between 0 and 1 on each of {count} axes"
        raise ValueError(arguments.message(caller, name, needed, value))
    return tuple(map(float, given))


def fractional_max_pool2d(
    x: mx.array,
    kernel_size: IntOrTuple,
    *,
    output_size: IntOrTuple | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    data_format: DataFormat = "channels_last",
    random_samples: mx.array | None = None,
    key: mx.array | None = None,
    stream: Stream = None,
) -> ArrayOrPair:
    """Max-pool over windows at random positions.

    Args:
        x (array): Shape ``(N, H, W, C)``, or ``(N, C, H, W)`` with the channels first; N is
            optional.
        random_samples (array, optional): Floats from 0 to 1 of shape ``(N, C, 2)``.
        key (array, optional): Key of ``mx.random`` to draw the samples.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:
        >>> x = mx.arange(25.0).reshape(1, 5, 5, 1)
        >>> samples = mx.zeros((1, 1, 2))  # instead of random numbers
        >>> pooled = mlx_unpool.fractional_max_pool2d(x, 2, output_size=2, random_samples=samples)
        >>> pooled.squeeze().tolist()
        [[6.0, 9.0], [21.0, 24.0]]
        >>> mlx_unpool.fractional_max_pool2d(x, 2, output_ratio=0.6, key=mx.random.key(0)).shape
        (1, 3, 3, 1)

    See also: ``FractionalMaxPool2d`` for the other arguments, results and errors; ``max_unpool2d``.
    """
    given = kernel_size, output_size, output_ratio, return_indices, data_format
    request = FractionalPooling.of("fractional_max_pool2d", 2, *given)
    return request.run_at(random_samples, key, x, stream)


def fractional_max_pool3d(
    x: mx.array,
    kernel_size: IntOrTuple,
    *,
    output_size: IntOrTuple | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    data_format: DataFormat = "channels_last",
    random_samples: mx.array | None = None,
    key: mx.array | None = None,
    stream: Stream = None,
) -> ArrayOrPair:
    """Max-pool over windows at random positions.

    Args:
        x (array): Shape ``(N, D, H, W, C)``, or ``(N, C, D, H, W)`` with the channels first; N is
            optional.
        random_samples (array, optional): Floats from 0 to 1 of shape ``(N, C, 3)``.
        key (array, optional): Key of ``mx.random`` to draw the samples.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:
        >>> x = mx.arange(27.0).reshape(1, 3, 3, 3, 1)
        >>> mlx_unpool.fractional_max_pool3d(x, 2, output_size=(1, 1, 2)).squeeze().tolist()
        [25.0, 26.0]

    See also: ``FractionalMaxPool3d`` for the other arguments, results and errors; ``max_unpool3d``.
    """
    given = kernel_size, output_size, output_ratio, return_indices, data_format
    request = FractionalPooling.of("fractional_max_pool3d", 3, *given)
    return request.run_at(random_samples, key, x, stream)


class _FractionalMaxPool(PoolingLayer):
    _repr_names = ("kernel_size", "output_size", "output_ratio")
    _request_of = staticmethod(FractionalPooling.of)
    _given = attrgetter(*_repr_names, "return_indices", "data_format")

    @arguments.checked_call
    def __init__(
        self,
        kernel_size: IntOrTuple,
        *,
        output_size: IntOrTuple | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        data_format: DataFormat = "channels_last",
    ) -> None:
        """Create the layer.

        Window ``i`` on a spatial axis of length ``L`` starts at
        ``floor((i + u) * a) - floor(u * a)``, where ``a = (L - kernel_size) / (output_size - 1)``
        and ``u`` is a random number from 0 to 1 per image, channel and axis. The last window (the
        only one if ``output_size`` is 1) starts at ``L - kernel_size``. This is as in PyTorch
        (Graham, "Fractional Max-Pooling", 2014). Ties and NaN are treated as in ``MaxPool2d``.

        Without ``random_samples`` or ``key`` every call draws from MLX's global random state, as
        dropout does. Inside a transform pass a ``key`` to each call; see the page Guarantees.

        Args:
            kernel_size (int or tuple of int): Size of the window.
            output_size (int or tuple of int, optional): Number of windows on each axis.
            output_ratio (float or tuple of float, optional): ``output_size`` as a fraction of the
                input size, above 0 and below 1; the number of windows is rounded down. Exactly one
                of ``output_size`` and ``output_ratio`` must be given.
            return_indices (bool): Return ``(values, indices)``, to unpool with
                ``kernel_size=None``.
            data_format (str): ``"channels_last"``, ``(N, ..., C)``, or ``"channels_first"``,
                ``(N, C, ...)``.

        The dtypes are those of ``MaxPool2d``. There is no ``index_format``, because windows have
        random positions: indices are flat.

        Example:
            >>> mlx_unpool.FractionalMaxPool2d(2, output_ratio=0.7)(mx.zeros((8, 32, 32, 64))).shape
            (8, 22, 22, 64)
        """
        super().__init__()
        self.kernel_size = kernel_size
        self.output_size = output_size
        self.output_ratio = output_ratio
        self.return_indices = return_indices
        self.data_format = data_format
        self._request()

    @arguments.checked_call
    def __call__(
        self,
        x: mx.array,
        *,
        random_samples: mx.array | None = None,
        key: mx.array | None = None,
        stream: Stream = None,
    ) -> ArrayOrPair:
        """Pool ``x``.

        Args:
            x (array): Shape ``(N, ..., C)``, or ``(N, C, ...)`` with
                ``data_format="channels_first"``; the batch dimension is optional.
            random_samples (array, optional): Floats from 0 to 1 of shape ``(N, C, 2)``, or in 3-D
                ``(N, C, 3)``: for each image and channel one per axis, in the order of the axes of
                ``x`` (in 2-D, PyTorch has the width first). N is 1 if ``x`` has no batch.
            key (array, optional): Key of ``mx.random`` to draw the samples. Default: MLX's global
                state.
            stream (Stream or Device, optional): Stream or device to run on.

        Returns:
            array or tuple of array: Values or, with ``return_indices``, ``(values, indices)`` of
                equal shape.

        Raises:
            ValueError: If an axis gets no window or more than ``L - kernel_size + 1`` of them,
                ``random_samples`` and ``key`` are both given, or the arrays are too large for the
                device (about 2^31 elements on the CPU).
        """
        return self._request().run_at(random_samples, key, x, stream, self.training)


class FractionalMaxPool2d(_FractionalMaxPool):
    """Fractional max pooling over height and width: windows at random positions.

    Shape:
        - Input: ``(N, H, W, C)``, or ``(N, C, H, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, H_out, W_out, C)``, or ``(N, C, H_out, W_out)``.

    Example:
        >>> pool = mlx_unpool.FractionalMaxPool2d(2, output_ratio=(0.5, 0.75))
        >>> x = mx.arange(16.0).reshape(1, 4, 4, 1)
        >>> samples = mx.zeros((1, 1, 2))  # instead of random numbers
        >>> pool(x, random_samples=samples).squeeze().tolist()
        [[5.0, 6.0, 7.0], [13.0, 14.0, 15.0]]

    See also: ``__init__`` for the arguments; ``MaxUnpool2d.from_pool``; ``fractional_max_pool2d``.
    """

    rank = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Fractional max pooling over depth, height and width: windows at random positions.

    Shape:
        - Input: ``(N, D, H, W, C)``, or ``(N, C, D, H, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, D_out, H_out, W_out, C)``, or ``(N, C, D_out, H_out, W_out)``.

    Example:
        >>> pool = mlx_unpool.FractionalMaxPool3d(2, output_size=(1, 1, 2))
        >>> pool(mx.arange(27.0).reshape(1, 3, 3, 3, 1), key=mx.random.key(1)).squeeze().tolist()
        [25.0, 26.0]

    See also: ``__init__`` for the arguments; ``MaxUnpool3d.from_pool``; ``fractional_max_pool3d``.
    """

    rank = 3
