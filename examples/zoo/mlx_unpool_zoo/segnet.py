"""SegNet (Badrinarayanan, Kendall and Cipolla, 2017) for signals, images and volumes of any size.

The encoder pools with indices, and the decoder unpools with them, which keeps edges sharp. Three
other decoders are for comparison: ``"nearest"`` and ``"bilinear"`` upsample without indices, and
``"skip"`` upsamples bilinearly and concatenates the encoder's features of the same size, as in
U-Net.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar, Literal, get_args

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from mlx_unpool import MaxPool1d, MaxPool2d, MaxPool3d, MaxUnpool1d, MaxUnpool2d, MaxUnpool3d
from mlx_unpool.porting import to_state_dict
from mlx_unpool.porting.state_dicts import Strict

from .about import CITATIONS, IMAGENET, Counts, Facts, Size, Sizes
from .classes import CAMVID
from .layers import BatchNorm
from .model import Model

VGG16 = [64, 128, 256, 512, 512]  # channels of each stage in the paper
# The convolutions of each stage in torchvision's vgg16_bn; a normalisation follows each.
FEATURES = ((0, 3), (7, 10), (14, 17, 20), (24, 27, 30), (34, 37, 40))
# By the number of dimensions.
LAYERS = {1: (MaxPool1d, MaxUnpool1d), 2: (MaxPool2d, MaxUnpool2d), 3: (MaxPool3d, MaxUnpool3d)}
Decoder = Literal["unpool", "nearest", "bilinear", "skip"]
Norm = Literal["batch", "group"]
DECODERS, NORMS = get_args(Decoder), get_args(Norm)


class ConvBlock(nn.Module):
    """Convolution, normalisation (over the batch or groups of 4 channels) and ReLU; keeps the
    size."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel_size: int,
        *,
        dims: int = 2,
        norm: str = "batch",
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.conv = convolution(dims, inputs, outputs, kernel_size, bias)
        if norm == "batch":
            self.norm: nn.Module = BatchNorm(outputs)
        else:
            self.norm = nn.GroupNorm(outputs // 4, outputs, pytorch_compatible=True)

    def __call__(self, x: mx.array) -> mx.array:
        return nn.relu(self.norm(self.conv(x)))


class SegNet(Model):
    """SegNet: an encoder and a decoder with the same number of stages, for 1-D, 2-D and 3-D inputs.

    ``SegNet(num_classes=12)(images)`` returns class scores (N, H, W, 12) of images (N, H, W, 3).
    The defaults make a small network (80,000 parameters); ``SegNet.vgg16`` makes the network of the
    paper (29.5 million parameters). Each axis needs at least ``2**len(channels)`` positions.

    Args:
        num_classes: Number of classes.
        channels: Channels of each encoder stage.
        convolutions: Number of convolutions per encoder stage, with kernel size 3.
        decoder_convolutions: Number of convolutions per decoder stage, in the order of the encoder.
            Default: 1.
        decoder_kernel: Kernel size of the decoder's convolutions on every axis.
        classifier_kernel: Kernel size of the last convolution on every axis.
        inputs: Channels of the input.
        dims: 1 for signals, 2 for images, 3 for volumes.
        decoder: ``"unpool"``, ``"nearest"``, ``"bilinear"`` or ``"skip"`` (bilinear, with skip
            connections).
        norm: ``"batch"``, or ``"group"``: groups of 4 channels of one image, so that the result
            does not depend on the rest of the batch.
        bias: Whether convolutions before a normalisation have a bias, which only matters for ported
            weights.
        coarse: Whether to add a classifier of the last pooled values, for an auxiliary loss; see
            ``SegNet.scores``.

    Example:
        >>> model = zoo.SegNet(num_classes=12)
        >>> image = np.zeros((60, 80, 3), np.uint8)  # or a picture of Pillow
        >>> model.predict(image).shape
        (60, 80)
    """

    model_type: ClassVar[str] = "segnet"
    facts: ClassVar[Facts] = Facts(
        paper="Badrinarayanan, Kendall and Cipolla, SegNet, IEEE TPAMI 39 (2017), 2481-2495",
        citation=CITATIONS["badrinarayanan2017segnet"],
        normalisation=IMAGENET,
        published_classes={12: CAMVID},
        without_effect=frozenset(["width"]),  # of vgg16: the shapes tell
    )

    def __init__(
        self,
        num_classes: Size,
        channels: Sizes = (12, 24, 48),
        convolutions: Counts = (1, 2, 2),
        *,
        decoder_convolutions: Counts | None = None,
        decoder_kernel: Size = 5,
        classifier_kernel: Size = 1,
        inputs: Size = 3,
        dims: Literal[1, 2, 3] = 2,
        decoder: Decoder = "unpool",
        norm: Norm = "batch",
        bias: bool = False,
        coarse: bool = True,
    ) -> None:
        super().__init__(inputs, dims, smallest=2 ** len(channels))
        if inputs != 3 or dims != 2:
            self.about.input["normalisation"] = None
        decoder_convolutions = decoder_convolutions or (1,) * len(channels)
        if not len(channels) == len(convolutions) == len(decoder_convolutions):
            raise ValueError(
                "[SegNet] 'channels', 'convolutions' and 'decoder_convolutions' must have the same "
                f"length, but got {channels}, {convolutions} and {decoder_convolutions}."
            )

        def stage(first: int, between: int, last: int, count: int, kernel_size: int) -> Any:
            """Blocks with these channels at the start, between two blocks and at the end."""
            sizes = [first, *[between] * (count - 1), last]
            return nn.Sequential(
                *(
                    ConvBlock(before, after, kernel_size, dims=dims, norm=norm, bias=bias)
                    for before, after in pairwise(sizes)
                )
            )

        self.encoder, self.decoder = [], []
        before = inputs
        for outputs, count in zip(channels, convolutions):
            self.encoder.append(stage(before, outputs, outputs, count, 3))
            before = outputs
        # From the deepest stage: from its channels to those of the stage before it.
        for number in reversed(range(len(channels))):
            own, outputs = channels[number], channels[max(0, number - 1)]
            first = 2 * own if decoder == "skip" else own  # with the encoder's features
            count = decoder_convolutions[number]
            self.decoder.append(stage(first, own, outputs, count, decoder_kernel))
        pool, unpool = LAYERS[dims]
        self.pool = pool(2, return_indices=True, index_format="window")
        self.unpool = unpool.from_pool(self.pool)
        self.upsample = nn.Upsample(2, "nearest" if decoder == "nearest" else "linear")
        self.decoder_kind = decoder
        self.classifier = convolution(dims, channels[0], num_classes, classifier_kernel)
        if coarse:
            self.coarse_classifier = convolution(dims, channels[-1], num_classes, 1)

    @classmethod
    def vgg16(cls, num_classes: int, width: float = 1.0) -> SegNet:
        """SegNet as in the paper: 13 convolutions as in VGG-16 in the encoder, and 13 in the
        decoder.

        Args:
            num_classes: Number of classes.
            width: Factor for the channels of every stage. With 1 the model has the 29.5 million
                parameters of the paper and can use the weights of VGG-16.
        """
        return cls(
            num_classes,
            channels=[max(1, round(width * c)) for c in VGG16],
            convolutions=[2, 2, 3, 3, 3],
            decoder_convolutions=[1, 2, 3, 3, 3],  # and the classifier
            decoder_kernel=3,
            classifier_kernel=3,
            bias=True,
            coarse=False,
        )

    def __call__(self, x: mx.array) -> mx.array:
        """Class scores (N, ..., classes) of inputs (N, ..., channels)."""
        return self.decode(*self.encode(x))

    def scores(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Class scores as from a call, and those of the last pooled values; needs
        ``coarse=True``."""
        x, stages = self.encode(x)
        return self.decode(x, stages), self.coarse_classifier(x)

    def encode(self, x: mx.array) -> tuple[mx.array, list[tuple[mx.array, mx.array]]]:
        """The last pooled values, and for each stage the indices and the values before pooling."""
        self.check_input(x)
        stages = []
        for block in self.encoder:
            features = block(x)
            x, indices = self.pool(features)
            stages.append((indices, features))
        return x, stages

    def decode(self, x: mx.array, stages: list[tuple[mx.array, mx.array]]) -> mx.array:
        """Class scores from what ``encode`` returned."""
        for block, (indices, features) in zip(self.decoder, reversed(stages), strict=True):
            x = self.up(x, indices, features.shape)
            if self.decoder_kind == "skip":
                x = mx.concatenate([x, features], axis=-1)
            x = block(x)
        return self.classifier(x)

    def up(self, x: mx.array, indices: mx.array, size: tuple[int, ...]) -> mx.array:
        """Upsample to the shape ``size``: unpool, or interpolate without the indices."""
        if self.decoder_kind == "unpool":
            return self.unpool(x, indices, output_size=size)
        x = self.upsample(x).astype(x.dtype)  # MLX interpolates in float32
        # Repeat the last row or column for an odd size.
        return mx.pad(x, [(0, wanted - got) for wanted, got in zip(size, x.shape)], mode="edge")

    @classmethod
    def canonical(cls, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Rename parameters of torchvision's ``vgg16_bn`` to the encoder's and drop its
        classifier."""
        names = {}
        for stage, numbers in enumerate(FEATURES):
            for block, number in enumerate(numbers):
                names[number] = f"encoder.{stage}.{block}.conv"
                names[number + 1] = f"encoder.{stage}.{block}.norm"
        renamed = {}
        for name, value in state.items():
            if match := re.fullmatch(r"(?:module\.)?features\.(\d+)\.(\w+)", name):
                number, kind = int(match[1]), match[2]
                renamed[f"{names.get(number, f'features.{number}')}.{kind}"] = value
        return renamed or state

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        first = state["encoder.0.0.conv.weight"]
        encoder, decoder = channels_of(state, "encoder"), channels_of(state, "decoder")
        counts = [len(stage) for stage in encoder]
        config = {
            "channels": [stage[-1] for stage in encoder],
            "convolutions": counts,
            "inputs": first.shape[1],
            "dims": first.ndim - 2,
            "norm": "batch" if "encoder.0.0.norm.running_mean" in state else "group",
            "bias": "encoder.0.0.conv.bias" in state,
            "coarse": "coarse_classifier.weight" in state,
        }
        if not decoder:  # VGG-16 weights: the other arguments are as in the paper
            return config | {
                "decoder_convolutions": [max(1, counts[0] - 1), *counts[1:]],
                "decoder_kernel": first.shape[2],
                "classifier_kernel": first.shape[2],
            }
        return config | {
            "num_classes": state["classifier.weight"].shape[0],
            "decoder_convolutions": [len(stage) for stage in reversed(decoder)],
            "decoder_kernel": state["decoder.0.0.conv.weight"].shape[2],
            "classifier_kernel": state["classifier.weight"].shape[2],
        }

    def sanitize(self, weights: Mapping[str, Any], *, strict: Strict = True) -> dict[str, mx.array]:
        """See ``Model.sanitize``. If there are no decoder weights, the decoder keeps its values."""
        state = self.state_from(weights)
        if not any(name.startswith("decoder.") for name in state):
            own = to_state_dict(self, self.pytorch_names)
            state |= {name: v for name, v in own.items() if not name.startswith("encoder.")}
        return super().sanitize(state, strict=strict)


def channels_of(state: Mapping[str, np.ndarray], part: str) -> list[list[int]]:
    """The output channels of the convolutions of each stage of the encoder or the decoder."""
    stages: list[list[int]] = []
    while f"{part}.{len(stages)}.0.conv.weight" in state:
        stage, blocks = f"{part}.{len(stages)}", list[int]()
        while f"{stage}.{len(blocks)}.conv.weight" in state:
            blocks.append(state[f"{stage}.{len(blocks)}.conv.weight"].shape[0])
        stages.append(blocks)
    return stages


def convolution(
    dims: int, inputs: int, outputs: int, kernel_size: int, bias: bool = True
) -> nn.Module:
    """A convolution in 1, 2 or 3 dimensions that keeps the size; ``kernel_size`` is odd."""
    layer = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    return layer(inputs, outputs, kernel_size, padding=kernel_size // 2, bias=bias)
