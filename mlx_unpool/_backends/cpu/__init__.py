"""The primitives as plain ``mlx.core`` operations, for the CPU.

The operations were chosen by measurement: few passes over memory, each in a loop that MLX's CPU
backend vectorises or at least runs without branches. Slower, or not usable:

- ``mx.where``, ``|`` of bools, ``mx.pad`` and ``mx.concatenate`` of large arrays, which are not
  vectorised; gathers with several index arrays; scatters where a product with a mask will do
  (``scatter_to_tiles``).
- Comparing bits instead of testing for NaN: a wrong index if a window contains two equal NaNs.
- ``mx.compile`` inside the library (see ``arrays.unfused``); one image at a time; packed indices of
  2 bits.

Each number that depends on the size of an array is a ``constant``, an array that is not a scalar.
Inside a user's ``mx.compile``, MLX writes scalars into C++ source and calls the compiler for each
new number, which takes half a second or more: every new image size would compile a pool again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import mlx.core as mx

from ..._bounds import fixed_bounds
from ..._geometry import Geometry, RegionGeometry, Triple, WindowGeometry, pitches
from ..._types import TRAITS, Rule, is_float, is_window
from .arrays import added, along, constant, narrowest, unfused
from .axes import axes_of
from .maxima import Maxima, irregular_windows, separate_windows, windows
from .offsets import offsets_of
from .padding import rows_of_windows, used_rows
from .positions import (
    are_tiles,
    checked,
    of_pool,
    origins,
    plane_of,
    put,
    scatter_to_tiles,
    take,
    take_last,
)
from .values import applied, one_reduction, pooled_values


class Ops:
    """The primitives on arrays (B, D, H, W, C)."""

    is_gpu = False

    def pool(
        self, source: Sequence[mx.array], g: Geometry, index_dtype: mx.Dtype
    ) -> tuple[mx.array, mx.array]:
        """See ``Backend``."""
        x, *bounds = source
        if isinstance(g, RegionGeometry):
            return self._pool_regions(x, bounds, g, index_dtype)
        assert isinstance(g, WindowGeometry)
        flat, axes = not is_window(index_dtype), axes_of(g)
        steps = axes.steps_in_plane if flat else pitches(g.window.kernel)
        maxima = _maxima(Maxima(x), g, steps)
        values = maxima.values
        indices = _window_offsets(maxima)
        if indices.dtype != index_dtype:
            indices = unfused(indices).astype(index_dtype)
        if flat:
            indices = unfused(indices) + origins(g, indices.shape, index_dtype)
        elif axes.first_offset:
            indices = added(indices, constant(axes.first_offset).astype(index_dtype))
        if axes.may_have_empty_windows:
            empty = _empty_windows(g)
            indices = mx.where(empty, mx.array(-1 if flat else 0, index_dtype), indices)
            values = mx.where(empty, _lowest(x.dtype), values)
        return values, indices

    def _pool_regions(
        self, x: mx.array, bounds: Sequence[mx.array], g: RegionGeometry, index_dtype: mx.Dtype
    ) -> tuple[mx.array, mx.array]:
        """Like ``pool``, for windows between bounds."""
        ends = _ends(bounds, g)
        maxima = _region_maxima(Maxima(x), ends, g)
        # Wide enough for the divisors as well: the first one may be the number of elements itself.
        offsets = _window_offsets(maxima).astype(narrowest(prod(g.longest)))
        indices = mx.zeros((), index_dtype)
        for length, step, (start, stop) in zip(g.size, pitches(g.longest), ends):
            pitch = constant(step, offsets.dtype)
            position = mx.minimum(start + (offsets // pitch).astype(index_dtype), stop - 1)
            indices = indices * constant(length, index_dtype) + position
            offsets = offsets % pitch
        return maxima.values, indices

    def pool_values(self, source: Sequence[mx.array], g: Geometry) -> mx.array:
        """See ``Backend``."""
        x, *bounds = source
        if reduction := one_reduction(x.shape, x.itemsize, g):
            return applied(reduction, x)
        if isinstance(g, RegionGeometry):
            return _region_maxima(Maxima(x), _ends(bounds, g), g).values
        assert isinstance(g, WindowGeometry)
        values = pooled_values(x, g)
        if axes_of(g).may_have_empty_windows:
            values = mx.where(_empty_windows(g), _lowest(x.dtype), values)
        return values

    def indices_of(
        self, values: mx.array, source: Sequence[mx.array], g: Geometry, index_dtype: mx.Dtype
    ) -> mx.array:
        """See ``Backend``."""
        if is_window(index_dtype):
            offsets = offsets_of(values, source[0], g)
            if offsets is not None:
                return offsets.astype(index_dtype)
        return self.pool(source, g, index_dtype)[1]

    def scatter(self, values: mx.array, indices: mx.array, g: Geometry, rule: Rule) -> mx.array:
        """See ``Backend``."""
        if are_tiles(g, indices):
            return scatter_to_tiles(values, indices, g)
        if rule == "last":
            return put(values, checked(indices, g), g.size)
        positions = of_pool(indices, g)
        if g.window and g.window.disjoint:
            return put(values, positions, g.size)
        wide = TRAITS[values.dtype].accumulation
        # MLX has no scatter-add along an axis, but it is the derivative of a gather.
        _, (sums,) = mx.vjp(
            lambda plane: mx.take_along_axis(plane, positions.elements, axis=1),
            [mx.zeros(positions.shape, wide)],
            [values.reshape(positions.elements.shape).astype(wide)],
        )
        return plane_of(sums, positions, values, g.size).astype(values.dtype)

    def gather(self, full: mx.array, indices: mx.array, g: Geometry, rule: Rule) -> mx.array:
        """See ``Backend``."""
        if rule == "sum":
            return take(full, of_pool(indices, g)).reshape(indices.shape)
        positions = checked(indices, g)
        is_unique = is_window(indices.dtype) and g.window and g.window.disjoint
        return (take if is_unique else take_last)(full, positions).reshape(indices.shape)


def _maxima(elements: Maxima, g: WindowGeometry, steps: Triple) -> Maxima:
    """The maximum of every window."""
    axes, count = axes_of(g), prod(g.size)
    is_whole = g.window.kernel == g.size and axes.every_element_inside
    if count > 16 and is_whole:  # the whole plane is one window
        batch, *_, channels = elements.values.shape
        line = elements._replace(values=elements.values.reshape(batch, 1, 1, count, channels))
        return separate_windows(line, 2, count, 1, 1, 1)
    plane, shifts = used_rows(elements.values, g)
    elements = elements._replace(values=plane)
    for number in (2, 1, 0):
        axis, step, shift = axes[number], steps[number], shifts[number]
        if axis.is_kept:
            continue
        stride, dilation = axis.stride, axis.dilation
        if axis.is_sparse:
            row, shift = (along(number, x) for x in rows_of_windows(axis))
            elements = elements.gathered(number, row)
            stride, dilation = axis.used, 1
        if shift is not None:
            elements = elements.shifted(shift, axis.before + axis.after, step)
        elements = windows(elements, number, axis.used, stride, dilation, axis.count, step)
    return elements


def _region_maxima(elements: Maxima, ends: list[list[mx.array]], g: RegionGeometry) -> Maxima:
    """The maximum of every window of adaptive or fractional pooling."""
    for axis, step in reversed(list(enumerate(pitches(g.longest)))):
        regular = g.regular[axis]
        if regular:
            elements = windows(elements, axis, *regular, 1, g.pooled[axis], step)
        else:
            start, stop = ends[axis]
            elements = irregular_windows(elements, axis, g.longest[axis], start, stop, step)
    return elements


def _ends(bounds: Sequence[mx.array], g: RegionGeometry) -> list[list[mx.array]]:
    """The start and the stop of every window on each axis, as arrays (1 or B, D, H, W, 1 or C)."""
    (table,) = bounds or [fixed_bounds(g)]
    ends = []
    for axis, first in enumerate((0, g.pooled[0], g.pooled[0] + g.pooled[1])):
        rows = table[:, first : first + g.pooled[axis]]
        shape = (rows.shape[0], *[1] * axis, rows.shape[1], *[1] * (2 - axis), rows.shape[3])
        ends.append([rows[:, :, end].reshape(shape) for end in (0, 1)])
    return ends


def _window_offsets(maxima: Maxima) -> mx.array:
    """The offsets of all windows."""
    offsets = mx.zeros((), mx.uint8) if maxima.offsets is None else maxima.offsets
    return mx.broadcast_to(offsets, maxima.values.shape)


def _empty_windows(g: WindowGeometry) -> mx.array:
    """A mask of the windows without an element inside the plane."""
    result = mx.array(False)
    for number, axis in enumerate(axes_of(g)):
        if axis.has_empty_windows:
            start = mx.arange(axis.count, dtype=mx.int64) * axis.stride - axis.padding
            empty = (start < 0) & (start % axis.dilation >= constant(axis.length, mx.int64))
            result = result | along(number, empty)
    return result


def _lowest(dtype: mx.Dtype) -> mx.array:
    return mx.array(-float("inf") if is_float(dtype) else mx.iinfo(dtype).min, dtype)
