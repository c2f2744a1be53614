"""Index formats: what an index says, which dtype carries it, and a check of its range.

A *flat* index is the number ``(d*H + h)*W + w`` of a place in the plane that was pooled. A *window*
index is the row-major number of a tap inside the window. uint8 and uint16 arrays hold window indices,
arrays of every other integer type flat ones.
"""

from __future__ import annotations

from math import prod
from typing import Any

import mlx.core as mx

from . import _arguments
from ._geometry import Triple, Window
from ._layout import layout_of

INDEX_FORMATS = ("flat", "window")


def is_window(indices: mx.array) -> bool:
    """Whether ``indices`` are offsets inside the window, by their dtype."""
    return indices.dtype in _arguments.WINDOW_INDEX_DTYPES


def flat_dtype(size: Triple) -> mx.Dtype:
    """The dtype of flat indices into a plane of ``size``."""
    return mx.int32 if prod(size) <= 2**31 - 1 else mx.int64


def window_dtype(owner: str, window: Window) -> mx.Dtype:
    """The dtype of window indices."""
    if window.taps > 2**16:
        raise ValueError(
            f"[{owner}] 'index_format' must be 'flat' for windows of more than {2**16} taps but got "
            f"'window' and {window.taps} taps."
        )
    return mx.uint8 if window.taps <= 2**8 else mx.uint16


def place_table(window: Window, size: Triple, cells: Triple) -> mx.array:
    """The flat place of every tap of every window, -1 for a tap outside the plane.

    Shape ``(prod(cells), taps)``, int32 or int64 as :func:`flat_dtype` says.
    """
    dtype = flat_dtype(size)
    place, inside = mx.array(0, dtype), mx.array(True)
    for axis in range(3):
        cell_shape = [-1 if a == axis else 1 for a in range(3)] + [1] * 3
        tap_shape = [1] * 3 + [-1 if a == axis else 1 for a in range(3)]
        starts = mx.arange(cells[axis], dtype=dtype) * window.stride[axis] - window.padding[axis]
        taps = mx.arange(window.kernel[axis], dtype=dtype) * window.dilation[axis]
        position = starts.reshape(cell_shape) + taps.reshape(tap_shape)
        within = (position >= 0) & (position < size[axis])
        place = place * size[axis] + position
        inside = inside & within
    return mx.where(inside, place, -1).astype(dtype).reshape(prod(cells), window.taps)


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
    size = _arguments.shape(owner, output_size)
    rank = len(size)
    if rank not in (1, 2, 3) or min(size) < 1:
        raise ValueError(
            f"[{owner}] 'output_size' must be a spatial shape of 1, 2 or 3 axes, each 1 or more, but got "
            f"{output_size!r}."
        )
    layout = layout_of(owner, "indices", indices, rank, data_format)
    size = (*[1] * (3 - rank), *size)
    if not is_window(indices):
        highest = prod(size) - 1
        # as unsigned numbers, negative indices are too big as well
        bad = indices.astype(mx.uint64) > mx.array(highest, mx.uint64)
        allowed = f"0 to {highest}"
    else:
        if kernel_size is None:
            raise ValueError(
                f"[{owner}] 'kernel_size' must be given for window indices ({indices.dtype}) but got None."
            )
        window = _arguments.window(owner, rank, kernel_size, stride, padding, dilation)
        folded = layout.fold(indices)
        cells = folded.shape[1:4]
        table = place_table(window, size, cells)
        flat = folded.reshape(folded.shape[0], prod(cells), -1).astype(mx.int32)
        first = mx.arange(prod(cells), dtype=mx.int32)[:, None] * window.taps
        place = mx.take(table.reshape(-1), mx.minimum(flat, window.taps - 1) + first)
        bad = layout.unfold(((flat >= window.taps) | (place < 0)).reshape(folded.shape))
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
