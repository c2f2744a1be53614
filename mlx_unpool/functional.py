"""Max pooling with indices and max unpooling, as functions.

The examples assume ``import mlx.core as mx`` and ``import mlx_unpool``.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from . import _arguments as arguments
from ._requests import AdaptivePooling, FractionalPooling, MaxPooling, MaxUnpooling
from ._types import ArrayOrPair, DataFormat, IndexFormat, IntOrTuple, Padding, Stream


@arguments.signature
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

    Arguments, results and errors are as in ``max_pool2d``, with one spatial axis.

    Example:
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.max_pool1d(x, 2, return_indices=True)
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([3.0, 5.0], [1, 3])

    See also: ``MaxPool1d`` for sizes, ties and NaN; ``max_unpool1d`` for the partial inverse.
    """
    options = dilation, ceil_mode, return_indices, index_format, data_format
    return MaxPooling.of("max_pool1d", 1, kernel_size, stride, padding, *options).run(x, stream)


@arguments.signature
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
        x (array): ``(N, H, W, C)``, or ``(N, C, H, W)`` with the channels first; N is optional. Any
            floating-point or integer dtype (float64 only on the CPU).
        kernel_size (int or tuple of int): Size of the window.
        stride (int or tuple of int, optional): Distance between windows. Default: ``kernel_size``.
        padding (int, tuple or str): Implicit padding of each axis: an integer for all sides, a tuple with an
            integer or a pair ``(before, after)`` per axis, or ``"same"``: ``ceil(L / stride)`` windows, as in
            TensorFlow. ``"valid"``: 0.
        dilation (int or tuple of int): Distance between the elements of a window.
        ceil_mode (bool): Round the pooled size up instead of down.
        return_indices (bool): Return ``(values, indices)``.
        index_format (str): ``"flat"``, int32 positions in the plane, or ``"window"``, uint8 offsets in the
            window.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Returns:
        array or tuple of array: Values of shape ``(N, H_out, W_out, C)`` or
        ``(N, C, H_out, W_out)``, with the dtype of ``x``. With ``return_indices`` also their
        indices, of the same shape: int32 (int64 for planes of 2^31 positions or more, which only a
        GPU can pool), or for ``"window"`` uint8 (uint16 for windows of more than 256 elements).

    Raises:
        ValueError: If the window does not fit into the padded ``x``, ``padding`` is not less than the dilated
            window, ``index_format`` is ``"window"`` and the window has more than 65,536 elements, or the
            arrays are too large for the device (about 2^31 elements on the CPU).

    Example:
        >>> x = mx.arange(16.0).reshape(1, 4, 4, 1)
        >>> values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([[5.0, 7.0], [13.0, 15.0]], [[5, 7], [13, 15]])
        >>> values.dtype, indices.dtype
        (mlx.core.float32, mlx.core.int32)
        >>> offsets = mlx_unpool.max_pool2d(x, 2, return_indices=True, index_format="window")[1]
        >>> offsets.squeeze().tolist(), offsets.dtype  # 3 is the last element of a 2 x 2 window
        ([[3, 3], [3, 3]], mlx.core.uint8)

    See also: ``MaxPool2d`` for sizes, ties and NaN; ``max_unpool2d`` for the partial inverse.
    """
    options = dilation, ceil_mode, return_indices, index_format, data_format
    return MaxPooling.of("max_pool2d", 2, kernel_size, stride, padding, *options).run(x, stream)


@arguments.signature
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

    Arguments, results and errors are as in ``max_pool2d``, with three spatial axes.

    Example:
        >>> x = mx.arange(24.0).reshape(1, 2, 3, 4, 1)
        >>> values, indices = mlx_unpool.max_pool3d(x, 2, return_indices=True)
        >>> values.shape, values.squeeze().tolist(), indices.squeeze().tolist()
        ((1, 1, 1, 2, 1), [17.0, 19.0], [17, 19])

    See also: ``MaxPool3d`` for sizes, ties and NaN; ``max_unpool3d`` for the partial inverse.
    """
    options = dilation, ceil_mode, return_indices, index_format, data_format
    return MaxPooling.of("max_pool3d", 3, kernel_size, stride, padding, *options).run(x, stream)


@arguments.signature
def max_unpool1d(
    x: mx.array,
    indices: mx.array,
    kernel_size: IntOrTuple | None,
    stride: IntOrTuple | None = None,
    padding: Padding = 0,
    output_size: IntOrTuple | None = None,
    *,
    dilation: IntOrTuple = 1,
    data_format: DataFormat = "channels_last",
    stream: Stream = None,
) -> mx.array:
    """Compute a partial inverse of ``max_pool1d``: values at their indices, zeros elsewhere.

    Arguments, results and errors are as in ``max_unpool2d``, with one spatial axis.

    Example:
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.max_pool1d(x, 2, return_indices=True)
        >>> mlx_unpool.max_unpool1d(values, indices, 2, output_size=x.shape).squeeze().tolist()
        [0.0, 3.0, 0.0, 5.0, 0.0]

    See also: ``MaxUnpool1d`` for sizes and equal or invalid indices; ``max_pool1d``.
    """
    request = MaxUnpooling.of("max_unpool1d", 1, kernel_size, stride, padding, dilation, data_format)
    return request.run(x, indices, output_size, stream)


@arguments.signature
def max_unpool2d(
    x: mx.array,
    indices: mx.array,
    kernel_size: IntOrTuple | None,
    stride: IntOrTuple | None = None,
    padding: Padding = 0,
    output_size: IntOrTuple | None = None,
    *,
    dilation: IntOrTuple = 1,
    data_format: DataFormat = "channels_last",
    stream: Stream = None,
) -> mx.array:
    """Compute a partial inverse of ``max_pool2d``: values at their indices, zeros elsewhere.

    Args:
        x (array): ``(N, H_out, W_out, C)``, or ``(N, C, H_out, W_out)`` with the channels first; N
            is optional. Any floating-point or integer dtype (float64 only on the CPU).
        indices (array): Flat indices, or window indices if the dtype is uint8 or uint16, with the
            shape of ``x``. ``convert_indices`` converts indices of TensorFlow and ONNX.
        kernel_size (int or tuple of int or None): Window size of the pool. None is for flat indices whose
            windows differ or are unknown, for example from adaptive pooling; ``output_size`` is then
            required.
        stride, padding, dilation: Must match the pool; same types and defaults.
        output_size (int or tuple of int, optional): Shape of the array that was pooled: its spatial
            shape, or its full shape with or without the batch. Always pass it. Each axis may differ
            by less than one stride from its default length. If ``kernel_size`` is
            None, any spatial shape is allowed, but batch and channels must be those of ``x``.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Returns:
        array: The output, of shape ``(N, H, W, C)`` or ``(N, C, H, W)``, with the dtype of ``x``.

    Raises:
        ValueError: If ``output_size`` is required but missing, or the arrays are too large for the device
            (about 2^31 elements on the CPU; without ``kernel_size`` 2^31 pooled values per plane on any
            device).

    Example:
        >>> x = mx.arange(20).reshape(1, 4, 5, 1)
        >>> values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
        >>> mlx_unpool.max_unpool2d(values, indices, 2, output_size=x.shape).squeeze()
        array([[0, 0, 0, 0, 0],
               [0, 6, 0, 8, 0],
               [0, 0, 0, 0, 0],
               [0, 16, 0, 18, 0]], dtype=int32)

    See also: ``MaxUnpool2d`` for sizes and equal or invalid indices; ``max_pool2d``.
    """
    request = MaxUnpooling.of("max_unpool2d", 2, kernel_size, stride, padding, dilation, data_format)
    return request.run(x, indices, output_size, stream)


@arguments.signature
def max_unpool3d(
    x: mx.array,
    indices: mx.array,
    kernel_size: IntOrTuple | None,
    stride: IntOrTuple | None = None,
    padding: Padding = 0,
    output_size: IntOrTuple | None = None,
    *,
    dilation: IntOrTuple = 1,
    data_format: DataFormat = "channels_last",
    stream: Stream = None,
) -> mx.array:
    """Compute a partial inverse of ``max_pool3d``: values at their indices, zeros elsewhere.

    Arguments, results and errors are as in ``max_unpool2d``, with three spatial axes.

    Example:
        >>> x = mx.arange(24).reshape(1, 2, 3, 4, 1)
        >>> values, indices = mlx_unpool.max_pool3d(x, 2, return_indices=True)
        >>> mlx_unpool.max_unpool3d(values, indices, 2, output_size=x.shape)[0, 1].squeeze()
        array([[0, 0, 0, 0],
               [0, 17, 0, 19],
               [0, 0, 0, 0]], dtype=int32)

    See also: ``MaxUnpool3d`` for sizes and equal or invalid indices; ``max_pool3d``.
    """
    request = MaxUnpooling.of("max_unpool3d", 3, kernel_size, stride, padding, dilation, data_format)
    return request.run(x, indices, output_size, stream)


@arguments.signature
def adaptive_max_pool1d(
    x: mx.array,
    output_size: int | Sequence[int | None],
    *,
    return_indices: bool = False,
    data_format: DataFormat = "channels_last",
    stream: Stream = None,
) -> ArrayOrPair:
    """Max-pool to a given output size.

    Arguments, results and errors are as in ``adaptive_max_pool2d``, with one spatial axis.

    Example:
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.adaptive_max_pool1d(x, 2, return_indices=True)
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([3.0, 5.0], [1, 3])

    See also: ``AdaptiveMaxPool1d`` for the windows; ``max_unpool1d``, with ``kernel_size=None``.
    """
    request = AdaptivePooling.of("adaptive_max_pool1d", 1, output_size, return_indices, data_format)
    return request.run(x, stream)


@arguments.signature
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
        x (array): ``(N, H, W, C)``, or ``(N, C, H, W)`` with the channels first; N is optional. Any
            floating-point or integer dtype (float64 only on the CPU).
        output_size (int, or tuple of int and None): Number of windows per axis. None in a tuple keeps
            the length of that axis.
        return_indices (bool): Return ``(values, indices)``.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Stream or device to run on.

    Returns:
        array or tuple of array: Values of shape ``(N, H_out, W_out, C)`` or
        ``(N, C, H_out, W_out)``, with the dtype of ``x``. With ``return_indices`` also their flat
        indices, of the same shape: int32 (int64 for planes of 2^31 positions or more, which only a
        GPU can pool).

    Raises:
        ValueError: If the arrays are too large for the device (about 2^31 elements on the CPU).

    Example:
        >>> x = mx.arange(15.0).reshape(1, 5, 3, 1)
        >>> values, indices = mlx_unpool.adaptive_max_pool2d(x, (2, None), return_indices=True)
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([[6.0, 7.0, 8.0], [12.0, 13.0, 14.0]], [[6, 7, 8], [12, 13, 14]])
        >>> mlx_unpool.max_unpool2d(values, indices, None, output_size=x.shape).shape
        (1, 5, 3, 1)

    See also: ``AdaptiveMaxPool2d`` for the windows; ``max_unpool2d``, with ``kernel_size=None``.
    """
    request = AdaptivePooling.of("adaptive_max_pool2d", 2, output_size, return_indices, data_format)
    return request.run(x, stream)


@arguments.signature
def adaptive_max_pool3d(
    x: mx.array,
    output_size: int | Sequence[int | None],
    *,
    return_indices: bool = False,
    data_format: DataFormat = "channels_last",
    stream: Stream = None,
) -> ArrayOrPair:
    """Max-pool to a given output size.

    Arguments, results and errors are as in ``adaptive_max_pool2d``, with three spatial axes.

    Example:
        >>> x = mx.arange(24.0).reshape(1, 2, 3, 4, 1)
        >>> mlx_unpool.adaptive_max_pool3d(x, (1, 1, 2)).squeeze().tolist()
        [21.0, 23.0]

    See also: ``AdaptiveMaxPool3d`` for the windows; ``max_unpool3d``, with ``kernel_size=None``.
    """
    request = AdaptivePooling.of("adaptive_max_pool3d", 3, output_size, return_indices, data_format)
    return request.run(x, stream)


@arguments.signature
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
        x (array): ``(N, H, W, C)``, or ``(N, C, H, W)`` with the channels first; N is optional. Any
            floating-point or integer dtype (float64 only on the CPU).
        kernel_size (int or tuple of int): Size of the window.
        output_size (int or tuple of int, optional): Number of windows per axis.
        output_ratio (float or tuple of float, optional): ``output_size`` as a fraction of the input
            size, above 0 and below 1; the number of windows is rounded down. Exactly one of
            ``output_size`` and ``output_ratio`` must be given.
        return_indices (bool): Return ``(values, indices)``.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        random_samples (array, optional): Floats from 0 to 1 of shape ``(N, C, 2)``, one for each of the
            axes ``H, W`` in this order; N is 1 if ``x`` has no batch.
        key (array, optional): Key of ``mx.random`` to draw the samples.
        stream (Stream or Device, optional): Stream or device to run on.

    Returns:
        array or tuple of array: Values of shape ``(N, H_out, W_out, C)`` or
        ``(N, C, H_out, W_out)``, with the dtype of ``x``. With ``return_indices`` also their flat
        indices, of the same shape: int32 (int64 for planes of 2^31 positions or more, which only a
        GPU can pool).

    Raises:
        ValueError: If an axis gets no window or more than ``L - kernel_size + 1`` of them, ``random_samples``
            and ``key`` are both given, or the arrays are too large for the device (about 2^31 elements on the
            CPU).

    Example:
        >>> x = mx.arange(25.0).reshape(1, 5, 5, 1)
        >>> samples = mx.zeros((1, 1, 2))  # instead of random numbers
        >>> pooled = mlx_unpool.fractional_max_pool2d(x, 2, output_size=2, random_samples=samples)
        >>> pooled.squeeze().tolist()
        [[6.0, 9.0], [21.0, 24.0]]
        >>> mlx_unpool.fractional_max_pool2d(x, 2, output_ratio=0.6, key=mx.random.key(0)).shape
        (1, 3, 3, 1)

    See also: ``FractionalMaxPool2d`` for the windows; ``max_unpool2d``, with ``kernel_size=None``.
    """
    options = output_size, output_ratio, return_indices, data_format
    request = FractionalPooling.of("fractional_max_pool2d", 2, kernel_size, *options)
    return request.run(x, stream, samples=random_samples, key=key)


@arguments.signature
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

    Arguments, results and errors are as in ``fractional_max_pool2d``, with three spatial axes.

    Example:
        >>> x = mx.arange(27.0).reshape(1, 3, 3, 3, 1)
        >>> mlx_unpool.fractional_max_pool3d(x, 2, output_size=(1, 1, 2)).squeeze().tolist()
        [25.0, 26.0]

    See also: ``FractionalMaxPool3d`` for the windows; ``max_unpool3d``, with ``kernel_size=None``.
    """
    options = output_size, output_ratio, return_indices, data_format
    request = FractionalPooling.of("fractional_max_pool3d", 3, kernel_size, *options)
    return request.run(x, stream, samples=random_samples, key=key)
