"""Load state dicts of PyTorch into MLX models, and convert weights and gradients back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from .arrays import numpy_arrays
from .folding import fold_weights
from .messages import cut, warn
from .names import Names, underscore_hint, without_prefixes
from .translation import Shapes, Translation

Strict = bool | Literal["missing"]
# Entries of a state dict without a counterpart in MLX.
COUNTERS = "num_batches_tracked"


@dataclasses.dataclass(repr=False)
class Report:
    """The result of ``load_state_dict``: MLX names in ``loaded``, PyTorch names in the other lists.

    Attributes:
        loaded: Parameters of the model with new values.
        missing: Parameters that the state dict lacks; they keep their values.
        unexpected: Arrays without a parameter in the model.
        ignored: Entries that are not arrays, and counters of BatchNorm.
        options: ``names``, ``flatten`` and ``unflatten`` of the call, which ``compare_port`` and
            ``to_state_dict`` need as well: pass ``**report.options``.
    """

    loaded: list[str]
    missing: list[str]
    unexpected: list[str]
    ignored: list[str]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        parts = [f"{len(self.loaded)} loaded"]
        for kind in ("missing", "unexpected", "ignored"):
            if names := getattr(self, kind):
                parts.append(f"{len(names)} {kind}: {cut(names, 3)}")
        return f"Report({'; '.join(parts)})"


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
        """Raise ValueError for weights that do not fit, with the first difference of each kind first.

        ``shape_hint`` is added if only shapes differ: then there is probably a new head.
        """
        missing = [f"missing: {name}" for name in self.missing if strict]
        unused = [f"not used: {name}" for name in self.unused if strict is True]
        kinds = (missing, self.shapes, unused, self.others)
        lines = [line for kind in kinds for line in kind[:1]] + [line for kind in kinds for line in kind[1:]]
        if not lines:
            return
        hint = underscore_hint(self.unused) if unused else ""
        if shape_hint and len(lines) == len(self.shapes):
            hint = f" {shape_hint}"
        raise ValueError(f"{model} cannot load the weights: {cut(lines, 3, '; ')}.{hint}")


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

    Each weight is transposed according to its layer. Weight and spectral normalisation and pruning are folded
    into the weights.

    Args:
        model: The MLX model.
        state_dict: The state dict, of tensors or arrays of any framework, or the PyTorch model.
        names: Maps the MLX name of a parameter to its names in the state dict; more than one if PyTorch lists
            a shared parameter several times. Default: the same name without the ``layers`` of
            ``nn.Sequential``. MLX ignores attributes that begin with an underscore: name such a layer without
            it, and pass ``names``.
        flatten: The ``Linear`` layers after a flattened feature map, by MLX name, with the shape of that map
            in PyTorch, ``{"fc": (channels, height, width)}``. The columns of their weights are reordered,
            because PyTorch flattens channels first and MLX channels last.
        unflatten: The same for ``Linear`` layers whose output becomes a feature map.
        strict: Whether the state dict must have exactly the parameters of the model. If False, missing
            parameters keep their values and other arrays are ignored; shapes, and at least one name, must
            still fit. With ``"missing"``, other arrays are ignored, but no parameter may be missing.

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
    state, ignored = split_state_dict(state_dict)
    found = matched(state, Translation(model, names, flatten, unflatten), strict)
    model.load_weights(list(found.weights.items()), strict=False)
    ignored += [name for name in state if name.endswith(COUNTERS)]
    options = {"names": names, "flatten": flatten, "unflatten": unflatten}
    return Report(list(found.weights), found.missing, found.unexpected, ignored, options)


def convert_state_dict(
    model: nn.Module,
    state_dict: Any,
    names: Names | None = None,
    *,
    flatten: Shapes | None = None,
    unflatten: Shapes | None = None,
    strict: Strict = True,
) -> dict[str, mx.array]:
    """Convert the weights of a PyTorch model for an MLX model, by MLX name, without changing the model.

    The arguments and errors are those of ``load_state_dict``; ignored entries are a warning. The arrays are
    contiguous, as ``mx.export_function`` requires.
    """
    state, ignored = split_state_dict(state_dict)
    found = matched(state, Translation(model, names, flatten, unflatten), strict)
    if ignored + found.unexpected:
        warn(f"Entries that are ignored: {cut(ignored + found.unexpected)}.")
    return found.weights


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


def split_state_dict(state_dict: Any) -> tuple[dict[str, np.ndarray], list[str]]:
    """The arrays of a state dict or of a PyTorch model, and the names of its other entries."""
    if callable(getattr(state_dict, "state_dict", None)):
        state_dict = state_dict.state_dict()
    if not isinstance(state_dict, Mapping):
        raise ValueError(f"'state_dict' must be a dict of arrays, but got {type(state_dict).__name__}.")
    named = {name: value for name, value in state_dict.items() if isinstance(name, str)}
    arrays = {name: value for name, value in named.items() if hasattr(value, "shape")}
    others = [str(name) for name in state_dict if name not in arrays]
    if not arrays:
        raise ValueError(
            f"'state_dict' must contain arrays, but it has {cut(others, 3) or 'nothing'}. Of a checkpoint, "
            "pass the entry that contains them, such as checkpoint['state_dict']."
        )
    return numpy_arrays(arrays), others


class Matched(NamedTuple):
    """The weights that fit a model, by MLX name, and the PyTorch names of the others."""

    weights: dict[str, mx.array]
    missing: list[str]
    unexpected: list[str]


def matched(state: Mapping[str, np.ndarray], translation: Translation, strict: Strict) -> Matched:
    """Find the weight of each parameter of a model.

    Raises:
        ValueError: If weights do not fit, or none of them has the name of a parameter.
    """
    model, names = translation.model, translation.names
    parameters = dict(tree_flatten(model.parameters()))
    wanted = [key for name in parameters for key in names(name)]
    state = without_prefixes(fold_weights(state), wanted)
    rest = {name: value for name, value in state.items() if not name.endswith(COUNTERS)}
    weights, differences = {}, Differences()
    for name, parameter in parameters.items():
        values = {key: rest.pop(key) for key in names(name) if key in rest}
        differences.missing += [key for key in names(name) if key not in values]
        if not values:
            continue
        differences.check_shared(values)
        key, value = next(iter(values.items()))
        translation.warn_about_layout(name, parameter.shape)
        expected = translation.pytorch_shape(name, parameter.shape)
        if differences.fits(key, mx.array(value), expected, parameter.dtype):
            weights[name] = translation.to_mlx(name, value)
    differences.unused = list(rest)
    kind = type(model).__name__
    differences.check(kind, strict)
    if not weights:
        raise ValueError(
            f"{kind} has no parameter with one of these names: {cut(list(state), 3)}. It has "
            f"{cut(wanted, 3) or 'no parameters'}.{underscore_hint(list(state))}"
        )
    return Matched(weights, differences.missing, differences.unused)
