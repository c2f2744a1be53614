"""Derivatives: each primitive as a custom function whose derivatives are other primitives.

With its indices fixed, pooling is a ``gather`` and unpooling a ``scatter``. These linear maps are each
other's transposes, so every derivative of every order is one of the two. The rule for several values with
one index stays the same: their ``"sum"`` in derivatives of pooling, the ``"last"`` in those of unpooling.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import Any, Literal

import mlx.core as mx

from ._backends import Target
from ._geometry import Geometry
from ._scopes import set_inside
from ._types import TRAITS, Arrays, Pair, Rule, is_float

Function = Callable[..., Any]
Linear = Literal["scatter", "gather"]  # a primitive of a backend

TRANSPOSE: dict[Linear, Linear] = {"scatter": "gather", "gather": "scatter"}
_exporting = ContextVar("exporting", default=False)


@contextmanager
def exporting() -> Iterator[None]:
    """Return a context manager inside which pooling and unpooling can be exported.

    Elsewhere ``mx.export_function`` fails with ``[export_function] Unable to serialize primitive
    CustomTransforms``. Inside this context pooling and unpooling are traced as plain operations or
    kernels, without derivatives; pools without ``return_indices`` store no indices. The exported file runs
    without this package, on the kind of device that it was traced for.

    It applies to the current thread and to ``asyncio`` tasks created inside, not to other threads.

    Not supported: ``shapeless=True``. The export succeeds, but calling the result raises an error.
    ``mx.exporter`` can write one function per size into one file.

    Raises:
        ValueError: If a derivative is taken inside.

    Example:
        >>> import tempfile
        >>> pool = mlx_unpool.MaxPool2d(2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with mlx_unpool.exporting():
        ...         mx.export_function(f"{folder}/pool.mlxfn", pool, mx.zeros((1, 4, 4, 3)))
        ...     mx.import_function(f"{folder}/pool.mlxfn")(mx.ones((1, 4, 4, 3)))[0].shape
        (1, 2, 2, 3)

    See also: ``use_backend``, to export for a Mac; ``replace_max_pools``.
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


def pool_with_indices(source: Arrays, g: Geometry, index_dtype: mx.Dtype, target: Target) -> Pair:
    """Values and indices of every window; ``source`` as in ``Backend``."""

    def vjp(source, cotangents, outputs):
        return linear("scatter", "sum", cotangents[0], outputs[1], g, target), *_zeros(source[1:])

    def jvp(source, tangents):
        values, indices = pool_with_indices(source, g, index_dtype, target)
        if tangents[0] is None:
            return _zeros((values, indices))
        return linear("gather", "sum", tangents[0], indices, g, target), *_zeros((indices,))

    return _run(lambda *source: target.backend.pool(source, g, index_dtype), vjp, jvp, g, target, source)


def pool_without_indices(
    source: Arrays, g: Geometry, index_dtype: mx.Dtype, target: Target, training: bool
) -> mx.array:
    """Values of every window. Derivatives need their indices, of the dtype ``index_dtype``.

    If ``training``, a GPU keeps the indices. Otherwise a derivative computes them again: as outputs of the
    pool they would be evaluated even without a derivative.
    """
    if training and target.backend.is_gpu and not _exporting.get():
        return pool_with_indices(source, g, index_dtype, target)[0]

    def vjp(source, cotangents, outputs):
        indices = _indices_of(outputs[0], source, g, index_dtype, target)
        return linear("scatter", "sum", cotangents[0], indices, g, target), *_zeros(source[1:])

    def jvp(source, tangents):
        tangent = _zeros(source)[0] if tangents[0] is None else tangents[0]
        _, indices = pool_with_indices(source, g, index_dtype, target)
        return linear("gather", "sum", tangent, indices, g, target)

    return _run(lambda *source: target.backend.pool_values(source, g), vjp, jvp, g, target, source)


def _indices_of(
    values: mx.array, source: Arrays, g: Geometry, index_dtype: mx.Dtype, target: Target
) -> mx.array:
    """The indices of pooled values, whose derivative is zero."""
    return _run(
        forward=lambda values, *source: target.backend.indices_of(values, source, g, index_dtype),
        vjp=lambda arrays, cotangents, outputs: _zeros(arrays),
        jvp=lambda arrays, tangents: mx.zeros_like(
            _indices_of(arrays[0], arrays[1:], g, index_dtype, target)
        ),
        g=g,
        target=target,
        arrays=(values, *source),
    )


def linear(name: Linear, rule: Rule, x: mx.array, indices: mx.array, g: Geometry, target: Target) -> mx.array:
    """Run the primitive ``name``, which is linear in ``x``."""

    def vjp(primals, cotangents, outputs):
        indices = primals[1]
        return linear(TRANSPOSE[name], rule, cotangents[0], indices, g, target), *_zeros((indices,))

    def jvp(primals, tangents):
        x, indices = primals
        tangent = mx.zeros_like(x) if tangents[0] is None else tangents[0]
        return linear(name, rule, tangent, indices, g, target)

    run = getattr(target.backend, name)
    return _run(lambda x, indices: run(x, indices, g, rule), vjp, jvp, g, target, (x, indices))


def _run(forward: Function, vjp: Function, jvp: Function, g: Geometry, target: Target, arrays: Arrays) -> Any:
    """Run ``forward`` with the given derivatives; ``mx.vmap`` merges the mapped axis into the batch.

    Everything runs on one stream, including the operations that MLX adds to a custom function.
    """

    def run(arrays):
        # Rebuild the function: a stored reference would create a reference cycle.
        batch, *_, channels = arrays[0].shape
        if target.backend.fits(batch * channels, g):
            return _run(forward, vjp, jvp, g, target, arrays)
        raise ValueError(
            f"[mlx_unpool] all examples of mx.vmap together must have fewer than 2^31 elements on the CPU "
            f"but got {batch * channels} planes of {max(g.size, g.pooled, key=prod)}."
        )

    def vmap(arrays, axes):
        with mx.stream(target.stream):
            return _map_batch(run, _as_tuple(arrays), _as_tuple(axes))

    with mx.stream(target.stream):
        if _exporting.get():
            return forward(*map(_without_derivative, arrays))
        # Without stop_gradient MLX would differentiate the operations inside the custom function as well.
        function = mx.custom_function(lambda *args: forward(*map(mx.stop_gradient, args)))
        function.vjp(lambda *args: vjp(*map(_as_tuple, args)))
        function.jvp(lambda *args: jvp(*map(_as_tuple, args)))
        function.vmap(vmap)
        return function(*arrays)


def _as_tuple(x: Any) -> tuple[Any, ...]:
    """An argument of a custom function's callback as a tuple: MLX passes one array or a list."""
    return tuple(x) if isinstance(x, (list, tuple)) else (x,)


def _without_derivative(x: mx.array) -> mx.array:
    """The same array through two views, which can be exported, take no time and have no derivative.

    MLX could differentiate some of the operations, but would split the gradient among equal maxima.
    """
    return x.view(TRAITS[x.dtype].unsigned).view(x.dtype) if is_float(x.dtype) else x


def _zeros(arrays: Arrays) -> tuple[mx.array, ...]:
    return tuple(map(mx.zeros_like, arrays))


def _map_batch(function: Function, args: Arrays, axes: Any) -> tuple[Any, Any]:
    """Apply ``function`` to arrays (B, ...) with mapped axes merged into B; results have that axis first."""
    length = next(x.shape[axis] for x, axis in zip(args, axes) if axis is not None)
    merged = []
    for x, axis in zip(args, axes):
        x = mx.broadcast_to(x, (length, *x.shape)) if axis is None else mx.moveaxis(x, axis, 0)
        if length == 0:  # one example, which is never evaluated, gives the shapes of the results
            x = mx.zeros((1, *x.shape[1:]), x.dtype)
        batch = x.shape[1]
        merged.append(x.reshape(x.shape[0] * batch, *x.shape[2:]))
    outputs = function(merged)

    def split(y):
        y = y.reshape(y.shape[0] // batch, batch, *y.shape[1:])
        return y if length else mx.zeros((0, *y.shape[1:]), y.dtype)

    if isinstance(outputs, mx.array):
        return split(outputs), 0
    return tuple(split(y) for y in outputs), (0,) * len(outputs)
