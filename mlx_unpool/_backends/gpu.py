"""The primitives as GPU kernels: one text in ``metal/``, run through Metal or CUDA.

A call costs the GPU one launch or a few. What a launch is told besides its arrays depends on shapes, dtypes and
windows alone: it is worked out once, and kept.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import mlx.core as mx

from .._geometry import Geometry, RegionGeometry, Triple, Window, WindowGeometry
from .._kernels import text
from .._types import flat_dtype, is_window

# CUDA's limits: the blocks on the second and third axis of a grid, the threads on the third of a block.
_MOST_BLOCKS = 65535
_MOST_DEEP = 64
_KEPT = 1024  # launches of each kind


@dataclass(frozen=True)
class Kernel:
    """A kernel's file and its arrays, in the order in which it takes them."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    atomic: bool = False  # whether threads add to each other's outputs


POOL = Kernel("pool", ("x", "size"), ("out", "indices"))
POOL_REGIONS = Kernel("pool_regions", ("x", "bounds", "size"), ("out", "indices"))
PLACE = Kernel("place", ("values", "indices", "strays", "claims", "size"), ("out",))
ACCUMULATE_REGIONS = Kernel(
    "accumulate_regions", ("values", "indices", "covering", "size"), ("out",)
)
PICK = Kernel("pick", ("full", "indices", "strays", "claims"), ("out",))
STRAY = Kernel("stray", ("indices", "size"), ("strays", "claims"), atomic=True)
OWN = Kernel("own", ("indices", "size"), ("owner",), atomic=True)
KERNELS = (POOL, POOL_REGIONS, PLACE, ACCUMULATE_REGIONS, PICK, STRAY, OWN)


@functools.cache
def _build(dialect: str, kernel: Kernel) -> Any:
    """A kernel in one of the two languages, not yet compiled."""
    arguments: dict[str, Any] = {
        "name": f"unpool_{kernel.name}",
        "input_names": list(kernel.inputs),
        "output_names": list(kernel.outputs),
        "source": text(f"{kernel.name}.metal"),
        "header": text(f"{dialect}.h") + text("places.h"),
    }
    if dialect == "cuda":
        return mx.fast.cuda_kernel(**arguments)
    # The comparison v != v must stay one for NaN: that is what "safe" promises.
    return mx.fast.metal_kernel(
        **arguments, atomic_outputs=kernel.atomic, compile_options={"math_mode": "safe"}
    )


@dataclass(frozen=True, eq=False)
class Launch:
    """All that a kernel is told besides its arrays."""

    kernel: Kernel
    size: Triple | None  # the last input, where a kernel takes one
    options: dict[str, Any]

    def __call__(self, dialect: str, *arrays: mx.array) -> list[mx.array]:
        inputs = list(arrays) if self.size is None else [*arrays, mx.array(self.size, mx.int32)]
        return _build(dialect, self.kernel)(inputs=inputs, **self.options, stream=_stream())


def _launch(
    kernel: Kernel,
    template: dict[str, Any],
    grid: tuple[int, int, int],
    outputs: list[tuple[Sequence[int], mx.Dtype]],
    size: Triple | None = None,
    init_value: float | None = None,
) -> Launch:
    if max(grid) >= 2**32:
        raise ValueError(
            f"[{kernel.name}] the grid must have at most {2**32 - 1} threads on an axis but got {grid}."
        )
    options = {
        "template": list(template.items()),
        "grid": grid,
        "threadgroup": threadgroup(grid),
        "output_shapes": [tuple(shape) for shape, _ in outputs],
        "output_dtypes": [dtype for _, dtype in outputs],
        "init_value": init_value,
    }
    return Launch(kernel, size, options)


class Kernels:
    """The primitives, as kernels in one dialect."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect

    def pool(
        self, x: mx.array, g: WindowGeometry, index_dtype: mx.Dtype
    ) -> tuple[mx.array, mx.array]:
        """Values and indices of every window."""
        values, indices = _pool(x.shape, x.dtype, g, index_dtype)(self.dialect, x)
        return values, indices

    def pool_regions(
        self, x: mx.array, bounds: mx.array, g: RegionGeometry, index_dtype: mx.Dtype
    ) -> tuple[mx.array, mx.array]:
        """Values and flat indices of windows that lie where ``bounds`` says."""
        launch = _pool_regions(x.shape, x.dtype, bounds.shape[3], g, index_dtype)
        values, indices = launch(self.dialect, x, bounds)
        return values, indices

    def place(self, values: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        """Pooled values at their positions, zero elsewhere, the last one of several."""
        if not isinstance(g, WindowGeometry):
            return self.pick(values, self._owner(indices, g), g)
        strays, claims = self._strays(values, indices, g)
        launch = _place(values.shape, values.dtype, indices.dtype, g, False)
        return launch(self.dialect, values, indices, strays, claims)[0]

    def accumulate(self, values: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        """Pooled values at their positions, zero elsewhere, the sum of several.

        The indices must come from a pool: one that is not in its own window adds nothing.
        """
        if isinstance(g, WindowGeometry):
            launch = _place(values.shape, values.dtype, indices.dtype, g, True)
            return launch(self.dialect, values, indices, _nothing(), _nothing())[0]
        assert isinstance(g, RegionGeometry)
        covering = mx.array(g.covering, dtype=mx.int32)
        launch = _accumulate_regions(values.shape, values.dtype, indices.dtype, g)
        return launch(self.dialect, values, indices, covering)[0]

    def pick(self, full: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        """The full array at the recorded positions, zero where an index names none."""
        launch = _pick(full.shape, full.dtype, indices.shape, indices.dtype, g, False)
        return launch(self.dialect, full, indices, _nothing(), _nothing())[0]

    def pick_winners(self, full: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        """As :meth:`pick`, but zero for a pooled value whose position a later one names as well."""
        if isinstance(g, WindowGeometry):
            strays, claims = self._strays(full, indices, g)
            launch = _pick(full.shape, full.dtype, indices.shape, indices.dtype, g, True)
            return launch(self.dialect, full, indices, strays, claims)[0]
        owner = self.pick(self._owner(indices, g), indices, g)
        number = mx.arange(prod(g.pooled), dtype=mx.int32).reshape(1, *g.pooled, 1)
        picked = self.pick(full, indices, g)
        return mx.where(owner == number, picked, mx.zeros((), full.dtype))

    def _strays(
        self, values: mx.array, indices: mx.array, g: WindowGeometry
    ) -> tuple[mx.array, mx.array]:
        """Which channels of an image have an index from outside its window, and who wins there."""
        if is_window(indices.dtype):
            return _nothing(), _nothing()
        launch = _stray(indices.shape, values.dtype, indices.dtype, g)
        strays, claims = launch(self.dialect, indices)
        return strays, claims

    def _owner(self, indices: mx.array, g: Geometry) -> mx.array:
        """The number of the last pooled value that names each position, -1 where none does."""
        return _own(indices.shape, indices.dtype, g.size)(self.dialect, indices)[0]


# ---- what the launches are told


Shape = tuple[int, ...]  # (B, D, H, W, C)


@functools.lru_cache(_KEPT)
def _pool(shape: Shape, dtype: mx.Dtype, g: WindowGeometry, index_dtype: mx.Dtype) -> Launch:
    batch, *_, channels = shape
    columns = _columns(dtype, shape, g, g.pooled[2]) if g.window.dilation[2] == 1 else 1
    template = {
        "T": dtype,
        "I": index_dtype,
        "FLAT": not is_window(index_dtype),
        "INDEX": _index_type(index_dtype, g.size),
        **_share(dtype, shape, columns, g),
        "INSIDE": _inside(g, columns),
        "EVEN": g.pooled[2] % columns == 0,
        **_constants(g.window),
    }
    pooled = (batch, *g.pooled, channels)
    outputs = [(pooled, dtype), (pooled, index_dtype)]
    return _launch(POOL, template, _grid(dtype, pooled, columns), outputs, g.pooled)


@functools.lru_cache(_KEPT)
def _place(
    shape: Shape, dtype: mx.Dtype, index_dtype: mx.Dtype, g: WindowGeometry, add: bool
) -> Launch:
    batch, *_, channels = shape
    flat = not is_window(index_dtype)
    stride = g.window.stride
    tiles = tuple(max(n, -(-m // s)) for n, m, s in zip(g.pooled, g.size, stride))
    columns = _columns(dtype, shape, g, tiles[2], stride[2])
    whole = all(n * s == length for n, s, length in zip(g.pooled, stride, g.size))
    template = {
        "T": dtype,
        "ACC": _sum_type(dtype) if add and not g.window.disjoint else dtype,
        "SUM": add,
        "FLAT": flat,
        "STRAY": flat and not add,
        "INDEX": _index_type(index_dtype, g.size),
        "NAMED": _index_type(index_dtype, g.size) if flat else mx.uint16,
        **_share(dtype, shape, columns, g),
        "WHOLE": whole and tiles[2] % columns == 0,
        **_constants(g.window),
    }
    grid = _grid(dtype, (batch, *tiles, channels), columns)
    return _launch(PLACE, template, grid, [((batch, *g.size, channels), dtype)], g.size)


@functools.lru_cache(_KEPT)
def _pick(
    shape: Shape,
    dtype: mx.Dtype,
    pooled: Shape,
    index_dtype: mx.Dtype,
    g: Geometry,
    winners: bool,
) -> Launch:
    flat = not is_window(index_dtype)
    if not isinstance(g, WindowGeometry) or (flat and not winners):
        g = WindowGeometry(shape[1:4], pooled[1:4], Window())  # flat indices need no window
    columns = _columns(dtype, shape, g, pooled[3])
    index = _index_type(index_dtype, g.size)
    template = {
        "T": dtype,
        "FLAT": flat,
        "NAMED": index if flat else mx.uint16,
        "NUMBER": index if flat else mx.int32,
        "WINNERS": winners,
        "STRAY": flat and winners,
        **_share(dtype, shape, columns, g),
        "INSIDE": flat or _inside(g, columns),
        "EVEN": pooled[3] % columns == 0,
        **_constants(g.window),
    }
    return _launch(PICK, template, _grid(dtype, pooled, columns), [(pooled, dtype)])


@functools.lru_cache(_KEPT)
def _stray(shape: Shape, dtype: mx.Dtype, index_dtype: mx.Dtype, g: WindowGeometry) -> Launch:
    batch, *_, channels = shape
    columns = _columns(dtype, shape, g, g.pooled[2])
    template = {
        "INDEX": _index_type(index_dtype, g.size),
        **_share(dtype, shape, columns, g),
        "INSIDE": _inside(g, columns),
        "EVEN": g.pooled[2] % columns == 0,
        **_constants(g.window),
    }
    words = sum(-(-prod(axes) // 32) for axes in (g.size, g.pooled))
    strays = (batch, -(-channels // _lanes(dtype, channels)))
    outputs = [(strays, mx.uint32), ((batch, channels, words), mx.uint32)]
    return _launch(STRAY, template, _grid(dtype, shape, columns), outputs, g.size, init_value=0)


@functools.lru_cache(_KEPT)
def _own(shape: Shape, index_dtype: mx.Dtype, size: Triple) -> Launch:
    batch, *pooled, channels = shape
    template = {
        "INDEX": _index_type(index_dtype, size),
        "V": min(4, channels),
        "OFFSET": _offset_type(shape, WindowGeometry(size, tuple(pooled), Window())),
    }
    grid = (pooled[2] * -(-channels // min(4, channels)), pooled[0] * pooled[1], batch)
    return _launch(OWN, template, grid, [((batch, *size, channels), mx.int32)], size, init_value=-1)


@functools.lru_cache(_KEPT)
def _pool_regions(
    shape: Shape, dtype: mx.Dtype, columns: int, g: RegionGeometry, index_dtype: mx.Dtype
) -> Launch:
    batch, *_, channels = shape
    pooled = (batch, *g.pooled, channels)
    return _launch(
        POOL_REGIONS,
        {"T": dtype, "I": index_dtype},
        (g.pooled[2] * channels, g.pooled[0] * g.pooled[1], batch),
        [(pooled, dtype), (pooled, index_dtype)],
        g.pooled,
    )


@functools.lru_cache(_KEPT)
def _accumulate_regions(
    shape: Shape, dtype: mx.Dtype, index_dtype: mx.Dtype, g: RegionGeometry
) -> Launch:
    batch, *_, channels = shape
    template = {"T": dtype, "ACC": _sum_type(dtype), "INDEX": _index_type(index_dtype, g.size)}
    return _launch(
        ACCUMULATE_REGIONS,
        template,
        (g.size[2] * channels, g.size[0] * g.size[1], batch),
        [((batch, *g.size, channels), dtype)],
        g.size,
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


def _index_type(index_dtype: mx.Dtype, size: Sequence[int]) -> mx.Dtype:
    """The type that holds every index that names a position.

    A uint32 above that type's range becomes negative in it, so it still names none.
    """
    narrow = index_dtype.size <= 4 and flat_dtype(tuple(size)) == mx.int32
    return mx.int32 if narrow else mx.int64


def _offset_type(shape: Shape, g: WindowGeometry) -> mx.Dtype:
    """The type that numbers the elements of every array: arithmetic in 64 bits is slow on a GPU.

    Windows and tiles may stand over the edges of a plane, and a thread may have more of them than there are.
    """
    axes = zip(g.size, g.pooled, g.window.stride, g.window.padding, g.window.span)
    most = prod(max(n, m) + 2 * (s + p + span) + 8 for n, m, s, p, span in axes)
    return mx.int32 if shape[0] * shape[4] * most < 2**31 else mx.int64


def _sum_type(dtype: mx.Dtype) -> mx.Dtype:
    """The type to add up in."""
    return mx.float32 if dtype in (mx.float16, mx.bfloat16) else dtype


def _lanes(dtype: mx.Dtype, channels: int) -> int:
    """How many neighbouring channels a thread takes."""
    # 16 bytes a thread: two lines of 128 bytes for 32 threads of float32 at 4 channels each.
    return max(1, min(16 // dtype.size, 8, channels))


def _columns(dtype: mx.Dtype, shape: Shape, g: WindowGeometry, width: int, tile: int = 1) -> int:
    """How many neighbouring windows, or tiles of outputs, a thread takes: more where channels are few.

    A number that divides all of them spares the kernel the question which are there.
    """
    most = _power_of_two(min(16 // dtype.size, 8) // shape[4] // tile)
    run = most * g.window.stride[2] + 2 * g.window.span[2]
    if run > min(prod(g.size), prod(g.pooled)) * shape[0]:  # tiny arrays
        return 1
    return next((n for n in (most, most // 2) if n > 1 and width % n == 0), most)


def _share(dtype: mx.Dtype, shape: Shape, columns: int, g: WindowGeometry) -> dict[str, Any]:
    """What a thread takes, and the type that says where it lies."""
    lanes = _lanes(dtype, shape[4])
    return {
        "V": lanes,
        "TAIL": shape[4] % lanes != 0,
        "ONE": shape[4] == lanes,
        "X": columns,
        "RUN": columns > 1,
        "PLANAR": g.size[0] == g.pooled[0] == 1,
        "OFFSET": _offset_type(shape, g),
    }


def _grid(dtype: mx.Dtype, shape: Shape, columns: int) -> tuple[int, int, int]:
    batch, d, h, w, channels = shape
    return -(-w // columns) * -(-channels // _lanes(dtype, channels)), d * h, batch


def _inside(g: WindowGeometry, columns: int) -> bool:
    """Whether no window stands over the edge, not even one that a thread at the end of a row has too many."""
    counts = (*g.pooled[:2], -(-g.pooled[2] // columns) * columns)
    axes = zip(counts, g.size, g.window.stride, g.window.padding, g.window.span)
    return all(p == 0 and (n - 1) * s + span <= length for n, length, s, p, span in axes)


def _constants(window: Window) -> dict[str, int]:
    parameters = (window.kernel, window.stride, window.padding, window.dilation)
    return {
        letter + axis: number
        for letter, numbers in zip("KSPD", parameters)
        for axis, number in zip("DHW", numbers)
    }


def _nothing() -> mx.array:
    return mx.array([0], dtype=mx.uint32)


def _stream() -> Any:
    """The current stream, or a stand-in for one where a graph is traced without a GPU."""
    device = mx.default_device()
    return mx.default_stream(device) if device.type == mx.gpu else mx.gpu
