"""Calls for the tests of the kernels, which compare the results of backends bit for bit."""

from collections.abc import Callable
from itertools import product

import mlx.core as mx
import mlx.nn as nn
import numpy as np

import mlx_unpool
from mlx_unpool._types import is_float
from support import arrays, reference
from support.arrays import (
    FLOATS,
    INTEGERS,
    Case,
    IrregularCase,
    Layout,
    generated_cases,
    irregular_cases,
)


def window_case(
    kernel,
    stride,
    padding=0,
    dilation=1,
    *,
    size,
    layout,
    dtype=mx.float32,
    ceil_mode=False,
    seed=0,
) -> Case:
    """A case with the given parameters."""
    each = lambda value: value if isinstance(value, tuple) else (value,) * len(size)
    pool = reference.Pool(each(kernel), each(stride), each(padding), each(dilation), ceil_mode)
    planes = np.random.default_rng(seed).integers(-50, 50, (layout.planes, *size))
    return Case(layout, size, dtype, planes.astype(np.float32), pool)


def huge(shape: tuple[int, ...], dtype: mx.Dtype = mx.int8) -> mx.array:
    """An array of zeros of any size that takes no memory."""
    return mx.broadcast_to(mx.array(0, dtype), shape)


def last(channels: int, rank: int = 2, batch: int = 2) -> Layout:
    return Layout(rank, batch, channels, "channels_last")


def first(channels: int, rank: int = 2, batch: int = 2) -> Layout:
    return Layout(rank, batch, channels, "channels_first")


def irregular_case(
    planes: np.ndarray, cells, kernel=None, sample: np.ndarray | float = 0
) -> IrregularCase:
    """Adaptive pooling of one image or, with a kernel, fractional pooling.

    ``sample``: one sample, or one per axis.
    """
    channels, *size = planes.shape
    samples = np.full((channels, len(size)), sample, np.float32)
    layout, planes = last(channels, len(size), 1), planes.astype(np.float32)
    return IrregularCase(layout, tuple(size), mx.float32, planes, cells, kernel, samples)


# What drawn cases may miss: every number of channels per thread, tiny arrays, and tiles
# at the edges
CHOSEN = [
    *(window_case(2, 2, size=(4, 6), layout=last(c)) for c in (1, 2, 3, 4, 5, 6, 8)),
    *(window_case(2, 2, size=(5, 7), layout=last(c), dtype=mx.float16) for c in (2, 7, 8)),
    window_case(3, 2, 1, size=(7, 9), layout=last(8), dtype=mx.bfloat16),
    window_case(2, 2, size=(2, 2), layout=last(1, batch=1)),  # one pooled value
    window_case(2, 2, size=(3, 4), layout=last(3, batch=1)),  # fewer than 8 pooled values
    window_case(3, 1, 1, size=(6, 5), layout=last(4)),
    window_case(3, 1, 1, size=(40, 3), layout=first(3)),
    window_case(2, 2, size=(4, 4, 6), layout=last(4, 3)),
    # each window overlaps up to 27 windows
    window_case(3, 2, 1, size=(5, 6, 7), layout=last(2, 3)),
    window_case((3, 2, 3), (2, 2, 1), (1, 0, 1), size=(5, 4, 6), layout=last(2, 3)),
    window_case(2, 5, size=(12, 11), layout=last(2)),  # stride > kernel
    window_case(4, 2, 2, size=(8, 8), layout=last(4)),
    window_case(3, 2, 2, 2, size=(9, 8), layout=last(4)),
    window_case(2, 1, 1, 2, size=(3, 1), layout=last(2)),  # windows without an element
    window_case(3, 3, ceil_mode=True, size=(7, 8), layout=last(4)),
    window_case(5, 3, 2, size=(31,), layout=first(2, 1)),
    window_case(17, 17, size=(17, 34), layout=last(1)),  # uint16 window indices
    window_case((3, 4), (5, 6), (2, 3), (2, 3), size=(15, 17), layout=last(3)),  # a large stride
    # Elements 2^30 apart: a product of two of these numbers does not fit into 32 bits.
    *(window_case(3, 1, 2**30, 2**30, size=(n,), layout=last(1, 1, 1)) for n in (1, 2)),
    # windows that start in the padding
    *(window_case(2, n, 2 * n, 2 * n, size=(5,), layout=last(1, 1, 1)) for n in (2**23, 2**29)),
    window_case(3, 2**23, 2**24, 2**23, size=(5,), layout=last(1, 1, 1)),
    window_case(2, 7, 3, 4, size=(5,), layout=last(1, 1, 1)),
    # layers that share elements, and few other windows that do
    window_case((3, 1, 2), (2, 1, 1), (1, 0, 0), size=(5, 2, 4), layout=last(2, 3)),
    # Dilated windows, whose elements have gaps.
    window_case(2, 3, dilation=2, size=(96,), layout=first(1, 1, 9), dtype=mx.float16),
    window_case(3, 1, 2, 3, size=(96,), layout=last(2, 1, 9)),
    window_case((2, 3), (1, 4), (1, 2), (3, 3), size=(9, 40), layout=first(2, 2, 9)),
    window_case(2, (1, 2, 3), 0, 2, size=(5, 6, 40), layout=first(1, 3, 9)),
    window_case((1, 2), 1, 0, (1, 3), size=(9, 20), layout=first(3), dtype=mx.bfloat16),
    window_case(2, 2, 0, 3, size=(9, 20), layout=last(5)),
    window_case(3, 2, 1, 3, size=(11, 10), layout=last(3)),
    # padding that differs between the sides, above half the window
    window_case(3, 2, ((0, 1), (2, 0)), size=(8, 9), layout=last(4)),
    window_case(3, 1, ((2, 0), (1, 2)), 2, size=(7, 9), layout=first(2), dtype=mx.float16),
    window_case((4, 9), (2, 3), ((3, 1), (8, 0)), 2, size=(9, 20), layout=last(3)),
    # large windows
    window_case((9, 8), (4, 3), (8, 9), (2, 3), size=(20, 19), layout=last(2)),
    window_case((13, 8), (5, 1), (3, 14), (1, 4), size=(21, 17), layout=first(2), dtype=mx.float16),
    # large windows whose parameters all differ between the axes
    window_case((3, 5, 5), 1, 0, (3, 1, 1), size=(9, 6, 7), layout=last(2, 3, 1)),
    window_case((3, 5, 5), (2, 1, 1), (1, 0, 0), (1, 2, 1), size=(6, 11, 7), layout=last(1, 3)),
    window_case((4, 3, 6), (3, 2, 1), (1, 2, 3), (1, 3, 2), size=(11, 9, 14), layout=last(8, 3, 1)),
    window_case((3, 6, 4), (1, 3, 2), (4, 1, 3), (3, 2, 1), size=(8, 15, 9), layout=last(3, 3, 1)),
    window_case(
        *((6, 4, 3), (2, 1, 3), (3, 4, 1), (2, 3, 4)),
        size=(13, 11, 16),
        layout=first(1, 3),
        dtype=mx.bfloat16,
    ),
    # windows without a place on one axis or on two
    window_case((2, 2, 1), 1, (2, 2, 0), (4, 4, 1), size=(3, 3, 2), layout=last(2, 3)),
    # a long axis of which few elements are used, none of them the first of a window
    window_case(24, 25, ((78, 148),), 7, ceil_mode=True, size=(21,), layout=last(1, 1)),
    window_case((2, 3), 1, size=(5, 6), layout=last(2)),  # windows that are not square and overlap
]


def results(case: Case, seed: int) -> Callable[[], list[mx.array]]:
    """A call that returns the results of every function and derivative for a case."""
    random = np.random.default_rng(seed)
    places, taps = int(np.prod(case.size)), int(np.prod(case.pool.kernel))
    shape, x = (case.layout.planes, *case.cells), case.x
    small = random.integers(-3, 4, shape).astype(np.float32) if case.dtype in FLOATS else None
    wild_flat = random.integers(-2, places + 2, shape)
    wild_flat[random.random(shape) < 0.05] = -(2**31)
    wild_window = random.integers(0, min(256, taps + 2), shape)
    few_outside = case.expected()[1]
    few_outside[random.random(shape) < 0.05] = random.integers(places)
    # About one per plane, alone: of several indices outside their windows, a kernel needs
    # to find only one.
    near = reference.near_windows(random, case.pool, case.size, shape)
    near[random.random(shape) > 1 / np.prod(case.cells)] = -1
    given = (case.expected()[1], mx.int32), (wild_flat, mx.int32), (few_outside, mx.int64)
    given += (near, mx.int32), (wild_window, mx.uint8)
    indices = [case.layout.arrange(*each) for each in given]
    unpools = [lambda v, i=i: case.max_unpool(v, i) for i in indices]
    unpools.append(lambda v: case.unpool_anywhere(v, indices[1]))
    wide_offsets = case.layout.arrange(random.integers(-2, taps + 2, shape), mx.int32)
    unpools.append(lambda v: case.max_unpool(v, wide_offsets, "window"))

    def call() -> list[mx.array]:
        out = []
        for index_format in ("flat", "window"):
            values, own = case.max_pool(x, index_format)
            out += [values, own, case.max_unpool(values, own)]
        out += [unpool(values) for unpool in unpools]
        if small is None:
            return out
        # Derivatives, with small integers as cotangents so that sums are exact.
        cells = case.layout.arrange(small, case.dtype)
        full = mx.round(x * 0.05)
        full = mx.where(mx.isfinite(full), full, mx.array(1, full.dtype))
        for index_format in ("flat", "window"):
            pool = lambda x, f=index_format: case.max_pool(x, f)[0]
            out += mx.vjp(pool, [x], [cells])[1]
            out += mx.jvp(pool, [x], [full])[1]
        for unpool in unpools:
            out += mx.vjp(unpool, [cells], [full])[1]
        squares = lambda v: (mx.round(0.1 * case.max_unpool(v * v, indices[2])) ** 2).sum()
        out.append(mx.grad(lambda v: (mx.grad(squares)(v) * cells).sum())(cells))
        return out

    return call


def same_bits(a: mx.array, b: mx.array) -> bool:
    """Whether two arrays are equal in type, shape and every bit, or number on the CPU of a Mac.

    This includes the signs of zeros and the payloads of NaNs, because pooling and unpooling copy
    numbers. The NaN that results from a sum depends on the hardware, so the cotangents of these
    cases contain none.
    """
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    if arrays.copies_bits(mx.cpu) or not is_float(a.dtype):
        return mx.array_equal(bits(a), bits(b)).item()
    return mx.array_equal(a, b, equal_nan=True).item()


def assert_same_bits(got: list[mx.array], expected: list[mx.array]) -> None:
    """Fail unless two lists of arrays are bit-identical."""
    differ = [n for n, pair in enumerate(zip(got, expected, strict=True)) if not same_bits(*pair)]
    assert not differ, f"results {differ} of {len(expected)} differ"


def bits(x: mx.array) -> mx.array:
    """The bits of an array as unsigned integers."""
    return x.view({1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}[x.dtype.size])


SAMPLES = np.array([0, 0, 1 - 2**-24, 1 - 2**-24, 0.5, 0.5])[:, None] * [0, 1]
RISING = np.array([1, -1] * 3)[:, None, None] * np.arange(28.0).reshape(1, 1, 28)
PLANES = np.random.default_rng(0).standard_normal((2, 9, 9))
IRREGULAR = [
    *irregular_cases(24, seed=78),
    # samples that move windows beyond the end of the plane in float32
    *(irregular_case(PLANES, (5, 5), (2, 2), sample) for sample in (2.0**24, 2.0**25)),
    # planes so small that MLX passes them in constant memory
    irregular_case(np.ones((1, 1, 1)), (1, 2)),
    irregular_case(np.ones((1, 2, 2)), (1, 1), (1, 1)),
    # windows of 8 and 9 elements, each of which is the maximum in one channel
    irregular_case(np.eye(23), (3,)),
    # windows whose starts float32 rounds down: 22 * (26 / 22) < 26
    irregular_case(RISING, (1, 23), (1, 2), SAMPLES),
]


def irregular_results(case, seed: int) -> Callable[[], list[mx.array]]:
    """A call that returns the results of adaptive or fractional pooling and of every derivative."""
    random = np.random.default_rng(seed)
    x = case.layout.arrange(case.planes, case.dtype)
    small = random.integers(-3, 4, (case.layout.planes, *case.cells)).astype(np.float32)

    def call() -> list[mx.array]:
        values, indices = case.max_pool(x)
        out = [values, indices, case.max_unpool(values, indices)]
        if case.dtype in FLOATS:
            cells = case.layout.arrange(small, case.dtype)
            full = mx.where(mx.isfinite(x), mx.round(x), mx.array(1, x.dtype))
            out += mx.vjp(lambda x: case.max_pool(x)[0], [x], [cells])[1]
            out += mx.jvp(lambda x: case.max_pool(x)[0], [x], [full])[1]
        return out

    return call


def pool_of_dtypes() -> list[mx.array]:
    """Pooling and unpooling in every dtype, with its special numbers."""
    out: list[mx.array] = []
    for dtype in (*FLOATS, *INTEGERS):
        numbers = mx.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, np.nan, -1.0] * 12)
        if dtype in INTEGERS:
            limits = mx.iinfo(dtype)
            numbers = mx.array(np.array([limits.min, limits.max, 0, 1] * 24, str(dtype)[9:]))
        x = numbers.astype(dtype).reshape(1, 8, 12, 1)
        for window, index_format in product(((2, 2), (3, 1, 1)), ("flat", "window")):
            pooled = mlx_unpool.max_pool2d(
                x, *window, return_indices=True, index_format=index_format
            )
            out += [*pooled, mlx_unpool.max_unpool2d(*pooled, *window, output_size=(8, 12))]
        for cells in (1, 5):
            pooled = mlx_unpool.adaptive_max_pool2d(x, cells, return_indices=True)
            out += [*pooled, mlx_unpool.max_unpool2d(*pooled, None, output_size=(8, 12))]
    return out


def every_pair_of_indices() -> list[mx.array]:
    """Unpooling of two overlapping windows with every pair of indices, some outside the windows."""
    pairs = np.stack(np.meshgrid(range(-1, 5), range(-1, 5)), axis=-1)
    indices = mx.array(pairs.reshape(36, 2, 1), mx.int32)
    values = mx.broadcast_to(mx.array([[1.0], [2.0]]), indices.shape)
    unpool = lambda v: mlx_unpool.max_unpool1d(v, indices, 3, 1, output_size=4)
    return [unpool(values), *mx.vjp(unpool, [values], [mx.ones((36, 4, 1))])[1]]


def every_window_index() -> list[mx.array]:
    """Unpooling of windows that overlap with many, with every index, most outside the window."""
    indices = mx.broadcast_to(mx.arange(256).astype(mx.uint8)[:, None, None, None], (256, 2, 2, 1))
    values = mx.broadcast_to(mx.arange(1.0, 5).reshape(2, 2, 1), indices.shape)
    unpool = lambda v: mlx_unpool.max_unpool2d(v, indices, 5, 1, output_size=(6, 6))
    return [unpool(values), *mx.vjp(unpool, [values], [mx.ones((256, 6, 6, 1))])[1]]


def other_indices() -> list[mx.array]:
    """Indices above 2^32, of windows that start after an axis, and in a row before a layer."""
    out = []
    for given, window, dilation, size in (
        ([[[0], [1], [2], [3]], [[3], [5], [6], [7]]], ((1, 3, 1), 1, (0, 1, 0)), 1, (2, 4, 1)),
        ([[2**32, 2**32 + 3], [2**33 + 5, 1]], (2, 2), 1, (4, 4)),
        ([[0, 3], [11, 13]], (2, 3), 1, (3, 5)),
        ([[[0]], [[9]]], (2, (3, 1, 1)), 1, (3, 2, 2)),
        ([[1, 5], [7, 9]], ((1, 2), (1, 5)), (1, 2), (2, 5)),
    ):
        indices = mx.array(given, mx.int64)[None, ..., None]
        values = mx.arange(float(indices.size)).reshape(indices.shape) + 1
        max_unpool = getattr(mlx_unpool, f"max_unpool{len(size)}d")
        out.append(max_unpool(values, indices, *window, dilation=dilation, output_size=size))
    return out


def empty_windows() -> list[mx.array]:
    """Pooling and unpooling with windows without an element, on one axis alone.

    Each index is in each window.
    """
    out = []
    for size, kernel, padding, dilation in (
        ((3, 2, 2), (2, 1, 1), (4, 0, 0), (5, 1, 1)),
        ((2, 3, 2), (1, 2, 1), (0, 4, 0), (2**29, 5, 1)),
        ((2, 2, 3), (1, 1, 2), (0, 0, 4), (1, 1, 5)),
        ((2, 2, 2), 2, ((1290, 1),) * 3, 1291),
    ):
        x = mx.arange(float(np.prod(size))).reshape(1, *size, 1)
        window, options = (kernel, 1, padding), {"dilation": dilation, "output_size": size}
        pooled = mlx_unpool.max_pool3d(x, *window, dilation=dilation, return_indices=True)
        number, index = np.divmod(np.arange(pooled[0].size * x.size)[:, None], x.size)
        given = np.where(np.arange(pooled[0].size) == number, index, -1)
        given = mx.array(given.reshape(-1, *pooled[0].shape[1:]), mx.int32)
        values = mx.broadcast_to(
            mx.arange(1.0, pooled[0].size + 1).reshape(pooled[0].shape), given.shape
        )
        out += [*pooled, mlx_unpool.max_unpool3d(values, given, *window, **options)]
    return out


def equal_regions() -> list[mx.array]:
    """Values of adaptive windows whose length and stride differ between axes, and the gradient."""
    x = mx.random.permutation(280, key=mx.random.key(0)).astype(mx.float32).reshape(1, 4, 5, 7, 2)
    pool = lambda x: mlx_unpool.adaptive_max_pool3d(x, (3, 2, 2))
    return [pool(x), *mx.vjp(pool, [x], [mx.arange(24.0).reshape(1, 3, 2, 2, 2)])[1]]


def several_nans() -> list[mx.array]:
    """Two NaNs in each channel, in a window of one thread or several: of one of them or of two."""
    pairs = [(0, 1), (0, 4), (1, 2), (0, 3), (3, 9), (1, 10), (8, 16), (2, 59), (0, 58)]
    at = np.arange(101)[:, None]
    x = mx.array(np.where((at[..., None] == pairs).any(axis=-1), np.nan, 0).astype(np.float32))
    pool = lambda length: mlx_unpool.max_pool1d(x[None, :length], length, return_indices=True)
    return [y for length in (5, 60, 101) for y in pool(length)]


def chunks() -> list[mx.array]:
    """Windows of two, three and more chunks; windows with no element, or one, inside the plane."""
    out = []
    for batch in (2, 16400, 22000, 33000):
        numbers = mx.random.randint(0, 99, (batch, 66, 1), key=mx.random.key(0)).astype(mx.int8)
        out += mlx_unpool.max_pool1d(numbers, 66, return_indices=True)
        for length, index_format in product((1, 2), ("flat", "window")):
            options = {"dilation": 2, "return_indices": True, "index_format": index_format}
            out += mlx_unpool.max_pool1d(mx.full((batch, length, 1), -mx.inf), 70, 1, 69, **options)
    return out


# The last four reach template arguments that no other call reaches.
GENERATED = [
    case for n, case in enumerate(generated_cases(60, seed=77)) if n < 17 or n in (21, 46, 51, 56)
]
CASES = [*CHOSEN, *GENERATED]
# Calls that cover every kernel; then calls with drawn parameters
CHOSEN_CALLS: dict[str, Callable[[], list[mx.array]]] = {
    **{f"chosen {n}": results(case, n) for n, case in enumerate(CHOSEN)},
    **{f"irregular {n}": irregular_results(case, n) for n, case in enumerate(IRREGULAR)},
    "types": pool_of_dtypes,
    "every pair of indices": every_pair_of_indices,
    "every window index": every_window_index,
    "other indices": other_indices,
    "empty windows": empty_windows,
    "equal regions": equal_regions,
    "chunks": chunks,
    "several NaNs": several_nans,
}
GENERATED_CALLS = {
    f"generated {n}": results(case, n + len(CHOSEN)) for n, case in enumerate(GENERATED)
}


def pool_windows(shape, *window, dtype=mx.float32, index_format="flat", **options) -> None:
    """Pools and unpools in every way and computes all derivatives."""
    x = huge(shape, dtype)
    layout = {k: v for k, v in options.items() if k == "data_format"}
    rank = len(shape) - 2
    size = shape[2:] if layout else shape[1:-1]
    max_pool = getattr(mlx_unpool, f"max_pool{rank}d")
    max_unpool = getattr(mlx_unpool, f"max_unpool{rank}d")

    def call(x):
        values, indices = max_pool(
            x, *window, return_indices=True, index_format=index_format, **options
        )
        y = max_unpool(values, indices, *window, output_size=size, **options)
        if index_format == "flat":
            y = y + max_unpool(values, indices, None, output_size=size, **layout)
        return y

    mx.vjp(call, [x], [x])
    mx.jvp(call, [x], [x])


class SegNet(nn.Module):
    """Small, with both layers, an odd size and both index formats."""

    def __init__(self) -> None:
        super().__init__()
        channels = (2, 4), (4, 8), (8, 4), (4, 2)
        self.convolutions = [nn.Conv2d(*each, 3, padding=1) for each in channels]
        self.pools = [
            mlx_unpool.MaxPool2d(2, return_indices=True),
            mlx_unpool.MaxPool2d(3, 2, 1, return_indices=True, index_format="window"),
        ]
        self.unpools = [mlx_unpool.MaxUnpool2d.from_pool(pool) for pool in self.pools]

    def __call__(self, x: mx.array) -> mx.array:
        half, of_half = self.pools[0](nn.relu(self.convolutions[0](x)))
        quarter, of_quarter = self.pools[1](nn.relu(self.convolutions[1](half)))
        y = self.convolutions[2](self.unpools[1](quarter, of_quarter, output_size=half.shape[1:3]))
        return self.convolutions[3](self.unpools[0](y, of_half, output_size=x.shape[1:3]))


def segnet_step() -> tuple:
    """Loss and gradients of one training step: kernels and MLX's own ops in one graph."""
    model, x = SegNet(), mx.random.normal((2, 11, 14, 2))
    return nn.value_and_grad(model, lambda model, x: ((model(x) - x) ** 2).mean())(model, x)
