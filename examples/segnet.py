"""SegNet (Badrinarayanan, Kendall and Cipolla, 2017) for pictures of any size, in MLX.

The encoder pools and remembers where each maximum was; the decoder puts values back to those places, which
is how it finds the edges again. ``decoder="nearest"`` repeats every value instead: the same network without
its memory, to compare with.
"""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from mlx_unpool import MaxPool2d, MaxUnpool2d

DECODERS = ("unpool", "nearest")
NORMS = ("batch", "group")


class ConvBlock(nn.Module):
    """Convolution, normalisation over the batch or over groups of 4 channels, ReLU; the size stays."""

    def __init__(self, inputs: int, outputs: int, kernel_size: int, norm: str = "batch") -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel_size, padding=kernel_size // 2, bias=False)
        if norm == "batch":
            self.norm = nn.BatchNorm(outputs)
        else:
            self.norm = nn.GroupNorm(outputs // 4, outputs, pytorch_compatible=True)

    def __call__(self, x: mx.array) -> mx.array:
        return nn.relu(self.norm(self.conv(x)))


class SegNet(nn.Module):
    """An encoder and a decoder of as many stages.

    Args:
        classes: Number of classes a pixel can have.
        channels: Channels of each encoder stage.
        convolutions: Convolutions (3 x 3) in each encoder stage; a decoder stage has one (5 x 5).
        decoder: ``"unpool"`` or ``"nearest"``.
        norm: ``"batch"`` or ``"group"`` (of 4 channels, within one image: it does not matter what else is in
            the batch).
    """

    def __init__(
        self,
        classes: int,
        channels: tuple[int, ...] = (12, 24, 48),
        convolutions: tuple[int, ...] = (1, 2, 2),
        decoder: str = "unpool",
        norm: str = "batch",
    ) -> None:
        super().__init__()
        inputs = (3, *channels[:-1])
        self.encoder = [
            nn.Sequential(
                ConvBlock(i, o, 3, norm), *(ConvBlock(o, o, 3, norm) for _ in range(count - 1))
            )
            for i, o, count in zip(inputs, channels, convolutions, strict=True)
        ]
        outputs = (channels[0], *channels[:-1])
        self.decoder = [
            ConvBlock(i, o, 5, norm) for i, o in zip(channels[::-1], outputs[::-1], strict=True)
        ]
        self.pool = MaxPool2d(2, return_indices=True)
        self.unpool = MaxUnpool2d.from_pool(self.pool)
        self.nearest = nn.Upsample(scale_factor=2, mode="nearest")
        self.decoder_kind = decoder
        self.classifier = nn.Conv2d(channels[0], classes, 1)
        self.coarse_classifier = nn.Conv2d(channels[-1], classes, 1)

    def __call__(self, x: mx.array) -> mx.array:
        """Class scores (N, H, W, classes) of images (N, H, W, 3)."""
        return self.scores(x)[0]

    def scores(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Class scores of every pixel, and of every cell of the last pooling stage."""
        stages = []
        for block in self.encoder:
            x = block(x)
            size = x.shape
            x, indices = self.pool(x)
            stages.append((indices, size))
        coarse = self.coarse_classifier(x)
        for block in self.decoder:
            indices, size = stages.pop()
            x = block(self.up(x, indices, size[1:3]))
        return self.classifier(x), coarse

    def up(self, x: mx.array, indices: mx.array, size: tuple[int, ...]) -> mx.array:
        """One stage up: to where the values came from, or everywhere around."""
        if self.decoder_kind == "nearest":
            return self.nearest(x)
        return self.unpool(x, indices, output_size=size)

    def kept_places(self, x: mx.array) -> list[mx.array]:
        """What each pooling stage keeps, at the places that its indices name: (N, H, W) a stage."""
        kept = []
        for block in self.encoder:
            x = block(x)
            size = x.shape
            x, indices = self.pool(x)
            kept.append(self.unpool(x, indices, output_size=size[1:3]).mean(axis=-1))
        return kept
