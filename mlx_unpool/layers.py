"""Max pooling with indices and max unpooling, as ``mlx.nn`` layers without parameters.

The examples assume ``import mlx.core as mx`` and ``import mlx_unpool``.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn

from . import _arguments as arguments
from ._requests import AdaptivePooling, FractionalPooling, MaxPooling, MaxUnpooling
from ._types import ArrayOrPair, DataFormat, IndexFormat, IntOrTuple, Padding, Stream

if TYPE_CHECKING:
    from typing_extensions import Self


class _Layer(nn.Module):
    """Base class of all layers: a request made from the attributes, a repr, errors with the class's name."""

    rank: int
    _request_type: Any
    _arguments: tuple[str, ...]  # of __init__; ``_request_type.of`` has the same names
    _repr_names: tuple[str, ...]  # arguments that the repr always shows
    _hidden_arguments: tuple[str, ...] = ()  # further attributes that the request depends on

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "rank" in vars(cls) and cls.__module__ == __name__ and cls.__doc__:
            # Add the arguments, which are the same for each rank; editors show them for the constructor.
            summary, shape, rest = inspect.cleandoc(cls.__doc__).split("\n\n", 2)
            _, sections = inspect.cleandoc(cls.__init__.__doc__ or "").split("\n\n", 1)
            cls.__doc__ = f"{summary}\n\n{sections}\n\n{shape}\n\n{rest}"
        if "_request_type" in vars(cls):
            _, *names = inspect.signature(cls.__init__).parameters
            cls._arguments = (*names, *cls._hidden_arguments)
        for name in ("__init__", "__call__"):
            if inspect.isfunction(vars(cls).get(name)):
                setattr(cls, name, arguments.signature(vars(cls)[name]))

    def _extra_repr(self) -> str:
        changed = [n for n, old in _REPR_DEFAULTS.items() if repr(getattr(self, n, old)) != repr(old)]
        names = [*self._repr_names, *changed]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, _normalised(value))

    def __setitem__(self, name: str, value: Any) -> None:
        self.__dict__.pop(name, None)  # where mlx.nn stores numbers, which would take precedence
        super().__setitem__(name, _normalised(value))

    def _request(self) -> Any:
        """The request with the current attributes, checked."""
        given = {name.lstrip("_"): getattr(self, name) for name in self._arguments}
        return self._request_type.of(type(self).__name__, self.rank, **given)


# Options that the repr shows if they differ from these.
_REPR_DEFAULTS = {
    "dilation": 1,
    "ceil_mode": False,
    "return_indices": False,
    "index_format": "flat",
    "data_format": "channels_last",
}


def _normalised(value: Any, depth: int = 2) -> Any:
    """An argument as a layer stores it: plain integers, and tuples instead of lists.

    ``mlx.nn.Module`` treats a list as a list of modules. A list can contain itself, hence the ``depth``.
    """
    if isinstance(value, list) or (type(value) is tuple and list in map(type, value)):
        return tuple(_normalised(item, depth - 1) for item in value) if depth else tuple(value)
    numbers = arguments.all_integers([value])  # including NumPy's
    return value if numbers is None else numbers[0]


class _PoolingLayer(_Layer):
    """Base class of the pooling layers."""

    def __call__(self, x: mx.array, *, stream: Stream = None) -> ArrayOrPair:
        """Pool ``x``.

        In training mode on a GPU, the positions of the maxima are kept for the gradient. After ``eval()``
        they are kept only with ``return_indices``; otherwise a gradient computes them again.

        Args:
            x (array): Shape ``(N, ..., C)``, or ``(N, C, ...)`` with ``data_format="channels_first"``; the
                batch dimension is optional.
            stream (Stream or Device, optional): Stream or device to run on.

        Returns:
            array or tuple of array: Values or, with ``return_indices``, ``(values, indices)`` of equal shape.

        Raises:
            ValueError: If the arrays are too large for the device (about 2^31 elements on the CPU) or a
                window does not fit into the padded input (not in adaptive pooling).
        """
        return self._request().run(x, stream, self.training)


class _MaxPool(_PoolingLayer):
    _request_type = MaxPooling
    _repr_names = ("kernel_size", "stride", "padding")

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

        where ``before`` and ``after`` are the padding of the axis. ``ceil_mode`` rounds the quotient up, but
        drops a last window that would start after the end of the input.

        Ties go to the first element in row-major order. NaN counts as larger than any number; of several NaNs
        the last is used. Padding is never the maximum. A window without an element inside the input gives
        ``-inf`` (for integers, the smallest value of the dtype) and the flat index -1 or the window index 0.

        Attributes can be changed; the next call checks them.

        Args:
            kernel_size (int or tuple of int): Size of the window.
            stride (int or tuple of int, optional): Distance between windows. Default: ``kernel_size``.
            padding (int, tuple or str): Implicit padding, on each side less than the dilated window: an
                integer for all sides, or a tuple with an integer or a pair ``(before, after)`` per axis, such
                as ``((0, 1), 2)`` in 2-D and ``((0, 1),)`` in 1-D. ``"same"``: ``ceil(L / stride)`` windows,
                as in TensorFlow, with the smaller half of the padding before the axis. ``"valid"``: 0.
            dilation (int or tuple of int): Distance between the elements of a window.
            ceil_mode (bool): Round the pooled size up instead of down.
            return_indices (bool): Return ``(values, indices)``, for an unpooling layer.
            index_format (str): ``"flat"``, int32 positions ``(d*H + h)*W + w`` in the plane (in 2-D
                ``h*W + w``, in 1-D ``w``), as in PyTorch, or ``"window"``, uint8 row-major offsets inside
                the window, which take less memory.
            data_format (str): ``"channels_last"``, ``(N, ..., C)``, or ``"channels_first"``, ``(N, C, ...)``.

        The input can have any floating-point or integer dtype (float64 only on the CPU).
        Values have the same dtype. Flat indices are int32 (int64 for planes of 2^31 positions or more, which
        only a GPU can pool). Window indices are uint8 (uint16 for windows of 257 to 65,536 elements).
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


class _AdaptiveMaxPool(_PoolingLayer):
    _request_type = AdaptivePooling
    _repr_names = ("output_size",)

    def __init__(
        self,
        output_size: int | Sequence[int | None],
        *,
        return_indices: bool = False,
        data_format: DataFormat = "channels_last",
    ) -> None:
        """Create the layer.

        On a spatial axis of length ``L``, window ``i`` of ``n`` covers the positions from
        ``floor(i * L / n)`` to ``ceil((i + 1) * L / n) - 1``, as in PyTorch. If ``n`` does not divide ``L``,
        some neighbouring windows overlap. Ties and NaN are treated as in ``MaxPool2d``.

        Args:
            output_size (int, or tuple of int and None): Number of windows on each axis. None in a
                tuple keeps the length of that axis.
            return_indices (bool): Return ``(values, indices)``, to unpool with ``kernel_size=None``.
            data_format (str): ``"channels_last"``, ``(N, ..., C)``, or ``"channels_first"``, ``(N, C, ...)``.

        The input can have any floating-point or integer dtype (float64 only on the CPU). Values have the same
        dtype. There is no ``index_format``, because the windows can differ in size: indices are flat as in
        ``MaxPool2d``, int32 (int64 for planes of 2^31 positions or more, which only a GPU can pool).
        """
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices
        self.data_format = data_format
        self._request()


class _FractionalMaxPool(_PoolingLayer):
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
        """Create the layer.

        Window ``i`` on a spatial axis of length ``L`` starts at
        ``floor((i + u) * a) - floor(u * a)``, where ``a = (L - kernel_size) / (output_size - 1)``
        and ``u`` is a random number from 0 to 1 per image, channel and axis. The last window (the only one if
        ``output_size`` is 1) starts at ``L - kernel_size``. This is as in PyTorch (Graham, "Fractional
        Max-Pooling", 2014). Ties and NaN are treated as in ``MaxPool2d``.

        Without ``random_samples`` or ``key`` every call draws from MLX's global random state, as dropout
        does. Inside a transform pass a ``key`` to each call; see the page Guarantees.

        Args:
            kernel_size (int or tuple of int): Size of the window.
            output_size (int or tuple of int, optional): Number of windows on each axis.
            output_ratio (float or tuple of float, optional): ``output_size`` as a fraction of the input
                size, above 0 and below 1; the number of windows is rounded down. Exactly one of
                ``output_size`` and ``output_ratio`` must be given.
            return_indices (bool): Return ``(values, indices)``, to unpool with ``kernel_size=None``.
            data_format (str): ``"channels_last"``, ``(N, ..., C)``, or ``"channels_first"``, ``(N, C, ...)``.

        The input can have any floating-point or integer dtype (float64 only on the CPU). Values have the same
        dtype. There is no ``index_format``, because windows have random positions: indices are flat as in
        ``MaxPool2d``, int32 (int64 for planes of 2^31 positions or more, which only a GPU can pool).
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
            random_samples (array, optional): Floats from 0 to 1 of shape ``(N, C, 2)``, or in 3-D
                ``(N, C, 3)``: for each image and channel one per axis, in the order of the axes of
                ``x`` (in 2-D, PyTorch has the width first). N is 1 if ``x`` has no batch.
            key (array, optional): Key of ``mx.random`` to draw the samples. Default: MLX's global state.
            stream (Stream or Device, optional): Stream or device to run on.

        Returns:
            array or tuple of array: Values or, with ``return_indices``, ``(values, indices)`` of equal shape.

        Raises:
            ValueError: If an axis gets no window or more than ``L - kernel_size + 1`` of them,
                ``random_samples`` and ``key`` are both given, or the arrays are too large for the device
                (about 2^31 elements on the CPU).
        """
        return self._request().run(x, stream, self.training, random_samples, key)


class _MaxUnpool(_Layer):
    _request_type = MaxUnpooling
    _hidden_arguments = ("_from_pool",)
    _repr_names = ("kernel_size", "stride", "padding")

    def __init__(
        self,
        kernel_size: IntOrTuple | None,
        stride: IntOrTuple | None = None,
        padding: Padding = 0,
        *,
        dilation: IntOrTuple = 1,
        data_format: DataFormat = "channels_last",
    ) -> None:
        """Create the layer; ``from_pool`` copies the arguments of a pool.

        Without ``output_size``, a spatial axis with ``n`` windows and the padding ``before`` and ``after``
        gets the length::

            (n - 1) * stride - before - after + dilation * (kernel_size - 1) + 1

        With ``padding="same"`` the length is ``n`` if all strides are 1; otherwise ``output_size`` is
        required.

        If several values have the same index, the last one in row-major order is kept. A value whose index is
        outside the output is dropped; ``check_indices`` and ``checking`` find such indices.

        Warning:
            Always pass ``output_size=x.shape``, where ``x`` is the array that was pooled. Inputs of
            different sizes can have the same pooled size, and a flat index refers to a different
            position if the rows have another length.

        Args:
            kernel_size (int or tuple of int or None): As in the pooling layer. None is for flat
                indices whose windows differ or are unknown, for example from adaptive pooling; then omit the
                next three arguments, and pass ``output_size`` in every call.
            stride, padding, dilation: Must match the pooling layer; same types and defaults.
            data_format (str): ``"channels_last"``, ``(N, ..., C)``, or ``"channels_first"``, ``(N, C, ...)``.

        Values can have any floating-point or integer dtype (float64 only on the CPU), and the
        output has the same dtype. Indices can have any integer dtype: uint8 and uint16 indices are offsets
        inside the window, all others are positions in the plane.
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
    @arguments.signature
    def from_pool(cls, pool: _PoolingLayer) -> Self:
        """Create the unpooling layer for a pooling layer with the same number of spatial axes.

        Each call must pass ``output_size`` if a stride of ``pool`` is above 1, or if it is adaptive or
        fractional (``kernel_size`` is then None).

        Args:
            pool (Module): Pooling layer of this library with ``return_indices=True``.

        Returns:
            Module: The unpooling layer.
        """
        if not isinstance(pool, _PoolingLayer) or pool.rank != cls.rank:
            kind = pool if isinstance(pool, type) else type(pool)
            hint = " Pass a layer, not its class." if kind is pool else ""
            if isinstance(pool, _PoolingLayer):
                hint = f" Use MaxUnpool{pool.rank}d.from_pool."
            elif isinstance(pool, (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)):
                hint = " The pools of mlx.nn return no indices."
            raise TypeError(
                f"[{cls.__name__}] 'pool' must be a {cls.rank}-D pooling layer of mlx_unpool but got "
                f"{kind.__module__}.{kind.__name__}.{hint}"
            )
        if not pool.return_indices:
            raise ValueError(
                f"[{cls.__name__}] 'pool' must have return_indices=True, as unpooling needs its indices, "
                f"but got {pool}."
            )
        if not isinstance(pool, _MaxPool):
            return cls(None, data_format=pool.data_format)
        window = pool.kernel_size, pool.stride, pool.padding
        unpool = cls(*window, dilation=pool.dilation, data_format=pool.data_format)
        unpool._from_pool = True
        return unpool

    def __call__(
        self, x: mx.array, indices: mx.array, output_size: IntOrTuple | None = None, *, stream: Stream = None
    ) -> mx.array:
        """Unpool ``x``.

        Args:
            x (array): Pooled values. Shape ``(N, ..., C)``, or ``(N, C, ...)`` with
                ``data_format="channels_first"``; the batch dimension is optional.
            indices (array): Flat indices, or window indices if the dtype is uint8 or uint16, with
                the shape of ``x``. ``convert_indices`` converts indices of TensorFlow and ONNX.
            output_size (int or tuple of int, optional): Shape of the array that was pooled: its spatial
                shape, or its full shape with or without the batch. An int applies to all axes. Each axis may
                differ by less than one stride from its default length (with ``padding="same"``, pooling it
                must give the size of ``x``); the batch and channels of a full shape are ignored. If
                ``kernel_size`` is None, any spatial shape is allowed, but batch and channels must be those of
                ``x``.
            stream (Stream or Device, optional): Stream or device to run on.

        Returns:
            array: Values at their positions, zeros elsewhere, with the dtype of ``x``.

        Raises:
            ValueError: If ``output_size`` is required but missing, or the arrays are too large for the device
                (about 2^31 elements on the CPU; without ``kernel_size`` 2^31 pooled values per plane on any
                device).
        """
        return self._request().run(x, indices, output_size, stream)


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

    See also: ``MaxUnpool1d`` for the partial inverse; ``max_pool1d``.
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
        >>> values.dtype, indices.dtype
        (mlx.core.float32, mlx.core.int32)

    See also: ``MaxUnpool2d`` for the partial inverse; ``max_pool2d``.
    """

    rank = 2


class MaxPool3d(_MaxPool):
    """Max pooling over depth, height and width, optionally with the position of each maximum.

    Shape:
        - Input: ``(N, D, H, W, C)``, or ``(N, C, D, H, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, D_out, H_out, W_out, C)``, or ``(N, C, D_out, H_out, W_out)``.

    Example:
        >>> pool = mlx_unpool.MaxPool3d(2, data_format="channels_first")
        >>> x = mx.array([[1, 2, 3, 4, 5, 6, 7, 8], [8, 1, 2, 3, 4, 5, 6, 7]], mx.float32)
        >>> x = x.reshape(1, 2, 2, 2, 2)
        >>> pool(x).squeeze().tolist()
        [8.0, 8.0]
        >>> mx.grad(lambda x: pool(x).sum())(x).reshape(2, 8).tolist()
        [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]

    See also: ``MaxUnpool3d`` for the partial inverse; ``max_pool3d``.
    """

    rank = 3


class MaxUnpool1d(_MaxUnpool):
    """Max unpooling over a sequence: pooled values at their indices, zeros elsewhere.

    Shape:
        - Values and indices: ``(N, W_out, C)``, or ``(N, C, W_out)`` with the channels first; N is optional.
        - Output: ``(N, W, C)``, or ``(N, C, W)``.

    Example:
        >>> pool = mlx_unpool.MaxPool1d(2, return_indices=True)
        >>> unpool = mlx_unpool.MaxUnpool1d.from_pool(pool)
        >>> x = mx.array([[1.0], [3.0], [2.0], [5.0], [4.0]])
        >>> values, indices = pool(x)
        >>> unpool(values, indices, output_size=x.shape).squeeze().tolist()
        [0.0, 3.0, 0.0, 5.0, 0.0]

    See also: ``MaxPool1d``; ``max_unpool1d``; ``check_indices``.
    """

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """Max unpooling over height and width: pooled values at their indices, zeros elsewhere.

    Shape:
        - Values and indices: ``(N, H_out, W_out, C)``, or ``(N, C, H_out, W_out)`` with the channels
          first; N is optional.
        - Output: ``(N, H, W, C)``, or ``(N, C, H, W)``.

    Example:
        >>> pool = mlx_unpool.MaxPool2d(2, return_indices=True)
        >>> unpool = mlx_unpool.MaxUnpool2d.from_pool(pool)
        >>> x = mx.arange(20).reshape(1, 4, 5, 1)
        >>> values, indices = pool(x)
        >>> unpool(values, indices, output_size=x.shape).squeeze()
        array([[0, 0, 0, 0, 0],
               [0, 6, 0, 8, 0],
               [0, 0, 0, 0, 0],
               [0, 16, 0, 18, 0]], dtype=int32)

    See also: ``MaxPool2d``; ``max_unpool2d``; ``check_indices``.
    """

    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """Max unpooling over depth, height and width: pooled values at their indices, zeros elsewhere.

    Shape:
        - Values and indices: ``(N, D_out, H_out, W_out, C)``, or ``(N, C, D_out, H_out, W_out)`` with the
          channels first; N is optional.
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

    See also: ``MaxPool3d``; ``max_unpool3d``; ``check_indices``.
    """

    rank = 3


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Adaptive max pooling over a sequence: a fixed output size, for any input size.

    Shape:
        - Input: ``(N, W, C)``, or ``(N, C, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, W_out, C)``, or ``(N, C, W_out)``.

    Example:
        >>> pool = mlx_unpool.AdaptiveMaxPool1d(2)
        >>> pool(mx.array([[1.0], [3.0], [2.0], [5.0], [4.0]])).squeeze().tolist()
        [3.0, 5.0]

    See also: ``MaxUnpool1d.from_pool``; ``adaptive_max_pool1d``.
    """

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Adaptive max pooling over height and width: a fixed output size, for any input size.

    Shape:
        - Input: ``(N, H, W, C)``, or ``(N, C, H, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, H_out, W_out, C)``, or ``(N, C, H_out, W_out)``.

    Example:
        >>> pool = mlx_unpool.AdaptiveMaxPool2d((2, None), return_indices=True)
        >>> values, indices = pool(mx.arange(15.0).reshape(1, 5, 3, 1))
        >>> values.squeeze().tolist(), indices.squeeze().tolist()
        ([[6.0, 7.0, 8.0], [12.0, 13.0, 14.0]], [[6, 7, 8], [12, 13, 14]])
        >>> mlx_unpool.MaxUnpool2d.from_pool(pool)(values, indices, output_size=(5, 3)).shape
        (1, 5, 3, 1)

    See also: ``MaxUnpool2d.from_pool``; ``adaptive_max_pool2d``.
    """

    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Adaptive max pooling over depth, height and width: a fixed output size, for any input size.

    Shape:
        - Input: ``(N, D, H, W, C)``, or ``(N, C, D, H, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, D_out, H_out, W_out, C)``, or ``(N, C, D_out, H_out, W_out)``.

    Example:
        >>> pool = mlx_unpool.AdaptiveMaxPool3d((1, 1, 2))
        >>> pool(mx.arange(24.0).reshape(1, 2, 3, 4, 1)).squeeze().tolist()
        [21.0, 23.0]

    See also: ``MaxUnpool3d.from_pool``; ``adaptive_max_pool3d``.
    """

    rank = 3


class FractionalMaxPool2d(_FractionalMaxPool):
    """Fractional max pooling over height and width: windows at random positions.

    Shape:
        - Input: ``(N, H, W, C)``, or ``(N, C, H, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, H_out, W_out, C)``, or ``(N, C, H_out, W_out)``.

    Example:
        >>> pool = mlx_unpool.FractionalMaxPool2d(2, output_ratio=(0.5, 0.75))
        >>> x = mx.arange(16.0).reshape(1, 4, 4, 1)
        >>> samples = mx.zeros((1, 1, 2))  # instead of random numbers
        >>> pool(x, random_samples=samples).squeeze().tolist()
        [[5.0, 6.0, 7.0], [13.0, 14.0, 15.0]]

    See also: ``MaxUnpool2d.from_pool``; ``fractional_max_pool2d``.
    """

    rank = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Fractional max pooling over depth, height and width: windows at random positions.

    Shape:
        - Input: ``(N, D, H, W, C)``, or ``(N, C, D, H, W)`` with the channels first; N is optional.
        - Values and indices: ``(N, D_out, H_out, W_out, C)``, or ``(N, C, D_out, H_out, W_out)``.

    Example:
        >>> pool = mlx_unpool.FractionalMaxPool3d(2, output_size=(1, 1, 2))
        >>> pool(mx.arange(27.0).reshape(1, 3, 3, 3, 1), key=mx.random.key(1)).squeeze().tolist()
        [25.0, 26.0]

    See also: ``MaxUnpool3d.from_pool``; ``fractional_max_pool3d``.
    """

    rank = 3
