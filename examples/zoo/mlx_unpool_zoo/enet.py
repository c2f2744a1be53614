"""ENet (Paszke, Chaurasia, Kim and Culurciello, 2016): 0.36 million parameters, for street scenes.

A bottleneck is a narrow branch of three convolutions that is added to a main branch. If it halves
the size, the main branch pools with indices; if it doubles the size, the main branch unpools with
these indices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from mlx_unpool import MaxPool2d, MaxUnpool2d

from .about import CITATIONS, Facts, Size
from .classes import CAMVID
from .layers import BatchNorm, DilatedConv2d, DoublingConv2d
from .model import Model


class Initial(nn.Module):
    """A strided convolution and a max pool of the input, concatenated: 3 channels become 16."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 13, 3, stride=2, padding=1)
        self.norm = BatchNorm(13)
        self.pool = MaxPool2d(2)
        self.activation = nn.PReLU(16)

    def __call__(self, x: mx.array) -> mx.array:
        x = mx.concatenate([self.norm(self.conv(x)), self.pool(x)], axis=-1)
        return self.activation(x)


class Branch(nn.Module):
    """What all bottlenecks share: a narrow branch of three convolutions, added to a main branch."""

    def __init__(self, narrow: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = BatchNorm(narrow), BatchNorm(narrow)
        self.norm3 = BatchNorm(outputs)
        self.dropout = nn.Dropout2d(dropout)
        self.activation = nn.PReLU()

    def branch(self, x: mx.array, first: Any, middle: Any, last: Any) -> mx.array:
        """The output of the branch for its three convolutions."""
        x = self.activation(self.norm1(first(x)))
        x = self.activation(self.norm2(middle(x)))
        return self.dropout(self.norm3(last(x)))


class Bottleneck(Branch):
    """Three convolutions plus the identity; the second is plain, dilated or asymmetric."""

    def __init__(
        self, channels: int, dilation: int = 1, asymmetric: bool = False, dropout: float = 0.1
    ) -> None:
        narrow = channels // 4
        super().__init__(narrow, channels, dropout)
        self.conv1 = nn.Conv2d(channels, narrow, 1, bias=False)
        if asymmetric:
            self.conv21 = nn.Conv2d(narrow, narrow, (1, 5), padding=(0, 2), bias=False)
            self.conv22 = nn.Conv2d(narrow, narrow, (5, 1), padding=(2, 0), bias=False)
        else:
            self.conv2 = DilatedConv2d(narrow, narrow, 3, padding=dilation, dilation=dilation)
        self.conv3 = nn.Conv2d(narrow, channels, 1, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        middle = self.conv2 if "conv2" in self else lambda y: self.conv22(self.conv21(y))
        return self.activation(self.branch(x, self.conv1, middle, self.conv3) + x)


class Down(Branch):
    """A bottleneck that halves the size; its main branch pools with indices."""

    def __init__(self, inputs: int, outputs: int, dropout: float = 0.1) -> None:
        narrow = inputs // 4
        super().__init__(narrow, outputs, dropout)
        self.conv1 = nn.Conv2d(inputs, narrow, 1, bias=False)
        self.conv2 = nn.Conv2d(narrow, narrow, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(narrow, outputs, 1, bias=False)
        self.pool = MaxPool2d(2, return_indices=True, index_format="window")

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:
        branch = self.branch(x, self.conv1, self.conv2, self.conv3)
        x, indices = self.pool(x)
        x = mx.pad(x, [(0, 0)] * 3 + [(0, branch.shape[-1] - x.shape[-1])])
        return self.activation(branch + x), indices


class Up(Branch):
    """A bottleneck that doubles the size; its main branch unpools with the indices of ``Down``."""

    def __init__(self, inputs: int, outputs: int, dropout: float = 0.1) -> None:
        narrow = inputs // 4
        super().__init__(narrow, outputs, dropout)
        self.main_conv = nn.Conv2d(inputs, outputs, 1)
        self.convt1 = nn.ConvTranspose2d(inputs, narrow, 1, bias=False)
        self.convt2 = DoublingConv2d(narrow, narrow)
        self.convt3 = nn.ConvTranspose2d(narrow, outputs, 1, bias=False)
        self.unpool = MaxUnpool2d(2)

    def __call__(self, x: mx.array, indices: mx.array) -> mx.array:
        branch = self.branch(x, self.convt1, self.convt2, self.convt3)
        main = self.unpool(self.main_conv(x), indices, output_size=branch.shape)
        return self.activation(branch + main)


def dilated_stage() -> list[nn.Module]:
    """Eight bottlenecks with growing dilation."""
    blocks: list[nn.Module] = []
    for first, second in ((2, 4), (8, 16)):
        blocks += [Bottleneck(128), Bottleneck(128, dilation=first)]
        blocks += [Bottleneck(128, asymmetric=True), Bottleneck(128, dilation=second)]
    return blocks


class ENet(Model):
    """ENet: bottlenecks, two pooling layers with indices and two unpooling layers, for images.

    ``ENet(num_classes=12)(images)`` returns class scores (N, H, W, 12) of images (N, H, W, 3), H
    and W multiples of 8.

    Args:
        num_classes: Number of classes.

    Example:
        >>> model = zoo.ENet(num_classes=12)
        >>> image = np.zeros((60, 80, 3), np.uint8)  # or a picture of Pillow
        >>> model.predict(image).shape
        (60, 80)
    """

    model_type: ClassVar[str] = "enet"
    facts: ClassVar[Facts] = Facts(
        paper="Paszke, Chaurasia, Kim and Culurciello, ENet, arXiv:1606.02147 (2016)",
        citation=CITATIONS["paszke2016enet"],
        normalisation=None,  # 0 to 255, as in the training of the published weights
        multiple_of=8,
        names_of="ntkhoa95/ENet_PyTorch",
        published_classes={12: CAMVID},
    )

    def __init__(self, num_classes: Size) -> None:
        super().__init__(3, multiple=8)
        self.initial = Initial()
        self.stage1 = [Down(16, 64, 0.01), *(Bottleneck(64, dropout=0.01) for _ in range(4))]
        self.stage2 = [Down(64, 128), *dilated_stage()]
        self.stage3 = dilated_stage()
        self.stage4 = [Up(128, 64), Bottleneck(64), Bottleneck(64)]
        self.stage5 = [Up(64, 16), Bottleneck(16)]
        self.fullconv = DoublingConv2d(16, num_classes)

    def __call__(self, x: mx.array) -> mx.array:
        """Class scores (N, H, W, num_classes) of images (N, H, W, 3)."""
        self.check_input(x)
        x, first = self.stage1[0](self.initial(x))
        x, second = self.stage2[0](nn.Sequential(*self.stage1[1:])(x))
        x = nn.Sequential(*self.stage2[1:], *self.stage3)(x)
        x = nn.Sequential(*self.stage4[1:])(self.stage4[0](x, second))
        x = nn.Sequential(*self.stage5[1:])(self.stage5[0](x, first))
        return self.fullconv(x)

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {"num_classes": state["fullconv.weight"].shape[1]}

    @staticmethod
    def pytorch_names(name: str) -> tuple[str, ...]:
        """The names of a parameter in the checkpoints of ntkhoa95/ENet_PyTorch.

        The blocks are called ``b10`` to ``b51`` there, as in the paper. The three PReLUs of a block
        are one layer, which PyTorch lists under four names.
        """
        block = re.fullmatch(r"stage(\d)\.(\d+)\.(.*)", name)
        if not block:
            return (name,)
        stage, number, rest = int(block[1]), int(block[2]), block[3]
        prefix = f"b{stage}{number + (stage == 3)}"  # there is no b30
        if rest == "activation.weight":
            return tuple(f"{prefix}.activation{n}.weight" for n in ("", 1, 2, 3))
        return (f"{prefix}.{rest}",)
