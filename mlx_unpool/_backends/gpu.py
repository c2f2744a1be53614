"""The primitives as GPU kernels: one source in ``metal/``, run through Metal or CUDA.

A call launches one or a few kernels.
"""

from __future__ import annotations

import functools
from typing import Any

import mlx.core as mx

from .._bounds import bounds_array, fixed_bounds
from .._geometry import Geometry, RegionGeometry, WindowGeometry
from .._types import Arrays, Pair, Rule, is_window
from . import launches
from .kernel_source import text
from .launches import Kernel, Launch

HEADERS = ("windows.h", "order.h")  # included by every kernel, after metal.h or cuda.h


@functools.cache
def _build(dialect: str, kernel: Kernel) -> Any:
    """A kernel in one of the two languages; MLX compiles it at the first launch."""
    arguments: dict[str, Any] = {
        "name": f"unpool_{kernel.name}",
        "input_names": list(kernel.inputs),
        "output_names": list(kernel.outputs),
        "source": text(f"{kernel.name}.metal"),
        "header": text(f"{dialect}.h") + "".join(map(text, HEADERS)),
    }
    if dialect == "cuda":
        return mx.fast.cuda_kernel(**arguments)
    # Fast math would remove the test v != v for NaN.
    arguments |= {"atomic_outputs": kernel.atomic, "compile_options": {"math_mode": "safe"}}
    return mx.fast.metal_kernel(**arguments)


def _aligned(x: mx.array) -> mx.array:
    """``x``, or a copy of it if MLX would pass it in Metal's constant memory, possibly misaligned.

    MLX passes arrays of fewer than 8 elements there. They must begin at a multiple of 4 bytes.
    """
    return mx.concatenate([x, x])[: len(x)] if x.size < 8 and x.itemsize < 4 else x


class KernelBackend:
    """The primitives as kernels in one language (dialect), ``"metal"`` or ``"cuda"``."""

    is_gpu = True

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect

    def pool(self, source: Arrays, g: Geometry, index_dtype: mx.Dtype | None) -> Pair:
        """See ``Backend``. Without ``index_dtype`` the second array is not to be used."""
        x, *bounds = source
        if isinstance(g, WindowGeometry) and not launches.uses_pool_any(g):
            values, indices = self._run(launches.pool(x.shape, x.dtype, g, index_dtype), x)
            return values, indices
        table = _unused()
        if bounds:
            table = bounds[0]
        elif isinstance(g, RegionGeometry):
            table = fixed_bounds(g)
        first, *rest = launches.pool_any(x.shape, x.dtype, table.shape, g, index_dtype)
        values, indices = self._run(first, x, table)
        for launch in rest:  # windows were divided into chunks
            values, indices = self._run(launch, values, indices)
        return values, indices

    def pool_values(self, source: Arrays, g: Geometry) -> mx.array:
        """See ``Backend``."""
        return self.pool(source, g, None)[0]

    def indices_of(
        self, values: mx.array, source: Arrays, g: Geometry, index_dtype: mx.Dtype
    ) -> mx.array:
        """See ``Backend``."""
        return self.pool(source, g, index_dtype)[1]

    def scatter(self, values: mx.array, indices: mx.array, g: Geometry, rule: Rule) -> mx.array:
        """See ``Backend``. An index outside its own window adds nothing to a sum."""
        if launches.uses_scatter(g):
            outside = self._outside_window(indices, g, rule == "last")
            launch = launches.scatter(values.shape, values.dtype, indices.dtype, g, rule)
            return self._run(launch, values, indices, *outside)[0]
        if rule == "last":
            return self.gather(values, self._winner(indices, g), g, "sum")
        regions = launches.regions_of(g)
        covering = _unused()
        if regions is not None:
            covering = bounds_array(regions.covering_table, regions.covering, g.size)
        launch = launches.scatter_regions(values.shape, values.dtype, indices.dtype, g)
        return self._run(launch, values, indices, covering)[0]

    def gather(self, full: mx.array, indices: mx.array, g: Geometry, rule: Rule) -> mx.array:
        """See ``Backend``."""
        compare = rule == "last" and launches.has_few_neighbours(g)
        has_winner = rule == "last" and not compare
        outside = self._outside_window(indices, g, compare)
        winner = self._winner(indices, g) if has_winner else _unused()
        arrays = full.shape, full.dtype, indices.shape, indices.dtype
        launch = launches.gather(*arrays, g, compare, has_winner)
        return self._run(launch, full, indices, *outside, winner)[0]

    def _outside_window(self, indices: mx.array, g: Geometry, needed: bool) -> list[mx.array]:
        """The outputs of ``outside_window`` and ``outside_winners``; for flat indices only."""
        if not needed or is_window(indices.dtype):
            return [_unused(), _unused()]
        mark, find = launches.outside_window(indices.shape, indices.dtype, g)
        (outside_window,) = self._run(mark, indices)
        (winner_bits,) = self._run(find, indices, outside_window)
        return [outside_window, winner_bits]

    def _winner(self, indices: mx.array, g: Geometry) -> mx.array:
        """The number of the last pooled value at each position, -1 if there is none."""
        return self._run(launches.last_writer(indices.shape, indices.dtype, g), indices)[0]

    def _run(self, launch: Launch, *arrays: mx.array) -> Any:
        """The outputs of a launch. It runs on the current stream."""
        inputs = list(map(_aligned, arrays)) if self.dialect == "metal" else list(arrays)
        inputs += [mx.array(numbers, mx.int32) for numbers in launch.integers]
        threadgroup = launches.threadgroup(launch.grid, self.dialect, launch.kernel.name)
        kernel = _build(self.dialect, launch.kernel)
        grid = {"grid": launch.grid, "threadgroup": threadgroup}
        return kernel(inputs=inputs, **grid, **launch.options, stream=_stream())


def _unused() -> mx.array:
    return mx.array([0], dtype=mx.uint32)


def _stream() -> Any:
    """The current stream, or the GPU device if a graph is traced without a GPU."""
    device = mx.default_device()
    return mx.default_stream(device) if device.type == mx.gpu else mx.gpu
