"""Convert weights between PyTorch and MLX, for the models of this package and for your own.

``load_state_dict`` loads a PyTorch state dict into an MLX model whose layers have the same names. It
transposes each weight according to its layer, folds weight normalisation, reorders the weights of a
``Linear`` after a ``flatten``, and reports ignored entries. ``to_state_dict`` is the inverse.
"""

from __future__ import annotations

import dataclasses
import functools
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


@dataclasses.dataclass
class Differences:
    """How weights differ from the parameters of a model; ``check`` raises an error that lists them."""

    missing: list[str] = dataclasses.field(default_factory=list)
    shapes: list[str] = dataclasses.field(default_factory=list)  # lines; the same for the next
    unused: list[str] = dataclasses.field(default_factory=list)
    others: list[str] = dataclasses.field(default_factory=list)

    def fits(self, name: str, value: mx.array, shape: tuple[int, ...], dtype: mx.Dtype) -> bool:
        """Whether a value can be a parameter with this shape and type. Adds a line if it cannot."""
        if value.shape != shape:
            self.shapes.append(f"shape {value.shape} instead of {shape}: {name}")
            return False
        is_floating = mx.issubdtype(value.dtype, mx.floating)
        fits = is_floating if mx.issubdtype(dtype, mx.floating) else value.dtype == dtype
        if not fits:
            self.others.append(f"type {value.dtype} instead of {dtype}: {name}")
        return fits

    def check(self, model: str, strict: bool, hint: str = "") -> None:
        """Raise ValueError for weights that do not fit, with the first difference of each kind first.

        ``hint`` is added if only shapes differ: then there is probably a new head.
        """
        missing = [f"missing: {name}" for name in self.missing if strict]
        unused = [f"not used: {name}" for name in self.unused if strict]
        kinds = (missing, self.shapes, unused, self.others)
        lines = [line for kind in kinds for line in kind[:1]] + [line for kind in kinds for line in kind[1:]]
        if lines:
            hint = f" {hint}" if hint and len(lines) == len(self.shapes) else ""
            raise ValueError(f"{model} cannot load the weights: {cut(lines, 3, '; ')}.{hint}")


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
    reordered, differences = reordering(model, flatten, unflatten), Differences()
    names = names or sequential_names(model)
    parameters = dict(tree_flatten(model.parameters()))
    state = without_prefix(fold_weight_norm(state), [key for name in parameters for key in names(name)])
    rest = {name: value for name, value in state.items() if not name.endswith(COUNTERS)}
    weights = {}
    for name, parameter in parameters.items():
        values = {key: rest.pop(key) for key in names(name) if key in rest}
        differences.missing += [key for key in names(name) if key not in values]
        if not values:
            continue
        key, value = next(iter(values.items()))
        same = functools.partial(np.array_equal, value, equal_nan=True)
        differences.others += [f"not shared with {key}: {n}" for n, v in values.items() if not same(v)]
        axes = pytorch_axes(model, name)
        warn_about_layout(name, parameter.shape, axes)
        expected = tuple(parameter.shape[axes.index(axis)] for axis in range(parameter.ndim))
        if differences.fits(key, mx.array(value), expected, parameter.dtype):
            weights[name] = mx.array(reordered(value, name).transpose(axes).copy(order="C"))
    differences.unused = list(rest)
    differences.check(type(model).__name__, strict)
    return weights, differences.missing, differences.unused


def warn_about_layout(name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """Warn if a weight is not transposed, although its shape would be the same."""
    unchanged, kernel = axes == tuple(range(len(shape))), shape[1:]
    if name.endswith("weight") and unchanged and len(kernel) > 1 and len(set(kernel)) == 1 < kernel[0]:
        warnings.warn(
            f"{name!r} is not transposed, because its module is not a convolution of mlx.nn; its shape "
            f"{shape} would be the same. To transpose it, use a subclass of mlx.nn.Conv2d, for example.",
            stacklevel=4,
        )


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
