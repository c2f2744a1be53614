"""Max pooling over windows that need not be alike, as functions: adaptive and fractional."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from . import _arguments, _autograd, _indices
from ._geometry import Triple, adaptive_regions, fractional_regions, triple
from ._layout import Layout, layout_of
from .functional import IntOrTuple, Stream


def adaptive_pool_nd(
    owner: str,
    rank: int,
    x: mx.array,
    output_size: Any,
    return_indices: bool,
    data_format: str,
    stream: Any,
) -> mx.array | tuple[mx.array, mx.array]:
    """Adaptive max pooling over ``rank`` axes, on behalf of ``owner``."""
    layout, size = _plane(owner, rank, x, return_indices, data_format, stream)
    regions = adaptive_regions(size, _arguments.adaptive_size(owner, rank, output_size, size))
    run = _autograd.Run.on(stream, regions.window or regions, size)
    index_dtype = _indices.flat_dtype(size)

    def pool(folded: mx.array) -> tuple[mx.array, mx.array]:
        if regions.window:
            return _autograd.pool(folded, run, regions.cells, index_dtype)
        bounds = mx.array(regions.ends, dtype=mx.int32).reshape(1, -1, 2, 1)
        bounds = mx.broadcast_to(bounds, (folded.shape[0], *bounds.shape[1:]))
        return _autograd.pool_regions(folded, bounds, run, index_dtype)

    result = layout.pooled(x, regions.cells, index_dtype, pool)
    return result if return_indices else result[0]


def fractional_pool_nd(
    owner: str,
    rank: int,
    x: mx.array,
    kernel_size: Any,
    output_size: Any,
    output_ratio: Any,
    return_indices: bool,
    data_format: str,
    random_samples: Any,
    key: Any,
    stream: Any,
) -> mx.array | tuple[mx.array, mx.array]:
    """Fractional max pooling over ``rank`` axes, on behalf of ``owner``."""
    layout, size = _plane(owner, rank, x, return_indices, data_format, stream)
    kernel, cells = _arguments.fractional_size(
        owner, rank, kernel_size, output_size, output_ratio, size
    )
    shape = (layout.batch, layout.channels, rank)
    _arguments.random_samples(owner, random_samples, key, shape)
    regions = fractional_regions(size, cells, kernel)
    run = _autograd.Run.on(stream, regions, size)
    index_dtype = _indices.flat_dtype(size)

    def pool(folded: mx.array) -> tuple[mx.array, mx.array]:
        with mx.stream(run.stream):
            samples = random_samples
            if samples is None:
                samples = mx.random.uniform(shape=shape, key=key)
            bounds = _fractional_bounds(samples, size, cells, kernel)
        return _autograd.pool_regions(folded, layout.fold_bounds(bounds), run, index_dtype)

    result = layout.pooled(x, cells, index_dtype, pool)
    return result if return_indices else result[0]


def _plane(
    owner: str, rank: int, x: Any, return_indices: Any, data_format: Any, stream: Any
) -> tuple[Layout, Triple]:
    """Checks what both kinds of pooling take; how ``x`` is laid out, and the size of a plane."""
    _arguments.values(owner, "x", x)
    _arguments.stream(owner, stream)
    _arguments.flag(owner, "return_indices", return_indices)
    layout = layout_of(owner, "x", x, rank, data_format)
    spatial = layout.spatial(x.shape)
    if min(spatial) < 1:
        raise ValueError(
            f"[{owner}] 'x' must have 1 place or more on every spatial axis but got {spatial}."
        )
    return layout, triple(spatial)


def _fractional_bounds(samples: mx.array, size: Triple, cells: Triple, kernel: Triple) -> mx.array:
    """Where windows start and stop, (N, C, OD + OH + OW, 2), from numbers ``u`` (N, C, rank).

    Window ``i`` starts at ``floor((i + u) * a) - floor(u * a)``, ``a = (L - k) / (n - 1)``, the last one at
    ``L - k``: as in PyTorch, in float32, after equation 1 of Graham, "Fractional Max-Pooling", 2014.
    """
    samples = samples.astype(mx.float32)
    batch, channels, rank = samples.shape
    starts = []
    for axis, (length, n, k) in enumerate(zip(size, cells, kernel)):
        last = length - k
        number = axis - (3 - rank)
        if n > 1 and number >= 0:
            u, step = samples[..., number, None], last / (n - 1)
            drawn = mx.floor((mx.arange(n - 1) + u) * step) - mx.floor(u * step)
            # Numbers outside of 0 to 1, and NaN, must not lead outside either.
            drawn = mx.where(drawn >= 0, mx.minimum(drawn, last), 0)
            starts.append(drawn.astype(mx.int32))
        starts.append(mx.full((batch, channels, 1), last, mx.int32))
    start = mx.concatenate(starts, axis=2)
    lengths = mx.array([k for n, k in zip(cells, kernel) for _ in range(n)], dtype=mx.int32)
    return mx.stack([start, start + lengths], axis=3)


def adaptive_max_pool1d(
    x: mx.array,
    output_size: int | Sequence[int | None],
    *,
    return_indices: bool = False,
    data_format: str = "channels_last",
    stream: Stream = None,
) -> mx.array | tuple[mx.array, mx.array]:
    """The maximum of every one of ``output_size`` windows over a sequence, and where it is.

    On an axis of ``L`` places window ``i`` of ``n`` covers those from ``floor(i * L / n)`` up to, not
    including, ``ceil((i + 1) * L / n)``, as in PyTorch: neighbours overlap where ``n`` does not divide ``L``.
    Ties and NaN are as in :func:`max_pool1d`.

    Args:
        x (array): Input of shape ``(N, W, C)`` or ``(W, C)``; with
            ``data_format="channels_first"`` ``(N, C, W)`` or ``(C, W)``. float32, float16,
            bfloat16 or an integer type.
        output_size (int or tuple of 1 int or None): Number of windows on each axis, 1 or more; None
            keeps an axis as it is.
        return_indices (bool): Return the indices as well.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array or tuple of array: Values ``(N, W_out, C)`` of the dtype of ``x``, laid out as
        ``x`` is; with ``return_indices`` ``(values, indices)`` of the same shape. Indices are the int32
        places ``w`` of the input plane (int64 if it has 2^31 places or more), for
        ``max_unpool1d(values, indices, None, output_size=x.shape[1:-1])``.

    Raises:
        ValueError: If a number is out of range or ``x`` has another rank.
        TypeError: If ``x`` is complex or bool, or a number is not an integer.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.array([1.0, 3.0, 2.0, 5.0, 4.0]).reshape(1, 5, 1)
        >>> values, indices = mlx_unpool.adaptive_max_pool1d(x, 2, return_indices=True)
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([3.0, 5.0], [1, 3])
    """
    return adaptive_pool_nd(
        "adaptive_max_pool1d", 1, x, output_size, return_indices, data_format, stream
    )


def adaptive_max_pool2d(
    x: mx.array,
    output_size: int | Sequence[int | None],
    *,
    return_indices: bool = False,
    data_format: str = "channels_last",
    stream: Stream = None,
) -> mx.array | tuple[mx.array, mx.array]:
    """The maximum of every one of ``output_size`` windows over height and width, and where it is.

    On an axis of ``L`` places window ``i`` of ``n`` covers those from ``floor(i * L / n)`` up to, not
    including, ``ceil((i + 1) * L / n)``, as in PyTorch: neighbours overlap where ``n`` does not divide ``L``.
    Ties and NaN are as in :func:`max_pool2d`.

    Args:
        x (array): Input of shape ``(N, H, W, C)`` or ``(H, W, C)``; with
            ``data_format="channels_first"`` ``(N, C, H, W)`` or ``(C, H, W)``. float32, float16,
            bfloat16 or an integer type.
        output_size (int or tuple of 2 int or None): Number of windows on each axis, 1 or more; None
            keeps an axis as it is.
        return_indices (bool): Return the indices as well.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array or tuple of array: Values ``(N, H_out, W_out, C)`` of the dtype of ``x``, laid out as
        ``x`` is; with ``return_indices`` ``(values, indices)`` of the same shape. Indices are the int32
        places ``h * W + w`` of the input plane (int64 if it has 2^31 places or more), for
        ``max_unpool2d(values, indices, None, output_size=x.shape[1:-1])``.

    Raises:
        ValueError: If a number is out of range or ``x`` has another rank.
        TypeError: If ``x`` is complex or bool, or a number is not an integer.

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
    return adaptive_pool_nd(
        "adaptive_max_pool2d", 2, x, output_size, return_indices, data_format, stream
    )


def adaptive_max_pool3d(
    x: mx.array,
    output_size: int | Sequence[int | None],
    *,
    return_indices: bool = False,
    data_format: str = "channels_last",
    stream: Stream = None,
) -> mx.array | tuple[mx.array, mx.array]:
    """The maximum of every one of ``output_size`` windows over depth, height and width, and where it is.

    On an axis of ``L`` places window ``i`` of ``n`` covers those from ``floor(i * L / n)`` up to, not
    including, ``ceil((i + 1) * L / n)``, as in PyTorch: neighbours overlap where ``n`` does not divide ``L``.
    Ties and NaN are as in :func:`max_pool3d`.

    Args:
        x (array): Input of shape ``(N, D, H, W, C)`` or ``(D, H, W, C)``; with
            ``data_format="channels_first"`` ``(N, C, D, H, W)`` or ``(C, D, H, W)``. float32, float16,
            bfloat16 or an integer type.
        output_size (int or tuple of 3 int or None): Number of windows on each axis, 1 or more; None
            keeps an axis as it is.
        return_indices (bool): Return the indices as well.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array or tuple of array: Values ``(N, D_out, H_out, W_out, C)`` of the dtype of ``x``, laid out as
        ``x`` is; with ``return_indices`` ``(values, indices)`` of the same shape. Indices are the int32
        places ``(d * H + h) * W + w`` of the input plane (int64 if it has 2^31 places or more), for
        ``max_unpool3d(values, indices, None, output_size=x.shape[1:-1])``.

    Raises:
        ValueError: If a number is out of range or ``x`` has another rank.
        TypeError: If ``x`` is complex or bool, or a number is not an integer.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.random.normal((2, 8, 9, 10, 4))
        >>> mlx_unpool.adaptive_max_pool3d(x, 4).shape
        (2, 4, 4, 4, 4)
    """
    return adaptive_pool_nd(
        "adaptive_max_pool3d", 3, x, output_size, return_indices, data_format, stream
    )


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
    """The maximum of windows that stand at random distances over height and width, and where it is.

    The windows of an axis of ``L`` places start at ``floor((i + u) * a) - floor(u * a)``, where
    ``a = (L - kernel_size) / (output_size - 1)`` and ``u`` is one random number for each image, channel and
    axis; the last one starts at ``L - kernel_size``. This is PyTorch's way (Graham, "Fractional
    Max-Pooling", 2014). Ties and NaN are as in :func:`max_pool2d`.

    Args:
        x (array): Input of shape ``(N, H, W, C)`` or ``(H, W, C)``; with
            ``data_format="channels_first"`` ``(N, C, H, W)`` or ``(C, H, W)``. float32, float16,
            bfloat16 or an integer type.
        kernel_size (int or tuple of 2 int): Window size, 1 or more.
        output_size (int or tuple of 2 int, optional): Number of windows on each axis, 1 to
            ``L - kernel_size + 1``.
        output_ratio (float or tuple of 2 float, optional): That number as a part of ``L``, between 0
            and 1, rounded down. One of the two must be given.
        return_indices (bool): Return the indices as well.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        random_samples (array, optional): The numbers ``u``, floats of shape ``(N, C, 2)`` from 0 to 1,
            the axes in the order height, width. (PyTorch's ``_random_samples`` have the
            width first.)
        key (array, optional): Key of ``mx.random`` to draw them with. Default: MLX's global state.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array or tuple of array: Values ``(N, H_out, W_out, C)`` of the dtype of ``x``, laid out as
        ``x`` is; with ``return_indices`` ``(values, indices)`` of the same shape. Indices are the int32
        places ``h * W + w`` of the input plane (int64 if it has 2^31 places or more), for
        ``max_unpool2d(values, indices, None, output_size=x.shape[1:-1])``.

    Raises:
        ValueError: If a number is out of range, the windows do not fit, or ``x`` has another rank.
        TypeError: If ``x`` is complex or bool, or a number is not an integer.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.random.normal((20, 50, 32, 16))
        >>> mlx_unpool.fractional_max_pool2d(x, 3, output_size=(13, 12)).shape
        (20, 13, 12, 16)
        >>> mlx_unpool.fractional_max_pool2d(x, 3, output_ratio=0.5, key=mx.random.key(0)).shape
        (20, 25, 16, 16)
    """
    return fractional_pool_nd(
        "fractional_max_pool2d",
        2,
        x,
        kernel_size,
        output_size,
        output_ratio,
        return_indices,
        data_format,
        random_samples,
        key,
        stream,
    )


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
    """The maximum of windows that stand at random distances over depth, height and width, and where it is.

    The windows of an axis of ``L`` places start at ``floor((i + u) * a) - floor(u * a)``, where
    ``a = (L - kernel_size) / (output_size - 1)`` and ``u`` is one random number for each image, channel and
    axis; the last one starts at ``L - kernel_size``. This is PyTorch's way (Graham, "Fractional
    Max-Pooling", 2014). Ties and NaN are as in :func:`max_pool3d`.

    Args:
        x (array): Input of shape ``(N, D, H, W, C)`` or ``(D, H, W, C)``; with
            ``data_format="channels_first"`` ``(N, C, D, H, W)`` or ``(C, D, H, W)``. float32, float16,
            bfloat16 or an integer type.
        kernel_size (int or tuple of 3 int): Window size, 1 or more.
        output_size (int or tuple of 3 int, optional): Number of windows on each axis, 1 to
            ``L - kernel_size + 1``.
        output_ratio (float or tuple of 3 float, optional): That number as a part of ``L``, between 0
            and 1, rounded down. One of the two must be given.
        return_indices (bool): Return the indices as well.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.
        random_samples (array, optional): The numbers ``u``, floats of shape ``(N, C, 3)`` from 0 to 1,
            the axes in the order depth, height, width. As in PyTorch.
        key (array, optional): Key of ``mx.random`` to draw them with. Default: MLX's global state.
        stream (Stream or Device, optional): Where to run.

    Returns:
        array or tuple of array: Values ``(N, D_out, H_out, W_out, C)`` of the dtype of ``x``, laid out as
        ``x`` is; with ``return_indices`` ``(values, indices)`` of the same shape. Indices are the int32
        places ``(d * H + h) * W + w`` of the input plane (int64 if it has 2^31 places or more), for
        ``max_unpool3d(values, indices, None, output_size=x.shape[1:-1])``.

    Raises:
        ValueError: If a number is out of range, the windows do not fit, or ``x`` has another rank.
        TypeError: If ``x`` is complex or bool, or a number is not an integer.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.random.normal((2, 20, 16, 12, 4))
        >>> mlx_unpool.fractional_max_pool3d(x, 2, output_size=(13, 12, 11)).shape
        (2, 13, 12, 11, 4)
    """
    return fractional_pool_nd(
        "fractional_max_pool3d",
        3,
        x,
        kernel_size,
        output_size,
        output_ratio,
        return_indices,
        data_format,
        random_samples,
        key,
        stream,
    )
