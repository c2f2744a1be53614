"""Checks of index values: ``check_indices`` for one array, ``checking`` for every unpooling."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from math import prod
from typing import Any

import mlx.core as mx

from . import _arguments as arguments
from ._geometry import Geometry, WindowGeometry, triple, untriple
from ._index_arithmetic import offsets, positions
from ._layout import Layout, layout_hint
from ._scopes import set_inside
from ._types import INDEX_FORMATS, DataFormat, IndexFormat, IntOrTuple, Padding, format_of

VARIABLE = "MLX_UNPOOL_CHECK"
_SWITCH = {"": False, "0": False, "false": False, "no": False, "off": False}
_SWITCH |= {"1": True, "true": True, "yes": True, "on": True}
_checking = ContextVar("checking", default=False)


def checking() -> AbstractContextManager[None]:
    """Return a context manager inside which every unpooling checks its indices.

    Elsewhere unpooling raises no error for invalid indices, because a GPU kernel cannot. Inside
    this context (or, with the environment variable ``MLX_UNPOOL_CHECK=1``, in the whole process)
    each call evaluates its indices, which takes time, and raises what ``check_indices`` raises.

    It applies to the current thread and to ``asyncio`` tasks created inside, not to other threads.
    Inside ``mx.compile`` and ``mx.vmap`` the values of the function's arguments are unavailable, so
    indices that depend on them are not checked.

    Raises:
        ValueError: In a call inside the block, if an index is outside the output or, where a window
            is given, outside its window.

    Example:
        >>> x = mx.arange(20.0).reshape(1, 4, 5, 1)
        >>> values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
        >>> with mlx_unpool.checking():
        ...     mlx_unpool.max_unpool2d(values, indices, 2)  # 4 x 4, but the indices are for 4 x 5
        Traceback (most recent call last):
        ...
        ValueError: [max_unpool2d] 'indices' must be from 0 to 15 and in their own window but \
got 6 at (0, 0, 0, 0). Inputs with H 4 to 5, W 4 to 5 have this pooled size (or smaller ones with \
ceil_mode). Pass the shape of the pool's input as 'output_size', and the pool's kernel_size, \
stride, padding and dilation (kernel_size=None for an adaptive or fractional pool).

    See also: ``check_indices``; ``max_unpool2d``.
    """
    return set_inside(_checking, True)


def is_checking() -> bool:
    """Whether unpooling has to check its indices."""
    if _checking.get():
        return True
    given = os.environ.get(VARIABLE, "")
    if given.lower() not in _SWITCH:
        allowed = ", ".join(repr(word) for word in _SWITCH)
        raise ValueError(f"[mlx_unpool] '{VARIABLE}' must be one of {allowed} but got {given!r}.")
    return _SWITCH[given.lower()]


def check_indices(
    indices: mx.array,
    output_size: Sequence[int],
    kernel_size: IntOrTuple | None = None,
    stride: IntOrTuple | None = None,
    padding: Padding = 0,
    *,
    dilation: IntOrTuple = 1,
    index_format: IndexFormat | None = None,
    data_format: DataFormat = "channels_last",
) -> None:
    """Raise ValueError if an index is outside a plane of ``output_size`` or outside its window.

    Unpooling raises no error for such an index. It drops a value with a flat index outside the
    plane or an invalid window index, and puts a value with any other wrong index at a wrong
    position. This function evaluates ``indices``. Use ``checking`` to check the indices of every
    unpooling call.

    Args:
        indices (array): Shape ``(N, [D_out, [H_out,]] W_out, C)``, or with
            ``data_format="channels_first"`` ``(N, C, [D_out, [H_out,]] W_out)``; the batch
            dimension is optional. Any integer dtype.
        output_size (tuple of int): Spatial shape of the output of the unpooling, or its full shape
            if it has a batch. Without a batch, pass the spatial shape: ``(12, 12, 1)`` would be a
            3-D plane.
        kernel_size (int or tuple of int, optional): Window size of the pool. Required for window
            indices. If given, each flat index must also be in its window.
        stride, padding, dilation: Must match the pool.
        index_format (str, optional): ``"flat"`` or ``"window"``. Default: uint8 and uint16 indices
            are window indices, all others are flat.
        data_format (str): ``"channels_last"`` or ``"channels_first"``.

    Raises:
        ValueError: If an index is invalid: the message gives the first one, where it is in
            ``indices``, the valid range and, with a window, the likely cause. The -1 of a window
            without an element inside the plane is also invalid. Also inside ``mx.compile`` or
            ``mx.vmap`` if ``indices`` depend on the function's arguments.

    Example:
        >>> mlx_unpool.check_indices(mx.array([[[0], [5]]]), (6,))
        >>> mlx_unpool.check_indices(mx.array([[[0], [6]]]), (6,))
        Traceback (most recent call last):
        ...
        ValueError: [check_indices] 'indices' must be from 0 to 5 but got 6 at (0, 1, 0).

    See also: ``checking``; ``convert_indices``; ``max_unpool2d``.
    """
    caller = "check_indices"
    arguments.check_index_array(caller, indices)
    kind = format_of(indices.dtype)
    if index_format is not None:
        kind = arguments.choice(caller, "index_format", index_format, INDEX_FORMATS)
    window = None
    if kernel_size is not None or kind == "window":
        window = kernel_size, stride, padding, dilation
    else:
        arguments.check_no_window(caller, stride, padding, dilation)
    layout, g = planes_of(caller, indices, output_size, data_format, window)
    if index_format is not None:
        arguments.index_format_of(caller, index_format, g.window)
    check_values(caller, indices, layout, g, kind)


def planes_of(
    caller: str,
    indices: mx.array,
    output_size: Any,
    data_format: Any,
    window: tuple[Any, ...] | None,
) -> tuple[Layout, Geometry]:
    """The layout of ``indices`` and the geometry of their planes of ``output_size``, all checked.

    ``window``: the kernel size, stride, padding and dilation if the indices require a window.
    """
    first = arguments.channels_come_first(caller, data_format)
    layout, spatial = _layout_and_size(caller, indices.shape, output_size, first)
    if min(spatial) < 1:
        raise _size_error(caller, "be 1 or more on each axis", output_size)
    size, pooled = triple(spatial), layout.size(indices.shape)
    planes = max(1, layout.batch) * max(1, layout.channels)
    if prod(size) * planes >= 2**63:
        needed = f"give fewer than 2^63 positions in total, for {planes} planes,"
        raise _size_error(caller, needed, output_size)
    if window is None:
        return layout, Geometry(size, pooled)
    if window[0] is None:
        needed = "be given for window indices"
        raise ValueError(arguments.message(caller, "kernel_size", needed, None))
    resolved = arguments.window_of(caller, layout.rank, *window).resolved(size)
    return layout, WindowGeometry(size, pooled, resolved)


def _layout_and_size(
    caller: str, shape: tuple[int, ...], output_size: Any, channels_first: bool
) -> tuple[Layout, tuple[int, ...]]:
    """The layout of indices of this shape and the spatial size of their planes.

    Both follow from ``output_size``, whose length gives the number of spatial axes.
    """
    given = arguments.shape(caller, "output_size", output_size)
    if isinstance(given, int):
        needed = "be a tuple with one integer per spatial axis, or a full shape,"
        raise _size_error(caller, needed, output_size)
    # A full shape has as many numbers as the indices have axes.
    is_full = len(given) == len(shape)
    rank = max(1, len(given) - 2) if is_full else len(given)
    if rank not in (1, 2, 3) or len(shape) not in (rank + 1, rank + 2):
        needed = f"be a spatial shape, or a full shape, for indices of shape {shape}"
        raise _size_error(caller, needed, output_size)
    layout = Layout.of(caller, "indices", shape, rank, channels_first)
    spatial = layout.spatial_of_full_shape(given) if is_full else given
    if spatial is None:
        other = Layout.of(caller, "indices", shape, rank, not channels_first)
        hint = layout_hint(not channels_first) if other.spatial_of_full_shape(given) else ""
        if rank < 3:
            hint += " If the indices have no batch, pass the spatial shape."
        needed = f"have the batch and channels of 'indices' {shape} if it is a full shape"
        raise _size_error(caller, needed, output_size, hint)
    return layout, spatial


def _size_error(caller: str, needed: str, output_size: Any, hint: str = "") -> ValueError:
    return ValueError(arguments.message(caller, "output_size", needed, output_size) + hint)


def check_values(
    caller: str, indices: mx.array, layout: Layout, g: Geometry, index_format: IndexFormat
) -> None:
    """Raise ValueError for the first invalid index of a caller's indices."""
    invalid = layout.unfold(_invalid(layout.fold(indices), g, index_format))
    if not indices.size or not mx.any(invalid).item():
        return
    place, shape = int(mx.argmax(invalid.reshape(-1))), indices.shape
    found = tuple(place // prod(shape[axis + 1 :]) % length for axis, length in enumerate(shape))
    allowed, got = _allowed(g, index_format), indices[found].item()
    raise ValueError(
        f"[{caller}] 'indices' must be {allowed} but got {got} at {found}.{_hint(g, layout.rank)}"
    )


def check_values_if_available(
    caller: str, indices: mx.array, layout: Layout, g: Geometry, index_format: IndexFormat
) -> None:
    """Run ``check_values``, except in a transformation, where values are unavailable."""
    try:
        mx.eval(indices)
    except ValueError as error:
        if "transformation" in str(error):
            return
        raise
    check_values(caller, indices, layout, g, index_format)


def _invalid(indices: mx.array, g: Geometry, index_format: IndexFormat) -> mx.array:
    """Whether each index is outside the plane or, with a window, outside its own window."""
    if index_format == "window":
        assert isinstance(g, WindowGeometry)  # window indices without a window raised an error
        return positions(indices, g) < 0
    # As unsigned numbers, negative indices are too large as well.
    invalid = indices.astype(mx.uint64) >= mx.array(prod(g.size), mx.uint64)
    if isinstance(g, WindowGeometry):
        invalid = invalid | (offsets(indices.astype(mx.int64), g) < 0)
    return invalid


def _allowed(g: Geometry, index_format: IndexFormat) -> str:
    """The valid indices, for a message."""
    if index_format == "window":
        assert isinstance(g, WindowGeometry)
        kind = "offsets in the window; pass index_format='flat' for positions in the plane"
        return (
            f"from 0 to {g.window.elements - 1} ({kind}) and refer to a position inside the plane"
        )
    window = " and in their own window" if g.window else ""
    return f"from 0 to {prod(g.size) - 1}{window}"


def _hint(g: Geometry, rank: int) -> str:
    """The likely causes: another output size, or another window."""
    if g.window is None:
        return ""
    default = g.window.unpooled_size(g.pooled)
    ends = [(max(n, 1), n + stride - 1) for n, stride in zip(default, g.window.stride)]
    sizes = ", ".join(untriple([f"{axis} {n} to {m}" for axis, (n, m) in zip("DHW", ends)], rank))
    smaller = "" if g.window.same else " (or smaller ones with ceil_mode)"
    found = f"Inputs with {sizes} have" if all(n <= m for n, m in ends) else "No input has"
    return (
        f" {found} this pooled size{smaller}. Pass the shape of the pool's input as "
        "'output_size', and the pool's kernel_size, stride, padding and dilation (kernel_size=None "
        "for an adaptive or fractional pool)."
    )
