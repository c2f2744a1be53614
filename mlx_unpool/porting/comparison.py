"""Compare a port with its original, and find out whether they differ because of near-ties.

If two values in a window differ only in the last bit, their order can change in another framework.
Then the index is different, and the unpooled value is at another position. With the indices of the
other framework, a correctly ported network gives the same scores up to rounding.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from .arrays import numpy_array, numpy_arrays
from .messages import cut
from .pools import Format, PoolCall, each_call, pooled_indices
from .state_dicts import HAS_OPTIONS, Report
from .translation import Translation

# Gradients below this part of the largest one are rounding noise, such as that of a bias before
# BatchNorm.
SMALLEST = 1e-6
# Larger gaps of a pool are not near-ties.
NEAR_TIE = 1e-6


@dataclasses.dataclass(repr=False)
class Comparison:
    """How a port differs from its original; see ``compare_port``.

    Attributes:
        layers: The name of the pooling layer of each call.
        flips: For each call how many indices differ.
        gaps: For each call the largest difference between the maximum of a window and the value at
            the original's index, divided by the largest absolute value of the pool's input.
            Near-ties give 1e-6 or less.
        duplicates: For each call how many positions have several values, because they are the
            original's index of several windows. Their gradients differ from PyTorch's.
        outputs: For each output the largest difference, divided by the original's range or, if
            that is larger, by its largest absolute score (by 1 if all are 0); largest first. A
            correct port gives 1e-5 or less.
        constant: The outputs whose scores are all the same, which show little.
        training: Whether a layer of the port is in training mode.
        gradients: For each compared parameter, by PyTorch name, the norm of the difference divided
            by the norm; largest first.
        not_compared: Why there is no difference for the other parameters: ``"too small"``, below
            1e-6 of the largest in both models, or ``"not given"``.
    """

    layers: list[str]
    flips: list[int]
    gaps: list[float]
    duplicates: list[int]
    outputs: dict[str, float]
    constant: list[str]
    training: bool
    gradients: dict[str, float] = dataclasses.field(default_factory=dict)
    not_compared: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def gap(self) -> float | None:
        """The largest of the ``gaps``, or None without pools."""
        return max(self.gaps, default=None)

    @property
    def scores(self) -> float:
        """The largest of the ``outputs``."""
        return max(self.outputs.values())

    def __repr__(self) -> str:
        lines = [pools_line(self), outputs_line(self), gradients_line(self)]
        if sum(self.duplicates):
            lines.append(
                f"duplicates: {sum(self.duplicates):,} positions have several values; see "
                "docs/guarantees.md#duplicates"
            )
        if self.training:
            lines.append("mode: training")
        return "\n".join(lines)


def compare_port(
    model: nn.Module,
    inputs: Sequence[Any],
    scores: Any,
    indices: Sequence[Any],
    *,
    loss: Callable[[Any], mx.array] | None = None,
    gradients: Mapping[str, Any] | None = None,
    loaded: Report | None = None,
    format: Format = "flat",
) -> Comparison:
    """Compare a port, without changing it, with the results of its original for the same inputs.

    Args:
        model: The port, with the weights and the mode of the original. Its pools are made to return
            ``indices``.
        inputs: The arguments of a call, in a list.
        scores: The output of the original, in the layout of the port; a list, tuple or dict of
            several.
        indices: The original's indices, as ``feed`` of ``pooled_indices``.
        loss: A function of the output; pass it together with ``gradients``.
        gradients: The original's gradients of this loss by parameter name. Those that are None are
            not compared.
        loaded: The result of ``load_state_dict``. Only gradients need it, and only if that function
            was called with ``names``, ``flatten`` or ``unflatten``.
        format: The format of ``indices``, such as ``"tensorflow"``.

    Returns:
        A ``Comparison``.

    Raises:
        TypeError: If an argument has a wrong type, such as indices in floating point.
        ValueError: If the shapes or the numbers of arrays do not fit, a gradient is of no
            parameter, or ``loaded`` is missing.

    Example:
        >>> layer, x = nn.Linear(2, 3), mx.ones((1, 2))
        >>> compare_port(layer.eval(), [x], layer(x), indices=[])
        pools: none
        outputs: largest difference 0
        gradients: none

    See also: ``load_state_dict``; ``pooled_indices``.
    """
    check_inputs(inputs)
    check_gradient_arguments(model, loss, gradients, loaded)
    feed = [numpy_array(f"indices[{number}]", array) for number, array in enumerate(indices)]
    with unchanged(model):
        calls, output = run(model, inputs, feed, format)
    expected = outputs_of(scores)
    check_shapes(output, expected)
    found = compare_outputs(model, calls, output, expected)
    if loss is not None and gradients is not None:
        translation = Translation(model, **(loaded.options if loaded else {}))
        with unchanged(model):
            ours = run_backward(model, inputs, loss, feed, format)
        pairs = paired_gradients(model, translation, ours, gradients)
        found.gradients, found.not_compared = compare_gradients(pairs)
    return found


def check_inputs(inputs: Any) -> None:
    """Raise TypeError if ``inputs`` is not a list or has arrays of other frameworks."""
    if isinstance(inputs, list | tuple):
        kinds = [type(value).__name__ for value in inputs if hasattr(value, "shape")]
        if not set(kinds) - {"array"}:
            return
        got = f"a list with {cut(kinds)}"
    else:
        got = type(inputs).__name__
    raise TypeError(
        f"'inputs' must be a list of the model's arguments, such as [mx.array(x)], but got {got}."
    )


def check_gradient_arguments(model: nn.Module, loss: Any, gradients: Any, loaded: Any) -> None:
    """Check the arguments that are for gradients only."""
    if (loss is None) != (gradients is None):
        raise ValueError("'loss' and 'gradients' must be given together, or neither.")
    if loaded is not None and not isinstance(loaded, Report):
        kind = type(loaded).__name__
        raise TypeError(f"'loaded' must be the result of load_state_dict, but got {kind}.")
    has_options = any(getattr(module, HAS_OPTIONS, False) for module in model.modules())
    if gradients is not None and loaded is None and has_options:
        raise ValueError(
            "'loaded' must be the result of load_state_dict, because the weights were loaded with "
            "'names', 'flatten' or 'unflatten', which the gradients need as well."
        )


# What is run.


@contextlib.contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Restore a model's parameters at the end: training mode changes statistics of BatchNorm."""
    before = model.parameters()
    try:
        yield
    finally:
        model.update(before)


def run(
    model: nn.Module, inputs: Sequence[Any], feed: Sequence[Any], format: Format
) -> tuple[list[PoolCall], dict[str, np.ndarray]]:
    """The calls of the port's pools and its outputs, with the indices of the original."""
    calls: list[PoolCall] = []
    with each_call(calls.append, feed, values=False, format=format):
        output = outputs_of(model(*inputs))
    return calls, output


def run_backward(
    model: nn.Module,
    inputs: Sequence[Any],
    loss: Callable[[Any], mx.array],
    feed: Sequence[Any],
    format: Format,
) -> dict[str, mx.array]:
    """The gradients of the port by MLX name, with the indices of the original."""
    with pooled_indices(feed, values=True, format=format):
        _, tree = nn.value_and_grad(model, lambda *given: loss(model(*given)))(*inputs)
    return dict(tree_flatten(tree))


def outputs_of(output: Any) -> dict[str, np.ndarray]:
    """The arrays of an output, or of a list, tuple or dict of several, by name."""
    named: Any = {"scores": output}
    if isinstance(output, list | tuple | dict):
        named = tree_flatten(output, ".scores", destination={})
    return numpy_arrays({name: value for name, value in named.items() if value is not None})


# What is compared.


def check_shapes(output: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError if the outputs of the port and the original have different shapes."""
    for name in [*output, *expected]:
        shape, given = (getattr(arrays.get(name), "shape", None) for arrays in (output, expected))
        if shape != given:
            raise ValueError(f"{name!r} must have the shape {shape} but got {given}.")
    if not expected:
        raise ValueError("'scores' must contain an array, but it has none.")


def compare_outputs(
    model: nn.Module,
    calls: Sequence[PoolCall],
    output: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
) -> Comparison:
    """The differences of pools and outputs."""
    names = {id(layer): name for name, layer in model.named_modules()}
    differences = {name: score_difference(output[name], expected[name]) for name in expected}
    return Comparison(
        layers=[names.get(id(call.layer), "not in the model") for call in calls],
        flips=[int(call.flips) for call in calls],
        gaps=[nan_as_infinity(call.gap) for call in calls],
        duplicates=[int(call.duplicates) for call in calls],
        outputs=largest_first(differences),
        constant=[name for name, array in expected.items() if is_constant(array)],
        training=any(module.training for module in model.modules()),
    )


def score_difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference, divided by the size of the original's scores; infinite for a NaN.

    Not always divided by the range: float32 rounds in proportion to the values, so scores from 0.20
    to 0.22 of a correct port differ by as much as scores from 0 to 0.22.
    """
    dtype = np.result_type(ours, theirs, np.float64)
    with np.errstate(invalid="ignore"):  # infinity - infinity
        difference = np.abs(ours.astype(dtype) - theirs.astype(dtype))
    largest = np.where(ours == theirs, 0, difference).max(initial=0)
    finite = theirs[np.isfinite(theirs)].astype(dtype)
    size = max(np.abs(np.ptp(finite)), np.abs(finite).max()) if finite.size else 0
    return nan_as_infinity(largest / (size or 1))


def is_constant(array: np.ndarray) -> bool:
    """Whether there are several elements, which are all the same."""
    return array.size > 1 and bool(np.all(array == array.reshape(-1)[0]))


def paired_gradients(
    model: nn.Module,
    translation: Translation,
    ours: Mapping[str, mx.array],
    given: Mapping[str, Any],
) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    """The gradients of the port and of the original, or None, in PyTorch's layout and by its names.

    Raises:
        ValueError: If there is a gradient without a parameter, or of another shape.
    """
    theirs = numpy_arrays({name: value for name, value in given.items() if value is not None})
    check_names(theirs, translation.all_names(ours))
    pairs: dict[str, tuple[np.ndarray, np.ndarray | None]] = {}
    for names in shared_names(model):
        gradient = np.sum([translation.to_pytorch(name, ours[name]) for name in names], axis=0)
        keys = translation.all_names(names)
        # PyTorch gives the gradient of a shared parameter under one of its names.
        key = next((key for key in keys if key in theirs), keys[0])
        expected = theirs.get(key)
        if expected is not None and expected.shape != gradient.shape:
            raise ValueError(
                f"gradient {key!r} must have the shape {gradient.shape} but got {expected.shape}."
            )
        pairs[key] = gradient, expected
    return pairs


def check_names(gradients: Mapping[str, np.ndarray], known: Sequence[str]) -> None:
    """Raise ValueError if there is a gradient without a parameter."""
    unknown = [name for name in gradients if name not in known]
    if unknown:
        raise ValueError(
            f"no trainable parameter has these 'gradients': {cut(unknown, 3)}. Such names are "
            f"{cut(known, 3)}. Remove a prefix from the names, or, if the weights were loaded with "
            "'names', pass 'loaded'."
        )


def shared_names(model: nn.Module) -> list[list[str]]:
    """The MLX names of each trainable parameter: several if modules share it.

    MLX gives the whole gradient of a shared parameter to the last name, and 0 to the others.
    """
    names: dict[int, list[str]] = {}
    for name, array in dict(tree_flatten(model.trainable_parameters())).items():
        names.setdefault(id(array), []).append(name)
    return list(names.values())


def compare_gradients(
    pairs: Mapping[str, tuple[np.ndarray, np.ndarray | None]],
) -> tuple[dict[str, float], dict[str, str]]:
    """The differences of gradients, and why the others are not compared."""
    smallest = SMALLEST * largest_norm(
        [theirs for _, theirs in pairs.values() if theirs is not None]
    )
    differences: dict[str, float] = {}
    not_compared: dict[str, str] = {}
    for name, (ours, theirs) in pairs.items():
        if theirs is None:
            not_compared[name] = "not given"
        elif max(norm(ours), norm(theirs)) < smallest:
            not_compared[name] = "too small"
        else:
            differences[name] = gradient_difference(ours, theirs, smallest)
    return largest_first(differences), not_compared


def gradient_difference(ours: np.ndarray, theirs: np.ndarray, smallest: float) -> float:
    """The norm of the difference, divided by the norm of the original; infinite for a NaN.

    If only the original's norm is below ``smallest``, the result is large, not infinite.
    """
    difference = ours.astype(np.float64) - theirs
    return nan_as_infinity(norm(difference) / max(norm(theirs), smallest))


def largest_norm(gradients: Sequence[np.ndarray]) -> float:
    """The largest norm of the gradients; ValueError if they are all 0."""
    largest = max(map(norm, gradients), default=0.0)
    if largest == 0:
        raise ValueError(
            "all 'gradients' are 0, so nothing can be compared: use another loss or input."
        )
    return largest


def norm(array: np.ndarray) -> float:
    """The Euclidean norm, in float64: in float32 the squares of small numbers are 0."""
    return float(np.linalg.norm(array.astype(np.float64)))


def nan_as_infinity(value: Any) -> float:
    """A difference as a number that is larger than any tolerance if it is NaN."""
    return math.inf if math.isnan(value) else float(value)


def largest_first(differences: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(differences.items(), key=lambda item: -item[1]))


# What is said.


def pools_line(found: Comparison) -> str:
    """The largest gap, and the first call whose gap is not that of a near-tie."""
    if found.gap is None:
        return "pools: none"
    line = f"pools: largest gap {found.gap:.2g}"
    wrong = [number for number, gap in enumerate(found.gaps) if gap > NEAR_TIE]
    if wrong:
        first = wrong[0]
        line += f", first above {NEAR_TIE:.0e} in call {first + 1} ({found.layers[first]})"
    return f"{line}; {sum(found.flips):,} indices differ in {len(found.flips)} calls"


def outputs_line(found: Comparison) -> str:
    """The largest difference, of which output it is, and the outputs that are constant."""
    line = f"outputs: largest difference {found.scores:.2g}"
    if len(found.outputs) > 1:
        line += f" ({next(iter(found.outputs))})"
    if found.constant:
        line += f"; constant: {cut(found.constant)}"
    return line


def gradients_line(found: Comparison) -> str:
    """The largest difference, how many were compared, and the names of the others."""
    count, total = len(found.gradients), len(found.gradients) + len(found.not_compared)
    if not total:
        return "gradients: none"
    line = "gradients: "
    if found.gradients:
        name, worst = next(iter(found.gradients.items()))
        line += f"largest difference {worst:.2g} ({name}); "
    line += f"{count} of {total} compared"
    for reason in ("too small", "not given"):
        names = [name for name, why in found.not_compared.items() if why == reason]
        if names:
            line += f"; {reason}: {cut(names, 3)}"
    return line
