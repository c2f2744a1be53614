"""Max pooling over equal windows, with or without indices: ``max_pool2d``, ``MaxPool2d``, etc."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar

import mlx.core as mx

from . import _arguments as arguments
from ._geometry import Window, WindowGeometry, untriple
from ._layer import PoolingLayer
from ._layout import Plan
from ._requests import Pooling, checked_once, interned
from ._types import ArrayOrPair, DataFormat, IndexFormat, IntOrTuple, Padding, Stream


@dataclass(frozen=True, eq=False)
class MaxPooling(Pooling):
    """Max pooling over equal windows at equal distances."""

    size_argument: ClassVar[str] = "x"

    window: Window
    index_format: str

    @staticmethod
    @checked_once
    def of(
        caller: str,
        rank: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: Any,
        return_indices: Any,
        index_format: Any,
        data_format: Any,
    ) -> MaxPooling:
        """The request with these arguments, checked."""
        window = arguments.window_of(
            caller, rank, kernel_size, stride, padding, dilation, ceil_mode
        )
        arguments.check_flag(caller, "return_indices", return_indices)
        index_format = arguments.index_format_of(caller, index_format, window)
        first = arguments.channels_come_first(caller, data_format)
        return interned(MaxPooling, caller, rank, first, return_indices, window, index_format)

    def plan(self, shape: tuple[int, ...]) -> Plan:
        """See ``Request``."""
        layout = self.layout(shape)
        size = layout.size(shape)
        window = self.window.resolved(size)
        pooled = window.pooled_size(size)
        if min(size) < 1 or min(pooled) < 1:
            pads = tuple(zip(window.padding, window.padding_after))
            span, padding, got = (
                untriple(numbers, self.rank) for numbers in (window.span, pads, size)
            )
            raise ValueError(
                f"[{self.caller}] 'kernel_size' must fit into the padded input: a window covers "
                f"{span} positions and 'padding' is {padding}, but got an input of spatial shape "
                f"{got}."
            )
        return self.plan_with(layout, WindowGeometry(size, pooled, window), self.index_format)


def max_pool1d(
    x: mx.array,
    kernel_size: IntOrTuple,
    stride: IntOrTuple | None = None,
    padding: Padding = 0,
    *,
    dilation: IntOrTuple = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    index_format: IndexFormat = "flat",
    data_format: DataFormat = "channels_last",
    stream: Stream = None,
) -> ArrayOrPair:
    """Compute the maximum of every window and, with ``return_indices``, its position.

    Args:
        x (array): Shape ``(N, W, C)``, or ``(N, C, W)`` with the channels first; N is optional.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.max_pool1d(x, 2, return_indices=True)
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([3.0, 5.0], [1, 3])

    See also: ``MaxPool1d`` for the other arguments, results and errors; ``max_unpool1d``.
    """
    window = kernel_size, stride, padding, dilation, ceil_mode
    return MaxPooling.of("max_pool1d", 1, *window, return_indices, index_format, data_format).run(
        x, stream
    )


def max_pool2d(
    x: mx.array,
    kernel_size: IntOrTuple,
    stride: IntOrTuple | None = None,
    padding: Padding = 0,
    *,
    dilation: IntOrTuple = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    index_format: IndexFormat = "flat",
    data_format: DataFormat = "channels_last",
    stream: Stream = None,
) -> ArrayOrPair:
    """Compute the maximum of every window and, with ``return_indices``, its position.

    Args:
        x (array): Shape ``(N, H, W, C)``, or ``(N, C, H, W)`` with the channels first; N is
            optional.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:
        >>> x = mx.arange(16.0).reshape(1, 4, 4, 1)
        >>> values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([[5.0, 7.0], [13.0, 15.0]], [[5, 7], [13, 15]])
        >>> offsets = mlx_unpool.max_pool2d(x, 2, return_indices=True, index_format="window")[1]
        >>> offsets.squeeze().tolist(), offsets.dtype  # 3 is the last element of a 2 x 2 window
        ([[3, 3], [3, 3]], mlx.core.uint8)

    See also: ``MaxPool2d`` for the other arguments, results and errors; ``max_unpool2d``.
    """
    window = kernel_size, stride, padding, dilation, ceil_mode
    return MaxPooling.of("max_pool2d", 2, *window, return_indices, index_format, data_format).run(
        x, stream
    )


def max_pool3d(
    x: mx.array,
    kernel_size: IntOrTuple,
    stride: IntOrTuple | None = None,
    padding: Padding = 0,
    *,
    dilation: IntOrTuple = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    index_format: IndexFormat = "flat",
    data_format: DataFormat = "channels_last",
    stream: Stream = None,
) -> ArrayOrPair:
    """Compute the maximum of every window and, with ``return_indices``, its position.

    Args:
        x (array): Shape ``(N, D, H, W, C)``, or ``(N, C, D, H, W)`` with the channels first; N is
            optional.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:
        >>> x = mx.arange(24.0).reshape(1, 2, 3, 4, 1)
        >>> values, indices = mlx_unpool.max_pool3d(x, 2, return_indices=True)
        >>> values.shape, values.squeeze().tolist(), indices.squeeze().tolist()
        ((1, 1, 1, 2, 1), [17.0, 19.0], [17, 19])

    See also: ``MaxPool3d`` for the other arguments, results and errors; ``max_unpool3d``.
    """
    window = kernel_size, stride, padding, dilation, ceil_mode
    return MaxPooling.of("max_pool3d", 3, *window, return_indices, index_format, data_format).run(
        x, stream
    )


class _MaxPool(PoolingLayer):
    _repr_names = ("kernel_size", "stride", "padding")
    _request_of = staticmethod(MaxPooling.of)
    _given = attrgetter(
        *(*_repr_names, "dilation", "ceil_mode", "return_indices", "index_format", "data_format")
    )

    @arguments.checked_call
    def __init__(
        self,
        kernel_size: IntOrTuple,
        stride: IntOrTuple | None = None,
        padding: Padding = 0,
        *,
        dilation: IntOrTuple = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
        index_format: IndexFormat = "flat",
        data_format: DataFormat = "channels_last",
    ) -> None:
        """Create the layer.

        The number of windows on a spatial axis of length ``L`` is::

            1 + floor((L + before + after - dilation * (kernel_size - 1) - 1) / stride)

        where ``before`` and ``after`` are the padding of the axis. ``ceil_mode`` rounds the
        quotient up, but drops a last window that would start after the end of the input.

        Ties go to the first element in row-major order. NaN counts as larger than any number; of
        several NaNs the last is used. Padding is never the maximum. A window without an element
        inside the input gives ``-inf`` (for integers, the smallest value of the dtype) and the flat
        index -1 or the window index 0.

        Args:
            kernel_size (int or tuple of int): Size of the window.
            stride (int or tuple of int, optional): Distance between windows. Default:
                ``kernel_size``.
            padding (int, tuple or str): Implicit padding, on each side less than the dilated
                window:

                - an integer for all sides;
                - a tuple with an integer or a pair ``(before, after)`` per axis: ``((0, 1), 2)`` in
                  2-D, ``((0, 1),)`` in 1-D;
                - ``"same"``: ``ceil(L / stride)`` windows, as in TensorFlow, with the smaller half
                  of the padding before the axis;
                - ``"valid"``: 0.
            dilation (int or tuple of int): Distance between the elements of a window.
            ceil_mode (bool): Round the pooled size up instead of down.
            return_indices (bool): Return ``(values, indices)``, for an unpooling layer.
            index_format (str): ``"flat"``, int32 positions ``(d*H + h)*W + w`` in the plane (in 2-D
                ``h*W + w``, in 1-D ``w``), as in PyTorch, or ``"window"``, uint8 row-major offsets
                inside the window, which take less memory.
            data_format (str): ``"channels_last"``, ``(N, ..., C)``, or ``"channels_first"``,
                ``(N, C, ...)``.

        The input can have any floating-point or integer dtype (float64 only on the CPU). Values
        have the same dtype. Flat indices are int32 (int64 for planes of 2^31 positions or more,
        which only a GPU can pool). Window indices are uint8 (uint16 for windows of 257 to 65,536
        elements). Arguments are attributes, which can be changed; the next call checks them.

        Example:
            >>> pool = mlx_unpool.MaxPool2d(3, 2, padding=1, return_indices=True)
            >>> [array.shape for array in pool(mx.zeros((8, 32, 32, 64)))]
            [(8, 16, 16, 64), (8, 16, 16, 64)]
        """
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.ceil_mode = ceil_mode
        self.return_indices = return_indices
        self.index_format = index_format
        self.data_format = data_format
        self._request()


class MaxPool1d(_MaxPool):
    """Max pooling over a sequence, optionally with the position of each maximum.

    Shape:
        - Input: ``(N, W, C)``, or ``(N, C, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, W_out, C)``, or ``(N, C, W_out)``.

    Example:
        >>> pool = mlx_unpool.MaxPool1d(2, return_indices=True)
        >>> values, indices = pool(mx.array([[1.0], [3.0], [2.0], [5.0]]))
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([3.0, 5.0], [1, 3])

    See also: ``__init__`` for the arguments; ``MaxUnpool1d`` for the partial inverse;
    ``max_pool1d``.
    """

    rank = 1


class MaxPool2d(_MaxPool):
    """Max pooling over height and width, optionally with the position of each maximum.

    Shape:
        - Input: ``(N, H, W, C)``, or ``(N, C, H, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, H_out, W_out, C)``, or ``(N, C, H_out, W_out)``.

    Example:
        >>> pool = mlx_unpool.MaxPool2d(2, return_indices=True)
        >>> values, indices = pool(mx.arange(16.0).reshape(1, 4, 4, 1))
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([[5.0, 7.0], [13.0, 15.0]], [[5, 7], [13, 15]])

    See also: ``__init__`` for the arguments; ``MaxUnpool2d`` for the partial inverse;
    ``max_pool2d``.
    """

    rank = 2


class MaxPool3d(_MaxPool):
    """Max pooling over depth, height and width, optionally with the position of each maximum.

    Shape:
        - Input: ``(N, D, H, W, C)``, or ``(N, C, D, H, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, D_out, H_out, W_out, C)``, or ``(N, C, D_out, H_out, W_out)``.

    Example:
        >>> pool = mlx_unpool.MaxPool3d(2, data_format="channels_first")
        >>> pool(mx.arange(16.0).reshape(1, 2, 2, 2, 2)).squeeze().tolist()
        [7.0, 15.0]

    See also: ``__init__`` for the arguments; ``MaxUnpool3d`` for the partial inverse;
    ``max_pool3d``.
    """

    rank = 3
