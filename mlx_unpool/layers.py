"""Max pooling with indices and max unpooling, as ``mlx.nn`` layers without parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from . import _arguments, _indices
from ._layout import DATA_FORMATS
from .functional import IntOrTuple, Stream, pool_nd, unpool_nd
from .irregular import adaptive_pool_nd, fractional_pool_nd


class _Layer(nn.Module):
    """What all layers share: their rank, and a repr that shows what was given."""

    rank: int
    _shown: tuple[str, ...]  # the arguments that a repr always shows

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _extra_repr(self) -> str:
        shown = list(self._shown)
        for name, default in _SILENT_DEFAULTS.items():
            if getattr(self, name, default) != default:
                shown.append(name)
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)


# Options that a repr shows where they differ from these.
_SILENT_DEFAULTS = {
    "dilation": 1,
    "ceil_mode": False,
    "return_indices": False,
    "index_format": "flat",
    "data_format": "channels_last",
}


def _kept(value: Any) -> Any:
    """An argument as a layer keeps it: mlx.nn.Module takes a list for a list of modules."""
    return tuple(value) if isinstance(value, list) else value


class _Windowed(_Layer):
    """What pooling and unpooling over windows that are all alike share: the window."""

    _shown = ("kernel_size", "stride", "padding")

    def __init__(
        self,
        kernel_size: IntOrTuple | None,
        stride: IntOrTuple | None,
        padding: IntOrTuple,
        dilation: IntOrTuple,
        data_format: str,
    ) -> None:
        super().__init__()
        _arguments.choice(self._name, "data_format", data_format, DATA_FORMATS)
        self.kernel_size = _kept(kernel_size)
        self.stride = _kept(kernel_size if stride is None else stride)
        self.padding = _kept(padding)
        self.dilation = _kept(dilation)
        self.data_format = data_format


class _MaxPool(_Windowed):
    def __init__(
        self,
        kernel_size: IntOrTuple,
        stride: IntOrTuple | None = None,
        padding: IntOrTuple = 0,
        *,
        dilation: IntOrTuple = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
        index_format: str = "flat",
        data_format: str = "channels_last",
    ) -> None:
        super().__init__(kernel_size, stride, padding, dilation, data_format)
        window = _arguments.window(
            self._name, self.rank, kernel_size, stride, padding, dilation, ceil_mode
        )
        _arguments.flag(self._name, "return_indices", return_indices)
        _arguments.choice(self._name, "index_format", index_format, _indices.INDEX_FORMATS)
        if index_format == "window":
            _indices.window_dtype(self._name, window)
        self.ceil_mode = ceil_mode
        self.return_indices = return_indices
        self.index_format = index_format

    def __call__(
        self, x: mx.array, *, stream: Stream = None
    ) -> mx.array | tuple[mx.array, mx.array]:
        return pool_nd(
            self._name,
            self.rank,
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
            self.index_format,
            self.data_format,
            stream,
        )


class _MaxUnpool(_Windowed):
    def __init__(
        self,
        kernel_size: IntOrTuple | None,
        stride: IntOrTuple | None = None,
        padding: IntOrTuple = 0,
        *,
        dilation: IntOrTuple = 1,
        data_format: str = "channels_last",
    ) -> None:
        super().__init__(kernel_size, stride, padding, dilation, data_format)
        if kernel_size is None:
            _arguments.no_window(self._name, stride, padding, dilation)
        else:
            _arguments.window(self._name, self.rank, kernel_size, stride, padding, dilation)

    @classmethod
    def from_pool(cls, pool: Any) -> Any:
        """The unpooling layer that undoes ``pool``, a pooling layer of this library and this rank.

        Of an adaptive or fractional pool it is the one with ``kernel_size=None``, which needs
        ``output_size`` in every call.

        Raises:
            TypeError: If ``pool`` is anything else.
        """
        known = isinstance(pool, (_MaxPool, _AdaptiveMaxPool, _FractionalMaxPool))
        if not known or pool.rank != cls.rank:
            raise TypeError(
                f"[{cls.__name__}] 'pool' must be an mlx_unpool.MaxPool{cls.rank}d, or an adaptive or "
                f"fractional one of this rank, but got {type(pool).__name__}."
            )
        if not isinstance(pool, _MaxPool):
            return cls(None, data_format=pool.data_format)
        return cls(
            pool.kernel_size,
            pool.stride,
            pool.padding,
            dilation=pool.dilation,
            data_format=pool.data_format,
        )

    def __call__(
        self,
        x: mx.array,
        indices: mx.array,
        output_size: IntOrTuple | None = None,
        *,
        stream: Stream = None,
    ) -> mx.array:
        return unpool_nd(
            self._name,
            self.rank,
            x,
            indices,
            self.kernel_size,
            self.stride,
            self.padding,
            output_size,
            self.dilation,
            self.data_format,
            stream,
        )


class _AdaptiveMaxPool(_Layer):
    _shown = ("output_size",)

    def __init__(
        self,
        output_size: int | Sequence[int | None],
        *,
        return_indices: bool = False,
        data_format: str = "channels_last",
    ) -> None:
        super().__init__()
        _arguments.adaptive_size(self._name, self.rank, output_size)
        _arguments.flag(self._name, "return_indices", return_indices)
        _arguments.choice(self._name, "data_format", data_format, DATA_FORMATS)
        self.output_size = _kept(output_size)
        self.return_indices = return_indices
        self.data_format = data_format

    def __call__(
        self, x: mx.array, *, stream: Stream = None
    ) -> mx.array | tuple[mx.array, mx.array]:
        return adaptive_pool_nd(
            self._name,
            self.rank,
            x,
            self.output_size,
            self.return_indices,
            self.data_format,
            stream,
        )


class _FractionalMaxPool(_Layer):
    _shown = ("kernel_size", "output_size", "output_ratio")

    def __init__(
        self,
        kernel_size: IntOrTuple,
        *,
        output_size: IntOrTuple | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        data_format: str = "channels_last",
    ) -> None:
        super().__init__()
        _arguments.fractional_size(self._name, self.rank, kernel_size, output_size, output_ratio)
        _arguments.flag(self._name, "return_indices", return_indices)
        _arguments.choice(self._name, "data_format", data_format, DATA_FORMATS)
        self.kernel_size = _kept(kernel_size)
        self.output_size = _kept(output_size)
        self.output_ratio = _kept(output_ratio)
        self.return_indices = return_indices
        self.data_format = data_format

    def __call__(
        self,
        x: mx.array,
        *,
        random_samples: mx.array | None = None,
        key: mx.array | None = None,
        stream: Stream = None,
    ) -> mx.array | tuple[mx.array, mx.array]:
        return fractional_pool_nd(
            self._name,
            self.rank,
            x,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            self.data_format,
            random_samples,
            key,
            stream,
        )


class MaxPool1d(_MaxPool):
    """Max pooling over a sequence that can return where each maximum was.

    Calling it is :func:`max_pool1d`, whose page says what windows, ties and indices are.

    Args:
        kernel_size (int or tuple of 1 int): Window size.
        stride (int or tuple of 1 int, optional): Distance between windows. Default: ``kernel_size``.
        padding (int or tuple of 1 int): Places that windows may hang over on both ends, at most half
            the dilated window.
        dilation (int or tuple of 1 int): Distance between the taps of a window.
        ceil_mode (bool): Round the pooled size up.
        return_indices (bool): Return ``(values, indices)``, for :class:`MaxUnpool1d`.
        index_format (str): ``"flat"`` (int32 places of the plane) or ``"window"`` (uint8 offsets in the
            window, a quarter of the memory).
        data_format (str): ``"channels_last"``, ``(N, W, C)``, or ``"channels_first"``,
            ``(N, C, W)``. The batch may be missing.

    Raises:
        ValueError: If a number or a name is out of range.
        TypeError: If a number is not an integer or a flag not a bool.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> pool = mlx_unpool.MaxPool1d(2, return_indices=True)
        >>> values, indices = pool(mx.array([[1.0], [3.0], [2.0], [5.0]]))
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([3.0, 5.0], [1, 3])
    """

    rank = 1


class MaxPool2d(_MaxPool):
    """Max pooling over height and width that can return where each maximum was.

    Calling it is :func:`max_pool2d`, whose page says what windows, ties and indices are.

    Args:
        kernel_size (int or tuple of 2 int): Window size.
        stride (int or tuple of 2 int, optional): Distance between windows. Default: ``kernel_size``.
        padding (int or tuple of 2 int): Places that windows may hang over on both ends, at most half
            the dilated window.
        dilation (int or tuple of 2 int): Distance between the taps of a window.
        ceil_mode (bool): Round the pooled size up.
        return_indices (bool): Return ``(values, indices)``, for :class:`MaxUnpool2d`.
        index_format (str): ``"flat"`` (int32 places of the plane) or ``"window"`` (uint8 offsets in the
            window, a quarter of the memory).
        data_format (str): ``"channels_last"``, ``(N, H, W, C)``, or ``"channels_first"``,
            ``(N, C, H, W)``. The batch may be missing.

    Raises:
        ValueError: If a number or a name is out of range.
        TypeError: If a number is not an integer or a flag not a bool.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> pool = mlx_unpool.MaxPool2d(2, stride=2, return_indices=True)
        >>> values, indices = pool(mx.random.normal((8, 32, 32, 16)))
        >>> values.shape, indices.dtype
        ((8, 16, 16, 16), mlx.core.int32)
    """

    rank = 2


class MaxPool3d(_MaxPool):
    """Max pooling over depth, height and width that can return where each maximum was.

    Calling it is :func:`max_pool3d`, whose page says what windows, ties and indices are.

    Args:
        kernel_size (int or tuple of 3 int): Window size.
        stride (int or tuple of 3 int, optional): Distance between windows. Default: ``kernel_size``.
        padding (int or tuple of 3 int): Places that windows may hang over on both ends, at most half
            the dilated window.
        dilation (int or tuple of 3 int): Distance between the taps of a window.
        ceil_mode (bool): Round the pooled size up.
        return_indices (bool): Return ``(values, indices)``, for :class:`MaxUnpool3d`.
        index_format (str): ``"flat"`` (int32 places of the plane) or ``"window"`` (uint8 offsets in the
            window, a quarter of the memory).
        data_format (str): ``"channels_last"``, ``(N, D, H, W, C)``, or ``"channels_first"``,
            ``(N, C, D, H, W)``. The batch may be missing.

    Raises:
        ValueError: If a number or a name is out of range.
        TypeError: If a number is not an integer or a flag not a bool.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> pool = mlx_unpool.MaxPool3d(2, stride=2, data_format="channels_first")
        >>> x = mx.array([[1, 2, 3, 4, 5, 6, 7, 8], [8, 1, 2, 3, 4, 5, 6, 7]], mx.float32)
        >>> x = x.reshape(1, 2, 2, 2, 2)
        >>> pool(x).squeeze().tolist()
        [8.0, 8.0]
        >>> mx.grad(lambda x: pool(x).sum())(x).reshape(2, 8).tolist()
        [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
    """

    rank = 3


class MaxUnpool1d(_MaxUnpool):
    """Max unpooling over a sequence: pooled values back to their places, zeros elsewhere.

    Calling ``layer(x, indices, output_size=None)`` is :func:`max_unpool1d`, whose page says what
    indices and sizes are taken. ``MaxUnpool1d.from_pool(pool)`` copies the window from a
    :class:`MaxPool1d`.

    Args:
        kernel_size (int or tuple of 1 int or None): The pool's. None takes flat indices of any origin;
            then every call needs ``output_size``.
        stride (int or tuple of 1 int, optional): The pool's. Default: ``kernel_size``.
        padding (int or tuple of 1 int): The pool's.
        dilation (int or tuple of 1 int): The pool's.
        data_format (str): ``"channels_last"``, ``(N, W, C)``, or ``"channels_first"``,
            ``(N, C, W)``. The batch may be missing.

    Raises:
        ValueError: If a number or a name is out of range.
        TypeError: If a number is not an integer.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> pool = mlx_unpool.MaxPool1d(2, return_indices=True)
        >>> unpool = mlx_unpool.MaxUnpool1d.from_pool(pool)
        >>> values, indices = pool(mx.array([[1.0], [3.0], [2.0], [5.0]]))
        >>> unpool(values, indices).squeeze().tolist()
        [0.0, 3.0, 0.0, 5.0]
    """

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """Max unpooling over height and width: pooled values back to their places, zeros elsewhere.

    Calling ``layer(x, indices, output_size=None)`` is :func:`max_unpool2d`, whose page says what
    indices and sizes are taken. ``MaxUnpool2d.from_pool(pool)`` copies the window from a
    :class:`MaxPool2d`.

    Args:
        kernel_size (int or tuple of 2 int or None): The pool's. None takes flat indices of any origin;
            then every call needs ``output_size``.
        stride (int or tuple of 2 int, optional): The pool's. Default: ``kernel_size``.
        padding (int or tuple of 2 int): The pool's.
        dilation (int or tuple of 2 int): The pool's.
        data_format (str): ``"channels_last"``, ``(N, H, W, C)``, or ``"channels_first"``,
            ``(N, C, H, W)``. The batch may be missing.

    Raises:
        ValueError: If a number or a name is out of range.
        TypeError: If a number is not an integer.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> unpool = mlx_unpool.MaxUnpool2d(2, stride=2, data_format="channels_first")
        >>> unpool(mx.ones((1, 64, 14, 14)), mx.zeros((1, 64, 14, 14), mx.int32)).shape
        (1, 64, 28, 28)
        >>> x, indices = mx.ones((1, 16, 7, 7)), mx.zeros((1, 16, 7, 7), mx.int32)
        >>> unpool(x, indices, output_size=(1, 16, 15, 15)).shape
        (1, 16, 15, 15)
    """

    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """Max unpooling over depth, height and width: pooled values back to their places, zeros elsewhere.

    Calling ``layer(x, indices, output_size=None)`` is :func:`max_unpool3d`, whose page says what
    indices and sizes are taken. ``MaxUnpool3d.from_pool(pool)`` copies the window from a
    :class:`MaxPool3d`.

    Args:
        kernel_size (int or tuple of 3 int or None): The pool's. None takes flat indices of any origin;
            then every call needs ``output_size``.
        stride (int or tuple of 3 int, optional): The pool's. Default: ``kernel_size``.
        padding (int or tuple of 3 int): The pool's.
        dilation (int or tuple of 3 int): The pool's.
        data_format (str): ``"channels_last"``, ``(N, D, H, W, C)``, or ``"channels_first"``,
            ``(N, C, D, H, W)``. The batch may be missing.

    Raises:
        ValueError: If a number or a name is out of range.
        TypeError: If a number is not an integer.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> unpool = mlx_unpool.MaxUnpool3d(2, stride=2, data_format="channels_first")
        >>> unpool(mx.ones((1, 32, 4, 4, 4)), mx.zeros((1, 32, 4, 4, 4), mx.int32)).shape
        (1, 32, 8, 8, 8)
        >>> x, indices = mx.ones((1, 8, 3, 3, 3)), mx.zeros((1, 8, 3, 3, 3), mx.int32)
        >>> unpool(x, indices, output_size=(1, 8, 7, 7, 7)).shape
        (1, 8, 7, 7, 7)
    """

    rank = 3


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Max pooling over a sequence to a given size, whatever the input's.

    Calling it is :func:`adaptive_max_pool1d`, whose page says which windows that makes.

    Args:
        output_size (int or tuple of 1 int or None): Number of windows on each axis; None keeps an axis.
        return_indices (bool): Return ``(values, indices)``, for :class:`MaxUnpool1d` with
            ``kernel_size=None``.
        data_format (str): ``"channels_last"``, ``(N, W, C)``, or ``"channels_first"``,
            ``(N, C, W)``. The batch may be missing.

    Raises:
        ValueError: If a number or a name is out of range.
        TypeError: If a number is not an integer or a flag not a bool.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> pool = mlx_unpool.AdaptiveMaxPool1d(5)
        >>> pool(mx.random.normal((1, 8, 64))).shape
        (1, 5, 64)
    """

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Max pooling over height and width to a given size, whatever the input's.

    Calling it is :func:`adaptive_max_pool2d`, whose page says which windows that makes.

    Args:
        output_size (int or tuple of 2 int or None): Number of windows on each axis; None keeps an axis.
        return_indices (bool): Return ``(values, indices)``, for :class:`MaxUnpool2d` with
            ``kernel_size=None``.
        data_format (str): ``"channels_last"``, ``(N, H, W, C)``, or ``"channels_first"``,
            ``(N, C, H, W)``. The batch may be missing.

    Raises:
        ValueError: If a number or a name is out of range.
        TypeError: If a number is not an integer or a flag not a bool.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> pool = mlx_unpool.AdaptiveMaxPool2d((None, 7), return_indices=True)
        >>> values, indices = pool(mx.random.normal((1, 10, 9, 64)))
        >>> unpool = mlx_unpool.MaxUnpool2d.from_pool(pool)
        >>> unpool(values, indices, output_size=(10, 9)).shape
        (1, 10, 9, 64)
    """

    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Max pooling over depth, height and width to a given size, whatever the input's.

    Calling it is :func:`adaptive_max_pool3d`, whose page says which windows that makes.

    Args:
        output_size (int or tuple of 3 int or None): Number of windows on each axis; None keeps an axis.
        return_indices (bool): Return ``(values, indices)``, for :class:`MaxUnpool3d` with
            ``kernel_size=None``.
        data_format (str): ``"channels_last"``, ``(N, D, H, W, C)``, or ``"channels_first"``,
            ``(N, C, D, H, W)``. The batch may be missing.

    Raises:
        ValueError: If a number or a name is out of range.
        TypeError: If a number is not an integer or a flag not a bool.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> pool = mlx_unpool.AdaptiveMaxPool3d((5, 7, 9))
        >>> pool(mx.random.normal((1, 8, 9, 10, 64))).shape
        (1, 5, 7, 9, 64)
    """

    rank = 3


class FractionalMaxPool2d(_FractionalMaxPool):
    """Max pooling over height and width with windows at random distances.

    Calling ``layer(x, random_samples=None, key=None)`` is :func:`fractional_max_pool2d`, whose page says
    what is drawn. It draws in evaluation as well as in training, as PyTorch's layer does.

    Args:
        kernel_size (int or tuple of 2 int): Window size.
        output_size (int or tuple of 2 int, optional): Number of windows on each axis.
        output_ratio (float or tuple of 2 float, optional): That number as a part of the input's size,
            between 0 and 1. One of the two must be given.
        return_indices (bool): Return ``(values, indices)``, for :class:`MaxUnpool2d` with
            ``kernel_size=None``.
        data_format (str): ``"channels_last"``, ``(N, H, W, C)``, or ``"channels_first"``,
            ``(N, C, H, W)``. The batch may be missing.

    Raises:
        ValueError: If a number or a name is out of range.
        TypeError: If a number is not an integer or a flag not a bool.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> pool = mlx_unpool.FractionalMaxPool2d(3, output_ratio=(0.5, 0.75))
        >>> pool(mx.random.normal((20, 50, 32, 16))).shape
        (20, 25, 24, 16)
    """

    rank = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Max pooling over depth, height and width with windows at random distances.

    Calling ``layer(x, random_samples=None, key=None)`` is :func:`fractional_max_pool3d`, whose page says
    what is drawn. It draws in evaluation as well as in training, as PyTorch's layer does.

    Args:
        kernel_size (int or tuple of 3 int): Window size.
        output_size (int or tuple of 3 int, optional): Number of windows on each axis.
        output_ratio (float or tuple of 3 float, optional): That number as a part of the input's size,
            between 0 and 1. One of the two must be given.
        return_indices (bool): Return ``(values, indices)``, for :class:`MaxUnpool3d` with
            ``kernel_size=None``.
        data_format (str): ``"channels_last"``, ``(N, D, H, W, C)``, or ``"channels_first"``,
            ``(N, C, D, H, W)``. The batch may be missing.

    Raises:
        ValueError: If a number or a name is out of range.
        TypeError: If a number is not an integer or a flag not a bool.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> pool = mlx_unpool.FractionalMaxPool3d(3, output_size=(13, 12, 11))
        >>> pool(mx.random.normal((2, 50, 32, 16, 4)), key=mx.random.key(1)).shape
        (2, 13, 12, 11, 4)
    """

    rank = 3
