"""Max pooling with indices and max unpooling, as ``mlx.nn`` layers without parameters."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn

from . import _arguments as check
from ._requests import AdaptivePooling, FractionalPooling, MaxPooling, MaxUnpooling
from ._types import ArrayOrPair, DataFormat, IndexFormat, IntOrTuple, Stream

if TYPE_CHECKING:
    from typing_extensions import Self


class _Layer(nn.Module):
    """Base class of all layers: a request made from the attributes, a repr, errors with the class's name."""

    rank: int
    _request_type: Any
    _arguments: tuple[str, ...]  # of __init__, in the order of ``_request_type.of``
    _repr_names: tuple[str, ...]  # arguments that the repr always shows
    _hidden_arguments: tuple[str, ...] = ()  # further attributes that the request depends on

    def __init_subclass__(cls) -> None:
        if "_request_type" in vars(cls):
            _, *names = inspect.signature(cls.__init__).parameters
            cls._arguments = (*names, *cls._hidden_arguments)
        for name in ("__init__", "__call__"):
            if name in vars(cls):
                setattr(cls, name, _with_signature_errors(vars(cls)[name]))

    def _extra_repr(self) -> str:
        names = list(self._repr_names)
        for name, default in _REPR_DEFAULTS.items():
            if getattr(self, name, default) != default:
                names.append(name)
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, _normalized(value))
        self.__dict__.pop("request", None)

    def _request(self) -> Any:
        """The request with the current attributes, checked again only after an attribute was set."""
        request = self.__dict__.get("request")
        if request is None:
            arguments = [getattr(self, name) for name in self._arguments]
            request = self._request_type.of(type(self).__name__, self.rank, *arguments)
            self.__dict__["request"] = request
        return request


def _with_signature_errors(method: Callable[..., Any]) -> Any:
    """``method``, with an error that names the public class if the arguments do not fit its signature."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # from inside the method
            problem = str(error).partition("() ")[2]
            _, *parameters = inspect.signature(method).parameters.values()
            plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
            hint = f" {check.PAIR_HINT}" if "'indices'" in problem else ""
            raise TypeError(
                f"[{type(self).__name__}] {problem}; the arguments are {inspect.Signature(plain)}.{hint}"
            ) from None

    return call


# Options that the repr shows if they differ from these.
_REPR_DEFAULTS = {
    "dilation": 1,
    "ceil_mode": False,
    "return_indices": False,
    "index_format": "flat",
    "data_format": "channels_last",
}


def _normalized(value: Any) -> Any:
    """An argument as a layer stores it: plain integers, and tuples instead of lists.

    ``mlx.nn.Module`` treats a list as a list of modules.
    """
    if isinstance(value, list):
        return tuple(map(_normalized, value))
    if isinstance(value, (bool, int, mx.array)) or not hasattr(value, "__index__"):
        return value
    try:
        return operator.index(value)  # NumPy integers
    except TypeError:
        return value


class _Pool(_Layer):
    """Base class of the pooling layers."""

    def __call__(self, x: mx.array, *, stream: Stream = None) -> ArrayOrPair:
        """Pool ``x``.

        Args:
            x (array): Shape ``(N, ..., C)``, or ``(N, C, ...)`` with ``data_format="channels_first"``; the
                batch dimension is optional.
            stream (Stream or Device, optional): Stream or device to run on.

        Returns:
            array or tuple of array: Values, or with ``return_indices`` ``(values, indices)``.
        """
        return self._request()(x, stream)


class _MaxPool(_Pool):
    _request_type = MaxPooling
    _repr_names = ("kernel_size", "stride", "padding")

    def __init__(
        self,
        kernel_size: IntOrTuple,
        stride: IntOrTuple | None = None,
        padding: IntOrTuple = 0,
        *,
        dilation: IntOrTuple = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
        index_format: IndexFormat = "flat",
        data_format: DataFormat = "channels_last",
    ) -> None:
        """Max pooling over equal windows at equal distances.

        A spatial axis of length ``L`` gets
        ``L_out = floor((L + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1`` windows. With
        ``ceil_mode`` it is the ceiling, one less if the last window would start at ``L + padding`` or beyond.

        Ties go to the first element in row-major order. NaN counts as larger than any number; of several
        NaNs the last is used. Padding is never compared. A window without an element inside the input gives
        ``-inf`` (the smallest value of an integer type) and flat index -1.

        Attributes can be changed later and are checked in the next call. As in every ``mlx.nn`` layer, a
        misspelled attribute (``pool.kernel_sise = 3``) raises no error and has no effect.

        Args:
            kernel_size (int or tuple of int): Size of the window.
            stride (int or tuple of int, optional): Distance between windows. Default: ``kernel_size``.
            padding (int or tuple of int): Implicit padding on both sides of each axis, at most half the
                dilated window.
            dilation (int or tuple of int): Distance between the elements of a window.
            ceil_mode (bool): Round the pooled size up instead of down, as long as the last window starts
                inside the input or its left padding.
            return_indices (bool): Return ``(values, indices)``, for an unpooling layer.
            index_format (str): ``"flat"`` (int32 positions in the plane) or ``"window"`` (uint8 offsets
                inside the window, a quarter of the memory; uint16 above 256 elements).
            data_format (str): ``"channels_last"``, ``(N, ..., C)``, or ``"channels_first"``, ``(N, C, ...)``.

        Raises:
            ValueError: If a number is out of range or a name is unknown.
            TypeError: If a number is not an integer or a flag not a bool.
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


class _AdaptiveMaxPool(_Pool):
    _request_type = AdaptivePooling
    _repr_names = ("output_size",)

    def __init__(
        self,
        output_size: int | Sequence[int | None],
        *,
        return_indices: bool = False,
        data_format: DataFormat = "channels_last",
    ) -> None:
        """Max pooling to a given number of windows.

        On a spatial axis of length ``L``, window ``i`` of ``n`` covers the positions from
        ``floor(i * L / n)`` to ``ceil((i + 1) * L / n) - 1``, as in PyTorch; neighbours overlap where ``n``
        does not divide ``L``. Ties and NaN are treated as in :class:`MaxPool2d`.

        Args:
            output_size (int or tuple of int or None): Number of windows on each axis; None keeps the length
                of an axis.
            return_indices (bool): Return ``(values, indices)``, for an unpooling layer without a window.
            data_format (str): ``"channels_last"``, ``(N, ..., C)``, or ``"channels_first"``, ``(N, C, ...)``.

        Raises:
            ValueError: If a number is out of range or a name is unknown.
            TypeError: If a number is not an integer or a flag not a bool.
        """
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices
        self.data_format = data_format
        self._request()


class _FractionalMaxPool(_Pool):
    _request_type = FractionalPooling
    _repr_names = ("kernel_size", "output_size", "output_ratio")

    def __init__(
        self,
        kernel_size: IntOrTuple,
        *,
        output_size: IntOrTuple | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        data_format: DataFormat = "channels_last",
    ) -> None:
        """Max pooling over windows at random distances.

        The windows on a spatial axis of length ``L`` start at ``floor((i + u) * a) - floor(u * a)``, where
        ``a = (L - kernel_size) / (output_size - 1)`` and ``u`` is one random number per image, channel and
        axis; the last window starts at ``L - kernel_size``, as in PyTorch (Graham, "Fractional Max-Pooling",
        2014). Ties and NaN are treated as in :class:`MaxPool2d`.

        Without ``random_samples`` or ``key`` every call draws from MLX's global random state, as dropout
        does. Pass a ``key`` to each call for reproducible windows inside ``mx.checkpoint``, ``mx.vmap`` or
        ``mx.compile``.

        Args:
            kernel_size (int or tuple of int): Size of the window.
            output_size (int or tuple of int, optional): Number of windows on each axis.
            output_ratio (float or tuple of float, optional): That number as a fraction of the input size.
                Exactly one of the two must be given.
            return_indices (bool): Return ``(values, indices)``, for an unpooling layer without a window.
            data_format (str): ``"channels_last"``, ``(N, ..., C)``, or ``"channels_first"``, ``(N, C, ...)``.

        Raises:
            ValueError: If a number is out of range or a name is unknown.
            TypeError: If a number is not an integer or a flag not a bool.
        """
        super().__init__()
        self.kernel_size = kernel_size
        self.output_size = output_size
        self.output_ratio = output_ratio
        self.return_indices = return_indices
        self.data_format = data_format
        self._request()

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
            x (array): Shape ``(N, ..., C)``, or ``(N, C, ...)`` with ``data_format="channels_first"``; the
                batch dimension is optional.
            random_samples (array, optional): Floats from 0 to 1 of shape ``(N, C, rank)``, one per image,
                channel and axis.
            key (array, optional): Key of ``mx.random`` to draw them with. Default: MLX's global state.
            stream (Stream or Device, optional): Stream or device to run on.

        Returns:
            array or tuple of array: Values, or with ``return_indices`` ``(values, indices)``.
        """
        return self._request()(x, stream, random_samples, key)


class _MaxUnpool(_Layer):
    _request_type = MaxUnpooling
    _hidden_arguments = ("_from_pool",)
    _repr_names = ("kernel_size", "stride", "padding")

    def __init__(
        self,
        kernel_size: IntOrTuple | None,
        stride: IntOrTuple | None = None,
        padding: IntOrTuple = 0,
        *,
        dilation: IntOrTuple = 1,
        data_format: DataFormat = "channels_last",
    ) -> None:
        """Compute a partial inverse of max pooling: values at their indices, zeros elsewhere.

        A spatial axis with ``n`` windows gets, without ``output_size``, the length
        ``(n - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + 1``.

        If several values have the same index, the last one in row-major order is kept. An index outside the
        output is dropped; :func:`check_indices` and :func:`checking` find such indices.

        Warning:
            Always pass ``output_size=x.shape``, where ``x`` is the array that was pooled. Inputs of several
            sizes have the same pooled size, and a flat index refers to a different position in a plane of
            another size. A layer made by :meth:`from_pool` requires it if any stride is above 1.

        Args:
            kernel_size (int or tuple of int or None): Must match the pooling layer. None accepts any flat
                indices, and every call must pass ``output_size``.
            stride (int or tuple of int, optional): Must match the pooling layer. Default: ``kernel_size``.
            padding (int or tuple of int): Must match the pooling layer.
            dilation (int or tuple of int): Must match the pooling layer.
            data_format (str): ``"channels_last"``, ``(N, ..., C)``, or ``"channels_first"``, ``(N, C, ...)``.

        Raises:
            ValueError: If a number is out of range or a name is unknown.
            TypeError: If a number is not an integer.
        """
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.data_format = data_format
        self._from_pool = False
        self._request()

    @classmethod
    def from_pool(cls, pool: _Pool) -> Self:
        """Make the unpooling layer for ``pool``, a pooling layer of this library with the same rank.

        In a network prefer a pool with ``index_format="window"``: one byte per value instead of four.
        Each call must pass ``output_size`` if any stride of ``pool`` is above 1. For an adaptive or
        fractional pool ``kernel_size`` is None, and every call must pass ``output_size``.

        Raises:
            TypeError: If ``pool`` is anything else.
            ValueError: If ``pool`` returns no indices.
        """
        if not isinstance(pool, _Pool) or pool.rank != cls.rank:
            kind = type(pool)
            whose = kind.__module__.replace("mlx.nn.layers.pooling", "mlx.nn") + "."
            hint = ", which returns no indices" if whose.startswith("mlx.nn.") else ""
            name = kind.__name__ if whose == "builtins." else whose + kind.__name__
            raise TypeError(
                f"[{cls.__name__}] 'pool' must be a pooling layer of mlx_unpool with {cls.rank} spatial "
                f"{'axis' if cls.rank == 1 else 'axes'} but got {name}{hint}."
            )
        if not pool.return_indices:
            raise ValueError(
                f"[{cls.__name__}] 'pool' must have return_indices=True, as unpooling needs its indices, "
                f"but got {pool}."
            )
        if not isinstance(pool, _MaxPool):
            return cls(None, data_format=pool.data_format)
        unpool = cls(
            pool.kernel_size,
            pool.stride,
            pool.padding,
            dilation=pool.dilation,
            data_format=pool.data_format,
        )
        unpool._from_pool = True
        return unpool

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
            indices (array): Flat or window indices, with the shape of ``x``.
            output_size (int or tuple of int, optional): Shape of the array that was pooled: spatial, or full
                with or without the batch. An int stands for all axes.
            stream (Stream or Device, optional): Stream or device to run on.

        Returns:
            array: Values at their positions, zeros elsewhere.
        """
        return self._request()(x, indices, output_size, stream)


class MaxPool1d(_MaxPool):
    """Max pooling over a sequence, optionally with the position of each maximum.

    Shape:
        - Input: ``(N, W, C)``, or ``(N, C, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, W_out, C)``, or ``(N, C, W_out)``.

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
    """Max pooling over height and width, optionally with the position of each maximum.

    Shape:
        - Input: ``(N, H, W, C)``, or ``(N, C, H, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, H_out, W_out, C)``, or ``(N, C, H_out, W_out)``.

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
    """Max pooling over depth, height and width, optionally with the position of each maximum.

    Shape:
        - Input: ``(N, D, H, W, C)``, or ``(N, C, D, H, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, D_out, H_out, W_out, C)``, or ``(N, C, D_out, H_out, W_out)``.

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
    """Max unpooling over a sequence: pooled values at their indices, zeros elsewhere.

    ``MaxUnpool1d.from_pool(pool)`` copies every parameter of a :class:`MaxPool1d`.

    Shape:
        - Values and indices: ``(N, W_out, C)``, or ``(N, C, W_out)`` with the channels first; N is optional.
        - Output: ``(N, W, C)``, or ``(N, C, W)``.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> pool = mlx_unpool.MaxPool1d(2, return_indices=True)
        >>> unpool = mlx_unpool.MaxUnpool1d.from_pool(pool)
        >>> values, indices = pool(mx.array([[1.0], [3.0], [2.0], [5.0]]))
        >>> unpool(values, indices, output_size=4).squeeze().tolist()
        [0.0, 3.0, 0.0, 5.0]
    """

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """Max unpooling over height and width: pooled values at their indices, zeros elsewhere.

    ``MaxUnpool2d.from_pool(pool)`` copies every parameter of a :class:`MaxPool2d`.

    Shape:
        - Values and indices: ``(N, H_out, W_out, C)``, or ``(N, C, H_out, W_out)`` with the channels first;
          N is optional.
        - Output: ``(N, H, W, C)``, or ``(N, C, H, W)``.

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
    """Max unpooling over depth, height and width: pooled values at their indices, zeros elsewhere.

    ``MaxUnpool3d.from_pool(pool)`` copies every parameter of a :class:`MaxPool3d`.

    Shape:
        - Values and indices: ``(N, D_out, H_out, W_out, C)``, or ``(N, C, D_out, H_out, W_out)`` with the
          channels first; N is optional.
        - Output: ``(N, D, H, W, C)``, or ``(N, C, D, H, W)``.

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
    """Adaptive max pooling over a sequence: pooling to ``output_size`` whatever the input size.

    Shape:
        - Input: ``(N, W, C)``, or ``(N, C, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, W_out, C)``, or ``(N, C, W_out)``.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> pool = mlx_unpool.AdaptiveMaxPool1d(5)
        >>> pool(mx.random.normal((1, 8, 64))).shape
        (1, 5, 64)
    """

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Adaptive max pooling over height and width: pooling to ``output_size`` whatever the input size.

    Shape:
        - Input: ``(N, H, W, C)``, or ``(N, C, H, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, H_out, W_out, C)``, or ``(N, C, H_out, W_out)``.

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
    """Adaptive max pooling over depth, height and width: pooling to ``output_size`` whatever the input size.

    Shape:
        - Input: ``(N, D, H, W, C)``, or ``(N, C, D, H, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, D_out, H_out, W_out, C)``, or ``(N, C, D_out, H_out, W_out)``.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> pool = mlx_unpool.AdaptiveMaxPool3d((5, 7, 9))
        >>> pool(mx.random.normal((1, 8, 9, 10, 64))).shape
        (1, 5, 7, 9, 64)
    """

    rank = 3


class FractionalMaxPool2d(_FractionalMaxPool):
    """Fractional max pooling over height and width: windows at random distances.

    Shape:
        - Input: ``(N, H, W, C)``, or ``(N, C, H, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, H_out, W_out, C)``, or ``(N, C, H_out, W_out)``.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> pool = mlx_unpool.FractionalMaxPool2d(3, output_ratio=(0.5, 0.75))
        >>> pool(mx.random.normal((20, 50, 32, 16))).shape
        (20, 25, 24, 16)
    """

    rank = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Fractional max pooling over depth, height and width: windows at random distances.

    Shape:
        - Input: ``(N, D, H, W, C)``, or ``(N, C, D, H, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, D_out, H_out, W_out, C)``, or ``(N, C, D_out, H_out, W_out)``.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> pool = mlx_unpool.FractionalMaxPool3d(3, output_size=(13, 12, 11))
        >>> pool(mx.random.normal((2, 50, 32, 16, 4)), key=mx.random.key(1)).shape
        (2, 13, 12, 11, 4)
    """

    rank = 3
