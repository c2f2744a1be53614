"""FastSurferCNN and FastSurferVINN: 95 structures of the brain in slices of a T1-weighted scan.

Henschel et al., "FastSurfer - A fast and accurate deep learning based neuroimaging pipeline", NeuroImage
2020; Henschel, Kügler and Reuter, "FastSurferVINN: Building resolution-independence into deep learning
segmentation methods", NeuroImage 2022. Parameters are named as in Deep-MI/FastSurfer.

Seven neighbouring slices are the planes of the input; the middle one is segmented. Within a block, and where
the decoder meets the encoder, feature maps compete: the elementwise maximum goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from mlx_unpool import MaxPool2d, MaxUnpool2d

from .layers import RESIZE_MODES, BatchNorm, resize
from .model import About, Model

CROP_POSITIONS = ("center", "top_left", "top_right", "bottom_left", "bottom_right")
INPUT = {
    "planes": 7,
    "size": "multiples of 16; 256 x 256 slices of 1 mm as published",
    "multiple_of": 16,
    "normalisation": {"scale": 1 / 255, "mean": [0.0] * 7, "std": [1.0] * 7},
}
WITHOUT_EFFECT = frozenset(
    {
        "base_res",
        "loss_func",
        "model_name",
        "num_blocks",
        "num_filters_interpol_last",
        "num_filters_last",
        "out_tensor_height",
        "out_tensor_width",
        "padded_size",
    }
)


class CompetitiveBlock(nn.Module):
    """Four convolutions with normalisation; the first three outputs compete with the one before.

    Args:
        inputs: Channels of the input.
        filters: Channels of every convolution.
        kernel_size: Of every convolution; odd.
        stride: Of every convolution.
        start: What comes before the first convolution: ``"compete"`` (an activation, and its input takes part
            in the first competition), ``"activate"`` (an activation alone) or ``"normalise"``.
        norm: How the authors name the normalisations of this block.
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
    ) -> None:
        super().__init__()
        padding = tuple((size - 1) // 2 for size in kernel_size)
        if start == "normalise":
            self.bn0 = BatchNorm(inputs)
        for number in range(4):
            channels = filters if number else inputs
            self[f"conv{number}"] = nn.Conv2d(channels, filters, kernel_size, stride, padding)
            self[f"{norm}{number + 1}"] = BatchNorm(filters)
        self.prelu = nn.PReLU()
        self.start, self.norm = start, norm

    def __call__(self, x: mx.array) -> mx.array:
        best = x if self.start == "compete" else None
        x = self.bn0(x) if self.start == "normalise" else self.prelu(x)
        for number in range(3):
            x = self[f"{self.norm}{number + 1}"](self[f"conv{number}"](x))
            best = x if best is None else mx.maximum(x, best)
            x = self.prelu(best)
        return self[f"{self.norm}4"](self.conv3(x))


class Classifier(nn.Module):
    """The convolution that gives the scores."""

    def __init__(self, inputs: int, classes: int, kernel_size: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, classes, kernel_size, stride)

    def __call__(self, x: mx.array) -> mx.array:
        return self.conv(x)


class FastSurferCNN(Model):
    """FastSurferCNN: competitive dense blocks, four poolings with indices and four unpoolings.

    Args:
        num_classes: 79 for axial and coronal slices, 51 for sagittal ones.
        num_channels: Slices that are seen together.
        num_filters: Channels of every convolution.
        kernel_h: Height of every kernel.
        kernel_w: Width of every kernel.
        kernel_c: Size of the last kernel.
        stride_conv: Stride of every convolution.
        pool: Size of the pooling window.
        stride_pool: Its stride.
    """

    model_type: ClassVar[str] = "fastsurfer_cnn"
    default_about: ClassVar[About] = About(
        paper="Henschel et al., FastSurfer, NeuroImage 219 (2020), 117012", input=INPUT
    )
    without_effect: ClassVar[frozenset[str]] = WITHOUT_EFFECT

    def __init__(
        self,
        num_classes: int = 79,
        num_channels: int = 7,
        num_filters: int = 64,
        kernel_h: int = 5,
        kernel_w: int = 5,
        kernel_c: int = 1,
        stride_conv: int = 1,
        pool: int = 2,
        stride_pool: int = 2,
    ) -> None:
        super().__init__()
        self.about.input["planes"] = num_channels
        self._build(num_channels, num_filters, (kernel_h, kernel_w), stride_conv)
        self.classifier = Classifier(num_filters, num_classes, kernel_c, stride_conv)
        self.maxpool = MaxPool2d(pool, stride_pool, return_indices=True)
        self.unpool = MaxUnpool2d.from_pool(self.maxpool)

    def _build(self, inputs: int, filters: int, kernel: tuple[int, int], stride: int) -> None:
        """The encoder, the bottleneck and the decoder."""
        self.encode1 = CompetitiveBlock(inputs, filters, kernel, stride, start="normalise")
        for name in ("encode2", "encode3", "encode4", "bottleneck"):
            self[name] = CompetitiveBlock(filters, filters, kernel, stride)
        for name in ("decode4", "decode3", "decode2", "decode1"):
            self[name] = CompetitiveBlock(filters, filters, kernel, stride)

    def __call__(self, x: mx.array) -> mx.array:
        """Class scores (N, H, W, num_classes) of slices (N, H, W, num_channels)."""
        return self.classifier(self.features(x))

    def features(self, x: mx.array) -> mx.array:
        """What the decoder gives: (N, H, W, num_filters)."""
        stages = []
        for number in range(1, 5):
            skip = self[f"encode{number}"](x)
            x, indices = self.maxpool(skip)
            stages.append((skip, indices))
        x = self.bottleneck(x)
        for number in range(4, 0, -1):
            skip, indices = stages.pop()
            x = mx.maximum(self.unpool(x, indices, output_size=skip.shape), skip)
            x = self[f"decode{number}"](x)
        return x

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        first, last = state["encode1.conv0.weight"], state["classifier.conv.weight"]
        return {
            "num_classes": last.shape[0],
            "num_channels": first.shape[1],
            "num_filters": first.shape[0],
            "kernel_h": first.shape[2],
            "kernel_w": first.shape[3],
            "kernel_c": last.shape[2],
        }


class FastSurferVINN(FastSurferCNN):
    """FastSurferVINN: a FastSurferCNN between two resizings, for scans of any resolution.

    Feature maps are resized to ``height`` x ``width`` positions of 1 mm, pass the FastSurferCNN, are
    resized back and joined to those of the first block at the resolution of the scan.

    Args:
        num_classes: 79 for axial and coronal slices, 51 for sagittal ones.
        num_channels: Slices that are seen together.
        num_filters: Channels inside.
        num_filters_interpol: Channels of the first block, which are resized.
        kernel_h: Height of every kernel.
        kernel_w: Width of every kernel.
        kernel_c: Size of the last kernel.
        stride_conv: Stride of every convolution.
        pool: Size of the pooling window.
        stride_pool: Its stride.
        height: Height inside.
        width: Width inside.
        interpolation_mode: ``"nearest"``, ``"bilinear"``, ``"bicubic"`` or ``"area"``.
        crop_position: Where slices are cropped or padded if they do not fit: ``"center"``, ``"top_left"``,
            ``"top_right"``, ``"bottom_left"`` or ``"bottom_right"``.
    """

    model_type: ClassVar[str] = "fastsurfer_vinn"
    default_about: ClassVar[About] = About(
        paper="Henschel, Kügler and Reuter, FastSurferVINN, NeuroImage 251 (2022), 118933",
        input=INPUT | {"size": "any; 320 x 320 as published", "multiple_of": 1},
    )

    def __init__(
        self,
        num_classes: int = 79,
        num_channels: int = 7,
        num_filters: int = 71,
        num_filters_interpol: int = 32,
        kernel_h: int = 3,
        kernel_w: int = 3,
        kernel_c: int = 1,
        stride_conv: int = 1,
        pool: int = 2,
        stride_pool: int = 2,
        height: int = 256,
        width: int = 256,
        interpolation_mode: str = "bilinear",
        crop_position: str = "top_left",
    ) -> None:
        for name, value, choices in (
            ("interpolation_mode", interpolation_mode, RESIZE_MODES),
            ("crop_position", crop_position, CROP_POSITIONS),
        ):
            if value not in choices:
                raise ValueError(
                    f"[FastSurferVINN] '{name}' must be one of {', '.join(choices)} but got {value!r}."
                )
        kernel = (kernel_h, kernel_w)
        super().__init__(
            num_classes,
            num_filters_interpol,
            num_filters,
            kernel_h,
            kernel_w,
            kernel_c,
            stride_conv,
            pool,
            stride_pool,
        )
        # The order of width and height is the authors': the first is that of the rows.
        self.inner_size = (width, height)
        self.interpolation_mode, self.crop_position = interpolation_mode, crop_position
        self.about.input["planes"] = num_channels
        self.inp_block = CompetitiveBlock(
            num_channels, num_filters_interpol, kernel, stride_conv, start="normalise", norm="gn"
        )
        self.outp_block = CompetitiveBlock(
            num_filters + num_filters_interpol,
            num_filters,
            kernel,
            stride_conv,
            start="activate",
            norm="gn",
        )

    def __call__(
        self, x: mx.array, scale_factor: Any = 1.0, scale_factor_out: Any = None
    ) -> mx.array:
        """Class scores of slices at the resolution of the scan.

        Args:
            x: Slices (N, H, W, num_channels).
            scale_factor: 1 mm over the size of a voxel, or rather what the authors' data set gives as such:
                how many positions of the scan there are for one inside. One number for all, one an image
                (N,) or (N, 1), or two an image (N, 2), for rows and columns.
            scale_factor_out: The same for the output, if it is to have another resolution.

        Returns:
            (N, H, W, num_classes)
        """
        scales = per_image(scale_factor, len(x))
        skip = self.inp_block(x)
        inside, used = self.zoom(skip, scales, self.inner_size)
        inside = self.features(inside)
        back = used
        if scale_factor_out is not None:
            wanted = per_image(scale_factor_out, len(x))
            back = [
                [float(w) * u / float(s) for w, u, s in zip(*image)]
                for image in zip(wanted, used, scales)
            ]
        inverse = [[1 / factor for factor in image] for image in back]
        outside, _ = self.zoom(inside, inverse, skip.shape[1:3])
        return self.classifier(self.outp_block(mx.concatenate([outside, skip], axis=-1)))

    def zoom(
        self, x: mx.array, scales: list[list[Any]], target: Sequence[int]
    ) -> tuple[mx.array, list[list[float]]]:
        """Images resized by a factor of each, cropped or padded to a size, and the factors that this made."""
        if all(scale == scales[0] for scale in scales):  # one call for all images
            resized, used = self.zoom_alike(x, scales[0], target)
            return resized, [used] * len(x)
        pairs = [self.zoom_alike(x[n : n + 1], scale, target) for n, scale in enumerate(scales)]
        return mx.concatenate([image for image, _ in pairs]), [used for _, used in pairs]

    def zoom_alike(
        self, x: mx.array, scale: list[Any], target: Sequence[int]
    ) -> tuple[mx.array, list[float]]:
        """Images resized by the same factor of rows and columns."""
        vertical = horizontal = "middle" if self.crop_position == "center" else "start"
        vertical = "end" if self.crop_position.startswith("bottom") else vertical
        horizontal = "end" if self.crop_position.endswith("right") else horizontal
        (rows, row_pad, height, row_scale), (columns, column_pad, width, column_scale) = (
            fitted(x.shape[axis + 1], target[axis], scale[axis], alignment)
            for axis, alignment in enumerate((vertical, horizontal))
        )
        x = x[:, rows, columns]
        if x.shape[1:3] != (height, width):
            x = resize(x, (height, width), self.interpolation_mode)
        x = mx.pad(x, [(0, 0), row_pad, column_pad, (0, 0)])
        return x, [row_scale, column_scale]

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return super().config_of(state) | {
            "num_channels": state["inp_block.conv0.weight"].shape[1],
            "num_filters_interpol": state["inp_block.conv0.weight"].shape[0],
        }


def per_image(scale: Any, count: int) -> list[list[Any]]:
    """Factors of rows and columns for each image, from any way to give them.

    Arrays keep float32: a size that is the integer part of a product depends on the last bit.
    """
    array = np.asarray(scale)
    if not isinstance(scale, mx.array) and array.dtype != np.float32:
        array = array.astype(float)
    if array.ndim == 1 and len(array) == 2 != count and count == 1:
        array = array[None]  # rows and columns of the only image
    if array.ndim < 2:
        array = array.reshape(-1, 1)
    if array.ndim != 2 or array.shape[0] not in (1, count) or array.shape[1] not in (1, 2):
        raise ValueError(
            f"[FastSurferVINN] 'scale_factor' must be a number, ({count},), ({count}, 1) or ({count}, 2), "
            f"but its shape is {np.shape(scale)}."
        )
    array = np.broadcast_to(array, (count, 2))
    return [list(row) if array.dtype == np.float32 else row.tolist() for row in array]


def fitted(
    size: int, target: int, scale: Any, alignment: str
) -> tuple[slice, tuple[int, int], int, float]:
    """How an axis is cropped, padded and resized to a target size by a factor that is as close as can be.

    Returns:
        The part of the axis to take, the padding after resizing, the size to resize to, and the factor.
    """
    wanted = scale * type(scale)(target)  # positions of the axis that make up the target
    taken = int(wanted)
    if alignment == "middle" and (size - taken) % 2:
        taken = int(wanted / 2) * 2
    if taken <= size:
        start = {"start": 0, "middle": (size - taken) // 2, "end": size - taken}[alignment]
        return slice(start, start + taken), (0, 0), target, taken / target
    resized = int(type(scale)(size) / scale)
    if alignment == "middle" and (resized - target) % 2:
        raise ValueError(
            "[FastSurferVINN] 'crop_position' must not be 'center' where an odd number of positions is to be "
            f"padded, but got {target - resized} for an axis of {size} by {scale}."
        )
    missing = target - resized
    before = {"start": 0, "middle": missing // 2, "end": missing}[alignment]
    after = {"start": missing, "middle": missing // 2, "end": 0}[alignment]
    return slice(0, size), (before, after), resized, size / resized
