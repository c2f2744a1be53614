"""At the largest sizes no product overflows its type and no access is out of bounds.

Arrays are as large as MLX allows. Only what the first, middle and last threads read or write takes memory.
"""

import dataclasses
from collections.abc import Callable

import emulator
import metal_host
import mlx.core as mx
import pytest
from kernel_cases import huge, pool_windows

import mlx_unpool
from mlx_unpool import _backends
from mlx_unpool._geometry import Geometry, Window, WindowGeometry, adaptive_geometry


class Sparse(emulator.Emulator):
    """Runs the first, middle and last threads of every launch and returns zeros."""

    def answer(self, launch: metal_host.Launch, inputs: list[mx.array]) -> list[mx.array]:
        self.launches.append(launch)
        if self.record:
            return [huge(shape, dtype) for shape, dtype in launch.outputs]
        arrays = [x if x.size <= 2**16 else None for x in inputs]  # larger ones contain zeros
        end = launch.threads
        order = {n for n in (0, 1, end // 2, end - 2, end - 1) if 0 <= n < end}
        unfilled = dataclasses.replace(launch, init_value=None)  # filling takes memory
        with metal_host.Run(unfilled, arrays) as running:
            report = running.walk(sorted(order), track=False)
        assert not report.failures, (launch.name, report.first)
        return [huge(shape, dtype) for shape, dtype in launch.outputs]


def adaptive_sums(length: int) -> Callable[[], object]:
    """The derivative of adaptive pooling of one axis, without a table of all positions."""
    g = adaptive_geometry((1, 1, length), (1, 1, 5))
    pooled = huge((1, 1, 1, 5, 1), mx.int8), huge((1, 1, 1, 5, 1), mx.int32)
    return lambda: _backends.get("metal").scatter(*pooled, g, "sum")


END = 2**31 - 1  # the longest axis
AXIS = (1, END, 1)
OFFSETS = {"index_format": "window"}
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
    "long strides": (AXIS, (2, 2**30), {}),
    "long dilation": (AXIS, (2, 1, 0), FAR),
    "long dilation, offsets": (AXIS, (2, 1, 0), OFFSETS | FAR),
    "padding longer than the axis": ((1, 5, 1), (3, 1, 2**30), {"dilation": 2**30}),
    "padding and stride": (AXIS, (3, 2**30, 2**30), {"dilation": 2**30}),
    "many far elements": (AXIS, (100, 5, 0), APART),
    "many far elements, offsets": (AXIS, (100, 5, 0), OFFSETS | APART),
    "many channels": ((2**15, 2, 2**16), (2,), {}),
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
    "adaptive windows on more than 2^30": adaptive_sums(2**30 + 3),
    "adaptive windows on the longest axis": adaptive_sums(END - 2),
}


@pytest.fixture(scope="module", autouse=True)
def compiled(emulated_device) -> None:
    metal_host.compile_launches(emulator.recorded(CALLS.values(), Sparse()))


@pytest.mark.parametrize("name", CALLS)
def test_no_access_out_of_bounds_and_no_overflow(name):
    device = Sparse()
    with device.installed():
        CALLS[name]()
    assert device.launches


def test_an_overflow_would_be_noticed():
    old = "elements_of<N>(s.w * SW - PW"
    device = Sparse(lambda text: text.replace(old, old.replace("s.w * SW", "int(s.w) * SW * 2")))
    with pytest.raises(AssertionError, match="undefined behaviour"), device.installed():
        CALLS["windows of one element"]()


class Marked(Sparse):
    """As if an index were outside its window."""

    def answer(self, launch: metal_host.Launch, inputs: list[mx.array]) -> list[mx.array]:
        if "outside_win" not in launch.name:
            return super().answer(launch, inputs)
        return [mx.ones(s, t) if s == (1, 1) else huge(s, t) for s, t in launch.outputs]


@pytest.mark.parametrize("primitive", ["scatter", "gather"])
def test_bit_sets_of_the_largest_planes_with_32_bit_indices(primitive):
    size = (1, 1, 2**31 - 21)
    plane, indices = huge((1, *size, 1), mx.int8), huge((1, *size, 1), mx.int32)
    device = Marked()
    with device.installed():
        getattr(_backends.get("metal"), primitive)(
            plane, indices, WindowGeometry(size, size, Window()), "last"
        )


@pytest.mark.parametrize(("height", "width"), [(32767, 65537), (32768, 65536)])
def test_numbers_of_pooled_values_are_32_bits_wide(height, width):
    """Windows too large for one thread: a plane has 2^31 - 32769 pooled values, or 2^31."""
    pooled = (1, 1, height, width, 1)
    device = Sparse()

    def place() -> None:
        g = Geometry((1, 4, 4), pooled[1:4])
        _backends.get("metal").scatter(huge(pooled, mx.int8), huge(pooled, mx.int32), g, "last")

    with device.installed():
        if height * width < 2**31:
            place()
            assert device.launches
        else:
            with pytest.raises(ValueError, match="at most 2147483647 pooled values"):
                place()
