"""Weights of PyTorch models for MLX models, and back: names, layouts, and nothing lost on the way."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from .files import load_arrays

Names = Callable[[str], tuple[str, ...]]
# Under which name checkpoints keep the state dict.
KEYS = ("state_dict", "model_state", "model_state_dict", "model", "network")
HOW_TO_EXPORT = (
    "Where the model can be built, export its state dict: "
    "torch.save(model.state_dict(), 'weights.pth')."
)


def same_name(name: str) -> tuple[str, ...]:
    """For models whose parameters have the same names in both."""
    return (name,)


def read_state(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a PyTorch checkpoint, float32: ``.safetensors``, or of ``torch.save`` (needs PyTorch).

    What :func:`state_of` finds in it is taken. No code of the file is run and none of its modules is
    imported; of a whole model that was pickled, the parameters are read all the same.

    Raises:
        ValueError: If there is no such file, it is no checkpoint, or there is no state dict in it.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    arrays = load_arrays(path)[0] if path.suffix == ".safetensors" else None
    try:
        return arrays_of(state_of(load_pickled(path) if arrays is None else arrays))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    except Exception as error:  # damaged files, and those that mean to run something, lead to many
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} is no checkpoint that can be read: {reason}") from None


def load_pickled(path: Path) -> Any:
    """What ``torch.save`` wrote. Of foreign classes, only what objects hold."""
    try:
        import torch
    except ImportError:
        raise ValueError(
            "PyTorch is needed to read this file; a .safetensors file is read without it."
        ) from None
    inert: Any = ModuleType("inert_pickle")
    inert.Unpickler, inert.load = InertUnpickler, load_inert
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old formats
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:
            return torch.load(path, map_location="cpu", weights_only=False, pickle_module=inert)


class Foreign:
    """What stands for an object of a class, or the result of a function, that is not run."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Foreign:
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __call__(self, *args: Any, **kwargs: Any) -> Foreign:
        return self

    def ignore(self, *args: Any) -> None:
        """Items of a list, a set or a dict."""

    append = extend = add = __setitem__ = ignore


class InertUnpickler(pickle.Unpickler):
    """Rebuilds tensors, sets and ordered dicts; everything else is a :class:`Foreign`."""

    HARMLESS = frozenset(
        {
            ("collections", "OrderedDict"),
            ("builtins", "set"),
            ("__builtin__", "set"),
            ("torch", "Size"),
            ("torch._utils", "_rebuild_tensor"),
            ("torch._utils", "_rebuild_tensor_v2"),
            ("torch._utils", "_rebuild_parameter"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self.HARMLESS or (module == "torch" and name.endswith("Storage")):
            return super().find_class(module, name)
        return type(name, (Foreign,), {"__module__": module})


def load_inert(file: Any, **options: Any) -> Any:
    """As ``pickle.load``."""
    return InertUnpickler(file, **options).load()


def state_of(checkpoint: Any) -> dict[str, Any]:
    """The state dict in a checkpoint, wherever it lies, without the ``module.`` of ``DataParallel``.

    Args:
        checkpoint: A state dict, a dict with one under ``"state_dict"``, ``"model_state"``,
            ``"model_state_dict"``, ``"model"`` or ``"network"``, or a whole model.

    Raises:
        ValueError: If there is none.
    """
    while True:
        if isinstance(checkpoint, Foreign):
            checkpoint = state_of_foreign(checkpoint)
        elif callable(getattr(checkpoint, "state_dict", None)):
            checkpoint = checkpoint.state_dict()
        if not isinstance(checkpoint, Mapping):
            raise ValueError(f"this is no state dict but {described(checkpoint)}. {HOW_TO_EXPORT}")
        inner = [checkpoint[key] for key in KEYS if key in checkpoint]
        inner = [value for value in inner if not hasattr(value, "shape")]
        if not inner:
            break
        checkpoint = inner[0]
    wrong = [name for name, value in checkpoint.items() if not hasattr(value, "shape")]
    if wrong or not checkpoint:
        what = f"{wrong[0]!r} is {described(checkpoint[wrong[0]])}" if wrong else "it is empty"
        raise ValueError(
            f"a state dict holds weights only, no code is run to make them; but {what}. {HOW_TO_EXPORT}"
        )
    return {name.removeprefix("module."): value for name, value in checkpoint.items()}


def state_of_foreign(model: Foreign, prefix: str = "") -> dict[str, Any]:
    """The state dict of a pickled model whose class is not at hand."""
    parts = getattr(model, "state", None)
    if not isinstance(parts, dict) or "_parameters" not in parts:
        raise ValueError(f"this is no model but {described(model)}. {HOW_TO_EXPORT}")
    left_out = parts.get("_non_persistent_buffers_set", ())
    own = parts["_parameters"] | {
        name: value for name, value in parts["_buffers"].items() if name not in left_out
    }
    state = {prefix + name: value for name, value in own.items() if value is not None}
    for name, child in parts["_modules"].items():
        if child is not None:
            state |= state_of_foreign(child, f"{prefix}{name}.")
    return state


def described(value: Any) -> str:
    """Of which kind something is."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def arrays_of(state: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Tensors and arrays of any framework as NumPy arrays, those of floating point as float32."""
    arrays = {}
    for name, value in state.items():
        if hasattr(value, "detach"):  # a tensor of PyTorch, wherever it is
            value = value.detach().cpu()
            value = (value.float() if value.is_floating_point() else value).numpy()
        elif isinstance(value, mx.array) and value.dtype == mx.bfloat16:
            value = value.astype(mx.float32)
        array = np.asarray(value)
        arrays[name] = array.astype(np.float32) if array.dtype.kind == "f" else array
    return arrays


def from_pytorch(
    state: Mapping[str, np.ndarray], model: nn.Module, names: Names = same_name
) -> dict[str, mx.array]:
    """The parameters of an MLX model from the state dict of its PyTorch twin, by MLX name.

    Args:
        state: PyTorch names and arrays; ``num_batches_tracked`` of BatchNorm is not needed.
        model: The MLX model; only its names, shapes and kinds of layers matter.
        names: From the MLX name of a parameter, the names that it has in PyTorch. There are several if
            layers share it.

    Returns:
        Contiguous arrays: ``mx.export_function`` writes buffers as they lie in memory, and would take a
        transposed array for another one.

    Raises:
        ValueError: If a parameter is missing, or one is left over, has another shape, or should be shared
            but differs. All of them are named.
    """
    rest = {
        name: value for name, value in state.items() if not name.endswith("num_batches_tracked")
    }
    weights, wrong = {}, []
    for name, parameter in dict(tree_flatten(model.parameters())).items():
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
            weights[name] = mx.array(value.transpose(axes).copy(order="C"))
        else:
            wrong.append(f"shape {value.shape} instead of {expected}: {key}")
    wrong += [f"not used: {key}" for key in rest]
    if wrong:
        raise ValueError("These weights are not those of this model.\n" + "\n".join(wrong))
    return weights


def to_pytorch(model: nn.Module, names: Names = same_name) -> dict[str, np.ndarray]:
    """The way back of :func:`from_pytorch`: a state dict for ``load_state_dict(strict=True)``."""
    state: dict[str, np.ndarray] = {}
    for name, parameter in dict(tree_flatten(model.parameters())).items():
        axes = np.argsort(pytorch_axes(model, name))
        state |= {key: np.array(parameter).transpose(axes).copy(order="C") for key in names(name)}
    return state


def pytorch_axes(model: nn.Module, name: str) -> tuple[int, ...]:
    """Which axis of the array in PyTorch is each axis of a parameter in MLX."""
    *path, kind = name.split(".")
    module: Any = model
    for part in path:
        module = module[int(part)] if isinstance(module, list) else module[part]
    dims = range(2, module[kind].ndim)
    if kind == "weight" and isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return (0, *dims, 1)
    transposed = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
    if kind == "weight" and isinstance(module, transposed):
        return (1, *dims, 0)
    return tuple(range(module[kind].ndim))
