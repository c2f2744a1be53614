"""Conversion between index formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import mlx.core as mx

from . import _arguments as arguments
from . import _index_arithmetic, _index_checks
from ._geometry import Geometry, Triple, WindowGeometry
from ._layout import Layout
from ._types import (
    CONVERTIBLE_FORMATS,
    DATA_FORMATS,
    MAX_WINDOW_INDICES,
    ConvertibleFormat,
    DataFormat,
    IntOrTuple,
    Padding,
    flat_dtype,
    is_window,
)


def convert_indices(
    indices: mx.array,
    source: ConvertibleFormat,
    target: ConvertibleFormat,
    output_size: Sequence[int],
    kernel_size: IntOrTuple | None = None,
    stride: IntOrTuple | None = None,
    padding: Padding = 0,
    *,
    dilation: IntOrTuple = 1,
    data_format: DataFormat = "channels_last",
    target_data_format: DataFormat | None = None,
) -> mx.array:
    """Convert max pooling indices from one format to another, for example from that of TensorFlow.

    The index of position ``(d, h, w)`` in image ``n`` and channel ``c``, for planes of size
    ``(D, H, W)``:

    =======================  ===================================  ================================
    format                   index                                used by
    =======================  ===================================  ================================
    ``"flat"``               ``(d*H + h)*W + w``                  this library, PyTorch, Paddle
    ``"window"``             row-major offset inside the window   this library
    ``"tensorflow"``         ``((d*H + h)*W + w)*C + c``          ``tf.nn.max_pool_with_argmax``
    ``"tensorflow_batch"``   ``(((n*D + d)*H + h)*W + w)*C + c``  the same, with
                                                                  ``include_batch_in_index=True``
    ``"onnx"``               ``(((n*C + c)*D + d)*H + h)*W + w``  ``MaxPool``, ``storage_order=0``
    ``"onnx_column_major"``  ``(((n*C + c)*W + w)*H + h)*D + d``  ``MaxPool``, ``storage_order=1``
    =======================  ===================================  ================================

    In 1-D and 2-D, the missing axes have length 1. An index outside its plane, or its window if
    either format is ``"window"``, becomes -1. With the target ``"window"`` it becomes the largest
    value of the dtype, 255 or 65,535, so a window can have at most 65,535 elements. Unpooling drops
    values with such an index. The input is not evaluated.

    Args:
        indices (array): Shape ``(N, [D_out, [H_out,]] W_out, C)``, or
            ``(N, C, [D_out, [H_out,]] W_out)`` with ``data_format="channels_first"``; the batch
            dimension is optional. The dtype is uint8 or uint16 for ``"window"`` and any other
            integer type for the other formats.
        source (str): Format of ``indices``, from the table. ``"pytorch"`` is the same as
            ``"flat"``.
        target (str): Format of the result.
        output_size (tuple of int): Spatial shape of the array that was pooled, or its full shape if
            it has a batch. Its length gives the number of spatial axes. Without a batch pass the
            spatial shape: a full shape ``(H, W, C)`` would be read as ``(N, W, C)``.
        kernel_size (int or tuple of int, optional): Window size of the pool. Required if either
            format is ``"window"``; otherwise it and the next three are ignored.
        stride, padding, dilation: Must match the pool.
        data_format (str): Layout of ``indices``, ``"channels_last"`` or ``"channels_first"``. It
            does not change the values of the indices.
        target_data_format (str, optional): Layout of the result. Default: ``data_format``.

    Returns:
        array: int32 for ``"flat"`` (int64 for planes of 2^31 positions or more), uint8 for
        ``"window"`` (uint16 for windows of more than 255 elements), int64 for the other formats.

    Example:
        >>> argmax = mx.array([[[[10, 3]]]], dtype=mx.int64)  # of a 2 x 3 plane with 2 channels
        >>> indices = mlx_unpool.convert_indices(argmax, "tensorflow", "flat", (2, 3))
        >>> indices.tolist()
        [[[[5, 1]]]]
        >>> mlx_unpool.max_unpool2d(mx.ones((1, 1, 1, 2)), indices, None, output_size=(2, 3)).shape
        (1, 2, 3, 2)

    See also: ``max_unpool2d``; ``check_indices``.
    """
    caller = "convert_indices"
    arguments.check_index_array(caller, indices)
    source_format = arguments.choice(caller, "source", source, CONVERTIBLE_FORMATS)
    target_format = arguments.choice(caller, "target", target, CONVERTIBLE_FORMATS)
    if is_window(indices.dtype) != (source_format == "window"):
        raise TypeError(
            f"[{caller}] 'indices' must have dtype uint8 or uint16 if 'source' is 'window', and "
            f"another integer dtype otherwise, but got {indices.dtype} and '{source_format}'."
        )
    has_window = "window" in (source_format, target_format)
    window = (kernel_size, stride, padding, dilation) if has_window else None
    layout, g = _index_checks.planes_of(caller, indices, output_size, data_format, window)
    first = layout.channels_first
    if target_data_format is not None:
        formats = caller, "target_data_format", target_data_format, DATA_FORMATS
        first = arguments.choice(*formats) == "channels_first"
    planes = _Planes(layout, g)
    positions = planes.positions(layout.fold(indices), source_format)
    converted = layout.unfold(planes.indices(positions, target_format))
    return _laid_out(converted, layout, first)


@dataclass(frozen=True)
class _Planes:
    """The planes that folded indices, (B, OD, OH, OW, C), refer to."""

    layout: Layout
    geometry: Geometry

    def positions(self, indices: mx.array, source: str) -> mx.array:
        """The flat indices, as int64; -1 for an index outside its own plane or window."""
        if source == "window":
            assert isinstance(self.geometry, WindowGeometry)
            return _index_arithmetic.positions(indices, self.geometry)
        first, step = self._numbering(source)
        # If the difference overflows, the result is outside the plane: it has fewer than 2^63
        # positions.
        index = indices.astype(mx.int64) - first
        inside = (index >= 0) & (index % step == 0)
        index = index // step
        inside = inside & (index < prod(self.geometry.size))
        if source == "onnx_column_major":
            index = _with_axes_reversed(index, self.geometry.size[::-1])
        return mx.where(inside, index, -1)

    def indices(self, positions: mx.array, target: str) -> mx.array:
        """Flat indices converted to another format."""
        if target in ("flat", "pytorch"):
            return positions.astype(flat_dtype(self.geometry.size))
        if target == "window":
            return self._window_indices(positions)
        index = positions
        if target == "onnx_column_major":
            index = _with_axes_reversed(index, self.geometry.size)
        first, step = self._numbering(target)
        return mx.where(positions >= 0, index * step + first, -1)

    def _numbering(self, name: str) -> tuple[mx.array, int]:
        """The index of each plane's first position in a format, and the step between positions."""
        plane, channels = prod(self.geometry.size), max(1, self.layout.channels)
        number = mx.arange(self.layout.batch * self.layout.channels, dtype=mx.int64)
        number = number.reshape(self.layout.folded((1, 1, 1)))  # of the plane
        image, channel = number // channels, number % channels
        return {
            "flat": (number * 0, 1),
            "pytorch": (number * 0, 1),
            "tensorflow": (channel, channels),
            "tensorflow_batch": (image * (plane * channels) + channel, channels),
            "onnx": (number * plane, 1),
            "onnx_column_major": (number * plane, 1),
        }[name]

    def _window_indices(self, positions: mx.array) -> mx.array:
        assert isinstance(self.geometry, WindowGeometry)
        elements = self.geometry.window.elements
        if elements >= MAX_WINDOW_INDICES:  # the largest number marks an index outside its window
            needed = f"have fewer than {MAX_WINDOW_INDICES} elements if 'target' is 'window'"
            raise ValueError(arguments.message("convert_indices", "kernel_size", needed, elements))
        dtype = mx.uint8 if elements < 2**8 else mx.uint16
        index = _index_arithmetic.offsets(positions, self.geometry)
        return mx.where(index >= 0, index, mx.iinfo(dtype).max).astype(dtype)


def _with_axes_reversed(index: mx.array, size: Triple) -> mx.array:
    """The row-major numbers of the same positions in a plane with its axes in reverse order."""
    first, second, third = size
    row = index // third
    return (index % third * second + row % second) * first + row // second


def _laid_out(x: mx.array, layout: Layout, channels_first: bool) -> mx.array:
    """``x`` transposed from ``layout`` to the layout with the channels first or last."""
    if layout.channels_first == channels_first:
        return x
    axis = -layout.rank - 1  # of the channels if they come first
    return mx.moveaxis(x, -1, axis) if channels_first else mx.moveaxis(x, axis, -1)
