"""Load state dicts of PyTorch into MLX models, and convert weights and gradients back."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from .arrays import fold_weights, numpy_arrays
from .messages import cut, warn
from .names import hint_on_names, without_prefixes
from .translation import Names, Shapes, Translation

Strict = bool | Literal["missing"]
# Entries of a state dict without a counterpart in MLX.
COUNTERS = "num_batches_tracked"
# An attribute of models that were loaded with ``names``, ``flatten`` or ``unflatten``; copies of a
# model have it, too.
HAS_OPTIONS = "_loaded_with_options"


@dataclasses.dataclass(repr=False)
class Report:
    """The result of ``load_state_dict``, which ``compare_port`` needs as ``loaded``.

    Attributes:
        loaded: MLX names of the parameters with new values.
        missing: PyTorch names that the state dict lacks; these parameters keep their values.
        unexpected: PyTorch names of arrays without a parameter in the model.
        ignored: PyTorch names of entries that are not arrays, and of counters of BatchNorm.
        assumed: MLX names of weights that were assumed to be in PyTorch's layout, because no shape
            in the state dict shows it: all convolutions are such as (8, 3, 3, 3), which would be
            the same in MLX's layout. Otherwise empty.
        options: ``names``, ``flatten`` and ``unflatten``, as ``to_state_dict`` needs them.
    """

    loaded: list[str]
    missing: list[str]
    unexpected: list[str]
    ignored: list[str]
    assumed: list[str] = dataclasses.field(default_factory=list)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        parts = [f"{len(self.loaded)} loaded"]
        for kind in ("missing", "unexpected", "ignored"):
            names = [name for name in getattr(self, kind) if not name.endswith(COUNTERS)]
            if names:
                parts.append(f"{len(names)} {kind}: {cut(names, 3)}")
        if self.assumed:
            parts.append(f"assumed to be in PyTorch's layout: {cut(self.assumed, 3)}")
        return f"Report({'; '.join(parts)})"


def load_state_dict(
    model: nn.Module,
    state_dict: Any,
    names: Names | None = None,
    *,
    flatten: Shapes | None = None,
    unflatten: Shapes | None = None,
    strict: Strict = True,
) -> Report:
    """Load the weights of a PyTorch model into an MLX model, in place.

    Each weight is transposed according to its layer. Weight and spectral normalisation and pruning
    are folded into the weights.

    Args:
        model: The MLX model.
        state_dict: The state dict, of tensors or arrays of any framework, or the PyTorch model.
        names: A function of the MLX name of a parameter that returns its name in the state dict, or
            a tuple of names if PyTorch lists a shared parameter several times. Default: the same
            name, without the ``layers`` of ``nn.Sequential``. MLX ignores attributes that begin
            with an underscore: name such a layer without it, and pass ``names``.
        flatten: The ``Linear`` layers after a flattened feature map, by MLX name, with the shape of
            that map in PyTorch, ``{"fc": (channels, height, width)}``. The columns of their weights
            are reordered, because PyTorch flattens channels first and MLX channels last.
        unflatten: The same for ``Linear`` layers whose output becomes a feature map.
        strict: Whether the state dict must have exactly the parameters of the model. If False,
            missing parameters keep their values and other arrays are ignored; shapes, and at least
            one name, must still fit. With ``"missing"``, other arrays are ignored, but no parameter
            may be missing.

    Returns:
        A ``Report`` of the arrays that were loaded and of those that were not.

    Raises:
        ValueError: If the state dict does not fit. The message lists up to three differences.

    Example:
        >>> layer = nn.Conv2d(3, 8, kernel_size=5)
        >>> load_state_dict(layer, {"weight": np.zeros((8, 3, 5, 5)), "bias": np.zeros(8)})
        Report(2 loaded)
        >>> layer.weight.shape
        (8, 5, 5, 3)

    See also: ``convert_state_dict``; ``to_state_dict``; ``compare_port``.
    """
    translation = Translation(model, names, flatten, unflatten)
    weights, report = matched(state_dict, translation, strict)
    model.load_weights(list(weights.items()), strict=False)
    report.options = {"names": names, "flatten": flatten, "unflatten": unflatten}
    setattr(model, HAS_OPTIONS, any(report.options.values()))
    return report


def convert_state_dict(
    model: nn.Module,
    state_dict: Any,
    names: Names | None = None,
    *,
    flatten: Shapes | None = None,
    unflatten: Shapes | None = None,
    strict: Strict = True,
) -> dict[str, mx.array]:
    """Convert the weights of a PyTorch model for an MLX model, which does not change, by MLX name.

    The arguments and errors are those of ``load_state_dict``; ignored entries are a warning. The
    arrays are contiguous, as ``mx.export_function`` requires.
    """
    translation = Translation(model, names, flatten, unflatten)
    weights, report = matched(state_dict, translation, strict)
    ignored = [name for name in report.ignored if not name.endswith(COUNTERS)]
    if ignored + report.unexpected:
        warn(f"Entries that are ignored: {cut(ignored + report.unexpected)}.")
    return weights


def to_state_dict(
    model: nn.Module,
    names: Names | None = None,
    *,
    flatten: Shapes | None = None,
    unflatten: Shapes | None = None,
    arrays: Any = None,
) -> dict[str, np.ndarray]:
    """The parameters of an MLX model as NumPy arrays with the names and layout of PyTorch.

    ``names``, ``flatten`` and ``unflatten`` are as for ``load_state_dict``, whose result has those
    of the call: ``**loaded.options``. ``arrays``: a tree to convert instead, such as the gradients.
    bfloat16 becomes float32.

    Example:
        >>> to_state_dict(nn.Conv2d(3, 8, kernel_size=5))["weight"].shape
        (8, 3, 5, 5)
    """
    translation = Translation(model, names, flatten, unflatten)
    state: dict[str, np.ndarray] = {}
    tree = model.parameters() if arrays is None else arrays
    for name, array in dict(tree_flatten(tree)).items():
        value = translation.to_pytorch(name, array)
        state |= {key: value.copy(order="C") for key in translation.names(name)}
    return state


# What a state dict contains.


def split_state_dict(state_dict: Any) -> tuple[dict[str, np.ndarray], list[str]]:
    """The weights in a state dict or a PyTorch model, and the names of its other entries."""
    entries = entries_of(state_dict)
    arrays = {name: value for name, value in entries.items() if is_weight(name, value)}
    others = [str(name) for name in entries if name not in arrays]
    inner = [name for name, value in entries.items() if contains_weights(name, value)]
    if inner or not arrays:
        raise no_state_dict(others, inner)
    return numpy_arrays(arrays), others


def entries_of(state_dict: Any) -> Mapping[Any, Any]:
    """The entries of a dict, or of the state dict of a PyTorch model."""
    if callable(getattr(state_dict, "state_dict", None)):
        state_dict = state_dict.state_dict()
    if not isinstance(state_dict, Mapping):
        kind = type(state_dict).__name__
        raise ValueError(f"'state_dict' must be a dict of arrays, but got {kind}.")
    return state_dict


def no_state_dict(entries: list[str], inner: list[Any]) -> ValueError:
    """The error for a dict with these entries, such as a checkpoint; ``inner`` contain weights."""
    ways = [f"checkpoint[{name!r}]" for name in inner or ["state_dict"]]
    return ValueError(
        f"'state_dict' must contain arrays, but it has {cut(entries, 3) or 'nothing'}. Of a "
        f"checkpoint, pass the entry that contains them, such as {cut(ways, 3, ' or ')}."
    )


def is_weight(name: Any, value: Any) -> bool:
    """Whether an entry of a state dict is an array that a model can have."""
    return isinstance(name, str) and hasattr(value, "shape") and not name.endswith(COUNTERS)


def contains_weights(name: Any, value: Any) -> bool:
    """Whether an entry of a checkpoint is a dict with arrays or a PyTorch model."""
    if isinstance(value, Mapping) and not str(name).endswith("_extra_state"):
        return any(hasattr(item, "shape") for item in value.values())
    return hasattr(value, "named_parameters")


# How it fits a model.


@dataclasses.dataclass
class Differences:
    """How weights differ from the parameters of a model; ``check`` raises an error that lists them.

    ``missing`` and ``unused`` contain names, ``shapes`` and ``others`` lines of the message.
    """

    missing: list[str] = dataclasses.field(default_factory=list)
    shapes: list[str] = dataclasses.field(default_factory=list)
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

    def check_shared(self, values: Mapping[str, np.ndarray]) -> None:
        """Add a line for each value of a shared parameter that is not equal to the first one."""
        first, *others = values
        for other in others:
            if not np.array_equal(values[first], values[other], equal_nan=True):
                self.others.append(f"not shared with {first}: {other}")

    def check(self, model: str, strict: bool | str, shape_hint: str = "") -> None:
        """Raise ValueError for weights that do not fit, with a difference of each kind first.

        ``shape_hint`` is added if only shapes differ: then there is probably a new head.
        """
        missing = [f"missing: {name}" for name in self.missing]
        unused = [f"not used: {name}" for name in self.unused]
        kinds = [self.shapes, self.others]
        if strict:
            kinds.insert(0, missing)
        if strict is True:
            kinds.insert(2, unused)
        turns = itertools.zip_longest(*kinds)
        lines = [line for line in itertools.chain.from_iterable(turns) if line]
        hint = hint_on_names(self.unused, self.missing)
        if lines == self.shapes:
            hint = shape_hint
        if lines:
            message = f"{model} cannot load the weights: {cut(lines, 3, '; ')}. {hint}"
            raise ValueError(message.rstrip())


def matched(
    state_dict: Any, translation: Translation, strict: Strict
) -> tuple[dict[str, mx.array], Report]:
    """The weights of a state dict for the parameters of a model, by MLX name, and a report.

    Raises:
        ValueError: If weights do not fit, or none of them has the name of a parameter.
    """
    arrays, ignored = split_state_dict(state_dict)
    parameters = dict(tree_flatten(translation.model.parameters()))
    wanted = translation.all_names(parameters)
    state = without_prefixes(fold_weights(arrays), wanted)
    known = set(wanted)
    differences = Differences(
        missing=[name for name in wanted if name not in state],
        unused=[name for name in state if name not in known],
    )
    weights = fitting_weights(state, parameters, translation, differences)
    kind = type(translation.model).__name__
    differences.check(kind, strict)
    if not weights:
        message = (
            f"{kind} has no parameter with one of these names: {cut(list(state), 3)}. It has "
            f"{cut(wanted, 3) or 'no parameters'}. {hint_on_names(list(state), wanted)}"
        )
        raise ValueError(message.rstrip())
    return weights, Report(
        loaded=list(weights),
        missing=differences.missing,
        unexpected=differences.unused,
        ignored=ignored,
        assumed=assumed_layouts(translation, weights),
    )


def fitting_weights(
    state: Mapping[str, np.ndarray],
    parameters: Mapping[str, mx.array],
    translation: Translation,
    differences: Differences,
) -> dict[str, mx.array]:
    """The weights that fit the parameters of a model; the others are added to ``differences``."""
    weights = {}
    for name, parameter in parameters.items():
        values = {key: state[key] for key in translation.names(name) if key in state}
        if not values:
            continue
        differences.check_shared(values)
        translation.warn_about_layout(name, parameter.shape)
        key, value = next(iter(values.items()))
        shape = translation.pytorch_shape(name, parameter.shape)
        if differences.fits(key, mx.array(value), shape, parameter.dtype):
            weights[name] = translation.to_mlx(name, value)
    return weights


def assumed_layouts(translation: Translation, weights: Mapping[str, mx.array]) -> list[str]:
    """The transposed weights, if the shapes of all of them would be the same in MLX's layout."""
    transposed = [
        name
        for name, value in weights.items()
        if translation.axes(name) != tuple(range(value.ndim)) and math.prod(value.shape[1:]) > 1
    ]
    shapes = {name: weights[name].shape for name in transposed}
    is_open = all(translation.pytorch_shape(name, shape) == shape for name, shape in shapes.items())
    return transposed if is_open else []
