"""Fold normalisation and pruning, which MLX does not have, into the weights of a state dict."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np


def fold_weights(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A state dict with weight and spectral normalisation and pruning folded into the weights.

    Of ``torch.nn.utils`` and ``torch.nn.utils.parametrizations``: ``weight_g`` and ``weight_v`` become
    ``weight``, ``g * v / norm(v)``; ``weight_orig``, ``weight_u`` and ``weight_v`` become
    ``orig / (u @ orig @ v)``; ``weight_orig`` and ``weight_mask`` become their product.
    """
    folded = dict(state)
    forms = (
        (r"(.*)parametrizations\.(\w+)\.original0", "original0", ("original1",), normalised_weight),
        (r"(.*)_g()", "_g", ("_v",), normalised_weight),
        (r"(.*)parametrizations\.(\w+)\.original", "original", ("0._u", "0._v"), spectral_weight),
        (r"(.*)_orig()", "_orig", ("_u", "_v"), spectral_weight),
        (r"(.*)_orig()", "_orig", ("_mask",), np.multiply),
    )
    for name in state:
        for pattern, ending, endings, fold in forms:
            match = re.fullmatch(pattern, name)
            others = [name.removesuffix(ending) + other for other in endings]
            if match and name in folded and all(other in folded for other in others):
                arrays = (folded.pop(key).astype(np.float64) for key in (name, *others))
                folded[match[1] + match[2]] = fold(*arrays).astype(np.float32)
    return folded


def normalised_weight(magnitude: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """A weight with the norm ``magnitude`` over all axes along which that has size 1."""
    if not magnitude.ndim:  # one norm for the whole array
        magnitude = magnitude.reshape((1,) * direction.ndim)
    axes = tuple(n for n, size in enumerate(magnitude.shape) if size == 1)
    return magnitude * direction / np.sqrt(np.square(direction).sum(axes, keepdims=True))


def spectral_weight(weight: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """A weight divided by its largest singular value as a matrix, with the vectors of that value.

    Its rows are the first axis, or the second if the convolution is transposed. With the wrong one, the
    vectors give a smaller value.
    """
    axes = range(min(2, weight.ndim))
    matrices = [np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1) for axis in axes]
    return weight / max((u @ m @ v for m in matrices if m.shape == (u.size, v.size)), key=abs)
