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
from mlx_unpool._layout import bounds_array

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
    OUTSIDE = mx.where(mx.arange(FLAT.size).reshape(FLAT.shape) % 3 == 0, 3, FLAT)
    HOSTILE = mx.where(mx.arange(FLAT.size).reshape(FLAT.shape) % 3 == 0, 2**31 - 1, FLAT)
    OUTSIDE_AND_HOSTILE = mx.where(mx.arange(FLAT.size).reshape(FLAT.shape) % 5 == 0, 3, HOSTILE)
    mx.eval(VALUES, FLAT, WINDOW, OUTSIDE, HOSTILE, OUTSIDE_AND_HOSTILE)


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


def unpool_random() -> mx.array:
    """From anywhere: a thread of `outside_winners` has several words."""
    random = np.random.default_rng(0)
    given = mx.array(random.integers(0, 64 * 64, (1, 32, 32, 1)).astype(np.int32))
    values = mx.arange(given.size, dtype=mx.float32).reshape(given.shape)
    return mlx_unpool.max_unpool2d(values, given, 2)


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

LARGE = mx.random.normal((1, 10, 9, 5), key=mx.random.key(1))


def global_pool() -> mx.array:
    return mlx_unpool.adaptive_max_pool2d(LARGE, 1)


def global_ties() -> mx.array:
    return mlx_unpool.adaptive_max_pool2d(mx.zeros_like(LARGE), 1, return_indices=True)[1]


def global_nans() -> mx.array:
    """Several NaNs, in several parts of a window."""
    several = mx.where(mx.arange(90).reshape(1, 10, 9, 1) % 23 == 2, np.nan, LARGE)
    return mlx_unpool.adaptive_max_pool2d(several, 1, return_indices=True)[1]


def one_nan() -> mx.array:
    """A NaN, then numbers in other parts of the window."""
    one = mx.where(mx.arange(90).reshape(1, 10, 9, 1) == 11, np.nan, LARGE)
    return mlx_unpool.adaptive_max_pool2d(one, 1, return_indices=True)[1]


def nans_of_one_part() -> mx.array:
    several = mx.where(mx.arange(90).reshape(1, 10, 9, 1) % 8 == 3, np.nan, LARGE)
    return mlx_unpool.adaptive_max_pool2d(several, 1, return_indices=True)[1]


def windows_of_few_elements() -> mx.array:
    """Most elements of the large windows are outside, so some threads of a window have none."""
    window = {"kernel_size": 70, "stride": 7, "padding": 300, "dilation": 9}
    least = mx.full((1, 30, 5), -np.inf)
    return mlx_unpool.max_pool1d(least, **window, return_indices=True)[1]


def no_element(axis: int) -> Callable[[], mx.array]:
    """Windows that step over the plane on one axis."""
    x = mx.arange(8.0).reshape(1, 2, 2, 2, 1)
    x = mx.take(x, mx.array([0]), axis=1 + axis)
    only = [
        tuple(n if a == axis else other for a in range(3)) for n, other in ((2, 1), (2, 0), (3, 1))
    ]
    return lambda: mlx_unpool.max_pool3d(
        x, only[0], 1, only[1], dilation=only[2], return_indices=True
    )[1]


def next_layer() -> mx.array:
    """An index of the next layer's first row, where its own window would go on."""
    values = mx.arange(1.0, 9).reshape(1, 2, 2, 2, 1)
    own = mlx_unpool.max_pool3d(
        mx.arange(18.0).reshape(1, 2, 3, 3, 1), *LAYERS, return_indices=True
    )[1]
    given = mx.where(mx.arange(8).reshape(own.shape) == 2, 9, own)
    return mlx_unpool.max_unpool3d(values, given, *LAYERS, output_size=(2, 3, 3))


LAYERS = ((1, 3, 3), (1, 2, 2), (0, 1, 1))


# A mistake for every kind of failure: kernel, text, replaced by, a call that shows it, what is reported.
# "another result" is a mistake that harms no memory and must be caught by comparison.
ANOTHER = "another result"
MUTANTS = {
    "pool reads before the plane": (
        *("pool", "nearest_inside<AXIS>(ah, h0, DH, H, PH)", "ah", pool, "out of bounds"),
    ),
    "pool reads behind the plane": (
        *("pool", "load_columns<COUNT, V, RUN, INSIDE>", "load_columns<COUNT, V, RUN, true>"),
        *(pool, "out of bounds"),
    ),
    "pool takes the last of equals": (
        *("pool", "rank > held", "rank >= held", pool_indices, ANOTHER),
    ),
    "pool forgets NaN": ("pool", " | nan;", ";", pool_indices, ANOTHER),
    "pool writes to its input": (
        *("pool", "    store_columns", "    ((device T*)x)[to] = best[0][0];\n    store_columns"),
        *(pool, "write to an input"),
    ),
    "pool overflows": (
        *("pool", "const int ROW =", "volatile int n = 2147483647; n = n + 1; const int ROW ="),
        *(pool, "undefined behaviour"),
    ),
    "pool forgets the tail": ("pool", "TAIL &&", "false &&", pool, "second write"),
    "pool takes windows before the first layer for full": (
        *("pool", "meets<AXIS>(d0, DD, KD, D) && ", "", no_element(0), ANOTHER),
    ),
    "pool takes windows before the first row for full": (
        *("pool", "meets<AXIS>(h0, DH, KH, H) && ", "", no_element(1), ANOTHER),
    ),
    "pool takes windows before the first column for full": (
        *("pool", "meets<AXIS>(w0, DW, KW, W)", "true", no_element(2), ANOTHER),
    ),
    "pool_large takes the last of equals": (
        *("pool_large", "rank > order[v]", "rank >= order[v]", global_ties, ANOTHER),
    ),
    "pool_large forgets NaN": (
        *("pool_large", " | (value[0][v] != value[0][v])", "", nans_of_one_part, ANOTHER),
    ),
    "pool_chunks takes the first NaN": (
        *(
            "pool_chunks",
            "!best_nan | (given[0][v] > number[v])",
            "!best_nan",
            global_nans,
            ANOTHER,
        ),
    ),
    "pool_chunks takes a number for more than NaN": (
        *("pool_chunks", ": !best_nan & higher", ": higher | best_nan", one_nan, ANOTHER),
    ),
    "pool_chunks takes parts without elements": (
        *("pool_chunks", "(given[0][v] >= 0) &", "true &", windows_of_few_elements, ANOTHER),
    ),
    "outside_window takes the next layer for its own": (
        *("outside_window", " && within(h0 + AXIS(kh) * DH, H)", "", next_layer, ANOTHER),
    ),
    "pool_large forgets elements": (*("pool_large", "--left", "left -= 2", global_pool, ANOTHER),),
    "pool_large reads behind the window": (
        *("pool_large", "/ chunks + 1", "/ chunks + 2", global_pool, "out of bounds"),
    ),
    "pool_chunks takes the last of equals": (
        *("pool_chunks", "given[0][v] < number[v]", "given[0][v] > number[v]"),
        *(global_ties, ANOTHER),
    ),
    "place leaves a rim": (
        *("place", "row, w0, W, C, lanes", "row, w0, W - 1, C, lanes", unpool(WINDOW), "unwritten"),
    ),
    "place writes twice": (
        *("place", "h0 = s.h * SH", "h0 = s.h * (SH - 1)", unpool(WINDOW), "second write"),
    ),
    "place runs over the rim": (
        *("place", "row, w0, W, C, lanes", "row, w0, W + 1, C, lanes"),
        *(unpool(WINDOW), "second write"),
    ),
    "place takes the first of several": (
        *("place", "int n = 0; n < NW; ++n", "int n = NW - 1; n >= 0; --n"),
        *(unpool(FLAT), ANOTHER),
    ),
    "place reads a pooled value that is not": (
        *("place", "within(oh, OH)", "within(oh, OH + 1)"),
        *(unpool(WINDOW), "out of bounds"),
    ),
    "place ignores outside_window": (
        *(
            "place",
            "if (OUTSIDE && outside_window",
            "if (false && outside_window",
            unpool(OUTSIDE),
            ANOTHER,
        ),
    ),
    "place scatters": ("place", None, SCATTER, unpool(FLAT), "second write"),
    "place reads its output": (
        *("place", "T(result[r][o][v]);", "T(result[r][o][v]) + out[0];"),
        *(unpool(WINDOW), "read before any write"),
    ),
    "pick trusts indices": (
        *("pick", "n >= 0 && n < NAMED(D) * H * W", "true"),
        *(unpool_gradient(HOSTILE), "out of bounds"),
    ),
    "pick forgets who won": (
        *("pick", "if (LATER)", "if (false)", unpool_gradient(FLAT), ANOTHER),
    ),
    "pick ignores outside_window": (
        *(
            "pick",
            "OUTSIDE && outside_window",
            "false && outside_window",
            unpool_gradient(OUTSIDE),
            ANOTHER,
        ),
    ),
    "outside_winners trusts indices": (
        *("outside_winners", "index[n] >= 0 && index[n] < elements && (spread", "(spread"),
        *(unpool(OUTSIDE_AND_HOSTILE), "out of bounds"),
    ),
    "outside_winners sets bits without an atomic": (
        *("outside_winners", "set_bits(lost + (left - 1 - n) / 32, uint32_t(1) <<"),
        "(lost + (left - 1 - n) / 32)->value |= (uint32_t(1) <<",
        *(unpool(OUTSIDE), "second write"),
    ),
    "outside_winners divides positions wrongly": (
        *("outside_winners", "% uint(lanes) == lane", "% uint(lanes) <= lane"),
        *(unpool(OUTSIDE), ANOTHER),
    ),
    "outside_winners forgets the word that it knows": (
        *("outside_winners", "current = word;", "", unpool(OUTSIDE), None),
    ),
    "outside_winners takes another word for the one that it knows": (
        *("outside_winners", "word != current ||", "", unpool_random, ANOTHER),
    ),
    "outside_winners lets the first one win": (
        *("outside_winners", "left - 1 - n", "count - left + n", unpool(OUTSIDE), ANOTHER),
    ),
    "outside_window sees none": (
        *("outside_window", "any |= named", "any |= false & named", unpool(OUTSIDE), ANOTHER),
    ),
    "last_writer trusts indices": (
        "last_writer",
        "index < INDEX(D) * H * W",
        "true",
        unpool_any,
        "out of bounds",
    ),
    "last_writer lets the last thread win": (
        *(
            "last_writer",
            "raise_to(winner + ((plane + OFFSET(index)) * C + s.c + v), int32_t(number));",
        ),
        "(winner + ((plane + OFFSET(index)) * C + s.c + v))->value = int32_t(number);",
        *(unpool_any, "second write"),
    ),
    "pool_regions reads before the window": (
        *(
            "pool_regions",
            "w = stop_w - left;",
            "w = stop_w - left - 1;",
            adaptive,
            "out of bounds",
        ),
    ),
    "pool_regions reads behind the window": (
        *("pool_regions", "h < stop_h;", "h <= stop_h;", adaptive, "out of bounds"),
    ),
    "pool_regions takes the last of equals": (
        *("pool_regions", "rank > order[v]", "rank >= order[v]", fractional_indices, ANOTHER),
    ),
    "pool_regions forgets NaN": (
        *("pool_regions", " | (value[e][v] != value[e][v])", "", fractional_indices, ANOTHER),
    ),
    "pool_regions reads the bounds of another axis": (
        *("pool_regions", "(line + OD + OFFSET(s.h))", "(line + OFFSET(s.h))", adaptive, ANOTHER),
    ),
    "pool_regions reads the bounds of another image": (
        *(
            "pool_regions",
            "OFFSET(at.z) * (OFFSET(OD)",
            "(OFFSET(at.z) + 1) * (OFFSET(OD)",
            adaptive,
            "out of bounds",
        ),
    ),
    "accumulate_regions looks at a window too many": (
        *(
            "accumulate_regions",
            "nw < cw.count",
            "nw <= cw.count",
            adaptive_gradient,
            "out of bounds",
        ),
    ),
    "accumulate_regions forgets a window": (
        *("accumulate_regions", "int nh = 0", "int nh = 1"),
        *(adaptive_gradient, ANOTHER),
    ),
    "accumulate_regions leaves a rim": (
        *("accumulate_regions", "(at, D, H, W, C", "(at, D, H, W - 1, C"),
        *(adaptive_gradient, "unwritten"),
    ),
    "accumulate_regions keeps the last of several": (
        *("accumulate_regions", "ACC(sum[i][v] + ACC(value[0][v]))", "ACC(value[0][v])"),
        *(adaptive_gradient, ANOTHER),
    ),
    "last_writer says the same in other words": (  # no mistake: nothing is reported
        *("last_writer", "index >= 0 &&", "!(index < 0) &&", unpool_any, None),
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
        *(pool, unpool(WINDOW), unpool(OUTSIDE), unpool_gradient(OUTSIDE), unpool_any),
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
WINDOW_OF_ONE = np.array([1] * 6 + [0] * 3 + [1] * 3, np.int32)


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
    with mlx_unpool.exporting(), _backends.use_backend("metal"):
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
    none = np.zeros((1, 1), np.uint32)
    if dtype == mx.int32:
        running, _ = far_end(filled_by_the_system(launches[0]), None, size)
        with running:
            # The last thread's pooled values, all in their own windows: a stray would look at 3e8.
            own = [39998 * 30000 + 2 * column for column in range(14996, 15000) for _ in range(2)]
            own[-1] = code
            end = running.starts[0] + running.sizes[0]
            ctypes.memmove(end - 32, np.array(own, np.int32).ctypes.data, 32)
            threads = int(np.prod(launches[0].grid, dtype=np.int64))
            report = running.walk([threads - 1], track=False)
            assert not report.failures, report.first
    launch = launches[-1]
    winner_bits = none if dtype == mx.uint8 else None
    running, order = far_end(launch, None, None, none, winner_bits, size)
    with running:
        put(running, 0, 7.0, np.float16)
        put(running, 1, code, kind)
        report = running.walk(order, track=False)
        assert not report.failures, report.first
        assert last(running, len(running.sizes) - 1, np.float16) == 7.0
        assert last(running, len(running.sizes) - 1, np.float16, back=1) == 0.0


def filled_by_the_system(launch: metal_host.Launch) -> metal_host.Launch:
    """A launch whose outputs are zero at first because fresh memory is, without being written."""
    assert launch.init_value in (None, 0)
    return dataclasses.replace(launch, init_value=None)


def test_strays_among_more_than_2_to_the_31_elements():
    channels = 600_000
    pooled, index = (1, 32, 32, channels), mx.int32
    mark, find, place = traced(
        lambda v, i: mlx_unpool.max_unpool2d(v, i, 2), huge(pooled, mx.float16), huge(pooled, index)
    )
    size = np.array((1, 64, 64), np.int32)
    running, _ = far_end(filled_by_the_system(mark), None, size)
    with running:
        threads = int(np.prod(mark.grid, dtype=np.int64))
        report = running.walk([threads - 1], track=False)  # all name position 0
        assert not report.failures, report.first
        assert last(running, len(running.sizes) - 1, np.uint32) == 1  # the last channels
    running, order = far_end(
        filled_by_the_system(find), None, None, np.array((1, 64, 64, 8, 1), np.int32)
    )
    with running:
        put(running, running.launch.buffers.index("outside_window"), 1, np.uint32)
        report = running.walk(order[-1:], track=False)
        assert not report.failures, report.first
        winner_bits = len(running.sizes) - 1
        words = [last(running, winner_bits, np.uint32, back=n) for n in reversed(range(128 + 32))]
        assert words[:128] == [1] + [0] * 127  # position 0 is named
        assert words[128:] == [2**32 - 1] * 31 + [2**31 - 1]  # the last pooled value wins it
    running, order = far_end(place, None, None, None, None, size)
    with running:
        put(running, 0, 7.0, np.float16)
        put(running, running.launch.buffers.index("outside_window"), 1, np.uint32)
        back = 4 * (128 + 32)
        row = running.starts[running.launch.buffers.index("winner_bits")]
        row += running.sizes[running.launch.buffers.index("winner_bits")] - back
        bits = np.array(words, np.uint32)
        ctypes.memmove(row, bits.ctypes.data, bits.nbytes)
        report = running.walk(order[2:], track=False)
        assert not report.failures, report.first


def test_a_pick_from_more_than_2_to_the_31_elements():
    full, cells = huge((1, *HUGE), mx.float16), huge((1, *CELLS), mx.int32)
    from mlx_unpool._geometry import Window, WindowGeometry

    window = Window(kernel=(1, 2, 2), stride=(1, 2, 2))
    g = WindowGeometry((1, *HUGE[1:3]), (1, *CELLS[:2]), window)
    (launch,) = traced(lambda x, i: _backends.get("metal").pick(x, i, g), full, cells)
    none = np.zeros(1, np.uint32)
    running, order = far_end(launch, None, None, none, none, none)
    with running:
        put(running, 0, 9.0, np.float16)
        put(running, running.launch.buffers.index("indices"), 40000 * 30000 - 1, np.int32)
        report = running.walk(order, track=False)
        assert not report.failures, report.first
        assert last(running, len(running.sizes) - 1, np.float16) == 9.0


def test_an_adaptive_pool_of_more_than_2_to_the_31_elements():
    cells, size = (1, 3, 9), (1, *HUGE[1:3])
    # The last window alone, cut to one place: a thread would look at 4e7.
    g = adaptive_geometry(size, cells)
    ends = (g.ends(axis, n) for axis in range(3) for n in range(cells[axis]))
    bounds = [(stop - 1, stop) for _, stop in ends]
    launch, _ = traced(
        lambda x: mlx_unpool.adaptive_max_pool2d(x, cells[1:], return_indices=True),
        huge(HUGE, mx.float16),
    )
    shares = launch.outputs[0][0][3] // 9
    assert shares > 1  # a window is divided among threads
    bounds_of_all = np.array(bounds, np.int32).reshape(1, -1, 2, 1)
    running, _ = far_end(
        launch, None, bounds_of_all, WINDOW_OF_ONE, np.array((*cells, shares), np.int32)
    )
    with running:
        put(running, 0, 5.0, np.float16)
        threads = int(np.prod(launch.grid, dtype=np.int64))
        report = running.walk([threads - shares, threads - 1], track=False)
        assert not report.failures, report.first
        out, indices, back = len(running.sizes) - 2, len(running.sizes) - 1, 2 * (shares - 1)
        assert last(running, out, np.float16, back) == 5.0
        assert last(running, indices, np.int32, back) == 40000 * 30000 - 1
        assert last(running, indices, np.int32) == -1  # a share without an element


def test_sums_of_an_adaptive_pool_of_more_than_2_to_the_31_elements():
    size, cells = (1, *HUGE[1:3]), (1, 3, 9)
    g = adaptive_geometry(size, cells)
    metal = _backends.get("metal")
    (launch,) = traced(
        lambda v, i: metal.accumulate(v, i, g),
        huge((1, *cells, 2), mx.float16),
        huge((1, *cells, 2), mx.int32),
    )
    covering = np.array(bounds_array(None, g.covering, size))
    running, order = far_end(launch, None, None, covering, WINDOW_OF_ONE, np.array(size, np.int32))
    with running:
        put(running, 0, 7.0, np.float16)
        put(running, running.launch.buffers.index("indices"), 40000 * 30000 - 1, np.int32)
        report = running.walk(order, track=False)
        assert not report.failures, report.first
        assert last(running, len(running.sizes) - 1, np.float16) == 7.0
        assert last(running, len(running.sizes) - 1, np.float16, back=1) == 0.0


def test_32_bit_indices_into_a_plane_of_2_to_the_31_positions():
    """The indices fit, but not the number of positions that they are compared with."""
    cells, size = (1, 32768, 16384, 1), np.array((1, 65536, 32768), np.int32)
    for kernel_size in (2, None):
        launches = traced(
            lambda v, i, k=kernel_size: mlx_unpool.max_unpool2d(
                v, i, k, output_size=(65536, 32768)
            ),
            *(huge(cells, mx.int8), huge(cells, mx.int32)),
        )
        if kernel_size is None:
            running, order = far_end(launches[0], None, WINDOW_OF_ONE, size)
            with running:
                put(running, running.launch.buffers.index("indices"), 2**31 - 1, np.int32)
                report = running.walk(order, track=False)
                assert not report.failures, report.first
                # The last position belongs to the last pooled value.
                assert last(running, len(running.sizes) - 1, np.int32) == 32768 * 16384 - 1
            continue
        none = np.zeros((1, 1), np.uint32)
        running, order = far_end(launches[-1], None, None, none, None, size)
        with running:
            put(running, 0, 7, np.int8)
            put(running, running.launch.buffers.index("indices"), 2**31 - 1, np.int32)
            report = running.walk(order, track=False)
            assert not report.failures, report.first
            assert last(running, len(running.sizes) - 1, np.int8) == 7


def test_32_bit_offsets_would_have_been_caught():
    (launch,) = traced(lambda x: mlx_unpool.max_pool2d(x, 2), huge(HUGE, mx.float16))
    old = "const OFFSET from = (plane + OFFSET(row)) * C + s.c;"
    assert old in launch.text
    new = "const OFFSET from = int(uint(plane + OFFSET(row)) * uint(C)) + s.c;"
    narrow = dataclasses.replace(launch, text=launch.text.replace(old, new))
    running, order = far_end(narrow, None, np.array((1, 20000, 15000), np.int32))
    with running:
        report = running.walk(order, track=False)
        assert report.failures
        assert report.first[0].startswith("access out of bounds")


def test_a_grid_beyond_what_metal_can_launch_is_refused():
    x = mx.broadcast_to(mx.array(0, mx.float16), (1, 2**31 - 2, 64))
    device = emulator.Emulator()
    with device.installed(), device.recording(), pytest.raises(ValueError, match="grid must"):
        mlx_unpool.max_pool1d(x, 2)
