"""Index formats of this library and of others: conversions, and a check of the range."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import mlx.core as mx

from . import _arguments
from ._geometry import Triple, Window, triple
from ._indices import INDEX_FORMATS, flat_dtype, is_window
from ._layout import DATA_FORMATS, Layout, layout_of

FORMATS = (*INDEX_FORMATS, "tensorflow", "tensorflow_batch", "onnx", "onnx_column_major")


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
    """Indices of max pooling in one format as those of another, of another framework for instance.

    For the place ``(d, h, w)`` of image ``n`` and channel ``c``, in planes of ``(D, H, W)`` places:

    ========================  ===================================  ======================================
    format                    index                                who uses it
    ========================  ===================================  ======================================
    ``"flat"``                ``(d*H + h)*W + w``                  this library, PyTorch, Paddle
    ``"window"``              row-major offset inside the window   this library
    ``"tensorflow"``          ``((d*H + h)*W + w)*C + c``          ``tf.nn.max_pool_with_argmax``
    ``"tensorflow_batch"``    ``(((n*D + d)*H + h)*W + w)*C + c``  it, ``include_batch_in_index=True``
    ``"onnx"``                ``(((n*C + c)*D + d)*H + h)*W + w``  ONNX ``MaxPool``, ``storage_order=0``
    ``"onnx_column_major"``   ``(((n*C + c)*W + w)*H + h)*D + d``  ONNX ``MaxPool``, ``storage_order=1``
    ========================  ===================================  ======================================

    Axes that there are fewer of fall away. Nothing is evaluated. An index that names no place of its own
    plane (or of its window, where one format is ``"window"``) becomes -1, or as a window index the largest
    number of its dtype: unpooling drops both.

    Args:
        indices (array): Shape ``(N, [D_out, [H_out,]] W_out, C)``, or ``(N, C, [D_out, [H_out,]] W_out)``
            with ``data_format="channels_first"``; ``N`` may be missing. uint8 or uint16 in the format
            ``"window"``, another integer type in any other.
        source (str): The format that they have.
        target (str): The format that they are to have.
        output_size (int or tuple of int): Spatial shape of the planes that were pooled.
        kernel_size, stride, padding, dilation: The window; needed where a format is ``"window"``, unused
            where none is.
        data_format (str): ``"channels_last"`` or ``"channels_first"``: how ``indices`` are laid out. The
            numbers of a format are the same in either.
        target_data_format (str, optional): How the result is to be laid out. Default: ``data_format``.

    Returns:
        array: int32 for ``"flat"`` (int64 from planes of 2^31 places on), uint8 for ``"window"`` (uint16 for
        windows of more than 255 taps), int64 for the others.

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
    owner = "convert_indices"
    _arguments.indices(owner, indices)
    _arguments.choice(owner, "source", source, FORMATS)
    _arguments.choice(owner, "target", target, FORMATS)
    if is_window(indices.dtype) != (source == "window"):
        raise TypeError(
            f"[{owner}] 'indices' must have dtype uint8 or uint16 for the source 'window', another "
            f"integer type for any other, but got {indices.dtype} for '{source}'."
        )
    plane = _Plane.of(owner, indices, output_size, data_format)
    window = None
    if "window" in (source, target):
        if kernel_size is None:
            raise ValueError(
                f"[{owner}] 'kernel_size' must be given where a format is 'window' but got None."
            )
        rank = plane.layout.rank
        window = _arguments.window(owner, rank, kernel_size, stride, padding, dilation)
    if target_data_format is None:
        target_data_format = data_format
    _arguments.choice(owner, "target_data_format", target_data_format, DATA_FORMATS)
    place = plane.place_of(plane.layout.fold(indices), source, window)
    result = plane.layout.unfold(plane.index_of(place, target, window))
    return _laid_out(result, plane.layout, target_data_format)


@dataclass(frozen=True)
class _Plane:
    """The planes that folded indices, (B, OD, OH, OW, C), point into."""

    layout: Layout
    size: Triple

    @staticmethod
    def of(owner: str, indices: mx.array, output_size: Any, data_format: str) -> _Plane:
        """The planes of a caller's ``output_size``, which tells the rank."""
        size = _arguments.shape(owner, output_size)
        rank = len(size)
        if rank not in (1, 2, 3) or min(size) < 1:
            raise ValueError(
                f"[{owner}] 'output_size' must be a spatial shape of 1, 2 or 3 axes, each 1 or more, but "
                f"got {output_size!r}."
            )
        return _Plane(layout_of(owner, "indices", indices, rank, data_format), triple(size))

    @property
    def places(self) -> int:
        """How many places a plane has."""
        return prod(self.size)

    def place_of(self, indices: mx.array, source: str, window: Window | None) -> mx.array:
        """The places that indices name, as int64, -1 for one that names none."""
        if source == "window":
            assert window is not None
            return self._place_of_tap(indices, window)
        # No number may wrap around: what is below 0 is -1 from here on, and stays below 0.
        index = mx.maximum(indices.astype(mx.int64), -1)
        if indices.dtype == mx.uint64:
            index = mx.where(indices > mx.iinfo(mx.int64).max, -1, index)
        image, channel = self._image_and_channel()
        own = index >= 0
        if source.startswith("onnx"):
            index = index - (image * self.layout.channels + channel) * self.places
        if source.startswith("tensorflow"):
            if source == "tensorflow_batch":
                index = index - image * (self.places * self.layout.channels)
            own = own & (index % self.layout.channels == channel)
            index = index // self.layout.channels
        own = own & (index >= 0) & (index < self.places)
        if source == "onnx_column_major":
            index = self._flat(
                [index // n % length for n, length in zip(self._columns(), self.size)]
            )
        return mx.where(own, index, -1)

    def index_of(self, place: mx.array, target: str, window: Window | None) -> mx.array:
        """Indices that name these places."""
        if target == "flat":
            return place.astype(flat_dtype(self.size))
        if target == "window":
            assert window is not None
            return self._tap_of(place, window)
        image, channel = self._image_and_channel()
        if target == "onnx_column_major":
            index = sum(x * n for x, n in zip(self._coordinates(place), self._columns()))
        else:
            index = place
        if target.startswith("onnx"):
            index = index + (image * self.layout.channels + channel) * self.places
        else:
            index = index * self.layout.channels + channel
            if target == "tensorflow_batch":
                index = index + image * (self.places * self.layout.channels)
        return mx.where(place >= 0, index, -1)

    def _place_of_tap(self, indices: mx.array, window: Window) -> mx.array:
        tap, position, inside = indices.astype(mx.int64), [], indices < window.taps
        _, kh, kw = window.kernel
        for axis, number in enumerate((tap // (kh * kw), tap // kw % kh, tap % kw)):
            x = self._starts(window, axis, indices.shape[axis + 1]) + number * window.dilation[axis]
            position.append(x)
            inside = inside & (x >= 0) & (x < self.size[axis])
        return mx.where(inside, self._flat(position), -1)

    def _tap_of(self, place: mx.array, window: Window) -> mx.array:
        largest = 2**8 if window.taps < 2**8 else 2**16
        if window.taps >= largest:
            raise ValueError(
                f"[convert_indices] 'kernel_size' must have fewer than {2**16} taps for the target "
                f"'window' but got {window.taps}."
            )
        index, found = mx.zeros((), mx.int64), place >= 0
        for axis, x in enumerate(self._coordinates(place)):
            ahead = x - self._starts(window, axis, place.shape[axis + 1])
            tap = ahead // window.dilation[axis]
            found = found & (ahead % window.dilation[axis] == 0)
            found = found & (tap >= 0) & (tap < window.kernel[axis])
            index = index * window.kernel[axis] + tap
        dtype = mx.uint8 if largest == 2**8 else mx.uint16
        return mx.where(found, index, largest - 1).astype(dtype)

    def _starts(self, window: Window, axis: int, cells: int) -> mx.array:
        """Where each window starts on an axis."""
        shape = [-1 if a == axis + 1 else 1 for a in range(5)]
        starts = mx.arange(cells, dtype=mx.int64) * window.stride[axis] - window.padding[axis]
        return starts.reshape(shape)

    def _image_and_channel(self) -> tuple[mx.array, mx.array]:
        """The numbers of the image and the channel that each index belongs to."""
        batch, channels = self.layout.batch, self.layout.channels
        if self.layout.channels_first:
            plane = mx.arange(batch * channels, dtype=mx.int64).reshape(-1, 1, 1, 1, 1)
            return plane // max(1, channels), plane % max(1, channels)
        image = mx.arange(batch, dtype=mx.int64).reshape(-1, 1, 1, 1, 1)
        return image, mx.arange(channels, dtype=mx.int64)

    def _coordinates(self, place: mx.array) -> list[mx.array]:
        _, height, width = self.size
        return [place // (height * width), place // width % height, place % width]

    def _flat(self, position: list[mx.array]) -> mx.array:
        d, h, w = position
        return (d * self.size[1] + h) * self.size[2] + w

    def _columns(self) -> Triple:
        """How many places one step along each axis is in column-major order."""
        return (1, self.size[0], self.size[0] * self.size[1])


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
    """Raises ValueError if an index names no place in a plane of ``output_size``.

    Unpooling drops such an index without a word, as a GPU must; this function is the eager way to find
    out. It evaluates ``indices``.

    Args:
        indices (array): Flat indices (any integer dtype but uint8 and uint16) or window indices (uint8
            or uint16) of shape ``(N, [D, [H,]] W, C)``, or ``(N, C, [D, [H,]] W)`` with
            ``data_format="channels_first"``; ``N`` may be missing.
        output_size (int or tuple of int): Spatial shape of the plane to unpool into.
        kernel_size, stride, padding, dilation: The window; needed for window indices alone, unused for
            flat ones.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.

    Raises:
        ValueError: If an index is out of range; the message names the first one, where it stands and
            what is allowed. Also if a shape does not fit.
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
    owner = "check_indices"
    _arguments.indices(owner, indices)
    plane = _Plane.of(owner, indices, output_size, data_format)
    if not is_window(indices.dtype):
        # as unsigned numbers, negative indices are too big as well
        bad = indices.astype(mx.uint64) >= mx.array(plane.places, mx.uint64)
        allowed = f"0 to {plane.places - 1}"
    else:
        if kernel_size is None:
            raise ValueError(
                f"[{owner}] 'kernel_size' must be given for window indices ({indices.dtype}) but got None."
            )
        rank = plane.layout.rank
        window = _arguments.window(owner, rank, kernel_size, stride, padding, dilation)
        folded = plane.layout.fold(indices)
        bad = plane.layout.unfold(plane.place_of(folded, "window", window) < 0)
        allowed = f"0 to {window.taps - 1} and name a tap inside the plane"
    if indices.size and mx.any(bad).item():
        rest = int(mx.argmax(bad.reshape(-1)))
        where: tuple[int, ...] = ()
        for length in reversed(indices.shape):
            rest, here = divmod(rest, length)
            where = (here, *where)
        raise ValueError(
            f"[{owner}] 'indices' must be in {allowed} but got {indices[where].item()} at {where}."
        )
