"""Two autoencoders: one for signals, with overlapping windows, and one for volumes, with padding.

InceptionAutoencoder: the blocks of TheMrGhostman/InceptionTime-Pytorch, after Fawaz et al., "InceptionTime:
Finding AlexNet for time series classification", Data Mining and Knowledge Discovery 2020.
ConvAutoencoder3d: the autoencoder that ClinicaDL (Thibeau-Sutre et al., Computer Methods and Programs in
    Biomedicine 2022) derives from its network Conv5_FC3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from pydantic import Field

from mlx_unpool import MaxPool1d, MaxPool3d, MaxUnpool1d, MaxUnpool3d

from .about import CITATIONS, RESEARCH, About, Size, Sizes
from .layers import BatchNorm
from .model import Model


class Inception(nn.Module):
    """Parallel convolutions of three lengths, and a convolution of the maxima of overlapping windows."""

    def __init__(self, inputs: int, filters: int, kernel_sizes: Sequence[int], bottleneck: int) -> None:
        super().__init__()
        if inputs > 1:
            self.bottleneck = nn.Conv1d(inputs, bottleneck, 1, bias=False)
        for number, size in enumerate(kernel_sizes, start=1):
            self[f"conv_from_bottleneck_{number}"] = nn.Conv1d(
                bottleneck if inputs > 1 else 1, filters, size, padding=size // 2, bias=False
            )
        self.max_pool = MaxPool1d(3, 1, 1, return_indices=True)
        self.conv_from_maxpool = nn.Conv1d(inputs, filters, 1, bias=False)
        self.batch_norm = BatchNorm(4 * filters)

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:
        narrow = self.bottleneck(x) if "bottleneck" in self else x
        maxima, indices = self.max_pool(x)
        parts = [self[f"conv_from_bottleneck_{number}"](narrow) for number in (1, 2, 3)]
        parts.append(self.conv_from_maxpool(maxima))
        return nn.relu(self.batch_norm(mx.concatenate(parts, axis=-1))), indices


class InceptionTranspose(nn.Module):
    """The decoder's counterpart of ``Inception``: transposed convolutions and unpooling."""

    def __init__(self, inputs: int, outputs: int, kernel_sizes: Sequence[int], bottleneck: int) -> None:
        super().__init__()
        for number, size in enumerate(kernel_sizes, start=1):
            self[f"conv_to_bottleneck_{number}"] = nn.ConvTranspose1d(
                inputs, bottleneck, size, padding=size // 2, bias=False
            )
        self.conv_to_maxpool = nn.Conv1d(inputs, outputs, 1, bias=False)
        self.max_unpool = MaxUnpool1d(3, 1, 1)
        self.bottleneck = nn.Conv1d(3 * bottleneck, outputs, 1, bias=False)
        self.batch_norm = BatchNorm(outputs)

    def __call__(self, x: mx.array, indices: mx.array) -> mx.array:
        parts = [self[f"conv_to_bottleneck_{number}"](x) for number in (1, 2, 3)]
        full = self.max_unpool(self.conv_to_maxpool(x), indices)
        return nn.relu(self.batch_norm(self.bottleneck(mx.concatenate(parts, axis=-1)) + full))


class InceptionBlock(nn.Module):
    """Three inception layers, plain or transposed, and the layers of a shortcut connection, if it has one."""

    def __init__(self, layers: Sequence[nn.Module], residual: list[nn.Module]) -> None:
        super().__init__()
        for number, layer in enumerate(layers, start=1):
            self[f"inception_{number}"] = layer
        if residual:
            self.residual = residual

    def with_shortcut(self, x: mx.array, y: mx.array) -> mx.array:
        """The output ``y`` of the layers for an input ``x``, plus the shortcut connection."""
        if "residual" not in self:
            return y
        convolution, norm = self.residual
        return nn.relu(y + norm(convolution(x)))


class InceptionAutoencoder(Model):
    """InceptionTime as an autoencoder of signals that unpools overlapping windows (size 3, stride 1).

    ``InceptionAutoencoder()(signals)`` returns the reconstruction of signals (N, L, 1). Neighbouring windows
    often have the same maximum, so the indices contain many duplicates.

    Args:
        in_channels: Channels of a signal.
        n_filters: Channels of each of the four parts of an inception layer.
        kernel_sizes: The three lengths of the convolutions, which must be odd.
        bottleneck_channels: Channels before the convolutions of the encoder and after those of the decoder.
        use_residual: Whether encoder and decoder have a shortcut connection.
        log_sigma: The shape of the model's parameter ``log_sigma`` (the log standard deviation of a Gaussian
            likelihood), or None if it has none. It does not change the reconstruction.

    Example:
        >>> model = zoo.InceptionAutoencoder()
        >>> model(mx.zeros((2, 100, 1))).shape
        (2, 100, 1)
    """

    model_type: ClassVar[str] = "inception_autoencoder"
    segments: ClassVar[bool] = False
    citation: ClassVar[str] = CITATIONS["fawaz2020inceptiontime"]
    default_about: ClassVar[About] = About(
        paper="Fawaz et al., InceptionTime, Data Mining and Knowledge Discovery 34 (2020), 1936-1962",
        input={"planes": 1, "size": "any length", "multiple_of": 1, "normalisation": None},
    )

    def __init__(
        self,
        in_channels: Size = 1,
        n_filters: Size = 32,
        kernel_sizes: Annotated[Sizes, Field(min_length=3, max_length=3)] = (9, 19, 39),
        bottleneck_channels: Size = 32,
        use_residual: bool = True,
        log_sigma: Sizes | None = None,
    ) -> None:
        super().__init__()
        self.takes(in_channels, dims=1)
        shared, wide = (kernel_sizes, bottleneck_channels), 4 * n_filters
        layers: list[nn.Module] = [Inception(n, n_filters, *shared) for n in (in_channels, wide, wide)]
        residual = [nn.Conv1d(in_channels, wide, 1), BatchNorm(wide)]
        self.encoder = InceptionBlock(layers, residual if use_residual else [])
        layers = [InceptionTranspose(wide, n, *shared) for n in (wide, wide, in_channels)]
        residual = [nn.ConvTranspose1d(wide, in_channels, 1), BatchNorm(in_channels)]
        self.decoder = InceptionBlock(layers, residual if use_residual else [])
        if log_sigma is not None:
            self.log_sigma = mx.zeros(tuple(log_sigma))

    def __call__(self, x: mx.array) -> mx.array:
        """The reconstruction of signals (N, L, in_channels)."""
        self.check_input(x)
        code, kept = x, []
        for number in (1, 2, 3):
            code, indices = self.encoder[f"inception_{number}"](code)
            kept.append(indices)
        code = y = self.encoder.with_shortcut(x, code)
        for number in (1, 2, 3):
            y = self.decoder[f"inception_{number}"](y, kept.pop())
        return self.decoder.with_shortcut(code, y)

    @classmethod
    def canonical(cls, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Rename the two blocks to ``encoder`` and ``decoder``, whatever they are called."""
        marks = {"encoder.": "conv_from_bottleneck_1.weight", "decoder.": "conv_to_bottleneck_1.weight"}
        for own, mark in marks.items():
            end = f"inception_1.{mark}"
            found = [name.removesuffix(end) for name in state if name.endswith(end)]
            if len(found) == 1 and found[0]:
                state = {
                    own + name.removeprefix(found[0]) if name.startswith(found[0]) else name: value
                    for name, value in state.items()
                }
        return state

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        layer = "encoder.inception_2.conv_from_bottleneck_{}.weight"
        filters, bottleneck, _ = state[layer.format(1)].shape
        config = {
            "in_channels": state["encoder.inception_1.conv_from_maxpool.weight"].shape[1],
            "n_filters": filters,
            "kernel_sizes": [state[layer.format(number)].shape[2] for number in (1, 2, 3)],
            "bottleneck_channels": bottleneck,
            "use_residual": "encoder.residual.0.weight" in state,
        }
        if "log_sigma" in state:
            config["log_sigma"] = list(state["log_sigma"].shape)
        return config


class PadMaxPool3d(nn.Module):
    """Pooling with indices that pads zeros at the start of each axis, up to a multiple of the stride.

    As in ClinicaDL, the zeros are pooled like other values, so they can be maxima. The indices refer to the
    padded volume. The third result is the number of zeros on each axis.
    """

    def __init__(self, kernel_size: int, stride: int) -> None:
        super().__init__()
        self.pool = MaxPool3d(kernel_size, stride, return_indices=True)
        self.stride = stride

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array, tuple[int, ...]]:
        before = tuple(-size % self.stride for size in x.shape[1:4])
        values, indices = self.pool(mx.pad(x, [(0, 0), *((n, 0) for n in before), (0, 0)]))
        return values, indices, before


class CropMaxUnpool3d(nn.Module):
    """Unpooling for ``PadMaxPool3d``, which removes its padding."""

    def __init__(self, kernel_size: int, stride: int) -> None:
        super().__init__()
        self.unpool = MaxUnpool3d(kernel_size, stride)

    def __call__(self, x: mx.array, indices: mx.array, before: tuple[int, ...]) -> mx.array:
        depth, height, width = before
        return self.unpool(x, indices)[:, depth:, height:, width:]


class ConvAutoencoder3d(Model):
    """ClinicaDL's convolutional autoencoder of volumes, whose decoder reverses the stages of the encoder.

    ``ConvAutoencoder3d()(volumes)`` returns the reconstruction of volumes (N, D, H, W, 1).

    Args:
        in_channels: Channels of a volume.
        channels: Channels of each stage.
        kernel_size: Kernel size of every convolution, which must be odd.
        pool: Size and stride of the pooling window.

    Example:
        >>> model = zoo.ConvAutoencoder3d(channels=(8, 16))
        >>> model(mx.zeros((1, 21, 26, 19, 1))).shape
        (1, 21, 26, 19, 1)
    """

    model_type: ClassVar[str] = "conv_autoencoder_3d"
    segments: ClassVar[bool] = False
    medical: ClassVar[bool] = True
    notice: ClassVar[str] = RESEARCH
    citation: ClassVar[str] = CITATIONS["thibeausutre2022clinicadl"]
    default_about: ClassVar[About] = About(
        paper="Thibeau-Sutre et al., ClinicaDL, Comput. Methods Programs Biomed. 220 (2022), 106818",
        input={"planes": 1, "size": "any", "multiple_of": 1, "normalisation": None},
    )

    def __init__(
        self,
        in_channels: Size = 1,
        channels: Sizes = (8, 16, 32, 64, 128),
        kernel_size: Size = 3,
        pool: Size = 2,
    ) -> None:
        super().__init__()
        self.takes(in_channels, dims=3)
        stages = list(zip((in_channels, *channels), channels))
        padding = kernel_size // 2
        # Lists, so that parameter names have the same numbers as the authors'.
        self.encoder = []
        for inputs, outputs in stages:
            self.encoder += [
                nn.Conv3d(inputs, outputs, kernel_size, padding=padding),
                BatchNorm(outputs),
                nn.ReLU(),
                PadMaxPool3d(pool, pool),
            ]
        self.decoder = []
        for inputs, outputs in reversed(stages):
            self.decoder += [
                CropMaxUnpool3d(pool, pool),
                nn.ConvTranspose3d(outputs, inputs, kernel_size, padding=padding),
                BatchNorm(inputs),
                nn.ReLU(),
            ]

    def __call__(self, x: mx.array) -> mx.array:
        """The reconstruction of volumes (N, D, H, W, in_channels)."""
        return self.decode(*self.encode(x))

    def encode(self, x: mx.array) -> tuple[mx.array, list[tuple[mx.array, tuple[int, ...]]]]:
        """The latent code of volumes, and for each stage the indices and the padding."""
        self.check_input(x)
        stages = []
        for layer in self.encoder:
            if isinstance(layer, PadMaxPool3d):
                x, indices, before = layer(x)
                stages.append((indices, before))
            else:
                x = layer(x)
        return x, stages

    def decode(self, x: mx.array, stages: list[tuple[mx.array, tuple[int, ...]]]) -> mx.array:
        """The reconstruction from the results of ``encode``."""
        stages = list(stages)
        for layer in self.decoder:
            x = layer(x, *stages.pop()) if isinstance(layer, CropMaxUnpool3d) else layer(x)
        return x

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        weights = {
            int(match[1]): value
            for name, value in state.items()
            if (match := re.fullmatch(r"encoder\.(\d+)\.weight", name)) and value.ndim == 5
        }
        first = state["encoder.0.weight"]
        if first.ndim != 5:
            raise ValueError(
                "[ConvAutoencoder3d] 'encoder.0.weight' must be the weight of a convolution of volumes, with "
                f"5 axes, but got the shape {first.shape}{', as for 2-D images' * (first.ndim == 4)}."
            )
        return {
            "in_channels": first.shape[1],
            "channels": [weights[number].shape[0] for number in sorted(weights)],
            "kernel_size": first.shape[2],
        }
