"""No access out of bounds, no race, nothing left unwritten; and broken kernels are caught.

``test_metal_parity`` watches every launch of its cases, hostile indices included. Here stand the controls:
kernels with a mistake for every kind of failure, grids that are rounded up, arrays of more than 2^31
elements.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable

import emulator
import metal_host
import mlx.core as mx
import numpy as np
import pytest

import mlx_unpool
from mlx_unpool import _backends
from mlx_unpool._geometry import adaptive_geometry

X = mx.random.normal((2, 6, 7, 5), key=mx.random.key(0))  # 5 channels: a thread with a tail


def pool() -> mx.array:
    return mx.concatenate(
        [mlx_unpool.max_pool2d(X, *window).reshape(-1) for window in ((2, 2), (3, 2, 1))]
    )


def pool_indices() -> mx.array:
    ties = mx.array([[1.0, 1, np.nan, 2], [1, 1, 3, np.nan]])[None, ..., None]
    return mlx_unpool.max_pool2d(ties, 2, return_indices=True)[1]


def indices(window, index_format="flat"):
    return mlx_unpool.max_pool2d(X, *window, return_indices=True, index_format=index_format)


OVERLAPPING = (3, 2, 1)
with mx.stream(mx.cpu):
    FLAT = indices(OVERLAPPING)[1]
    VALUES = (
        mx.arange(FLAT.size, dtype=mx.float32).reshape(FLAT.shape) + 1
    )  # so that it shows who won
    WINDOW = indices(OVERLAPPING, "window")[1]
    STRAY = mx.where(mx.arange(FLAT.size).reshape(FLAT.shape) % 3 == 0, 3, FLAT)
    HOSTILE = mx.where(mx.arange(FLAT.size).reshape(FLAT.shape) % 3 == 0, 2**31 - 1, FLAT)
    mx.eval(VALUES, FLAT, WINDOW, STRAY, HOSTILE)


def unpool(given: mx.array, values: mx.array = VALUES) -> Callable[[], mx.array]:
    return lambda: mlx_unpool.max_unpool2d(values, given, *OVERLAPPING, output_size=(6, 7))


def unpool_gradient(given: mx.array) -> Callable[[], mx.array]:
    def call() -> mx.array:
        return mx.vjp(
            lambda v: mlx_unpool.max_unpool2d(v, given, *OVERLAPPING, output_size=(6, 7)),
            [VALUES],
            [X],
        )[1][0]

    return call


def unpool_any() -> mx.array:
    return mlx_unpool.max_unpool2d(VALUES, HOSTILE, None, output_size=(6, 7))


def adaptive() -> mx.array:
    return mlx_unpool.adaptive_max_pool2d(X, (4, 3))


def fractional_indices() -> mx.array:
    ties = mx.array([[1.0, 1, np.nan, 2], [1, 1, 3, np.nan]])[None, ..., None]
    samples = mx.array([[[0.3, 0.6]]])
    return mlx_unpool.fractional_max_pool2d(
        ties, 2, output_size=(1, 2), random_samples=samples, return_indices=True
    )[1]


def adaptive_gradient() -> mx.array:
    return mx.grad(lambda x: mlx_unpool.adaptive_max_pool2d(x, (4, 3)).sum())(X)


SCATTER = """
    const int OD = indices_shape[1], OH = indices_shape[2], OW = indices_shape[3], C = indices_shape[4];
    const uint3 at = thread_position_in_grid;
    const int cell = int(at.y) * OW + int(at.x) / C, c = int(at.x) % C;
    if (cell < OD * OH * OW) {
      const int from = (int(at.z) * OD * OH * OW + cell) * C + c;
      out[(int64_t(at.z) * size[0] * size[1] * size[2] + indices[from]) * C + c] = values[from];
    }
"""

# A mistake for every kind of failure: kernel, text, replaced by, a call that shows it, what is reported.
# "another result" is a mistake that harms no memory and must be caught by comparison.
MUTANTS = {
    "pool reads before the plane": ("pool", "w < 0 ||", "w < -1 ||", pool, "out of bounds"),
    "pool reads behind the plane": ("pool", "w >= W", "w > W", pool, "out of bounds"),
    "pool takes the last of equals": (
        "pool",
        "value > best[v]",
        "value >= best[v]",
        pool_indices,
        "another result",
    ),
    "pool forgets NaN": ("pool", "|| value != value", "", pool_indices, "another result"),
    "pool writes to its input": (
        *("pool", "out[to + v] = best[v];", "out[to + v] = best[v]; ((device T*)x)[to] = best[v];"),
        *(pool, "write to an input"),
    ),
    "pool overflows": (
        *(
            "pool",
            "bool first = true;",
            "bool first = true; volatile int top = 2147483647; top = top + int(at.x) + 1;",
        ),
        *(pool, "undefined behaviour"),
    ),
    "pool forgets the tail": ("pool", "TAIL &&", "false &&", pool, "second write"),
    "place leaves a rim": ("place", "w >= W)", "w >= W - 1)", unpool(WINDOW), "unwritten"),
    "place writes twice": ("place", "rw < SW", "rw <= SW", unpool(WINDOW), "second write"),
    "place runs over the rim": ("place", "h >= H)", "h > H)", unpool(WINDOW), "second write"),
    "place takes the first of several": (
        *(
            "place",
            "int aw = (KW - 1) * DW / SW; aw >= 0; --aw",
            "int aw = 0; aw <= (KW - 1) * DW / SW; ++aw",
        ),
        *(unpool(FLAT), "another result"),
    ),
    "place reads a cell that is not": (
        "place",
        "oh >= OH",
        "oh > OH",
        unpool(WINDOW),
        "out of bounds",
    ),
    "place ignores strays": ("place", "if (scan)", "if (false)", unpool(STRAY), "another result"),
    "place scatters": ("place", None, SCATTER, unpool(FLAT), "second write"),
    "place reads its output": (
        *("place", "out[to + v] = T(result[v]);", "out[to + v] = T(result[v]) + out[to + v];"),
        *(unpool(WINDOW), "read before any write"),
    ),
    "place reads another's output": (
        *(
            "place",
            "out[to + v] = T(result[v]);",
            "out[to + v] = T(result[v]); result[v] = ACC(out[0]);",
        ),
        *(unpool(WINDOW), "read"),
    ),
    "pick trusts indices": (
        *("pick", "index >= 0 && index < INDEX(D) * H * W", "true"),
        *(unpool_gradient(HOSTILE), "out of bounds"),
    ),
    "pick forgets who won": (
        "pick",
        "WINNERS && shared && found",
        "false",
        unpool_gradient(FLAT),
        "another result",
    ),
    "stray trusts indices": (
        *("stray", "index < 0 || index >= INDEX(D) * H * W", "index < 0"),
        *(unpool(HOSTILE), "out of bounds"),
    ),
    "stray sets bits without an atomic": (
        *("stray", "set_bits(strays + tile / 32, uint32_t(1) << uint(tile % 32));"),
        *("(strays + tile / 32)->value |= uint32_t(1) << uint(tile % 32);", unpool(STRAY), "write"),
    ),
    "stray sets nothing": (
        "stray",
        "if (kd < 0 || kh < 0 || kw < 0)",
        "if (false)",
        unpool(STRAY),
        "another result",
    ),
    "own trusts indices": (
        "own",
        "index < INDEX(D) * H * W",
        "true",
        unpool_any,
        "out of bounds",
    ),
    "own lets the last thread win": (
        *("own", "raise_to(owner + (plane + index) * C + c + v, cell);"),
        *("(owner + (plane + index) * C + c + v)->value = cell;", unpool_any, "second write"),
    ),
    "pool_regions reads before the window": (
        *("pool_regions", "int w = first_w;", "int w = first_w - 1;", adaptive, "out of bounds"),
    ),
    "pool_regions reads behind the window": (
        *("pool_regions", "h < stop_h;", "h <= stop_h;", adaptive, "out of bounds"),
    ),
    "pool_regions takes the last of equals": (
        *("pool_regions", "value > best", "value >= best", fractional_indices, "another result"),
    ),
    "pool_regions forgets NaN": (
        *("pool_regions", "|| value != value", "", fractional_indices, "another result"),
    ),
    "pool_regions reads the bounds of another axis": (
        *("pool_regions", "(row + OD + oh)", "(row + oh)", adaptive, "another result"),
    ),
    "pool_regions reads the bounds of another image": (
        *("pool_regions", "int64_t(at.z) * (OD + OH + OW)", "(at.z + 1) * (OD + OH + OW)"),
        *(adaptive, "out of bounds"),
    ),
    "accumulate_regions looks at a cell too many": (
        *("accumulate_regions", "ow < covering[cw + 1]", "ow <= covering[cw + 1]"),
        *(adaptive_gradient, "out of bounds"),
    ),
    "accumulate_regions forgets a cell": (
        *("accumulate_regions", "int oh = covering[ch]", "int oh = covering[ch] + 1"),
        *(adaptive_gradient, "another result"),
    ),
    "accumulate_regions leaves a rim": (
        *("accumulate_regions", "at.x >= uint(W) * C", "at.x >= uint(W - 1) * C"),
        *(adaptive_gradient, "unwritten"),
    ),
    "accumulate_regions keeps the last of several": (
        *("accumulate_regions", "ACC(sum + ACC(values[cell]))", "ACC(values[cell])"),
        *(adaptive_gradient, "another result"),
    ),
    "own says the same in other words": (
        *(
            "own",
            "index >= 0 &&",
            "!(index < 0) &&",
            unpool_any,
            None,
        ),  # no mistake: nothing is reported
    ),
}


def edit_of(kernel: str, old: str | None, new: str) -> Callable[[str], str]:
    """Makes the mistake in the text of one kernel and insists that the text is there."""
    text = metal_text(kernel)
    assert old is None or old in text, f"{kernel}.metal no longer holds {old!r}"
    return lambda source: (
        source if source != text else new if old is None else source.replace(old, new)
    )


def metal_text(kernel: str) -> str:
    from mlx_unpool._kernels import text

    return text(f"{kernel}.metal")


def outcome(
    call: Callable[[], mx.array], edit: Callable[[str], str] | None
) -> tuple[set[str], mx.array]:
    """What the launches of a call were reported for, and its result."""
    device = emulator.Emulator(edit)
    device.must_be_clean = False
    device.shuffle = 5
    with device.installed():
        result = call()
    said = {line.split(":")[0] for report in device.reports for line in report.first}
    if any(report.unwritten for report in device.reports):
        said.add("unwritten")
    return said, result


@pytest.mark.parametrize("name_of_mutant", MUTANTS)
def test_mutants_are_caught(name_of_mutant):
    kernel, old, new, call, expected = MUTANTS[name_of_mutant]
    said, result = outcome(call, None)
    assert not said
    said, mutated = outcome(call, edit_of(kernel, old, new))
    differs = not mx.array_equal(result, mutated, equal_nan=True).item()
    if expected is None:
        assert not said
        assert not differs
    elif expected == "another result":
        assert differs
    else:
        assert any(expected in line for line in said), (said, differs)


@pytest.mark.parametrize(
    "call",
    [
        *(pool, unpool(WINDOW), unpool(STRAY), unpool_gradient(STRAY), unpool_any),
        *(adaptive, adaptive_gradient),
    ],
)
def test_threads_beyond_the_grid_do_nothing(call):
    """CUDA rounds grids up to whole blocks: the threads that this adds must find nothing to do."""
    device = emulator.Emulator()
    original = metal_host.run

    def rounded_up(launch, arrays, **options):
        group = (32, 4, 2)
        grid = tuple(-(-g // t) * t for g, t in zip(launch.grid, group))
        assert grid != launch.grid
        return original(
            dataclasses.replace(launch, grid=grid, threadgroup=group), arrays, **options
        )

    expected = call()
    metal_host.run = rounded_up
    try:
        with device.installed():
            got = call()
    finally:
        metal_host.run = original
    assert all(report.clean for report in device.reports)
    assert mx.array_equal(got, expected)


# ---- arrays of more than 2^31 elements, of which only what a few threads touch takes memory

HUGE = (1, 40000, 30000, 2)  # 2.4e9 elements
CELLS = (1, 20000, 15000, 2)


def far_end(launch: metal_host.Launch, *known: np.ndarray | None):
    """A launch on huge arrays, ready to run its first and last threads."""
    arrays = [None if x is None else mx.array(x) for x in known]
    running = metal_host.Run(launch, metal_host.input_buffers(launch, arrays))
    threads = int(np.prod(launch.grid, dtype=np.int64))
    return running, [0, 1, threads - 2, threads - 1]


def put(running: metal_host.Run, buffer: int, value: float | int, dtype) -> None:
    """Writes the last element of a buffer."""
    number = np.array(value, dtype)
    at = running.starts[buffer] + running.sizes[buffer] - number.nbytes
    ctypes.memmove(at, number.ctypes.data, number.nbytes)


def last(running: metal_host.Run, buffer: int, dtype, back: int = 0) -> float:
    """The last element of a buffer, or one before it."""
    size = np.dtype(dtype).itemsize
    at = running.starts[buffer] + running.sizes[buffer] - size * (1 + back)
    return np.frombuffer(ctypes.string_at(at, size), dtype)[0].item()


def traced(function, *arrays) -> list[metal_host.Launch]:
    with _backends.use_backend("metal"):
        return metal_host.launches_of(function, *arrays)[0]


def huge(shape, dtype) -> mx.array:
    return mx.broadcast_to(mx.array(0, dtype), shape)


def test_a_pool_of_more_than_2_to_the_31_elements():
    (launch,) = traced(
        lambda x: mlx_unpool.max_pool2d(x, 2, return_indices=True, index_format="flat"),
        huge(HUGE, mx.float16),
    )
    running, order = far_end(launch, None, np.array((1, 20000, 15000), np.int32))
    with running:
        put(running, 0, 5.0, np.float16)
        report = running.walk(order, track=False)
        assert not report.failures, report.first
        out, indices = len(running.sizes) - 2, len(running.sizes) - 1
        assert last(running, out, np.float16) == 5.0
        assert last(running, indices, np.int32) == 40000 * 30000 - 1


@pytest.mark.parametrize("dtype", [mx.uint8, mx.int32])
def test_an_unpool_to_more_than_2_to_the_31_elements(dtype):
    launches = traced(
        lambda v, i: mlx_unpool.max_unpool2d(v, i, 2), huge(CELLS, mx.float16), huge(CELLS, dtype)
    )
    size = np.array((1, 40000, 30000), np.int32)
    code = 3 if dtype == mx.uint8 else 40000 * 30000 - 1
    kind = np.uint8 if dtype == mx.uint8 else np.int32
    if dtype == mx.int32:
        running, order = far_end(launches[0], None, size)
        with running:
            put(running, 0, code, kind)
            report = running.walk(order, track=False)
            assert not report.failures, report.first
        # An index that strays to the last place sets the last tile's bit.
        running, _ = far_end(launches[0], None, size)
        with running:
            ctypes.memmove(running.starts[0], np.array(code, kind).ctypes.data, 4)
            report = running.walk([0], track=False)
            assert not report.failures, report.first
            threads = int(np.prod(launches[1].grid, dtype=np.int64))
            assert last(running, len(running.sizes) - 1, np.uint32) == 1 << (threads - 1) % 32
    launch = launches[-1]
    strays = None if dtype == mx.int32 else np.zeros(1, np.uint32)
    running, order = far_end(launch, None, None, strays, size)
    with running:
        put(running, 0, 7.0, np.float16)
        put(running, 1, code, kind)
        report = running.walk(order, track=False)
        assert not report.failures, report.first
        assert last(running, len(running.sizes) - 1, np.float16) == 7.0
        assert last(running, len(running.sizes) - 1, np.float16, back=1) == 0.0


def test_a_pick_from_more_than_2_to_the_31_elements():
    full, cells = huge((1, *HUGE), mx.float16), huge((1, *CELLS), mx.int32)
    from mlx_unpool._geometry import Window, WindowGeometry

    window = Window(kernel=(1, 2, 2), stride=(1, 2, 2))
    g = WindowGeometry((1, *HUGE[1:3]), (1, *CELLS[:2]), window)
    (launch,) = traced(lambda x, i: _backends.get("metal").pick(x, i, g), full, cells)
    running, order = far_end(launch, None, None, np.zeros(1, np.uint32))
    with running:
        put(running, 0, 9.0, np.float16)
        put(running, running.launch.buffers.index("indices"), 40000 * 30000 - 1, np.int32)
        report = running.walk(order, track=False)
        assert not report.failures, report.first
        assert last(running, len(running.sizes) - 1, np.float16) == 9.0


def test_an_adaptive_pool_of_more_than_2_to_the_31_elements():
    cells, size = (1, 3, 9), (1, *HUGE[1:3])
    # The last window alone, cut to one place: a thread would look at 4e7.
    bounds = [(stop - 1, stop) for _, stop in adaptive_geometry(size, cells).ends]
    (launch,) = traced(
        lambda x: mlx_unpool.adaptive_max_pool2d(x, cells[1:], return_indices=True),
        huge(HUGE, mx.float16),
    )
    running, order = far_end(
        launch, None, np.array(bounds, np.int32).reshape(1, -1, 2, 1), np.array(cells, np.int32)
    )
    with running:
        put(running, 0, 5.0, np.float16)
        report = running.walk(order, track=False)
        assert not report.failures, report.first
        out, indices = len(running.sizes) - 2, len(running.sizes) - 1
        assert last(running, out, np.float16) == 5.0
        assert last(running, indices, np.int32) == 40000 * 30000 - 1


def test_sums_of_an_adaptive_pool_of_more_than_2_to_the_31_elements():
    size, cells = (1, *HUGE[1:3]), (1, 3, 9)
    g = adaptive_geometry(size, cells)
    metal = _backends.get("metal")
    (launch,) = traced(
        lambda v, i: metal.accumulate(v, i, g),
        huge((1, *cells, 2), mx.float16),
        huge((1, *cells, 2), mx.int32),
    )
    covering = np.array(g.covering, np.int32)
    running, order = far_end(launch, None, None, covering, np.array(size, np.int32))
    with running:
        put(running, 0, 7.0, np.float16)
        put(running, running.launch.buffers.index("indices"), 40000 * 30000 - 1, np.int32)
        report = running.walk(order, track=False)
        assert not report.failures, report.first
        assert last(running, len(running.sizes) - 1, np.float16) == 7.0
        assert last(running, len(running.sizes) - 1, np.float16, back=1) == 0.0


def test_32_bit_offsets_would_have_been_caught():
    (launch,) = traced(lambda x: mlx_unpool.max_pool2d(x, 2), huge(HUGE, mx.float16))
    old = "const int64_t from = (plane + place) * C + c;"
    assert old in launch.text
    narrow = dataclasses.replace(
        launch,
        text=launch.text.replace(old, "const int from = int(uint(plane + place) * uint(C)) + c;"),
    )
    running, order = far_end(narrow, None, np.array((1, 20000, 15000), np.int32))
    with running:
        report = running.walk(order, track=False)
        assert report.failures
        assert report.first[0].startswith("access out of bounds")
