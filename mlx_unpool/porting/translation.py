"""How the parameters of a model are named and laid out in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from .messages import cut, warn

# Maps the name of a parameter in MLX to its name, or its names, in the state dict.
Names = Callable[[str], "str | tuple[str, ...]"]
Shapes = Mapping[str, Sequence[int]]


class Translation:
    """Translates between the parameters of an MLX model and those of the same model in PyTorch.

    ``names``, ``flatten`` and ``unflatten`` are those of ``load_state_dict``. Methods get the MLX
    name of a parameter.
    """

    def __init__(
        self,
        model: nn.Module,
        names: Names | None = None,
        flatten: Shapes | None = None,
        unflatten: Shapes | None = None,
    ) -> None:
        self.model, self.given_names = model, names
        self.flatten, self.unflatten = dict(flatten or {}), dict(unflatten or {})
        modules = dict(model.named_modules())
        linear = [name for name, module in modules.items() if isinstance(module, nn.Linear)]
        unknown = [name for name in [*self.flatten, *self.unflatten] if name not in linear]
        if unknown:
            raise ValueError(
                "'flatten' and 'unflatten' must name layers of the model, but got "
                f"{cut(unknown)}. Its Linear layers are {cut(linear) or 'none'}."
            )

    def names(self, name: str) -> tuple[str, ...]:
        """The names of a parameter in PyTorch."""
        if self.given_names is None:
            return (self._without_layers(name),)
        given = self.given_names(name)
        return (given,) if isinstance(given, str) else tuple(given)

    def all_names(self, names: Iterable[str]) -> list[str]:
        """The names in PyTorch of all these parameters, each once."""
        return list(dict.fromkeys(key for name in names for key in self.names(name)))

    def _without_layers(self, name: str) -> str:
        """A name without ``layers``, which only MLX has between a Sequential and its layers."""
        parts = name.split(".")
        modules = modules_of(self.model, parts)
        return ".".join(
            part
            for part, module in zip(parts, modules)
            if not (part == "layers" and isinstance(module, nn.Sequential))
        )

    def to_mlx(self, name: str, value: np.ndarray) -> mx.array:
        """A parameter in the layout of MLX."""
        for axis, order in self._orders(name, value.shape):
            value = value.take(order, axis=axis)
        return mx.array(value.transpose(self.axes(name)).copy(order="C"))

    def to_pytorch(self, name: str, array: mx.array) -> np.ndarray:
        """A parameter, or its gradient, in the layout of PyTorch; bfloat16 becomes float32."""
        if array.dtype == mx.bfloat16:
            array = array.astype(mx.float32)
        value = np.array(array).transpose(np.argsort(self.axes(name)))
        for axis, order in self._orders(name, value.shape):
            value = value.take(np.argsort(order), axis=axis)
        return value

    def pytorch_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape in PyTorch of a parameter with this shape in MLX."""
        axes = self.axes(name)
        return tuple(shape[axes.index(axis)] for axis in range(len(shape)))

    def axes(self, name: str) -> tuple[int, ...]:
        """For each axis of a parameter in MLX, the axis in PyTorch."""
        *_, module, parameter = modules_of(self.model, name.split("."))
        unchanged = tuple(range(parameter.ndim))
        if name.rpartition(".")[2] != "weight":
            return unchanged
        if hasattr(module, "pytorch_axes"):
            return module.pytorch_axes
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            return (0, *unchanged[2:], 1)
        if isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
            return (1, *unchanged[2:], 0)
        return unchanged

    def _orders(self, name: str, shape: tuple[int, ...]) -> list[tuple[int, np.ndarray]]:
        """The axes of a parameter that belong to a flattened feature map, and their order in MLX.

        ``shape`` is that of the parameter. Biases have only the axis of the outputs.
        """
        layer, _, kind = name.rpartition(".")
        found = []
        if layer in self.flatten and kind == "weight":
            found.append((1, channels_last_order(layer, shape[1], self.flatten[layer])))
        if layer in self.unflatten:
            found.append((0, channels_last_order(layer, shape[0], self.unflatten[layer])))
        return found

    def warn_about_layout(self, name: str, shape: tuple[int, ...]) -> None:
        """Warn if a weight is not transposed, and has the same shape in MLX's layout."""
        kernel = shape[1:]
        is_unchanged = self.axes(name) == tuple(range(len(shape)))
        may_be_kernel = len(kernel) > 1 and len(set(kernel)) == 1 and kernel[0] > 1
        if name.endswith("weight") and is_unchanged and may_be_kernel:
            warn(
                f"{name!r} is not transposed, because its module is not a convolution of mlx.nn; "
                f"its shape {shape} would be the same. To transpose it, use a subclass of "
                "mlx.nn.Conv2d, for example."
            )


def modules_of(model: nn.Module, parts: Sequence[str]) -> list[Any]:
    """The modules and lists that contain a parameter, from the model inwards, and the parameter."""
    found: list[Any] = [model]
    for part in parts:
        found.append(found[-1][int(part) if isinstance(found[-1], list) else part])
    return found


def channels_last_order(layer: str, size: int, shape: Sequence[int]) -> np.ndarray:
    """The positions in PyTorch of the elements of a feature map flattened channels last."""
    shape = tuple(shape)
    if math.prod(shape) != size:
        raise ValueError(
            f"'flatten' and 'unflatten' must have the shape (channels, ...) of a feature map with "
            f"{size} elements for {layer!r}, but got {shape}."
        )
    return np.moveaxis(np.arange(size).reshape(shape), 0, -1).reshape(-1)
