"""Mistakes in the kernels are found, surplus threads do nothing, and arrays may have over 2^31 elements.

``test_metal_parity`` checks every launch of its cases, including invalid indices. Here the emulated device
must notice mistakes in the source, one for each kernel and kind of failure.
"""

import ctypes
import dataclasses
from collections.abc import Callable, Sequence

import emulator
import metal_host
import mlx.core as mx
import numpy as np
import pytest
from kernel_cases import huge

import mlx_unpool
from mlx_unpool import _backends
from mlx_unpool._backends import kernel_source
from mlx_unpool._bounds import bounds_array
from mlx_unpool._geometry import Window, WindowGeometry, adaptive_geometry

OVERLAPPING = (3, 2, 1)
X = mx.random.normal((2, 6, 7, 5), key=mx.random.key(0))  # 5 channels: not a multiple of a thread's
TIES = mx.array([[1.0, 1, np.nan, 2], [1, 1, 3, np.nan]])[None, ..., None]
ZEROS = mx.zeros((1, 10, 9, 5))  # several threads per window
with mx.stream(mx.cpu):
    FLAT, WINDOW = (
        mlx_unpool.max_pool2d(X, *OVERLAPPING, return_indices=True, index_format=f)[1]
        for f in ("flat", "window")
    )
    NUMBERS = mx.arange(FLAT.size).reshape(FLAT.shape)
    VALUES = NUMBERS.astype(mx.float32) + 1  # so that each result shows which value it is
    # Some indices are outside their windows, others outside the plane.
    OUTSIDE = mx.where(NUMBERS % 3 == 0, 3, mx.where(NUMBERS % 5 == 0, 2**31 - 1, FLAT))
    mx.eval(VALUES, WINDOW, OUTSIDE)


def unpool(indices: mx.array, *window: int) -> mx.array:
    return mlx_unpool.max_unpool2d(VALUES, indices, *window or OVERLAPPING, output_size=(6, 7))


def unpool_gradient(indices: mx.array) -> mx.array:
    def call(values: mx.array) -> mx.array:
        return mlx_unpool.max_unpool2d(values, indices, *OVERLAPPING, output_size=(6, 7))

    return mx.vjp(call, [VALUES], [X])[1][0]


CALLS: dict[str, Callable[[], mx.array]] = {
    "pool": lambda: mx.concatenate(
        [mlx_unpool.max_pool2d(X, *window).reshape(-1) for window in ((2, 2), OVERLAPPING)]
    ),
    "pool ties": lambda: mlx_unpool.max_pool2d(TIES, 2, return_indices=True)[1],
    "global ties": lambda: mlx_unpool.adaptive_max_pool2d(ZEROS, 1, return_indices=True)[1],
    "adaptive": lambda: mlx_unpool.adaptive_max_pool2d(X, (4, 3)),
    "adaptive vjp": lambda: mx.grad(lambda x: mlx_unpool.adaptive_max_pool2d(x, (4, 3)).sum())(X),
    "unpool window": lambda: unpool(WINDOW),
    "unpool outside": lambda: unpool(OUTSIDE),
    "unpool any": lambda: unpool(OUTSIDE, None),
    "vjp outside": lambda: unpool_gradient(OUTSIDE),
}
BOUNDS, UNWRITTEN, INPUT = "access out of bounds", "unwritten", "write to an input"
TWICE, EARLY = "second write to one place", "read before any write"
UNDEFINED = "undefined behaviour"
DIFFERS = "another result"  # no access is wrong

# For each kernel and kind of failure: a call, what is reported, a piece of the source and its replacement.
MISTAKES = {
    "pool": [
        ("pool", BOUNDS, "<COUNT, V, X, INSIDE>", "<COUNT, V, X, true>"),
        ("pool", INPUT, "    store_columns", "((device T*)x)[to] = T(1); store_columns"),
        ("pool", UNDEFINED, "const int ROW =", "volatile int n = 1 << 30; n *= 2; const int ROW ="),
        ("pool", TWICE, "TAIL &&", "false &&"),
        ("pool ties", DIFFERS, "rank > held", "rank >= held"),
    ],
    "pool_any": [
        ("global ties", BOUNDS, "INDEX(nh) * h.step;", "INDEX(nh + 1) * h.step;"),
        ("global ties", DIFFERS, "rank > order[v]", "rank >= order[v]"),
        ("global ties", BOUNDS, "n < w.count ? n : w.count - 1;\n        load", "n;\n        load"),
        ("adaptive", DIFFERS, "(line + OD + OFFSET(s.h))", "(line + OFFSET(s.h))"),
    ],
    "pool_chunks": [("global ties", DIFFERS, "given[e][v] < number[v]", "given[e][v] > number[v]")],
    "place": [
        ("unpool window", BOUNDS, "within(oh, OH)", "within(oh, OH + 1)"),
        ("unpool window", UNWRITTEN, "row, w0, W, C, lanes", "row, w0, W - 1, C, lanes"),
        ("unpool window", TWICE, "h0 = s.h * SH", "h0 = s.h * (SH - 1)"),
        ("unpool window", EARLY, "T(result[r][o][v]);", "T(result[r][o][v]) + out[0];"),
        ("unpool outside", DIFFERS, "if (OUTSIDE && outside_window", "if (false && outside_window"),
    ],
    "accumulate_regions": [
        ("adaptive vjp", BOUNDS, "nw < cw.count", "nw <= cw.count"),
        ("adaptive vjp", UNWRITTEN, "(at, D, H, W, C", "(at, D, H, W - 1, C"),
        ("adaptive vjp", DIFFERS, "int nh = 0", "int nh = 1"),
    ],
    "pick": [
        ("vjp outside", BOUNDS, "n >= 0 && n < NAMED(D) * H * W", "true"),
        ("vjp outside", DIFFERS, "OUTSIDE && outside_window", "false && outside_window"),
    ],
    "outside_window": [("unpool outside", DIFFERS, "any |= named", "any |= false & named")],
    "outside_winners": [
        ("unpool outside", BOUNDS, "index[n] >= 0 && index[n] < elements && owner", "owner"),
        (
            *("unpool outside", TWICE, "set_bits(lost + (left - 1 - n) / 32, "),
            "(lost[(left - 1 - n) / 32].value |= ",
        ),
        ("unpool outside", DIFFERS, "left - 1 - n", "count - left + n"),
    ],
    "last_writer": [
        ("unpool any", BOUNDS, "index < INDEX(D) * H * W", "true"),
        (
            *("unpool any", TWICE),
            "raise_to(winner + ((plane + OFFSET(index)) * C + s.c + v), int32_t(number));",
            "winner[(plane + OFFSET(index)) * C + s.c + v].value = int32_t(number);",
        ),
    ],
}
ALL_MISTAKES = [(kernel, *mistake) for kernel, mistakes in MISTAKES.items() for mistake in mistakes]


def wrong(kernel: str, old: str, new: str) -> Callable[[str], str]:
    """An edit of the source of one kernel."""
    source = kernel_source.text(f"{kernel}.metal")
    assert old in source, f"{kernel}.metal no longer contains {old!r}"
    return lambda text: text.replace(old, new) if text == source else text


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compile the kernels of all calls and mistakes together."""
    launches = emulator.recorded(CALLS.values())
    for kernel, call, _, old, new in ALL_MISTAKES:
        device = emulator.Emulator(wrong(kernel, old, new))
        launches += emulator.recorded([CALLS[call]], device)
    metal_host.compile_launches(launches)


def outcome(call: Callable[[], mx.array], **options: object) -> tuple[set[str], mx.array]:
    """The failures of the launches of a call, and its result."""
    device = emulator.Emulator(**options, must_be_clean=False, shuffle=5)
    with device.installed():
        result = call()
    return device.problems(), result


@pytest.mark.parametrize(
    ("kernel", "call", "expected", "old", "new"),
    ALL_MISTAKES,
    ids=[f"{kernel}: {old}" for kernel, _, _, old, _ in ALL_MISTAKES],
)
def test_mistakes_are_noticed(kernel, call, expected, old, new):
    said, result = outcome(CALLS[call])
    assert not said
    said, changed = outcome(CALLS[call], edit=wrong(kernel, old, new))
    differs = not mx.array_equal(result, changed, equal_nan=True).item()
    if expected == DIFFERS:
        assert differs
    else:
        assert expected in said, (said, differs)


class RoundedUp(emulator.Emulator):
    """Rounds grids up to whole blocks, as CUDA does."""

    def run(self, launch, inputs):
        block = (32, 4, 2)
        grid = tuple(-(-g // t) * t for g, t in zip(launch.grid, block))
        assert grid != launch.grid
        return super().run(dataclasses.replace(launch, grid=grid, threadgroup=block), inputs)


@pytest.mark.parametrize(
    "name_of_call",
    [
        *("pool", "unpool window", "unpool outside", "vjp outside", "unpool any"),
        *("adaptive", "adaptive vjp"),
    ],
)
def test_threads_beyond_the_grid_do_nothing(name_of_call):
    expected = CALLS[name_of_call]()
    with RoundedUp().installed():
        assert mx.array_equal(CALLS[name_of_call](), expected)


# ---- arrays of more than 2^31 elements: only what a few threads read or write takes memory

HUGE, POOLED = (1, 40000, 30000, 2), (1, 20000, 15000, 2)  # 2.4e9 elements, and a quarter
LAST = 40000 * 30000 - 1  # the last position of a plane
WINDOW_OF_ONE = [1] * 6 + [0] * 3 + [1] * 3
NO_ARRAY = np.zeros(1, np.uint32)


class Ends(metal_host.Run):
    """The memory of a launch on huge arrays of zeros, of which the first and last threads run."""

    def __init__(self, launch: metal_host.Launch, **known: Sequence[int] | np.ndarray) -> None:
        """``known``: the inputs with other elements, by name."""
        firsts = np.cumsum([0, *(1 + sum(wants) for wants in launch.shape_infos)])[:-1]
        inputs = dict(zip([launch.buffers[n] for n in firsts], launch.inputs, strict=True))
        dtypes = {name: metal_host.NUMPY[dtype] for name, (_, dtype) in inputs.items()}
        super().__init__(
            launch, [mx.array(np.array(known[n], dtypes[n])) if n in known else None for n in inputs]
        )
        outputs = zip(launch.buffers[self.input_count :], launch.outputs, strict=True)
        self.dtypes = dtypes | {name: metal_host.NUMPY[dtype] for name, (_, dtype) in outputs}

    def _end(self, name: str, count: int) -> int:
        """The address of the last ``count`` elements of a buffer."""
        n = self.launch.buffers.index(name)
        return self.starts[n] + self.sizes[n] - count * np.dtype(self.dtypes[name]).itemsize

    def put(self, name: str, *values: float) -> None:
        """Set the last elements of a buffer."""
        array = np.array(values, self.dtypes[name])
        ctypes.memmove(self._end(name, len(values)), array.ctypes.data, array.nbytes)

    def last(self, name: str, count: int = 1) -> list[float]:
        """The last elements of a buffer."""
        size = count * np.dtype(self.dtypes[name]).itemsize
        contents = ctypes.string_at(self._end(name, count), size)
        return np.frombuffer(contents, self.dtypes[name]).tolist()

    def run(self, *threads: int, failures: bool = False) -> list[str]:
        """Run threads, whose negative numbers count from the last one; return failures if expected."""
        order = [n % self.launch.threads for n in threads or (0, 1, -2, -1)]
        report = self.walk(order, track=False)
        assert bool(report.failures) == failures, report.first
        return report.first


def check_ends(
    launch: metal_host.Launch,
    put: dict[str, list[float]],
    expected: dict[str, list[float]],
    *threads: int,
    **known: Sequence[int] | np.ndarray,
) -> None:
    """Set the last elements of some inputs, run threads and compare the last elements of outputs."""
    with Ends(launch, **known) as ends:
        for name, values in put.items():
            ends.put(name, *values)
        ends.run(*threads)
        assert {name: ends.last(name, len(values)) for name, values in expected.items()} == expected


def traced(function, *arrays) -> list[metal_host.Launch]:
    with mlx_unpool.exporting(), _backends.use_backend("metal"):
        return metal_host.launches_of(function, *arrays)[0]


def test_a_pool_of_more_than_2_to_the_31_elements():
    pool = lambda x: mlx_unpool.max_pool2d(x, 2, return_indices=True)
    (launch,) = traced(pool, huge(HUGE, mx.float16))
    expected = {"out": [5.0], "indices": [LAST]}
    check_ends(launch, {"x": [5.0]}, expected, size=(1, *POOLED[1:3]))


@pytest.mark.parametrize(("dtype", "index"), [(mx.uint8, 3), (mx.int32, LAST)])
def test_an_unpool_to_more_than_2_to_the_31_elements(dtype, index):
    unpool = lambda v, i: mlx_unpool.max_unpool2d(v, i, 2)
    launches = traced(unpool, huge(POOLED, mx.float16), huge(POOLED, dtype))
    known = {"size": (1, *HUGE[1:3]), "outside_window": NO_ARRAY}
    if dtype == mx.int32:
        # The pooled values of the last thread are in their windows, so it reports none outside.
        own = [39998 * 30000 + 2 * column for column in range(14996, 15000) for _ in range(2)]
        put = {"indices": [*own[:-1], index]}
        check_ends(launches[0], put, {"outside_window": [0]}, -1, size=known["size"])
    else:
        known["winner_bits"] = NO_ARRAY
    put = {"values": [7.0], "indices": [index]}
    check_ends(launches[-1], put, {"out": [0.0, 7.0]}, **known)


def test_indices_outside_windows_among_more_than_2_to_the_31_elements():
    pooled, size = (1, 32, 32, 600_000), (1, 64, 64)
    unpool = lambda v, i: mlx_unpool.max_unpool2d(v, i, 2)
    mark, find, place = traced(unpool, huge(pooled, mx.float16), huge(pooled, mx.int32))
    # All indices are 0. The last channels are marked.
    check_ends(mark, {}, {"outside_window": [1]}, -1, size=size)
    # Of the positions, only the first is named. All pooled values but the last lose it.
    bits = [1] + [0] * 127 + [2**32 - 1] * 31 + [2**31 - 1]
    marked = {"outside_window": [1]}
    check_ends(find, marked, {"winner_bits": bits}, -1, size=(*size, 8, 1))
    check_ends(place, {"values": [7.0], "winner_bits": bits, **marked}, {}, -2, -1, size=size)


def test_a_pick_from_more_than_2_to_the_31_elements():
    g = WindowGeometry((1, *HUGE[1:3]), (1, *POOLED[1:3]), Window((1, 2, 2), (1, 2, 2)))
    pick = lambda x, i: _backends.get("metal").gather(x, i, g, "sum")
    (launch,) = traced(pick, huge((1, *HUGE), mx.float16), huge((1, *POOLED), mx.int32))
    known = dict.fromkeys(("outside_window", "winner_bits", "winner"), NO_ARRAY)
    check_ends(launch, {"full": [9.0], "indices": [LAST]}, {"out": [9.0]}, **known)


def test_an_adaptive_pool_of_more_than_2_to_the_31_elements():
    pooled = (1, 3, 9)
    # Only the last element of each window: a thread would read 4e7.
    g = adaptive_geometry((1, *HUGE[1:3]), pooled)
    stops = (g.ends(axis, n)[1] for axis in range(3) for n in range(pooled[axis]))
    bounds = np.array([(stop - 1, stop) for stop in stops]).reshape(1, -1, 2, 1)
    pool = lambda x: mlx_unpool.adaptive_max_pool2d(x, pooled[1:], return_indices=True)
    launch, _ = traced(pool, huge(HUGE, mx.float16))
    threads = launch.outputs[0][0][3] // 9  # of a window
    assert threads > 1
    with Ends(launch, bounds=bounds, window=WINDOW_OF_ONE, size=(*pooled, threads)) as ends:
        ends.put("x", 5.0)
        ends.run(-threads, -1)
        count = 2 * threads - 1
        assert ends.last("out", count)[0] == 5.0
        indices = ends.last("indices", count)
        assert (indices[0], indices[-1]) == (LAST, -1)  # the last thread has no element


def test_sums_of_an_adaptive_pool_of_more_than_2_to_the_31_elements():
    size, pooled = (1, *HUGE[1:3]), (1, 3, 9)
    g = adaptive_geometry(size, pooled)
    total = lambda v, i: _backends.get("metal").scatter(v, i, g, "sum")
    given = huge((1, *pooled, 2), mx.float16), huge((1, *pooled, 2), mx.int32)
    (launch,) = traced(total, *given)
    covering = np.array(bounds_array(None, g.covering, size))
    known = {"covering": covering, "window": WINDOW_OF_ONE, "size": size}
    check_ends(launch, {"values": [7.0], "indices": [LAST]}, {"out": [0.0, 7.0]}, **known)


@pytest.mark.parametrize("kernel_size", [2, None])
def test_32_bit_indices_into_a_plane_of_2_to_the_31_positions(kernel_size):
    """The indices fit into 32 bits, but not the number of positions that they are compared with."""
    pooled, size = (1, 32768, 16384, 1), (65536, 32768)
    launches = traced(
        lambda v, i: mlx_unpool.max_unpool2d(v, i, kernel_size, output_size=size),
        *(huge(pooled, mx.int8), huge(pooled, mx.int32)),
    )
    put, known = {"indices": [2**31 - 1]}, {"size": (1, *size)}
    if kernel_size is None:  # the last pooled value wins the last position
        expected = {"winner": [32768 * 16384 - 1]}
        check_ends(launches[0], put, expected, window=WINDOW_OF_ONE, **known)
    else:
        put["values"] = [7]
        check_ends(launches[-1], put, {"out": [7]}, outside_window=NO_ARRAY, **known)


def test_32_bit_offsets_would_be_noticed():
    (launch,) = traced(lambda x: mlx_unpool.max_pool2d(x, 2), huge(HUGE, mx.float16))
    old = "const OFFSET from = (plane + OFFSET(row)) * C + s.c;"
    assert old in launch.text
    new = "const OFFSET from = int(uint(plane + OFFSET(row)) * uint(C)) + s.c;"
    narrow = dataclasses.replace(launch, text=launch.text.replace(old, new))
    with Ends(narrow, size=(1, *POOLED[1:3])) as ends:
        assert ends.run(failures=True)[0].startswith("access out of bounds")
