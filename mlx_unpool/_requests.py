"""Requests, which contain the checked arguments of a call, and plans, which also depend on the shapes.

A public function or layer builds a request (``MaxPooling.of(...)`` checks the arguments) and passes its
arrays to the method ``run``. Equal arguments give the same request object, which is the
cache key of its plans. Both caches are bounded and contain neither arrays nor streams.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from math import prod
from typing import Any

import mlx.core as mx

from . import _arguments as arguments
from . import _checks, _derivatives
from ._backends import Target, target_of
from ._bounds import fractional_bounds
from ._geometry import (
    FractionalGeometry,
    Geometry,
    Triple,
    Window,
    WindowGeometry,
    adaptive_geometry,
    fractional_geometry,
    triple,
)
from ._layout import Layout, layout_hint
from ._types import (
    INDEX_FORMATS,
    LARGEST_AXIS,
    MAX_WINDOW_INDICES,
    DataFormat,
    IndexFormat,
    IntOrTuple,
    Padding,
    flat_dtype,
    is_float,
    is_window,
    window_dtype,
)

_REQUEST_CACHE_SIZE, _PLAN_CACHE_SIZE = 256, 1024


@dataclass(frozen=True, eq=False)
class Plan:
    """How to pool or unpool arrays of one shape."""

    layout: Layout
    folded: tuple[int, ...]  # shape of the input as (B, D, H, W, C)
    shape: tuple[int, ...]  # shape of the result, in the caller's layout
    geometry: Geometry
    index_dtype: mx.Dtype

    @staticmethod
    def of(layout: Layout, g: Geometry, index_dtype: mx.Dtype, unpool: bool = False) -> Plan:
        """The plan for a geometry."""
        source, result = (g.pooled, g.size) if unpool else (g.size, g.pooled)
        return Plan(layout, layout.folded(source), layout.shape(result), g, index_dtype)

    @cached_property
    def fits_cpu(self) -> bool:
        """Whether every flattened array on the CPU has a length that fits into 32 bits, as MLX requires."""
        planes = self.layout.batch * self.layout.channels
        return planes * (self.geometry.most_positions + 1) <= LARGEST_AXIS


# Requests are compared by identity. Arguments are checked first, because True equals 1 as a cache key.
_interned = lru_cache(_REQUEST_CACHE_SIZE)(lambda kind, *fields: kind(*fields))


@lru_cache(_PLAN_CACHE_SIZE)
def _plan(request: _Request, *shapes: tuple[int, ...] | None) -> Plan:
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
class _Request:
    """Checked arguments of a call by ``caller`` over ``rank`` spatial axes."""

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

    def spatial(self, numbers: tuple[Any, ...]) -> tuple[Any, ...]:
        """The entries of a (depth, height, width) triple for the caller's spatial axes."""
        return numbers[3 - self.rank :]

    def target(self, x: Any, stream: Any) -> Target:
        """Check ``x`` and ``stream``; return the stream and the backend of the call."""
        arguments.values(self.caller, x)
        arguments.stream(self.caller, stream)
        target = target_of(stream)
        if x.dtype == mx.float64 and target.backend.on_gpu:
            got = f"{x.dtype} on {target.stream}"
            needed = "must not be float64 on a GPU, which does not support it"
            raise TypeError(f"[{self.caller}] 'x' {needed}, but got {got}.")
        return target

    def check_limit(self, plan: Plan, target: Target) -> None:
        """Check the limit of array sizes on the CPU."""
        if not (plan.fits_cpu or target.backend.on_gpu):
            is_larger = prod(plan.shape) > prod(plan.folded) and not isinstance(self, MaxPooling)
            name = "output_size" if is_larger else "x"
            raise ValueError(
                f"[{self.caller}] '{name}' must give arrays of fewer than 2^31 elements on the CPU, with one "
                f"extra position per plane, but got the shapes {plan.folded} and {plan.shape}. Use fewer "
                "images per call, or a GPU."
            )


@dataclass(frozen=True, eq=False)
class _Pooling(_Request):
    """Max pooling of any kind."""

    return_indices: bool

    def run(self, x: Any, stream: Any = None, training: bool = True) -> Any:
        """The pooled values, or ``(values, indices)`` if indices are requested.

        ``training``: whether a gradient is likely, so that on a GPU the indices are kept for it.
        """
        target = self.target(x, stream)
        return self._run(x, target, _plan(self, x.shape), training)

    def _run(
        self,
        x: mx.array,
        target: Target,
        plan: Plan,
        training: bool,
        bounds: Callable[[Plan], mx.array] | None = None,
    ) -> Any:
        """``bounds`` returns those of random windows (see ``_bounds.py``)."""
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

    def index_dtype(self, g: Geometry, index_format: str = "flat") -> mx.Dtype:
        """The dtype of the indices: the smallest possible one if only the gradient uses them."""
        if isinstance(g, WindowGeometry):
            fits = g.window.elements <= MAX_WINDOW_INDICES and not self.return_indices
            if index_format == "window" or fits:
                return window_dtype(g.window.elements)
        return flat_dtype(g.size)

    def nonempty_size(self, layout: Layout, shape: tuple[int, ...]) -> Triple:
        """The size of an input's planes, which must not be 0 on any axis."""
        size = layout.size(shape)
        if min(size) < 1:
            raise self.error("x", "have 1 position or more per spatial axis", self.spatial(size))
        return size


@dataclass(frozen=True, eq=False)
class MaxPooling(_Pooling):
    """Max pooling over equal windows at equal distances."""

    window: Window
    index_format: str

    @staticmethod
    def of(
        caller: str,
        rank: int,
        kernel_size: IntOrTuple,
        stride: IntOrTuple | None,
        padding: Padding,
        dilation: IntOrTuple,
        ceil_mode: bool,
        return_indices: bool,
        index_format: IndexFormat,
        data_format: DataFormat,
    ) -> MaxPooling:
        """The request with these arguments, checked."""
        window = arguments.window_of(caller, rank, kernel_size, stride, padding, dilation, ceil_mode)
        arguments.flag(caller, "return_indices", return_indices)
        arguments.choice(caller, "index_format", index_format, INDEX_FORMATS)
        if index_format == "window" and window.elements > MAX_WINDOW_INDICES:
            raise ValueError(
                f"[{caller}] 'index_format' must be 'flat' for windows of more than {MAX_WINDOW_INDICES} "
                f"elements but got 'window' and {window.elements} elements."
            )
        first = arguments.channels_come_first(caller, data_format)
        return _interned(MaxPooling, caller, rank, first, return_indices, window, index_format)

    def plan(self, shape: tuple[int, ...]) -> Plan:
        """See ``_Request``."""
        layout = self.layout(shape)
        size = layout.size(shape)
        window = self.window.resolved(size)
        pooled = window.pooled_size(size)
        if min(size) < 1 or min(pooled) < 1:
            pads = tuple(zip(window.padding, window.padding_after))
            span, padding, got = map(self.spatial, (window.span, pads, size))
            raise ValueError(
                f"[{self.caller}] 'kernel_size' must fit into the padded input: a window covers {span} "
                f"positions and 'padding' is {padding}, but got an input of spatial shape {got}."
            )
        g = WindowGeometry(size, pooled, window)
        return Plan.of(layout, g, self.index_dtype(g, self.index_format))


@dataclass(frozen=True, eq=False)
class MaxUnpooling(_Request):
    """Max unpooling; without a window it accepts any flat indices."""

    window: Window | None
    needs_output_size: bool  # whether the default size is refused

    @staticmethod
    def of(
        caller: str,
        rank: int,
        kernel_size: IntOrTuple | None,
        stride: IntOrTuple | None,
        padding: Padding,
        dilation: IntOrTuple,
        data_format: DataFormat,
        from_pool: bool = False,
    ) -> MaxUnpooling:
        """The request with these arguments, checked."""
        first = arguments.channels_come_first(caller, data_format)
        window = None
        if kernel_size is not None:
            window = arguments.window_of(caller, rank, kernel_size, stride, padding, dilation)
        else:
            arguments.no_window(caller, stride, padding, dilation)
        is_ambiguous = window is None or (max(window.stride) > 1 and (from_pool or window.same))
        return _interned(MaxUnpooling, caller, rank, first, window, is_ambiguous)

    def run(self, x: Any, indices: Any, output_size: Any = None, stream: Any = None) -> mx.array:
        """The values ``x`` at the positions of ``indices``, zeros elsewhere."""
        target = self.target(x, stream)
        arguments.indices(self.caller, indices, x)
        if indices.shape != x.shape:
            got = f"but got {x.shape} and {indices.shape}"
            raise ValueError(f"[{self.caller}] 'x' and 'indices' must have the same shape {got}.")
        if self.window is None and is_window(indices.dtype):
            raise self.error("kernel_size", f"be given for window indices ({indices.dtype})", None)
        if output_size is not None:
            output_size = arguments.shape(self.caller, "output_size", output_size, self.rank)
        plan = _plan(self, x.shape, output_size)
        self.check_limit(plan, target)
        with mx.stream(target.stream):
            if 0 in plan.shape:  # no images or no channels
                return mx.zeros(plan.shape, x.dtype)
            if _checks.is_checking():
                _checks.check_values_if_available(self.caller, indices, plan.layout, plan.geometry)
            values, indices = mx.reshape(x, plan.folded), mx.reshape(indices, plan.folded)
            full = _derivatives.linear("scatter", "last", values, indices, plan.geometry, target)
            return mx.reshape(full, plan.shape)

    def plan(self, shape: tuple[int, ...], output_size: tuple[int, ...] | None) -> Plan:
        """See ``_Request``; ``output_size`` is None, a spatial or a full shape."""
        layout = self.layout(shape)
        pooled = layout.size(shape)
        if output_size is None:
            size = self._default_size(pooled)
        else:
            size = self._given_size(layout, pooled, output_size)
        g = Geometry(size, pooled)
        if self.window is not None:
            g = WindowGeometry(size, pooled, self.window.resolved(size))
        elif prod(pooled) >= 2**31:
            needed = "have fewer than 2^31 values per plane if 'kernel_size' is None"
            raise self.error("x", needed, prod(pooled))
        return Plan.of(layout, g, flat_dtype(size), unpool=True)

    def _default_size(self, pooled: Triple) -> Triple:
        """The size of the output if the caller passes none."""
        if self.window is None:
            raise self.error("output_size", "be given if 'kernel_size' is None", None)
        default = self.window.unpooled_size(pooled)
        if self.needs_output_size:
            case = "padding='same'" if self.window.same else "a layer made by from_pool"
            raise ValueError(
                f"[{self.caller}] 'output_size' must be given for {case} with a stride above 1, because "
                "inputs of several sizes have this pooled size, but got None. Pass the shape of the array "
                "that was pooled: output_size=x.shape."
            )
        if min(default) < 1 or max(default) > LARGEST_AXIS:
            why = "empty" if min(default) < 1 else "longer than 2^31 - 1 on an axis"
            needed = f"be given here, because the default, {self.spatial(default)}, is {why},"
            raise self.error("output_size", needed, None)
        return default

    def _given_size(self, layout: Layout, pooled: Triple, output_size: tuple[int, ...]) -> Triple:
        """The size of the output that the caller passes as a spatial or a full shape."""
        spatial: tuple[int, ...] | None = output_size
        if len(output_size) != self.rank:
            # With a window only the spatial part of a full shape counts, as in PyTorch.
            spatial = layout.spatial_of_full_shape(output_size, exact=self.window is None)
        if spatial is None:
            batch = "" if self.window else " with the batch and channels of the input"
            shapes = f"a spatial shape of {self.rank} integers or a full shape{batch}"
            raise self.error("output_size", f"be an integer, {shapes}", output_size)
        size = triple(spatial)
        if min(spatial) < 1:
            raise self.error("output_size", "be 1 or more on every axis", output_size)
        if self.window is not None:
            ranges = self.window.unpooled_ranges(pooled)
            if any(n not in allowed for n, allowed in zip(size, ranges)):
                text = self.spatial(tuple(f"{r.start} to {r.stop - 1}" for r in ranges))
                allowed = f"{self.spatial(pooled)} windows, which allows ({', '.join(text)}),"
                needed = f"differ by less than one stride from the default for {allowed}"
                if self.window.same:
                    needed = f"be pooled with padding='same' to {allowed}"
                hint = " For indices of an adaptive or fractional pool pass kernel_size=None."
                if len({*spatial}) == 1 and spatial[0] >= prod(r.start for r in ranges):
                    hint += " If this is x.size, pass x.shape."
                raise ValueError(arguments.message(self.caller, "output_size", needed, output_size) + hint)
        return size


@dataclass(frozen=True, eq=False)
class AdaptivePooling(_Pooling):
    """Max pooling to a given number of windows."""

    output_size: tuple[int | None, ...]

    @staticmethod
    def of(
        caller: str,
        rank: int,
        output_size: int | Sequence[int | None],
        return_indices: bool,
        data_format: DataFormat,
    ) -> AdaptivePooling:
        """The request with these arguments, checked."""
        given: Any = output_size if isinstance(output_size, (tuple, list)) else [output_size] * rank
        numbers = arguments.all_integers([n for n in given if n is not None])
        if numbers is None or output_size is None:
            needed = f"be an integer or a tuple of {rank} integers or Nones"
            raise TypeError(arguments.message(caller, "output_size", needed, output_size))
        if len(given) != rank or not all(1 <= n <= LARGEST_AXIS for n in numbers):
            needed = f"be an integer or a tuple of {rank}, each 1 or more and below 2^31, or None,"
            raise ValueError(arguments.message(caller, "output_size", needed, output_size))
        arguments.flag(caller, "return_indices", return_indices)
        sizes = tuple(None if n is None else operator.index(n) for n in given)
        first = arguments.channels_come_first(caller, data_format)
        return _interned(AdaptivePooling, caller, rank, first, return_indices, sizes)

    def plan(self, shape: tuple[int, ...]) -> Plan:
        """See ``_Request``."""
        layout = self.layout(shape)
        size = self.nonempty_size(layout, shape)
        kept = zip(self.output_size, self.spatial(size))
        pooled = triple([length if n is None else n for n, length in kept])
        if sum(pooled) > LARGEST_AXIS:
            raise self.error("output_size", "add up to less than 2^31", self.spatial(pooled))
        g = adaptive_geometry(size, pooled)
        return Plan.of(layout, g, self.index_dtype(g))


@dataclass(frozen=True, eq=False)
class FractionalPooling(_Pooling):
    """Max pooling over windows at random positions."""

    kernel: tuple[int, ...]
    output_size: Any  # a tuple of int, or None if there is an output_ratio, a tuple of float
    output_ratio: Any

    @staticmethod
    def of(
        caller: str,
        rank: int,
        kernel_size: IntOrTuple,
        output_size: IntOrTuple | None,
        output_ratio: float | Sequence[float] | None,
        return_indices: bool,
        data_format: DataFormat,
    ) -> FractionalPooling:
        """The request with these arguments, checked."""
        kernel = arguments.integers(caller, "kernel_size", kernel_size, rank, least=1)
        if (output_size is None) == (output_ratio is None):
            raise ValueError(
                f"[{caller}] exactly one of 'output_size' and 'output_ratio' must be given but got "
                f"{arguments.short_repr(output_size)} and {arguments.short_repr(output_ratio)}."
            )
        if output_size is not None:
            output_size = arguments.integers(caller, "output_size", output_size, rank, least=1)
        else:
            output_ratio = arguments.ratios(caller, "output_ratio", output_ratio, rank)
        arguments.flag(caller, "return_indices", return_indices)
        first = arguments.channels_come_first(caller, data_format)
        return _interned(
            FractionalPooling, caller, rank, first, return_indices, kernel, output_size, output_ratio
        )

    def run(
        self, x: Any, stream: Any = None, training: bool = True, samples: Any = None, key: Any = None
    ) -> Any:
        """See ``_Pooling``; ``samples`` and ``key`` are ``random_samples`` and ``key`` of the call."""
        target = self.target(x, stream)
        if samples is not None and key is not None:
            raise self.error("key", "be None if 'random_samples' is given", key)
        if samples is not None and not (isinstance(samples, mx.array) and is_float(samples.dtype)):
            raise self._wrong_type("random_samples", "an array of floats", samples)
        if key is not None and not (isinstance(key, mx.array) and key.dtype == mx.uint32):
            raise self._wrong_type("key", "a key of mx.random (a uint32 array)", key)
        if key is not None and key.shape != (2,):
            raise self.error("key", "have the shape (2,)", key.shape)
        plan = _plan(self, x.shape, None if samples is None else samples.shape)
        return self._run(x, target, plan, training, partial(self._random_bounds, samples, key))

    def _wrong_type(self, name: str, needed: str, value: Any) -> TypeError:
        got = value.dtype if isinstance(value, mx.array) else type(value).__name__
        return TypeError(f"[{self.caller}] '{name}' must be {needed} but got {got}.")

    def _random_bounds(self, samples: mx.array | None, key: mx.array | None, plan: Plan) -> mx.array:
        layout = plan.layout
        if samples is None:
            samples = mx.random.uniform(shape=(layout.batch, layout.channels, self.rank), key=key)
        # Window positions have no derivative. Without stop_gradient MLX would differentiate mx.random.
        samples = mx.stop_gradient(samples)
        if layout.channels_first:
            folded = samples.reshape(layout.batch * layout.channels, self.rank, 1)
        else:
            folded = samples.transpose(0, 2, 1)
        assert isinstance(plan.geometry, FractionalGeometry)
        return fractional_bounds(folded, plan.geometry)

    def plan(self, shape: tuple[int, ...], of_samples: tuple[int, ...] | None) -> Plan:
        """See ``_Request``."""
        layout = self.layout(shape)
        size = self.nonempty_size(layout, shape)
        lengths = self.spatial(size)
        name, given = "output_size", self.output_size
        count = given
        if given is None:
            name, given = "output_ratio", self.output_ratio
            count = tuple(int(n * ratio) for n, ratio in zip(lengths, given))
        room = tuple(n - k + 1 for n, k in zip(lengths, self.kernel))
        if min(room) < 1:
            raise self.error("kernel_size", f"fit into an input of size {lengths}", self.kernel)
        if any(not 1 <= n <= most for n, most in zip(count, room)):
            raise ValueError(
                f"[{self.caller}] '{name}' must give at least 1 and at most {room} windows (input size - "
                f"kernel_size + 1) but got {given}, which gives {count} windows."
            )
        of_uniform = layout.batch, layout.channels, self.rank
        if of_samples not in (None, of_uniform):
            raise self.error("random_samples", f"have the shape {of_uniform}", of_samples)
        g = fractional_geometry(size, triple(count), triple(self.kernel))
        return Plan.of(layout, g, flat_dtype(size))
