"""A model exported for Metal without a GPU contains the kernels that are tested here."""

import emulator
import metal_host
import mlx.core as mx
import pytest
from mlx_unpool_zoo.segnet import SegNet

import mlx_unpool
from mlx_unpool import _backends


@pytest.mark.parametrize(("index_format", "count"), [("flat", 12), ("window", 6)])
def test_an_exported_segnet_makes_the_same_launches_as_an_eager_one(index_format, count):
    mx.random.seed(0)
    model = SegNet(num_classes=3, channels=(4, 6, 8))
    model.pool = mlx_unpool.MaxPool2d(2, return_indices=True, index_format=index_format)
    model.eval()
    x = mx.random.normal((1, 11, 14, 3))
    with mlx_unpool.exporting(), _backends.use_backend("metal"):
        exported, events = metal_host.launches_of(model, x)
    device = emulator.Emulator()
    with device.installed():
        got = model(x)
    assert mx.allclose(got, model(x), rtol=1e-4, atol=1e-5)
    assert sorted(one.contents for one in exported) == sorted(one.contents for one in device.launches)
    # Three stages: pool and place, and before place two launches that search for indices outside windows.
    assert len(exported) == count
    assert not any(event.get("name") == "CustomTransforms" for event in events)
