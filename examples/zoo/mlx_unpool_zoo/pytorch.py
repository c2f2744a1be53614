"""Convert weights between PyTorch and MLX, for the models of this package and for your own.

``load_state_dict`` loads a PyTorch state dict into an MLX model whose layers have the same names. It
transposes each weight according to its layer, folds weight normalisation, reorders the weights of a
``Linear`` after a ``flatten``, and reports ignored entries. ``to_state_dict`` is the inverse.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import yaml
from mlx.utils import tree_flatten

from .files import load_arrays

Names = Callable[[str], tuple[str, ...]]
Shapes = Mapping[str, Sequence[int]]
# Keys under which checkpoints store the state dict.
KEYS = ("state_dict", "model_state", "model_state_dict", "model", "network")
# Entries of a state dict without a counterpart in MLX.
COUNTERS = "num_batches_tracked"
HOW_TO_EXPORT = (
    "In an environment with the model's code, export its state dict: "
    "torch.save(model.state_dict(), 'weights.pth')."
)


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


def cut(names: Sequence[str], count: int = 10, separator: str = ", ") -> str:
    """The first names, which may come from a damaged file, in one line, and how many more there are."""
    more = [f"... and {len(names) - count:,} more"] if len(names) > count else []
    return separator.join([*(n if n.isprintable() else repr(n)[1:-1] for n in names[:count]), *more])


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


def read_state(path: str | Path) -> dict[str, np.ndarray]:
    """Read the state dict in a checkpoint file; floating-point arrays become float32. See
    ``read_checkpoint`` and ``state_of``."""
    try:
        return arrays_of(state_of(read_checkpoint(path)))
    except ValueError as error:
        reason = " ".join(str(error).split())  # a damaged file may put line breaks into it
        raise ValueError(f"{path}: {reason}") from None


def read_checkpoint(path: str | Path) -> Any:
    """Read a ``.safetensors`` or ``.tflite`` file or, if PyTorch is installed, a file of ``torch.save``.

    No code in the file is run and no module is imported, not even for a whole pickled model: objects of
    unknown classes become placeholders.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError("there is no such file.")
    if path.suffix == ".safetensors":
        return load_arrays(path)[0]
    if path.suffix == ".tflite":
        from .tflite import read_tflite

        return read_tflite(path)
    try:
        import torch
    except ImportError:
        raise ValueError("PyTorch is needed, except for .safetensors and .tflite files.") from None
    inert: Any = ModuleType("inert_pickle")
    inert.Unpickler, inert.load = InertUnpickler, lambda file, **_: InertUnpickler(file).load()
    is_script = ValueError(f"it is a TorchScript file. {HOW_TO_EXPORT}")  # loading one could run its code
    try:
        with warnings.catch_warnings(), mock.patch.object(torch.jit, "load", side_effect=is_script):
            warnings.simplefilter("ignore")  # old file formats
            return torch.load(path, map_location="cpu", weights_only=False, pickle_module=inert)
    except Exception as error:  # damaged and malicious files raise many kinds of errors
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if isinstance(error, KeyError | IndexError | EOFError):  # not a pickle
            reason = "it is damaged, or not a file of torch.save."
        raise ValueError(f"it cannot be read as a checkpoint: {reason}") from None


class Foreign:
    """A placeholder for an object of a class, or the result of a function, that is not imported."""

    dump_patches = False  # torch.load reads it if the source of a layer, saved with an old model, has changed

    def __new__(cls, *args: Any, **kwargs: Any) -> Foreign:
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Ignore the arguments; the same for calls and for items of a list, a set or a dict."""

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __call__(self, *args: Any, **kwargs: Any) -> Foreign:
        return self

    append = extend = add = __setitem__ = __init__


def counting(load: Callable[[Any], None]) -> Callable[[Any], None]:
    """An opcode that creates a tuple or frozenset of at most 100,000 elements, those in others included.

    A few nested ones that contain the one below twice have so many that no key of a dict can be hashed.
    """

    def load_tuple(self: Any) -> None:
        load(self)
        made = self.stack[-1]
        nested = (item for item in made if isinstance(item, tuple | frozenset))
        length = len(made) + sum(self.lengths.get(id(item), 0) for item in nested)
        if length > 100_000:
            raise pickle.UnpicklingError("it contains tuples with more than 100,000 elements")
        self.lengths[id(made)] = length

    return load_tuple


class InertUnpickler(pickle._Unpickler):  # written in Python, so that opcodes can be replaced
    """An unpickler for tensors, sets and ordered dicts; everything else becomes ``Foreign``."""

    HARMLESS = (
        *("collections.OrderedDict", "builtins.set", "__builtin__.set", "torch.Size"),
        "torch.nn.parameter.Parameter",  # of models pickled before PyTorch 0.4
        *(f"torch._utils._rebuild_{kind}" for kind in ("tensor", "tensor_v2", "parameter")),
    )
    dispatch = pickle._Unpickler.dispatch | {
        opcode[0]: counting(pickle._Unpickler.dispatch[opcode[0]])
        for opcode in (pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.FROZENSET)
    }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lengths: dict[int, int] = {}  # of tuples, by id

    def find_class(self, module: str, name: str) -> Any:
        is_storage = module == "torch" and name.endswith("Storage")
        if is_storage or f"{module}.{name}" in self.HARMLESS:
            return super().find_class(module, name)
        return type(name, (Foreign,), {"__module__": module})


def state_of(checkpoint: Any) -> dict[str, Any]:
    """The arrays of the state dict in a checkpoint, without the prefix ``module.`` of ``DataParallel``.

    A checkpoint is a state dict, a whole model, or a dict that contains either under ``state_dict``,
    ``model_state``, ``model_state_dict``, ``model`` or ``network``.
    Entries that are not arrays, such as ``_extra_state``, are ignored with a warning.
    """
    state, ignored = split_state(checkpoint)
    if ignored:
        warnings.warn(f"Ignored entries that are not arrays: {cut(ignored)}.", stacklevel=2)
    return state


def split_state(checkpoint: Any) -> tuple[dict[str, Any], list[str]]:
    """The arrays of the state dict in a checkpoint, and the names of its other entries."""
    seen: list[Any] = []  # a pickle may contain itself
    while not any(checkpoint is other for other in seen):
        seen.append(checkpoint)
        if isinstance(checkpoint, Foreign):
            checkpoint = state_of_foreign(checkpoint)
        elif callable(getattr(checkpoint, "state_dict", None)):
            checkpoint = checkpoint.state_dict()
        if not isinstance(checkpoint, Mapping):
            raise ValueError(f"not a state dict but {described(checkpoint)}. {HOW_TO_EXPORT}")
        inner = [checkpoint[key] for key in KEYS if key in checkpoint]
        inner = [value for value in inner if not hasattr(value, "shape")]
        if not inner:
            break
        checkpoint = inner[0]
    else:
        raise ValueError(f"the checkpoint contains itself. {HOW_TO_EXPORT}")
    state = {
        name.removeprefix("module."): value
        for name, value in checkpoint.items()
        if isinstance(name, str) and hasattr(value, "shape")
    }
    others = [str(name) for name, value in checkpoint.items() if not hasattr(value, "shape")]
    if not state:
        kinds = [f"{name!r} is {described(checkpoint[name])}" for name in list(checkpoint)[:3]]
        raise ValueError(
            f"a state dict must contain arrays, but {', '.join(kinds) or 'it is empty'}. No code in a file "
            f"is run to create arrays. {HOW_TO_EXPORT}"
        )
    return state, others


def config_of(checkpoint: Any) -> dict[str, Any]:
    """The configuration of the model in a checkpoint (a dict or YAML), with names in lower case."""
    config = checkpoint.get("config") if isinstance(checkpoint, Mapping) else None
    if isinstance(config, str) and "<<" not in config:  # as FastSurfer saves it; without merges,
        # because a few that each refer twice to another take forever
        with contextlib.suppress(yaml.YAMLError, RecursionError):
            config = yaml.safe_load(config)
    if isinstance(config, Mapping):
        config = config.get("MODEL", config)
    return {str(n).lower(): v for n, v in config.items()} if isinstance(config, Mapping) else {}


def state_of_foreign(model: Foreign) -> dict[str, Any]:
    """The state dict of a pickled model whose class is not available."""
    state: dict[str, Any] = {}
    rest: list[tuple[str, Any]] = [("", model)]
    length, kinds = 0, ("_parameters", "_buffers", "_modules")
    while rest:
        prefix, module = rest.pop()
        parts = getattr(module, "state", None)
        if not (isinstance(parts, dict) and all(isinstance(parts.get(kind), dict) for kind in kinds)):
            raise ValueError(f"not a model but {described(module)}. {HOW_TO_EXPORT}")
        left_out = parts.get("_non_persistent_buffers_set")
        left_out = left_out if isinstance(left_out, set) else ()
        own = parts["_parameters"] | {n: v for n, v in parts["_buffers"].items() if n not in left_out}
        # A module may be in several others, but in a small file each can be twice in the next one, on and on.
        length += sum(len(prefix) + len(str(name)) + 1 for name in (*own, *parts["_modules"]))
        if length > 10**7:
            raise ValueError(
                "the names in a model must have at most 10 million characters, but these have more, or a "
                f"module contains itself. {HOW_TO_EXPORT}"
            )
        state |= {f"{prefix}{name}": value for name, value in own.items() if value is not None}
        children = [(f"{prefix}{name}.", child) for name, child in parts["_modules"].items()]
        rest += [each for each in reversed(children) if each[1] is not None]
    return state


def described(value: Any) -> str:
    """A description of the type of a value."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def arrays_of(state: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Tensors and arrays of any framework as NumPy arrays; floating-point ones become float32.

    Tensors that are parts or expansions of a few small ones, and would fill the memory, are refused.
    """
    arrays, storages, left = {}, set(), 10**6
    for name, value in state.items():
        kind = f"of {getattr(value, 'dtype', type(value))}"
        try:
            if hasattr(value, "detach"):  # a PyTorch tensor on any device
                kind += f", {value.layout}, on {value.device}"
                value = value.detach().cpu()
                storage = value.untyped_storage()
                left += 4 * storage.nbytes() * (storage.data_ptr() not in storages) - value.numel()
                storages.add(storage.data_ptr())
                if left < 0:
                    raise ValueError(f"{name} {tuple(value.shape)} is expanded from a few stored elements.")
                value = (value.float() if value.is_floating_point() else value).numpy()
            elif isinstance(value, mx.array) and value.dtype == mx.bfloat16:
                value = value.astype(mx.float32)
            array = np.asarray(value)
        except (AttributeError, TypeError, RuntimeError):  # sparse, quantised or without values
            array = np.array("")
        if array.dtype.kind not in "fiubc":
            raise ValueError(f"{name} must be a dense array of numbers, but it is {kind}.")
        arrays[name] = array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array
    return arrays


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
