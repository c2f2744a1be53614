"""At the largest sizes no product overflows and no access is out of bounds.

The last results are also right. Arrays are as large as MLX allows. Only what the first, middle and
last threads read or write takes memory.
"""

import dataclasses
from collections.abc import Callable
from math import prod

import emulator
import metal_host
import mlx.core as mx
import pytest
from support.kernel_cases import huge, pool_windows

import mlx_unpool
from mlx_unpool import _backends
from mlx_unpool._geometry import Geometry, Window, WindowGeometry
from mlx_unpool.adaptive import adaptive_geometry
from mlx_unpool.fractional import FractionalGeometry

SMALL = 2**18  # elements of arrays whose contents matter
# The number of elements of an array, which no reshape changes, and its dtype
Key = tuple[int, mx.Dtype]


def key_of(x: mx.array) -> Key:
    return x.size, x.dtype


class Ends(emulator.Emulator):
    """Runs some threads of every launch.

    Large arrays contain zeros, except the last elements in ``ends``. Results are zeros unless there
    are ``ends`` or ``keep`` is true.
    """

    def __init__(
        self, ends: dict[Key, list[float]] | None = None, keep: bool = False, **options
    ) -> None:
        super().__init__(**options)
        self.ends, self.keep = ends or {}, keep or bool(ends)
        # Other indices than the last ones are 0, in which the first windows would be outside
        # their windows.
        self.threads = (-4, -3, -2, -1) if ends else (0, 1, None, -2, -1)

    def answer(self, launch: metal_host.Launch, inputs: list[mx.array]) -> list[mx.array]:
        self.launches.append(launch)
        zeros = [huge(shape, dtype) for shape, dtype in launch.outputs]
        # Each thread of this kernel reads all indices of a channel.
        if self.record or ("outside_winners" in launch.name and prod(inputs[0].shape[1:4]) > 2**20):
            return zeros
        arrays = [x if x.size <= SMALL else None for x in inputs]
        large = any(x.size > SMALL for x in zeros)
        if large:  # filling takes memory
            launch = dataclasses.replace(launch, init_value=None)
        end = launch.threads
        order = {
            end // 2 if n is None else n % end for n in self.threads if n is None or -end <= n < end
        }
        with metal_host.Run(launch, arrays) as running:
            for number, x in zip(launch.array_numbers, inputs):
                if x.size > SMALL and key_of(x) in self.ends:
                    given = self.ends[key_of(x)]
                    running.elements(number, x.dtype)[-len(given) :] = given
            self.reports.append(running.walk(sorted(order), track=False))
            if self.keep and not large:
                return running.outputs()
            for number, x in enumerate(zeros, running.input_count):
                self.ends[key_of(x)] = running.elements(number, x.dtype)[-64:].tolist()
        return zeros


# ---- all functions and derivatives, without results


def adaptive_sums(length: int) -> Callable[[], object]:
    """The derivative of adaptive pooling of one axis, without a table of all positions."""
    g = adaptive_geometry((1, 1, length), (1, 1, 5))
    pooled = huge((1, 1, 1, 5, 1), mx.int8), huge((1, 1, 1, 5, 1), mx.int32)
    return lambda: _backends.get("metal").scatter(*pooled, g, "sum")


def fractional_values(batch: int, count: int, channels: int) -> Callable[[], object]:
    """Fractional pooling of one axis, with a table of windows that is not computed."""
    g = FractionalGeometry((1, 1, count + 9), (1, 1, count), (1, 1, 2), (None,) * 3)
    x = huge((batch, *g.size, channels), mx.int8)
    bounds = huge((batch, count + 2, 2, channels), mx.int32)
    return lambda: _backends.get("metal").pool((x, bounds), g, mx.int32)


def bit_sets() -> None:
    """Unpooling with two words of bits per channel, because the only window has no element."""
    values, indices = (huge((1, 1, 2**30 + 1), dtype) for dtype in (mx.int8, mx.int32))
    unpool = lambda v: mlx_unpool.max_unpool1d(v, indices, 2, 1, 1, dilation=2, output_size=1)
    mx.vjp(unpool, [values], [values])


END = 2**31 - 1  # the longest axis
AXIS = (1, END, 1)
OFFSETS = {"index_format": "window"}
VOLUME = (1, 1, 2**17, 2**16, 1), ((2, 1, 1), (1, 4, 4), ((2**30 + 2**29, 2**29), 0, 0))
FAR_LAYERS = {"dilation": (END, 1, 1)}
FAR, APART = {"dilation": 2**31 - 10}, {"dilation": 21_000_000}
WINDOWS = {  # the shape, the window and other arguments
    "windows of one element": (AXIS, (1,), {}),
    "disjoint windows, an axis that is no multiple": (AXIS, (2,), {}),
    "disjoint windows, offsets": (AXIS, (2,), OFFSETS),
    "overlapping windows": (AXIS, (3, 2, 1), {}),
    "windows at every position": (AXIS, (3, 1, 1), {}),
    "windows at every position, offsets": (AXIS, (3, 1, 1), OFFSETS),
    "many elements": (AXIS, (40, 1, 19), {}),
    "a plane just below 2^31": ((1, 46340, 46341, 1), (3, 1, 1), {}),
    "a plane just above 2^31": ((1, 46341, 46342, 1), (3, 1, 1), OFFSETS),
    "the largest kernel and stride": (AXIS, (END,), {}),
    "long dilation": (AXIS, (2, 1, 0), FAR),
    "long dilation, offsets": (AXIS, (2, 1, 0), OFFSETS | FAR),
    "padding and stride": (AXIS, (3, 2**30, 2**30), {"dilation": 2**30}),
    "many far elements": (AXIS, (100, 5, 0), APART),
    "many far elements, offsets": (AXIS, (100, 5, 0), OFFSETS | APART),
    "many channels": ((2**15, 2, 2**16), (2,), {}),
    "windows without an element": (*VOLUME, FAR_LAYERS),
    "windows without an element, 32 bits": (
        (1, 1, 2**13, 2**14, 1),
        ((2, 2, 1), 1, ((3 * 2**18, 2**18), (3 * 2**18, 2**18), 0)),
        {"dilation": (2**20, 2**20, 1)},
    ),
    "windows without an element, offsets": (*VOLUME, FAR_LAYERS | OFFSETS),
    # In each of these only one number is above 2^31: a sum, or the number of elements of one array.
    "length and padding": ((1, END - 2**14, 1), (2, 1, ((2**14 + 2, 0),)), {"dilation": 2**14 + 2}),
    "length and stride": ((1, 2**30, 1), (2, 2**30 + 3), {}),
    "padding and dilation": ((1, 5, 1), (2, 1, 2**30), {"dilation": 2**30 + 1}),
    "tiles": ((1, 1, 2**20, 1), (2, 1, ((2**11, 2**11), 0)), {"dilation": (2**11, 2**20 - 1)}),
}
CALLS: dict[str, Callable[[], object]] = {
    **{
        name: lambda shape=shape, window=window, options=options: pool_windows(
            shape, *window, dtype=mx.int8, **options
        )
        for name, (shape, window, options) in WINDOWS.items()
    },
    "a pool of everything": lambda: mlx_unpool.adaptive_max_pool1d(
        huge(AXIS, mx.int8), 1, return_indices=True
    ),
    "adaptive windows on the longest axis": adaptive_sums(END - 2),
    "a table of covering windows": adaptive_sums(2**30 + 3),
    "a table of windows": fractional_values(1, 2**30 - 1, 1),
    "a table for each image and channel": fractional_values(32896, 991, 64),
    "many images": lambda: mlx_unpool.adaptive_max_pool1d(
        huge((2_684_334, 10, 60), mx.int8), 40, data_format="channels_first"
    ),
    "bit sets of many channels": bit_sets,
    "more pooled values than positions": lambda: mlx_unpool.max_unpool2d(
        *(huge((1, 2**15, 2**15, 3), dtype) for dtype in (mx.int8, mx.int32)), None, output_size=4
    ),
}

# ---- the last results of each primitive
#
# Arrays have more than 2^31 elements, or planes 2^31 positions.

metal = _backends.get("metal")


def arrays_of(g: Geometry, channels: int, dtype: mx.Dtype, index_dtype: mx.Dtype) -> list[mx.array]:
    """The full array, the pooled one and its indices."""
    full, pooled = (1, *g.size, channels), (1, *g.pooled, channels)
    return [huge(full, dtype), huge(pooled, dtype), huge(pooled, index_dtype)]


def windows(size: tuple[int, int]) -> WindowGeometry:
    """Disjoint windows of 2x2 elements on a plane."""
    return WindowGeometry((1, *size), (1, size[0] // 2, size[1] // 2), Window((1, 2, 2), (1, 2, 2)))


def own_indices(g: WindowGeometry, channels: int) -> list[int]:
    """The first positions of the last four windows; the last position for the last pooled value."""
    _, height, width = g.size
    starts = [(height - 2) * width + column for column in range(width - 8, width, 2)]
    return [*[start for start in starts for _ in range(channels)][:-1], height * width - 1]


LARGE, PLANE = windows((40000, 30000)), windows((65536, 32768))
REGIONS = adaptive_geometry((1, 39999, 29999), (1, 20001, 15001))
ANYWHERE = Geometry(PLANE.size, PLANE.pooled)
LAST = prod(LARGE.size) - 1
RESULTS = [  # primitive, rule, geometry, dtypes of values and indices, the last indices
    ("pool", "", LARGE, mx.float16, mx.int32, [LAST]),
    ("scatter", "last", LARGE, mx.float16, mx.uint8, [3]),
    ("scatter", "last", LARGE, mx.float16, mx.int32, own_indices(LARGE, 2)),
    ("scatter", "sum", LARGE, mx.float16, mx.int32, [LAST]),
    ("gather", "sum", LARGE, mx.float16, mx.int32, [LAST]),
    ("gather", "last", LARGE, mx.float16, mx.int32, own_indices(LARGE, 2)),
    ("pool", "", REGIONS, mx.float16, mx.int32, [prod(REGIONS.size) - 1]),
    ("scatter", "sum", REGIONS, mx.float16, mx.int32, [prod(REGIONS.size) - 1]),
    ("scatter", "last", PLANE, mx.int8, mx.int32, own_indices(PLANE, 1)),
    ("scatter", "last", ANYWHERE, mx.int8, mx.int32, [2**31 - 1]),
]


def call_of(
    primitive: str, rule: str, g: Geometry, dtype: mx.Dtype, index_dtype: mx.Dtype, *_: object
):
    """A call, its source, its target and its indices."""
    full, pooled, indices = arrays_of(g, 2 if dtype == mx.float16 else 1, dtype, index_dtype)
    if primitive == "pool":
        return lambda: metal.pool((full,), g, index_dtype), full, pooled, indices
    source, target = (pooled, full) if primitive == "scatter" else (full, pooled)
    return lambda: getattr(metal, primitive)(source, indices, g, rule), source, target, indices


@pytest.fixture(scope="module", autouse=True)
def compiled(emulated_device) -> None:
    calls = [*CALLS.values(), *(call_of(*row)[0] for row in RESULTS)]
    metal_host.compile_launches(emulator.recorded(calls, Ends()))


@pytest.mark.parametrize("name", CALLS)
def test_no_access_out_of_bounds_and_no_overflow(name):
    device = Ends()
    with device.installed():
        CALLS[name]()
    assert device.reports
    assert not device.problems()


ONE = mx.ones((1,) * 5)
# 2^63.6 elements, of which one is inside
LARGEST_WINDOW = (END, END, 3), 1, ((0, END - 1), (0, END - 1), 1)
largest_pool = lambda x: mlx_unpool.max_pool3d(x, (END, END, 3), 1, ((END - 1, 0), (END - 1, 0), 1))
in_window = lambda x: mlx_unpool.max_unpool3d(x, mx.ones(x.shape, mx.uint16), *LARGEST_WINDOW)
far_padding = lambda x: mlx_unpool.max_pool1d(x, 3, 8, ((2**31 - 2, 0),), dilation=2**30 + 1)
AFTER = (2, 1, 1), (17, 1, 1), (2**19, 0, 0)
after_window = lambda x: mlx_unpool.max_unpool3d(
    x, mx.full(x.shape, 65535, mx.uint16), *AFTER, dilation=(2**20, 1, 1)
)
PARAMETERS = {  # a function, its argument, and the gradient of the sum of the result
    "the largest window": (largest_pool, ONE, [1]),
    "an offset in the largest window": (in_window, ONE, [1]),
    "an offset after the window": (after_window, ONE, [0]),
    "padding and tile": (
        far_padding,
        mx.arange(17.0)[None, :, None],
        [n in (4, 12) for n in range(17)],
    ),
}


@pytest.mark.parametrize("name", ["cpu", *emulator.DEVICES])
@pytest.mark.parametrize("call", PARAMETERS)
def test_results_of_the_largest_parameters(call, name):
    function, x, expected = PARAMETERS[call]
    values, gradient = emulator.evaluated(
        lambda: mx.value_and_grad(lambda x: function(x).sum())(x), name
    )
    assert gradient.reshape(-1).tolist() == expected
    assert values.item() == (mx.array(expected) * x.reshape(-1)).sum().item()


@pytest.mark.parametrize("row", RESULTS, ids=lambda row: " ".join(map(str, row[:2])))
def test_the_last_results_of_huge_arrays(row):
    call, source, target, indices = call_of(*row)
    last = row[-1]
    device = Ends({key_of(source): [7]} | ({} if row[0] == "pool" else {key_of(indices): last}))
    with device.installed():
        call()
    assert not device.problems()
    assert device.ends[key_of(target)][-1] == 7
    assert device.ends[key_of(indices)][-len(last) :] == last


@pytest.mark.parametrize("primitive", ["scatter", "gather"])
def test_bit_sets_of_the_largest_planes_and_of_many_channels(primitive):
    """All indices are 0, which is outside of most windows."""
    for size, window, channels in (
        ((1, 1, 2**31 - 21), Window(), 1),
        ((1, 64, 64), Window((1, 2, 2), (1, 2, 2)), 600_000),
    ):
        g = WindowGeometry(size, window.pooled_size(size), window)
        full, values, indices = arrays_of(g, channels, mx.int8, mx.int32)
        device = Ends(keep=True)
        with device.installed():
            getattr(metal, primitive)(
                values if primitive == "scatter" else full, indices, g, "last"
            )
        assert len(device.launches) == 3
        assert not device.problems()


@pytest.mark.parametrize(("height", "width"), [(32767, 65537), (32768, 65536)])
def test_numbers_of_pooled_values_are_32_bits_wide(height, width):
    """Windows too large for one thread: a plane has 2^31 - 32769 pooled values, or 2^31."""
    g = Geometry((1, 4, 4), (1, height, width))
    _, values, indices = arrays_of(g, 1, mx.int8, mx.int32)
    device = Ends()
    with device.installed():
        if height * width < 2**31:
            metal.scatter(values, indices, g, "last")
            assert device.reports
            assert not device.problems()
        else:
            with pytest.raises(ValueError, match="at most 2147483647 pooled values"):
                metal.scatter(values, indices, g, "last")


@pytest.mark.parametrize("call", [CALLS["a plane just above 2^31"], call_of(*RESULTS[0])[0]])
def test_an_overflow_would_be_noticed(call):
    device = Ends(edit=lambda source: f"#define N int\n{source}\n#undef N\n")
    with device.installed():
        call()
    assert "undefined behaviour" in device.problems()
