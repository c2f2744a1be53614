"""Tensors and arrays of any framework as NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
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
