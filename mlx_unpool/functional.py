"""Max pooling with indices and max unpooling, as functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from . import _arguments, _autograd, _indices
from ._geometry import triple
from ._layout import layout_of

IntOrTuple = int | Sequence[int]
Stream = mx.Stream | mx.ThreadLocalStream | mx.Device | mx.DeviceType | None


def pool_nd(
    owner: str,
    rank: int,
    x: mx.array,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
    index_format: str,
    data_format: str,
    stream: Any,
) -> mx.array | tuple[mx.array, mx.array]:
    """Max pooling over ``rank`` axes, on behalf of ``owner``: what all pooling here comes down to."""
    _arguments.values(owner, "x", x)
    _arguments.stream(owner, stream)
    _arguments.flag(owner, "return_indices", return_indices)
    _arguments.choice(owner, "index_format", index_format, _indices.INDEX_FORMATS)
    window = _arguments.window(owner, rank, kernel_size, stride, padding, dilation, ceil_mode)
    layout = layout_of(owner, "x", x, rank, data_format)
    size = triple(layout.spatial(x.shape))
    cells = _arguments.pooled_size(owner, rank, window, size)
    if index_format == "window":
        index_dtype = _indices.window_dtype(owner, window)
    else:
        index_dtype = _indices.flat_dtype(size)
    run = _autograd.Run.on(stream, window, size)
    result = layout.pooled(
        x, cells, index_dtype, lambda folded: _autograd.pool(folded, run, cells, index_dtype)
    )
    return result if return_indices else result[0]


def unpool_nd(
    owner: str,
    rank: int,
    x: mx.array,
    indices: mx.array,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    output_size: Any,
    dilation: Any,
    data_format: str,
    stream: Any,
) -> mx.array:
    """Max unpooling over ``rank`` axes, on behalf of ``owner``: what all unpooling here comes down to."""
    _arguments.values(owner, "x", x)
    _arguments.indices(owner, indices, x.shape)
    _arguments.stream(owner, stream)
    layout = layout_of(owner, "x", x, rank, data_format)
    cells = triple(layout.spatial(x.shape))
    if kernel_size is None:
        _arguments.no_window(owner, stride, padding, dilation)
        if _indices.is_window(indices.dtype):
            raise ValueError(
                f"[{owner}] 'kernel_size' must be given for window indices ({indices.dtype}) but got None."
            )
        _arguments.countable_cells(owner, cells)
        window = None
    else:
        window = _arguments.window(owner, rank, kernel_size, stride, padding, dilation)
    size = _arguments.output_size(
        owner, rank, output_size, window, cells, layout.spatial_of_full_shape
    )
    if x.size == 0:
        return mx.zeros(layout.shape(size[3 - rank :]), x.dtype)
    run = _autograd.Run.on(stream, window, size)
    return layout.unfold(_autograd.place(layout.fold(x), layout.fold(indices), run))


def max_pool1d(
    x: mx.array,
    kernel_size: IntOrTuple,
    stride: IntOrTuple | None = None,
    padding: IntOrTuple = 0,
    *,
    dilation: IntOrTuple = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    index_format: str = "flat",
    data_format: str = "channels_last",
    stream: Stream = None,
) -> mx.array | tuple[mx.array, mx.array]:
    """The maximum of every window over a sequence, and where it is.

    Of equal values the first in row-major order is taken; NaN counts as larger than any number, the last
    NaN of a window wins. Padded places are skipped, never compared. The pooled size of an axis of ``L``
    is ``floor((L + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1``.

    Args:
        x (array): Input of shape ``(N, W, C)`` or ``(W, C)``; with
            ``data_format="channels_first"`` ``(N, C, W)`` or ``(C, W)``. float32, float16,
            bfloat16 or an integer type.
        kernel_size (int or tuple of 1 int): Window size, 1 or more.
        stride (int or tuple of 1 int, optional): Distance between windows, 1 or more.
            Default: ``kernel_size``.
        padding (int or tuple of 1 int): Places outside the input that windows may hang over on both ends,
            at most half the dilated window.
        dilation (int or tuple of 1 int): Distance between the taps of a window, 1 or more.
        ceil_mode (bool): Round the pooled size up, not down, as long as the last window starts inside
            the input or its padding on the left.
        return_indices (bool): Return the indices as well.
        index_format (str): ``"flat"`` for int32 places ``w`` of the input plane,
            PyTorch's numbers in either layout (int64 if the plane has 2^31 places or more), or
            ``"window"`` for uint8 offsets inside the window (uint16 if it has more than 256 taps).
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array or tuple of array: Values ``(N, W_out, C)`` of the dtype of ``x``, laid out as
        ``x`` is; with ``return_indices`` ``(values, indices)`` of the same shape. A window without a place
        inside the input has the value ``-inf`` (the least value of an integer type) and flat index -1.

    Raises:
        ValueError: If a number is out of range, no window fits, or ``x`` has another rank.
        TypeError: If ``x`` is complex or bool, or a number is not an integer.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.max_pool1d(x, 2, return_indices=True)
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([3.0, 5.0], [1, 3])
    """
    return pool_nd(
        "max_pool1d",
        1,
        x,
        kernel_size,
        stride,
        padding,
        dilation,
        ceil_mode,
        return_indices,
        index_format,
        data_format,
        stream,
    )


def max_pool2d(
    x: mx.array,
    kernel_size: IntOrTuple,
    stride: IntOrTuple | None = None,
    padding: IntOrTuple = 0,
    *,
    dilation: IntOrTuple = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    index_format: str = "flat",
    data_format: str = "channels_last",
    stream: Stream = None,
) -> mx.array | tuple[mx.array, mx.array]:
    """The maximum of every window over height and width, and where it is.

    Of equal values the first in row-major order is taken; NaN counts as larger than any number, the last
    NaN of a window wins. Padded places are skipped, never compared. The pooled size of an axis of ``L``
    is ``floor((L + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1``.

    Args:
        x (array): Input of shape ``(N, H, W, C)`` or ``(H, W, C)``; with
            ``data_format="channels_first"`` ``(N, C, H, W)`` or ``(C, H, W)``. float32, float16,
            bfloat16 or an integer type.
        kernel_size (int or tuple of 2 int): Window size, 1 or more.
        stride (int or tuple of 2 int, optional): Distance between windows, 1 or more.
            Default: ``kernel_size``.
        padding (int or tuple of 2 int): Places outside the input that windows may hang over on both ends,
            at most half the dilated window.
        dilation (int or tuple of 2 int): Distance between the taps of a window, 1 or more.
        ceil_mode (bool): Round the pooled size up, not down, as long as the last window starts inside
            the input or its padding on the left.
        return_indices (bool): Return the indices as well.
        index_format (str): ``"flat"`` for int32 places ``h * W + w`` of the input plane,
            PyTorch's numbers in either layout (int64 if the plane has 2^31 places or more), or
            ``"window"`` for uint8 offsets inside the window (uint16 if it has more than 256 taps).
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array or tuple of array: Values ``(N, H_out, W_out, C)`` of the dtype of ``x``, laid out as
        ``x`` is; with ``return_indices`` ``(values, indices)`` of the same shape. A window without a place
        inside the input has the value ``-inf`` (the least value of an integer type) and flat index -1.

    Raises:
        ValueError: If a number is out of range, no window fits, or ``x`` has another rank.
        TypeError: If ``x`` is complex or bool, or a number is not an integer.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.arange(1.0, 17.0).reshape(1, 4, 4, 1)
        >>> values, indices = mlx_unpool.max_pool2d(x, 2, stride=2, return_indices=True)
        >>> values.squeeze().tolist()
        [[6.0, 8.0], [14.0, 16.0]]
        >>> indices.squeeze().tolist()
        [[5, 7], [13, 15]]
    """
    return pool_nd(
        "max_pool2d",
        2,
        x,
        kernel_size,
        stride,
        padding,
        dilation,
        ceil_mode,
        return_indices,
        index_format,
        data_format,
        stream,
    )


def max_pool3d(
    x: mx.array,
    kernel_size: IntOrTuple,
    stride: IntOrTuple | None = None,
    padding: IntOrTuple = 0,
    *,
    dilation: IntOrTuple = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    index_format: str = "flat",
    data_format: str = "channels_last",
    stream: Stream = None,
) -> mx.array | tuple[mx.array, mx.array]:
    """The maximum of every window over depth, height and width, and where it is.

    Of equal values the first in row-major order is taken; NaN counts as larger than any number, the last
    NaN of a window wins. Padded places are skipped, never compared. The pooled size of an axis of ``L``
    is ``floor((L + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1``.

    Args:
        x (array): Input of shape ``(N, D, H, W, C)`` or ``(D, H, W, C)``; with
            ``data_format="channels_first"`` ``(N, C, D, H, W)`` or ``(C, D, H, W)``. float32, float16,
            bfloat16 or an integer type.
        kernel_size (int or tuple of 3 int): Window size, 1 or more.
        stride (int or tuple of 3 int, optional): Distance between windows, 1 or more.
            Default: ``kernel_size``.
        padding (int or tuple of 3 int): Places outside the input that windows may hang over on both ends,
            at most half the dilated window.
        dilation (int or tuple of 3 int): Distance between the taps of a window, 1 or more.
        ceil_mode (bool): Round the pooled size up, not down, as long as the last window starts inside
            the input or its padding on the left.
        return_indices (bool): Return the indices as well.
        index_format (str): ``"flat"`` for int32 places ``(d * H + h) * W + w`` of the input plane,
            PyTorch's numbers in either layout (int64 if the plane has 2^31 places or more), or
            ``"window"`` for uint8 offsets inside the window (uint16 if it has more than 256 taps).
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array or tuple of array: Values ``(N, D_out, H_out, W_out, C)`` of the dtype of ``x``, laid out as
        ``x`` is; with ``return_indices`` ``(values, indices)`` of the same shape. A window without a place
        inside the input has the value ``-inf`` (the least value of an integer type) and flat index -1.

    Raises:
        ValueError: If a number is out of range, no window fits, or ``x`` has another rank.
        TypeError: If ``x`` is complex or bool, or a number is not an integer.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.random.normal((20, 51, 33, 15, 16))
        >>> values, indices = mlx_unpool.max_pool3d(x, 3, stride=2, return_indices=True)
        >>> values.shape, indices.shape
        ((20, 25, 16, 7, 16), (20, 25, 16, 7, 16))
    """
    return pool_nd(
        "max_pool3d",
        3,
        x,
        kernel_size,
        stride,
        padding,
        dilation,
        ceil_mode,
        return_indices,
        index_format,
        data_format,
        stream,
    )


def max_unpool1d(
    x: mx.array,
    indices: mx.array,
    kernel_size: IntOrTuple | None,
    stride: IntOrTuple | None = None,
    padding: IntOrTuple = 0,
    output_size: IntOrTuple | None = None,
    *,
    dilation: IntOrTuple = 1,
    data_format: str = "channels_last",
    stream: Stream = None,
) -> mx.array:
    """Puts pooled values back to the places that their indices name, with zeros elsewhere.

    Of several cells that name one place the last in row-major order wins. An index that names no place
    of the output is dropped; :func:`check_indices` finds such an index. The default size of an axis is
    ``(L - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + 1``.

    Args:
        x (array): Pooled values of shape ``(N, W, C)`` or ``(W, C)``; with
            ``data_format="channels_first"`` ``(N, C, W)`` or ``(C, W)``. float32, float16,
            bfloat16 or an integer type.
        indices (array): The shape of ``x``. uint8 and uint16 are offsets inside the window, any other
            integer type flat places ``w`` of the output plane.
        kernel_size (int or tuple of 1 int or None): The pool's. None takes flat indices of any origin
            (another framework, adaptive pooling) and needs ``output_size``.
        stride (int or tuple of 1 int, optional): The pool's. Default: ``kernel_size``.
        padding (int or tuple of 1 int): The pool's.
        output_size (int or tuple of int, optional): Spatial shape of the output, or its full shape, with
            or without the batch. It must lie within one stride of the default size: those are the sizes
            that pool to this one.
        dilation (int or tuple of 1 int): The pool's.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array: Shape ``(N, W_out, C)``, the dtype of ``x``, laid out as ``x`` is.

    Raises:
        ValueError: If a number is out of range, ``output_size`` could not have pooled to the size of
            ``x``, or shapes do not match.
        TypeError: If ``x`` is complex or bool, ``indices`` are not integers, or a number is not one.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.max_pool1d(x, 2, return_indices=True)
        >>> mlx_unpool.max_unpool1d(values, indices, 2, output_size=5).squeeze().tolist()
        [0.0, 3.0, 0.0, 5.0, 0.0]
    """
    return unpool_nd(
        "max_unpool1d",
        1,
        x,
        indices,
        kernel_size,
        stride,
        padding,
        output_size,
        dilation,
        data_format,
        stream,
    )


def max_unpool2d(
    x: mx.array,
    indices: mx.array,
    kernel_size: IntOrTuple | None,
    stride: IntOrTuple | None = None,
    padding: IntOrTuple = 0,
    output_size: IntOrTuple | None = None,
    *,
    dilation: IntOrTuple = 1,
    data_format: str = "channels_last",
    stream: Stream = None,
) -> mx.array:
    """Puts pooled values back to the places that their indices name, with zeros elsewhere.

    Of several cells that name one place the last in row-major order wins. An index that names no place
    of the output is dropped; :func:`check_indices` finds such an index. The default size of an axis is
    ``(L - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + 1``.

    Args:
        x (array): Pooled values of shape ``(N, H, W, C)`` or ``(H, W, C)``; with
            ``data_format="channels_first"`` ``(N, C, H, W)`` or ``(C, H, W)``. float32, float16,
            bfloat16 or an integer type.
        indices (array): The shape of ``x``. uint8 and uint16 are offsets inside the window, any other
            integer type flat places ``h * W + w`` of the output plane.
        kernel_size (int or tuple of 2 int or None): The pool's. None takes flat indices of any origin
            (another framework, adaptive pooling) and needs ``output_size``.
        stride (int or tuple of 2 int, optional): The pool's. Default: ``kernel_size``.
        padding (int or tuple of 2 int): The pool's.
        output_size (int or tuple of int, optional): Spatial shape of the output, or its full shape, with
            or without the batch. It must lie within one stride of the default size: those are the sizes
            that pool to this one.
        dilation (int or tuple of 2 int): The pool's.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array: Shape ``(N, H_out, W_out, C)``, the dtype of ``x``, laid out as ``x`` is.

    Raises:
        ValueError: If a number is out of range, ``output_size`` could not have pooled to the size of
            ``x``, or shapes do not match.
        TypeError: If ``x`` is complex or bool, ``indices`` are not integers, or a number is not one.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.arange(1, 17).reshape(1, 4, 4, 1)
        >>> values, indices = mlx_unpool.max_pool2d(x, 2, stride=2, return_indices=True)
        >>> mlx_unpool.max_unpool2d(values, indices, 2, stride=2).squeeze()
        array([[0, 0, 0, 0],
               [0, 6, 0, 8],
               [0, 0, 0, 0],
               [0, 14, 0, 16]], dtype=int32)

        A plane of 4 x 5 and one of 4 x 4 pool to the same size, so the odd one must be named:

        >>> x = mx.arange(1, 21).reshape(1, 4, 5, 1)
        >>> values, indices = mlx_unpool.max_pool2d(x, 2, stride=2, return_indices=True)
        >>> mlx_unpool.max_unpool2d(values, indices, 2, stride=2, output_size=x.shape).squeeze()
        array([[0, 0, 0, 0, 0],
               [0, 7, 0, 9, 0],
               [0, 0, 0, 0, 0],
               [0, 17, 0, 19, 0]], dtype=int32)
    """
    return unpool_nd(
        "max_unpool2d",
        2,
        x,
        indices,
        kernel_size,
        stride,
        padding,
        output_size,
        dilation,
        data_format,
        stream,
    )


def max_unpool3d(
    x: mx.array,
    indices: mx.array,
    kernel_size: IntOrTuple | None,
    stride: IntOrTuple | None = None,
    padding: IntOrTuple = 0,
    output_size: IntOrTuple | None = None,
    *,
    dilation: IntOrTuple = 1,
    data_format: str = "channels_last",
    stream: Stream = None,
) -> mx.array:
    """Puts pooled values back to the places that their indices name, with zeros elsewhere.

    Of several cells that name one place the last in row-major order wins. An index that names no place
    of the output is dropped; :func:`check_indices` finds such an index. The default size of an axis is
    ``(L - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + 1``.

    Args:
        x (array): Pooled values of shape ``(N, D, H, W, C)`` or ``(D, H, W, C)``; with
            ``data_format="channels_first"`` ``(N, C, D, H, W)`` or ``(C, D, H, W)``. float32, float16,
            bfloat16 or an integer type.
        indices (array): The shape of ``x``. uint8 and uint16 are offsets inside the window, any other
            integer type flat places ``(d * H + h) * W + w`` of the output plane.
        kernel_size (int or tuple of 3 int or None): The pool's. None takes flat indices of any origin
            (another framework, adaptive pooling) and needs ``output_size``.
        stride (int or tuple of 3 int, optional): The pool's. Default: ``kernel_size``.
        padding (int or tuple of 3 int): The pool's.
        output_size (int or tuple of int, optional): Spatial shape of the output, or its full shape, with
            or without the batch. It must lie within one stride of the default size: those are the sizes
            that pool to this one.
        dilation (int or tuple of 3 int): The pool's.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array: Shape ``(N, D_out, H_out, W_out, C)``, the dtype of ``x``, laid out as ``x`` is.

    Raises:
        ValueError: If a number is out of range, ``output_size`` could not have pooled to the size of
            ``x``, or shapes do not match.
        TypeError: If ``x`` is complex or bool, ``indices`` are not integers, or a number is not one.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.random.normal((20, 16, 51, 33, 15))
        >>> layout = {"data_format": "channels_first"}
        >>> values, indices = mlx_unpool.max_pool3d(x, 3, stride=2, return_indices=True, **layout)
        >>> mlx_unpool.max_unpool3d(values, indices, 3, stride=2, **layout).shape
        (20, 16, 51, 33, 15)
    """
    return unpool_nd(
        "max_unpool3d",
        3,
        x,
        indices,
        kernel_size,
        stride,
        padding,
        output_size,
        dilation,
        data_format,
        stream,
    )
