"""Compare a port with its original, and find out whether they differ because of near-ties.

If two values in a window differ only in the last bit, their order can change in another framework. Then the
index is different, and the unpooled value is at another position. With the indices of the other framework, a
correctly ported network gives the same scores up to rounding.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from .arrays import numpy_array, numpy_arrays
from .messages import cut, warn
from .names import Names
from .pools import Format, PoolCall, each_call, pooled_indices
from .translation import Shapes, Translation

# Gradients below this part of the largest one are rounding noise, such as that of a bias before BatchNorm.
SMALLEST = 1e-6
# Larger differences of a gradient are not rounding.
MISTAKE = 0.1


@dataclasses.dataclass(repr=False)
class Comparison:
    """How a port differs from its original; see ``compare_port``.

    Attributes:
        layers: The name of the pooling layer of each call.
        flips: How many indices differ, for each call.
        gap: The largest difference between the maximum of a window and the value at the original's index,
            divided by the largest absolute value of the pool's input, or None without pools. Near-ties give
            1e-6 or less.
        outputs: For each output the largest difference, divided by the original's largest absolute score (by
            1 if all are 0), largest first. A correct port gives 1e-5 or less.
        constant: The outputs whose scores are all the same, which show little.
        gradients: For each compared parameter the norm of the difference divided by the norm, largest first.
        not_compared: Why there is no difference for the other parameters: ``"too small"``, below 1e-6 of the
            largest in both models, or ``"not given"``.
    """

    layers: list[str]
    flips: list[int]
    gap: float | None
    outputs: dict[str, float]
    constant: list[str]
    gradients: dict[str, float] = dataclasses.field(default_factory=dict)
    not_compared: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def scores(self) -> float:
        """The largest of the ``outputs``."""
        return max(self.outputs.values())

    def __repr__(self) -> str:
        parts = [self._pools(), self._scores(), self._gradients()]
        return f"Comparison({'; '.join(parts)})"

    def _pools(self) -> str:
        flipped = sum(count > 0 for count in self.flips)
        gap = "None" if self.gap is None else f"{self.gap:.2g}"
        return f"{flipped} of {len(self.flips)} layers with flips; gap {gap}"

    def _scores(self) -> str:
        said = f"scores {self.scores:.2g}"
        if len(self.outputs) > 1:
            said += f" ({next(iter(self.outputs))})"
        if self.constant:
            said += f"; constant: {cut(self.constant)}"
        return said

    def _gradients(self) -> str:
        if not self.gradients:
            return "gradients none"
        name, worst = next(iter(self.gradients.items()))
        said = f"gradients at most {worst:.2g} ({name})"
        count = len(self.gradients)
        said += f", {count} of {count + len(self.not_compared)} compared"
        for reason in ("too small", "not given"):
            names = [name for name, why in self.not_compared.items() if why == reason]
            if names:
                said += f"; {reason}: {cut(names, 3)}"
        return said


def compare_port(
    model: nn.Module,
    inputs: Sequence[Any],
    scores: Any,
    indices: Sequence[Any],
    *,
    loss: Callable[[Any], mx.array] | None = None,
    gradients: Mapping[str, Any] | None = None,
    format: Format = "flat",
    names: Names | None = None,
    flatten: Shapes | None = None,
    unflatten: Shapes | None = None,
) -> Comparison:
    """Compare a port with the results of its original for the same inputs.

    Args:
        model: The port, with the weights and the mode of the original. Its pools are made to return
            ``indices``.
        inputs: The arguments of a call.
        scores: The output of the original, in the layout of the port; a list, tuple or dict of several.
        indices: The original's indices, as ``feed`` of ``pooled_indices``.
        loss: A function of the output; pass it together with ``gradients``.
        gradients: The original's gradients of this loss by parameter name. Those that are None are not
            compared.
        format: The format of ``indices``, such as ``"tensorflow"``.
        names, flatten, unflatten: As for ``load_state_dict``, whose result has them: pass
            ``**report.options``. Only gradients need them.

    Returns:
        A ``Comparison``.

    Example:
        >>> layer, x = nn.Linear(2, 3), mx.ones((1, 2))
        >>> compare_port(layer, [x], layer(x), indices=[])
        Comparison(0 of 0 layers with flips; gap None; scores 0; gradients none)

    See also: ``load_state_dict``; ``pooled_indices``.
    """
    check_arguments(inputs, loss, gradients)
    feed = [numpy_array(f"indices[{number}]", array) for number, array in enumerate(indices)]
    calls, output = run(model, inputs, feed, format)
    expected = outputs_of(scores)
    check_shapes(output, expected)
    found = Comparison(
        layers=layer_names(model, calls),
        flips=[int(call.flips) for call in calls],
        gap=max((float(call.gap) for call in calls), default=None),
        outputs=largest_first({name: score_difference(output[name], expected[name]) for name in expected}),
        constant=[name for name, array in expected.items() if is_constant(array)],
    )
    if loss is not None and gradients is not None:
        translation = Translation(model, names, flatten, unflatten)
        ours = run_backward(model, inputs, loss, feed, format)
        found.gradients, found.not_compared = compare_gradients(translation, ours, gradients)
    return found


def check_arguments(inputs: Any, loss: Any, gradients: Any) -> None:
    """Check those arguments of ``compare_port`` whose mistakes would be hard to explain later."""
    if not isinstance(inputs, list | tuple):
        got = type(inputs).__name__
    else:
        kinds = [type(value).__name__ for value in inputs if hasattr(value, "shape")]
        got = f"a list with {cut(kinds)}" if set(kinds) - {"array"} else ""
    if got:
        raise TypeError(
            f"'inputs' must be a list of the model's arguments, such as [mx.array(x)], but got {got}."
        )
    if (loss is None) != (gradients is None):
        raise ValueError("'loss' and 'gradients' must be given together, or neither.")


# What is run.


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
    several: Any = tree_flatten(output, ".scores") if isinstance(output, list | tuple | dict) else []
    return numpy_arrays(dict(several or {"scores": output}))


def layer_names(model: nn.Module, calls: Sequence[PoolCall]) -> list[str]:
    """The name in the model of the layer of each call."""
    names = {id(layer): name for name, layer in model.named_modules()}
    return [names.get(id(call.layer), "not in the model") for call in calls]


# What is compared.


def check_shapes(output: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError if the outputs of the port and of the original are not of the same shapes."""
    for name in [*output, *expected]:
        shape, given = (getattr(arrays.get(name), "shape", None) for arrays in (output, expected))
        if shape != given:
            raise ValueError(f"{name!r} must have the shape {shape} but got {given}.")


def score_difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference, divided by the largest absolute value of the original; infinite for a NaN.

    Not divided by the range: float32 rounds in proportion to the values, so scores from 0.20 to 0.22 of a
    correct port differ by as much as scores from 0 to 0.22.
    """
    with np.errstate(invalid="ignore"):  # infinity - infinity
        difference = np.abs(np.subtract(ours, theirs, dtype=np.result_type(ours, theirs, np.float32)))
    difference[ours == theirs] = 0
    largest = np.abs(theirs[np.isfinite(theirs)]).max(initial=0)
    return nan_as_infinity(difference.max(initial=0) / (largest or 1))


def is_constant(array: np.ndarray) -> bool:
    return bool(np.all(array == array.reshape(-1)[:1]))


def compare_gradients(
    translation: Translation, ours: Mapping[str, mx.array], given: Mapping[str, Any]
) -> tuple[dict[str, float], dict[str, str]]:
    """The differences of gradients, and why the others are not compared.

    ``ours`` has the MLX names of the port, ``given`` the PyTorch names of the original.
    """
    theirs = numpy_arrays({name: value for name, value in given.items() if value is not None})
    check_names(theirs, [key for name in ours for key in translation.names(name)])
    smallest = SMALLEST * largest_norm(theirs)
    differences: dict[str, float] = {}
    not_compared: dict[str, str] = {}
    for name, array in ours.items():
        keys = translation.names(name)
        key = next((key for key in keys if key in theirs), None)  # PyTorch lists shared parameters once
        if key is None:
            not_compared[keys[0]] = "not given"
            continue
        gradient, expected = translation.to_pytorch(name, array), theirs[key]
        if gradient.shape != expected.shape:
            raise ValueError(
                f"gradient {key!r} must have the shape {gradient.shape} but got {expected.shape}."
            )
        if max(norm(gradient), norm(expected)) < smallest:
            not_compared[key] = "too small"
            continue
        differences[key] = gradient_difference(gradient, expected, smallest)
        if differences[key] > MISTAKE:
            warn_about_order(key, gradient, expected)
    return largest_first(differences), not_compared


def gradient_difference(ours: np.ndarray, theirs: np.ndarray, smallest: float) -> float:
    """The norm of the difference, divided by the norm of the original; infinite for a NaN.

    If only the original's norm is below ``smallest``, the result is large, not infinite.
    """
    return nan_as_infinity(norm(ours - theirs) / max(norm(theirs), smallest))


def check_names(gradients: Mapping[str, np.ndarray], known: Sequence[str]) -> None:
    """Raise ValueError if there is a gradient without a parameter."""
    if unknown := [name for name in gradients if name not in known]:
        raise ValueError(f"no trainable parameter has these 'gradients': {cut(unknown)}.")


def largest_norm(gradients: Mapping[str, np.ndarray]) -> float:
    """The largest norm of the gradients; ValueError if they are all 0."""
    largest = max(map(norm, gradients.values()), default=0.0)
    if largest == 0:
        raise ValueError("all 'gradients' are 0, so nothing can be compared: use another loss or input.")
    return largest


def warn_about_order(name: str, ours: np.ndarray, theirs: np.ndarray) -> None:
    """Warn if a matrix has the columns or the rows of another one in another order."""
    if ours.ndim != 2:
        return
    for axis, kind, option in ((1, "columns", "flatten"), (0, "rows", "unflatten")):
        # Such a matrix has the same values in each row, or in each column.
        tolerance = 1e-3 * np.abs(theirs).max()
        if np.allclose(np.sort(ours, axis), np.sort(theirs, axis), rtol=0, atol=tolerance):
            warn(
                f"The gradient of {name!r} has the {kind} of the original in another order. If you loaded "
                f"the weights with {option!r}, pass it to compare_port as well, as **report.options."
            )


def norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array))


def nan_as_infinity(value: Any) -> float:
    """A difference as a number that is larger than any tolerance if it is NaN."""
    return math.inf if math.isnan(value) else float(value)


def largest_first(differences: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(differences.items(), key=lambda item: -item[1]))
