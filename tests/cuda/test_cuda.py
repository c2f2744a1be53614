"""The kernels compile as CUDA, and their grids keep CUDA's limits. Nothing runs here: that takes a GPU.

That a grid rounded up to whole blocks does no harm is shown where kernels run, in ``tests/metal``.
"""

from __future__ import annotations

import functools
import itertools
import re
from math import prod

import cuda_text
import mlx.core as mx
import pytest
from arrays import FLOATS, INTEGERS
from needs import needed

import mlx_unpool
from mlx_unpool import _backends
from mlx_unpool._backends import gpu
from mlx_unpool._backends.gpu import threadgroup

# What MLX passes for an A100 and for an H100.
ARCHITECTURES = ("sm_80", "sm_90a")
WINDOWS = ((2, 2, 0), (3, 2, 1), (3, 1, 1))
FLAT_DTYPES = (mx.int8, mx.uint32, mx.int64, mx.uint64)  # besides int32


def there_and_back(
    shape, window, dtype=mx.float32, index_format="flat", index_dtype=None, **options
):
    """Pools and unpools, every way there is, and asks for every derivative."""
    x = mx.broadcast_to(mx.zeros((), dtype), shape)
    layout = {k: v for k, v in options.items() if k == "data_format"}
    rank = len(shape) - 2
    size = shape[2:] if layout else shape[1:-1]
    max_pool = getattr(mlx_unpool, f"max_pool{rank}d")
    max_unpool = getattr(mlx_unpool, f"max_unpool{rank}d")

    def call(x):
        values, indices = max_pool(
            x, *window, return_indices=True, index_format=index_format, **options
        )
        if index_dtype is not None:
            indices = indices.astype(index_dtype)
        dilated = {k: v for k, v in options.items() if k != "ceil_mode"}
        y = max_unpool(values, indices, *window, output_size=size, **dilated)
        if index_format == "flat":
            y = y + max_unpool(values, indices, None, output_size=size, **layout)
        return y

    mx.vjp(call, [x], [x])
    mx.jvp(call, [x], [x])


def irregular(shape, dtype=mx.float32, **options):
    """Adaptive and fractional pooling with every derivative."""
    x = mx.broadcast_to(mx.zeros((), dtype), shape)
    rank = len(shape) - 2
    adaptive = getattr(mlx_unpool, f"adaptive_max_pool{rank}d")
    calls = [lambda x: adaptive(x, 3, return_indices=True, **options)]
    if rank > 1:
        fractional = getattr(mlx_unpool, f"fractional_max_pool{rank}d")
        calls.append(lambda x: fractional(x, 2, output_size=3, return_indices=True, **options))
    for call in calls:
        mx.vjp(call, [x], list(call(x)))
        mx.jvp(call, [x], [x])


@functools.cache
def launches() -> list[cuda_text.Launch]:
    """Launches that have every text that matters: types, formats, ranks, layouts, lanes, windows."""
    recorder = cuda_text.Recorder()
    with recorder.installed():
        for window, index_format in itertools.product(WINDOWS, ("flat", "window")):
            there_and_back((2, 9, 8, 20), window, mx.float32, index_format)
        for dtype, index_format in itertools.product(FLOATS[1:], ("flat", "window")):
            there_and_back((2, 9, 8, 20), (2, 2), dtype, index_format)
        for dtype in INTEGERS:
            there_and_back((2, 9, 8, 20), (3, 2, 1), dtype, "flat")
        for index_dtype in FLAT_DTYPES:
            there_and_back((2, 9, 8, 4), (2, 2), index_dtype=index_dtype)
        for channels in (1, 2, 3, 5):
            there_and_back((2, 9, 8, channels), (2, 2), mx.float16, "window")
        there_and_back((2, 3, 9, 8), (2, 2), data_format="channels_first")
        there_and_back((1, 2, 2, 1), (2, 2))  # one cell
        there_and_back((1, 31, 3), (5, 3, 2), dilation=2)
        there_and_back((1, 9, 8, 7, 4), ((3, 2, 3), (2, 2, 1), 1), ceil_mode=True)
        there_and_back((1, 9, 8, 7, 4), (3, 1, 1), mx.float16, "window")
        there_and_back((1, 9, 8, 16), (3, 1, 1), index_format="window")  # codes of 16 channels
        there_and_back((1, 11, 12, 3), (2, 5), index_format="window")  # stride > kernel
        for index_format in ("flat", "window"):
            there_and_back((1, 11, 12, 20), (5, 1, 2), index_format=index_format)  # repeated rows
            there_and_back((1, 5, 1), (3, 1, 2**30), index_format=index_format, dilation=2**30)
        there_and_back((1, 34, 34, 8), (17, 17), mx.bfloat16, "window")  # uint16 indices
        there_and_back((1, 40, 41, 3), (9, 1, 4), dilation=2)  # a large window, dilation > stride
        for dtype in (*FLOATS, *INTEGERS):
            irregular((2, 10, 7, 3), dtype)
            there_and_back((1, 40, 41, 3), (9, 8), dtype)  # windows that several threads share
        irregular((1, 8, 3), mx.float32)
        irregular((1, 8, 9, 5), mx.float32)
        irregular((2, 2, 8, 7, 10), data_format="channels_first")
        irregular((1, 2**16, 2**15, 1), mx.uint8)  # int64 indices
        there_and_back((1, 2**16, 2**15, 1), (3, 2, 1), mx.uint8)
        there_and_back((1, 2**16, 2**15, 1), (9, 8), mx.uint8)
        there_and_back((2, 20, 30, 1), (2, 2))  # rows that threads do not divide evenly
    return list({launch.function: launch for launch in recorder.launches}.values())


def test_the_calls_above_make_every_kernel_with_every_switch():
    seen: dict[tuple[str, str], set] = {}
    for launch in launches():
        for name, value in launch.template:
            if len(re.findall(rf"\b{name}\b", launch.function)) > 1:  # not declared alone
                seen.setdefault((launch.body, name), set()).add(value)
    assert {body for body, _ in seen} == {kernel.name for kernel in gpu.KERNELS}
    for (body, name), values in seen.items():
        if isinstance(next(iter(values)), bool):
            assert values == {False, True}, (body, name)
        if name == "T":
            assert values == {*FLOATS, *INTEGERS}, body
        if name in ("INDEX", "OFFSET"):
            assert values == {mx.int32, mx.int64}, (body, name)
        if name == "NAMED":
            assert values == {mx.int32, mx.int64} | ({mx.uint16} if body == "pick" else set()), body
    for name, most in (("V", {1, 2, 3, 4, 5, 8, 16}), ("X", {1, 2, 4, 8})):
        assert {v for (_, n), values in seen.items() if n == name for v in values} == most
    assert all(re.fullmatch(r"\w+", launch.function.split("(")[0][16:]) for launch in launches())


@pytest.fixture
def nvrtc() -> None:
    needed(cuda_text.compiler_missing())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_compiles_and_keeps_its_arrays_in_registers(architecture, nvrtc):
    # What one switch or type makes of a text that serves all: constants without use, loops that are never
    # reached, unsigned numbers compared with zero.
    that_is_fine = "--diag-suppress=177,128,186"
    good, said = cuda_text.compile_text(
        *(cuda_text.unit(launches()), architecture, "--ptxas-options=-v"),
        that_is_fine,
    )
    assert good, said
    assert "warning" not in said, said
    memory = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+)", said)
    assert memory == [("0", "0", "0")] * len(launches())


@pytest.mark.parametrize("body", [kernel.name for kernel in gpu.KERNELS])
def test_the_text_as_mlx_makes_it_compiles(body, nvrtc):
    launch = next(launch for launch in launches() if launch.body == body)
    good, said = cuda_text.compile_text(launch.text, ARCHITECTURES[-1])
    assert good, said


MISTAKES = [
    ("pool", "lowest<T>()", "metal::numeric_limits<T>::lowest()"),
    ("pool", "? rank : row_order", "? metal::max(rank, held) : row_order"),
    ("pool", "? rank : row_order", "? simd_max(rank) : row_order"),
    ("pool", "order_of(value[e][v])", "order_of(as_type<T>(value[e][v]))"),
    ("pool", "order_of(value[e][v])", "order_of(*(const device T*)&value[e][v])"),
    ("pool", "T best[Y * X][V];", "threadgroup T best[Y * X][V];"),
    (
        "pool",
        "T best[Y * X][V];",
        "threadgroup_barrier(mem_flags::mem_threadgroup); T best[Y * X][V];",
    ),
    ("pool", "best[j][v] = lowest<T>();", "x[from + v] = lowest<T>();"),
    ("pool", "= size[0]", "= out_shape[1]"),
    ("pick", "int D = full_shape[1]", "int D = full_strides[0]"),
    ("place", "T value[AT_ONCE][V];", "half4 value[AT_ONCE][V];"),
    ("place", "OFFSET(at.z) * D", "OFFSET(at.zz) * D"),
    ("place", "WHOLE>(out, written,", "WHOLE>(written, out,"),
    ("pool_large", "Run<AXIS> d, h, w;", "Run<AXIS> d, h;"),
    ("pool_regions", "bounds[bd]", "bounds.at(bd)"),
    ("pool_chunks", "number[v] = -1;", "numbers[v] = -1;"),
    ("accumulate_regions", "Cover<AXIS> cd, ch, cw;", "Cover<AXIS> cd, ch;"),
    ("outside_window", "set_bits(", "atomic_fetch_or_explicit("),
    ("outside_winners", "set_bits(named +", "atomic_fetch_or_explicit((atomic_uint*)named +"),
    ("last_writer", "raise_to(", "atomic_fetch_max_explicit("),
    ("last_writer", "raise_to(winner", "raise_to((int64_t*)winner"),
    ("last_writer", "const OFFSET number =", "const OFFSET number"),
]


def test_mistakes_do_not_compile(nvrtc):
    """Every second kernel of this program has a mistake, and those alone are complained of."""
    sound = {launch.body: launch for launch in launches()}
    both = []
    for n, (body, old, new) in enumerate(MISTAKES):
        assert old in sound[body].function
        for wrong in (False, True):
            function = sound[body].function.replace("void ", f"void n{n}_{wrong}_")
            function = function.replace(old, new) if wrong else function
            both.append(cuda_text.Launch(body, sound[body].header, function, (), (), ()))
    good, said = cuda_text.compile_text(cuda_text.unit(both), ARCHITECTURES[0])
    assert not good
    blamed = {int(n) for n in re.findall(r"^(\d+)\(\d+\): error", said, re.MULTILINE)}
    assert blamed == set(range(1, len(both), 2)), said


def assert_cuda_can_launch(grid, threadgroup) -> None:
    """CUDA's limits for every compute capability; MLX clips a block to the grid and rounds the grid up."""
    launch = cuda_text.Launch("", "", "", (), grid, threadgroup)
    assert all(1 <= n < 2**31 for n in (*grid, *threadgroup))  # int in MLX
    assert prod(launch.block) <= 1024
    assert launch.block[2] <= 64
    assert launch.blocks[0] < 2**31
    assert max(launch.blocks[1:]) <= 65535
    # a position is 32 bits wide
    assert all(n * of <= 2**32 for n, of in zip(launch.blocks, launch.block, strict=True))


@pytest.mark.parametrize(
    ("shape", "window", "options"),
    [
        ((64, 2048, 28, 28), (2, 2), {"data_format": "channels_first"}),  # 131,072 planes
        ((64, 2048, 28, 28), (3, 1, 1), {"data_format": "channels_first"}),
        ((1000, 2000, 8), (2, 2), {"data_format": "channels_first"}),  # 2,000,000 planes
        ((64, 512, 7, 7), (7, 7), {"data_format": "channels_first"}),  # one cell a plane
        ((1, 300_000, 4, 8), (3, 1, 1), {}),  # 300,000 rows
        ((1, 3_000_000, 1, 1), (3, 1, 1), {}),
        ((2, 1500, 1500, 4, 4), (2, 2), {}),
        ((70_000, 70_000, 1, 1), ((2, 1), (2, 1)), {"index_format": "window"}),
        ((1, 2**31 - 2, 1), (2, 2), {}),  # as many places as int32 indices can name
        ((1, 16, 2**20 * 300), (2, 2), {"dtype": mx.float16}),
        ((1, 1, 1, 1), (1, 1), {}),
    ],
)
def test_grids_keep_cudas_limits(shape, window, options):
    recorder = cuda_text.Recorder()
    with recorder.installed():
        there_and_back(shape, window, **options)
    unpool = (
        {"last_writer", "accumulate_regions"} if window == (7, 7) else {"place"}
    )  # a large stride
    assert {launch.body for launch in recorder.launches} >= {"pool", "pick", *unpool}
    for launch in recorder.launches:
        assert_cuda_can_launch(launch.grid, launch.threadgroup)


def test_blocks_are_launchable_and_no_waste():
    """Every mix of small and huge axes, up to arrays that no device can hold."""
    narrow, many = (1, 2, 3, 7, 28, 300), (65535, 65536, 131_072, 300_000, 2_000_000)
    most_planes = 64 * 65535
    for grid in itertools.product(
        (*narrow, 896, 2**31 - 1), (*narrow, *many), (*narrow, 1000, *many, most_planes)
    ):
        if prod(grid) <= 2**37:
            assert_cuda_can_launch(grid, threadgroup(grid))
            assert prod(threadgroup(grid)) >= 32 or prod(grid) < 256


# A grid at each limit: its threadgroup on CUDA and on Metal.
MOST_ROWS, MOST_PLANES = 65535 * 1024, 65535 * 64
THREADGROUPS = {
    (2**31 - 1, 1, 1): ((256, 1, 1), (256, 1, 1)),
    (300, 65535, 1): ((256, 1, 1), (256, 1, 1)),
    (300, 65536, 1): ((128, 2, 1), (256, 1, 1)),
    (300, 2 * 65535, 1): ((128, 2, 1), (256, 1, 1)),
    (300, 2 * 65535 + 1, 1): ((64, 4, 1), (256, 1, 1)),
    (300, 1, 65536): ((128, 1, 2), (256, 1, 1)),
    (1, MOST_ROWS, 1): ((1, 1024, 1), (1, 256, 1)),
    (1, MOST_ROWS // 64, MOST_PLANES): ((1, 16, 64), (1, 256, 1)),
    (1, 1, MOST_PLANES): ((1, 1, 64), (1, 1, 64)),
}


@pytest.mark.parametrize("grid", THREADGROUPS)
def test_threadgroups_at_each_limit(grid):
    cuda, metal = THREADGROUPS[grid]
    assert (threadgroup(grid, "cuda"), threadgroup(grid, "metal")) == (cuda, metal)
    assert_cuda_can_launch(grid, cuda)
    assert prod(metal) <= 256  # a pipeline may allow less than 1,024


@pytest.mark.parametrize(
    "grid", [(1, MOST_ROWS + 1, 1), (1, 1, MOST_PLANES + 1), (1, 65535 * 512, 65535 * 4)]
)
def test_grids_beyond_cudas_blocks_are_refused_there_alone(grid):
    with pytest.raises(ValueError, match=r"\[pool\] the grid must have at most 65535 blocks"):
        threadgroup(grid, "cuda", "pool")
    assert prod(threadgroup(grid, "metal")) <= 256


@pytest.mark.parametrize("dialect", ["cuda", "metal"])
@pytest.mark.parametrize("axis", range(3))
def test_axes_of_2_to_the_31_threads_are_refused(dialect, axis):
    grid = tuple(2**31 if n == axis else 1 for n in range(3))
    with pytest.raises(ValueError, match="the grid must have at most 2147483647 threads"):
        threadgroup(grid, dialect)


def test_a_call_with_too_many_planes_for_cuda_is_refused():
    x = mx.broadcast_to(mx.array(0, mx.int8), (MOST_PLANES + 1, 4, 1))
    recorder = cuda_text.Recorder()
    with recorder.installed(), pytest.raises(ValueError, match=r"\[pool\] the grid must"):
        mx.eval(mlx_unpool.max_pool1d(x, 2, return_indices=True))
    assert not recorder.launches


def test_a_gpu_that_is_not_apples_is_cudas(monkeypatch):
    class Stream:
        device = mx.Device(mx.gpu)

    monkeypatch.setattr(_backends, "is_available", lambda name: name in ("ops", "cuda"))
    assert _backends.where(Stream).backend is _backends.get("cuda")
    monkeypatch.setattr(_backends, "is_available", lambda name: name in ("ops", "metal"))
    assert _backends.where(Stream).backend is _backends.get("metal")
    assert _backends.where(mx.default_stream(mx.cpu)).backend is _backends.get("ops")
