"""Inputs of models and pictures: checked, sliced, scaled and normalised."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_map
from PIL import Image

from mlx_unpool.porting.messages import cut, warn

AXES = {1: "L", 2: "H, W", 3: "D, H, W"}


def check_input(
    x: mx.array, kind: str, channels: int, dims: int, smallest: int, multiple: int
) -> None:
    """Raise an error if an input is no array of MLX with these channels, dimensions and sizes."""
    if not isinstance(x, mx.array):
        got = f"got {type(x).__name__}: pass mx.array(x), or call preprocess or predict for images."
        raise TypeError(f"[{kind}] inputs must be arrays of MLX, but {got}")
    if x.ndim == dims + 2 and x.shape[-1] == channels:
        if min(x.shape[1:-1]) < smallest:
            least = f"at least {smallest} positions on each axis"
            raise ValueError(f"[{kind}] inputs must have {least}, but got {x.shape}.")
        if any(size % multiple for size in x.shape[1:-1]):
            axes = AXES[dims].replace(", ", " and ")
            allowed = f"multiples of {multiple}"
            raise ValueError(f"[{kind}] {axes} of inputs must be {allowed}, but got {x.shape}.")
        return
    message = f"inputs must be (N, {AXES[dims]}, {channels}), channels last, but got {x.shape}."
    if x.ndim == dims + 2 and x.shape[1] == channels:
        axes = ", ".join(map(str, (0, *range(2, dims + 2), 1)))
        message += f" If this is PyTorch's layout, channels first, pass x.transpose({axes})."
    raise ValueError(f"[{kind}] {message}")


def batch_of(
    images: Any,
    kind: str,
    channels: int,
    dims: int,
    modalities: int = 0,
    about: Mapping[str, Any] = {},
) -> tuple[np.ndarray, bool]:
    """Images as an array (N, ..., channels), and whether there was only one, without an axis N.

    Args:
        images: See ``Model.preprocess``.
        kind: The name of the model, for errors.
        channels, dims: Of the model.
        modalities: The number of scans in a volume if channels are slices; otherwise 0.
        about: ``about.input`` of the model.
    """
    values = array_of(images, "RGB" if channels == 3 else "L", about)
    if dims == 2 and (channels == 1 or modalities):
        values = grey(values, kind, channels)
    values = with_channels(values, channels, modalities)
    single = values.ndim == dims + 1
    if single:
        values = values[None]
    if problem := problem_with(values, channels, dims):
        allowed, hint = allowed_images(channels, dims, modalities)
        raise ValueError(f"[{kind}] 'images' must be {allowed}, but got {problem}{hint}.")
    return values, single


def with_channels(values: np.ndarray, channels: int, modalities: int) -> np.ndarray:
    """Images with an axis of one channel, or slices of a volume with neighbours as channels."""
    if channels == 1 and values.shape[-1:] != (1,):
        return values[..., None]
    if modalities and values.ndim in (3, 4) and values.shape[-1] != channels:
        return with_neighbours(values, channels // modalities)
    return values


def with_neighbours(volume: np.ndarray, thickness: int) -> np.ndarray:
    """Slices (N, H, W[, scans]) with their neighbours as channels, one scan after the other."""
    around = [(0, 0)] * 4
    around[0] = thickness // 2, (thickness - 1) // 2
    slices = np.pad(volume.reshape(*volume.shape[:3], -1), around, "edge")
    windows = np.lib.stride_tricks.sliding_window_view(slices, thickness, axis=0)
    return windows.reshape(*volume.shape[:3], -1)


def problem_with(values: np.ndarray, channels: int, dims: int) -> str:
    """Why a batch of images is refused, or ""."""
    if values.ndim != dims + 2 or values.shape[-1] != channels or not values.size:
        return f"the shape {values.shape}"
    if dims != 2 or values.dtype == np.uint8 or is_up_to(1, values):
        return ""
    hint = ": divide by 255" if is_up_to(255, values) else ""
    return f"{values.dtype} from {values.min()} to {values.max()}{hint}"


def is_up_to(largest: int, values: np.ndarray) -> bool:
    """Whether values are floating-point numbers from 0 to a number."""
    return values.dtype.kind == "f" and bool(0 <= values.min() <= values.max() <= largest)


def allowed_images(channels: int, dims: int, modalities: int) -> tuple[str, str]:
    """The shapes and types of images that a model accepts, and a hint for RGB images."""
    shapes = f"([N,] {AXES[dims]}, {channels})"
    if modalities:
        shapes += " or a volume"
    if dims != 2:
        return shapes, ""
    hint = '. Pass a Pillow image, or its .convert("RGB")' if channels == 3 else ""
    return f"{shapes}, of uint8 (0 to 255) or floating-point numbers (0 to 1)", hint


def grey(values: np.ndarray, kind: str, channels: int) -> np.ndarray:
    """Pictures (..., 3) or (..., 4), whose channels must be equal and opaque, without channels.

    Arrays of other shapes, without colours or with the channels of the model, are not changed.
    """
    if values.ndim < 3 or values.shape[-1] not in {3, 4} - {channels}:
        return values
    opaque = 255 if values.dtype == np.uint8 else 1
    if (values[..., :3] == values[..., :1]).all() and (values[..., 3:] == opaque).all():
        return values[..., 0]
    raise ValueError(
        f"[{kind}] 'images' must be grey, but got colours or transparency and the shape "
        f"{values.shape}. Pass values[..., None] if these are slices, or .convert('L') of a Pillow "
        "image."
    )


def normalised(values: np.ndarray, dims: int, multiple: int, normalisation: Any) -> np.ndarray:
    """A batch, float32, padded with its edges to a multiple of a size, and normalised if asked."""
    beyond = [(0, 0), *((0, -size % multiple) for size in values.shape[1:-1]), (0, 0)]
    values = np.pad(values, beyond, "edge")
    if dims == 2 and values.dtype != np.uint8:
        values = values * 255.0
    if normalisation:
        mean, std = np.array(normalisation["mean"]), np.array(normalisation["std"])
        values = (values * normalisation["scale"] - mean) / std
    return values.astype(np.float32)


def classes_of(scores: mx.array, size: tuple[int, ...], wanted: tuple[int, ...]) -> np.ndarray:
    """The classes with the highest scores for a padded picture of a size, scaled to ``wanted``."""
    kind = mx.uint8 if scores.shape[-1] <= 256 else mx.uint32
    classes = np.array(mx.argmax(scores, axis=-1).astype(kind))
    return nearest(classes[tuple(map(slice, size[:-1]))], wanted[:-1])


def nearest(values: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Values of the nearest positions on a grid of another shape; further axes are kept."""
    places = (((np.arange(n) + 0.5) * old / n).astype(int) for n, old in zip(shape, values.shape))
    return values[np.ix_(*places)]


def probabilities_of(
    scores: mx.array, size: tuple[int, ...], wanted: tuple[int, ...]
) -> np.ndarray:
    """The softmax of the scores of a padded picture of a size, scaled linearly to ``wanted``."""
    values = np.array(mx.softmax(scores.astype(mx.float32), axis=-1))[tuple(map(slice, size[:-1]))]
    if size == wanted:
        return values
    return np.stack([interpolated(plane, wanted) for plane in np.moveaxis(values, -1, 0)], -1)


def interpolated(plane: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """A plane, float32, of another size (H, W, ...), interpolated linearly."""
    scale = plane.shape[1] / size[1], 0, 0, 0, plane.shape[0] / size[0], 0
    method = Image.Transform.AFFINE, scale, Image.Resampling.BILINEAR
    return np.asarray(Image.fromarray(plane).transform((size[1], size[0]), *method))


def copied(value: Any) -> Any:
    """A copy of a module and the modules in it, with the same arrays."""
    if not isinstance(value, nn.Module):
        return value
    made = copy.copy(value)
    dict.update(made, tree_map(copied, dict(value), is_leaf=lambda v: isinstance(v, nn.Module)))
    return made


def reduced(picture: np.ndarray, side: int | None) -> np.ndarray:
    """A picture (H, W, channels), or a smaller one whose shorter side is ``side``."""
    if not side or min(picture.shape[:2]) <= side:
        return picture
    size = reduced_shape(picture.shape, side)[::-1]
    kind = np.uint8 if picture.dtype == np.uint8 else np.float32
    channels = [Image.fromarray(c).resize(size) for c in np.moveaxis(picture.astype(kind), -1, 0)]
    return np.stack([np.asarray(c) for c in channels], -1).clip(0, 255 if kind is np.uint8 else 1)


def reduced_shape(shape: Sequence[int], side: int) -> list[int]:
    """The height and width of a picture, or smaller ones, of which the shorter is ``side``."""
    scale = max(1, min(shape[:2]) / side)
    return [round(n / scale) for n in shape[:2]]


def in_range(values: np.ndarray, about: Mapping[str, Any] = {}) -> np.ndarray:
    """Values of more than 8 bits as uint8, scaled for a model with ``about.input``.

    ``range`` says which values become 0 and 255; values outside are clipped. A model without it
    takes 0 to 65535, or 0 to 1 for floats.

    Raises:
        ValueError: If values are not finite, or there is no ``range`` and they are outside.
    """
    white = 1 if values.dtype.kind == "f" else 65535
    low, high = about.get("range") or (0, white)
    values = values.astype(np.float32)
    least, most = values.min(), values.max()
    within = low <= least <= most <= high or ("range" in about and bool(np.isfinite(least + most)))
    if not within:  # or NaN
        hint = ". Divide by 255" if white == 1 and 0 <= least <= most <= 255 else ""
        raise ValueError(
            f"the values of the image must be {low:g} to {high:g} but are {least:g} to "
            f"{most:g}{hint}."
        )
    return ((values - low) * (255 / (high - low))).round().clip(0, 255).astype(np.uint8)


def array_of(images: Any, mode: str, about: Mapping[str, Any] = {}) -> np.ndarray:
    """Arrays of any framework, pictures of Pillow as uint8 in a mode, or a list of either."""
    if isinstance(images, list | tuple):
        return np.stack(of_one_shape([array_of(image, mode, about) for image in images]))
    if images is None:
        got = "None: the file was not read"
        raise TypeError(f"'images' must be a Pillow image or an array, but got {got}.")
    if isinstance(images, str | Path):
        path = str(images)
        raise TypeError(
            "'images' must be a Pillow image or an array, not a path: use "
            f"PIL.Image.open({path!r})."
        )
    if hasattr(images, "convert"):
        return array_of_picture(images, mode, about)
    if isinstance(images, mx.array) and images.dtype == mx.bfloat16:
        images = images.astype(mx.float32)
    return np.asarray(images)


def of_one_shape(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The arrays, if there are any and all have the same shape."""
    if len({array.shape for array in arrays}) != 1:
        got = f"[{cut([str(array.shape) for array in arrays])}]"
        raise ValueError(f"'images' must be one or more images of the same shape, but got {got}.")
    return arrays


def array_of_picture(picture: Any, mode: str, about: Mapping[str, Any]) -> np.ndarray:
    """A picture of Pillow as uint8 in a mode."""
    if picture.mode[0] in "IF":  # Pillow would clip the values to 255
        picture = Image.fromarray(in_range(np.asarray(picture), about))
    elif "range" in about:
        raise ValueError(
            "'images' must have more than 8 bits, as those of the training, but got a Pillow image "
            f"of mode {picture.mode}. For colours of 16 bits, of which Pillow keeps 8, pass an "
            "array: mlx_unpool_zoo.data.pictures.read_picture(path, model)."
        )
    elif any("16" in str(tile[3]) for tile in getattr(picture, "tile", ())):
        warn("Pillow keeps 8 of the 16 bits of the colours of this image.")
    return np.asarray(picture.convert(mode))
