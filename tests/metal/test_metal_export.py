"""A model that is exported for Metal, on a machine without it, holds the kernels that are tested here."""

from __future__ import annotations

import emulator
import metal_host
import mlx.core as mx
import pytest
from mlx_unpool_zoo.segnet import SegNet

import mlx_unpool
from mlx_unpool import _backends


@pytest.mark.parametrize("index_format", ["flat", "window"])
def test_an_exported_segnet_launches_what_an_eager_one_launches(index_format):
    mx.random.seed(0)
    model = SegNet(classes=3, channels=(4, 6, 8))
    model.pool = mlx_unpool.MaxPool2d(2, return_indices=True, index_format=index_format)
    model.eval()
    x = mx.random.normal((1, 11, 14, 3))
    with mlx_unpool.exporting(), _backends.use_backend("metal"):
        exported, _, events = metal_host.launches_of(model, x)
    device = emulator.Emulator()
    with device.installed():
        got = model(x)  # every launch is run and watched
    assert mx.allclose(got, model(x), rtol=1e-4, atol=1e-5)

    def contents(launch: metal_host.Launch) -> tuple:
        return launch.text, launch.grid, launch.threadgroup, launch.inputs, launch.outputs

    assert sorted(map(contents, exported)) == sorted(map(contents, device.launches))
    # Three stages: a pool and a place, before that two launches that look for indices outside windows.
    assert len(exported) == (12 if index_format == "flat" else 6)
    assert not any(event.get("name") == "CustomTransforms" for event in events)
