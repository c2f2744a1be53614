"""Derivatives: the primitives as custom functions, each other's transpose.

Pooling copies each window's maximum out of the plane, so with its indices fixed it is the linear map
``pick``, whose transpose is ``accumulate``. Unpooling with fixed indices is the linear map ``place``, whose
transpose is ``pick_winners``. Every derivative of every order is one of these four.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import mlx.core as mx

from ._backends import Where
from ._geometry import Geometry
from ._settings import set_inside
from ._types import TRAITS, is_float

TRANSPOSE = {
    "place": "pick_winners",
    "pick_winners": "place",
    "accumulate": "pick",
    "pick": "accumulate",
}
_exporting = ContextVar("exporting", default=False)


@contextmanager
def exporting() -> Iterator[None]:
    """Leave the custom derivatives out of every call inside the ``with`` block, for ``mx.export_function``.

    Without it ``mx.export_function`` fails with ``[export_function] Unable to serialize primitive
    CustomTransforms``. Inside this context pooling and unpooling are traced as their kernels or operations,
    which can be exported but not differentiated. The exported file runs without this package, on the kind of
    device that it was traced for.

    It applies to the current thread and to ``asyncio`` tasks created inside, not to threads started inside.

    Not supported: ``shapeless=True``, because the graph depends on the size. ``mx.exporter`` can write one
    function per size into one file.

    Raises:
        ValueError: If a derivative is taken inside.

    Example:

        >>> import tempfile
        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> pool = mlx_unpool.MaxPool2d(2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with mlx_unpool.exporting():
        ...         mx.export_function(f"{folder}/pool.mlxfn", pool, mx.zeros((1, 4, 4, 3)))
        ...     mx.import_function(f"{folder}/pool.mlxfn")(mx.ones((1, 4, 4, 3)))[0].shape
        (1, 2, 2, 3)
    """
    try:
        with set_inside(_exporting, True):
            yield
    except ValueError as error:
        # MLX's error for an operation without a derivative.
        if re.search(r"vjp|jvp", str(error), re.IGNORECASE):
            raise ValueError(
                "[exporting] a derivative was taken inside exporting(), where pooling and unpooling have "
                "none: take the derivative outside."
            ) from error
        raise


def pool(
    x: mx.array, bounds: mx.array | None, g: Any, index_dtype: mx.Dtype, where: Where
) -> tuple[mx.array, mx.array]:
    """Values and indices of every window of ``x``; ``bounds`` are the windows if they are not equal."""

    def forward(x, bounds=None):
        if bounds is None:
            return where.backend.pool(x, g, index_dtype)
        return where.backend.pool_regions(x, bounds, g, index_dtype)

    def vjp(primals, cotangents, outputs):
        summed = linear("accumulate", cotangents[0], outputs[1], g, where)
        return summed if bounds is None else (summed, _zeros(primals[1], where))

    def jvp(primals, tangents):
        if bounds is None:
            primals, tangents = (primals,), (tangents,)
        x, bounds_or_none = (*primals, None)[:2]
        values, indices = pool(x, bounds_or_none, g, index_dtype, where)
        if tangents[0] is None:
            return _zeros(values, where), _zeros(indices, where)
        return linear("pick", tangents[0], indices, g, where), _zeros(indices, where)

    arrays = (x,) if bounds is None else (x, bounds)
    return _run(forward, vjp, jvp, where, *arrays)


def linear(name: str, x: mx.array, indices: mx.array, g: Geometry, where: Where) -> mx.array:
    """The primitive of this name, one of :data:`TRANSPOSE`: linear in ``x``."""

    def forward(x, indices):
        return getattr(where.backend, name)(x, indices, g)

    def vjp(primals, cotangent, output):
        transposed = linear(TRANSPOSE[name], cotangent, primals[1], g, where)
        return transposed, _zeros(primals[1], where)

    def jvp(primals, tangents):
        tangent = _zeros(primals[0], where) if tangents[0] is None else tangents[0]
        return linear(name, tangent, primals[1], g, where)

    return _run(forward, vjp, jvp, where, x, indices)


def _run(
    forward: Callable[..., Any],
    vjp: Callable[..., Any],
    jvp: Callable[..., Any],
    where: Where,
    *arrays: mx.array,
) -> Any:
    """``forward`` of these arrays, with these derivatives; mapped by merging new axes into the batch.

    Everything runs on one stream, what MLX makes of a custom function as well.
    """

    def vmap(arrays, axes):
        # A call anew: a rule that held its own function would be a cycle in every call.
        with mx.stream(where.stream):
            return _map_batch(partial(_run, forward, vjp, jvp, where), arrays, axes)

    with mx.stream(where.stream):
        if _exporting.get():
            return forward(*map(_without_derivative, arrays))
        # MLX looks for derivatives inside a custom function as well, where there need not be any.
        function = mx.custom_function(lambda *args: forward(*map(mx.stop_gradient, args)))
        function.vjp(vjp)
        function.jvp(jvp)
        function.vmap(vmap)
        return function(*arrays)


def _without_derivative(x: mx.array) -> mx.array:
    """The same array, through two operations that cost nothing, can be exported and have no derivative.

    MLX could differentiate some of what the primitives do, but not as exactly: equal maxima would share.
    """
    return x.view(TRAITS[x.dtype].unsigned).view(x.dtype) if is_float(x.dtype) else x


def _zeros(x: mx.array, where: Where) -> mx.array:
    return mx.zeros_like(x, stream=where.stream)


def _map_batch(function: Callable[..., Any], args: Any, axes: Any) -> tuple[Any, Any]:
    """``function`` of arrays (B, ...), mapped: the mapped axis becomes part of B and comes out first."""
    if isinstance(args, mx.array):
        args, axes = [args], [axes]
    length = next(x.shape[axis] for x, axis in zip(args, axes) if axis is not None)
    merged = []
    for x, axis in zip(args, axes):
        x = mx.broadcast_to(x, (length, *x.shape)) if axis is None else mx.moveaxis(x, axis, 0)
        if length == 0:  # one example, which never runs, tells the shapes of the results
            x = mx.zeros((1, *x.shape[1:]), x.dtype)
        batch = x.shape[1]
        merged.append(x.reshape(x.shape[0] * batch, *x.shape[2:]))
    outputs = function(*merged)

    def split(y):
        y = y.reshape(y.shape[0] // batch, batch, *y.shape[1:])
        return y if length else mx.zeros((0, *y.shape[1:]), y.dtype)

    if isinstance(outputs, mx.array):
        return split(outputs), 0
    return tuple(split(y) for y in outputs), (0,) * len(outputs)
