"""Convert weights between PyTorch and MLX, for the models of this package and for your own.

``load_state_dict`` loads a PyTorch state dict into an MLX model whose layers have the same names. It
transposes each weight according to its layer, folds weight normalisation, reorders the weights of a
``Linear`` after a ``flatten``, and reports ignored entries. ``to_state_dict`` is the inverse.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from .checkpoints import arrays_of, cut, split_state, state_of
from .checkpoints import read_state as read_state

Names = Callable[[str], tuple[str, ...]]
Shapes = Mapping[str, Sequence[int]]
# Entries of a state dict without a counterpart in MLX.
COUNTERS = "num_batches_tracked"


@dataclasses.dataclass
class Report:
    """The result of ``load_state_dict``: MLX names in ``loaded``, PyTorch names in the others.

    Attributes:
        loaded: Parameters of the model with new values.
        missing: Parameters that the state dict lacks; they keep their values.
        unexpected: Arrays without a parameter in the model.
        ignored: Entries that are not arrays, and counters of BatchNorm.
    """

    loaded: list[str]
    missing: list[str]
    unexpected: list[str]
    ignored: list[str]


def mismatch(model: str, differences: Sequence[Sequence[str]], hint: str = "") -> ValueError:
    """An error for weights that do not fit a model, with the first difference of each kind first."""
    lines = [line for kind in differences for line in kind[:1]]
    lines += [line for kind in differences for line in kind[1:]]
    return ValueError(f"{model} cannot load the weights: {cut(lines, 3, '; ')}. {hint}".rstrip())


def without_prefix(state: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    """A state dict without the prefix, such as ``model.``, under which alone it has all wanted names."""
    if not wanted or any(name in state for name in wanted):
        return dict(state)
    found = (name.removesuffix(wanted[0]) for name in state if name.endswith(f".{wanted[0]}"))
    prefixes = [each for each in found if all(each + name in state for name in wanted)]
    if len(prefixes) != 1:
        return dict(state)
    warnings.warn(f"Removed the prefix {prefixes[0]!r} of the names of the weights.", stacklevel=4)
    return {name.removeprefix(prefixes[0]): value for name, value in state.items()}


def wrong_type(name: str, value: mx.array, parameter: mx.array) -> list[str]:
    """A line about a value whose type does not suit a parameter."""
    floating = mx.issubdtype(parameter.dtype, mx.floating)
    if mx.issubdtype(value.dtype, mx.floating) if floating else value.dtype == parameter.dtype:
        return []
    return [f"type {value.dtype} instead of {parameter.dtype}: {name}"]


def fold_weight_norm(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A state dict with weight normalisation folded into the weights.

    ``weight_g`` and ``weight_v`` of ``torch.nn.utils.weight_norm``, and the two entries of
    ``torch.nn.utils.parametrizations.weight_norm``, become ``weight``: ``g * v / norm(v)``.
    """
    folded = dict(state)
    for name in state:
        match = re.fullmatch(r"(.*)parametrizations\.(\w+)\.original0|(.*)_g", name)
        other = re.sub("original0$", "original1", re.sub("_g$", "_v", name))
        if match and other in state:
            magnitude, direction = folded.pop(name), folded.pop(other).astype(np.float64)
            if not magnitude.ndim:  # one norm for the whole array
                magnitude = magnitude.reshape((1,) * direction.ndim)
            axes = tuple(n for n, size in enumerate(magnitude.shape) if size == 1)
            norm = np.sqrt(np.square(direction).sum(axes, keepdims=True))
            target = "".join(part for part in match.groups() if part)
            folded[target] = (magnitude * direction / norm).astype(np.float32)
    return folded


def load_state_dict(
    model: nn.Module,
    state_dict: Any,
    names: Names | None = None,
    *,
    flatten: Shapes | None = None,
    unflatten: Shapes | None = None,
    strict: bool = True,
) -> Report:
    """Load the weights of a PyTorch model into an MLX model, in place.

    Args:
        model: The MLX model.
        state_dict: The state dict, of tensors or arrays, or a checkpoint that contains one.
        names: Maps the MLX name of a parameter to its names in the state dict; more than one if PyTorch lists
            a shared parameter several times. Default: the same name without the ``layers`` of
            ``nn.Sequential``.
        flatten: The ``Linear`` layers after a flattened feature map, by MLX name, with the shape of that map
            in PyTorch, ``{"fc": (channels, height, width)}``. The columns of their weights are reordered,
            because PyTorch flattens channels first and MLX channels last.
        unflatten: The same for ``Linear`` layers whose output becomes a feature map.
        strict: Whether the state dict must have exactly the parameters of the model. If False, missing
            parameters keep their values and other arrays are ignored; shapes must still fit.

    Returns:
        A ``Report`` of the arrays that were loaded and of those that were not.

    Raises:
        ValueError: If the state dict does not fit. The message lists up to three differences.
    """
    state, ignored = split_state(state_dict)
    arrays = arrays_of(state)
    weights, missing, unexpected = matched(arrays, model, names, flatten, unflatten, strict)
    model.load_weights(list(weights.items()), strict=False)
    counters = [name for name in arrays if name.endswith(COUNTERS)]
    return Report(list(weights), missing, unexpected, ignored + counters)


def convert_state_dict(
    model: nn.Module, state_dict: Any, names: Names | None = None, **options: Any
) -> dict[str, mx.array]:
    """Convert the weights of a PyTorch model for an MLX model, by MLX name, without changing the model.

    The arguments and errors are those of ``load_state_dict``. The arrays are contiguous, as
    ``mx.export_function`` requires.
    """
    return matched(arrays_of(state_of(state_dict)), model, names, **options)[0]


def matched(
    state: Mapping[str, np.ndarray],
    model: nn.Module,
    names: Names | None,
    flatten: Shapes | None = None,
    unflatten: Shapes | None = None,
    strict: bool = True,
) -> tuple[dict[str, mx.array], list[str], list[str]]:
    """The weights by MLX name, the missing names, and the names that are not in the model."""
    reordered = reordering(model, flatten, unflatten)
    names = names or sequential_names(model)
    parameters = dict(tree_flatten(model.parameters()))
    state = without_prefix(fold_weight_norm(state), [key for name in parameters for key in names(name)])
    rest = {name: value for name, value in state.items() if not name.endswith(COUNTERS)}
    weights, missing, wrong = {}, [], []
    for name, parameter in parameters.items():
        same = {key: rest.pop(key) for key in names(name) if key in rest}
        missing += [key for key in names(name) if key not in same]
        if not same:
            continue
        key, value = next(iter(same.items()))
        wrong += [
            f"not shared with {key}: {other}"
            for other in list(same)[1:]
            if not np.array_equal(same[other], value, equal_nan=True)
        ]
        axes = pytorch_axes(model, name)
        shape, unchanged = parameter.shape[1:], axes == tuple(range(parameter.ndim))
        if name.endswith("weight") and unchanged and len(shape) > 1 and len(set(shape)) == 1 < shape[0]:
            warnings.warn(
                f"{name!r} is not transposed, because its module is not a convolution of mlx.nn; its shape "
                f"{parameter.shape} would be the same. To transpose it, use a subclass of mlx.nn.Conv2d, "
                "for example.",
                stacklevel=3,
            )
        expected = tuple(parameter.shape[axes.index(axis)] for axis in range(parameter.ndim))
        if value.shape != expected:
            wrong.append(f"shape {value.shape} instead of {expected}: {key}")
            continue
        value = reordered(value, name)
        weights[name] = mx.array(value.transpose(axes).copy(order="C"))
        wrong += wrong_type(key, weights[name], parameter)
    if wrong or (strict and (missing or rest)):
        lines = [f"missing: {key}" for key in missing], wrong, [f"not used: {key}" for key in rest]
        raise mismatch(type(model).__name__, lines if strict else [wrong])
    return weights, missing, list(rest)


def reordering(
    model: nn.Module, flatten: Shapes | None, unflatten: Shapes | None, back: bool = False
) -> Callable[[np.ndarray, str], np.ndarray]:
    """A function that reorders parameters for feature maps flattened channels last, or ``back``."""
    layers = dict(model.named_modules())
    if unknown := [name for name in (*(flatten or ()), *(unflatten or ())) if name not in layers]:
        raise ValueError(f"'flatten' and 'unflatten' must name layers of the model, but got {cut(unknown)}.")

    def reordered(value: np.ndarray, name: str) -> np.ndarray:
        layer, _, kind = name.rpartition(".")
        for axis, shapes in ((1, flatten), (0, unflatten)):
            if not shapes or layer not in shapes or (axis and kind != "weight"):
                continue
            size, shape = value.shape[axis], tuple(shapes[layer])
            if np.prod(shape) != size:
                raise ValueError(
                    f"'flatten' and 'unflatten' must have the shape (channels, ...) of a feature map with "
                    f"{size} elements for {layer!r}, but got {shape}."
                )
            order = np.moveaxis(np.arange(size).reshape(shape), 0, -1).reshape(-1)
            value = value.take(np.argsort(order) if back else order, axis=axis)
        return value

    return reordered


def sequential_names(model: nn.Module) -> Names:
    """Maps MLX names to PyTorch's, which have no ``layers`` between an ``nn.Sequential`` and its layers."""

    def names(name: str) -> tuple[str, ...]:
        module: Any = model
        kept = []
        for part in name.split("."):
            if not (part == "layers" and isinstance(module, nn.Sequential)):
                kept.append(part)
            module = module[int(part)] if isinstance(module, list) else module[part]
        return (".".join(kept),)

    return names


def to_state_dict(
    model: nn.Module,
    names: Names | None = None,
    *,
    flatten: Shapes | None = None,
    unflatten: Shapes | None = None,
    arrays: Any = None,
) -> dict[str, np.ndarray]:
    """The parameters of an MLX model as NumPy arrays with the names and layout of PyTorch.

    ``names``, ``flatten`` and ``unflatten`` must be those with which the model was loaded. ``arrays``: a tree
    to convert instead, such as the gradients. bfloat16 becomes float32.
    """
    names = names or sequential_names(model)
    reordered = reordering(model, flatten, unflatten, back=True)
    state: dict[str, np.ndarray] = {}
    tree = model.parameters() if arrays is None else arrays
    for name, array in dict(tree_flatten(tree)).items():
        wide = array.astype(mx.float32) if array.dtype == mx.bfloat16 else array
        axes = np.argsort(pytorch_axes(model, name))
        value = reordered(np.array(wide).transpose(axes), name)
        state |= {key: value.copy(order="C") for key in names(name)}
    return state


def pytorch_axes(model: nn.Module, name: str) -> tuple[int, ...]:
    """For each axis of a parameter in MLX, the axis in PyTorch."""
    *path, kind = name.split(".")
    module: Any = model
    for part in path:
        module = module[int(part)] if isinstance(module, list) else module[part]
    if kind == "weight" and hasattr(module, "pytorch_axes"):
        return module.pytorch_axes
    dims = range(2, module[kind].ndim)
    if kind == "weight" and isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return (0, *dims, 1)
    transposed = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
    if kind == "weight" and isinstance(module, transposed):
        return (1, *dims, 0)
    return tuple(range(module[kind].ndim))
