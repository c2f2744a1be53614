"""The launches of the GPU kernels: template arguments, grids and output shapes.

A launch depends only on shapes, dtypes and windows, so launches are cached.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, isqrt, prod
from typing import Any, TypeGuard

import mlx.core as mx

from .._geometry import Geometry, RegionGeometry, Window, WindowGeometry
from .._types import MAX_WINDOW_INDICES, TRAITS, Rule, is_window

Grid = tuple[int, int, int]  # numbers of threads
Shape = tuple[int, ...]  # (B, D, H, W, C)

_MAX_AXIS_THREADS = 2**31 - 1  # per grid axis: MLX stores the number in a C int
_MAX_THREADGROUP = 1024  # threads per threadgroup
_MAX_DEPTH = 64  # threads along the third axis of a threadgroup
_USUAL_THREADGROUP = 256  # threads
_USUAL_ROWS = 4  # threads along the second axis of a usual threadgroup
_MAX_CUDA_BLOCKS = 65535  # along the second and third axis of a CUDA grid
_LAUNCH_CACHE_SIZE = 1024  # launches of each kind
_MAX_ELEMENTS = 64  # elements of the largest window that one thread reads
_BLOCK_ELEMENTS = 4  # elements that one thread loads at once in pool_any
_MAX_NEIGHBOURS = 27  # windows that overlap with one, itself included, if one thread compares them
_MAX_OUTPUTS = 16  # outputs of the largest tile that one thread writes
_MAX_NUMBER = 2**31 - 1  # pooled values per plane, whose numbers are int32
_FULL_GPU_THREADS = 2**16  # threads that occupy a GPU fully
_MAX_CHANNELS = 4  # channels per thread: as many as one load instruction reads
_MAX_COLUMNS = 4  # outputs per thread of scatter_regions if there is one channel
_MAX_UNROLLED = 9  # elements of the largest window whose loop is unrolled
# Threads per channel in outside_winners, for small and large planes; fewer if channels are many
_MIN_SPLIT, _MAX_SPLIT = 64, 1024


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
SCATTER = Kernel(
    "scatter", ("values", "indices", "outside_window", "winner_bits", "size"), ("out",)
)
SCATTER_REGIONS = Kernel(
    "scatter_regions", ("values", "indices", "covering", "window", "size"), ("out",)
)
GATHER = Kernel("gather", ("full", "indices", "outside_window", "winner_bits", "winner"), ("out",))
OUTSIDE_WINDOW = Kernel("outside_window", ("indices", "size"), ("outside_window",), True)
OUTSIDE_WINNERS = Kernel(
    "outside_winners", ("indices", "outside_window", "size"), ("winner_bits",), True
)
LAST_WRITER = Kernel("last_writer", ("indices", "window", "starts", "size"), ("winner",), True)
_POOLS = (POOL, POOL_ANY, POOL_CHUNKS)
KERNELS = (*_POOLS, SCATTER, SCATTER_REGIONS, GATHER, OUTSIDE_WINDOW, OUTSIDE_WINNERS, LAST_WRITER)


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel, its template arguments, grid and output shapes."""

    kernel: Kernel
    grid: Grid
    integers: tuple[tuple[int, ...], ...]  # the inputs after the arrays
    options: dict[str, Any]


def _launch(
    kernel: Kernel,
    template: dict[str, Any],
    grid: Grid,
    outputs: Sequence[tuple[Sequence[int], mx.Dtype]],
    *integers: tuple[int, ...],
    init_value: float | None = None,
) -> Launch:
    shapes, dtypes = [tuple(shape) for shape, _ in outputs], [dtype for _, dtype in outputs]
    options = {"template": list(template.items()), "output_shapes": shapes, "output_dtypes": dtypes}
    return Launch(kernel, grid, integers, options | {"init_value": init_value})


@functools.lru_cache(_LAUNCH_CACHE_SIZE)
def pool(shape: Shape, dtype: mx.Dtype, g: WindowGeometry, index_dtype: mx.Dtype | None) -> Launch:
    pooled = (shape[0], *g.pooled, shape[4])
    outputs, types = _pool_outputs(pooled, dtype, index_dtype)
    template = types | _template(shape, g, index_dtype) | _window_constants(g)
    return _launch(POOL, template, _grid(template, pooled), outputs, g.pooled)


@functools.lru_cache(_LAUNCH_CACHE_SIZE)
def scatter(
    shape: Shape, dtype: mx.Dtype, index_dtype: mx.Dtype, g: WindowGeometry, rule: Rule
) -> Launch:
    one_value = rule == "last" or g.window.disjoint
    template = {
        "T": dtype,
        "ACC": dtype if one_value else TRAITS[dtype].accumulation,
        "SUM": rule == "sum",
    }
    # Tiles that cover the plane; at least as many as windows.
    tiles = tuple(max(n, -(-m // s)) for n, m, s in zip(g.pooled, g.size, g.window.stride))
    positions = prod(tiles) * prod(g.window.stride)  # in one plane; the last ones may be outside
    other = max(positions, _bits(shape, g))
    template |= _template(shape, g, index_dtype, other=other) | _window_constants(g)
    grid = _grid(template, (shape[0], *tiles, shape[4]))
    return _launch(
        SCATTER, template, grid, [((shape[0], *g.size, shape[4]), dtype)], (*g.size, *tiles)
    )


@functools.lru_cache(_LAUNCH_CACHE_SIZE)
def gather(
    full: Shape,
    dtype: mx.Dtype,
    shape: Shape,
    index_dtype: mx.Dtype,
    g: Geometry,
    compare: bool,
    winner: bool,
) -> Launch:
    flat = not is_window(index_dtype)
    if flat and not compare:
        g = Geometry(g.size, g.pooled)  # flat indices do not depend on the window
    compare = compare and (flat or not _window(g).disjoint)
    template = {"T": dtype, "COMPARE": compare, "HAS_WINNER": winner}
    template |= _template(full, g, index_dtype, other=_bits(full, g)) | _window_constants(g)
    # Window indices have 16 bits. A kernel cut where they end gives them the same coordinates.
    left = MAX_WINDOW_INDICES
    for axis, k in zip("WHD", reversed(_window(g).kernel)):
        template[f"K{axis}"] = min(k, left)
        left = -(-left // min(k, left))
    return _launch(GATHER, template, _grid(template, shape), [(shape, dtype)])


@functools.lru_cache(_LAUNCH_CACHE_SIZE)
def outside_window(shape: Shape, index_dtype: mx.Dtype, g: Geometry) -> tuple[Launch, Launch]:
    """The launches of the kernels ``outside_window`` and ``outside_winners``."""
    batch, *_, channels = shape
    template = _template(shape, g, index_dtype, other=_bits(shape, g)) | _window_constants(g)
    del template["FLAT"]
    per_thread = template["V"]
    outputs = [((batch, channels // per_thread), mx.uint32)]
    mark = _launch(OUTSIDE_WINDOW, template, _grid(template, shape), outputs, g.size, init_value=0)

    # Each thread reads all indices of its channel, and a SIMD group waits for the updates of its 32
    # threads one after the other. With more threads per channel, all threads together read more and
    # each waits less. Estimated from machine code, the sum is lowest with about
    # 1024 / sqrt(channels) threads in large planes.
    most = min(max(_MIN_SPLIT, prod(g.pooled) // 256), isqrt(_MAX_SPLIT**2 // (batch * channels)))
    threads = _power_of_two(most)
    bits, grid = [((batch, channels, _words(g)), mx.uint32)], (threads * channels, 1, batch)
    size = (*g.size, per_thread, threads)
    find = _launch(OUTSIDE_WINNERS, {"N": template["N"]}, grid, bits, size, init_value=0)
    return mark, find


@functools.lru_cache(_LAUNCH_CACHE_SIZE)
def last_writer(shape: Shape, index_dtype: mx.Dtype, g: Geometry) -> Launch:
    if prod(g.pooled) > _MAX_NUMBER:
        needed = f"have at most {_MAX_NUMBER} pooled values"
        raise ValueError(f"[{LAST_WRITER.name}] a plane must {needed} but got {g.pooled}.")
    template = _template(shape, g, index_dtype)
    outputs = [((shape[0], *g.size, shape[4]), mx.int32)]
    integers = (*_window_arguments(g), g.size)
    return _launch(LAST_WRITER, template, _grid(template, shape), outputs, *integers, init_value=-1)


@functools.lru_cache(_LAUNCH_CACHE_SIZE)
def pool_any(
    shape: Shape, dtype: mx.Dtype, table: Shape, g: Geometry, index_dtype: mx.Dtype | None
) -> list[Launch]:
    """One launch, or two if each window is divided into chunks for several threads."""
    batch, *_, channels = shape
    # Channels with different windows need separate threads.
    per_thread = 1 if table[-1] > 1 else _channels_per_thread(channels)
    pooled = (batch, *g.pooled, channels)
    longest = g.longest if isinstance(g, RegionGeometry) else _window(g).kernel
    elements, chunks = prod(longest), 1
    if elements > _MAX_ELEMENTS:
        # At most the root of the number of elements, and no more threads than fill a GPU.
        most = _FULL_GPU_THREADS // (prod(pooled) // per_thread)
        chunks = max(1, min(_power_of_two(isqrt(elements)), most))
    template = _template(shape, g, index_dtype, per_thread, other=prod(table))
    block = min(longest[2], _BLOCK_ELEMENTS)
    first = template | {
        "REGIONS": isinstance(g, RegionGeometry),
        "BLOCK": block,
        "SPLIT": chunks > 1,
    }
    integers = (*_window_arguments(g), (*g.pooled, chunks))
    outputs, types = _pool_outputs(pooled, dtype, index_dtype)
    if chunks == 1:
        return [_launch(POOL_ANY, first | types, _grid(template, pooled), outputs, *integers)]
    parts = (*pooled[:3], pooled[3] * chunks, channels)
    part_outputs, part_types = _pool_outputs(parts, dtype, template["N"])
    reading = _launch(POOL_ANY, first | part_types, _grid(template, parts), part_outputs, *integers)
    return [
        reading,
        _launch(POOL_CHUNKS, template | types, _grid(template, pooled), outputs, integers[-1]),
    ]


def _pool_outputs(shape: Shape, dtype: mx.Dtype, index_dtype: mx.Dtype | None) -> tuple[Any, Any]:
    """The outputs of a pool and the template arguments that describe them."""
    if index_dtype is None:  # values only; the second output, of one element, is not used
        return [(shape, dtype), ((1,), mx.uint8)], {"T": dtype, "I": mx.uint8, "VALUES_ONLY": True}
    return [(shape, dtype), (shape, index_dtype)], {
        "T": dtype,
        "I": index_dtype,
        "VALUES_ONLY": False,
    }


@functools.lru_cache(_LAUNCH_CACHE_SIZE)
def scatter_regions(shape: Shape, dtype: mx.Dtype, index_dtype: mx.Dtype, g: Geometry) -> Launch:
    batch, *_, channels = shape
    regions, window = regions_of(g) is not None, _window(g)
    # Neighbouring outputs share windows, except in dilated windows.
    shared = channels == 1 and window.dilation[2] == 1 and g.size[2] >= _MAX_COLUMNS
    columns = _MAX_COLUMNS if shared else 1
    template = {
        "T": dtype,
        "ACC": TRAITS[dtype].accumulation,
        "REGIONS": regions,
        "COLUMNS": columns,
    }
    template |= _template(shape, g, index_dtype, other=2 * sum(g.size) if regions else 0)
    template |= _window_constants(Geometry(g.size, g.pooled) if regions else g)
    grid = _grid(template, (batch, *g.size[:2], -(-g.size[2] // columns), channels))
    axes = zip(window.kernel, window.stride, window.dilation)
    steps = (d // gcd(s, d) if k > 1 else 1 for k, s, d in axes)
    outputs = [((batch, *g.size, channels), dtype)]
    integers = ((*window.kernel, *window.stride), (*g.size, *steps))
    return _launch(SCATTER_REGIONS, template, grid, outputs, *integers)


def regions_of(g: Geometry) -> RegionGeometry | None:
    """Adaptive and fractional windows, whose covering windows are in a table; None for others."""
    if isinstance(g, WindowGeometry):
        return g.regions
    return g if isinstance(g, RegionGeometry) else None


def uses_pool_any(g: WindowGeometry) -> bool:
    """Whether ``pool_any`` is used for equal windows, as arguments and not as constants."""
    is_adaptive = g.regions is not None and not g.window.disjoint
    return g.window.elements > (_MAX_UNROLLED if is_adaptive else _MAX_ELEMENTS)


def uses_scatter(g: Geometry) -> TypeGuard[WindowGeometry]:
    """Whether the kernel ``scatter`` supports these windows."""
    if not isinstance(g, WindowGeometry) or uses_pool_any(g):
        return False
    return prod(g.window.stride) <= _MAX_OUTPUTS


def has_few_neighbours(g: Geometry) -> bool:
    """Whether ``gather`` compares each index with those of all windows that overlap."""
    return uses_scatter(g) and prod(2 * n - 1 for n in g.window.reach) <= _MAX_NEIGHBOURS


def _window(g: Geometry) -> Window:
    """The window, or one of one element for a kernel that does not use it."""
    return g.window or Window()


def _window_arguments(g: Geometry) -> tuple[Shape, Shape]:
    """The window parameters as two kernel arguments: kernel and dilation, stride and padding.

    Two, because MLX passes arrays of 8 or more elements in device memory, which is slower to read.
    """
    window = _window(g)
    return (*window.kernel, *window.dilation), (*window.stride, *window.padding)


def _window_constants(g: Geometry) -> dict[str, Any]:
    """The window parameters as template arguments."""
    window = _window(g)
    kinds = {"K": window.kernel, "S": window.stride, "P": window.padding, "D": window.dilation}
    return {
        f"{kind}{axis}": n for kind, numbers in kinds.items() for axis, n in zip("DHW", numbers)
    }


@functools.lru_cache(_LAUNCH_CACHE_SIZE)
def threadgroup(grid: Grid, dialect: str = "cuda", caller: str = "threadgroup") -> Grid:
    """A threadgroup (in CUDA, a block) of at most 256 threads.

    It has four rows, because the windows of neighbouring rows share elements, or more if rows are
    short. If a CUDA grid would otherwise have too many blocks along an axis, a block has up to
    1,024 threads. The number of rows is a power of two, which keeps accesses aligned with cache
    lines. A grid that is too large for the dialect gives a ValueError.
    """
    if max(grid) > _MAX_AXIS_THREADS:
        needed = f"have at most {_MAX_AXIS_THREADS} threads per axis"
        raise ValueError(f"[{caller}] the grid must {needed} but got {grid}.")
    y = z = 1
    if dialect == "cuda":
        y, z = (_power_of_two(-(-n // _MAX_CUDA_BLOCKS), up=True) for n in grid[1:])
        if z > _MAX_DEPTH or y * z > _MAX_THREADGROUP:
            raise ValueError(
                f"[{caller}] the grid must have at most {_MAX_CUDA_BLOCKS} blocks on its second "
                f"and third axis with CUDA, and a block at most {_MAX_THREADGROUP} threads "
                f"({_MAX_DEPTH} on the third axis), but got {grid}. Split the batch."
            )
    y = max(y, _power_of_two(min(grid[1], _USUAL_ROWS)))
    x = max(1, min(grid[0], _USUAL_THREADGROUP // (y * z)))
    y = max(y, _power_of_two(min(grid[1], _USUAL_THREADGROUP // (x * z))))
    z = max(z, _power_of_two(min(grid[2], _MAX_DEPTH, _USUAL_THREADGROUP // (x * y))))
    return x, y, z


def _power_of_two(n: int, up: bool = False) -> int:
    """The largest power of two up to ``n``, or with ``up`` the smallest that is at least ``n``."""
    return 1 << (max(1, n) - 1).bit_length() if up else 1 << max(1, n).bit_length() - 1


def _number_type(shape: Shape, g: Geometry, index_dtype: mx.Dtype | None, other: int) -> mx.Dtype:
    """The type of coordinates, offsets and indices: 32 bits if all fit; 64 bits are slow on a GPU.

    ``other``: the largest number of elements of arrays besides those of values and indices.
    """
    w = _window(g)
    # Windows start less than a stride after the plane; kernels multiply coordinates only inside it.
    coordinates = max(map(sum, zip(g.size, w.stride, w.padding, w.span)))
    most = max(shape[0] * shape[4] * g.most_positions, coordinates, other)
    # CUDA runs whole blocks, so the numbers of surplus threads exceed the length of an axis. A
    # uint32 index above 2^31 - 1 becomes negative, so it remains invalid.
    narrow = most < 2**31 - 2**14 and (index_dtype is None or index_dtype.size <= 4)
    return mx.int32 if narrow else mx.int64


def _words(g: Geometry) -> int:
    """The words of ``winner_bits`` per channel: one bit per position and one per pooled value."""
    return sum(-(-prod(axes) // 32) for axes in (g.size, g.pooled))


def _bits(shape: Shape, g: Geometry) -> int:
    return shape[0] * shape[4] * _words(g)


def _channels_per_thread(channels: int) -> int:
    """The number of neighbouring channels per thread, a divisor of ``channels``."""
    return channels if channels <= _MAX_CHANNELS else gcd(channels, _MAX_CHANNELS)


def _template(
    shape: Shape, g: Geometry, index_dtype: mx.Dtype | None, per_thread: int = 0, other: int = 0
) -> dict[str, Any]:
    """The template arguments of all kernels (see windows.h); ``per_thread`` channels per thread."""
    per_thread = per_thread or _channels_per_thread(shape[4])
    return {
        "V": per_thread,
        "ONE": shape[4] == per_thread,
        "PLANAR": g.size[0] == g.pooled[0] == 1,
        "N": _number_type(shape, g, index_dtype, other),
        "FLAT": index_dtype is None or not is_window(index_dtype),
    }


def _grid(template: dict[str, Any], shape: Shape) -> Grid:
    batch, d, h, w, channels = shape
    return w * (channels // template["V"]), d * h, batch
