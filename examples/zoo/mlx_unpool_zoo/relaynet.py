"""ReLayNet (Guha Roy and others, 2017): finds the layers of the retina in an OCT scan.

Parameters are named as in ai-med/relaynet_pytorch, whose scans are transposed: their rows are the
columns of the eye. Here scans are upright, so the kernels are transposed when weights are
converted, in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from .about import CITATIONS, Facts, Size, divided_by_255
from .layers import BatchNorm, statistics_of
from .stages import Stages

Statistics = Literal["picture", "stored"]
# From top to bottom, as named in the paper.
NAMES = (
    "above the retina",
    "ILM",
    "NFL-IPL",
    "INL",
    "OPL",
    "ONL-ISM",
    "ISE",
    "OS-RPE",
    "below the retina",
)
COLOURS = ((0, 0, 0), (230, 60, 60), (240, 150, 40), (235, 225, 60), (70, 190, 80), (60, 190, 220),
           (70, 100, 230), (180, 80, 220), (35, 35, 35))  # fmt: skip
RETINA: list[Any] = [{"name": name, "colour": [*colour]} for name, colour in zip(NAMES, COLOURS)]


class Convolution(nn.Conv2d):
    """A convolution whose weight is transposed in PyTorch: (output, input, width, height)."""

    pytorch_axes = 0, 3, 2, 1


class Norm(BatchNorm):
    """Batch normalisation that can use the statistics of each picture, also in evaluation mode."""

    def __init__(self, channels: int, statistics: Statistics) -> None:
        super().__init__(channels)
        self.statistics = statistics

    def __call__(self, x: mx.array) -> mx.array:
        if self.training or self.statistics == "stored":
            return super().__call__(x)
        mean, variance = (v[:, None, None] for v in mx.vmap(statistics_of)(x))
        return self.weight * ((x - mean) * mx.rsqrt(variance + self.eps)) + self.bias


class Block(nn.Module):
    """A convolution, a normalisation and an activation with one slope for all channels."""

    def __init__(
        self, inputs: int, outputs: int, size: tuple[int, int], statistics: Statistics
    ) -> None:
        super().__init__()
        self.conv = Convolution(inputs, outputs, size, padding=(size[0] // 2, size[1] // 2))
        self.batchnorm, self.prelu = Norm(outputs, statistics), nn.PReLU()

    def __call__(self, x: mx.array) -> mx.array:
        return self.prelu(self.batchnorm(self.conv(x)))


class ReLayNet(Stages):
    """ReLayNet: three pooling and three unpooling layers, for the layers of the retina in OCT
    scans.

    ``ReLayNet()(scans)`` returns class scores (N, H, W, 9) of upright grey scans (N, H, W, 1) with
    values from 0 to 1, H and W multiples of 8. The classes are in the order from top to bottom. The
    published weights are for scans of 512 x 512.

    Args:
        num_classes: Number of classes.
        num_channels: Channels of the input.
        num_filters: Output channels of each block.
        kernel_h, kernel_w: Height and width of the kernels, odd numbers.
        statistics: Mean and variance with which features are normalised in evaluation mode:
            ``"stored"``, those of the training, or ``"picture"``, those of each picture of the
            batch including its padding, as in the authors' notebook.

    Example:
        >>> model = zoo.ReLayNet(num_filters=8)  # published: zoo.from_pretrained("relaynet")
        >>> scan = np.zeros((64, 80), np.uint8)  # or a grey picture of Pillow
        >>> model.predict(scan).shape
        (64, 80)
    """

    model_type: ClassVar[str] = "relaynet"
    decoders: ClassVar[tuple[str, ...]] = ("decode1", "decode2", "decode3")
    first_weight: ClassVar[str] = "encode1.conv.weight"
    facts: ClassVar[Facts] = Facts(
        paper="Guha Roy et al., ReLayNet, Biomedical Optics Express 8 (2017), 3627-3642",
        citation=CITATIONS["roy2017relaynet"],
        normalisation=divided_by_255(1),
        multiple_of=8,
        names_of="ai-med/relaynet_pytorch",
        notice="Not for clinical use; one scan was compared.",
        cpu_notice="On a CPU a scan of 512 x 512 takes 70 to 100 seconds and 3.5 GB of memory.",
        classes={9: RETINA},
    )

    def __init__(
        self,
        num_classes: Size = 9,
        num_channels: Size = 1,
        num_filters: Size = 64,
        kernel_h: Size = 7,
        kernel_w: Size = 3,
        statistics: Statistics = "stored",
    ) -> None:
        super().__init__(num_channels, multiple=8)
        if kernel_h % 2 == 0 or kernel_w % 2 == 0:
            raise ValueError(
                f"[ReLayNet] kernels must have odd sizes, but got {kernel_h} x {kernel_w}."
            )

        def block(inputs: int) -> Block:
            return Block(inputs, num_filters, (kernel_h, kernel_w), statistics)

        self.add_blocks(
            block(num_channels), lambda: block(num_filters), lambda: block(2 * num_filters)
        )

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        found = super().config_of(state)
        del found["kernel_c"]
        return found | {"kernel_h": found["kernel_w"], "kernel_w": found["kernel_h"]}
