"""Index arithmetic: the position and the window offset that an index refers to, and whether it is valid.

:func:`positions` and :func:`offsets` take folded arrays (B, D, H, W, C), the checks those of callers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod

import mlx.core as mx

from ._geometry import Geometry, WindowGeometry
from ._layout import Layout
from ._settings import set_inside
from ._types import is_window

VARIABLE = "MLX_UNPOOL_CHECK"
_SWITCH = {"": False, "0": False, "false": False, "no": False, "off": False}
_SWITCH |= {"1": True, "true": True, "yes": True, "on": True}
_checking: ContextVar[bool | None] = ContextVar("checking", default=None)


@contextmanager
def checking() -> Iterator[None]:
    """Return a context manager inside which every unpooling checks its indices.

    Elsewhere unpooling raises no error for invalid indices, because a GPU kernel cannot. Inside
    this context (or, with the environment variable ``MLX_UNPOOL_CHECK=1``, in the whole process)
    each call evaluates its indices and raises what :func:`check_indices` raises. Use it to find a
    mistake: it costs one evaluation per call.

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
        ValueError: [max_unpool2d] 'indices' must be from 0 to 15 and in their own window but got 6 at \
(0, 0, 0, 0). Inputs with H 4 to 5, W 4 to 5 have this pooled size (or smaller ones with ceil_mode). Pass \
the shape of the pool's input as 'output_size', and the pool's kernel_size, stride, padding and dilation \
(kernel_size=None for an adaptive or fractional pool).

    See also: :func:`check_indices`; :func:`max_unpool2d`.
    """
    with set_inside(_checking, True):
        yield


def is_checking() -> bool:
    """Whether unpooling has to check its indices."""
    inside = _checking.get()
    if inside is not None:
        return inside
    given = os.environ.get(VARIABLE, "")
    if given.lower() not in _SWITCH:
        allowed = ", ".join(repr(word) for word in _SWITCH)
        raise ValueError(f"[mlx_unpool] '{VARIABLE}' must be one of {allowed} but got {given!r}.")
    return _SWITCH[given.lower()]


def positions(indices: mx.array, g: WindowGeometry) -> mx.array:
    """The flat indices, as int64, of window indices; -1 for an offset outside the window or the plane."""
    number = indices.astype(mx.int64)
    inside = number < g.window.elements
    _, kh, kw = g.window.kernel
    index = mx.zeros((), mx.int64)
    for axis, offset in enumerate((number // (kh * kw), number // kw % kh, number % kw)):
        position = _starts(g, axis) + offset * g.window.dilation[axis]
        inside = inside & (position >= 0) & (position < g.size[axis])
        index = index * g.size[axis] + position
    return mx.where(inside, index, -1)


def offsets(positions: mx.array, g: WindowGeometry) -> mx.array:
    """The window indices, as int64, of flat indices; -1 for a position outside its own window."""
    _, height, width = g.size
    coordinates = (positions // (height * width), positions // width % height, positions % width)
    found = (positions >= 0) & (positions < prod(g.size))
    index = mx.zeros((), mx.int64)
    for axis, x in enumerate(coordinates):
        ahead = x - _starts(g, axis)
        offset = ahead // g.window.dilation[axis]
        found = found & (ahead % g.window.dilation[axis] == 0)
        found = found & (offset >= 0) & (offset < g.window.kernel[axis])
        index = index * g.window.kernel[axis] + offset
    return mx.where(found, index, -1)


def check(caller: str, indices: mx.array, layout: Layout, g: Geometry) -> None:
    """Raise ValueError for the first invalid index of a caller's indices."""
    invalid = layout.unfold(_invalid(layout.fold(indices), g))
    if not indices.size or not mx.any(invalid).item():
        return
    rest = int(mx.argmax(invalid.reshape(-1)))
    found: tuple[int, ...] = ()
    for length in reversed(indices.shape):
        rest, here = divmod(rest, length)
        found = (here, *found)
    raise ValueError(
        f"[{caller}] 'indices' must be {_allowed(indices.dtype, g)} but got {indices[found].item()} at "
        f"{found}.{_hint(g, layout.rank)}"
    )


def check_if_possible(caller: str, indices: mx.array, layout: Layout, g: Geometry) -> None:
    """Like :func:`check`, but without effect in a transformation, where values are unavailable."""
    try:
        mx.eval(indices)
    except ValueError as error:
        if "transformation" in str(error):
            return
        raise
    check(caller, indices, layout, g)


def _invalid(indices: mx.array, g: Geometry) -> mx.array:
    """Whether each index is outside the plane or, with a window, outside its own window."""
    if is_window(indices.dtype):
        assert isinstance(g, WindowGeometry)  # window indices without a window raised an error
        return positions(indices, g) < 0
    # As unsigned numbers, negative indices are too large as well.
    invalid = indices.astype(mx.uint64) >= mx.array(prod(g.size), mx.uint64)
    if isinstance(g, WindowGeometry):
        invalid = invalid | (offsets(indices.astype(mx.int64), g) < 0)
    return invalid


def _allowed(dtype: mx.Dtype, g: Geometry) -> str:
    """The valid indices, for a message."""
    if is_window(dtype):
        assert isinstance(g, WindowGeometry)
        most, hint = g.window.elements - 1, "convert positions in the plane to int32"
        kind = f"{dtype} indices are offsets in the window; {hint}"
        return f"from 0 to {most} ({kind}) and refer to a position inside the plane"
    window = " and in their own window" if g.window else ""
    return f"from 0 to {prod(g.size) - 1}{window}"


def _hint(g: Geometry, rank: int) -> str:
    """The likely causes: another output size, or another window."""
    if g.window is None:
        return ""
    axes = zip("DHW", g.window.unpooled_size(g.pooled), g.window.stride)
    smaller = "" if g.window.same else " (or smaller ones with ceil_mode)"
    sizes = ", ".join(f"{name} {n} to {n + s - 1}" for name, n, s in list(axes)[3 - rank :])
    return (
        f" Inputs with {sizes} have this pooled size{smaller}. Pass the shape of the pool's input as "
        "'output_size', and the pool's kernel_size, stride, padding and dilation (kernel_size=None for an "
        "adaptive or fractional pool)."
    )


def _starts(g: WindowGeometry, axis: int) -> mx.array:
    """The start of each window on an axis."""
    shape = [-1 if a == axis + 1 else 1 for a in range(5)]
    starts = mx.arange(g.pooled[axis], dtype=mx.int64) * g.window.stride[axis]
    return (starts - g.window.padding[axis]).reshape(shape)
