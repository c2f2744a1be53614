"""How much the kernels do: in proportion to pooled values, whatever the indices are, and with few texts."""

from __future__ import annotations

import random
from collections.abc import Callable

import emulator
import mlx.core as mx
import numpy as np
import pytest
from zoo.segnet import SegNet

import mlx_unpool

MOST_GROWTH = 6.5  # of the bytes read and written, for four times as many pooled values
KINDS: dict[str, Callable[[int, int, np.random.Generator], np.ndarray]] = {
    # count pooled values, size positions -> indices
    "spread": lambda count, size, _: np.arange(count) * size // count,
    "all one position": lambda count, size, _: np.full(count, size // 2),
    "one row": lambda count, size, _: np.arange(count) % int(size**0.5),
    "a wrong stride": lambda count, size, _: np.arange(count) * 3 % size,
    "random": lambda count, size, random: random.integers(0, size, count),
}


def work(kind: str, side: int, backward: bool) -> int:
    """The bytes that kernels read and write to unpool ``side`` x ``side`` values, or in its derivative."""
    channels, size = 4, (2 * side, 2 * side)
    planes = [
        KINDS[kind](side * side, 4 * side * side, np.random.default_rng(c)) for c in range(channels)
    ]
    indices = mx.array(np.stack(planes, -1).reshape(1, side, side, channels).astype(np.int32))
    values = mx.random.normal(indices.shape, key=mx.random.key(0))
    full = mx.random.normal((1, *size, channels), key=mx.random.key(1))
    mx.eval(indices, values, full)
    device = emulator.Emulator()
    device.count = True
    with device.installed():
        unpool = lambda v: mlx_unpool.max_unpool2d(v, indices, 2, output_size=size)  # noqa: E731
        mx.eval(mx.vjp(unpool, [values], [full])[1] if backward else unpool(values))
    return sum(t["bytes"] for report in device.reports for t in report.traffic.values())


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("kind", KINDS)
def test_work_grows_with_the_pooled_values_whatever_the_indices_are(kind, backward):
    small, large = (work(kind, side, backward) for side in (12, 24))
    assert large <= MOST_GROWTH * small


def texts(channels: int, index_format: str) -> dict[str, set[str]]:
    """The texts of each kernel that pictures of 100 random sizes compile, with all derivatives."""
    draw = random.Random(channels)
    device = emulator.Emulator()
    with device.installed(), device.recording():
        for _ in range(100):
            shape = (draw.randint(1, 4), draw.randint(8, 700), draw.randint(8, 700), channels)
            x = mx.zeros(shape)

            def there_and_back(x, size=shape[1:3]):
                values, indices = mlx_unpool.max_pool2d(
                    x, 2, return_indices=True, index_format=index_format
                )
                return mlx_unpool.max_unpool2d(values, indices, 2, output_size=size)

            mx.vjp(there_and_back, [x], [x])
            mx.jvp(there_and_back, [x], [x])
    found: dict[str, set[str]] = {}
    for launch in device.launches:
        found.setdefault(launch.name.split("__")[0], set()).add(launch.text)
    return found


@pytest.mark.parametrize("index_format", ["flat", "window"])
@pytest.mark.parametrize(("channels", "most"), [(64, 4), (16, 4), (3, 8), (1, 8)])
def test_pictures_of_many_sizes_share_their_kernels(channels, most, index_format):
    for kernel, found in texts(channels, index_format).items():
        # `place` and `pick` are two primitives each, whose texts have one name.
        primitives = 2 if kernel.endswith(("_place", "_pick")) else 1
        assert len(found) <= most * primitives, kernel


def test_how_many_kernels_the_first_training_step_of_a_segnet_compiles():
    mx.random.seed(0)
    model = SegNet(classes=3, channels=(4, 6, 8))
    model.pool = mlx_unpool.MaxPool2d(2, return_indices=True, index_format="window")
    x = mx.random.normal((2, 32, 32, 3))
    device = emulator.Emulator()
    with device.installed(), device.recording():
        mx.eval(mx.grad(lambda x: model(x).sum())(x))
    assert 1 <= len({launch.text for launch in device.launches}) <= 24


def test_a_grid_beyond_what_metal_can_launch_is_refused():
    x = mx.broadcast_to(mx.array(0, mx.float16), (1, 2**31 - 2, 64))
    device = emulator.Emulator()
    with device.installed(), device.recording(), pytest.raises(ValueError, match="grid must"):
        mlx_unpool.max_pool1d(x, 2)
