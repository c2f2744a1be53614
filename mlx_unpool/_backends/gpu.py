"""The primitives as GPU kernels: one source in ``metal/``, run through Metal or CUDA.

A call launches one or a few kernels. Template arguments, grid and output shapes depend only on shapes, dtypes
and windows, so launches are cached.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt, prod
from typing import Any, TypeGuard

import mlx.core as mx

from .._bounds import bounds_array
from .._geometry import AdaptiveWindowGeometry, Geometry, RegionGeometry, Window, WindowGeometry
from .._types import TRAITS, Rule, is_window
from .kernel_source import text

HEADERS = ("windows.h", "memory.h", "order.h")  # included by every kernel, after metal.h or cuda.h

_MAX_AXIS_THREADS = 2**31 - 1  # per grid axis: MLX stores the number in a C int
_MAX_THREADGROUP, _MAX_DEEP = 1024, 64  # threads per threadgroup, and along its third axis
_USUAL_THREADGROUP, _ROWS = 256, 4  # threads of a usual threadgroup, and its rows
_MAX_BLOCKS = 65535  # along the second and third axis of a CUDA grid
_LAUNCH_CACHE_SIZE = 1024  # launches of each kind
_MAX_ELEMENTS = 64  # elements of the largest window that one thread reads
_MAX_AT_ONCE = 4  # of these, loaded at once if windows are not constants
_MAX_NEIGHBOURS = 27  # windows that overlap with a window, itself included, if one thread compares them
_MAX_OUTPUTS = 16  # outputs of the largest tile that one thread writes
_MAX_NUMBER = 2**31 - 1  # pooled values per plane, whose numbers are int32
_MAX_LOADED = 8  # elements per row that a thread with several windows reads, at most
_FULL_GPU_THREADS = 2**16  # threads that occupy a GPU fully
_MAX_UNROLLED = 9  # elements of the largest window whose loop is unrolled
_SHARED_ROWS = 2  # rows of overlapping large windows per thread; twice as many in 3-D
_MIN_SPLIT, _MAX_SPLIT = 64, 1024  # threads per channel in outside_winners, fewer if there are many channels


@dataclass(frozen=True)
class Kernel:
    """The name of a kernel's file, and its arrays in the order of its arguments."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    atomic: bool = False  # whether several threads update one output


POOL = Kernel("pool", ("x", "size"), ("out", "indices"))
POOL_ANY = Kernel("pool_any", ("x", "bounds", "window", "starts", "size"), ("out", "indices"))
POOL_CHUNKS = Kernel("pool_chunks", ("values", "numbers", "size"), ("out", "indices"))
PLACE = Kernel("place", ("values", "indices", "outside_window", "winner_bits", "size"), ("out",))
ACCUMULATE_REGIONS = Kernel(
    "accumulate_regions", ("values", "indices", "covering", "window", "starts", "size"), ("out",)
)
PICK = Kernel("pick", ("full", "indices", "outside_window", "winner_bits", "winner"), ("out",))
OUTSIDE_WINDOW = Kernel("outside_window", ("indices", "size"), ("outside_window",), atomic=True)
OUTSIDE_WINNERS = Kernel(
    "outside_winners", ("indices", "outside_window", "size"), ("winner_bits",), atomic=True
)
LAST_WRITER = Kernel("last_writer", ("indices", "window", "starts", "size"), ("winner",), atomic=True)
KERNELS = (
    *(POOL, POOL_ANY, POOL_CHUNKS),
    *(PLACE, ACCUMULATE_REGIONS, PICK, OUTSIDE_WINDOW, OUTSIDE_WINNERS, LAST_WRITER),
)


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
    return mx.fast.metal_kernel(
        **arguments, atomic_outputs=kernel.atomic, compile_options={"math_mode": "safe"}
    )


def _aligned(x: mx.array) -> mx.array:
    """``x``, or a copy of it if MLX would pass it in Metal's constant memory, possibly misaligned.

    MLX passes arrays of fewer than 8 elements there. They must begin at a multiple of 4 bytes.
    """
    return mx.concatenate([x, x])[: len(x)] if x.size < 8 and x.itemsize < 4 else x


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel, its template arguments, grid and output shapes."""

    kernel: Kernel
    grid: tuple[int, int, int]
    numbers: tuple[tuple[int, ...], ...]  # integers, the inputs after the arrays
    options: dict[str, Any]

    def __call__(self, dialect: str, *arrays: mx.array) -> Any:
        if dialect == "metal":
            arrays = tuple(map(_aligned, arrays))
        inputs = [*arrays, *(mx.array(numbers, mx.int32) for numbers in self.numbers)]
        group = threadgroup(self.grid, dialect, self.kernel.name)
        threads = {"grid": self.grid, "threadgroup": group}
        kernel = _build(dialect, self.kernel)
        return tuple(kernel(inputs=inputs, **threads, **self.options, stream=_stream()))


def _launch(
    kernel: Kernel,
    template: dict[str, Any],
    grid: tuple[int, int, int],
    outputs: Sequence[tuple[Sequence[int], mx.Dtype]],
    *numbers: tuple[int, ...],
    init_value: float | None = None,
) -> Launch:
    options = {
        "template": list(template.items()),
        "output_shapes": [tuple(shape) for shape, _ in outputs],
        "output_dtypes": [dtype for _, dtype in outputs],
        "init_value": init_value,
    }
    return Launch(kernel, grid, numbers, options)


class Kernels:
    """The primitives as kernels in one language (dialect), ``"metal"`` or ``"cuda"``."""

    on_gpu = True

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect

    def pool(
        self, source: Sequence[mx.array], g: Geometry, index_dtype: mx.Dtype | None
    ) -> tuple[mx.array, mx.array]:
        """See ``Backend``. Without ``index_dtype`` the second array has one element and is not used."""
        x, *bounds = source
        if isinstance(g, WindowGeometry) and not _is_large(g):
            return _pool(x.shape, x.dtype, g, index_dtype)(self.dialect, x)
        columns = bounds[0].shape[3] if bounds else 1
        first, *rest = _pool_any(x.shape, x.dtype, columns, g, index_dtype)
        parts = first(self.dialect, x, *bounds or [_no_array()])
        return rest[0](self.dialect, *parts) if rest else parts

    def pool_values(self, source: Sequence[mx.array], g: Geometry) -> mx.array:
        """See ``Backend``."""
        return self.pool(source, g, None)[0]

    def scatter(self, values: mx.array, indices: mx.array, g: Geometry, rule: Rule) -> mx.array:
        """See ``Backend``. An index outside its own window adds nothing to a sum."""
        if _has_tiles(g):
            outside = self._outside_window(values.dtype, indices, g, rule)
            launch = _place(values.shape, values.dtype, indices.dtype, g, rule)
            return launch(self.dialect, values, indices, *outside)[0]
        if rule == "last":
            return self.gather(values, self._winner(indices, g), g, "sum")
        covering = _no_array()
        if isinstance(g, RegionGeometry):
            covering = bounds_array(g.covering_table, g.covering, g.size)
        launch = _accumulate_regions(values.shape, values.dtype, indices.dtype, g)
        return launch(self.dialect, values, indices, covering)[0]

    def gather(self, full: mx.array, indices: mx.array, g: Geometry, rule: Rule) -> mx.array:
        """See ``Backend``."""
        found_in, outside, winner = "", [_no_array()] * 2, _no_array()
        if rule == "last" and _has_tiles(g) and _has_few_neighbours(g.window):
            found_in, outside = "neighbours", self._outside_window(full.dtype, indices, g, rule)
        elif rule == "last":
            found_in, winner = "numbers", self._winner(indices, g)
        launch = _pick(full.shape, full.dtype, indices.shape, indices.dtype, g, found_in)
        return launch(self.dialect, full, indices, *outside, winner)[0]

    def _outside_window(
        self, dtype: mx.Dtype, indices: mx.array, g: WindowGeometry, rule: Rule
    ) -> list[mx.array]:
        """The outputs of the kernels ``outside_window`` and ``outside_winners``."""
        if rule == "sum" or is_window(indices.dtype):
            return [_no_array()] * 2
        mark, find = _outside_window(indices.shape, dtype, indices.dtype, g)
        (outside_window,) = mark(self.dialect, indices)
        return [outside_window, *find(self.dialect, indices, outside_window)]

    def _winner(self, indices: mx.array, g: Geometry) -> mx.array:
        """The number of the last pooled value at each position, -1 if there is none."""
        return _last_writer(indices.shape, indices.dtype, g)(self.dialect, indices)[0]


# ---- launches: template arguments, grids and output shapes


Shape = tuple[int, ...]  # (B, D, H, W, C)


@functools.lru_cache(_LAUNCH_CACHE_SIZE)
def _pool(shape: Shape, dtype: mx.Dtype, g: WindowGeometry, index_dtype: mx.Dtype | None) -> Launch:
    batch, *_, channels = shape
    columns = _columns(dtype, shape, g, g.pooled[2])
    while columns > 1 and (columns - 1) * g.window.stride[2] + g.window.span[2] > _MAX_LOADED:
        columns //= 2
    if g.window.dilation[2] > 1:
        columns = 1
    rows, flat = _rows(g), index_dtype is None or not is_window(index_dtype)
    outputs, template = _pooled((batch, *g.pooled, channels), dtype, index_dtype)
    template |= {
        "FLAT": flat,
        "WHERE": _index_type(index_dtype, g) if flat else mx.uint16,
        "INDEX": _index_type(index_dtype, g),
        **_work_template(dtype, shape, columns, g),
        "INSIDE": _inside(g, columns),
        "EVEN": g.pooled[2] % columns == 0,
        "Y": rows,
        **_constants(g.window),
    }
    d, h, w = g.pooled
    grid = _grid(template["V"], (batch, d, -(-h // rows), w, channels), columns)
    return _launch(POOL, template, grid, outputs, g.pooled)


@functools.lru_cache(_LAUNCH_CACHE_SIZE)
def _place(shape: Shape, dtype: mx.Dtype, index_dtype: mx.Dtype, g: WindowGeometry, rule: Rule) -> Launch:
    batch, *_, channels = shape
    flat, stride, tiles = not is_window(index_dtype), g.window.stride, _tiles(g)
    columns = _columns(dtype, shape, g, tiles[2], stride[2])
    if g.window.dilation[2] > stride[2]:
        columns = 1  # the windows of a tile are not neighbours
    acc, lanes = _place_work(dtype, channels, g.window, rule)
    whole = all(n * s == length for n, s, length in zip(g.pooled, stride, g.size))
    template: dict[str, Any] = {
        "T": dtype,
        "ACC": acc,
        "SUM": rule == "sum",
        "FLAT": flat,
        "OUTSIDE": flat and rule == "last",
        "INDEX": _index_type(index_dtype, g),
        "NAMED": _index_type(index_dtype, g) if flat else mx.int32,
        **_work_template(dtype, shape, columns, g, lanes),
        "WHOLE": whole and tiles[2] % columns == 0,
        **_constants(g.window),
    }
    grid = _grid(lanes, (batch, *tiles, channels), columns)
    return _launch(PLACE, template, grid, [((batch, *g.size, channels), dtype)], g.size)


def _place_work(dtype: mx.Dtype, channels: int, window: Window, rule: Rule) -> tuple[mx.Dtype, int]:
    """The accumulation dtype of ``place`` and its number of channels per thread."""
    lanes, tile = _lanes(dtype, channels), prod(window.stride)
    if rule == "last" or window.disjoint:
        return dtype, lanes
    acc = TRAITS[dtype].accumulation
    # The sums of a larger tile in a wider dtype take many registers.
    return acc, min(lanes, 4) if acc.size > dtype.size and tile > 1 else lanes


@functools.lru_cache(_LAUNCH_CACHE_SIZE)
def _pick(
    shape: Shape, dtype: mx.Dtype, pooled: Shape, index_dtype: mx.Dtype, g: Geometry, found_in: str
) -> Launch:
    """``found_in``: how overwritten values are found: ``"neighbours"``, ``"numbers"`` or ``""`` (not)."""
    flat = not is_window(index_dtype)
    if not isinstance(g, WindowGeometry) or (flat and found_in != "neighbours"):
        g = _without_window(g)  # flat indices do not need it
    columns = _columns(dtype, shape, g, pooled[3])
    index = _index_type(index_dtype, g)
    template: dict[str, Any] = {
        "T": dtype,
        "FLAT": flat,
        "NAMED": index if flat else mx.uint16,
        "LATER": found_in == "neighbours" and not g.window.disjoint,
        "OUTSIDE": flat and found_in == "neighbours",
        "HAS_WINNER": found_in == "numbers",
        **_work_template(dtype, shape, columns, g),
        "INSIDE": flat or _inside(g, columns),
        "EVEN": pooled[3] % columns == 0,
        **_constants(g.window),
    }
    return _launch(PICK, template, _grid(template["V"], pooled, columns), [(pooled, dtype)])


@functools.lru_cache(_LAUNCH_CACHE_SIZE)
def _outside_window(
    shape: Shape, dtype: mx.Dtype, index_dtype: mx.Dtype, g: WindowGeometry
) -> tuple[Launch, Launch]:
    """The launches of the kernels ``outside_window`` and ``outside_winners``."""
    batch, *_, channels = shape
    columns = _columns(dtype, shape, g, g.pooled[2])
    index = _index_type(index_dtype, g)
    work = _work_template(dtype, shape, columns, g)
    template: dict[str, Any] = {
        "INDEX": index,
        **work,
        "INSIDE": _inside(g, columns),
        "EVEN": g.pooled[2] % columns == 0,
        **_constants(g.window),
    }
    outputs = [((batch, -(-channels // work["V"])), mx.uint32)]
    grid = _grid(work["V"], shape, columns)
    mark = _launch(OUTSIDE_WINDOW, template, grid, outputs, g.size, init_value=0)

    # Each thread reads all indices of its channel, and a SIMD group waits for the updates of its 32 threads
    # one after the other. With more threads per channel, all threads together read more and each waits less.
    # Estimated from machine code, the sum is lowest with about 1024 / sqrt(channels) threads in large planes.
    most = min(max(_MIN_SPLIT, prod(g.pooled) // 256), isqrt(_MAX_SPLIT**2 // (batch * channels)))
    threads = _power_of_two(most)
    words = sum(-(-prod(axes) // 32) for axes in (g.size, g.pooled))
    find = _launch(
        OUTSIDE_WINNERS,
        {"INDEX": index, "OFFSET": work["OFFSET"]},
        (threads * channels, 1, batch),
        [((batch, channels, words), mx.uint32)],
        (*g.size, work["V"], threads),
        init_value=0,
    )
    return mark, find


@functools.lru_cache(_LAUNCH_CACHE_SIZE)
def _last_writer(shape: Shape, index_dtype: mx.Dtype, g: Geometry) -> Launch:
    batch, *_, channels = shape
    template: dict[str, Any] = {
        "FLAT": not is_window(index_dtype),
        "INDEX": _index_type(index_dtype, g),
        "V": min(4, channels),
        "OFFSET": _offset_type(shape, g),
        "AXIS": _axis_type(g),
    }
    if prod(g.pooled) > _MAX_NUMBER:
        raise ValueError(
            f"[{LAST_WRITER.name}] a plane must have at most {_MAX_NUMBER} pooled values but got {g.pooled}."
        )
    grid = (g.pooled[2] * -(-channels // template["V"]), g.pooled[0] * g.pooled[1], batch)
    outputs = [((batch, *g.size, channels), mx.int32)]
    return _launch(LAST_WRITER, template, grid, outputs, *_window_of(g), g.size, init_value=-1)


@functools.lru_cache(_LAUNCH_CACHE_SIZE)
def _pool_any(
    shape: Shape, dtype: mx.Dtype, columns: int, g: Geometry, index_dtype: mx.Dtype | None
) -> list[Launch]:
    """One launch, or two if each window is divided into chunks for several threads."""
    batch, *_, channels = shape
    d, h, w = g.pooled
    # Each channel needs its own thread if channels have different windows.
    lanes = _lanes(dtype, channels) if columns == 1 else 1
    groups = -(-channels // lanes)
    longest = g.longest if isinstance(g, RegionGeometry) else _window_of(g)[0][:3]
    elements, chunks = prod(longest), 1
    if elements > _MAX_ELEMENTS:
        # At most the root of the number of elements, and no more threads than fill a GPU.
        most = _FULL_GPU_THREADS // (batch * d * h * w * groups)
        chunks = max(1, min(_power_of_two(int(elements**0.5)), most))
    number_type = _index_type(index_dtype, g)
    template: dict[str, Any] = {
        "FLAT": index_dtype is None or not is_window(index_dtype),
        "INDEX": number_type,
        **_work_template(dtype, shape, 1, g, lanes),
        "OFFSET": _offset_type(shape, g, chunks),
    }
    first, size = template | {"REGIONS": isinstance(g, RegionGeometry)}, (*g.pooled, chunks)
    first |= {"AT_ONCE": min(longest[2], _MAX_AT_ONCE), "SPLIT": chunks > 1}
    grid, part_grid = ((n * groups, d * h, batch) for n in (w, w * chunks))
    outputs, types = _pooled((batch, *g.pooled, channels), dtype, index_dtype)
    if chunks == 1:
        return [_launch(POOL_ANY, first | types, grid, outputs, *_window_of(g), size)]
    parts, part_types = _pooled((batch, d, h, w * chunks, channels), dtype, number_type)
    return [
        _launch(POOL_ANY, first | part_types, part_grid, parts, *_window_of(g), size),
        _launch(POOL_CHUNKS, template | types, grid, outputs, size),
    ]


def _pooled(shape: Shape, dtype: mx.Dtype, index_dtype: mx.Dtype | None) -> tuple[Any, Any]:
    """The outputs of a pool and the template arguments that describe them."""
    if index_dtype is None:  # values only; the second output, of one element, is not used
        return [(shape, dtype), ((1,), mx.uint8)], {"T": dtype, "I": mx.uint8, "VALUES": True}
    return [(shape, dtype), (shape, index_dtype)], {"T": dtype, "I": index_dtype, "VALUES": False}


@functools.lru_cache(_LAUNCH_CACHE_SIZE)
def _accumulate_regions(shape: Shape, dtype: mx.Dtype, index_dtype: mx.Dtype, g: Geometry) -> Launch:
    full = (shape[0], *g.size, shape[4])
    # Only outputs are accessed as contiguous runs, so the window does not matter. The number of columns
    # need not divide the width: a bounds check takes little time compared with finding the windows.
    columns = _columns(dtype, shape, _without_window(Geometry(g.size, g.size)))
    window = g.window or Window()
    if window.dilation[2] > window.stride[2]:
        columns = 1  # neighbouring outputs belong to different windows
    template: dict[str, Any] = {
        "T": dtype,
        "ACC": TRAITS[dtype].accumulation,
        "FLAT": not is_window(index_dtype),
        "REGIONS": isinstance(g, RegionGeometry),
        "DILATED": any(d > s for d, s in zip(window.dilation, window.stride)),
        "INDEX": _index_type(index_dtype, g),
        **_work_template(dtype, shape, columns, g),
        "EVEN": g.size[2] % columns == 0,
    }
    grid = _grid(template["V"], full, columns)
    return _launch(ACCUMULATE_REGIONS, template, grid, [(full, dtype)], *_window_of(g), g.size)


def _is_large(g: WindowGeometry) -> bool:
    """Whether ``pool_any`` is used for equal windows, a kernel whose arguments they are, not constants."""
    depends_on_size = isinstance(g, AdaptiveWindowGeometry) and not g.window.disjoint
    return g.window.elements > (_MAX_UNROLLED if depends_on_size else _MAX_ELEMENTS)


def _has_tiles(g: Geometry) -> TypeGuard[WindowGeometry]:
    """Whether the kernel ``place`` can unpool and accumulate with these windows."""
    if not isinstance(g, WindowGeometry) or _is_large(g):
        return False
    return prod(g.window.stride) <= _MAX_OUTPUTS


def _has_few_neighbours(window: Window) -> bool:
    """Whether few windows overlap each window."""
    return prod(2 * n - 1 for n in window.reach) <= _MAX_NEIGHBOURS


def _tiles(g: WindowGeometry) -> Shape:
    """The number of tiles, each one stride long, that cover a plane; at least the number of windows."""
    return tuple(max(n, -(-m // s)) for n, m, s in zip(g.pooled, g.size, g.window.stride))


def _without_window(g: Geometry) -> WindowGeometry:
    """The same sizes with a window of one element, for a kernel that does not use the window."""
    return WindowGeometry(g.size, g.pooled, Window())


def _window_of(g: Geometry) -> tuple[Shape, Shape]:
    """The window parameters as two kernel arguments: kernel and dilation, stride and padding.

    Two, because MLX passes arrays of 8 or more elements in device memory, which is slower to read.
    """
    window = g.window or Window()
    return (*window.kernel, *window.dilation), (*window.stride, *window.padding)


@functools.lru_cache(_LAUNCH_CACHE_SIZE)
def threadgroup(
    grid: tuple[int, int, int], dialect: str = "cuda", caller: str = "threadgroup"
) -> tuple[int, int, int]:
    """A threadgroup (in CUDA, a block) of at most 256 threads.

    It has four rows, because the windows of neighbouring rows share elements, or more if rows are short. If
    a CUDA grid would otherwise have too many blocks along an axis, a block has up to 1,024 threads. The
    number of rows is a power of two, which keeps accesses aligned with cache lines.

    Raises:
        ValueError: If the grid is too large for the dialect.
    """
    if max(grid) > _MAX_AXIS_THREADS:
        raise ValueError(
            f"[{caller}] the grid must have at most {_MAX_AXIS_THREADS} threads per axis but got {grid}."
        )
    y = z = 1
    if dialect == "cuda":
        y, z = (_power_of_two(-(-n // _MAX_BLOCKS), up=True) for n in grid[1:])
        if z > _MAX_DEEP or y * z > _MAX_THREADGROUP:
            raise ValueError(
                f"[{caller}] the grid must have at most {_MAX_BLOCKS} blocks on its second and third axis "
                f"with CUDA, and a block at most {_MAX_THREADGROUP} threads ({_MAX_DEEP} on the third axis), "
                f"but got {grid}. Split the batch."
            )
    y = max(y, _power_of_two(min(grid[1], _ROWS)))
    x = max(1, min(grid[0], _USUAL_THREADGROUP // (y * z)))
    y = max(y, _power_of_two(min(grid[1], _USUAL_THREADGROUP // (x * z))))
    z = max(z, _power_of_two(min(grid[2], _MAX_DEEP, _USUAL_THREADGROUP // (x * y))))
    return x, y, z


def _power_of_two(n: int, up: bool = False) -> int:
    """The largest power of two that is at most ``n``, or with ``up`` the smallest that is at least ``n``."""
    return 1 << (max(1, n) - 1).bit_length() if up else 1 << max(1, n).bit_length() - 1


def _extents(g: Geometry, chunks: int = 1) -> list[int]:
    """For each axis, an upper bound for the coordinates that a kernel computes.

    Windows and tiles may extend beyond the plane, and the last thread of a row beyond the last window.
    """
    w = g.window or Window()
    axes = zip(g.size, (*g.pooled[:2], g.pooled[2] * chunks), w.kernel, w.stride, w.padding, w.span)
    extents = []
    for n, m, k, s, p, span in axes:
        reached = max(n, (max(m, -(-n // s)) + 8) * s) + 2 * (s + p + span) + 8
        extents.append(1 if n == m == k == s == 1 else reached)
    return extents


def _axis_type(g: Geometry) -> mx.Dtype:
    """The type of a coordinate on an axis."""
    # CUDA runs whole blocks, so the numbers of surplus threads exceed the length of the axis.
    return mx.int32 if max(_extents(g)) < 2**31 - 2**14 else mx.int64


def _index_type(index_dtype: mx.Dtype | None, g: Geometry) -> mx.Dtype:
    """A type that holds every valid index and the number of every pooled value.

    A uint32 index above the range of the type becomes negative, so it remains invalid.
    """
    narrow = (index_dtype is None or index_dtype.size <= 4) and prod(_extents(g)) < 2**31
    return mx.int32 if narrow else mx.int64


def _offset_type(shape: Shape, g: Geometry, chunks: int = 1) -> mx.Dtype:
    """A type for offsets into every array: 32 bits if possible, as 64-bit arithmetic is slow on a GPU."""
    extents = _extents(g, chunks)
    most = prod(extents)
    if isinstance(g, RegionGeometry):
        most = max(most, 2 * sum(extents))  # the bounds of all axes
    return mx.int32 if shape[0] * shape[4] * most < 2**31 else mx.int64


def _lanes(dtype: mx.Dtype, channels: int) -> int:
    """The number of neighbouring channels per thread."""
    # 16 bytes per thread: 32 threads with 4 float32 channels each read four cache lines of 128 bytes.
    return max(1, min(16 // dtype.size, 8, channels))


def _columns(dtype: mx.Dtype, shape: Shape, g: WindowGeometry, width: int = 0, tile: int = 1) -> int:
    """The number of neighbouring windows or tiles per thread: more if there are few channels.

    A number that divides the width, if given, saves a bounds check in the kernel.
    """
    most = _power_of_two(min(16 // dtype.size, 8) // shape[4] // tile)
    run = most * g.window.stride[2] + 2 * g.window.span[2]
    if run > min(prod(g.size), prod(g.pooled)) * shape[0]:  # tiny arrays
        return 1
    return next((n for n in (most, most // 2) if n > 1 and width % n == 0), most)


def _rows(g: WindowGeometry) -> int:
    """The number of rows of windows per thread of ``pool``: more if windows overlap by half or more."""
    kernel, stride = g.window.kernel[1], g.window.stride[1]
    overlapping = 2 * stride <= kernel and g.window.dilation[1] == 1
    if not overlapping or g.window.elements < _MAX_UNROLLED:
        return 1
    return _SHARED_ROWS * (1 if g.window.kernel[0] == 1 else 2)


def _work_template(
    dtype: mx.Dtype, shape: Shape, columns: int, g: Geometry, lanes: int | None = None
) -> dict[str, Any]:
    """The template arguments of a work item (see windows.h) and the types of its coordinates."""
    lanes = lanes or _lanes(dtype, shape[4])
    return {
        "V": lanes,
        "TAIL": shape[4] % lanes != 0,
        "ONE": shape[4] == lanes,
        "X": columns,
        "PLANAR": g.size[0] == g.pooled[0] == 1,
        "OFFSET": _offset_type(shape, g),
        "AXIS": _axis_type(g),
    }


def _grid(lanes: int, shape: Shape, columns: int) -> tuple[int, int, int]:
    batch, d, h, w, channels = shape
    return -(-w // columns) * -(-channels // lanes), d * h, batch


def _inside(g: WindowGeometry, columns: int) -> bool:
    """Whether all windows, with the additional ones of a row's last thread, are inside the plane."""
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


def _no_array() -> mx.array:
    return mx.array([0], dtype=mx.uint32)


def _stream() -> Any:
    """The current stream, or the GPU device if a graph is traced without a GPU."""
    device = mx.default_device()
    return mx.default_stream(device) if device.type == mx.gpu else mx.gpu
