"""Max pooling with indices and max unpooling, as functions.

The examples assume ``import mlx.core as mx`` and ``import mlx_unpool``.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from . import _arguments as check
from ._requests import AdaptivePooling, FractionalPooling, MaxPooling, MaxUnpooling
from ._types import ArrayOrPair, DataFormat, IndexFormat, IntOrTuple, Stream


@check.signature
def max_pool1d(
    x: mx.array,
    kernel_size: IntOrTuple,
    stride: IntOrTuple | None = None,
    padding: IntOrTuple = 0,
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
        x (array): ``(N, W, C)``, or ``(N, C, W)`` with the channels first; N is optional.
        kernel_size (int or tuple of int): Size of the window.
        stride (int or tuple of int, optional): Distance between windows. Default: ``kernel_size``.
        padding (int or tuple of int): Implicit padding on both sides of each axis.
        dilation (int or tuple of int): Distance between the elements of a window.
        ceil_mode (bool): Round the pooled size up instead of down.
        return_indices (bool): Return ``(values, indices)``.
        index_format (str): ``"flat"``, positions in the plane, or ``"window"``, offsets in the window.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Returns:
        array or tuple of array: Values of shape ``(N, W_out, C)`` and the dtype of ``x``; with
        ``return_indices`` also their indices: int32, or uint8 for ``"window"`` (uint16 above 256 elements).

    Raises:
        ValueError: If ``kernel_size`` does not fit into ``x``, ``padding`` is more than half the window,
            another number is out of range or a name is unknown.
        TypeError: If ``x`` is not an array of a supported dtype, a size not an integer or a flag not a bool.

    Example:
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.max_pool1d(x, 2, return_indices=True)
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([3.0, 5.0], [1, 3])

    See also: :class:`MaxPool1d` for sizes, ties and NaN; :func:`max_unpool1d` for the partial inverse.
    """
    given = (kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return MaxPooling.of("max_pool1d", 1, *given, index_format, data_format)(x, stream)


@check.signature
def max_pool2d(
    x: mx.array,
    kernel_size: IntOrTuple,
    stride: IntOrTuple | None = None,
    padding: IntOrTuple = 0,
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
        x (array): ``(N, H, W, C)``, or ``(N, C, H, W)`` with the channels first; N is optional.
        kernel_size (int or tuple of int): Size of the window.
        stride (int or tuple of int, optional): Distance between windows. Default: ``kernel_size``.
        padding (int or tuple of int): Implicit padding on both sides of each axis.
        dilation (int or tuple of int): Distance between the elements of a window.
        ceil_mode (bool): Round the pooled size up instead of down.
        return_indices (bool): Return ``(values, indices)``.
        index_format (str): ``"flat"``, positions in the plane, or ``"window"``, offsets in the window.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Returns:
        array or tuple of array: Values of shape ``(N, H_out, W_out, C)`` and the dtype of ``x``; with
        ``return_indices`` also their indices: int32, or uint8 for ``"window"`` (uint16 above 256 elements).

    Raises:
        ValueError: If ``kernel_size`` does not fit into ``x``, ``padding`` is more than half the window,
            another number is out of range or a name is unknown.
        TypeError: If ``x`` is not an array of a supported dtype, a size not an integer or a flag not a bool.

    Example:
        >>> x = mx.arange(16.0).reshape(1, 4, 4, 1)
        >>> values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([[5.0, 7.0], [13.0, 15.0]], [[5, 7], [13, 15]])
        >>> values.dtype, indices.dtype
        (mlx.core.float32, mlx.core.int32)
        >>> offsets = mlx_unpool.max_pool2d(x, 2, return_indices=True, index_format="window")[1]
        >>> offsets.squeeze().tolist(), offsets.dtype  # element 3 of 0 to 3, the last one of each window
        ([[3, 3], [3, 3]], mlx.core.uint8)

    See also: :class:`MaxPool2d` for sizes, ties and NaN; :func:`max_unpool2d` for the partial inverse.
    """
    given = (kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return MaxPooling.of("max_pool2d", 2, *given, index_format, data_format)(x, stream)


@check.signature
def max_pool3d(
    x: mx.array,
    kernel_size: IntOrTuple,
    stride: IntOrTuple | None = None,
    padding: IntOrTuple = 0,
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
        x (array): ``(N, D, H, W, C)``, or ``(N, C, D, H, W)`` with the channels first; N is optional.
        kernel_size (int or tuple of int): Size of the window.
        stride (int or tuple of int, optional): Distance between windows. Default: ``kernel_size``.
        padding (int or tuple of int): Implicit padding on both sides of each axis.
        dilation (int or tuple of int): Distance between the elements of a window.
        ceil_mode (bool): Round the pooled size up instead of down.
        return_indices (bool): Return ``(values, indices)``.
        index_format (str): ``"flat"``, positions in the plane, or ``"window"``, offsets in the window.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Returns:
        array or tuple of array: Values of shape ``(N, D_out, H_out, W_out, C)`` and the dtype of ``x``; with
        ``return_indices`` also their indices: int32, or uint8 for ``"window"`` (uint16 above 256 elements).

    Raises:
        ValueError: If ``kernel_size`` does not fit into ``x``, ``padding`` is more than half the window,
            another number is out of range or a name is unknown.
        TypeError: If ``x`` is not an array of a supported dtype, a size not an integer or a flag not a bool.

    Example:
        >>> x = mx.arange(24.0).reshape(1, 2, 3, 4, 1)
        >>> values, indices = mlx_unpool.max_pool3d(x, 2, return_indices=True)
        >>> values.shape, values.squeeze().tolist(), indices.squeeze().tolist()
        ((1, 1, 1, 2, 1), [17.0, 19.0], [17, 19])

    See also: :class:`MaxPool3d` for sizes, ties and NaN; :func:`max_unpool3d` for the partial inverse.
    """
    given = (kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return MaxPooling.of("max_pool3d", 3, *given, index_format, data_format)(x, stream)


@check.signature
def max_unpool1d(
    x: mx.array,
    indices: mx.array,
    kernel_size: IntOrTuple | None,
    stride: IntOrTuple | None = None,
    padding: IntOrTuple = 0,
    output_size: IntOrTuple | None = None,
    *,
    dilation: IntOrTuple = 1,
    data_format: DataFormat = "channels_last",
    stream: Stream = None,
) -> mx.array:
    """Compute a partial inverse of :func:`max_pool1d`: values at their indices, zeros elsewhere.

    Args:
        x (array): ``(N, W_out, C)``, or ``(N, C, W_out)`` with the channels first; N is optional.
        indices (array): Flat or, as uint8 or uint16, window indices, with the shape of ``x``.
        kernel_size (int or tuple of int or None): Window of the pooling; None accepts any flat indices.
        stride, padding, dilation (int or tuple of int): Of the pooling, with the same defaults.
        output_size (int or tuple of int, optional): Shape of the array that was pooled. Always pass it.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Returns:
        array: Shape ``(N, W, C)``, the dtype of ``x``.

    Raises:
        ValueError: If ``indices`` and ``x`` differ in shape, ``output_size`` is not possible, is missing if
            ``kernel_size`` is None, another number is out of range or a name is unknown.
        TypeError: If ``x`` is not an array of a supported dtype, or ``indices`` or a size not of integers.

    Example:
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.max_pool1d(x, 2, return_indices=True)
        >>> mlx_unpool.max_unpool1d(values, indices, 2, output_size=x.shape).squeeze().tolist()
        [0.0, 3.0, 0.0, 5.0, 0.0]

    See also: :class:`MaxUnpool1d` for sizes and equal or invalid indices; :func:`max_pool1d`.
    """
    given = (kernel_size, stride, padding, dilation, data_format)
    return MaxUnpooling.of("max_unpool1d", 1, *given)(x, indices, output_size, stream)


@check.signature
def max_unpool2d(
    x: mx.array,
    indices: mx.array,
    kernel_size: IntOrTuple | None,
    stride: IntOrTuple | None = None,
    padding: IntOrTuple = 0,
    output_size: IntOrTuple | None = None,
    *,
    dilation: IntOrTuple = 1,
    data_format: DataFormat = "channels_last",
    stream: Stream = None,
) -> mx.array:
    """Compute a partial inverse of :func:`max_pool2d`: values at their indices, zeros elsewhere.

    Args:
        x (array): ``(N, H_out, W_out, C)`` or, channels first, ``(N, C, H_out, W_out)``.
        indices (array): Flat or, as uint8 or uint16, window indices, with the shape of ``x``.
        kernel_size (int or tuple of int or None): Window of the pooling; None accepts any flat indices.
        stride, padding, dilation (int or tuple of int): Of the pooling, with the same defaults.
        output_size (int or tuple of int, optional): Shape of the array that was pooled. Always pass it.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Returns:
        array: Shape ``(N, H, W, C)``, the dtype of ``x``.

    Raises:
        ValueError: If ``indices`` and ``x`` differ in shape, ``output_size`` is not possible, is missing if
            ``kernel_size`` is None, another number is out of range or a name is unknown.
        TypeError: If ``x`` is not an array of a supported dtype, or ``indices`` or a size not of integers.

    Example:
        >>> x = mx.arange(20).reshape(1, 4, 5, 1)
        >>> values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
        >>> mlx_unpool.max_unpool2d(values, indices, 2, output_size=x.shape).squeeze()
        array([[0, 0, 0, 0, 0],
               [0, 6, 0, 8, 0],
               [0, 0, 0, 0, 0],
               [0, 16, 0, 18, 0]], dtype=int32)

    See also: :class:`MaxUnpool2d` for sizes and equal or invalid indices; :func:`max_pool2d`.
    """
    given = (kernel_size, stride, padding, dilation, data_format)
    return MaxUnpooling.of("max_unpool2d", 2, *given)(x, indices, output_size, stream)


@check.signature
def max_unpool3d(
    x: mx.array,
    indices: mx.array,
    kernel_size: IntOrTuple | None,
    stride: IntOrTuple | None = None,
    padding: IntOrTuple = 0,
    output_size: IntOrTuple | None = None,
    *,
    dilation: IntOrTuple = 1,
    data_format: DataFormat = "channels_last",
    stream: Stream = None,
) -> mx.array:
    """Compute a partial inverse of :func:`max_pool3d`: values at their indices, zeros elsewhere.

    Args:
        x (array): ``(N, D_out, H_out, W_out, C)`` or, channels first, ``(N, C, D_out, H_out, W_out)``.
        indices (array): Flat or, as uint8 or uint16, window indices, with the shape of ``x``.
        kernel_size (int or tuple of int or None): Window of the pooling; None accepts any flat indices.
        stride, padding, dilation (int or tuple of int): Of the pooling, with the same defaults.
        output_size (int or tuple of int, optional): Shape of the array that was pooled. Always pass it.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Returns:
        array: Shape ``(N, D, H, W, C)``, the dtype of ``x``.

    Raises:
        ValueError: If ``indices`` and ``x`` differ in shape, ``output_size`` is not possible, is missing if
            ``kernel_size`` is None, another number is out of range or a name is unknown.
        TypeError: If ``x`` is not an array of a supported dtype, or ``indices`` or a size not of integers.

    Example:
        >>> x = mx.arange(24).reshape(1, 2, 3, 4, 1)
        >>> values, indices = mlx_unpool.max_pool3d(x, 2, return_indices=True)
        >>> mlx_unpool.max_unpool3d(values, indices, 2, output_size=x.shape)[0, 1].squeeze()
        array([[0, 0, 0, 0],
               [0, 17, 0, 19],
               [0, 0, 0, 0]], dtype=int32)

    See also: :class:`MaxUnpool3d` for sizes and equal or invalid indices; :func:`max_pool3d`.
    """
    given = (kernel_size, stride, padding, dilation, data_format)
    return MaxUnpooling.of("max_unpool3d", 3, *given)(x, indices, output_size, stream)


@check.signature
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
        x (array): ``(N, W, C)``, or ``(N, C, W)`` with the channels first; N is optional.
        output_size (int or tuple of int or None): Number of windows per axis; None keeps the length.
        return_indices (bool): Return ``(values, indices)``.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Returns:
        array or tuple of array: Values of shape ``(N, W_out, C)`` and the dtype of ``x``; with
        ``return_indices`` also their positions in the plane, int32.

    Raises:
        ValueError: If ``output_size`` is below 1, ``x`` has an empty axis or ``data_format`` is unknown.
        TypeError: If ``x`` is not an array of a supported dtype, a size not an integer or a flag not a bool.

    Example:
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.adaptive_max_pool1d(x, 2, return_indices=True)
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([3.0, 5.0], [1, 3])

    See also: :class:`AdaptiveMaxPool1d` for the windows; :func:`max_unpool1d`, with ``kernel_size=None``.
    """
    given = (output_size, return_indices, data_format)
    return AdaptivePooling.of("adaptive_max_pool1d", 1, *given)(x, stream)


@check.signature
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
        x (array): ``(N, H, W, C)``, or ``(N, C, H, W)`` with the channels first; N is optional.
        output_size (int or tuple of int or None): Number of windows per axis; None keeps the length.
        return_indices (bool): Return ``(values, indices)``.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Returns:
        array or tuple of array: Values of shape ``(N, H_out, W_out, C)`` and the dtype of ``x``; with
        ``return_indices`` also their positions in the plane, int32.

    Raises:
        ValueError: If ``output_size`` is below 1, ``x`` has an empty axis or ``data_format`` is unknown.
        TypeError: If ``x`` is not an array of a supported dtype, a size not an integer or a flag not a bool.

    Example:
        >>> x = mx.arange(15.0).reshape(1, 5, 3, 1)
        >>> values, indices = mlx_unpool.adaptive_max_pool2d(x, (2, None), return_indices=True)
        >>> values.squeeze().tolist()
        [[6.0, 7.0, 8.0], [12.0, 13.0, 14.0]]
        >>> mlx_unpool.max_unpool2d(values, indices, None, output_size=x.shape).shape
        (1, 5, 3, 1)

    See also: :class:`AdaptiveMaxPool2d` for the windows; :func:`max_unpool2d`, with ``kernel_size=None``.
    """
    given = (output_size, return_indices, data_format)
    return AdaptivePooling.of("adaptive_max_pool2d", 2, *given)(x, stream)


@check.signature
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
        x (array): ``(N, D, H, W, C)``, or ``(N, C, D, H, W)`` with the channels first; N is optional.
        output_size (int or tuple of int or None): Number of windows per axis; None keeps the length.
        return_indices (bool): Return ``(values, indices)``.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Returns:
        array or tuple of array: Values of shape ``(N, D_out, H_out, W_out, C)`` and the dtype of ``x``; with
        ``return_indices`` also their positions in the plane, int32.

    Raises:
        ValueError: If ``output_size`` is below 1, ``x`` has an empty axis or ``data_format`` is unknown.
        TypeError: If ``x`` is not an array of a supported dtype, a size not an integer or a flag not a bool.

    Example:
        >>> x = mx.arange(24.0).reshape(1, 2, 3, 4, 1)
        >>> mlx_unpool.adaptive_max_pool3d(x, (1, 1, 2)).squeeze().tolist()
        [21.0, 23.0]

    See also: :class:`AdaptiveMaxPool3d` for the windows; :func:`max_unpool3d`, with ``kernel_size=None``.
    """
    given = (output_size, return_indices, data_format)
    return AdaptivePooling.of("adaptive_max_pool3d", 3, *given)(x, stream)


@check.signature
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
        x (array): ``(N, H, W, C)``, or ``(N, C, H, W)`` with the channels first; N is optional.
        kernel_size (int or tuple of int): Size of the window.
        output_size (int or tuple of int, optional): Number of windows per axis.
        output_ratio (float or tuple of float, optional): ``output_size`` as a fraction of the input size.
        return_indices (bool): Return ``(values, indices)``.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        random_samples (array, optional): Floats from 0 to 1 of shape ``(N, C, 2)``.
        key (array, optional): Key of ``mx.random`` to draw them with.
        stream (Stream or Device, optional): Stream or device to run on.

    Returns:
        array or tuple of array: Values of shape ``(N, H_out, W_out, C)`` and the dtype of ``x``; with
        ``return_indices`` also their positions in the plane, int32.

    Raises:
        ValueError: If the windows do not fit into ``x``, a number or a shape is out of range, or not exactly
            one of ``output_size`` and ``output_ratio`` is given.
        TypeError: If ``x`` is not an array of a supported dtype, or another argument has a wrong type.

    Example:
        >>> x = mx.arange(25.0).reshape(1, 5, 5, 1)
        >>> samples = mx.zeros((1, 1, 2))  # instead of random numbers
        >>> pooled = mlx_unpool.fractional_max_pool2d(x, 2, output_size=2, random_samples=samples)
        >>> pooled.squeeze().tolist()
        [[6.0, 9.0], [21.0, 24.0]]
        >>> mlx_unpool.fractional_max_pool2d(x, 2, output_ratio=0.6, key=mx.random.key(0)).shape
        (1, 3, 3, 1)

    See also: :class:`FractionalMaxPool2d` for the windows; :func:`max_unpool2d`, with ``kernel_size=None``.
    """
    given = (kernel_size, output_size, output_ratio, return_indices, data_format)
    return FractionalPooling.of("fractional_max_pool2d", 2, *given)(x, stream, random_samples, key)


@check.signature
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
        x (array): ``(N, D, H, W, C)``, or ``(N, C, D, H, W)`` with the channels first; N is optional.
        kernel_size (int or tuple of int): Size of the window.
        output_size (int or tuple of int, optional): Number of windows per axis.
        output_ratio (float or tuple of float, optional): ``output_size`` as a fraction of the input size.
        return_indices (bool): Return ``(values, indices)``.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        random_samples (array, optional): Floats from 0 to 1 of shape ``(N, C, 3)``.
        key (array, optional): Key of ``mx.random`` to draw them with.
        stream (Stream or Device, optional): Stream or device to run on.

    Returns:
        array or tuple of array: Values of shape ``(N, D_out, H_out, W_out, C)`` and the dtype of ``x``; with
        ``return_indices`` also their positions in the plane, int32.

    Raises:
        ValueError: If the windows do not fit into ``x``, a number or a shape is out of range, or not exactly
            one of ``output_size`` and ``output_ratio`` is given.
        TypeError: If ``x`` is not an array of a supported dtype, or another argument has a wrong type.

    Example:
        >>> x = mx.arange(27.0).reshape(1, 3, 3, 3, 1)
        >>> mlx_unpool.fractional_max_pool3d(x, 2, output_size=(1, 1, 2)).squeeze().tolist()
        [25.0, 26.0]

    See also: :class:`FractionalMaxPool3d` for the windows; :func:`max_unpool3d`, with ``kernel_size=None``.
    """
    given = (kernel_size, output_size, output_ratio, return_indices, data_format)
    return FractionalPooling.of("fractional_max_pool3d", 3, *given)(x, stream, random_samples, key)
