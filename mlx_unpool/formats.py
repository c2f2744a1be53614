"""Index formats of this library and of others: conversions, and a check of the range."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import mlx.core as mx

from . import _arguments as check
from . import _indices
from ._geometry import Geometry, WindowGeometry, triple
from ._layout import Layout
from ._requests import window_of
from ._types import DATA_FORMATS, INDEX_FORMATS, MAX_WINDOW_INDICES, flat_dtype, is_window

FORMATS = (*INDEX_FORMATS, "tensorflow", "tensorflow_batch", "onnx", "onnx_column_major")
_OTHER_NAMES = {"pytorch": "flat"}


def convert_indices(
    indices: mx.array,
    source: str,
    target: str,
    output_size: Any,
    kernel_size: Any = None,
    stride: Any = None,
    padding: Any = 0,
    *,
    dilation: Any = 1,
    data_format: str = "channels_last",
    target_data_format: str | None = None,
) -> mx.array:
    """Converts indices of max pooling from one format to another, such as another framework's.

    For position ``(d, h, w)`` of image ``n`` and channel ``c``, in planes of ``(D, H, W)`` positions:

    ========================  ===================================  ======================================
    format                    index                                who uses it
    ========================  ===================================  ======================================
    ``"flat"``                ``(d*H + h)*W + w``                  this library, PyTorch, Paddle
    ``"window"``              row-major offset inside the window   this library
    ``"tensorflow"``          ``((d*H + h)*W + w)*C + c``          ``tf.nn.max_pool_with_argmax``
    ``"tensorflow_batch"``    ``(((n*D + d)*H + h)*W + w)*C + c``  the same, ``include_batch_in_index=True``
    ``"onnx"``                ``(((n*C + c)*D + d)*H + h)*W + w``  ONNX ``MaxPool``, ``storage_order=0``
    ``"onnx_column_major"``   ``(((n*C + c)*W + w)*H + h)*D + d``  ONNX ``MaxPool``, ``storage_order=1``
    ========================  ===================================  ======================================

    With fewer axes the missing ones drop out of the formulas. Nothing is evaluated. An index that names no
    position of its own plane (or of its window, where one format is ``"window"``) becomes -1, or as a window
    index the largest number of its dtype: unpooling drops both.

    Args:
        indices (array): Shape ``(N, [D_out, [H_out,]] W_out, C)``, or ``(N, C, [D_out, [H_out,]] W_out)``
            with ``data_format="channels_first"``; the batch dimension is optional. uint8 or
            uint16 in the format ``"window"``, another integer type in any other.
        source (str): Their format. ``"pytorch"`` is another name of ``"flat"``.
        target (str): The format to convert to.
        output_size (int or tuple of int): Spatial shape of the planes that were pooled.
        kernel_size, stride, padding, dilation: The window; needed where a format is ``"window"``,
            ignored otherwise.
        data_format (str): Layout of ``indices``, ``"channels_last"`` or ``"channels_first"``. The
            numbers of a format are the same in either.
        target_data_format (str, optional): Layout of the result. Default: ``data_format``.

    Returns:
        array: int32 for ``"flat"`` (int64 for planes of 2^31 positions or more), uint8 for ``"window"``
        (uint16 for windows of more than 255 elements), int64 for the others.

    Raises:
        ValueError: If a name, a number or a shape does not fit.
        TypeError: If ``indices`` is not an array of integers of the source's kind.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> argmax = mx.array([[[[10, 3]]]], dtype=mx.int64)  # a 2 x 3 plane of 2 channels, from TensorFlow
        >>> indices = mlx_unpool.convert_indices(argmax, "tensorflow", "flat", (2, 3))
        >>> indices.tolist()
        [[[[5, 1]]]]
        >>> mlx_unpool.max_unpool2d(mx.ones((1, 1, 1, 2)), indices, None, output_size=(2, 3)).shape
        (1, 2, 3, 2)
    """
    caller = "convert_indices"
    check.indices(caller, indices)
    source, target = (
        _OTHER_NAMES.get(name, name) if isinstance(name, str) else name for name in (source, target)
    )
    check.choice(caller, "source", source, FORMATS)
    check.choice(caller, "target", target, FORMATS)
    if is_window(indices.dtype) != (source == "window"):
        raise TypeError(
            f"[{caller}] 'indices' must have dtype uint8 or uint16 for the source 'window', another "
            f"integer type for any other, but got {indices.dtype} for '{source}'."
        )
    planes = _planes(caller, indices, output_size, data_format)
    if "window" in (source, target):
        planes = planes.with_window(caller, kernel_size, stride, padding, dilation)
    if target_data_format is None:
        target_data_format = data_format
    check.choice(caller, "target_data_format", target_data_format, DATA_FORMATS)
    positions = planes.positions(planes.layout.fold(indices), source)
    result = planes.layout.unfold(planes.indices(positions, target))
    return _laid_out(result, planes.layout, target_data_format)


@dataclass(frozen=True)
class _Planes:
    """The planes that folded indices, (B, OD, OH, OW, C), point into."""

    layout: Layout
    geometry: Geometry

    def with_window(
        self, caller: str, kernel_size: Any, stride: Any, padding: Any, dilation: Any
    ) -> _Planes:
        """The same planes with windows."""
        if kernel_size is None:
            raise ValueError(
                f"[{caller}] 'kernel_size' must be given for window indices but got None."
            )
        window = window_of(caller, self.layout.rank, kernel_size, stride, padding, dilation)
        g = self.geometry
        return _Planes(self.layout, WindowGeometry(g.size, g.pooled, window))

    def positions(self, indices: mx.array, source: str) -> mx.array:
        """The flat indices that these stand for, as int64, -1 for one that names no position."""
        if source == "window":
            assert isinstance(self.geometry, WindowGeometry)
            return _indices.positions(indices, self.geometry)
        first, step = self._numbering(source)
        # A difference that wraps around is outside the plane, which has fewer than 2^63 positions.
        index = indices.astype(mx.int64) - first
        own = (index >= 0) & (index % step == 0)
        index = index // step
        own = own & (index < prod(self.geometry.size))
        if source == "onnx_column_major":
            depth, height, width = self.geometry.size
            d, h, w = index % depth, index // depth % height, index // (depth * height)
            index = (d * height + h) * width + w
        return mx.where(own, index, -1)

    def indices(self, positions: mx.array, target: str) -> mx.array:
        """Indices that stand for these flat ones."""
        if target == "flat":
            return positions.astype(flat_dtype(self.geometry.size))
        if target == "window":
            return self._window_indices(positions)
        index = positions
        if target == "onnx_column_major":
            depth, height, width = self.geometry.size
            d, h, w = index // (height * width), index // width % height, index % width
            index = (w * height + h) * depth + d
        first, step = self._numbering(target)
        return mx.where(positions >= 0, index * step + first, -1)

    def _numbering(self, name: str) -> tuple[mx.array, int]:
        """What the first position of each plane is in a format, and how far apart neighbours are."""
        batch, channels, plane = self.layout.batch, self.layout.channels, prod(self.geometry.size)
        if self.layout.channels_first:
            number = mx.arange(batch * channels, dtype=mx.int64).reshape(-1, 1, 1, 1, 1)
            image, channel = number // max(1, channels), number % max(1, channels)
        else:
            image = mx.arange(batch, dtype=mx.int64).reshape(-1, 1, 1, 1, 1)
            channel = mx.arange(channels, dtype=mx.int64)
        steps = max(1, channels)
        return {
            "flat": (mx.zeros((), mx.int64), 1),
            "tensorflow": (channel, steps),
            "tensorflow_batch": (image * (plane * channels) + channel, steps),
            "onnx": ((image * channels + channel) * plane, 1),
            "onnx_column_major": ((image * channels + channel) * plane, 1),
        }[name]

    def _window_indices(self, positions: mx.array) -> mx.array:
        assert isinstance(self.geometry, WindowGeometry)
        elements = self.geometry.window.elements
        if elements >= MAX_WINDOW_INDICES:  # one number is left for what is outside its window
            raise ValueError(
                f"[convert_indices] 'kernel_size' must have fewer than {MAX_WINDOW_INDICES} elements for "
                f"the target 'window' but got {elements}."
            )
        dtype = mx.uint8 if elements < 2**8 else mx.uint16
        index = _indices.offsets(positions, self.geometry)
        return mx.where(index >= 0, index, mx.iinfo(dtype).max).astype(dtype)


def _planes(caller: str, indices: mx.array, output_size: Any, data_format: Any) -> _Planes:
    """The planes of a caller's ``output_size``, a spatial or a full shape, which tells the rank."""
    check.choice(caller, "data_format", data_format, DATA_FORMATS)
    first = data_format == "channels_first"
    given = check.shape(caller, "output_size", output_size)
    # As many numbers as the indices have axes are a full shape, with the batch where there can be one.
    is_full = len(given) == indices.ndim
    rank = max(1, len(given) - 2) if is_full else len(given)
    if rank not in (1, 2, 3) or min(given) < 1:
        raise ValueError(
            f"[{caller}] 'output_size' must be a spatial shape of 1, 2 or 3 axes, each 1 or more, or a full "
            f"shape with the batch, but got {check.short_repr(output_size)}."
        )
    layout = Layout.of(caller, "indices", indices.shape, rank, first)
    spatial = layout.spatial_of_full_shape(given) if is_full else given
    if spatial is None:
        raise ValueError(
            f"[{caller}] 'output_size' must have the batch and the channels of the indices, of shape "
            f"{indices.shape}, where it is a full shape, but got {given}."
        )
    size = triple(spatial)
    planes = max(1, layout.batch) * max(1, layout.channels)
    if prod(size) * planes >= 2**63:
        raise ValueError(
            f"[{caller}] 'output_size' must have fewer than 2^63 positions in all {planes} planes together "
            f"but got {given}."
        )
    return _Planes(layout, Geometry(size, layout.size(indices.shape)))


def _laid_out(x: mx.array, layout: Layout, data_format: str) -> mx.array:
    """``x`` with its channels where ``data_format`` has them."""
    first = -layout.rank - 1
    if layout.channels_first == (data_format == "channels_first"):
        return x
    return mx.moveaxis(x, first, -1) if layout.channels_first else mx.moveaxis(x, -1, first)


def check_indices(
    indices: mx.array,
    output_size: Any,
    kernel_size: Any = None,
    stride: Any = None,
    padding: Any = 0,
    *,
    dilation: Any = 1,
    data_format: str = "channels_last",
) -> None:
    """Raises ValueError if an index names no position in a plane of ``output_size``.

    Unpooling drops such an index without a word, as a GPU must; this function is the eager way to find
    out, and :func:`checking` does it in every unpooling. It evaluates ``indices``.

    Args:
        indices (array): Flat indices (any integer dtype but uint8 and uint16) or window indices (uint8
            or uint16) of shape ``(N, [D, [H,]] W, C)``, or ``(N, C, [D, [H,]] W)`` with
            ``data_format="channels_first"``; the batch dimension is optional.
        output_size (int or tuple of int): Spatial shape of the plane to unpool into, or the full shape of
            the output with the batch.
        kernel_size, stride, padding, dilation: The window. Window indices need it; flat ones are
            checked against it if it is given.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.

    Raises:
        ValueError: If an index is out of range or not in its own window; the message names the first
            one, its position, what is allowed and the likely cause. Also if a shape does not
            fit.
        TypeError: If ``indices`` is not an array of integers.

    Example:

        >>> import mlx.core as mx
        >>> from mlx_unpool import check_indices
        >>> check_indices(mx.array([[[0], [5]]]), 6)
        >>> check_indices(mx.array([[[0], [6]]]), 6)
        Traceback (most recent call last):
        ...
        ValueError: [check_indices] 'indices' must be in 0 to 5 but got 6 at (0, 1, 0).
    """
    caller = "check_indices"
    check.indices(caller, indices)
    planes = _planes(caller, indices, output_size, data_format)
    if kernel_size is not None or is_window(indices.dtype):
        planes = planes.with_window(caller, kernel_size, stride, padding, dilation)
    _indices.check(caller, indices, planes.layout, planes.geometry)
