"""The CPU backend: long windows, dtypes that only the CPU supports, and ``mx.compile``."""

import io
import itertools
import re
import tracemalloc
from random import Random

import mlx.core as mx
import numpy as np
import pytest
from support import reference
from support.arrays import Case, IrregularCase, Layout, planes
from support.kernel_cases import CHOSEN
from support.properties import check_case, peak_of

import mlx_unpool


@pytest.fixture(autouse=True)
def on_the_cpu():
    with mx.stream(mx.cpu), mlx_unpool.use_backend("ops"):
        yield


def operations(*arrays: mx.array) -> list[str]:
    """The operations in the graph of unevaluated arrays, by name, without numbers and ranges."""
    mx.export_to_dot(text := io.StringIO(), *arrays)
    found = re.findall(r'label ?="(\w+)", shape=rectangle', text.getvalue())
    return [name for name in found if name != "Arange"]


def drawn(layout: Layout, size: tuple[int, ...], dtype: mx.Dtype, seed: int) -> np.ndarray:
    return planes(layout, size, dtype, Random(seed), np.random.default_rng(seed))


# Size, kernel, stride, padding, dilation
LONG = [
    *(((64,), 64, 64, 0, 1), ((1024,), 1024, 1, 0, 1), ((1021,), 1021, 1, 0, 1)),  # 1021 is prime
    *(((300,), 97, 101, 0, 1), ((300,), 67, 67, 0, 1), ((460,), 101, 115, 0, 1)),
    *(((260,), 64, 32, 0, 1), ((150,), 32, 7, 0, 1), ((150,), 13, 1, 6, 1), ((150,), 63, 2, 31, 1)),
    *(((100,), 21, 4, 5, 3), ((200,), 40, 3, 20, 2), ((90,), 17, 30, 8, 2)),
    *(((10,), 200, 1, 100, 1), ((10,), 90, 5, 130, 3)),
    ((7,), 8, 3, 28, 8),  # some windows have no element in the plane
    ((400,), 100, 100, 0, 2),  # adjacent only without the dilation
    ((100, 661), (100, 200), (100, 200), 0, 1),  # offsets of more than 2^16 along both axes only
    *(((40, 40), 36, 1, 3, 1), ((40, 40), 40, 40, 0, 1), ((40, 40), 34, 3, 17, 1)),
]
CALLS = [(window, mx.float32, 6) for window in LONG]
# Long separate windows of many elements take another path than those of few.
CALLS += [
    (window, mx.float32, 240) for window in LONG if window[1] == window[2] or window[0] == (1021,)
]
for dtype in (mx.float16, mx.bfloat16, mx.float64, mx.int8, mx.uint16):
    CALLS += [(((220,), 105, 105, 0, 1), dtype, n) for n in (6, 330)]
    CALLS += [(((150,), 33, 5, 16, 1), dtype, 6)]


@pytest.mark.parametrize(("window", "dtype", "channels"), CALLS)
def test_long_windows(window, dtype, channels):
    size, *parameters = window
    pool = reference.Pool(*(n if isinstance(n, tuple) else (n,) * len(size) for n in parameters))
    for seed, data_format in itertools.product(range(3), ("channels_last", "channels_first")):
        layout = Layout(len(size), 1, channels, data_format)
        check_case(Case(layout, size, dtype, drawn(layout, size, dtype, seed), pool))


# Both sides of each condition under which a strategy of the CPU backend applies:
# size, kernel, stride, padding, dilation, whether ceil_mode
BEFORE, AFTER = ((1, 0), (1, 0)), ((0, 1), (0, 1))
CONDITIONS = {
    "separate windows that cover the plane": ((6, 8), 2, 2),
    "and a rest": ((7, 9), 2, 2),
    "with padding before the plane": ((8, 8), 2, 2, BEFORE),
    "with padding instead of the first rows": ((7, 9), 2, 2, BEFORE),
    "with padding after it": ((7, 9), 2, 2, AFTER),
    "a window beyond the plane": ((7, 9), 2, 2, 0, 1, True),
    "with dilation": ((8, 8), 2, 2, 0, 2),
    "with dilation within the stride": ((9, 9), 2, 3, 0, 2),
    "with dilation and ceil_mode": ((4, 4), 2, 2, 0, 2, True),
    "shorter than the stride": ((6, 9), 2, 3),
    "overlapping": ((7, 7), 3, 2),
    "overlapping in one row of padding": ((8, 8), 3, 2, 1),
    "two of them beyond the plane": ((7, 9), 5, 2, 4),
    "offsets up to 256": ((5, 127), 3, 2),
    "offsets up to 256 in windows beyond the plane": ((5, 127), 3, 2, 1),
    "offsets of more than 256 in one step": ((5, 128), 3, 2, 1),
    "one row, two rows apart": ((6, 8), (1, 2), (2, 2)),
    "one smaller than the plane": ((6, 7), 5, 5),
    "the whole plane": ((5, 5), 5, 1),
    "the whole plane and padding": ((5, 5), 5, 1, AFTER),
    "the whole plane, dilated, and beyond it": ((5, 5), 5, 1, ((0, 4), (0, 4)), 2),
    "one axis": ((12,), 2, 2),
    "one axis with padding": ((11,), 2, 2, ((1, 0),)),
    "one axis and a rest": ((13,), 4, 4),
    "one axis, shorter than the stride": ((13,), 2, 3),
    "one axis, windows that start in the padding": ((5,), 2, 2, ((4, 9),), 9),
    "a window at each position": ((3,), 2, 1, ((4, 1),), 5),
    "three axes": ((4, 6, 8), 2, 2),
    "three axes, two of them pooled": ((3, 6, 8), (1, 2, 2), (1, 2, 2)),
    "three axes, the first and the last pooled": ((5, 6, 8), (2, 1, 2), (3, 1, 2)),
    "three axes, overlapping along the first": ((5, 6, 8), 2, (1, 2, 2)),
    "three axes, overlapping along the second": ((5, 6, 8), 2, (2, 1, 2)),
    "dilation along one axis, in the padding": ((3, 8), 2, (3, 2), ((1, 0), (0, 0)), (2, 1)),
    "long separate windows along one axis": ((200, 4), (100, 2), (100, 2)),
    "separate windows of more than 3 elements": ((24, 25), (5, 9), (5, 12)),
    "three axes, dilation within the stride": ((11, 12, 22), 4, 11, 0, 3),
    "large, dilation along the first axis": ((8, 9, 10), (3, 5, 5), 1, 0, (3, 1, 1)),
    "large, dilation along the second": ((8, 9, 10), (3, 5, 5), 1, 0, (1, 2, 1)),
    "large, a stride along the first": ((8, 9, 10), (3, 5, 5), (2, 1, 1)),
    "large, padding along the first": ((8, 9, 10), (3, 5, 5), 1, ((1, 1), (0, 0), (0, 0))),
}


@pytest.mark.parametrize("channels", [3, 16, 64, 128])
@pytest.mark.parametrize("row", CONDITIONS)
def test_both_sides_of_each_condition_of_a_strategy(row, channels):
    size, *given = CONDITIONS[row]
    rank, parameters = len(size), (*given, *(0, 1, False)[len(given) - 2 :])
    pool = reference.Pool(*(n if isinstance(n, (tuple, bool)) else (n,) * rank for n in parameters))
    for dtype in (mx.float32, mx.float16, mx.int32):
        layout = Layout(rank, 2, channels, "channels_last")
        check_case(Case(layout, size, dtype, drawn(layout, size, dtype, channels), pool))


@pytest.mark.parametrize("case", CHOSEN, ids=range(len(CHOSEN)))
def test_the_cases_that_are_chosen_for_the_kernels(case):
    check_case(case)


@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(2, 2**20, 1), (128, 1, 2**24)])
def test_strides_and_dilations_of_a_plane_of_nearly_2_to_the_31_positions(kernel, stride, dilation):
    length = 2**31 - 2 if stride > 1 else (kernel - 1) * dilation + 1
    x = mx.broadcast_to(mx.array([[[5]]], mx.int8), (1, length, 1))  # takes no memory
    _, indices = mlx_unpool.max_pool1d(x, kernel, stride, dilation=dilation, return_indices=True)
    assert indices.reshape(-1).tolist() == [*range(0, length - (kernel - 1) * dilation, stride)]


def test_a_large_step_along_an_axis_whose_rows_are_all_inside():
    """The distance between two elements is more than 2^53, beside an axis with padding."""
    dilation, width = 2**31 - 1, 2**22 + 1
    x = mx.broadcast_to(mx.array(0, mx.int8), (1, 3, width, 1))  # takes no memory
    padding = (dilation - 1, 0), 1
    options = {"dilation": (dilation, 1), "return_indices": True}
    _, indices = mlx_unpool.max_pool2d(x, (2, 3), (1, 2**20), padding, **options)
    columns = [0, *range(2**20 - 1, width, 2**20)]
    assert indices.flatten().tolist() == [
        row * width + column for row in (1, 2) for column in columns
    ]


# Shape and kernel: windows side by side with few channels and many, some with a remainder
SIDE_BY_SIDE = [
    ((2, 33, 64), 4),
    ((2, 33, 3), 5),
    ((1, 9, 9, 64), 2),
    ((2, 13, 16, 65), (3, 5)),
    ((2, 13, 16, 3), (5, 1)),
    ((2, 3, 16, 3), (1, 5)),
    ((1, 40, 26, 2), (20, 13)),
    ((2, 4, 7, 6, 64), (2, 3, 3)),
    ((2, 4, 7, 6, 3), (4, 1, 3)),
]


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.float64, mx.int32], ids=str)
@pytest.mark.parametrize(("shape", "kernel"), SIDE_BY_SIDE)
def test_gradients_of_windows_side_by_side_are_those_of_a_pool_with_indices(shape, kernel, dtype):
    random = np.random.default_rng(0)
    numbers = np.array([0, -0.0, 1, 2, np.inf, -np.inf, np.nan])
    if dtype == mx.int32:
        numbers = np.array([0, -(2**31), 1, 2, 2**31 - 1, -1, 2])
    x = random.choice(numbers, shape, p=[0.2, 0.2, 0.2, 0.1, 0.01, 0.19, 0.1])
    x = mx.array(x, dtype)
    pool = getattr(mlx_unpool, f"max_pool{len(shape) - 2}d")
    cotangent = mx.array(random.integers(-99, 99, pool(x, kernel).shape), dtype)
    (gradient,) = mx.vjp(lambda x: pool(x, kernel), [x], [cotangent])[1]
    (expected,) = mx.vjp(lambda x: pool(x, kernel, return_indices=True)[0], [x], [cotangent])[1]
    assert mx.array_equal(gradient, expected)


# On both sides of the largest number of rows, columns and elements that a dtype can count
LIMITS = [(rows, 1) for rows in (127, 128, 255, 256, 257)]
LIMITS += [(1, columns) for columns in (127, 128, 255, 256, 257)]
LIMITS += [(9, 14), (10, 12), (127, 2), (128, 2), (2, 60), (2, 127)]
LIMITS += [(181, 180), (182, 181), (257, 256)]


@pytest.mark.parametrize("kernel", LIMITS, ids=str)
def test_the_gradient_finds_the_first_and_the_last_element_of_a_long_window(kernel):
    count = kernel[0] * kernel[1]
    number = mx.tile(mx.arange(count).reshape(1, *kernel, 1), (1, 2, 1, 1))
    pool_gradient = mx.grad(lambda x: mlx_unpool.max_pool2d(x, kernel).sum())
    for place in (0, 1, count // 2, count - 2, count - 1):
        one, until, since = number == place, number <= place, number >= place
        for x in (
            mx.where(one, 1.0, 0.0),
            mx.where(since, 1.0, 0.0),  # the first of equal maxima
            mx.where(until, mx.nan, mx.inf),  # the last NaN
            mx.where(one, mx.nan, 1.0),
        ):
            assert mx.array_equal(pool_gradient(x), one), place


@pytest.mark.parametrize(("dtype", "count"), [(mx.float16, 2500), (mx.bfloat16, 600)], ids=str)
def test_sums_of_16_bit_gradients_are_rounded_once(dtype, count):
    """Sums of ones in these dtypes end at 2048 and 256."""
    x = (mx.arange(2 * count - 1) == count - 1).astype(dtype).reshape(1, -1, 1)
    for return_indices in (False, True):
        pool = mlx_unpool.MaxPool1d(count, 1, return_indices=return_indices)
        values = lambda x, p=pool: p(x)[0] if p.return_indices else p(x)
        _, (gradient,) = mx.vjp(values, [x], [mx.ones((1, count, 1), dtype)])
        assert mx.array_equal(gradient, count * x)


def test_the_gradient_of_2x2_windows_needs_no_scatter():
    gradient = mx.grad(lambda x: mlx_unpool.max_pool2d(x, 2).sum())(mx.zeros((1, 8, 8, 16)))
    assert not [name for name in operations(gradient) if "Scatter" in name]


# Size, pooled size, kernel of a fractional pool, channels
IRREGULAR = [
    ((length,), (n,), None, 6) for length, n in ((100, 1), (100, 7), (150, 33), (101, 9), (640, 10))
]
IRREGULAR += [((1000,), (3,), None, channels) for channels in (6, 70)]
IRREGULAR += [((1, 200), (1, 100), (1, kernel), 2) for kernel in (5, 12, 40)]
# The last row of a window alone has offsets above 255.
IRREGULAR += [((30, 30), (9, 9), (16, 17), 2)]


@pytest.mark.parametrize(("size", "pooled", "kernel", "count"), IRREGULAR)
def test_long_adaptive_and_fractional_windows(size, pooled, kernel, count):
    samples = np.random.default_rng(1).random((count, len(size)), np.float32)
    for seed, dtype in enumerate((mx.float32, mx.float16, mx.bfloat16, mx.float32)):
        layout = Layout(len(size), 1, count, ("channels_last", "channels_first")[seed % 2])
        x = drawn(layout, size, dtype, seed)
        check_case(IrregularCase(layout, size, dtype, x, pooled, kernel, samples))


def test_fractional_windows_of_long_axes_stay_on_the_axis():
    """float32 rounds the start of the last window but one up, past the axis and past int32."""
    x = mx.broadcast_to(mx.array(5, mx.int8), (1, 1, 2**31 - 2, 1))
    options = {
        "output_size": (1, 36_000_000),
        "random_samples": mx.zeros((1, 1, 2)),
        "return_indices": True,
    }
    _, indices = mlx_unpool.fractional_max_pool2d(x, 1, **options)
    assert indices[0, 0, -2:, 0].tolist() == [2**31 - 3] * 2


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("stride", [1, 2, 3, None])
def test_operations_grow_with_the_logarithm_of_a_window(stride, padded):
    counts = []
    for kernel in (2**bits + 1 for bits in range(6, 13)):
        window = kernel, stride, kernel // 2 if padded else 0
        found = mlx_unpool.max_pool1d(mx.zeros((1, 4 * kernel, 8)), *window, return_indices=True)
        counts.append(len(operations(*found)))
    assert max(b - a for a, b in itertools.pairwise(counts)) <= 64
    assert counts[-1] <= 64 * 12


def indices_of(kind: str, *arguments, **options) -> mx.array:
    return getattr(mlx_unpool, f"{kind}max_pool2d")(*arguments, return_indices=True, **options)[1]


def gradient(kernel: int, stride: int) -> mx.array:
    return mx.grad(lambda x: mlx_unpool.max_pool2d(x, kernel, stride).sum())(X)


X, LINE = mx.zeros((2, 12, 9, 64)), mx.ones((1, 10, 1, 1))
# Windows of two million elements, of which at most ten are inside
OUTSIDE = LINE, (2**21, 1), 1, (2**20, 0)
FAR_PADDING = mx.ones((1, 5, 1, 1)), (2, 1), (2**29, 1), (2**30, 0)
WINDOWS = (2, 2, 0), (3, 1, 1), (7, 7, 0)
FEWER = {  # a function of two calls, and how many times as many operations the first may have
    **{
        w: (lambda w=w: (mlx_unpool.max_pool2d(X, *w), indices_of("", X, *w)), 0.7) for w in WINDOWS
    },
    "adaptive": (lambda: (indices_of("adaptive_", X, (4, 3)), indices_of("", X, 3)), 1),
    "overlapping": (
        lambda: (indices_of("adaptive_", X, (11, 4)), indices_of("", X, (2, 3), (1, 2))),
        1,
    ),
    "outside": (lambda: (indices_of("", *OUTSIDE), indices_of("", LINE, (21, 1), 1, (10, 0))), 2),
    "the gradient of long windows": (lambda: (gradient(9, 9), gradient(3, 3)), 1),
}


@pytest.mark.parametrize(("calls", "part"), FEWER.values(), ids=map(str, FEWER))
def test_what_is_not_needed_costs_no_operations(calls, part):
    one, other = (len(operations(x)) for x in calls())
    assert 0 < one <= part * other


@pytest.mark.parametrize(("kernel", "channels"), [(100, 8), (1000, 8), (1000, 40)])
def test_a_long_window_gives_a_compiler_few_functions(kernel, channels):
    """The window does not change the number of fused functions.

    A C++ compiler takes half a second for each.
    """
    for window in ((kernel, 1), (kernel, kernel), (kernel, 1, kernel // 2)):
        pool = lambda x, window=window: mlx_unpool.max_pool1d(x, *window, return_indices=True)
        found = mx.compile(pool)(mx.zeros((2, 2 * kernel, channels)))
        assert len({name for name in operations(*found) if name.startswith("Compiled")}) <= 8


@pytest.mark.parametrize("window", [(2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 3, 2)])
def test_float64(window):
    """Values and cotangents that float32 cannot distinguish."""
    x = 1 + np.random.default_rng(0).permutation(6 * 17 * 19).reshape(6, 17, 19) * 1e-12
    pool = reference.Pool(*((n, n) for n in (*window, 1)))
    layout = Layout(2, 2, 3, "channels_first")
    check_case(case := Case(layout, (17, 19), mx.float64, x, pool))
    values, flat, _ = case.expected()
    _, (gradient,) = mx.vjp(
        lambda x: case.max_pool(x)[0], [case.x], [layout.arrange(values, mx.float64)]
    )
    expected = reference.max_pool_vjp(values, flat, case.size)
    np.testing.assert_allclose(layout.planes_of(gradient), expected, rtol=1e-14)


def unpool_all(kernel: int, length: int, padding: int) -> mx.array:
    shape = (1, *[length + 2 * padding - kernel + 1] * 2, 1)
    indices = mx.full(shape, kernel + 2, mx.uint16)
    return mlx_unpool.max_unpool2d(mx.ones(shape), indices, kernel, 1, padding, length)


# The last window starts at 2^30.
FAR = mx.ones((1, 2, 1)), mx.array([[[2], [0]]], mx.uint8), 3, 2**30, 0, 5
IMAGE = mx.zeros((1, 512, 512, 16))
MEMORY = {  # a call, and how many bytes it may take at most
    "values of 2x2 windows": (
        lambda: mlx_unpool.max_pool2d(IMAGE, 2),
        3 * IMAGE.nbytes / 4 + 2**12,
    ),
    "values of 2x2 windows, many channels": (
        lambda: mlx_unpool.max_pool2d(X, 2),
        X.nbytes / 4 + 2**12,
    ),
    "values of large windows": (lambda: mlx_unpool.max_pool2d(IMAGE, 32), 2e6),
    # A table of all elements of all windows would take up to 1.9 GB.
    "unpooled offsets, 32x32": (lambda: unpool_all(32, 512, 0), 20e6),
    "unpooled offsets, 32x32, padded": (lambda: unpool_all(32, 512, 16), 20e6),
    "unpooled offsets, 13x13, padded": (lambda: unpool_all(13, 512, 6), 20e6),
    "unpooled offsets, 3x3": (lambda: unpool_all(3, 1024, 0), 50e6),
    "windows that are far apart in the padding": (
        lambda: indices_of("", *FAR_PADDING, dilation=(2**30, 1)),
        10_000,
    ),
    "unpooled windows that are far apart": (lambda: mlx_unpool.max_unpool1d(*FAR), 10_000),
    "indices of windows of two million elements": (lambda: indices_of("", *OUTSIDE), 10_000),
}


@pytest.mark.parametrize(("call", "most"), MEMORY.values(), ids=MEMORY)
def test_memory(call, most):
    mx.eval(IMAGE, X)
    assert 0 < peak_of(lambda: mx.eval(call())) <= most


def many_windows() -> None:
    """So many windows that building a table of them would take seconds."""
    x = mx.broadcast_to(mx.array(0, mx.int8), (1, 1, 2**28 + 1, 1))
    for count in range(2**27, 2**27 + 20):
        mlx_unpool.adaptive_max_pool2d(x, (1, count), return_indices=True)
        mlx_unpool.fractional_max_pool2d(x, (1, 3), output_size=(1, count))


def large_window() -> mx.array:
    return mx.grad(lambda x: mlx_unpool.adaptive_max_pool2d(x, 1).sum())(mx.zeros((1, 224, 224, 3)))


@pytest.mark.parametrize("call", [many_windows, large_window])
def test_python_lists_no_windows_and_no_elements(call):
    tracemalloc.start()
    call()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**20


def unpool_overlapping(x: mx.array) -> mx.array:
    """Unpools windows that overlap and extend beyond the plane."""
    values = mlx_unpool.max_pool2d(x, 3, 2, 1)
    return mlx_unpool.max_unpool2d(
        values, mx.full(values.shape, 4, mx.uint8), 3, 2, 1, x.shape[1:3]
    )


# Functions, and the number of files that mx.compile may write for three further sizes.
COMPILED = [
    (lambda x: mlx_unpool.max_pool2d(x, 3, 2, 1), 0),
    (lambda x: mlx_unpool.max_pool2d(x, 2, return_indices=True), 0),
    (unpool_overlapping, 0),
    (mx.grad(lambda x: mlx_unpool.max_pool2d(x, 3, 2, 1).sum()), 2),  # source and library
    (mx.grad(lambda x: mlx_unpool.max_pool2d(x, 5).sum()), 0),
    (lambda x: mlx_unpool.adaptive_max_pool2d(x, 7, return_indices=True), 4),
]


@pytest.mark.parametrize(("function", "most"), COMPILED)
def test_a_further_size_compiles_no_further_source(function, most, tmp_path, monkeypatch):
    """Source that depends on numbers needs a C++ compiler, which takes half a second or more."""
    mx.eval(mx.compile(function)(mx.ones((1, 30, 34, 8))))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # MLX keeps its source and libraries there
    for size in ((37, 41), (53, 46), (61, 90)):
        mx.eval(mx.compile(function)(mx.ones((1, *size, 8))))
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) <= most


@pytest.mark.parametrize("dilation", [1, 2])
def test_indices_compile_nothing_further_past_2_to_the_16_positions(
    dilation, tmp_path, monkeypatch
):
    pool = mlx_unpool.MaxPool2d(3, 1, dilation, dilation=dilation, return_indices=True)
    mx.eval(mx.compile(pool)(mx.ones((1, 9, 12, 16))))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for size in ((30, 34), (37, 67), (100, 300), (300, 300)):
        mx.eval(mx.compile(pool)(mx.ones((1, *size, 16))))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
