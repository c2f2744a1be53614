"""The CPU backend: long windows, dtypes that only the CPU supports, and ``mx.compile``."""

import io
import itertools
import re
import tracemalloc

import mlx.core as mx
import numpy as np
import pytest
import reference
from arrays import Case, IrregularCase, Layout
from errors import fails
from kernel_cases import CHOSEN, same_bits
from properties import check_case, peak_of

import mlx_unpool
from mlx_unpool import _bounds
from mlx_unpool._backends.cpu import maxima
from mlx_unpool._geometry import fractional_geometry
from mlx_unpool._types import TRAITS

FORMATS = ("flat", "window")
KINDS = ("numbers", "ties", "nan", "infinite")


@pytest.fixture(autouse=True)
def on_the_cpu():
    with mx.stream(mx.cpu), mlx_unpool.use_backend("ops"):
        yield


@pytest.fixture(params=[0, 2**16], ids=["in blocks", "at once"])
def small_size(request, monkeypatch):
    """Run a test with both algorithms for long windows, although its arrays are small."""
    monkeypatch.setattr(maxima, "_SMALL_SIZE", request.param)


def operations(*arrays: mx.array) -> list[str]:
    """The names of the operations in the graph of unevaluated arrays, without numbers and ranges."""
    mx.export_to_dot(text := io.StringIO(), *arrays)
    found = re.findall(r'label ?="(\w+)", shape=rectangle', text.getvalue())
    return [name for name in found if name != "Arange"]


def planes(size: tuple[int, ...], kind: str, dtype: mx.Dtype = mx.float32, count=6) -> np.ndarray:
    """Planes with ties, NaN and infinities."""
    random = np.random.default_rng(size)
    x = random.normal(size=(count, *size)).astype(np.float32)
    if kind == "ties":
        x = random.integers(-1, 2, x.shape).astype(np.float32) * random.choice([1, -1], x.shape)
    elif kind == "nan":
        x[random.random(x.shape) < 3 / max(size)] = np.nan
        x[0] = np.nan
    elif kind == "infinite":
        x = np.where(random.random(x.shape) < 3 / max(size), 1, -np.inf).astype(np.float32)
        x[0] = -np.inf
    if mx.issubdtype(dtype, mx.integer):
        return np.abs(x).astype(str(dtype)[9:])
    return np.array(mx.array(x).astype(dtype).astype(mx.float32))


# Size, kernel, stride, padding, dilation
LONG = [
    *(((64,), 64, 64, 0, 1), ((1024,), 1024, 1, 0, 1), ((1021,), 1021, 1, 0, 1)),  # 1021 is prime
    *(((300,), 97, 101, 0, 1), ((300,), 67, 67, 0, 1), ((460,), 101, 115, 0, 1)),
    *(((260,), 64, 32, 0, 1), ((150,), 32, 7, 0, 1), ((150,), 13, 1, 6, 1), ((150,), 63, 2, 31, 1)),
    *(((100,), 21, 4, 5, 3), ((200,), 40, 3, 20, 2), ((90,), 17, 30, 8, 2)),
    *(((10,), 200, 1, 100, 1), ((10,), 90, 5, 130, 3)),
    ((7,), 8, 3, 28, 8),  # some windows have no element in the plane
    ((400,), 100, 100, 0, 2),  # adjacent only without the dilation
    *(((40, 40), 36, 1, 3, 1), ((40, 40), 40, 40, 0, 1), ((40, 40), 34, 3, 17, 1)),
]
CALLS = [(window, mx.float32) for window in LONG]
for dtype in (mx.float16, mx.bfloat16, mx.float64, mx.int8, mx.uint16):
    CALLS += [(((150,), 70, 70, 0, 1), dtype), (((150,), 33, 5, 16, 1), dtype)]


@pytest.mark.usefixtures("small_size")
@pytest.mark.parametrize(("window", "dtype"), CALLS)
def test_long_windows(window, dtype):
    size, *parameters = window
    pool = reference.Pool(*((n,) * len(size) for n in parameters))
    kinds, formats = KINDS, ["channels_last", "channels_first"]
    if len(size) > 1 or dtype in (mx.int8, mx.uint16):
        kinds, formats = ["ties"], formats[: 3 - len(size)]
    for kind, data_format in itertools.product(kinds, formats):
        layout = Layout(len(size), 1, 6, data_format)
        check_case(Case(layout, size, dtype, planes(size, kind, dtype), pool))


@pytest.mark.parametrize("case", CHOSEN, ids=range(len(CHOSEN)))
def test_the_cases_that_are_chosen_for_the_kernels(case):
    check_case(case)


@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(2, 2**20, 1), (128, 1, 2**24)])
def test_strides_and_dilations_of_a_plane_of_nearly_2_to_the_31_positions(kernel, stride, dilation):
    length = 2**31 - 2 if stride > 1 else (kernel - 1) * dilation + 1
    x = mx.broadcast_to(mx.array([[[5]]], mx.int8), (1, length, 1))  # takes no memory
    _, indices = mlx_unpool.max_pool1d(x, kernel, stride, dilation=dilation, return_indices=True)
    assert indices.reshape(-1).tolist() == [*range(0, length - (kernel - 1) * dilation, stride)]


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16, mx.int8], ids=str)
@pytest.mark.parametrize("shape", [(1, 14, 14, 128), (1, 64, 64, 2), (1, 128, 128, 1), (1, 64, 64, 2048)])
def test_memory_of_the_values_of_2x2_windows(shape, dtype):
    """Only the result and, with one channel, an array of half the size of the input."""
    x = mx.zeros(shape, dtype)
    mx.eval(x)
    most = (3 if shape[3] == 1 else 1) * x.nbytes / 4
    assert 0.9 * most <= peak_of(lambda: mx.eval(mlx_unpool.max_pool2d(x, 2))) <= most + 4096


def test_the_gradient_of_2x2_windows_needs_no_scatter():
    gradient = mx.grad(lambda x: mlx_unpool.max_pool2d(x, 2).sum())(mx.zeros((1, 8, 8, 16)))
    assert not [name for name in operations(gradient) if "Scatter" in name]


@pytest.mark.usefixtures("small_size")
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16], ids=str)
@pytest.mark.parametrize("kernel", [*range(100, 112), 122, 145])
def test_the_maximum_is_found_at_every_position_of_a_long_window(kernel, dtype):
    """The last block of a window may overlap the one before, and must not reach into the next window."""
    x = mx.concatenate([mx.eye(kernel), mx.full((1, kernel), 2.0)]).astype(dtype)
    for chosen, last in ((x, 0), (mx.where(x > 0, mx.nan, x), kernel - 1)):
        _, indices = mlx_unpool.max_pool1d(
            chosen.reshape(1, -1, 1), kernel, return_indices=True, index_format="window"
        )
        assert indices.reshape(-1).tolist() == [*range(kernel), last]


@pytest.mark.usefixtures("small_size")
def test_an_offset_on_two_axes_may_need_a_wider_dtype_than_each_of_them():
    x = mx.zeros((1, 100, 661, 1))
    x[0, 99, 97] = 1  # the last of 98 columns: 97 fits into 8 bits, 99 * 661 and 99 * 98 + 97 into 16
    _, indices = mlx_unpool.max_pool2d(x, (100, 98), return_indices=True)
    assert indices.reshape(-1).tolist()[0] == 99 * 661 + 97


# Size, pooled size, kernel of a fractional pool
IRREGULAR = [((length,), (n,), None) for length, n in ((100, 1), (100, 7), (1000, 3), (150, 33))]
IRREGULAR += [((101,), (9,), None), ((640,), (10,), None), ((30, 30), (9, 9), (21, 21))]
IRREGULAR += [((1, 200), (1, 100), (1, kernel)) for kernel in (5, 12, 40)]


@pytest.mark.usefixtures("small_size")
@pytest.mark.parametrize(("size", "pooled", "kernel"), IRREGULAR)
def test_long_adaptive_and_fractional_windows(size, pooled, kernel):
    count = 6 if kernel is None else 2
    samples = np.random.default_rng(1).random((count, len(size)), np.float32)
    for kind, dtype, data_format in (
        ("numbers", mx.float32, "channels_first"),
        ("ties", mx.float16, "channels_last"),
        ("ties", mx.bfloat16, "channels_first"),
        ("nan", mx.float32, "channels_last"),
        ("nan", mx.float16, "channels_first"),
    )[: 5 if 1 in size or len(size) == 1 else 2]:
        layout = Layout(len(size), 1, count, data_format)
        x = planes(size, kind, dtype, count)
        check_case(IrregularCase(layout, size, dtype, x, pooled, kernel, samples))


def test_windows_of_long_axes_are_computed_by_arithmetic_and_kept_nowhere():
    """So many windows that building a table of them would take seconds."""
    tracemalloc.start()
    x = mx.broadcast_to(mx.array(0, mx.int8), (1, 1, 2**28 + 1, 1))
    for count in range(2**27, 2**27 + 20):
        mlx_unpool.adaptive_max_pool2d(x, (1, count), return_indices=True)
        mlx_unpool.fractional_max_pool2d(x, (1, 3), output_size=(1, count))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 2**20


def test_fractional_windows_of_long_axes_stay_on_the_axis():
    """More than 2^24 windows: float32 rounds the start of the last but one up to a position too many."""
    length, count = 33554406, 16777221
    g = fractional_geometry((1, 1, length), (1, 1, count), (1, 1, 1))
    bounds = _bounds.fractional_bounds(mx.zeros((1, 1, 1)), g)
    assert bounds.max().item() == length


def test_adaptive_windows_of_one_shape_cost_what_an_ordinary_pool_costs():
    x = mx.random.normal((2, 12, 9, 3))
    for size, kernel, stride in (((4, 3), 3, 3), ((1, 1), (12, 9), 1), ((11, 4), (2, 3), (1, 2))):
        got = mlx_unpool.adaptive_max_pool2d(x, size, return_indices=True)
        expected = mlx_unpool.max_pool2d(x, kernel, stride, return_indices=True)
        assert len(operations(*got)) <= len(operations(*expected))
        assert all(mx.array_equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("stride", [1, 2, 3, None])
def test_operations_grow_with_the_logarithm_of_a_window(stride, padded):
    counts = []
    for kernel in (2**bits + 1 for bits in range(6, 13)):
        window = kernel, stride, kernel // 2 if padded else 0
        found = mlx_unpool.max_pool1d(mx.zeros((1, 4 * kernel, 8)), *window, return_indices=True)
        counts.append(len(operations(*found)))
    assert max(b - a for a, b in itertools.pairwise(counts)) <= 32
    assert counts[-1] <= 300


def test_elements_outside_the_input_need_no_operations():
    x, window = mx.ones((1, 10, 1)), (2**21, 1, 2**20)
    assert len(operations(*mlx_unpool.max_pool1d(x, *window, return_indices=True))) < 200


@pytest.mark.usefixtures("small_size")
@pytest.mark.parametrize("index_format", FORMATS)
@pytest.mark.parametrize("kernel", [100, 1000])
def test_a_long_window_gives_a_compiler_few_functions(kernel, index_format):
    """A C++ compiler takes half a second per fused function: the window must not change their number."""
    options = {"return_indices": True, "index_format": index_format}
    for window in ((kernel, 1), (kernel, kernel), (kernel, 1, kernel // 2)):
        pool = lambda x, window=window: mlx_unpool.max_pool1d(x, *window, **options)
        found = mx.compile(pool)(mx.zeros((2, 2 * kernel, 8)))
        assert len({name for name in operations(*found) if name.startswith("Compiled")}) <= 5


@pytest.mark.parametrize("window", [(2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 3, 2)])
def test_float64(window):
    """Values and cotangents that float32 cannot distinguish."""
    x = 1 + np.random.default_rng(0).permutation(6 * 17 * 19).reshape(6, 17, 19) * 1e-12
    pool, layout = reference.Pool(*((n, n) for n in (*window, 1))), Layout(2, 2, 3, "channels_first")
    case = Case(layout, (17, 19), mx.float64, x, pool)
    check_case(case)
    values, flat, _ = case.expected()
    _, (gradient,) = mx.vjp(lambda x: case.max_pool(x)[0], [case.x], [layout.arrange(values, mx.float64)])
    expected = reference.max_pool_vjp(values, flat, case.size)
    np.testing.assert_allclose(layout.planes_of(gradient), expected, rtol=1e-14)


@pytest.mark.parametrize("backend", ["metal", "cuda"])
def test_no_gpu_has_float64(backend):
    x, indices = mx.zeros((1, 4, 1), mx.float64), mx.zeros((1, 4, 1), mx.int32)
    for name, *arguments in (
        ("max_pool1d", x, 2),
        ("adaptive_max_pool1d", x, 3),
        ("max_unpool1d", x, indices, 2),
    ):
        call = lambda f=name, a=arguments: getattr(mlx_unpool, f)(*a)
        with mlx_unpool.use_backend(backend):
            fails(call, TypeError, name, "x", "float64")


@pytest.mark.parametrize("window", [(2, 2, 0), (3, 2, 1), (3, 1, 1), (7, 7, 0), (5, 2, 2)])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.int16])
def test_a_pool_without_indices_computes_values_only(window, dtype):
    x = mx.random.uniform(-9, 9, (2, 28, 28, 64)).astype(dtype)
    mx.eval(x)
    found = set(operations(mlx_unpool.max_pool2d(x, *window)))
    arithmetic = {"Multiply", "Greater", "NotEqual", "BitwiseBinary", "ArgReduce", "Scatter"}
    assert found & {"Maximum", "Max"}
    assert not arithmetic & (found - ({"Multiply"} if window[2] else set()))  # of rows to gather
    indices = mlx_unpool.max_pool2d(x, *window, return_indices=True)[1]
    assert {"Maximum", "Greater"} <= set(operations(indices))


@pytest.mark.parametrize(("kernel", "length", "most"), [(32, 512, 16), (13, 512, 16), (3, 1024, 40)])
@pytest.mark.parametrize("padded", [False, True])
def test_unpooling_window_indices_takes_little_memory(kernel, length, most, padded):
    """In MB. A table of all elements of all windows would take up to 1.9 GB."""
    padding = kernel // 2 if padded else 0
    shape = (1, *[length + 2 * padding - kernel + 1] * 2, 1)
    values, indices = mx.ones(shape), mx.full(shape, kernel + 2, mx.uint16)
    window = kernel, 1, padding, (length, length)
    mx.eval(values, indices)
    assert peak_of(lambda: mx.eval(mlx_unpool.max_unpool2d(values, indices, *window))) <= most * 1e6


def test_windows_that_are_far_apart_or_large_take_little_memory():
    # The last of two windows starts 2^30 positions after the end of the output.
    indices = mx.array([[[2], [0]]], mx.uint8)
    unpool = lambda: mlx_unpool.max_unpool1d(mx.ones((1, 2, 1)), indices, 3, 2**30, 0, 5)
    assert peak_of(lambda: mx.eval(unpool())) < 10_000
    assert unpool().reshape(-1).tolist() == [0, 0, 1, 0, 0]
    x = mx.random.normal((1, 512, 512, 16))
    mx.eval(x)
    assert peak_of(lambda: mx.eval(mlx_unpool.max_pool2d(x, 32))) <= 2e6


def test_the_gradient_of_a_large_window_lists_none_of_its_elements():
    tracemalloc.start()
    mx.grad(lambda x: mlx_unpool.adaptive_max_pool2d(x, 1).sum())(mx.zeros((1, 224, 224, 3)))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**20


# Separate windows, and dilated ones: rank, kernel, stride, dilation, length
SEPARATE = [(1, 4, 4, 1, 13), (2, (5, 9), (5, 12), 1, 24), (3, 4, 11, 3, 22), (3, 8, 8, 1, 19)]
SEPARATE += [
    (2, 2, 2, 1, 13),
    (2, 2, 2, 2, 13),
    (2, (2, 3), (2, 3), 1, 3),
    (3, 2, 2, 1, 5),
    (3, (3, 1, 2), (3, 1, 2), 1, 6),
]


@pytest.mark.parametrize(("rank", "kernel", "stride", "dilation", "length"), SEPARATE)
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16, mx.float64], ids=str)
def test_values_alone_are_those_of_the_indices(rank, kernel, stride, dilation, length, dtype):
    """Of zeros the first, and of NaNs the last, with its sign and payload."""
    random = np.random.default_rng(0)
    unsigned = {2: np.uint16, 4: np.uint32, 8: np.uint64}[dtype.size]
    infinity = np.array(mx.array(mx.inf, dtype).view(TRAITS[dtype].unsigned))
    sign = random.integers(0, 2, (2, *[length] * rank, 3)).astype(unsigned) << (8 * dtype.size - 1)
    for share in (0, 0.02, 0.5):
        payload = random.integers(1, 100, sign.shape).astype(unsigned)
        nan = np.where(random.random(sign.shape) < share, infinity + payload, unsigned(0))
        x = mx.array(sign | nan).view(dtype)
        pool = getattr(mlx_unpool, f"max_pool{rank}d")
        window = {"stride": stride, "dilation": dilation}
        expected = pool(x, kernel, return_indices=True, **window)[0]
        strided = mx.repeat(x, 2, axis=-1)[..., ::2]
        transposed = mx.contiguous(x.swapaxes(0, -1)).swapaxes(0, -1)
        for y in (x, strided, transposed):
            assert same_bits(pool(y, kernel, **window), expected)
        first = window | {"data_format": "channels_first"}  # one channel per plane
        y, expected = mx.moveaxis(x, -1, 1), mx.moveaxis(expected, -1, 1)
        assert same_bits(pool(y, kernel, **first), mx.contiguous(expected))


def unpool_overlapping(x: mx.array) -> mx.array:
    """Unpools windows that overlap and extend beyond the plane."""
    values = mlx_unpool.max_pool2d(x, 3, 2, 1)
    indices = mx.full(values.shape, 4, mx.uint8)
    return mlx_unpool.max_unpool2d(values, indices, 3, 2, 1, x.shape[1:3])


# Functions, and the number of files that mx.compile may write for three further sizes.
COMPILED = [
    (lambda x: mlx_unpool.max_pool2d(x, 3, 2, 1), 0),
    (lambda x: mlx_unpool.max_pool2d(x, 2, return_indices=True), 0),
    (unpool_overlapping, 0),
    (mx.grad(lambda x: mlx_unpool.max_pool2d(x, 3, 2, 1).sum()), 2),  # source and library
    (lambda x: mlx_unpool.adaptive_max_pool2d(x, 7, return_indices=True), 4),
]


@pytest.mark.parametrize(("function", "most"), COMPILED)
def test_a_further_size_compiles_no_further_source(function, most, tmp_path, monkeypatch):
    """MLX calls a C++ compiler for source that depends on numbers, which takes half a second or more."""
    mx.eval(mx.compile(function)(mx.ones((1, 30, 34, 8))))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # MLX keeps its source and libraries there
    for size in ((37, 41), (53, 46), (61, 90)):
        mx.eval(mx.compile(function)(mx.ones((1, *size, 8))))
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) <= most
