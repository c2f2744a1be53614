"""The primitives as GPU kernels: one text in ``metal/``, run through Metal or CUDA.

A call costs the GPU one launch or a few. What a launch needs to be told besides its arrays depends on shapes, dtypes
and windows alone: it is worked out once, and kept.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import mlx.core as mx

from .._geometry import Regions, Triple, Window
from .._indices import flat_dtype, is_window
from .._kernels import text

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
        self, x: mx.array, window: Window, cells: Triple, index_dtype: mx.Dtype
    ) -> tuple[mx.array, mx.array]:
        """Values and indices of every window."""
        launch = _pool(x.shape, x.dtype, window, cells, index_dtype)
        values, indices = launch(self.dialect, x)
        return values, indices

    def pool_regions(
        self, x: mx.array, bounds: mx.array, regions: Regions, index_dtype: mx.Dtype
    ) -> tuple[mx.array, mx.array]:
        """Values and flat indices of windows that lie where ``bounds`` says."""
        launch = _pool_regions(x.shape, x.dtype, bounds.shape[3], regions.cells, index_dtype)
        values, indices = launch(self.dialect, x, bounds)
        return values, indices

    def place(
        self, values: mx.array, indices: mx.array, window: Window | None, size: Triple
    ) -> mx.array:
        """Pooled values at their positions, zero elsewhere, the last one of several."""
        if window is None:
            return self.pick(values, self._owner(indices, size), Window())
        strays, claims = self._strays(values, indices, window, size)
        launch = _place(values.shape, values.dtype, indices.dtype, window, size, False)
        return launch(self.dialect, values, indices, strays, claims)[0]

    def accumulate(
        self, values: mx.array, indices: mx.array, window: Window | Regions, size: Triple
    ) -> mx.array:
        """Pooled values at their positions, zero elsewhere, the sum of several.

        The indices must come from a pool: one that is not in its own window adds nothing.
        """
        if isinstance(window, Window):
            launch = _place(values.shape, values.dtype, indices.dtype, window, size, True)
            return launch(self.dialect, values, indices, _nothing(), _nothing())[0]
        covering = mx.array(window.covering, dtype=mx.int32)
        launch = _accumulate_regions(values.shape, values.dtype, indices.dtype, size)
        return launch(self.dialect, values, indices, covering)[0]

    def pick(self, full: mx.array, indices: mx.array, window: Window | Regions) -> mx.array:
        """The full array at the recorded positions, zero where an index names none."""
        if isinstance(window, Regions):
            window = Window()  # flat indices need none
        launch = _pick(full.shape, full.dtype, indices.shape[1:4], indices.dtype, window, False)
        return launch(self.dialect, full, indices, _nothing(), _nothing())[0]

    def pick_winners(self, full: mx.array, indices: mx.array, window: Window | None) -> mx.array:
        """As :meth:`pick`, but zero for a pooled value whose position a later one names as well."""
        size = full.shape[1:4]
        if window is not None:
            strays, claims = self._strays(full, indices, window, size)
            launch = _pick(full.shape, full.dtype, indices.shape[1:4], indices.dtype, window, True)
            return launch(self.dialect, full, indices, strays, claims)[0]
        owner = self.pick(self._owner(indices, size), indices, Window())
        cells = indices.shape[1:4]
        number = mx.arange(prod(cells), dtype=mx.int32).reshape(1, *cells, 1)
        picked = self.pick(full, indices, Window())
        return mx.where(owner == number, picked, mx.zeros((), full.dtype))

    def _strays(
        self, values: mx.array, indices: mx.array, window: Window, size: Triple
    ) -> tuple[mx.array, mx.array]:
        """Which channels of an image have an index from outside its window, and who wins there."""
        if is_window(indices.dtype):
            return _nothing(), _nothing()
        launch = _stray(indices.shape, values.dtype, indices.dtype, window, size)
        strays, claims = launch(self.dialect, indices)
        return strays, claims

    def _owner(self, indices: mx.array, size: Triple) -> mx.array:
        """The number of the last pooled value that names each position, -1 where none does."""
        return _own(indices.shape, indices.dtype, size)(self.dialect, indices)[0]


# ---- what the launches are told


@functools.lru_cache(_KEPT)
def _pool(
    shape: tuple[int, ...], dtype: mx.Dtype, window: Window, cells: Triple, index_dtype: mx.Dtype
) -> Launch:
    batch, *size, channels = shape
    columns = _columns(dtype, channels, cells[2]) if window.dilation[2] == 1 else 1
    pooled = (batch, *cells, channels)
    template = {
        "T": dtype,
        "I": index_dtype,
        "FLAT": not is_window(index_dtype),
        "INDEX": _index_type(index_dtype, size),
        **_share(dtype, channels, columns, cells[0] == size[0] == 1),
        "EVEN": cells[2] % columns == 0,
        "INSIDE": _inside(window, cells, size, columns),
        **_constants(window),
        "OFFSET": _offset_type(batch * channels, window, size, cells),
    }
    outputs = [(pooled, dtype), (pooled, index_dtype)]
    return _launch(POOL, template, _grid(dtype, pooled, columns), outputs, cells)


@functools.lru_cache(_KEPT)
def _place(
    shape: tuple[int, ...],
    dtype: mx.Dtype,
    index_dtype: mx.Dtype,
    window: Window,
    size: Triple,
    add: bool,
) -> Launch:
    batch, *cells, channels = shape
    
    flat = not is_window(index_dtype)
    tiles = _tiles(window, size, cells)
    columns = _columns(dtype, channels, tiles[2], window.stride[2])
    whole = all(n * s == length for n, s, length in zip(cells, window.stride, size))
    template = {
        "T": dtype,
        "ACC": _sum_type(dtype) if add and not window.disjoint else dtype,
        "SUM": add,
        "FLAT": flat,
        "STRAY": flat and not add,
        "INDEX": _index_type(index_dtype, size),
        "NAMED": _index_type(index_dtype, size) if flat else mx.uint16,
        **_share(dtype, channels, columns, tiles[0] == 1),
        "WHOLE": whole and tiles[2] % columns == 0,
        **_constants(window),
        "OFFSET": _offset_type(batch * channels, window, size, cells),
    }
    grid = _grid(dtype, (batch, *tiles, channels), columns)
    return _launch(PLACE, template, grid, [((batch, *size, channels), dtype)], size)


@functools.lru_cache(_KEPT)
def _pick(
    shape: tuple[int, ...],
    dtype: mx.Dtype,
    cells: Triple,
    index_dtype: mx.Dtype,
    window: Window,
    winners: bool,
) -> Launch:
    batch, *size, channels = shape
    flat = not is_window(index_dtype)
    if flat and not winners:
        window = Window()  # flat indices need none
    columns = _columns(dtype, channels, cells[2])
    index = _index_type(index_dtype, size)
    template = {
        "T": dtype,
        "FLAT": flat,
        "NAMED": index if flat else mx.uint16,
        "NUMBER": index if flat else mx.int32,
        "WINNERS": winners,
        "STRAY": flat and winners,
        **_share(dtype, channels, columns, cells[0] == size[0] == 1),
        "EVEN": cells[2] % columns == 0,
        "INSIDE": flat or _inside(window, cells, size, columns),
        **_constants(window),
        "OFFSET": _offset_type(batch * channels, window, size, cells),
    }
    pooled = (batch, *cells, channels)
    return _launch(PICK, template, _grid(dtype, pooled, columns), [(pooled, dtype)])


@functools.lru_cache(_KEPT)
def _stray(
    shape: tuple[int, ...], dtype: mx.Dtype, index_dtype: mx.Dtype, window: Window, size: Triple
) -> Launch:
    batch, *cells, channels = shape
    columns = _columns(dtype, channels, cells[2])
    template = {
        "INDEX": _index_type(index_dtype, size),
        **_share(dtype, channels, columns, cells[0] == size[0] == 1),
        "EVEN": cells[2] % columns == 0,
        "INSIDE": _inside(window, cells, size, columns),
        **_constants(window),
        "OFFSET": _offset_type(batch * channels, window, size, cells),
    }
    words = sum(-(-prod(axes) // 32) for axes in (size, cells))
    return _launch(
        STRAY,
        template,
        _grid(dtype, shape, columns),
        [
            ((batch, -(-channels // _lanes(dtype, channels))), mx.uint32),
            ((batch, channels, words), mx.uint32),
        ],
        size,
        init_value=0,
    )


@functools.lru_cache(_KEPT)
def _own(shape: tuple[int, ...], index_dtype: mx.Dtype, size: Triple) -> Launch:
    batch, *cells, channels = shape
    template = {
        "INDEX": _index_type(index_dtype, size),
        "V": min(4, channels),
        "OFFSET": _offset_type(batch * channels, Window(), size, cells),
    }
    grid = (cells[2] * -(-channels // min(4, channels)), cells[0] * cells[1], batch)
    return _launch(OWN, template, grid, [((batch, *size, channels), mx.int32)], size, init_value=-1)


@functools.lru_cache(_KEPT)
def _pool_regions(
    shape: tuple[int, ...],
    dtype: mx.Dtype,
    bounds_columns: int,
    cells: Triple,
    index_dtype: mx.Dtype,
) -> Launch:
    batch, *_, channels = shape
    pooled = (batch, *cells, channels)
    return _launch(
        POOL_REGIONS,
        {"T": dtype, "I": index_dtype},
        (cells[2] * channels, cells[0] * cells[1], batch),
        [(pooled, dtype), (pooled, index_dtype)],
        cells,
    )


@functools.lru_cache(_KEPT)
def _accumulate_regions(
    shape: tuple[int, ...], dtype: mx.Dtype, index_dtype: mx.Dtype, size: Triple
) -> Launch:
    batch, *_, channels = shape
    template = {"T": dtype, "ACC": _sum_type(dtype), "INDEX": _index_type(index_dtype, size)}
    return _launch(
        ACCUMULATE_REGIONS,
        template,
        (size[2] * channels, size[0] * size[1], batch),
        [((batch, *size, channels), dtype)],
        size,
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


def _offset_type(
    planes: int, window: Window, size: Sequence[int], cells: Sequence[int]
) -> mx.Dtype:
    """The type that numbers the elements of every array: arithmetic in 64 bits is slow on a GPU.

    Windows and tiles may stand over the edges of a plane, and a thread may have more of them than there are.
    """
    margins = [2 * (s + p + n) for s, p, n in zip(window.stride, window.padding, window.span)]
    most = planes * prod(max(n, m) + margin + 8 for n, m, margin in zip(size, cells, margins))
    return mx.int32 if most < 2**31 else mx.int64


def _sum_type(dtype: mx.Dtype) -> mx.Dtype:
    """The type to add up in."""
    return mx.float32 if dtype in (mx.float16, mx.bfloat16) else dtype


def _lanes(dtype: mx.Dtype, channels: int) -> int:
    """How many neighbouring channels a thread takes."""
    # 16 bytes a thread: two lines of 128 bytes for 32 threads of float32 at 4 channels each.
    return max(1, min(16 // dtype.size, 8, channels))


def _columns(dtype: mx.Dtype, channels: int, width: int, tile: int = 1) -> int:
    """How many neighbouring windows, or tiles of outputs, a thread takes: more where channels are few.

    A number that divides all of them spares the kernel the question which are there.
    """
    most = _power_of_two(min(16 // dtype.size, 8) // channels // tile)
    return next((n for n in (most, most // 2) if n > 1 and width % n == 0), most)


def _share(dtype: mx.Dtype, channels: int, columns: int, planar: bool) -> dict[str, Any]:
    """What a thread takes."""
    lanes = _lanes(dtype, channels)
    return {
        "V": lanes,
        "TAIL": channels % lanes != 0,
        "ONE": channels == lanes,
        "X": columns,
        "PLANAR": planar,
    }


def _grid(dtype: mx.Dtype, shape: Sequence[int], columns: int) -> tuple[int, int, int]:
    batch, d, h, w, channels = shape
    return -(-w // columns) * -(-channels // _lanes(dtype, channels)), d * h, batch


def _tiles(window: Window, size: Sequence[int], cells: Sequence[int]) -> Triple:
    """The number of tiles of outputs, each as large as the stride, on each axis: no fewer than the windows."""
    return tuple(
        max(count, -(-length // s)) for count, length, s in zip(cells, size, window.stride)
    )


def _inside(window: Window, cells: Sequence[int], size: Sequence[int], columns: int) -> bool:
    """Whether no window stands over the edge, not even one that a thread at the end of a row has too many."""
    counts = (*cells[:2], -(-cells[2] // columns) * columns)
    return all(
        p == 0 and (count - 1) * s + span <= length
        for count, length, s, p, span in zip(
            counts, size, window.stride, window.padding, window.span
        )
    )


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
