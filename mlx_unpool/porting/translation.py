"""How the parameters of a model are named and laid out in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from .messages import cut, warn
from .names import Names, modules_of, sequential_names

Shapes = Mapping[str, Sequence[int]]


class Translation:
    """Translates between the parameters of an MLX model and those of the same model in PyTorch.

    ``names``, ``flatten`` and ``unflatten`` are those of ``load_state_dict``.
    """

    def __init__(
        self,
        model: nn.Module,
        names: Names | None = None,
        flatten: Shapes | None = None,
        unflatten: Shapes | None = None,
    ) -> None:
        self.model, self.names = model, names or sequential_names(model)
        self.flatten, self.unflatten = dict(flatten or {}), dict(unflatten or {})
        layers = dict(model.named_modules())
        if unknown := [name for name in [*self.flatten, *self.unflatten] if name not in layers]:
            raise ValueError(
                f"'flatten' and 'unflatten' must name layers of the model, but got {cut(unknown)}."
            )

    def to_mlx(self, name: str, value: np.ndarray) -> mx.array:
        """A parameter in the layout of MLX. ``name`` is its MLX name."""
        for axis, order in self.orders(name, value.shape):
            value = value.take(order, axis=axis)
        return mx.array(value.transpose(self.axes(name)).copy(order="C"))

    def to_pytorch(self, name: str, array: mx.array) -> np.ndarray:
        """A parameter, or its gradient, in the layout of PyTorch; bfloat16 becomes float32."""
        if array.dtype == mx.bfloat16:
            array = array.astype(mx.float32)
        value = np.array(array).transpose(np.argsort(self.axes(name)))
        for axis, order in self.orders(name, value.shape):
            value = value.take(np.argsort(order), axis=axis)
        return value

    def pytorch_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape in PyTorch of a parameter with this shape in MLX."""
        axes = self.axes(name)
        return tuple(shape[axes.index(axis)] for axis in range(len(shape)))

    def axes(self, name: str) -> tuple[int, ...]:
        """For each axis of a parameter in MLX, the axis in PyTorch."""
        *_, module, parameter = modules_of(self.model, name)
        is_weight, spatial = name.rpartition(".")[2] == "weight", range(2, parameter.ndim)
        if is_weight and hasattr(module, "pytorch_axes"):
            return module.pytorch_axes
        if is_weight and isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            return (0, *spatial, 1)
        if is_weight and isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
            return (1, *spatial, 0)
        return tuple(range(parameter.ndim))

    def orders(self, name: str, shape: tuple[int, ...]) -> list[tuple[int, np.ndarray]]:
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
        """Warn if a weight with this shape in MLX is not transposed, although its shape would be the same."""
        kernel = shape[1:]
        is_unchanged = self.axes(name) == tuple(range(len(shape)))
        if name.endswith("weight") and is_unchanged and len(kernel) > 1 and len(set(kernel)) == 1 < kernel[0]:
            warn(
                f"{name!r} is not transposed, because its module is not a convolution of mlx.nn; its shape "
                f"{shape} would be the same. To transpose it, use a subclass of mlx.nn.Conv2d, for example."
            )


def channels_last_order(layer: str, size: int, shape: Sequence[int]) -> np.ndarray:
    """The positions in PyTorch, channels first, of the elements of a feature map flattened channels last."""
    shape = tuple(shape)
    if math.prod(shape) != size:
        raise ValueError(
            f"'flatten' and 'unflatten' must have the shape (channels, ...) of a feature map with {size} "
            f"elements for {layer!r}, but got {shape}."
        )
    return np.moveaxis(np.arange(size).reshape(shape), 0, -1).reshape(-1)
