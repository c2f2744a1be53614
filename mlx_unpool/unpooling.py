"""Max unpooling, a partial inverse of max pooling: ``max_unpool2d``, ``MaxUnpool2d`` and so on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from . import _arguments as arguments
from . import _derivatives, _index_checks
from ._geometry import Geometry, Triple, Window, WindowGeometry, triple, untriple
from ._index_arithmetic import in_dtype_of
from ._layer import Layer, PoolingLayer
from ._layout import Layout, Plan
from ._requests import Request, cached_plan, checked_once, interned
from ._types import (
    LARGEST_AXIS,
    DataFormat,
    IndexFormat,
    IntOrTuple,
    Padding,
    Stream,
    flat_dtype,
    format_of,
)
from .pooling import MaxPool1d, MaxPool2d, MaxPool3d

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, eq=False)
class MaxUnpooling(Request):
    """Max unpooling; without a window it accepts any flat indices."""

    pair_hint: ClassVar[str] = "pass both, as in unpool(values, indices) or unpool(*pool(x))"

    window: Window | None
    index_format: IndexFormat | None  # None: the dtype of the indices decides
    from_pool: bool  # of a layer made by that method, for indices and sizes of its pool only

    @staticmethod
    @checked_once
    def of(
        caller: str,
        rank: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        index_format: Any,
        data_format: Any,
        from_pool: bool = False,
    ) -> MaxUnpooling:
        """The request with these arguments, checked."""
        first = arguments.channels_come_first(caller, data_format)
        window = None
        if kernel_size is not None:
            window = arguments.window_of(caller, rank, kernel_size, stride, padding, dilation)
        else:
            arguments.check_no_window(caller, stride, padding, dilation)
        if index_format is not None:
            index_format = arguments.index_format_of(caller, index_format, window)
        return interned(MaxUnpooling, caller, rank, first, window, index_format, from_pool)

    def run(self, x: Any, indices: Any, output_size: Any = None, stream: Any = None) -> mx.array:
        """The values ``x`` at the positions of ``indices``, zeros elsewhere."""
        target = self.target(x, stream)
        arguments.check_index_array(self.caller, indices, x)
        if indices.shape != x.shape:
            got = f"but got {x.shape} and {indices.shape}"
            raise ValueError(f"[{self.caller}] 'x' and 'indices' must have the same shape {got}.")
        index_format = self._format_of(indices.dtype)
        if output_size is not None:
            output_size = arguments.shape(self.caller, "output_size", output_size)
        plan = cached_plan(self, target.backend.is_gpu, x.shape, output_size)
        with mx.stream(target.stream):
            if 0 in plan.shape:  # no images or no channels
                return mx.zeros(plan.shape, x.dtype)
            if _index_checks.is_checking():
                planes = plan.layout, plan.geometry, index_format
                _index_checks.check_values_if_available(self.caller, indices, *planes)
            values, indices = mx.reshape(x, plan.folded), mx.reshape(indices, plan.folded)
            indices = in_dtype_of(index_format, indices, plan.geometry)
            full = _derivatives.linear("scatter", "last", values, indices, plan, target)
            return mx.reshape(full, plan.shape)

    def _format_of(self, dtype: mx.Dtype) -> IndexFormat:
        """The format of indices of this dtype."""
        usual = format_of(dtype)
        if self.from_pool and self.index_format not in (usual, None):
            needed = f"be {self.index_format} indices, as the pool given to from_pool returned,"
            hint = " If the pool was changed since, call from_pool again."
            raise TypeError(arguments.message(self.caller, "indices", needed, dtype) + hint)
        index_format = self.index_format or usual
        if self.window is None and index_format == "window":
            hint = " Pass index_format='flat' if they are positions in the plane."
            raise self.error("kernel_size", f"be given for window indices ({dtype})", None, hint)
        return index_format

    def plan(self, shape: tuple[int, ...], output_size: int | tuple[int, ...] | None) -> Plan:
        """See ``Request``; ``output_size`` is None, one integer, a spatial or a full shape."""
        layout = self.layout(shape)
        pooled = layout.size(shape)
        if output_size is None:
            size = self._default_size(pooled)
        else:
            size = self._given_size(layout, pooled, output_size)
        g = Geometry(size, pooled)
        if self.window is not None:
            g = WindowGeometry(size, pooled, self.window.resolved(size))
        elif prod(pooled) >= 2**31:
            needed = "have fewer than 2^31 values per plane if 'kernel_size' is None"
            raise self.error("x", needed, prod(pooled))
        return Plan(self, layout, layout.folded(pooled), layout.shape(size), g, flat_dtype(size))

    def _default_size(self, pooled: Triple) -> Triple:
        """The size of the output if the caller passes none."""
        if self.window is None:
            raise self.error("output_size", "be given if 'kernel_size' is None", None)
        default = self.window.unpooled_size(pooled)
        if max(self.window.stride) > 1 and (self.from_pool or self.window.same):
            case = "padding='same'" if self.window.same else "a layer made by from_pool"
            why = "because inputs of several sizes have this pooled size,"
            hint = " Pass the shape of the array that was pooled: output_size=x.shape."
            raise self.error(
                "output_size", f"be given for {case} with a stride above 1, {why}", None, hint
            )
        if min(default) < 1 or max(default) > LARGEST_AXIS:
            why = "empty" if min(default) < 1 else "longer than 2^31 - 1 on an axis"
            needed = (
                f"be given here, because the default, {untriple(default, self.rank)}, is {why},"
            )
            raise self.error("output_size", needed, None)
        return default

    def _given_size(
        self, layout: Layout, pooled: Triple, output_size: int | tuple[int, ...]
    ) -> Triple:
        """The size of the output that the caller passes, as an integer or a shape."""
        given = tuple(arguments.sequence(output_size, self.rank))
        spatial: tuple[int, ...] | None = given
        if len(given) != self.rank:
            # With a window only the spatial part of a full shape counts, as in PyTorch.
            spatial = layout.spatial_of_full_shape(given, exact=self.window is None)
        if spatial is None:
            batch = "" if self.window else " with the batch and channels of the input"
            shapes = f"a spatial shape of {self.rank} integers or a full shape{batch}"
            raise self.error("output_size", f"be an integer, {shapes}", output_size)
        size = triple(spatial)
        if min(spatial) < 1:
            raise self.error("output_size", "be 1 or more on every axis", output_size)
        if self.window is None or _fits(size, ranges := self.window.unpooled_ranges(pooled)):
            return size
        text = untriple([f"{r.start} to {r.stop - 1}" for r in ranges], self.rank)
        allowed = f"{untriple(pooled, self.rank)} windows, which allows ({', '.join(text)}),"
        needed = f"differ by less than one stride from the default for {allowed}"
        if self.window.same:
            needed = f"be pooled with padding='same' to {allowed}"
        hint = _hint(self.window, layout, pooled, given, size)
        raise self.error("output_size", needed, output_size, hint)


def _fits(size: Triple, ranges: Sequence[range]) -> bool:
    """Whether a size is in the range of every axis."""
    return all(n in allowed for n, allowed in zip(size, ranges))


def _hint(
    window: Window, layout: Layout, pooled: Triple, output_size: tuple[int, ...], size: Triple
) -> str:
    """The end of the message if an output size does not fit; ``size`` is its spatial part."""
    ranges = window.unpooled_ranges(pooled)
    if len(output_size) > layout.rank:
        other = replace(layout, channels_first=not layout.channels_first)
        spatial, theirs = other.size(output_size), other.size(layout.shape(pooled))
        if _fits(spatial, window.unpooled_ranges(theirs)):
            return ""  # cached_plan names the other data_format
        if _fits(spatial, ranges):
            order = ("first", "last") if layout.channels_first else ("last", "first")
            return " 'x' has its channels {}, but this shape has them {}.".format(*order)
    if size == window.stride:
        return " It is a size, not a factor: pass the shape of the array that was pooled."
    hint = " For indices of an adaptive or fractional pool pass kernel_size=None."
    numbers = {*untriple(size, layout.rank)}
    if len(numbers) == 1 and max(numbers) >= prod(r.start for r in ranges):
        hint += " If this is x.size, pass x.shape."
    return hint


@arguments.checked_call
def max_unpool1d(
    x: mx.array,
    indices: mx.array,
    kernel_size: IntOrTuple | None,
    stride: IntOrTuple | None = None,
    padding: Padding = 0,
    output_size: IntOrTuple | None = None,
    *,
    dilation: IntOrTuple = 1,
    index_format: IndexFormat | None = None,
    data_format: DataFormat = "channels_last",
    stream: Stream = None,
) -> mx.array:
    """Compute a partial inverse of ``max_pool1d``: values at their indices, zeros elsewhere.

    Args:
        x (array): Shape ``(N, W_out, C)``, or ``(N, C, W_out)`` with the channels first; N is
            optional.
        indices (array): Indices from the pool, with the shape of ``x``.
        output_size (int or tuple of int, optional): Shape of the array that was pooled. Always pass
            it.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.max_pool1d(x, 2, return_indices=True)
        >>> mlx_unpool.max_unpool1d(values, indices, 2, output_size=x.shape).squeeze().tolist()
        [0.0, 3.0, 0.0, 5.0, 0.0]

    See also: ``MaxUnpool1d`` for the other arguments, results and errors; ``max_pool1d``.
    """
    window = kernel_size, stride, padding, dilation
    request = MaxUnpooling.of("max_unpool1d", 1, *window, index_format, data_format)
    return request.run(x, indices, output_size, stream)


@arguments.checked_call
def max_unpool2d(
    x: mx.array,
    indices: mx.array,
    kernel_size: IntOrTuple | None,
    stride: IntOrTuple | None = None,
    padding: Padding = 0,
    output_size: IntOrTuple | None = None,
    *,
    dilation: IntOrTuple = 1,
    index_format: IndexFormat | None = None,
    data_format: DataFormat = "channels_last",
    stream: Stream = None,
) -> mx.array:
    """Compute a partial inverse of ``max_pool2d``: values at their indices, zeros elsewhere.

    Args:
        x (array): Shape ``(N, H_out, W_out, C)``, or ``(N, C, H_out, W_out)`` with the channels
            first; N is optional.
        indices (array): Indices from the pool, with the shape of ``x``.
        output_size (int or tuple of int, optional): Shape of the array that was pooled. Always pass
            it.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:
        >>> x = mx.arange(20).reshape(1, 4, 5, 1)
        >>> values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
        >>> mlx_unpool.max_unpool2d(values, indices, 2, output_size=x.shape).squeeze()
        array([[0, 0, 0, 0, 0],
               [0, 6, 0, 8, 0],
               [0, 0, 0, 0, 0],
               [0, 16, 0, 18, 0]], dtype=int32)

    See also: ``MaxUnpool2d`` for the other arguments, results and errors; ``max_pool2d``.
    """
    window = kernel_size, stride, padding, dilation
    request = MaxUnpooling.of("max_unpool2d", 2, *window, index_format, data_format)
    return request.run(x, indices, output_size, stream)


@arguments.checked_call
def max_unpool3d(
    x: mx.array,
    indices: mx.array,
    kernel_size: IntOrTuple | None,
    stride: IntOrTuple | None = None,
    padding: Padding = 0,
    output_size: IntOrTuple | None = None,
    *,
    dilation: IntOrTuple = 1,
    index_format: IndexFormat | None = None,
    data_format: DataFormat = "channels_last",
    stream: Stream = None,
) -> mx.array:
    """Compute a partial inverse of ``max_pool3d``: values at their indices, zeros elsewhere.

    Args:
        x (array): Shape ``(N, D_out, H_out, W_out, C)``, or ``(N, C, D_out, H_out, W_out)`` with
            the channels first; N is optional.
        indices (array): Indices from the pool, with the shape of ``x``.
        output_size (int or tuple of int, optional): Shape of the array that was pooled. Always pass
            it.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:
        >>> x = mx.arange(24).reshape(1, 2, 3, 4, 1)
        >>> values, indices = mlx_unpool.max_pool3d(x, 2, return_indices=True)
        >>> mlx_unpool.max_unpool3d(values, indices, 2, output_size=x.shape)[0, 1].squeeze()
        array([[0, 0, 0, 0],
               [0, 17, 0, 19],
               [0, 0, 0, 0]], dtype=int32)

    See also: ``MaxUnpool3d`` for the other arguments, results and errors; ``max_pool3d``.
    """
    window = kernel_size, stride, padding, dilation
    request = MaxUnpooling.of("max_unpool3d", 3, *window, index_format, data_format)
    return request.run(x, indices, output_size, stream)


class _MaxUnpool(Layer):
    _repr_names = ("kernel_size", "stride", "padding")
    _request_of = staticmethod(MaxUnpooling.of)
    _repr_defaults = Layer._repr_defaults | {"index_format": None}
    _given = attrgetter(*_repr_names, "dilation", "index_format", "data_format", "_from_pool")

    @arguments.checked_call
    def __init__(
        self,
        kernel_size: IntOrTuple | None,
        stride: IntOrTuple | None = None,
        padding: Padding = 0,
        *,
        dilation: IntOrTuple = 1,
        index_format: IndexFormat | None = None,
        data_format: DataFormat = "channels_last",
    ) -> None:
        """Create the layer; ``from_pool`` copies the arguments of a pool.

        Without ``output_size``, a spatial axis with ``n`` windows and the padding ``before`` and
        ``after`` gets the length::

            (n - 1) * stride - before - after + dilation * (kernel_size - 1) + 1

        With ``padding="same"`` the length is ``n`` if all strides are 1; otherwise ``output_size``
        is required.

        If several values have the same index, the last one in row-major order is kept. A value
        whose index is outside the output is dropped; ``check_indices`` and ``checking`` find such
        indices.

        Warning:
            Always pass ``output_size=x.shape``, where ``x`` is the array that was pooled. Inputs of
            different sizes can have the same pooled size, and a flat index refers to a different
            position if the rows have another length.

        Args:
            kernel_size (int or tuple of int or None): As in the pooling layer. None is for flat
                indices whose windows differ or are unknown, for example from adaptive pooling; then
                omit the next three arguments, and pass ``output_size`` in every call.
            stride, padding, dilation: Must match the pooling layer; same types and defaults.
            index_format (str, optional): Format of the indices, of any integer dtype: ``"flat"``,
                positions in the plane, or ``"window"``, offsets inside the window. Default: uint8
                and uint16 indices are offsets, all others positions.
            data_format (str): ``"channels_last"``, ``(N, ..., C)``, or ``"channels_first"``,
                ``(N, C, ...)``.

        Values can have any floating-point or integer dtype (float64 only on the CPU), and the
        output has the same dtype.

        Example:
            >>> x, window = mx.zeros((8, 32, 32, 64)), (3, 2, 1)  # kernel_size, stride, padding
            >>> values, indices = mlx_unpool.MaxPool2d(*window, return_indices=True)(x)
            >>> mlx_unpool.MaxUnpool2d(*window)(values, indices, output_size=x.shape).shape
            (8, 32, 32, 64)
        """
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.index_format = index_format
        self.data_format = data_format
        self._from_pool = False
        self._request()

    @classmethod
    def from_pool(cls, pool: PoolingLayer) -> Self:
        """Create the unpooling layer for a pooling layer with the same number of spatial axes.

        The layer copies the arguments, including ``index_format``, and raises a TypeError for
        indices whose dtype belongs to the other format. Only ``checking`` notices that the window
        of ``pool`` was changed afterwards. Each call must pass ``output_size`` if a stride of
        ``pool`` is above 1, or if it is adaptive or fractional (``kernel_size`` is then None).

        Args:
            pool (Module): Pooling layer of this library with ``return_indices=True``.

        Returns:
            Module: The unpooling layer.
        """
        if not isinstance(pool, PoolingLayer) or pool.rank != cls.rank:
            needed = f"be a {cls.rank}-D pooling layer of mlx_unpool"
            of_mlx = isinstance(pool, (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d))
            hint = " The pools of mlx.nn return no indices." if of_mlx else ""
            raise TypeError(arguments.message(cls.__name__, "pool", needed, pool) + hint)
        if not pool.return_indices:
            needed = "have return_indices=True, as unpooling needs its indices,"
            raise ValueError(arguments.message(cls.__name__, "pool", needed, pool))
        if isinstance(pool, (MaxPool1d, MaxPool2d, MaxPool3d)):
            unpool = cls(
                pool.kernel_size,
                pool.stride,
                pool.padding,
                dilation=pool.dilation,
                index_format=pool.index_format,
                data_format=pool.data_format,
            )
        else:
            unpool = cls(None, index_format="flat", data_format=pool.data_format)
        unpool._from_pool = True
        return unpool

    @arguments.checked_call
    def __call__(
        self,
        x: mx.array,
        indices: mx.array,
        output_size: IntOrTuple | None = None,
        *,
        stream: Stream = None,
    ) -> mx.array:
        """Unpool ``x``.

        Args:
            x (array): Pooled values. Shape ``(N, ..., C)``, or ``(N, C, ...)`` with
                ``data_format="channels_first"``; the batch dimension is optional.
            indices (array): Indices from the pool, with the shape of ``x``. ``convert_indices``
                converts indices of TensorFlow and ONNX.
            output_size (int or tuple of int, optional): Shape of the array that was pooled: its
                spatial shape, or its full shape with or without the batch. An int applies to all
                axes. Each axis may differ by less than one stride from its default length (with
                ``padding="same"``, pooling it must give the size of ``x``); the batch and channels
                of a full shape are ignored. If ``kernel_size`` is None, any spatial shape is
                allowed, but batch and channels must be those of ``x``.
            stream (Stream or Device, optional): Stream or device to run on.

        Returns:
            array: Values at their positions, zeros elsewhere, with the dtype of ``x``.

        Raises:
            TypeError: In a layer made by ``from_pool``, if ``indices`` have a dtype of the other
                format.
            ValueError: If ``output_size`` is required but missing, or the arrays are too large for
                the device (about 2^31 elements on the CPU; without ``kernel_size`` 2^31 pooled
                values per plane on any device).
        """
        return self._request().run(x, indices, output_size, stream)


class MaxUnpool1d(_MaxUnpool):
    """Max unpooling over a sequence: pooled values at their indices, zeros elsewhere.

    Shape:
        - Values and indices: ``(N, W_out, C)``, or ``(N, C, W_out)`` with the channels first; N is
          optional.
        - Output: ``(N, W, C)``, or ``(N, C, W)``.

    Example:
        >>> pool = mlx_unpool.MaxPool1d(2, return_indices=True)
        >>> values, indices = pool(mx.array([[1.0], [3.0], [2.0], [5.0], [4.0]]))
        >>> unpool = mlx_unpool.MaxUnpool1d.from_pool(pool)
        >>> unpool(values, indices, output_size=5).squeeze().tolist()
        [0.0, 3.0, 0.0, 5.0, 0.0]

    See also: ``__init__`` for the arguments; ``MaxPool1d``; ``max_unpool1d``; ``check_indices``.
    """

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """Max unpooling over height and width: pooled values at their indices, zeros elsewhere.

    Shape:
        - Values and indices: ``(N, H_out, W_out, C)``, or ``(N, C, H_out, W_out)`` with the
          channels first; N is optional.
        - Output: ``(N, H, W, C)``, or ``(N, C, H, W)``.

    Example:
        >>> pool = mlx_unpool.MaxPool2d(2, return_indices=True)
        >>> x = mx.arange(20).reshape(1, 4, 5, 1)
        >>> values, indices = pool(x)
        >>> mlx_unpool.MaxUnpool2d.from_pool(pool)(values, indices, output_size=x.shape).squeeze()
        array([[0, 0, 0, 0, 0],
               [0, 6, 0, 8, 0],
               [0, 0, 0, 0, 0],
               [0, 16, 0, 18, 0]], dtype=int32)

    See also: ``__init__`` for the arguments; ``MaxPool2d``; ``max_unpool2d``; ``check_indices``.
    """

    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """Max unpooling over depth, height and width: pooled values at their indices, zeros elsewhere.

    Shape:
        - Values and indices: ``(N, D_out, H_out, W_out, C)``, or ``(N, C, D_out, H_out, W_out)``
          with the channels first; N is optional.
        - Output: ``(N, D, H, W, C)``, or ``(N, C, D, H, W)``.

    Example:
        >>> pool = mlx_unpool.MaxPool3d(2, return_indices=True, data_format="channels_first")
        >>> unpool = mlx_unpool.MaxUnpool3d.from_pool(pool)
        >>> x = mx.arange(24).reshape(1, 1, 2, 3, 4)
        >>> values, indices = pool(x)
        >>> unpool(values, indices, output_size=x.shape)[0, 0, 1]
        array([[0, 0, 0, 0],
               [0, 17, 0, 19],
               [0, 0, 0, 0]], dtype=int32)

    See also: ``__init__`` for the arguments; ``MaxPool3d``; ``max_unpool3d``; ``check_indices``.
    """

    rank = 3
