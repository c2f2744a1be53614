"""Derivatives: the primitives as custom functions, each other's transpose where possible.

Pooling copies each window's maximum out of the plane, so with its indices fixed it is the linear map
``pick``, whose transpose is ``accumulate``. Unpooling with fixed indices is the linear map ``place``, whose
transpose is ``pick_winners``. Every derivative of every order is one of these four.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from . import _backends
from ._geometry import Regions, Triple, Window

_exporting: ContextVar[bool] = ContextVar("exporting", default=False)


@contextmanager
def exporting() -> Iterator[None]:
    """Leaves the custom derivatives out of every call inside, so that a graph can be exported.

    ``mx.export_function`` cannot serialize a custom function. Inside this context pooling and unpooling
    are traced as what they run, which can be exported for inference and not be differentiated. What is
    exported runs without this package, on the kind of device that it was traced for.

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


@dataclass(frozen=True)
class Run:
    """Where a call runs and over what: the same for its derivatives, whenever they are taken."""

    window: Window | Regions | None  # None: indices of any origin
    size: Triple  # of the plane
    stream: Any
    backend: Any

    @staticmethod
    def on(stream: Any, window: Window | Regions | None, size: Triple) -> Run:
        """A run on ``stream``, or on the default stream if that is None."""
        if stream is None:
            stream = mx.default_stream(mx.default_device())
        elif isinstance(stream, (mx.Device, mx.DeviceType)):
            stream = mx.default_stream(stream)
        return Run(window, size, stream, _backends.choose(stream))

    def call(self, primitive: str, *args: Any) -> Any:
        """Runs a primitive of the backend."""
        with mx.stream(self.stream):
            return getattr(self.backend, primitive)(*args)


def pool(x: mx.array, run: Run, cells: Triple, index_dtype: mx.Dtype) -> tuple[mx.array, mx.array]:
    """Values and indices of every window of ``x``."""

    def forward(x):
        return run.call("pool", x, run.window, cells, index_dtype)

    def vjp(x, cotangents, outputs):
        return _accumulate(cotangents[0], outputs[1], run)

    def jvp(x, tangent):
        indices = pool(x, run, cells, index_dtype)[1]
        return _pick(tangent, indices, run), mx.zeros_like(indices)

    return _custom(forward, vjp, jvp)(x)


def pool_regions(
    x: mx.array, bounds: mx.array, run: Run, index_dtype: mx.Dtype
) -> tuple[mx.array, mx.array]:
    """Values and flat indices of windows that lie where ``bounds`` says."""

    def forward(x, bounds):
        return run.call("pool_regions", x, bounds, run.window, index_dtype)

    def vjp(primals, cotangents, outputs):
        return _accumulate(cotangents[0], outputs[1], run), mx.zeros_like(primals[1])

    def jvp(primals, tangents):
        x, bounds = primals
        indices = pool_regions(x, bounds, run, index_dtype)[1]
        return _pick(tangents[0], indices, run), mx.zeros_like(indices)

    return _custom(forward, vjp, jvp)(x, bounds)


def place(values: mx.array, indices: mx.array, run: Run) -> mx.array:
    """Values at the places that ``indices`` name, the last one of several."""
    return _linear(
        values,
        indices,
        lambda values, indices: run.call("place", values, indices, run.window, run.size),
        transpose=lambda full, indices: _pick_winners(full, indices, run),
    )


def _pick_winners(full: mx.array, indices: mx.array, run: Run) -> mx.array:
    return _linear(
        full,
        indices,
        lambda full, indices: run.call("pick_winners", full, indices, run.window),
        transpose=lambda values, indices: place(values, indices, run),
    )


def _accumulate(values: mx.array, indices: mx.array, run: Run) -> mx.array:
    return _linear(
        values,
        indices,
        lambda values, indices: run.call("accumulate", values, indices, run.window, run.size),
        transpose=lambda full, indices: _pick(full, indices, run),
    )


def _pick(full: mx.array, indices: mx.array, run: Run) -> mx.array:
    return _linear(
        full,
        indices,
        lambda full, indices: run.call("pick", full, indices, run.window),
        transpose=lambda values, indices: _accumulate(values, indices, run),
    )


def _linear(
    x: mx.array, indices: mx.array, apply: Callable[..., Any], transpose: Callable[..., Any]
) -> mx.array:
    """``apply(x, indices)``, a map that is linear in ``x``, as a differentiable function."""

    def vjp(primals, cotangent, output):
        return transpose(cotangent, primals[1]), mx.zeros_like(primals[1])

    def jvp(primals, tangents):
        tangent = mx.zeros_like(primals[0]) if tangents[0] is None else tangents[0]
        return _linear(tangent, primals[1], apply, transpose)

    return _custom(apply, vjp, jvp)(x, indices)


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
    function.vmap(lambda args, axes: _map_batch(function, args, axes))
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
        merged.append(x.reshape(length * x.shape[1], *x.shape[2:]))
    outputs = function(*merged)

    def split(y):
        return y.reshape(length, y.shape[0] // length, *y.shape[1:])

    if isinstance(outputs, mx.array):
        return split(outputs), 0
    return tuple(split(y) for y in outputs), (0,) * len(outputs)
