"""Requests (the checked arguments of a call), and plans, which also depend on the shapes.

A public function or layer gets its request from ``of(...)``, which checks the arguments, and passes
its arrays to the method ``run``. Requests are interned: equal arguments give the same object, and
windows and geometries exist once per request and shape. So requests and geometries are compared by
identity, and are fast keys of three bounded caches: 256 requests (twice: by the given arguments and
by the checked ones), 1,024 plans (by request and shapes), and 1,024 launches of each kernel (by
geometry, shapes and dtypes; see ``_backends/launches.py``), in whose place the CPU keeps 512
descriptions of axes and of reductions. The caches contain neither arrays nor streams.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from itertools import chain
from typing import Any, ClassVar, TypeVar

import mlx.core as mx

from . import _arguments as arguments
from . import _derivatives
from ._backends import Target, forced, target_of
from ._geometry import Geometry, Triple, WindowGeometry, untriple
from ._layout import Layout, Plan, layout_hint
from ._types import MAX_WINDOW_INDICES, TRAITS, flat_dtype, window_dtype

_REQUEST_CACHE_SIZE, _PLAN_CACHE_SIZE = 256, 1024
_is_plain, _is_int = {int, float, bool, str, type(None)}.issuperset, {int}.issuperset
R = TypeVar("R", bound="Request")

interned = lru_cache(_REQUEST_CACHE_SIZE)(lambda kind, *fields: kind(*fields))


def checked_once(of: Callable[..., R]) -> Callable[..., R]:
    """Keep the requests that ``of`` returns for numbers, strings and tuples of integers.

    They are compared by type and value, because True equals 1. Other arguments are checked in every
    call.
    """
    kept = lru_cache(_REQUEST_CACHE_SIZE, typed=True)(of)

    @wraps(of)
    def request(*given: Any) -> R:
        if not _is_plain(map(type, given)):
            tuples = [value for value in given if not _is_plain((type(value),))]
            if {*map(type, tuples)} != {tuple} or not _is_int(map(type, chain(*tuples))):
                return of(*given)
        return kept(*given)

    return request


@lru_cache(_PLAN_CACHE_SIZE)
def cached_plan(request: Request, is_gpu: bool, *shapes: tuple[int, ...] | None) -> Plan:
    """The plan of a request. Errors about shapes are raised here and never cached."""
    try:
        plan = request.plan(*shapes)
    except ValueError as error:
        other = replace(request, channels_first=not request.channels_first)
        with suppress(ValueError):
            other.plan(*shapes)
            error.args = (f"{error}{layout_hint(other.channels_first)}",)
        raise
    plan.check_planes(plan.folded[0] * plan.folded[4], is_gpu)
    return plan


@dataclass(frozen=True, eq=False)
class Request:
    """Checked arguments of a call by ``caller`` over ``rank`` spatial axes."""

    # Decides the size of a result larger than the input.
    size_argument: ClassVar[str] = "output_size"
    pair_hint: ClassVar[str]  # what to do with the pair (values, indices) of a pool

    caller: str
    rank: int
    channels_first: bool

    def plan(self, *shapes: Any) -> Plan:
        """The plan for arrays of these shapes."""
        raise NotImplementedError

    def error(self, name: str, needed: str, got: Any, hint: str = "") -> ValueError:
        """The error for an argument: what it must be, have or do, and what was passed."""
        return ValueError(arguments.message(self.caller, name, needed, got) + hint)

    def layout(self, shape: tuple[int, ...]) -> Layout:
        """The layout of an input of this shape."""
        return Layout.of(self.caller, "x", shape, self.rank, self.channels_first)

    def target(self, x: Any, stream: Any) -> Target:
        """Check ``x`` and ``stream``; return the stream and the backend of the call."""
        if not isinstance(x, mx.array) or x.dtype not in TRAITS:
            raise arguments.not_values(self.caller, x, self.pair_hint)
        if stream is not None:
            arguments.check_stream(self.caller, stream)
        target = target_of(stream)
        if target.backend.is_gpu and x.dtype == mx.float64:
            needed = "must not be float64 on a GPU, which does not support it"
            raise TypeError(f"[{self.caller}] 'x' {needed}, but got {x.dtype} on {target.stream}.")
        return target


@dataclass(frozen=True, eq=False)
class Pooling(Request):
    """Max pooling of any kind."""

    pair_hint: ClassVar[str] = (
        "pass only the values on. nn.Sequential passes both to the next layer"
    )

    return_indices: bool

    def run(self, x: Any, stream: Any = None, training: bool = True) -> Any:
        """The pooled values, or ``(values, indices)`` if indices are requested.

        ``training``: whether a gradient is likely, so that on a GPU the indices are kept for it.
        """
        target = self.target(x, stream)
        plan = cached_plan(self, target.backend.is_gpu, x.shape)
        if stream is None and forced.get() is None:  # then the target has the current stream
            return self.pooled(x, target, plan, training)
        with mx.stream(target.stream):
            return self.pooled(x, target, plan, training)

    def pooled(
        self, x: mx.array, target: Target, plan: Plan, training: bool, *bounds: mx.array
    ) -> Any:
        """What ``run`` returns, computed on the current stream.

        ``bounds``: an array with the bounds of random windows (see ``_bounds.py``).
        """
        if 0 in plan.shape:  # no images or no channels
            values, indices = mx.zeros(plan.shape, x.dtype), mx.zeros(plan.shape, plan.index_dtype)
            return (values, indices) if self.return_indices else values
        source = mx.reshape(x, plan.folded), *bounds
        if not self.return_indices:
            return mx.reshape(
                _derivatives.pool_without_indices(source, plan, target, training), plan.shape
            )
        values, indices = _derivatives.pool_with_indices(source, plan, target)
        return mx.reshape(values, plan.shape), mx.reshape(indices, plan.shape)

    def plan_with(self, layout: Layout, g: Geometry, index_format: str = "flat") -> Plan:
        """The plan for these windows.

        If only the gradient uses the indices, they have the smallest dtype.
        """
        dtype = flat_dtype(g.size)
        if isinstance(g, WindowGeometry):
            fits = g.window.elements <= MAX_WINDOW_INDICES and not self.return_indices
            if index_format == "window" or fits:
                dtype = window_dtype(g.window.elements)
        return Plan(self, layout, layout.folded(g.size), layout.shape(g.pooled), g, dtype)

    def nonempty_size(self, layout: Layout, shape: tuple[int, ...]) -> Triple:
        """The size of an input's planes, which must not be 0 on any axis."""
        size = layout.size(shape)
        if min(size) < 1:
            raise self.error(
                "x", "have 1 position or more per spatial axis", untriple(size, self.rank)
            )
        return size
