"""Networks of blocks with pooling and unpooling layers: FastSurfer's networks, QuickNAT and
ReLayNet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from mlx_unpool import MaxPool2d, MaxUnpool2d

from .layers import Classifier
from .model import Model


class Stages(Model):
    """An encoder and a decoder with the same number of blocks, a bottleneck between them and a
    classifier."""

    # The decoder's blocks in the order of the forward pass, and the first convolution's weight.
    decoders: ClassVar[tuple[str, ...]] = ("decode4", "decode3", "decode2", "decode1")
    first_weight: ClassVar[str] = "encode1.conv0.weight"

    def add_blocks(
        self, first: nn.Module, encoder: Callable[[], nn.Module], decoder: Callable[[], nn.Module]
    ) -> None:
        """Add the blocks; the functions return a new one for the rest of the encoder and for the
        decoder."""
        self.encode1 = first
        for name in (*self.encoders()[1:], "bottleneck"):
            self[name] = encoder()
        for name in self.decoders:
            self[name] = decoder()
        config = {"kernel_c": 1, "stride_conv": 1, "pool": 2, "stride_pool": 2} | self.config
        shared = config["num_filters"], config["num_classes"]
        self.classifier = Classifier(*shared, config["kernel_c"], config["stride_conv"])
        window = config["pool"], config["stride_pool"]
        self.maxpool = MaxPool2d(*window, return_indices=True, index_format="window")
        self.unpool = MaxUnpool2d.from_pool(self.maxpool)

    def encoders(self) -> list[str]:
        """The names of the encoder's blocks."""
        return [f"encode{number}" for number in range(1, len(self.decoders) + 1)]

    def __call__(self, x: mx.array) -> mx.array:
        """Class scores (N, H, W, num_classes) of images (N, H, W, num_channels)."""
        self.check_input(x)
        return self.classifier(self.features(x))

    def features(self, x: mx.array) -> mx.array:
        """The output of the decoder: (N, H, W, num_filters)."""
        stages = []
        for name in self.encoders():
            skip = self.run_block(name, x)
            x, indices = self.maxpool(skip)
            stages.append((skip, indices))
        x = self.bottleneck(x)
        for name in self.decoders:
            skip, indices = stages.pop()
            x = self.run_block(
                name, self.combine(self.unpool(x, indices, output_size=skip.shape), skip)
            )
        return x

    def run_block(self, name: str, x: mx.array) -> mx.array:
        """The output of a block of the encoder or the decoder."""
        return self[name](x)

    def combine(self, x: mx.array, skip: mx.array) -> mx.array:
        """Combine unpooled features with those of the encoder."""
        return mx.concatenate([skip, x], axis=-1)

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        first, last = state[cls.first_weight], state["classifier.conv.weight"]
        return {
            "num_classes": last.shape[0],
            "num_channels": first.shape[1],
            "num_filters": first.shape[0],
            "kernel_h": first.shape[2],
            "kernel_w": first.shape[3],
            "kernel_c": last.shape[2],
        }
