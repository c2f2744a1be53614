"""The primitives as GPU kernels: one text in ``metal/``, run through Metal or CUDA."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any

import mlx.core as mx

from .._geometry import Geometry, RegionGeometry, Triple, Window, WindowGeometry
from .._kernels import text
from .._layout import pairs
from .._types import flat_dtype, is_window

# The parameters of each kernel, in order.
_INPUTS = {
    "pool": ["x", "size"],
    "pool_regions": ["x", "bounds", "size"],
    "accumulate_regions": ["values", "indices", "covering", "size"],
    "place": ["values", "indices", "strays", "size"],
    "pick": ["full", "indices", "strays"],
    "stray": ["indices", "size"],
    "own": ["indices", "size"],
}
_OUTPUTS = {
    "pool": ["out", "indices"],
    "pool_regions": ["out", "indices"],
    "accumulate_regions": ["out"],
    "place": ["out"],
    "pick": ["out"],
    "stray": ["strays"],
    "own": ["owner"],
}
_ATOMIC = ("stray", "own")
# CUDA's limits: the blocks on the second and third axis of a grid, the threads on the third of a block.
_MOST_BLOCKS = 65535
_MOST_DEEP = 64


@functools.cache
def _build(dialect: str, name: str) -> Any:
    """The kernel ``name`` in one of the two languages, not yet compiled."""
    arguments: dict[str, Any] = {
        "name": f"unpool_{name}",
        "input_names": _INPUTS[name],
        "output_names": _OUTPUTS[name],
        "source": text(f"{name}.metal"),
        "header": text(f"{dialect}.h") + text("places.h"),
    }
    if dialect == "cuda":
        return mx.fast.cuda_kernel(**arguments)
    # The comparison v != v must stay one for NaN: that is what "safe" promises.
    return mx.fast.metal_kernel(
        **arguments,
        atomic_outputs=name in _ATOMIC,
        compile_options={"math_mode": "safe"},
    )


class Kernels:
    """The primitives, as kernels in one dialect."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect

    def pool(
        self, x: mx.array, g: WindowGeometry, index_dtype: mx.Dtype
    ) -> tuple[mx.array, mx.array]:
        """Values and indices of every window."""
        shape = (x.shape[0], *g.pooled, x.shape[4])
        flat = not is_window(index_dtype)
        template = [("T", x.dtype), ("I", index_dtype), ("FLAT", flat)]
        values, indices = self._launch(
            "pool",
            [x, _size(g.pooled)],
            template + _lanes(x) + _constants(g.window),
            grid=_grid(x, g.pooled),
            outputs=[(shape, x.dtype), (shape, index_dtype)],
        )
        return values, indices

    def pool_regions(
        self, x: mx.array, bounds: mx.array, g: RegionGeometry, index_dtype: mx.Dtype
    ) -> tuple[mx.array, mx.array]:
        """Values and flat indices of windows that lie where ``bounds`` says."""
        batch, *_, channels = x.shape
        d, h, w = g.pooled
        shape = (batch, d, h, w, channels)
        values, indices = self._launch(
            "pool_regions",
            [x, bounds, _size(g.pooled)],
            [("T", x.dtype), ("I", index_dtype)],
            grid=(w * channels, d * h, batch),
            outputs=[(shape, x.dtype), (shape, index_dtype)],
        )
        return values, indices

    def place(self, values: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        """Pooled values at their places, zero elsewhere, the last one of several."""
        if not isinstance(g, WindowGeometry):
            return self.pick(values, self._owner(indices, g.size), g)
        strays = self._strays(values, indices, g.window, g.size)
        return self._place(values, indices, strays, g.window, g.size, add=False)

    def accumulate(self, values: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        """Pooled values at their places, zero elsewhere, the sum of several.

        The indices must come from a pool: one that is not in its own window adds nothing.
        """
        size = g.size
        if isinstance(g, WindowGeometry):
            return self._place(values, indices, None, g.window, size, add=True)
        assert isinstance(g, RegionGeometry)
        batch, *_, channels = values.shape
        covering = pairs(g.listed_covering, g.covering, size)
        return self._launch(
            "accumulate_regions",
            [values, indices, covering, _size(size)],
            [("T", values.dtype), _sum_type(values), _index_type(indices, size)],
            grid=(size[2] * channels, size[0] * size[1], batch),
            outputs=[((batch, *size, channels), values.dtype)],
        )[0]

    def pick(self, full: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        """The full array at the recorded places, zero where an index names none."""
        window = g.window if isinstance(g, WindowGeometry) else Window()  # flat indices need none
        return self._pick(full, indices, None, window, winners=False)

    def pick_winners(self, full: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        """As :meth:`pick`, but zero for a cell whose place a later cell names as well."""
        if isinstance(g, WindowGeometry):
            strays = self._strays(full, indices, g.window, g.size)
            return self._pick(full, indices, strays, g.window, winners=True)
        owner = self.pick(self._owner(indices, g.size), indices, g)
        cell = mx.arange(prod(g.pooled), dtype=mx.int32).reshape(1, *g.pooled, 1)
        picked = self.pick(full, indices, g)
        return mx.where(owner == cell, picked, mx.zeros((), full.dtype))

    def _place(
        self,
        values: mx.array,
        indices: mx.array,
        strays: mx.array | None,
        window: Window,
        size: Triple,
        add: bool,
    ) -> mx.array:
        template = [
            ("T", values.dtype),
            _sum_type(values) if add else ("ACC", values.dtype),
            ("FLAT", not is_window(indices.dtype)),
            _index_type(indices, size),
            ("SUM", add),
            ("STRAY", strays is not None),
        ]
        return self._launch(
            "place",
            [values, indices, _no_strays() if strays is None else strays, _size(size)],
            template + _lanes(values) + _constants(window),
            grid=_grid(values, _tiles(window, size)),
            outputs=[((values.shape[0], *size, values.shape[4]), values.dtype)],
        )[0]

    def _pick(
        self,
        full: mx.array,
        indices: mx.array,
        strays: mx.array | None,
        window: Window,
        winners: bool,
    ) -> mx.array:
        template = [
            ("T", full.dtype),
            ("FLAT", not is_window(indices.dtype)),
            _index_type(indices, full.shape[1:4]),
            ("WINNERS", winners),
            ("STRAY", strays is not None),
        ]
        return self._launch(
            "pick",
            [full, indices, _no_strays() if strays is None else strays],
            template + _lanes(full) + _constants(window),
            grid=_grid(full, indices.shape[1:4]),
            outputs=[(indices.shape, full.dtype)],
        )[0]

    def _strays(
        self, values: mx.array, indices: mx.array, window: Window, size: Triple
    ) -> mx.array | None:
        """A bit for every thread of ``place``: whether a flat index from elsewhere names its tile."""
        if is_window(indices.dtype):
            return None
        threads = prod(_grid(values, _tiles(window, size)))
        return self._launch(
            "stray",
            [indices, _size(size)],
            [_index_type(indices, size), *_lanes(values), *_constants(window)],
            grid=_grid(values, indices.shape[1:4]),
            outputs=[((-(-threads // 32),), mx.uint32)],
            init_value=0,
        )[0]

    def _owner(self, indices: mx.array, size: Triple) -> mx.array:
        """The number of the last cell that names each place, -1 where none does."""
        batch, *cells, channels = indices.shape
        return self._launch(
            "own",
            [indices, _size(size)],
            [_index_type(indices, size), ("V", min(4, channels))],
            grid=(cells[2] * -(-channels // min(4, channels)), cells[0] * cells[1], batch),
            outputs=[((batch, *size, channels), mx.int32)],
            init_value=-1,
        )[0]

    def _launch(
        self,
        name: str,
        inputs: list[mx.array],
        template: list[tuple[str, Any]],
        grid: tuple[int, int, int],
        outputs: list[tuple[Sequence[int], mx.Dtype]],
        init_value: float | None = None,
    ) -> list[mx.array]:
        return _build(self.dialect, name)(
            inputs=inputs,
            template=template,
            grid=grid,
            threadgroup=threadgroup(grid),
            output_shapes=[shape for shape, _ in outputs],
            output_dtypes=[dtype for _, dtype in outputs],
            init_value=init_value,
            stream=_stream(),
        )


def threadgroup(grid: tuple[int, int, int]) -> tuple[int, int, int]:
    """A threadgroup of 256 threads or less, as long as possible on the first axis.

    It has a power of two of rows, which keeps its part of an array in line with the memory's lines, and
    more of them where the grid would otherwise have more blocks on an axis than CUDA allows.
    """
    y, z = (_power_of_two(-(-n // _MOST_BLOCKS), up=True) for n in grid[1:])
    x = max(1, min(grid[0], 256 // (y * z)))
    y = max(y, _power_of_two(min(grid[1], 256 // (x * z))))
    z = max(z, _power_of_two(min(grid[2], _MOST_DEEP, 256 // (x * y))))
    return x, y, z


def _power_of_two(n: int, up: bool = False) -> int:
    """The nearest power of two that is not above ``n``, or with ``up`` not below it."""
    return 1 << (max(1, n) - 1).bit_length() if up else 1 << max(1, n).bit_length() - 1


def _index_type(indices: mx.array, size: Triple) -> tuple[str, mx.Dtype]:
    """The type that holds every index that names a place.

    A uint32 above that type's range becomes negative in it, so it still names none.
    """
    narrow = indices.dtype.size <= 4 and flat_dtype(size) == mx.int32
    return "INDEX", mx.int32 if narrow else mx.int64


def _sum_type(values: mx.array) -> tuple[str, mx.Dtype]:
    """The type to add up in."""
    return "ACC", mx.float32 if values.dtype in (mx.float16, mx.bfloat16) else values.dtype


def _lanes(x: mx.array) -> list[tuple[str, Any]]:
    """How many neighbouring channels a thread takes, and whether the last thread has fewer."""
    lanes = _lane_count(x)
    return [("V", lanes), ("TAIL", x.shape[4] % lanes != 0)]


def _lane_count(x: mx.array) -> int:
    # 16 bytes a thread: two lines of 128 bytes for 32 threads of float32 at 4 channels each.
    return max(1, min(16 // x.dtype.size, 8, x.shape[4]))


def _grid(x: mx.array, size: Triple) -> tuple[int, int, int]:
    groups = -(-x.shape[4] // _lane_count(x))
    return size[2] * groups, size[0] * size[1], x.shape[0]


def _tiles(window: Window, size: Triple) -> Triple:
    """The number of tiles of outputs, each as large as the stride, that cover a plane."""
    return tuple(-(-(n + p) // s) for n, p, s in zip(size, window.padding, window.stride))


def _constants(window: Window) -> list[tuple[str, int]]:
    parameters = (window.kernel, window.stride, window.padding, window.dilation)
    return [
        (letter + axis, number)
        for letter, numbers in zip("KSPD", parameters)
        for axis, number in zip("DHW", numbers)
    ]


def _size(size: Triple) -> mx.array:
    return mx.array(size, dtype=mx.int32)


def _no_strays() -> mx.array:
    return mx.array([0], dtype=mx.uint32)


def _stream() -> Any:
    """The current stream, or a stand-in for one where a graph is traced without a GPU."""
    device = mx.default_device()
    return mx.default_stream(device) if device.type == mx.gpu else mx.gpu
