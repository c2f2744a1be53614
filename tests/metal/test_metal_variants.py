"""How many kernels are compiled: few, however many sizes of pictures there are."""

from __future__ import annotations

import emulator
import metal_host
import mlx.core as mx
import numpy as np
import pytest
from kernel_cases import SegNet, segnet_step

from mlx_unpool import _backends
from mlx_unpool._geometry import Window, WindowGeometry

WINDOWS = {
    "2x2/2": Window((1, 2, 2), (1, 2, 2)),
    "3x3/2": Window((1, 3, 3), (1, 2, 2), (0, 1, 1)),
    "3x3/1": Window((1, 3, 3), (1, 1, 1), (0, 1, 1)),
    "2x2x2/2": Window((2, 2, 2), (2, 2, 2)),
}


def texts(call) -> set[tuple[str, str]]:
    """Kernel and template of every launch of a call, which is traced, not run."""
    launches, _, _ = metal_host.launches_of(call)
    return {(launch.name, launch.instance) for launch in launches}


@pytest.mark.parametrize(("channels", "most"), [(64, 4), (16, 4), (3, 8), (1, 8)])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16], ids=str)
@pytest.mark.parametrize("window", WINDOWS)
def test_planes_of_100_sizes_share_a_few_kernels(window, dtype, channels, most):
    random = np.random.default_rng(4)
    metal = _backends.get("metal")
    found: dict[tuple[str, str, str], set] = {}
    for _ in range(100):
        size = tuple(random.integers(5, 300, 3))
        size = (int(size[0]) if window == "2x2x2/2" else 1, int(size[1]), int(size[2]))
        pooled = WINDOWS[window].pooled_size(size)
        g = WindowGeometry(size, pooled, WINDOWS[window])
        full = mx.broadcast_to(mx.zeros((), dtype), (1, *size, channels))
        values = mx.broadcast_to(mx.zeros((), dtype), (1, *pooled, channels))
        for index_dtype in (mx.uint8, mx.int32):
            indices = mx.broadcast_to(mx.zeros((), index_dtype), values.shape)
            calls = {
                "pool": lambda x=full, g=g, d=index_dtype: metal.pool(x, g, d),
                "place": lambda x=values, i=indices, g=g: metal.place(x, i, g),
                "accumulate": lambda x=values, i=indices, g=g: metal.accumulate(x, i, g),
                "pick": lambda x=full, i=indices, g=g: metal.pick(x, i, g),
                "pick_winners": lambda x=full, i=indices, g=g: metal.pick_winners(x, i, g),
            }
            for primitive, call in calls.items():
                for name, instance in texts(call):
                    kernel = name.split("__")[0]
                    found.setdefault((primitive, kernel, str(index_dtype)), set()).add(instance)
    assert {key: len(value) for key, value in found.items() if len(value) > most} == {}


def test_the_first_training_step_of_a_segnet_compiles_a_dozen_kernels():
    device = emulator.Emulator()
    with device.installed(), device.recording():
        mx.eval(segnet_step(SegNet(), 0))
    names = {launch.instance for launch in device.launches}
    assert len(names) <= 12, sorted(names)
