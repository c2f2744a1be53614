"""QuickNAT: segmentation of 27 structures of the brain in single slices of a T1-weighted scan.

With the squeeze-and-excitation blocks of Roy, Navab and Wachinger, "Concurrent spatial and channel
squeeze and excitation in fully convolutional networks", MICCAI 2018. Parameters are named as in
ai-med/quickNAT_pytorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from pydantic import Field

from .about import CITATIONS, RESEARCH, Facts, Size, divided_by_255
from .layers import BatchNorm
from .stages import Stages

SEBlock = Literal["NONE", "CSE", "SSE", "CSSE"]


class ChannelSE(nn.Module):
    """Multiply each channel by a weight that depends on the means of all channels."""

    def __init__(self, channels: int, reduction_ratio: int = 2) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, channels // reduction_ratio)
        self.fc2 = nn.Linear(channels // reduction_ratio, channels)

    def __call__(self, x: mx.array) -> mx.array:
        weights = mx.sigmoid(self.fc2(nn.relu(self.fc1(x.mean(axis=(1, 2))))))
        return x * weights[:, None, None]


class SpatialSE(nn.Module):
    """Multiply each position by a weight that depends on its channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 1, 1)

    def __call__(self, x: mx.array) -> mx.array:
        return x * mx.sigmoid(self.conv(x))


class ChannelSpatialSE(nn.Module):
    """The elementwise maximum of ``ChannelSE`` and ``SpatialSE``."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.cSE, self.sSE = ChannelSE(channels), SpatialSE(channels)

    def __call__(self, x: mx.array) -> mx.array:
        return mx.maximum(self.cSE(x), self.sSE(x))


class DenseBlock(nn.Module):
    """Three convolutions; the input of each is the concatenation of all outputs before it."""

    def __init__(
        self,
        inputs: int,
        filters: int,
        kernel_size: tuple[int, int],
        stride: int,
        se_block: str = "NONE",
        drop_out: float = 0.0,
    ) -> None:
        super().__init__()
        padding = tuple((size - 1) // 2 for size in kernel_size)
        self.conv1 = nn.Conv2d(inputs, filters, kernel_size, stride, padding)
        self.conv2 = nn.Conv2d(inputs + filters, filters, kernel_size, stride, padding)
        self.conv3 = nn.Conv2d(inputs + 2 * filters, filters, 1, stride)
        self.batchnorm1 = BatchNorm(inputs)
        self.batchnorm2 = BatchNorm(inputs + filters)
        self.batchnorm3 = BatchNorm(inputs + 2 * filters)
        self.prelu = nn.PReLU()
        if se_block != "NONE":
            layer = {"CSE": ChannelSE, "SSE": SpatialSE, "CSSE": ChannelSpatialSE}[se_block]
            self.SELayer = layer(filters)
        self.drop_out = nn.Dropout2d(drop_out)

    def __call__(self, x: mx.array) -> mx.array:
        for number in (1, 2):
            y = self[f"conv{number}"](self.prelu(self[f"batchnorm{number}"](x)))
            x = mx.concatenate([x, y], axis=-1)
        return self.conv3(self.prelu(self.batchnorm3(x)))

    def excited(self, x: mx.array) -> mx.array:
        """Apply a block, then squeeze and excitation, then dropout."""
        x = self(x)
        return self.drop_out(self.SELayer(x) if "SELayer" in self else x)


class QuickNAT(Stages):
    """QuickNAT: densely connected blocks, four pooling and four unpooling layers; slices of any
    size.

    ``QuickNAT()(slices)`` returns class scores (N, H, W, 33) of slices (N, H, W, 1). The published
    weights are for slices of 256 x 256 at 1 mm.

    Args:
        num_classes: Number of classes.
        num_channels: Channels (slices) of the input.
        num_filters: Output channels of each block.
        kernel_h, kernel_w: Height and width of the kernels.
        kernel_c: Kernel size of the classifier.
        stride_conv: Stride of every convolution.
        pool, stride_pool: Size and stride of the pooling window.
        se_block: Squeeze and excitation of channels (``"CSE"``), of positions (``"SSE"``), of both
            (``"CSSE"``), or none (``"NONE"`` or None).
        drop_out: Fraction of channels that are dropped in training.

    Example:
        >>> model = zoo.QuickNAT(num_filters=8)  # published: 64
        >>> volume = np.zeros((5, 32, 32), np.uint8)  # five slices
        >>> model.predict(volume).shape
        (5, 32, 32)
    """

    model_type: ClassVar[str] = "quicknat"
    decoders: ClassVar[tuple[str, ...]] = ("decode4", "decode1", "decode2", "decode3")
    first_weight: ClassVar[str] = "encode1.conv1.weight"
    facts: ClassVar[Facts] = Facts(
        paper="Roy et al., QuickNAT, NeuroImage 186 (2019), 713-727",
        citation=CITATIONS["roy2019quicknat"],
        normalisation=divided_by_255(1),
        names_of="ai-med/quickNAT_pytorch",
        notice=RESEARCH,
        modalities=1,
    )

    def __init__(
        self, num_classes: Size = 33, num_channels: Size = 1, num_filters: Size = 64,
        kernel_h: Size = 5, kernel_w: Size = 5, kernel_c: Size = 1, stride_conv: Size = 1,
        pool: Size = 2, stride_pool: Size = 2,
        se_block: SEBlock | None = "CSSE",
        drop_out: Annotated[float, Field(ge=0, lt=1)] = 0.2,
    ) -> None:  # fmt: skip
        smallest = 1
        for _ in self.decoders:  # each pooling needs a window
            smallest = (smallest - 1) * stride_pool + pool
        super().__init__(num_channels, smallest=smallest)

        def block(inputs: int) -> DenseBlock:
            kernel = kernel_h, kernel_w
            return DenseBlock(
                inputs, num_filters, kernel, stride_conv, se_block or "NONE", drop_out
            )

        # The published weights have unused squeeze and excitation parameters for the bottleneck.
        self.add_blocks(
            block(num_channels), lambda: block(num_filters), lambda: block(2 * num_filters)
        )

    def run_block(self, name: str, x: mx.array) -> mx.array:
        return self[name].excited(x)

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        kinds = {"SELayer.cSE.": "CSSE", "SELayer.fc1.": "CSE", "SELayer.conv.": "SSE"}
        names = " ".join(state)
        found = [kind for part, kind in kinds.items() if part in names]
        return super().config_of(state) | {"se_block": found[0] if found else "NONE"}
