"""Few kernels are compiled, however many sizes of images there are."""

from collections.abc import Callable, Iterator
from typing import Any

import emulator
import mlx.core as mx
import numpy as np
import pytest
from support.kernel_cases import segnet_step

from mlx_unpool import AdaptiveMaxPool2d, _backends
from mlx_unpool._geometry import Window, WindowGeometry

WINDOWS = {
    "2x2/2": Window((1, 2, 2), (1, 2, 2)),
    "3x3/2": Window((1, 3, 3), (1, 2, 2), (0, 1, 1)),
    "3x3/1": Window((1, 3, 3), (1, 1, 1), (0, 1, 1)),
    "2x2x2/2": Window((2, 2, 2), (2, 2, 2)),
}


class Names(emulator.Emulator):
    """Records what determines a kernel's source; exporting the source itself takes minutes."""

    def _make(self, *, name: str, **_: Any) -> Callable[..., list[mx.array]]:
        def call(*, inputs: list[mx.array], template: list, **options: Any) -> list[mx.array]:
            # The signature also has the address space of each input: constant below 8 elements.
            arrays = tuple((x.dtype, x.ndim == 0, x.size < 8) for x in inputs)
            dtypes = options["output_dtypes"]
            self.launches.append((name, tuple(template), arrays, tuple(dtypes)))
            return [mx.zeros(s, d) for s, d in zip(options["output_shapes"], dtypes, strict=True)]

        return call


def planes(window: str, dtype: mx.Dtype, channels: int, count: int) -> Iterator[dict[tuple, Any]]:
    """For ``count`` drawn sizes, a call of every primitive with indices of both formats."""
    random, metal = np.random.default_rng(4), _backends.get("metal")
    for _ in range(count):
        size = tuple(int(n) for n in random.integers(5, 300, 3))
        size = (size[0] if window == "2x2x2/2" else 1, *size[1:])
        g = WindowGeometry(size, WINDOWS[window].pooled_size(size), WINDOWS[window])
        full, values = (mx.zeros((1, *axes, channels), dtype) for axes in (g.size, g.pooled))
        calls: dict[tuple, Any] = {}
        for d in (mx.uint8, mx.int32):
            i = mx.zeros(values.shape, d)
            calls[d, "pool", ""] = lambda x=full, g=g, d=d: metal.pool((x,), g, d)
            for rule in ("last", "sum"):
                calls[d, "scatter", rule] = lambda x=values, i=i, g=g, r=rule: metal.scatter(
                    x, i, g, r
                )
                calls[d, "gather", rule] = lambda x=full, i=i, g=g, r=rule: metal.gather(x, i, g, r)
        yield calls


@pytest.mark.parametrize("channels", [64, 16, 3, 1])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16], ids=str)
@pytest.mark.parametrize("window", WINDOWS)
def test_planes_of_100_sizes_share_a_few_kernels(window, dtype, channels):
    found: dict[tuple, set] = {}
    device = Names()
    with device.installed():
        for calls in planes(window, dtype, channels, 100):
            for primitive, call in calls.items():
                device.launches.clear()
                call()
                for kernel in device.launches:
                    found.setdefault((*primitive, kernel[0]), set()).add(kernel)
    assert len(found) >= 10  # five primitives in two formats, some of more than one kernel
    assert {key: len(kernels) for key, kernels in found.items() if len(kernels) > 4} == {}


@pytest.mark.parametrize("channels", [64, 1])
@pytest.mark.parametrize("counts", [(7,), (1, 2, 3, 6)], ids=str)
def test_adaptive_pools_of_300_sizes_share_few_kernels(counts, channels):
    random, device = np.random.default_rng(4), Names()
    with device.installed():
        for height, width in random.integers(7, 64, (300, 2)).tolist():
            for count in counts:
                x = mx.zeros((1, height, width, channels))
                mx.vjp(AdaptiveMaxPool2d(count), [x], [mx.zeros((1, count, count, channels))])
    assert len(set(device.launches)) <= 36


def test_there_are_as_many_kernels_as_sources():
    for window, channels in (("2x2/2", 3), ("3x3/2", 1), ("3x3/1", 64)):
        names, sources = Names(), emulator.Emulator(record=True)
        for device in (names, sources):
            with device.installed():
                for calls in planes(window, mx.float16, channels, 6):
                    for call in calls.values():
                        call()
        assert len(set(names.launches)) == len({launch.text for launch in sources.launches})


def test_the_first_training_step_of_a_segnet_compiles_at_most_10_kernels():
    launches = emulator.recorded([segnet_step])
    assert 1 <= len({launch.instance for launch in launches}) <= 10
