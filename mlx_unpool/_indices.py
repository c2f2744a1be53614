"""What an index says: its position and its offset in a window, and whether it is a good one.

Everything here works on folded arrays (B, D, H, W, C) and the geometry that they belong to.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod

import mlx.core as mx

from ._geometry import Geometry, Triple, WindowGeometry
from ._layout import Layout
from ._settings import set_inside
from ._types import is_window

VARIABLE = "MLX_UNPOOL_CHECK"
_checking = ContextVar("checking", default=os.environ.get(VARIABLE, "0") not in ("", "0"))
_MAX_GUESSES = 200


@contextmanager
def checking() -> Iterator[None]:
    """Makes every unpooling inside check its indices, in this thread.

    Unpooling drops an index that names no position of its output without a word, as a GPU must, and an
    index of a plane of another size names another position. Inside this context (or with the environment
    variable ``MLX_UNPOOL_CHECK=1``, in the whole process) each call evaluates its indices and raises what
    :func:`check_indices` raises. Meant for finding a mistake: it costs an evaluation in every call.

    Inside ``mx.compile`` and ``mx.vmap`` no number can be looked at: there it is silent.

    Raises:
        ValueError: In a call inside, if an index names no position of the output or, where a window is
            given, none of its own window.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> x = mx.arange(20.0).reshape(1, 4, 5, 1)
        >>> values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
        >>> with mlx_unpool.checking():
        ...     mlx_unpool.max_unpool2d(values, indices, 2)  # to 4 x 4: rows of another length
        Traceback (most recent call last):
        ...
        ValueError: [max_unpool2d] 'indices' must be in 0 to 15 and in their own window but got 6 at \
(0, 0, 0, 0). Are they indices of a (4, 5) plane? Pass output_size=(4, 5).
    """
    with set_inside(_checking, True):
        yield


def is_checking() -> bool:
    """Whether unpooling has to check its indices."""
    return _checking.get()


def positions(indices: mx.array, g: WindowGeometry) -> mx.array:
    """The flat indices, as int64, that window indices stand for; -1 for one that names no position."""
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
    """The window indices, as int64, of flat indices; -1 for one that is not in its own window."""
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
    """Raises ValueError that names the first of a caller's indices that is a bad one."""
    folded = layout.fold(indices)
    bad = layout.unfold(_bad(folded, g))
    if not indices.size or not mx.any(bad).item():
        return
    rest = int(mx.argmax(bad.reshape(-1)))
    where: tuple[int, ...] = ()
    for length in reversed(indices.shape):
        rest, here = divmod(rest, length)
        where = (here, *where)
    raise ValueError(
        f"[{caller}] 'indices' must be in {_allowed(indices.dtype, g)} but got {indices[where].item()} at "
        f"{where}.{_guess(folded, g, layout.rank)}"
    )


def check_if_possible(caller: str, indices: mx.array, layout: Layout, g: Geometry) -> None:
    """As :func:`check`, but silent inside a transformation in which no number can be looked at."""
    try:
        mx.eval(indices)
    except ValueError as error:
        if "transformation" in str(error):
            return
        raise
    check(caller, indices, layout, g)


def _bad(indices: mx.array, g: Geometry) -> mx.array:
    """Which indices name no position of the plane, or none of their own window."""
    if is_window(indices.dtype):
        assert isinstance(g, WindowGeometry)  # unpooling refuses window indices without a window
        return positions(indices, g) < 0
    # As unsigned numbers, negative indices are too big as well.
    bad = indices.astype(mx.uint64) >= mx.array(prod(g.size), mx.uint64)
    if isinstance(g, WindowGeometry):
        bad = bad | (offsets(indices.astype(mx.int64), g) < 0)
    return bad


def _allowed(dtype: mx.Dtype, g: Geometry) -> str:
    if is_window(dtype):
        assert isinstance(g, WindowGeometry)
        return f"0 to {g.window.elements - 1} and name a position inside the plane"
    own = " and in their own window" if isinstance(g, WindowGeometry) else ""
    return f"0 to {prod(g.size) - 1}{own}"


def _guess(indices: mx.array, g: Geometry, rank: int) -> str:
    """What probably happened: planes of another size that pool to the same one, or another window."""
    if not isinstance(g, WindowGeometry):
        return ""
    if not is_window(indices.dtype):
        for size in itertools.islice(_sizes(g), _MAX_GUESSES):
            if not mx.any(_bad(indices, WindowGeometry(size, g.pooled, g.window))).item():
                plane = size[3 - rank :]
                return f" Are they indices of a {plane} plane? Pass output_size={plane}."
    return " Are kernel_size, stride, padding and dilation those of the pool?"


def _sizes(g: WindowGeometry) -> Iterator[Triple]:
    """The sizes of planes that have as many windows, apart from the given one."""
    axes: list[Sequence[int]] = [
        range(max(1, n - s + 1), n + s)
        for n, s in zip(g.window.unpooled_size(g.pooled), g.window.stride)
    ]
    return (size for size in itertools.product(*axes) if size != g.size)


def _starts(g: WindowGeometry, axis: int) -> mx.array:
    """Where each window starts on an axis."""
    shape = [-1 if a == axis + 1 else 1 for a in range(5)]
    starts = mx.arange(g.pooled[axis], dtype=mx.int64) * g.window.stride[axis]
    return (starts - g.window.padding[axis]).reshape(shape)
