"""Derivatives: the primitives as custom functions, each other's transpose.

Pooling copies each window's maximum out of the plane, so with its indices fixed it is the linear map
``pick``, whose transpose is ``accumulate``. Unpooling with fixed indices is the linear map ``place``, whose
transpose is ``pick_winners``. Every derivative of every order is one of these four.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import mlx.core as mx

from . import _backends
from ._backends import Where
from ._geometry import Geometry, RegionGeometry, WindowGeometry

TRANSPOSE = {
    "place": "pick_winners",
    "pick_winners": "place",
    "accumulate": "pick",
    "pick": "accumulate",
}
_exporting: ContextVar[bool] = ContextVar("exporting", default=False)


@contextmanager
def exporting() -> Iterator[None]:
    """Leaves the custom derivatives out of every call inside, so that a graph can be exported.

    Without it ``mx.export_function`` stops with ``[export_function] Unable to serialize primitive
    CustomTransforms``. Inside this context pooling and unpooling are traced as what they run, which can
    be exported for inference and not be differentiated. What is exported runs without this package, on
    the kind of device that it was traced for.

    Windows hold for one size, so ``shapeless=True`` does not work; ``mx.exporter`` puts a function for
    each of several sizes into one file.

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
    token = _exporting.set(True)
    try:
        yield
    finally:
        _exporting.reset(token)


def pool(
    x: mx.array, g: WindowGeometry, index_dtype: mx.Dtype, where: Where
) -> tuple[mx.array, mx.array]:
    """Values and indices of every window of ``x``."""

    def forward(x):
        with mx.stream(where.stream):
            return where.backend.pool(x, g, index_dtype)

    def vjp(x, cotangents, outputs):
        return linear("accumulate", cotangents[0], outputs[1], g, where)

    def jvp(x, tangent):
        indices = pool(x, g, index_dtype, where)[1]
        return linear("pick", tangent, indices, g, where), mx.zeros_like(indices)

    return _custom(forward, vjp, jvp)(x)


def pool_regions(
    x: mx.array, bounds: mx.array, g: RegionGeometry, index_dtype: mx.Dtype, where: Where
) -> tuple[mx.array, mx.array]:
    """Values and flat indices of windows that lie where ``bounds`` says."""

    def forward(x, bounds):
        with mx.stream(where.stream):
            return where.backend.pool_regions(x, bounds, g, index_dtype)

    def vjp(primals, cotangents, outputs):
        return linear("accumulate", cotangents[0], outputs[1], g, where), mx.zeros_like(primals[1])

    def jvp(primals, tangents):
        x, bounds = primals
        values, indices = pool_regions(x, bounds, g, index_dtype, where)
        if tangents[0] is None:
            return mx.zeros_like(values), mx.zeros_like(indices)
        return linear("pick", tangents[0], indices, g, where), mx.zeros_like(indices)

    return _custom(forward, vjp, jvp)(x, bounds)


def linear(name: str, x: mx.array, indices: mx.array, g: Geometry, where: Where) -> mx.array:
    """The primitive of this name, one of :data:`TRANSPOSE`: linear in ``x``."""

    def forward(x, indices):
        with mx.stream(where.stream):
            return getattr(where.backend, name)(x, indices, g)

    def vjp(primals, cotangent, output):
        transposed = linear(TRANSPOSE[name], cotangent, primals[1], g, where)
        return transposed, mx.zeros_like(primals[1])

    def jvp(primals, tangents):
        tangent = mx.zeros_like(primals[0]) if tangents[0] is None else tangents[0]
        return linear(name, tangent, primals[1], g, where)

    return _custom(forward, vjp, jvp)(x, indices)


def _custom(
    forward: Callable[..., Any], vjp: Callable[..., Any], jvp: Callable[..., Any]
) -> Callable[..., Any]:
    """``forward`` with these derivatives, and mapped over new axes by merging them into the batch."""
    if _exporting.get() or _only_traced():
        return forward
    # MLX looks for derivatives inside a custom function as well, where there need not be any.
    function = mx.custom_function(lambda *args: forward(*map(mx.stop_gradient, args)))
    function.vjp(vjp)
    function.jvp(jvp)
    # The rule makes the function anew: one that held itself would be a cycle in every call.
    function.vmap(lambda args, axes: _map_batch(_custom(forward, vjp, jvp), args, axes))
    return function


def _only_traced() -> bool:
    """Whether a backend is forced that cannot run here, so that the graph can only be for export."""
    name = _backends.forced()
    return name is not None and not _backends.is_available(name)


def _map_batch(function: Callable[..., Any], args: Any, axes: Any) -> tuple[Any, Any]:
    """``function`` of arrays (B, ...), mapped: the mapped axis becomes part of B and comes out first."""
    if isinstance(args, mx.array):
        args, axes = [args], [axes]
    length = next(x.shape[axis] for x, axis in zip(args, axes) if axis is not None)
    merged = []
    for x, axis in zip(args, axes):
        x = mx.broadcast_to(x, (length, *x.shape)) if axis is None else mx.moveaxis(x, axis, 0)
        if length == 0:  # one example stands in for the shapes of the results
            x = mx.zeros((1, *x.shape[1:]), x.dtype)
        batch = x.shape[1]
        merged.append(x.reshape(x.shape[0] * batch, *x.shape[2:]))
    outputs = function(*merged)

    def split(y):
        y = y.reshape(y.shape[0] // batch, batch, *y.shape[1:])
        return y if length else y[:0]

    if isinstance(outputs, mx.array):
        return split(outputs), 0
    return tuple(split(y) for y in outputs), (0,) * len(outputs)
