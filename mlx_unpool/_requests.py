"""Requests, which contain the checked arguments of a call, and plans, which also depend on the shapes.

A public function or layer asks for a request (``MaxPooling.of(...)`` checks the arguments, usual ones only
once) and passes its arrays to the method ``run``. Equal arguments give the same request object, which is the
cache key of its plans. The caches are bounded and contain neither arrays nor streams.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from math import prod
from typing import Any, ClassVar, TypeVar

import mlx.core as mx

from . import _arguments as arguments
from . import _derivatives
from ._backends import Target, target_of
from ._geometry import Geometry, Triple, WindowGeometry, untriple
from ._layout import Layout, layout_hint
from ._types import MAX_WINDOW_INDICES, flat_dtype, window_dtype

_REQUEST_CACHE_SIZE, _PLAN_CACHE_SIZE = 256, 1024
_PLAIN, _INTEGER = {int, float, bool, str, tuple, type(None)}, {int}
R = TypeVar("R", bound="Request")


@dataclass(frozen=True, eq=False)
class Plan:
    """How to pool or unpool arrays of one shape."""

    layout: Layout
    folded: tuple[int, ...]  # shape of the input as (B, D, H, W, C)
    shape: tuple[int, ...]  # shape of the result, in the caller's layout
    geometry: Geometry
    index_dtype: mx.Dtype


# Requests are compared by identity.
interned = lru_cache(_REQUEST_CACHE_SIZE)(lambda kind, *fields: kind(*fields))


def checked_once(of: Callable[..., R]) -> Callable[..., R]:
    """Keep the requests that ``of`` returns for numbers, strings and tuples of integers.

    They are compared by type and value, because True equals 1. Other arguments are checked in every call.
    """
    kept = lru_cache(_REQUEST_CACHE_SIZE, typed=True)(of)

    @wraps(of)
    def request(*given: Any) -> R:
        for value in given:
            if type(value) is tuple and not _INTEGER.issuperset(map(type, value)):
                return of(*given)
            if type(value) not in _PLAIN:
                return of(*given)
        return kept(*given)

    return request


@lru_cache(_PLAN_CACHE_SIZE)
def cached_plan(request: Request, *shapes: tuple[int, ...] | None) -> Plan:
    """The plan of a request. Errors about shapes are raised here and never cached."""
    try:
        return request.plan(*shapes)
    except ValueError as error:
        other = replace(request, channels_first=not request.channels_first)
        with suppress(ValueError):
            other.plan(*shapes)
            error.args = (f"{error}{layout_hint(other.channels_first)}",)
        raise


@dataclass(frozen=True, eq=False)
class Request:
    """Checked arguments of a call by ``caller`` over ``rank`` spatial axes."""

    size_argument: ClassVar[str] = "output_size"  # decides the size of a result larger than the input

    caller: str
    rank: int
    channels_first: bool

    def plan(self, *shapes: Any) -> Plan:
        """The plan for arrays of these shapes."""
        raise NotImplementedError

    def error(self, name: str, needed: str, got: Any) -> ValueError:
        """The error for an argument: what it must be, have or do, and what was passed."""
        return ValueError(arguments.message(self.caller, name, needed, got))

    def layout(self, shape: tuple[int, ...]) -> Layout:
        """The layout of an input of this shape."""
        return Layout.of(self.caller, "x", shape, self.rank, self.channels_first)

    def target(self, x: Any, stream: Any) -> Target:
        """Check ``x`` and ``stream``; return the stream and the backend of the call."""
        arguments.check_value_array(self.caller, x)
        if stream is not None:
            arguments.check_stream(self.caller, stream)
        target = target_of(stream)
        if target.backend.is_gpu and x.dtype == mx.float64:
            needed = "must not be float64 on a GPU, which does not support it"
            raise TypeError(f"[{self.caller}] 'x' {needed}, but got {x.dtype} on {target.stream}.")
        return target

    def check_limit(self, plan: Plan, target: Target) -> None:
        """Check the limit of array sizes on the CPU."""
        if not target.backend.fits(plan.layout.batch * plan.layout.channels, plan.geometry):
            name = self.size_argument if prod(plan.shape) > prod(plan.folded) else "x"
            raise ValueError(
                f"[{self.caller}] '{name}' must give arrays of fewer than 2^31 elements on the CPU, with the "
                f"padding and one extra position per plane, but got the shapes {plan.folded} and "
                f"{plan.shape}. Use fewer images per call, or a GPU."
            )


@dataclass(frozen=True, eq=False)
class Pooling(Request):
    """Max pooling of any kind."""

    return_indices: bool

    def run(self, x: Any, stream: Any = None, training: bool = True) -> Any:
        """The pooled values, or ``(values, indices)`` if indices are requested.

        ``training``: whether a gradient is likely, so that on a GPU the indices are kept for it.
        """
        target = self.target(x, stream)
        return self._run(x, target, cached_plan(self, x.shape), training)

    def _run(self, x: mx.array, target: Target, plan: Plan, training: bool, bounds: Any = None) -> Any:
        """``bounds`` is a function that returns those of random windows (see ``_bounds.py``)."""
        self.check_limit(plan, target)
        g, index_dtype = plan.geometry, plan.index_dtype
        with mx.stream(target.stream):
            if 0 in plan.shape:  # no images or no channels
                values, indices = mx.zeros(plan.shape, x.dtype), mx.zeros(plan.shape, index_dtype)
                return (values, indices) if self.return_indices else values
            source = [mx.reshape(x, plan.folded)]
            if bounds is not None:
                source.append(bounds(plan))
            if not self.return_indices:
                values = _derivatives.pool_without_indices(source, g, index_dtype, target, training)
                return mx.reshape(values, plan.shape)
            values, indices = _derivatives.pool_with_indices(source, g, index_dtype, target)
            return mx.reshape(values, plan.shape), mx.reshape(indices, plan.shape)

    def plan_with(self, layout: Layout, g: Geometry, index_format: str = "flat") -> Plan:
        """The plan for these windows. If only the gradient uses the indices, they have the smallest dtype."""
        dtype = flat_dtype(g.size)
        if isinstance(g, WindowGeometry):
            fits = g.window.elements <= MAX_WINDOW_INDICES and not self.return_indices
            if index_format == "window" or fits:
                dtype = window_dtype(g.window.elements)
        return Plan(layout, layout.folded(g.size), layout.shape(g.pooled), g, dtype)

    def nonempty_size(self, layout: Layout, shape: tuple[int, ...]) -> Triple:
        """The size of an input's planes, which must not be 0 on any axis."""
        size = layout.size(shape)
        if min(size) < 1:
            raise self.error("x", "have 1 position or more per spatial axis", untriple(size, self.rank))
        return size
