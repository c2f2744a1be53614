"""Networks with four pooling and four unpooling layers: what FastSurfer's networks and QuickNAT share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from mlx_unpool import MaxPool2d, MaxUnpool2d

from .layers import Classifier
from .model import Model


class FourStages(Model):
    """An encoder and a decoder of four blocks each, with a bottleneck between them and a classifier."""

    # Names of the decoder's blocks in the order of the forward pass, and of the first convolution's weight.
    decoders: ClassVar[tuple[str, ...]] = ("decode4", "decode3", "decode2", "decode1")
    first_weight: ClassVar[str] = "encode1.conv0.weight"

    def add_blocks(
        self, first: nn.Module, encoder: Callable[[], nn.Module], decoder: Callable[[], nn.Module]
    ) -> None:
        """Add the blocks; the functions return a new one for the rest of the encoder and for the decoder."""
        self.encode1 = first
        for name in ("encode2", "encode3", "encode4", "bottleneck"):
            self[name] = encoder()
        for name in self.decoders:
            self[name] = decoder()
        shared = self.config["num_filters"], self.config["num_classes"]
        self.classifier = Classifier(*shared, self.config["kernel_c"], self.config["stride_conv"])
        window = self.config["pool"], self.config["stride_pool"]
        self.maxpool = MaxPool2d(*window, return_indices=True, index_format="window")
        self.unpool = MaxUnpool2d.from_pool(self.maxpool)

    def __call__(self, x: mx.array) -> mx.array:
        """Class scores (N, H, W, num_classes) of slices (N, H, W, num_channels)."""
        self.check_input(x)
        return self.classifier(self.features(x))

    def features(self, x: mx.array) -> mx.array:
        """The output of the decoder: (N, H, W, num_filters)."""
        stages = []
        for number in range(1, 5):
            skip = self.run_block(f"encode{number}", x)
            x, indices = self.maxpool(skip)
            stages.append((skip, indices))
        x = self.bottleneck(x)
        for name in self.decoders:
            skip, indices = stages.pop()
            x = self.run_block(name, self.combine(self.unpool(x, indices, output_size=skip.shape), skip))
        return x

    def run_block(self, name: str, x: mx.array) -> mx.array:
        """The output of a block of the encoder or the decoder."""
        return self[name](x)

    def combine(self, x: mx.array, skip: mx.array) -> mx.array:
        """Combine unpooled features with those of the encoder."""
        return mx.maximum(x, skip)

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
