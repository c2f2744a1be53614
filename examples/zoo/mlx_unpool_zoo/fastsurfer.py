"""The networks of FastSurfer: segmentation of the brain, cerebellum and hypothalamus in slices.

Parameters are named as in Deep-MI/FastSurfer. The channels of an input are seven neighbouring
slices; the one in the middle is segmented. Feature maps within a block, and those of the encoder
and the decoder, are combined by their elementwise maximum.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from .about import CITATIONS, RESEARCH, Facts, Size, divided_by_255
from .classes import CEREBNET, FASTSURFER
from .layers import BatchNorm
from .stages import Stages

# fmt: off
WITHOUT_EFFECT = frozenset([
    "base_res", "dilation", "duplicate_input", "hetero_input", "loss_func", "mode", "model_name",
    "multi_auto_w", "multi_auto_w_channels", "num_blocks", "num_classes_sag",
    "num_filters_interpol_last", "num_filters_last", "out_tensor_height", "out_tensor_width",
    "padded_size", "weight_mask",
])
# fmt: on
# What the networks have in common.
fastsurfer_facts = functools.partial(
    Facts,
    names_of="Deep-MI/FastSurfer",
    notice=RESEARCH,
    modalities=1,
    without_effect=WITHOUT_EFFECT,
)


class CompetitiveBlock(nn.Module):
    """Convolutions, each of the elementwise maximum of all earlier results, with normalisation.

    Args:
        inputs: Channels of the input.
        filters: Channels of every convolution.
        kernel_size: Kernel size of the convolutions, which must be odd. The last one of three has
            size 1.
        stride: Stride of every convolution.
        start: The operation before the first convolution: ``"compete"`` (an activation, whose input
            is also part of the first maximum), ``"activate"`` (only an activation) or
            ``"normalise"``.
        norm: The authors' name for the normalisations of this block.
        convolutions: Number of convolutions: 4, or 3 as in CerebNet.
    """

    def __init__(
        self,
        inputs: int,
        filters: int,
        kernel_size: tuple[int, int],
        stride: int = 1,
        *,
        start: str = "compete",
        norm: str = "bn",
        convolutions: int = 4,
    ) -> None:
        super().__init__()
        if start == "normalise":
            self.bn0 = BatchNorm(inputs)
        for number in range(convolutions):
            channels = filters if number else inputs
            size = (1, 1) if convolutions == 3 and number == 2 else kernel_size
            padding = ((size[0] - 1) // 2, (size[1] - 1) // 2)
            self[f"conv{number}"] = nn.Conv2d(channels, filters, size, stride, padding)
            self[f"{norm}{number + 1}"] = BatchNorm(filters)
        self.prelu = nn.PReLU()
        self.start, self.norm, self.last = start, norm, convolutions - 1

    def __call__(self, x: mx.array) -> mx.array:
        best = x if self.start == "compete" else None
        x = self.bn0(x) if self.start == "normalise" else self.prelu(x)
        for number in range(self.last):
            x = self[f"{self.norm}{number + 1}"](self[f"conv{number}"](x))
            best = x if best is None else mx.maximum(x, best)
            x = self.prelu(best)
        return self[f"{self.norm}{self.last + 1}"](self[f"conv{self.last}"](x))


class CompetitiveNetwork(Stages):
    """What the networks have in common: competitive blocks, combined with those of the encoder."""

    def add_competitive_blocks(self, inputs: int, convolutions: int = 4) -> None:
        """Add the blocks of a FastSurferCNN for an input of so many channels."""
        config, filters = self.config, self.config["num_filters"]
        kernel = config["kernel_h"], config["kernel_w"]

        def block(inputs: int = filters, start: str = "compete") -> CompetitiveBlock:
            options: Any = {
                "stride": config["stride_conv"],
                "start": start,
                "convolutions": convolutions,
            }
            return CompetitiveBlock(inputs, filters, kernel, **options)

        self.add_blocks(block(inputs, "normalise"), block, block)

    def combine(self, x: mx.array, skip: mx.array) -> mx.array:
        return mx.maximum(x, skip)


class FastSurferCNN(CompetitiveNetwork):
    """FastSurferCNN: segments slices of T1-weighted head scans; four pooling and four unpooling
    layers.

    ``FastSurferCNN()(slices)`` returns class scores (N, H, W, 79) of slices (N, H, W, 7). The
    published weights are for slices of 256 x 256 at 1 mm.

    Args:
        num_classes: 79 for axial and coronal slices, 51 for sagittal ones.
        num_channels: Slices per input.
        num_filters: Channels of every convolution.
        kernel_h, kernel_w: Height and width of every kernel but the last.
        kernel_c: Kernel size of the classifier.
        stride_conv: Stride of every convolution.
        pool, stride_pool: Size and stride of the pooling window.

    Example:
        >>> model = zoo.FastSurferCNN(num_filters=8)  # published: 64
        >>> volume = np.zeros((5, 32, 32), np.uint8)  # five slices
        >>> model.predict(volume).shape
        (5, 32, 32)
    """

    model_type: ClassVar[str] = "fastsurfer_cnn"
    facts: ClassVar[Facts] = fastsurfer_facts(
        paper="Henschel et al., FastSurfer, NeuroImage 219 (2020), 117012",
        citation=CITATIONS["henschel2020fastsurfer"],
        normalisation=divided_by_255(7),
        multiple_of=16,
        classes=FASTSURFER,
    )
    convolutions: ClassVar[int] = 4  # of a block

    def __init__(
        self, num_classes: Size = 79, num_channels: Size = 7, num_filters: Size = 64,
        kernel_h: Size = 5, kernel_w: Size = 5, kernel_c: Size = 1, stride_conv: Size = 1,
        pool: Size = 2, stride_pool: Size = 2,
    ) -> None:  # fmt: skip
        super().__init__(num_channels)
        self.add_competitive_blocks(num_channels, self.convolutions)


class CerebNet(FastSurferCNN):
    """CerebNet: segments 27 structures of the cerebellum; a FastSurferCNN with three convolutions
    per block.

    ``CerebNet()(slices)`` returns class scores (N, H, W, 28) of slices (N, H, W, 7). As published,
    slices are in RAS orientation, with 128 x 128 positions around the cerebellum. Not supported:
    FastSurfer's search for the cerebellum and its statistics.

    Args:
        num_classes: 28 for axial and coronal slices, 17 for sagittal ones.
        kernel_h, kernel_w: Height and width of the first two kernels of each block.

    The other arguments are those of ``FastSurferCNN``.

    Example:
        >>> model = zoo.CerebNet(num_filters=8)  # published: 64
        >>> volume = np.zeros((5, 32, 32), np.uint8)  # five slices
        >>> model.predict(volume).shape
        (5, 32, 32)
    """

    model_type: ClassVar[str] = "cerebnet"
    facts: ClassVar[Facts] = fastsurfer_facts(
        paper="Faber et al., CerebNet, NeuroImage 264 (2022), 119703",
        citation=CITATIONS["faber2022cerebnet"],
        normalisation=divided_by_255(7),
        multiple_of=16,
        classes=CEREBNET,
        # "height" and "width" are those of the patches that the authors train on.
        without_effect=WITHOUT_EFFECT | {"height", "width", "plane"},
    )
    convolutions: ClassVar[int] = 3

    def __init__(
        self, num_classes: Size = 28, num_channels: Size = 7, num_filters: Size = 64,
        kernel_h: Size = 5, kernel_w: Size = 5, kernel_c: Size = 1, stride_conv: Size = 1,
        pool: Size = 2, stride_pool: Size = 2,
    ) -> None:  # fmt: skip
        super().__init__(**self.config)


class FastSurferVINN(CompetitiveNetwork):
    """FastSurferVINN: a FastSurferCNN between two resizings, for scans of any resolution.

    Feature maps are resized to a resolution of 1 mm, processed by the FastSurferCNN, resized to
    that of the scan and concatenated with those of the first block. As in all configurations of the
    authors, resizing is bilinear, and feature maps are cropped and padded at the right and at the
    bottom.

    ``FastSurferVINN()(slices, 1 / voxel_size)`` returns class scores (N, H, W, 79) of slices (N, H,
    W, 7), with ``voxel_size`` in mm; ``predict(volume, 1 / voxel_size)`` takes the same factor. The
    published weights are for slices of 320 x 320.

    Args:
        num_filters: Channels of the inner network.
        num_filters_interpol: Channels of the first block, which are resized.
        height: Number of columns of the inner feature maps: the authors' code swaps the two names.
        width: Number of rows of the inner feature maps.
        interpolation_mode, crop_position: As in the authors' configurations; there are no other
            values.

    The other arguments are those of ``FastSurferCNN``.

    Example:
        >>> model = zoo.FastSurferVINN(num_filters=8, height=32, width=32)  # or 71, 256, 256
        >>> volume = np.zeros((5, 32, 32), np.uint8)  # five slices
        >>> model.predict(volume, 1 / 0.8).shape
        (5, 32, 32)
    """

    model_type: ClassVar[str] = "fastsurfer_vinn"
    facts: ClassVar[Facts] = fastsurfer_facts(
        paper="Henschel, Kügler and Reuter, FastSurferVINN, NeuroImage 251 (2022), 118933",
        citation=CITATIONS["henschel2022fastsurfervinn"],
        normalisation=divided_by_255(7),
        classes=FASTSURFER,
    )
    first_blocks: ClassVar[tuple[str, ...]] = ("inp_block",)  # one for each modality

    def __init__(
        self, num_classes: Size = 79, num_channels: Size = 7, num_filters: Size = 71,
        num_filters_interpol: Size = 32, kernel_h: Size = 3, kernel_w: Size = 3, kernel_c: Size = 1,
        stride_conv: Size = 1, pool: Size = 2, stride_pool: Size = 2, height: Size = 256,
        width: Size = 256, interpolation_mode: Literal["bilinear"] = "bilinear",
        crop_position: Literal["top_left"] = "top_left",
    ) -> None:  # fmt: skip
        super().__init__(num_channels)
        self.add_competitive_blocks(num_filters_interpol)
        # As in the authors' code, ``width`` is the number of rows and ``height`` that of columns.
        self.inner_size = (width, height)
        options: Any = {"kernel_size": (kernel_h, kernel_w), "stride": stride_conv, "norm": "gn"}
        inputs, outputs = num_channels // len(self.first_blocks), num_filters_interpol
        for name in self.first_blocks:
            self[name] = CompetitiveBlock(inputs, outputs, start="normalise", **options)
        both = num_filters + num_filters_interpol
        self.outp_block = CompetitiveBlock(both, num_filters, start="activate", **options)

    def __call__(self, x: mx.array, scale_factor: Any = 1.0) -> mx.array:
        """Class scores of slices at the resolution of the scan.

        Args:
            x: Slices (N, H, W, num_channels).
            scale_factor: Positions of the scan per position of the inner feature maps: 1 mm divided
                by the voxel size. One number for all images, one per image, (N,) or (N, 1), or two
                per image, (N, 2), for rows and columns. Sizes are computed in float32 from float32
                and MLX arrays, otherwise in float64: a size can depend on the last bit.

        Returns:
            (N, H, W, num_classes)
        """
        self.check_input(x)
        return self.resized(self.inp_block(x), scale_factor)

    def resized(self, skip: mx.array, scale_factor: Any) -> mx.array:
        """Class scores from the output of the first block."""
        inside, scales = zoom(skip, per_image(scale_factor, len(skip)), self.inner_size)
        outside, _ = zoom(self.features(inside), 1 / scales, skip.shape[1:3])
        return self.classifier(self.outp_block(mx.concatenate([outside, skip], axis=-1)))

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        first = state[f"{cls.first_blocks[0]}.conv0.weight"]
        return super().config_of(state) | {
            "num_channels": len(cls.first_blocks) * first.shape[1],
            "num_filters_interpol": first.shape[0],
        }


class HypVINN(FastSurferVINN):
    """HypVINN: segments the hypothalamus and nearby structures in T1- and T2-weighted slices, or
    one of them.

    A FastSurferVINN with a first block for each modality, whose outputs are averaged.

    ``HypVINN()(slices, 1 / voxel_size, (1, 0))`` returns class scores (N, H, W, 27) of slices (N,
    H, W, 14): seven of T1, then seven of T2. The weights are (1, 0) for T1 alone and (0, 1) for T2
    alone; then pass the available slices twice. A pair without a 1, such as the default (0.5, 0.5),
    selects the learnt weights. The published weights are for slices of 320 x 320.

    Args:
        num_classes: 27 for axial and coronal slices as published; sagittal slices have fewer.
        num_channels: Slices per input over both modalities: 7 of T1, then 7 of T2.
        num_filters: Channels of the inner network.
        num_filters_interpol: Channels of the first blocks, which are resized.

    The other arguments are those of ``FastSurferVINN``.

    Example:
        >>> model = zoo.HypVINN(num_filters=8, height=32, width=32)
        >>> volume = np.zeros((5, 32, 32, 2), np.uint8)  # five slices of T1 and of T2
        >>> model.predict(volume, 1 / 0.8).shape
        (5, 32, 32)
    """

    model_type: ClassVar[str] = "hypvinn"
    facts: ClassVar[Facts] = fastsurfer_facts(
        paper="Estrada et al., FastSurfer-HypVINN, Imaging Neuroscience 1 (2023)",
        citation=CITATIONS["estrada2023hypvinn"],
        normalisation=divided_by_255(14),
        modalities=2,
    )
    first_blocks: ClassVar[tuple[str, ...]] = ("m1_inp_block", "m2_inp_block")

    def __init__(
        self, num_classes: Size = 27, num_channels: Size = 14, num_filters: Size = 80,
        num_filters_interpol: Size = 64, kernel_h: Size = 3, kernel_w: Size = 3, kernel_c: Size = 1,
        stride_conv: Size = 1, pool: Size = 2, stride_pool: Size = 2, height: Size = 256,
        width: Size = 256, interpolation_mode: Literal["bilinear"] = "bilinear",
        crop_position: Literal["top_left"] = "top_left",
    ) -> None:  # fmt: skip
        super().__init__(**self.config)
        if num_channels % 2:
            raise ValueError(
                f"[HypVINN] 'num_channels' must be even, for two scans, but got {num_channels}."
            )
        self.mod_weights = mx.full((2,), 0.5)

    def __call__(
        self, x: mx.array, scale_factor: Any = 1.0, weight_factor: Any = (0.5, 0.5)
    ) -> mx.array:
        """Class scores of slices at the resolution of the scan.

        Args:
            x: Slices (N, H, W, num_channels).
            scale_factor: As for ``FastSurferVINN``.
            weight_factor: The weights of T1 and T2, (2,) or (N, 2), the same for all images.

        Returns:
            (N, H, W, num_classes)
        """
        self.check_input(x)
        given = np.asarray(weight_factor, dtype=np.float32)
        pairs = given.reshape(-1, 2) if given.ndim in (1, 2) and given.shape[-1] == 2 else None
        if pairs is None or len(pairs) not in (1, len(x)) or (pairs != pairs[0]).any():
            says = "'weight_factor' must be two numbers, the same for all images, but got"
            raise ValueError(f"[HypVINN] {says} {given.tolist()}.")
        learnt = mx.softmax(self.mod_weights, axis=0)
        weights = mx.array(pairs[0]) if 1 in pairs[0] else learnt
        first, second = mx.split(x, 2, axis=-1)
        skip = weights[0] * self.m1_inp_block(first) + weights[1] * self.m2_inp_block(second)
        return self.resized(skip, scale_factor)


def per_image(scale: Any, count: int) -> np.ndarray:
    """The factors of rows and columns for each image: float32 for float32 and MLX arrays, else
    float64."""
    array: Any = np.asarray(scale)
    single = isinstance(scale, mx.array) or array.dtype == np.float32
    array = array.astype(np.float32 if single else np.float64)
    if array.shape == (2,) and count == 1:
        array = array[None]  # rows and columns of the only image
    if array.ndim < 2:
        array = array.reshape(-1, 1)
    fits = array.ndim == 2 and array.shape[0] in (1, count) and array.shape[1] in (1, 2)
    if not (fits and (np.isfinite(array) & (array > 0)).all()):
        raise ValueError(
            f"[FastSurferVINN] 'scale_factor' must be positive: a number, ({count},), "
            f"({count}, 1) or ({count}, 2), but got {array.tolist()}."
        )
    return np.broadcast_to(array, (count, 2))


def zoom(x: mx.array, scales: np.ndarray, target: Sequence[int]) -> tuple[mx.array, np.ndarray]:
    """Images resized by about 1 / ``scales`` (N, 2), then cropped or padded to a size; the exact
    factors."""
    parts, used = [], []
    count = 1 if (scales == scales[0]).all() else len(x)  # one call for all images
    for part, scale in zip(mx.split(x, count), scales):
        axes = [fitted(*axis) for axis in zip(x.shape[1:3], target, scale)]
        (rows, columns), (height, width), factors = zip(*axes)
        part = resize(part[:, :rows, :columns], (height, width))
        parts.append(
            mx.pad(part, [(0, 0), (0, target[0] - height), (0, target[1] - width), (0, 0)])
        )
        used.append(factors)
    return mx.concatenate(parts), np.resize(np.array(used, scales.dtype), scales.shape)


def fitted(size: int, target: int, scale: Any) -> tuple[int, int, Any]:
    """How to crop an axis of ``size`` positions and resize it by about 1 / ``scale`` to at most
    ``target``.

    Numbers are rounded to the type of ``scale`` in the same places as in the authors' code, because
    an integer part can depend on the last bit.

    Returns:
        The number of positions to take, the size to resize to, and the factor.
    """
    kind = type(scale)
    taken = int(scale * kind(target))  # positions of the axis that become the target
    if taken <= size:
        return taken, target, kind(taken / target)
    # PyTorch divides a number by a tensor with two roundings, as a product with the reciprocal.
    resized = int(kind(size) * (kind(1) / scale) if kind is np.float32 else size / scale)
    return size, resized, kind(size / resized)


def resize(x: mx.array, size: tuple[int, int]) -> mx.array:
    """Resize images (N, H, W, C) to a height and width, as PyTorch's ``interpolate(x, size=size,
    mode="bilinear", align_corners=False)`` does."""
    for axis, length in zip((1, 2), size):
        if x.shape[axis] != length:
            weights = mx.array(resize_weights(x.shape[axis], length)).astype(x.dtype)
            x = mx.moveaxis(mx.tensordot(x, weights, axes=[[axis], [1]]), -1, axis)
    return x


@functools.lru_cache(maxsize=64)
def resize_weights(before: int, after: int) -> np.ndarray:
    """The matrix (new length, old length) that resizes an axis."""
    weights = np.zeros((after, before), np.float32)
    rows = np.arange(after)
    # In float32 as in PyTorch; rounded once, like a fused multiply-add.
    scale = np.float64(np.float32(before) / np.float32(after))
    position = np.maximum(((rows + 0.5) * scale - 0.5).astype(np.float32), 0)
    first = np.floor(position).astype(int)
    t = position - first.astype(np.float32)
    for offset, part in ((0, 1 - t), (1, t)):
        np.add.at(weights, (rows, np.minimum(first + offset, before - 1)), part)
    return weights
