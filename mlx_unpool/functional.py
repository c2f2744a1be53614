"""Max pooling with indices and max unpooling, as functions.

See the layers for arguments, shapes and errors. A function also takes the arrays and the stream.
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
    """Compute the maximum of every window; see :class:`MaxPool1d`.

    Args:
        x (array): Input, ``(N, W, C)`` or, channels first, ``(N, C, W)``.
        kernel_size (int or tuple of int): Size of the window.
        stride (int or tuple of int, optional): Distance between windows. Default: ``kernel_size``.
        padding (int or tuple of int): Implicit padding on both sides of each axis.
        dilation (int or tuple of int): Distance between the elements of a window.
        ceil_mode (bool): Round the pooled size up instead of down.
        return_indices (bool): Return ``(values, indices)``.
        index_format (str): ``"flat"`` or ``"window"``.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.max_pool1d(x, 2, return_indices=True)
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([3.0, 5.0], [1, 3])
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
    """Compute the maximum of every window; see :class:`MaxPool2d`.

    Args:
        x (array): Input, ``(N, H, W, C)`` or, channels first, ``(N, C, H, W)``.
        kernel_size (int or tuple of int): Size of the window.
        stride (int or tuple of int, optional): Distance between windows. Default: ``kernel_size``.
        padding (int or tuple of int): Implicit padding on both sides of each axis.
        dilation (int or tuple of int): Distance between the elements of a window.
        ceil_mode (bool): Round the pooled size up instead of down.
        return_indices (bool): Return ``(values, indices)``.
        index_format (str): ``"flat"`` or ``"window"``.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

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
    """Compute the maximum of every window; see :class:`MaxPool3d`.

    Args:
        x (array): Input, ``(N, D, H, W, C)`` or, channels first, ``(N, C, D, H, W)``.
        kernel_size (int or tuple of int): Size of the window.
        stride (int or tuple of int, optional): Distance between windows. Default: ``kernel_size``.
        padding (int or tuple of int): Implicit padding on both sides of each axis.
        dilation (int or tuple of int): Distance between the elements of a window.
        ceil_mode (bool): Round the pooled size up instead of down.
        return_indices (bool): Return ``(values, indices)``.
        index_format (str): ``"flat"`` or ``"window"``.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.random.normal((20, 51, 33, 15, 16))
        >>> values, indices = mlx_unpool.max_pool3d(x, 3, stride=2, return_indices=True)
        >>> values.shape, indices.shape
        ((20, 25, 16, 7, 16), (20, 25, 16, 7, 16))
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
    """Compute a partial inverse of :func:`max_pool1d`; see :class:`MaxUnpool1d`.

    Args:
        x (array): Pooled values, ``(N, W, C)`` or, channels first, ``(N, C, W)``.
        indices (array): Flat or window indices, with the shape of ``x``.
        kernel_size (int or tuple of int or None): Window of the pooling; None accepts any flat indices.
        stride (int or tuple of int, optional): Stride of the pooling. Default: ``kernel_size``.
        padding (int or tuple of int): Padding of the pooling.
        output_size (int or tuple of int, optional): Shape of the array that was pooled.
        dilation (int or tuple of int): Dilation of the pooling.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.max_pool1d(x, 2, return_indices=True)
        >>> mlx_unpool.max_unpool1d(values, indices, 2, output_size=5).squeeze().tolist()
        [0.0, 3.0, 0.0, 5.0, 0.0]
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
    """Compute a partial inverse of :func:`max_pool2d`; see :class:`MaxUnpool2d`.

    Args:
        x (array): Pooled values, ``(N, H, W, C)`` or, channels first, ``(N, C, H, W)``.
        indices (array): Flat or window indices, with the shape of ``x``.
        kernel_size (int or tuple of int or None): Window of the pooling; None accepts any flat indices.
        stride (int or tuple of int, optional): Stride of the pooling. Default: ``kernel_size``.
        padding (int or tuple of int): Padding of the pooling.
        output_size (int or tuple of int, optional): Shape of the array that was pooled.
        dilation (int or tuple of int): Dilation of the pooling.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

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

        A 4 x 5 plane has the same pooled size as a 4 x 4 one, so it needs ``output_size``:

        >>> x = mx.arange(1, 21).reshape(1, 4, 5, 1)
        >>> values, indices = mlx_unpool.max_pool2d(x, 2, stride=2, return_indices=True)
        >>> mlx_unpool.max_unpool2d(values, indices, 2, stride=2, output_size=x.shape).squeeze()
        array([[0, 0, 0, 0, 0],
               [0, 7, 0, 9, 0],
               [0, 0, 0, 0, 0],
               [0, 17, 0, 19, 0]], dtype=int32)
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
    """Compute a partial inverse of :func:`max_pool3d`; see :class:`MaxUnpool3d`.

    Args:
        x (array): Pooled values, ``(N, D, H, W, C)`` or, channels first, ``(N, C, D, H, W)``.
        indices (array): Flat or window indices, with the shape of ``x``.
        kernel_size (int or tuple of int or None): Window of the pooling; None accepts any flat indices.
        stride (int or tuple of int, optional): Stride of the pooling. Default: ``kernel_size``.
        padding (int or tuple of int): Padding of the pooling.
        output_size (int or tuple of int, optional): Shape of the array that was pooled.
        dilation (int or tuple of int): Dilation of the pooling.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.random.normal((20, 16, 51, 33, 15))
        >>> layout = {"data_format": "channels_first"}
        >>> values, indices = mlx_unpool.max_pool3d(x, 3, stride=2, return_indices=True, **layout)
        >>> mlx_unpool.max_unpool3d(values, indices, 3, stride=2, **layout).shape
        (20, 16, 51, 33, 15)
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
    """Compute the maxima of a given number of windows; see :class:`AdaptiveMaxPool1d`.

    Args:
        x (array): Input, ``(N, W, C)`` or, channels first, ``(N, C, W)``.
        output_size (int or tuple of int or None): Number of windows per axis; None keeps the length.
        return_indices (bool): Return ``(values, indices)``.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.adaptive_max_pool1d(x, 2, return_indices=True)
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([3.0, 5.0], [1, 3])
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
    """Compute the maxima of a given number of windows; see :class:`AdaptiveMaxPool2d`.

    Args:
        x (array): Input, ``(N, H, W, C)`` or, channels first, ``(N, C, H, W)``.
        output_size (int or tuple of int or None): Number of windows per axis; None keeps the length.
        return_indices (bool): Return ``(values, indices)``.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

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
    """Compute the maxima of a given number of windows; see :class:`AdaptiveMaxPool3d`.

    Args:
        x (array): Input, ``(N, D, H, W, C)`` or, channels first, ``(N, C, D, H, W)``.
        output_size (int or tuple of int or None): Number of windows per axis; None keeps the length.
        return_indices (bool): Return ``(values, indices)``.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.random.normal((2, 8, 9, 10, 4))
        >>> mlx_unpool.adaptive_max_pool3d(x, 4).shape
        (2, 4, 4, 4, 4)
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
    """Compute the maxima of windows at random distances; see :class:`FractionalMaxPool2d`.

    Args:
        x (array): Input, ``(N, H, W, C)`` or, channels first, ``(N, C, H, W)``.
        kernel_size (int or tuple of int): Size of the window.
        output_size (int or tuple of int, optional): Number of windows per axis.
        output_ratio (float or tuple of float, optional): That number as a fraction of the input size.
        return_indices (bool): Return ``(values, indices)``.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        random_samples (array, optional): Floats from 0 to 1 of shape ``(N, C, 2)``.
        key (array, optional): Key of ``mx.random`` to draw them with.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.random.normal((20, 50, 32, 16))
        >>> mlx_unpool.fractional_max_pool2d(x, 3, output_size=(13, 12)).shape
        (20, 13, 12, 16)
        >>> mlx_unpool.fractional_max_pool2d(x, 3, output_ratio=0.5, key=mx.random.key(0)).shape
        (20, 25, 16, 16)
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
    """Compute the maxima of windows at random distances; see :class:`FractionalMaxPool3d`.

    Args:
        x (array): Input, ``(N, D, H, W, C)`` or, channels first, ``(N, C, D, H, W)``.
        kernel_size (int or tuple of int): Size of the window.
        output_size (int or tuple of int, optional): Number of windows per axis.
        output_ratio (float or tuple of float, optional): That number as a fraction of the input size.
        return_indices (bool): Return ``(values, indices)``.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        random_samples (array, optional): Floats from 0 to 1 of shape ``(N, C, 3)``.
        key (array, optional): Key of ``mx.random`` to draw them with.
        stream (Stream or Device, optional): Stream or device to run on.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.random.normal((2, 20, 16, 12, 4))
        >>> mlx_unpool.fractional_max_pool3d(x, 2, output_size=(13, 12, 11)).shape
        (2, 13, 12, 11, 4)
    """
    given = (kernel_size, output_size, output_ratio, return_indices, data_format)
    return FractionalPooling.of("fractional_max_pool3d", 3, *given)(x, stream, random_samples, key)
