"""The arrays of a state dict, of any framework, as plain weights in NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx
import numpy as np


def numpy_array(name: str, value: Any) -> np.ndarray:
    """A tensor or an array as a NumPy array. Floating-point numbers become float32.

    Raises:
        ValueError: If it is not a dense array of numbers. The message has its name.
    """
    kind = f"of {getattr(value, 'dtype', type(value))}"
    try:
        if hasattr(value, "detach"):  # a PyTorch tensor on any device
            kind += f", {value.layout}, on {value.device}"
            value = value.detach().cpu()
            value = (value.float() if value.is_floating_point() else value).numpy()
        elif isinstance(value, mx.array) and value.dtype == mx.bfloat16:  # NumPy has no such type
            value = value.astype(mx.float32)
        array = np.asarray(value)
    except (AttributeError, TypeError, RuntimeError):  # sparse, quantised or without values
        array = np.array("")
    if array.dtype.kind not in "fiubc":
        raise ValueError(f"{name} must be a dense array of numbers, but it is {kind}.")
    wanted = np.float32 if array.dtype.kind == "f" else array.dtype.newbyteorder("=")
    return array.astype(wanted, copy=False)


def numpy_arrays(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Tensors and arrays as NumPy arrays, by name; see ``numpy_array``."""
    return {name: numpy_array(name, value) for name, value in arrays.items()}


# Normalisation and pruning, which MLX does not have.


def normalised_weight(magnitude: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """A weight with the norm ``magnitude`` over all axes along which that has size 1."""
    if not magnitude.ndim:  # one norm for the whole array
        magnitude = magnitude.reshape((1,) * direction.ndim)
    axes = tuple(n for n, size in enumerate(magnitude.shape) if size == 1)
    return magnitude * direction / np.sqrt(np.square(direction).sum(axes, keepdims=True))


def spectral_weight(weight: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """A weight divided by its largest singular value as a matrix, with the vectors of that value.

    Its rows are the first axis, or the second if the convolution is transposed. With the wrong one,
    the vectors give a smaller value.
    """
    axes = range(min(2, weight.ndim))
    matrices = [np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1) for axis in axes]
    return weight / max((u @ m @ v for m in matrices if m.shape == (u.size, v.size)), key=abs)


# The pattern of the first of several names, the ending of this name, those of the others instead
# of it, and the function that makes the weight of their arrays.
Fold = tuple[str, str, tuple[str, ...], Callable[..., np.ndarray]]
FOLDS: tuple[Fold, ...] = (
    (r"(.*)parametrizations\.(\w+)\.original0", "original0", ("original1",), normalised_weight),
    (r"(.*)_g()", "_g", ("_v",), normalised_weight),
    (r"(.*)parametrizations\.(\w+)\.original", "original", ("0._u", "0._v"), spectral_weight),
    (r"(.*)_orig()", "_orig", ("_u", "_v"), spectral_weight),
    (r"(.*)_orig()", "_orig", ("_mask",), np.multiply),
)


def fold_weights(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A state dict with weight and spectral normalisation and pruning folded into the weights.

    Of ``torch.nn.utils`` and ``torch.nn.utils.parametrizations``: ``weight_g`` and ``weight_v``
    become ``weight``, ``g * v / norm(v)``; ``weight_orig``, ``weight_u`` and ``weight_v`` become
    ``orig / (u @ orig @ v)``; ``weight_orig`` and ``weight_mask`` become their product.
    """
    folded = dict(state)
    for name in state:
        for pattern, ending, endings, fold in FOLDS:
            match = re.fullmatch(pattern, name)
            others = [name.removesuffix(ending) + other for other in endings]
            if match and name in folded and all(other in folded for other in others):
                arrays = [folded.pop(key).astype(np.float64) for key in (name, *others)]
                folded[match[1] + match[2]] = fold(*arrays).astype(np.float32)
    return folded
