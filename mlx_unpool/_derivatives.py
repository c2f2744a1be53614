"""Derivatives: each primitive as a custom function whose derivatives are other primitives.

With its indices fixed, pooling is a ``gather`` and unpooling a ``scatter``. These linear maps are
each other's transposes, so every derivative of every order is one of the two. The rule for several
values with one index stays the same: their ``"sum"`` in derivatives of pooling, the ``"last"`` in
those of unpooling.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import mlx.core as mx

from ._backends import Target
from ._layout import Plan
from ._scopes import is_exporting, set_inside
from ._types import TRAITS, Arrays, Pair, Rule, is_float

Function = Callable[..., Any]
Linear = Literal["scatter", "gather"]  # a primitive of a backend

TRANSPOSE: dict[Linear, Linear] = {"scatter": "gather", "gather": "scatter"}


@contextmanager
def exporting() -> Iterator[None]:
    """Return a context manager inside which pooling and unpooling can be exported.

    Elsewhere ``mx.export_function`` fails with
    ``[export_function] Unable to serialize primitive CustomTransforms``. Inside this context
    pooling and unpooling are traced as plain operations or kernels, without derivatives; pools
    without ``return_indices`` store no indices. The exported file runs without this package, on the
    kind of device that it was traced for.

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
        with set_inside(is_exporting, True):
            yield
    except ValueError as error:
        # MLX's error for an operation without a derivative.
        if re.search(r"vjp|jvp", str(error), re.IGNORECASE):
            raise ValueError(
                "[exporting] a derivative was taken inside exporting(), where pooling and "
                "unpooling have none: take the derivative outside."
            ) from error
        raise


def pool_with_indices(source: Arrays, plan: Plan, target: Target) -> Pair:
    """Values and indices of every window; ``source`` as in ``Backend``."""
    backend, g, dtype = target.backend, plan.geometry, plan.index_dtype

    def vjp(source, cotangents, outputs):
        return linear("scatter", "sum", cotangents[0], outputs[1], plan, target), *_zeros(
            source[1:]
        )

    def jvp(source, tangents):
        # The bounds of random windows have no tangent, so there is always one of the array.
        _, indices = pool_with_indices(source, plan, target)
        return linear("gather", "sum", tangents[0], indices, plan, target), *_zeros((indices,))

    return _run(lambda *source: backend.pool(source, g, dtype), vjp, jvp, plan, target, source)


def pool_without_indices(source: Arrays, plan: Plan, target: Target, training: bool) -> mx.array:
    """Values of every window. Derivatives need their indices.

    If ``training``, a GPU keeps the indices. Otherwise a derivative computes them again: as outputs
    of the pool they would be evaluated even without a derivative.
    """
    backend, g = target.backend, plan.geometry
    if training and backend.is_gpu and not is_exporting.get():
        return pool_with_indices(source, plan, target)[0]

    def vjp(source, cotangents, outputs):
        indices = _indices_of(outputs[0], source, plan, target)
        return linear("scatter", "sum", cotangents[0], indices, plan, target), *_zeros(source[1:])

    def jvp(source, tangents):
        _, indices = pool_with_indices(source, plan, target)
        return linear("gather", "sum", tangents[0], indices, plan, target)

    return _run(lambda *source: backend.pool_values(source, g), vjp, jvp, plan, target, source)


def _indices_of(values: mx.array, source: Arrays, plan: Plan, target: Target) -> mx.array:
    """The indices of pooled values, whose derivative is zero."""
    backend, g, dtype = target.backend, plan.geometry, plan.index_dtype
    return _run(
        forward=lambda values, *source: backend.indices_of(values, source, g, dtype),
        vjp=lambda arrays, cotangents, outputs: _zeros(arrays),
        jvp=lambda arrays, tangents: mx.zeros_like(
            _indices_of(arrays[0], arrays[1:], plan, target)
        ),
        plan=plan,
        target=target,
        arrays=(values, *source),
    )


def linear(
    name: Linear, rule: Rule, x: mx.array, indices: mx.array, plan: Plan, target: Target
) -> mx.array:
    """Run the primitive ``name``, which is linear in ``x``."""
    primitive, g = getattr(target.backend, name), plan.geometry

    def vjp(primals, cotangents, outputs):
        indices = primals[1]
        return linear(TRANSPOSE[name], rule, cotangents[0], indices, plan, target), *_zeros(
            (indices,)
        )

    def jvp(primals, tangents):
        x, indices = primals
        tangent = mx.zeros_like(x) if tangents[0] is None else tangents[0]
        return linear(name, rule, tangent, indices, plan, target)

    return _run(
        lambda x, indices: primitive(x, indices, g, rule), vjp, jvp, plan, target, (x, indices)
    )


def _run(
    forward: Function, vjp: Function, jvp: Function, plan: Plan, target: Target, arrays: Arrays
) -> Any:
    """Run ``forward`` with these derivatives; ``mx.vmap`` merges the mapped axis into the batch.

    Derivatives run on the same stream as the call, which is the current one here, including the
    operations that MLX adds to a custom function.
    """
    stream, backend = target
    # Without stop_gradient MLX would also differentiate the operations inside the custom function.
    hidden = _without_derivative if is_exporting.get() else mx.stop_gradient

    def run(*arrays):
        try:
            return forward(*map(hidden, arrays))
        except OverflowError as error:  # of MLX, about the length of an array
            raise plan.too_large(arrays[0].shape[0] * arrays[0].shape[4]) from error

    def vmap(arrays, axes):
        # Rebuild the function: a stored reference would create a reference cycle.
        again = partial(_run, forward, vjp, jvp, plan, target)
        return _map_batch(again, arrays, axes, plan, backend.is_gpu)

    def on_stream(callback):
        def call(*args):
            with mx.stream(stream):
                return callback(*map(_as_tuple, args))

        return call

    if hidden is _without_derivative:
        return run(*arrays)
    function = mx.custom_function(run)
    function.vjp(on_stream(vjp))
    function.jvp(on_stream(jvp))
    function.vmap(on_stream(vmap))
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


def _map_batch(
    function: Function, args: Arrays, axes: Any, plan: Plan, is_gpu: bool
) -> tuple[Any, Any]:
    """Apply ``function`` to arrays (B, ...) with mapped axes merged into B.

    The results have the mapped axis first.
    """
    length = next(x.shape[axis] for x, axis in zip(args, axes) if axis is not None)
    merged = []
    for x, axis in zip(args, axes):
        x = mx.broadcast_to(x, (length, *x.shape)) if axis is None else mx.moveaxis(x, axis, 0)
        if length == 0:  # one example, which is never evaluated, gives the shapes of the results
            x = mx.zeros((1, *x.shape[1:]), x.dtype)
        batch = x.shape[1]
        plan.check_planes(x.shape[0] * batch * x.shape[-1], is_gpu)
        merged.append(x.reshape(x.shape[0] * batch, *x.shape[2:]))
    outputs = function(merged)

    def split(y):
        y = y.reshape(y.shape[0] // batch, batch, *y.shape[1:])
        return y if length else mx.zeros((0, *y.shape[1:]), y.dtype)

    if isinstance(outputs, mx.array):
        return split(outputs), 0
    return tuple(split(y) for y in outputs), (0,) * len(outputs)
