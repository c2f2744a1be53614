"""Networks with the max pooling layers of mlx.nn."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from mlx_unpool.benchmark import SPPF, block


class _Join(nn.Module):
    """Paths from the same input, and a function that joins their results."""

    def __init__(self, join: Callable[..., mx.array], *paths: Any) -> None:
        super().__init__()
        self.join, self.paths = join, list(paths)

    def __call__(self, x: mx.array) -> mx.array:
        return self.join(*[path(x) for path in self.paths])


def _concatenated(*arrays: mx.array) -> mx.array:
    return mx.concatenate(list(arrays), -1)


def _inception(inputs: int, *outputs: int) -> Any:
    one, before_second, second, before_third, third, pooled = outputs
    paths = [
        block(inputs, one, 1, 1, nn.relu),
        block(inputs, before_second, 1, 1, nn.relu, block(before_second, second, 3, 1, nn.relu)),
        block(inputs, before_third, 1, 1, nn.relu, block(before_third, third, 3, 1, nn.relu)),
        nn.Sequential(nn.MaxPool2d(3, 1, 1), block(inputs, pooled, 1, 1, nn.relu)),
    ]
    return _Join(_concatenated, *paths)


_INCEPTIONS = [
    (192, 64, 96, 128, 16, 32, 32),
    (256, 128, 128, 192, 32, 96, 64),
    (480, 192, 96, 208, 16, 48, 64),
    (512, 160, 112, 224, 24, 64, 64),
    (512, 128, 128, 256, 24, 64, 64),
    (512, 112, 144, 288, 32, 64, 64),
    (528, 256, 160, 320, 32, 128, 128),
    (832, 256, 160, 320, 32, 128, 128),
    (832, 384, 192, 384, 48, 128, 128),
]


def _googlenet() -> nn.Module:
    blocks = [_inception(*channels) for channels in _INCEPTIONS]
    blocks[7:7], blocks[2:2] = [nn.MaxPool2d(2)], [nn.MaxPool2d(3, 2, 1)]
    stem = [block(3, 64, 7, 2, nn.relu), nn.MaxPool2d(3, 2, 1), block(64, 64, 1, 1, nn.relu)]
    stem += [block(64, 192, 3, 1, nn.relu), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, lambda x: x.mean(axis=(1, 2)), nn.Linear(1024, 1000))


def _resnet18() -> nn.Module:
    layers = [block(3, 64, 7, 2, nn.relu), nn.MaxPool2d(3, 2, 1)]
    for inputs, outputs in pairwise((64, 64, 64, 128, 128, 256, 256, 512, 512)):
        stride = outputs // inputs
        body = block(inputs, outputs, 3, stride, nn.relu, block(outputs, outputs))
        skip = nn.Identity() if stride == 1 else block(inputs, outputs, 1, stride)
        layers += [_Join(mx.add, body, skip), nn.relu]
    return nn.Sequential(*layers, lambda x: x.mean(axis=(1, 2)), nn.Linear(512, 1000))


def _unet() -> nn.Module:
    level = block(64, 128)
    for inputs, outputs in ((32, 64), (16, 32), (3, 16)):
        inside = nn.Sequential(nn.MaxPool2d(2), level, nn.relu, nn.Upsample(2))
        join = _Join(_concatenated, nn.Identity(), inside)
        level = block(inputs, outputs, 3, 1, nn.relu, join, block(3 * outputs, outputs))
    return nn.Sequential(level, nn.relu, nn.Conv2d(16, 2, 1))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {  # shape of one input
    "sppf": (SPPF, (20, 20, 256)),  # an image of 640x640 in YOLOv5
    "googlenet": (_googlenet, ()),  # an image of any size
    "resnet18": (_resnet18, ()),
    "unet": (_unet, ()),
}
