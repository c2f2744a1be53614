"""Weights of PyTorch models for MLX models, and back: names, layouts, and nothing lost on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

Names = Callable[[str], tuple[str, ...]]


def same_name(name: str) -> tuple[str, ...]:
    """For models whose parameters have the same names in both."""
    return (name,)


def read_state(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a PyTorch checkpoint, float32: ``.safetensors``, or of ``torch.save`` (needs PyTorch).

    A state dict that lies under ``"state_dict"`` or ``"model"`` is found, and the ``module.`` that
    ``DataParallel`` puts before every name goes. Nothing but arrays is read: no code in the file is run.
    """
    if path.suffix == ".safetensors":
        arrays: dict = mx.load(str(path))
        state: Any = {name: np.array(value.astype(mx.float32)) for name, value in arrays.items()}
    else:
        try:
            import torch
        except ImportError:
            raise SystemExit(
                f"PyTorch is needed to read {path.name}; a .safetensors file is read without it."
            ) from None
        state = torch.load(path, map_location="cpu", weights_only=True)
        for key in ("state_dict", "model"):
            state = state.get(key, state)
        state = {name: value.float().numpy() for name, value in state.items()}
    return {name.removeprefix("module."): value for name, value in state.items()}


def from_pytorch(
    state: dict[str, np.ndarray], model: nn.Module, names: Names = same_name
) -> dict[str, mx.array]:
    """The parameters of an MLX model from the state dict of its PyTorch twin, by MLX name.

    Args:
        state: PyTorch names and arrays; ``num_batches_tracked`` of BatchNorm is not needed.
        model: The MLX model; only its names, shapes and kinds of layers matter.
        names: From the MLX name of a parameter, the names that it has in PyTorch. There are several if
            layers share it.

    Raises:
        ValueError: If a parameter is missing, or one is left over, has another shape, or should be shared
            but differs. All of them are named.
    """
    rest = {
        name: value for name, value in state.items() if not name.endswith("num_batches_tracked")
    }
    weights, wrong = {}, []
    for name, parameter in tree_flatten(model.parameters()):
        same = {key: rest.pop(key) for key in names(name) if key in rest}
        wrong += [f"missing: {key}" for key in names(name) if key not in same]
        if not same:
            continue
        key, value = next(iter(same.items()))
        wrong += [
            f"not shared with {key}: {other}"
            for other in same
            if not np.array_equal(same[other], value)
        ]
        axes = pytorch_axes(model, name)
        expected = tuple(parameter.shape[axes.index(axis)] for axis in range(parameter.ndim))
        if value.shape == expected:
            weights[name] = mx.array(value.transpose(axes))
        else:
            wrong.append(f"shape {value.shape} instead of {expected}: {key}")
    wrong += [f"not used: {key}" for key in rest]
    if wrong:
        raise ValueError("These weights are not those of this model.\n" + "\n".join(wrong))
    return weights


def to_pytorch(model: nn.Module, names: Names = same_name) -> dict[str, np.ndarray]:
    """The way back of :func:`from_pytorch`: a state dict for ``load_state_dict(strict=True)``."""
    state = {}
    for name, parameter in tree_flatten(model.parameters()):
        value = np.array(parameter).transpose(np.argsort(pytorch_axes(model, name)))
        state |= {key: np.ascontiguousarray(value) for key in names(name)}
    return state


def pytorch_axes(model: nn.Module, name: str) -> tuple[int, ...]:
    """Which axis of the array in PyTorch is each axis of a parameter in MLX."""
    path, _, kind = name.rpartition(".")
    module: Any = model
    for part in path.split("."):
        module = module[int(part)] if isinstance(module, list) else module[part]
    dims = range(2, module[kind].ndim)
    if kind == "weight" and isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return (0, *dims, 1)
    transposed = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
    if kind == "weight" and isinstance(module, transposed):
        return (1, *dims, 0)
    return tuple(range(module[kind].ndim))
