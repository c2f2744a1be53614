"""Max pooling with indices and max unpooling, as functions."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from ._arguments import keywords_named
from ._pooling import AdaptivePooling, FractionalPooling, MaxPooling, MaxUnpooling
from ._types import IntOrTuple, Stream


@keywords_named
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
    """Max pooling over a sequence, with the position of each maximum on request.

    Ties go to the first element in row-major order. NaN counts as larger than any number; the last NaN of
    a window wins. Padding is skipped, never compared. The pooled size of an axis of length ``L`` is
    ``floor((L + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1``.

    Args:
        x (array): Shape ``(N, W, C)`` or ``(W, C)``; with
            ``data_format="channels_first"`` ``(N, C, W)`` or ``(C, W)``. float32, float16,
            bfloat16, an integer type, or float64 on the CPU.
        kernel_size (int or tuple of 1 int): Size of the window, 1 or more.
        stride (int or tuple of 1 int, optional): Distance between windows, 1 or more.
            Default: ``kernel_size``.
        padding (int or tuple of 1 int): Implicit padding on both sides of each axis, at most half the
            dilated window.
        dilation (int or tuple of 1 int): Distance between the elements of a window, 1 or more.
        ceil_mode (bool): Round the pooled size up instead of down, as long as the last window starts
            inside the input or its left padding.
        return_indices (bool): Also return the index of each maximum.
        index_format (str): ``"flat"`` for int32 positions ``w`` in the input plane, the
            numbers that PyTorch returns in either layout (int64 for planes of 2^31 positions or more), or
            ``"window"`` for uint8 offsets inside the window (uint16 for windows of more than 256
            elements).
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array or tuple of array: Values ``(N, W_out, C)`` with the dtype and the layout of ``x``;
        with ``return_indices`` ``(values, indices)``, both of this shape. A window without an element
        inside the input gives ``-inf`` (the smallest value of an integer type) and flat index -1.

    Raises:
        ValueError: If a number is out of range, no window fits, or ``x`` has the wrong number of axes.
        TypeError: If ``x`` is complex or bool, or float64 on a GPU, or a number is not an integer.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.max_pool1d(x, 2, return_indices=True)
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([3.0, 5.0], [1, 3])
    """
    pooling = MaxPooling.of(
        "max_pool1d",
        1,
        kernel_size,
        stride,
        padding,
        dilation,
        ceil_mode,
        return_indices,
        index_format,
        data_format,
    )
    return pooling(x, stream)


@keywords_named
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
    """Max pooling over height and width, with the position of each maximum on request.

    Ties go to the first element in row-major order. NaN counts as larger than any number; the last NaN of
    a window wins. Padding is skipped, never compared. The pooled size of an axis of length ``L`` is
    ``floor((L + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1``.

    Args:
        x (array): Shape ``(N, H, W, C)`` or ``(H, W, C)``; with
            ``data_format="channels_first"`` ``(N, C, H, W)`` or ``(C, H, W)``. float32, float16,
            bfloat16, an integer type, or float64 on the CPU.
        kernel_size (int or tuple of 2 int): Size of the window, 1 or more.
        stride (int or tuple of 2 int, optional): Distance between windows, 1 or more.
            Default: ``kernel_size``.
        padding (int or tuple of 2 int): Implicit padding on both sides of each axis, at most half the
            dilated window.
        dilation (int or tuple of 2 int): Distance between the elements of a window, 1 or more.
        ceil_mode (bool): Round the pooled size up instead of down, as long as the last window starts
            inside the input or its left padding.
        return_indices (bool): Also return the index of each maximum.
        index_format (str): ``"flat"`` for int32 positions ``h * W + w`` in the input plane, the
            numbers that PyTorch returns in either layout (int64 for planes of 2^31 positions or more), or
            ``"window"`` for uint8 offsets inside the window (uint16 for windows of more than 256
            elements).
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array or tuple of array: Values ``(N, H_out, W_out, C)`` with the dtype and the layout of ``x``;
        with ``return_indices`` ``(values, indices)``, both of this shape. A window without an element
        inside the input gives ``-inf`` (the smallest value of an integer type) and flat index -1.

    Raises:
        ValueError: If a number is out of range, no window fits, or ``x`` has the wrong number of axes.
        TypeError: If ``x`` is complex or bool, or float64 on a GPU, or a number is not an integer.

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
    pooling = MaxPooling.of(
        "max_pool2d",
        2,
        kernel_size,
        stride,
        padding,
        dilation,
        ceil_mode,
        return_indices,
        index_format,
        data_format,
    )
    return pooling(x, stream)


@keywords_named
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
    """Max pooling over depth, height and width, with the position of each maximum on request.

    Ties go to the first element in row-major order. NaN counts as larger than any number; the last NaN of
    a window wins. Padding is skipped, never compared. The pooled size of an axis of length ``L`` is
    ``floor((L + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1``.

    Args:
        x (array): Shape ``(N, D, H, W, C)`` or ``(D, H, W, C)``; with
            ``data_format="channels_first"`` ``(N, C, D, H, W)`` or ``(C, D, H, W)``. float32, float16,
            bfloat16, an integer type, or float64 on the CPU.
        kernel_size (int or tuple of 3 int): Size of the window, 1 or more.
        stride (int or tuple of 3 int, optional): Distance between windows, 1 or more.
            Default: ``kernel_size``.
        padding (int or tuple of 3 int): Implicit padding on both sides of each axis, at most half the
            dilated window.
        dilation (int or tuple of 3 int): Distance between the elements of a window, 1 or more.
        ceil_mode (bool): Round the pooled size up instead of down, as long as the last window starts
            inside the input or its left padding.
        return_indices (bool): Also return the index of each maximum.
        index_format (str): ``"flat"`` for int32 positions ``(d * H + h) * W + w`` in the input plane, the
            numbers that PyTorch returns in either layout (int64 for planes of 2^31 positions or more), or
            ``"window"`` for uint8 offsets inside the window (uint16 for windows of more than 256
            elements).
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array or tuple of array: Values ``(N, D_out, H_out, W_out, C)`` with the dtype and the layout of
        ``x``; with ``return_indices`` ``(values, indices)``, both of this shape. A window without an element
        inside the input gives ``-inf`` (the smallest value of an integer type) and flat index -1.

    Raises:
        ValueError: If a number is out of range, no window fits, or ``x`` has the wrong number of axes.
        TypeError: If ``x`` is complex or bool, or float64 on a GPU, or a number is not an integer.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.random.normal((20, 51, 33, 15, 16))
        >>> values, indices = mlx_unpool.max_pool3d(x, 3, stride=2, return_indices=True)
        >>> values.shape, indices.shape
        ((20, 25, 16, 7, 16), (20, 25, 16, 7, 16))
    """
    pooling = MaxPooling.of(
        "max_pool3d",
        3,
        kernel_size,
        stride,
        padding,
        dilation,
        ceil_mode,
        return_indices,
        index_format,
        data_format,
    )
    return pooling(x, stream)


@keywords_named
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
    """Max unpooling over a sequence: puts pooled values back at their indices, zeros elsewhere.

    If several values have the same index, the last one in row-major order wins. An index outside the
    output is dropped; :func:`check_indices` and :func:`checking` find such indices. The default size of an
    axis is ``(L - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + 1``.

    Warning:
        Several input sizes pool to the same size, and flat indices count the positions of the plane that was
        pooled. A sequence of length 5, pooled by 2 and unpooled without ``output_size``, has
        length 4: the last position is missing, and an index that names it would be dropped.
        Pass ``output_size=x.shape``, where ``x`` is what was pooled, or pool with
        ``index_format="window"``, which comes out right at any size.

    Args:
        x (array): Pooled values. Shape ``(N, W, C)`` or ``(W, C)``; with
            ``data_format="channels_first"`` ``(N, C, W)`` or ``(C, W)``. float32, float16,
            bfloat16, an integer type, or float64 on the CPU.
        indices (array): Indices of the shape of ``x``. uint8 and uint16 are offsets inside the window, any
            other integer type flat positions ``w`` in the output plane.
        kernel_size (int or tuple of 1 int or None): Must match the pooling layer. None takes flat
            indices of any origin (another framework, adaptive pooling) and needs ``output_size``.
        stride (int or tuple of 1 int, optional): Must match the pooling layer. Default:
            ``kernel_size``.
        padding (int or tuple of 1 int): Must match the pooling layer.
        output_size (int or tuple of int, optional): Spatial shape of the output, or its full shape with
            or without the batch dimension. Each axis must be within one stride of the default size: these
            are the sizes that pool to the size of ``x``.
        dilation (int or tuple of 1 int): Must match the pooling layer.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array: Shape ``(N, W_out, C)``, with the dtype and the layout of ``x``.

    Raises:
        ValueError: If a number is out of range, ``output_size`` could not have pooled to the size of
            ``x``, or shapes do not match.
        TypeError: If ``x`` is complex or bool, or float64 on a GPU, ``indices`` are not integers, or a
            number is not one.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.max_pool1d(x, 2, return_indices=True)
        >>> mlx_unpool.max_unpool1d(values, indices, 2, output_size=5).squeeze().tolist()
        [0.0, 3.0, 0.0, 5.0, 0.0]
    """
    unpooling = MaxUnpooling.of(
        "max_unpool1d", 1, kernel_size, stride, padding, dilation, data_format
    )
    return unpooling(x, indices, output_size, stream)


@keywords_named
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
    """Max unpooling over height and width: puts pooled values back at their indices, zeros elsewhere.

    If several values have the same index, the last one in row-major order wins. An index outside the
    output is dropped; :func:`check_indices` and :func:`checking` find such indices. The default size of an
    axis is ``(L - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + 1``.

    Warning:
        Several input sizes pool to the same size, and flat indices count the positions of the plane that was
        pooled. A 4 x 5 plane, pooled 2 x 2 and unpooled without ``output_size``, becomes 4 x 4: indices
        that count in rows of 5 put values into the wrong rows, or are dropped, without an error.
        Pass ``output_size=x.shape``, where ``x`` is what was pooled, or pool with
        ``index_format="window"``, which comes out right at any size.

    Args:
        x (array): Pooled values. Shape ``(N, H, W, C)`` or ``(H, W, C)``; with
            ``data_format="channels_first"`` ``(N, C, H, W)`` or ``(C, H, W)``. float32, float16,
            bfloat16, an integer type, or float64 on the CPU.
        indices (array): Indices of the shape of ``x``. uint8 and uint16 are offsets inside the window, any
            other integer type flat positions ``h * W + w`` in the output plane.
        kernel_size (int or tuple of 2 int or None): Must match the pooling layer. None takes flat
            indices of any origin (another framework, adaptive pooling) and needs ``output_size``.
        stride (int or tuple of 2 int, optional): Must match the pooling layer. Default:
            ``kernel_size``.
        padding (int or tuple of 2 int): Must match the pooling layer.
        output_size (int or tuple of int, optional): Spatial shape of the output, or its full shape with
            or without the batch dimension. Each axis must be within one stride of the default size: these
            are the sizes that pool to the size of ``x``.
        dilation (int or tuple of 2 int): Must match the pooling layer.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array: Shape ``(N, H_out, W_out, C)``, with the dtype and the layout of ``x``.

    Raises:
        ValueError: If a number is out of range, ``output_size`` could not have pooled to the size of
            ``x``, or shapes do not match.
        TypeError: If ``x`` is complex or bool, or float64 on a GPU, ``indices`` are not integers, or a
            number is not one.

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
    unpooling = MaxUnpooling.of(
        "max_unpool2d", 2, kernel_size, stride, padding, dilation, data_format
    )
    return unpooling(x, indices, output_size, stream)


@keywords_named
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
    """Max unpooling over depth, height and width: puts pooled values back at their indices, zeros elsewhere.

    If several values have the same index, the last one in row-major order wins. An index outside the
    output is dropped; :func:`check_indices` and :func:`checking` find such indices. The default size of an
    axis is ``(L - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + 1``.

    Warning:
        Several input sizes pool to the same size, and flat indices count the positions of the plane that was
        pooled. A plane of 4 x 4 x 5, pooled by 2 and unpooled without ``output_size``, becomes 4 x 4 x 4:
        indices that count in rows of 5 put values into the wrong rows, or are dropped, without an error.
        Pass ``output_size=x.shape``, where ``x`` is what was pooled, or pool with
        ``index_format="window"``, which comes out right at any size.

    Args:
        x (array): Pooled values. Shape ``(N, D, H, W, C)`` or ``(D, H, W, C)``; with
            ``data_format="channels_first"`` ``(N, C, D, H, W)`` or ``(C, D, H, W)``. float32, float16,
            bfloat16, an integer type, or float64 on the CPU.
        indices (array): Indices of the shape of ``x``. uint8 and uint16 are offsets inside the window, any
            other integer type flat positions ``(d * H + h) * W + w`` in the output plane.
        kernel_size (int or tuple of 3 int or None): Must match the pooling layer. None takes flat
            indices of any origin (another framework, adaptive pooling) and needs ``output_size``.
        stride (int or tuple of 3 int, optional): Must match the pooling layer. Default:
            ``kernel_size``.
        padding (int or tuple of 3 int): Must match the pooling layer.
        output_size (int or tuple of int, optional): Spatial shape of the output, or its full shape with
            or without the batch dimension. Each axis must be within one stride of the default size: these
            are the sizes that pool to the size of ``x``.
        dilation (int or tuple of 3 int): Must match the pooling layer.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array: Shape ``(N, D_out, H_out, W_out, C)``, with the dtype and the layout of ``x``.

    Raises:
        ValueError: If a number is out of range, ``output_size`` could not have pooled to the size of
            ``x``, or shapes do not match.
        TypeError: If ``x`` is complex or bool, or float64 on a GPU, ``indices`` are not integers, or a
            number is not one.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.random.normal((20, 16, 51, 33, 15))
        >>> layout = {"data_format": "channels_first"}
        >>> values, indices = mlx_unpool.max_pool3d(x, 3, stride=2, return_indices=True, **layout)
        >>> mlx_unpool.max_unpool3d(values, indices, 3, stride=2, **layout).shape
        (20, 16, 51, 33, 15)
    """
    unpooling = MaxUnpooling.of(
        "max_unpool3d", 3, kernel_size, stride, padding, dilation, data_format
    )
    return unpooling(x, indices, output_size, stream)


@keywords_named
def adaptive_max_pool1d(
    x: mx.array,
    output_size: int | Sequence[int | None],
    *,
    return_indices: bool = False,
    data_format: str = "channels_last",
    stream: Stream = None,
) -> mx.array | tuple[mx.array, mx.array]:
    """Adaptive max pooling over a sequence: pooling to ``output_size`` whatever the input size.

    On an axis of length ``L``, window ``i`` of ``n`` covers the positions from ``floor(i * L / n)`` up to,
    not including, ``ceil((i + 1) * L / n)``, as in PyTorch: neighbours overlap where ``n`` does not divide
    ``L``. Ties and NaN are treated as in :func:`max_pool1d`.

    Args:
        x (array): Shape ``(N, W, C)`` or ``(W, C)``; with
            ``data_format="channels_first"`` ``(N, C, W)`` or ``(C, W)``. float32, float16,
            bfloat16, an integer type, or float64 on the CPU.
        output_size (int or tuple of 1 int or None): Number of windows on each axis, 1 or more; None
            keeps the length of an axis.
        return_indices (bool): Also return the index of each maximum.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array or tuple of array: Values ``(N, W_out, C)`` with the dtype and the layout of ``x``;
        with ``return_indices`` ``(values, indices)``, both of this shape. Indices are int32 positions
        ``w`` in the input plane (int64 for planes of 2^31 positions or more), for
        ``max_unpool1d(values, indices, None, output_size=x.shape)``.

    Raises:
        ValueError: If a number is out of range or ``x`` has the wrong number of axes.
        TypeError: If ``x`` is complex or bool, or float64 on a GPU, or a number is not an integer.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.adaptive_max_pool1d(x, 2, return_indices=True)
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([3.0, 5.0], [1, 3])
    """
    pooling = AdaptivePooling.of("adaptive_max_pool1d", 1, output_size, return_indices, data_format)
    return pooling(x, stream)


@keywords_named
def adaptive_max_pool2d(
    x: mx.array,
    output_size: int | Sequence[int | None],
    *,
    return_indices: bool = False,
    data_format: str = "channels_last",
    stream: Stream = None,
) -> mx.array | tuple[mx.array, mx.array]:
    """Adaptive max pooling over height and width: pooling to ``output_size`` whatever the input size.

    On an axis of length ``L``, window ``i`` of ``n`` covers the positions from ``floor(i * L / n)`` up to,
    not including, ``ceil((i + 1) * L / n)``, as in PyTorch: neighbours overlap where ``n`` does not divide
    ``L``. Ties and NaN are treated as in :func:`max_pool2d`.

    Args:
        x (array): Shape ``(N, H, W, C)`` or ``(H, W, C)``; with
            ``data_format="channels_first"`` ``(N, C, H, W)`` or ``(C, H, W)``. float32, float16,
            bfloat16, an integer type, or float64 on the CPU.
        output_size (int or tuple of 2 int or None): Number of windows on each axis, 1 or more; None
            keeps the length of an axis.
        return_indices (bool): Also return the index of each maximum.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array or tuple of array: Values ``(N, H_out, W_out, C)`` with the dtype and the layout of ``x``;
        with ``return_indices`` ``(values, indices)``, both of this shape. Indices are int32 positions
        ``h * W + w`` in the input plane (int64 for planes of 2^31 positions or more), for
        ``max_unpool2d(values, indices, None, output_size=x.shape)``.

    Raises:
        ValueError: If a number is out of range or ``x`` has the wrong number of axes.
        TypeError: If ``x`` is complex or bool, or float64 on a GPU, or a number is not an integer.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.arange(35.0).reshape(1, 5, 7, 1)
        >>> values, indices = mlx_unpool.adaptive_max_pool2d(x, (2, None), return_indices=True)
        >>> values.shape
        (1, 2, 7, 1)
        >>> mlx_unpool.max_unpool2d(values, indices, None, output_size=(5, 7)).shape
        (1, 5, 7, 1)
    """
    pooling = AdaptivePooling.of("adaptive_max_pool2d", 2, output_size, return_indices, data_format)
    return pooling(x, stream)


@keywords_named
def adaptive_max_pool3d(
    x: mx.array,
    output_size: int | Sequence[int | None],
    *,
    return_indices: bool = False,
    data_format: str = "channels_last",
    stream: Stream = None,
) -> mx.array | tuple[mx.array, mx.array]:
    """Adaptive max pooling over depth, height and width: pooling to ``output_size`` whatever the input size.

    On an axis of length ``L``, window ``i`` of ``n`` covers the positions from ``floor(i * L / n)`` up to,
    not including, ``ceil((i + 1) * L / n)``, as in PyTorch: neighbours overlap where ``n`` does not divide
    ``L``. Ties and NaN are treated as in :func:`max_pool3d`.

    Args:
        x (array): Shape ``(N, D, H, W, C)`` or ``(D, H, W, C)``; with
            ``data_format="channels_first"`` ``(N, C, D, H, W)`` or ``(C, D, H, W)``. float32, float16,
            bfloat16, an integer type, or float64 on the CPU.
        output_size (int or tuple of 3 int or None): Number of windows on each axis, 1 or more; None
            keeps the length of an axis.
        return_indices (bool): Also return the index of each maximum.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array or tuple of array: Values ``(N, D_out, H_out, W_out, C)`` with the dtype and the layout of
        ``x``; with ``return_indices`` ``(values, indices)``, both of this shape. Indices are int32 positions
        ``(d * H + h) * W + w`` in the input plane (int64 for planes of 2^31 positions or more), for
        ``max_unpool3d(values, indices, None, output_size=x.shape)``.

    Raises:
        ValueError: If a number is out of range or ``x`` has the wrong number of axes.
        TypeError: If ``x`` is complex or bool, or float64 on a GPU, or a number is not an integer.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.random.normal((2, 8, 9, 10, 4))
        >>> mlx_unpool.adaptive_max_pool3d(x, 4).shape
        (2, 4, 4, 4, 4)
    """
    pooling = AdaptivePooling.of("adaptive_max_pool3d", 3, output_size, return_indices, data_format)
    return pooling(x, stream)


@keywords_named
def fractional_max_pool2d(
    x: mx.array,
    kernel_size: IntOrTuple,
    *,
    output_size: IntOrTuple | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    data_format: str = "channels_last",
    random_samples: mx.array | None = None,
    key: mx.array | None = None,
    stream: Stream = None,
) -> mx.array | tuple[mx.array, mx.array]:
    """Fractional max pooling over height and width: windows at random distances.

    The windows on an axis of length ``L`` start at ``floor((i + u) * a) - floor(u * a)``, where
    ``a = (L - kernel_size) / (output_size - 1)`` and ``u`` is one random number for each image, channel and
    axis; the last one starts at ``L - kernel_size``. This is what PyTorch does (Graham, "Fractional
    Max-Pooling", 2014). Ties and NaN are treated as in :func:`max_pool2d`.

    Without ``random_samples`` or ``key`` every run of this function draws from MLX's global state, as dropout
    does. So ``mx.checkpoint`` draws anew where it runs it again, ``mx.vmap`` draws once for all examples, and
    ``mx.compile`` keeps the first draw, unless ``mx.random.state`` is among its inputs and outputs. Give a
    ``key`` to each to have it otherwise: as an argument of the function that is transformed.

    Args:
        x (array): Shape ``(N, H, W, C)`` or ``(H, W, C)``; with
            ``data_format="channels_first"`` ``(N, C, H, W)`` or ``(C, H, W)``. float32, float16,
            bfloat16, an integer type, or float64 on the CPU.
        kernel_size (int or tuple of 2 int): Size of the window, 1 or more.
        output_size (int or tuple of 2 int, optional): Number of windows on each axis, 1 to
            ``L - kernel_size + 1``.
        output_ratio (float or tuple of 2 float, optional): That number as a fraction of ``L``, between
            0 and 1, rounded down. Exactly one of the two must be given.
        return_indices (bool): Also return the index of each maximum.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        random_samples (array, optional): The numbers ``u``, floats from 0 to 1 of shape ``(N, C, 2)``,
            the axes in the order height, width. (PyTorch's ``_random_samples`` have the width first.)
        key (array, optional): A key of ``mx.random`` to draw them with. Default: MLX's global state.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array or tuple of array: Values ``(N, H_out, W_out, C)`` with the dtype and the layout of ``x``;
        with ``return_indices`` ``(values, indices)``, both of this shape. Indices are int32 positions
        ``h * W + w`` in the input plane (int64 for planes of 2^31 positions or more), for
        ``max_unpool2d(values, indices, None, output_size=x.shape)``.

    Raises:
        ValueError: If a number is out of range, the windows do not fit, or ``x`` has the wrong number of
            axes.
        TypeError: If ``x`` is complex or bool, or float64 on a GPU, or a number is not an integer.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.random.normal((20, 50, 32, 16))
        >>> mlx_unpool.fractional_max_pool2d(x, 3, output_size=(13, 12)).shape
        (20, 13, 12, 16)
        >>> mlx_unpool.fractional_max_pool2d(x, 3, output_ratio=0.5, key=mx.random.key(0)).shape
        (20, 25, 16, 16)
    """
    pooling = FractionalPooling.of(
        "fractional_max_pool2d",
        2,
        kernel_size,
        output_size,
        output_ratio,
        return_indices,
        data_format,
    )
    return pooling(x, random_samples, key, stream)


@keywords_named
def fractional_max_pool3d(
    x: mx.array,
    kernel_size: IntOrTuple,
    *,
    output_size: IntOrTuple | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    data_format: str = "channels_last",
    random_samples: mx.array | None = None,
    key: mx.array | None = None,
    stream: Stream = None,
) -> mx.array | tuple[mx.array, mx.array]:
    """Fractional max pooling over depth, height and width: windows at random distances.

    The windows on an axis of length ``L`` start at ``floor((i + u) * a) - floor(u * a)``, where
    ``a = (L - kernel_size) / (output_size - 1)`` and ``u`` is one random number for each image, channel and
    axis; the last one starts at ``L - kernel_size``. This is what PyTorch does (Graham, "Fractional
    Max-Pooling", 2014). Ties and NaN are treated as in :func:`max_pool3d`.

    Without ``random_samples`` or ``key`` every run of this function draws from MLX's global state, as dropout
    does. So ``mx.checkpoint`` draws anew where it runs it again, ``mx.vmap`` draws once for all examples, and
    ``mx.compile`` keeps the first draw, unless ``mx.random.state`` is among its inputs and outputs. Give a
    ``key`` to each to have it otherwise: as an argument of the function that is transformed.

    Args:
        x (array): Shape ``(N, D, H, W, C)`` or ``(D, H, W, C)``; with
            ``data_format="channels_first"`` ``(N, C, D, H, W)`` or ``(C, D, H, W)``. float32, float16,
            bfloat16, an integer type, or float64 on the CPU.
        kernel_size (int or tuple of 3 int): Size of the window, 1 or more.
        output_size (int or tuple of 3 int, optional): Number of windows on each axis, 1 to
            ``L - kernel_size + 1``.
        output_ratio (float or tuple of 3 float, optional): That number as a fraction of ``L``, between
            0 and 1, rounded down. Exactly one of the two must be given.
        return_indices (bool): Also return the index of each maximum.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        random_samples (array, optional): The numbers ``u``, floats from 0 to 1 of shape ``(N, C, 3)``,
            the axes in the order depth, height, width, as in PyTorch.
        key (array, optional): A key of ``mx.random`` to draw them with. Default: MLX's global state.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array or tuple of array: Values ``(N, D_out, H_out, W_out, C)`` with the dtype and the layout of
        ``x``; with ``return_indices`` ``(values, indices)``, both of this shape. Indices are int32 positions
        ``(d * H + h) * W + w`` in the input plane (int64 for planes of 2^31 positions or more), for
        ``max_unpool3d(values, indices, None, output_size=x.shape)``.

    Raises:
        ValueError: If a number is out of range, the windows do not fit, or ``x`` has the wrong number of
            axes.
        TypeError: If ``x`` is complex or bool, or float64 on a GPU, or a number is not an integer.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.random.normal((2, 20, 16, 12, 4))
        >>> mlx_unpool.fractional_max_pool3d(x, 2, output_size=(13, 12, 11)).shape
        (2, 13, 12, 11, 4)
    """
    pooling = FractionalPooling.of(
        "fractional_max_pool3d",
        3,
        kernel_size,
        output_size,
        output_ratio,
        return_indices,
        data_format,
    )
    return pooling(x, random_samples, key, stream)
