"""Convert weights between PyTorch and MLX, for the models of this package and for your own.

``load_state_dict`` loads a PyTorch state dict into an MLX model whose layers have the same names. It
transposes each weight according to its layer, folds weight normalisation, reorders the weights of a
``Linear`` after a ``flatten``, and reports ignored entries. ``to_state_dict`` is the inverse.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from .checkpoints import arrays_of, split_state, state_of
from .checkpoints import read_state as read_state
from .messages import cut, warn

Names = Callable[[str], tuple[str, ...]]
Shapes = Mapping[str, Sequence[int]]
# Entries of a state dict without a counterpart in MLX.
COUNTERS = "num_batches_tracked"


@dataclasses.dataclass(repr=False)
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

    def __repr__(self) -> str:
        rest = {name: names for name, names in vars(self).items() if name != "loaded" and names}
        lines = [f"{len(names)} {name}: {cut(names, 3)}" for name, names in rest.items()]
        return f"Report({'; '.join([f'{len(self.loaded)} loaded', *lines])})"


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

    def check(self, model: str, strict: bool | str, hint: str = "") -> None:
        """Raise ValueError for weights that do not fit, with the first difference of each kind first.

        ``hint`` is added if only shapes differ: then there is probably a new head.
        """
        missing = [f"missing: {name}" for name in self.missing if strict]
        unused = [f"not used: {name}" for name in self.unused if strict is True]
        kinds = (missing, self.shapes, unused, self.others)
        lines = [line for kind in kinds for line in kind[:1]] + [line for kind in kinds for line in kind[1:]]
        if lines:
            hint = f" {hint}" if hint and len(lines) == len(self.shapes) else ""
            raise ValueError(f"{model} cannot load the weights: {cut(lines, 3, '; ')}.{hint}")


# What DataParallel, torch.compile, FSDP and checkpointing add to names, anywhere in them.
WRAPPERS = ("_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_orig_mod", "module")


def without_additions(state: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    """A state dict whose names have no prefix such as ``model.`` and no parts that wrappers insert.

    They are removed if more names then are wanted, so a state dict with all wanted names stays as it is.

    Raises:
        ValueError: If two prefixes or parts would do, or if two names become one.
    """
    known, names, removed = set(wanted), list(state), list[str]()
    bare = [n if n in known else ".".join(p for p in n.split(".") if p not in WRAPPERS) for n in names]
    (count, best), (count_of_bare, best_of_bare) = additions(names, known), additions(bare, known)
    if count_of_bare > count:
        removed = [f"{part}." for part in WRAPPERS if any(part in name.split(".") for name in names)]
        names, best = bare, best_of_bare
    if len(best) > 1:
        both = " and without ".join(repr(addition.lstrip(".")) for addition in sorted(best)[:3])
        raise ValueError(
            f"the names of the weights fit without {both}: pass only the arrays with one of them."
        )
    for addition in best:
        names, removed = [shortened(name, addition) for name in names], [*removed, addition.lstrip(".")]
    often = Counter(names)
    for old, new in zip(state, names):
        if old != new and often[new] > 1 and new in known:
            raise ValueError(f"the weights have both {old!r} and {new!r}: pass only one of them.")
    if removed and removed != ["module."]:  # of DataParallel alone, which everybody expects
        warn(f"Removed {' and '.join(map(repr, removed))} from the names of the weights.")
    return dict(zip(names, state.values()))


def shortened(name: str, addition: str) -> str:
    """A name without a prefix such as ``model.`` or a part such as ``.base.`` (points on both sides)."""
    return name.replace(addition, ".") if addition.startswith(".") else name.removeprefix(addition)


def additions(names: Sequence[str], known: Collection[str]) -> tuple[int, list[str]]:
    """How many of the known names there are without the best prefix or part, and what may be this best one.

    One that a known name has is left out, and so is one that changes names as another one does.
    """
    fitting, found = set(names).intersection(known), dict[str, set[str]]()
    for name in names:
        pieces = name.split(".")
        starts = ["".join(f"{piece}." for piece in pieces[:n]) for n in range(1, len(pieces))]
        inside = [f".{piece}." for piece in pieces[1:-1] if not piece.isdigit()]
        for text in starts + inside:
            if shortened(name, text) in known:
                found.setdefault(text, set(fitting)).add(shortened(name, text))
    usable = [text for text in found if all(shortened(name, text) == name for name in fitting)]
    count = max((len(found[text]) for text in usable), default=len(fitting))
    best = [text for text in usable if len(found[text]) == count > len(fitting)]
    return count, list({tuple(shortened(name, text) for name in names): text for text in best}.values())


def fold_weights(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A state dict with weight and spectral normalisation and pruning folded into the weights.

    Of ``torch.nn.utils`` and ``torch.nn.utils.parametrizations``: ``weight_g`` and ``weight_v`` become
    ``weight``, ``g * v / norm(v)``; ``weight_orig``, ``weight_u`` and ``weight_v`` become
    ``orig / (u @ orig @ v)``; ``weight_orig`` and ``weight_mask`` become their product.
    """
    folded = dict(state)
    forms = (
        (r"(.*)parametrizations\.(\w+)\.original0", "original0", ("original1",), normalised_weight),
        (r"(.*)_g()", "_g", ("_v",), normalised_weight),
        (r"(.*)parametrizations\.(\w+)\.original", "original", ("0._u", "0._v"), spectral_weight),
        (r"(.*)_orig()", "_orig", ("_u", "_v"), spectral_weight),
        (r"(.*)_orig()", "_orig", ("_mask",), np.multiply),
    )
    for name in state:
        for pattern, ending, endings, fold in forms:
            match = re.fullmatch(pattern, name)
            others = [name.removesuffix(ending) + other for other in endings]
            if match and name in folded and all(other in folded for other in others):
                arrays = (folded.pop(key).astype(np.float64) for key in (name, *others))
                folded[match[1] + match[2]] = fold(*arrays).astype(np.float32)
    return folded


def normalised_weight(magnitude: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """A weight with the norm ``magnitude`` over all axes along which that has size 1."""
    if not magnitude.ndim:  # one norm for the whole array
        magnitude = magnitude.reshape((1,) * direction.ndim)
    axes = tuple(n for n, size in enumerate(magnitude.shape) if size == 1)
    return magnitude * direction / np.sqrt(np.square(direction).sum(axes, keepdims=True))


def spectral_weight(weight: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """A weight divided by its largest singular value as a matrix, with the vectors of that value.

    Its rows are the first axis, or the second if the convolution is transposed. With the wrong one, the
    vectors give a smaller value.
    """
    axes = range(min(2, weight.ndim))
    matrices = [np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1) for axis in axes]
    return weight / max((u @ m @ v for m in matrices if m.shape == (u.size, v.size)), key=abs)


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
    weights, _, unused = matched(arrays_of(state_of(state_dict)), model, names, **options)
    if unused:
        warn(f"Arrays that are ignored: {cut(unused)}.")
    return weights


def matched(
    state: Mapping[str, np.ndarray],
    model: nn.Module,
    names: Names | None,
    flatten: Shapes | None = None,
    unflatten: Shapes | None = None,
    strict: bool | str = True,
) -> tuple[dict[str, mx.array], list[str], list[str]]:
    """The weights by MLX name, the missing names, and the names that are not in the model."""
    reordered, differences = reordering(model, flatten, unflatten), Differences()
    names = names or sequential_names(model)
    parameters = dict(tree_flatten(model.parameters()))
    state = without_additions(fold_weights(state), [key for name in parameters for key in names(name)])
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
    if parameters and not weights:
        raise ValueError(
            f"{type(model).__name__} has no parameter with one of these names: {cut(list(state), 3)}. It has "
            f"{cut([key for name in parameters for key in names(name)], 3)}."
        )
    return weights, differences.missing, differences.unused


def warn_about_layout(name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """Warn if a weight is not transposed, although its shape would be the same."""
    unchanged, kernel = axes == tuple(range(len(shape))), shape[1:]
    if name.endswith("weight") and unchanged and len(kernel) > 1 and len(set(kernel)) == 1 < kernel[0]:
        warn(
            f"{name!r} is not transposed, because its module is not a convolution of mlx.nn; its shape "
            f"{shape} would be the same. To transpose it, use a subclass of mlx.nn.Conv2d, for example."
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
        steps = zip(name.split("."), modules_of(model, name))
        return (".".join(p for p, m in steps if not (p == "layers" and isinstance(m, nn.Sequential))),)

    return names


def modules_of(model: nn.Module, name: str) -> list[Any]:
    """The modules and lists that contain a parameter, from the model inwards, and the parameter."""
    found: list[Any] = [model]
    for part in name.split("."):
        found.append(found[-1][int(part) if isinstance(found[-1], list) else part])
    return found


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
    *_, module, parameter = modules_of(model, name)
    is_weight, dims = name.rpartition(".")[2] == "weight", range(2, parameter.ndim)
    if is_weight and hasattr(module, "pytorch_axes"):
        return module.pytorch_axes
    if is_weight and isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return (0, *dims, 1)
    if is_weight and isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        return (1, *dims, 0)
    return tuple(range(parameter.ndim))
