"""Compare a port with its original, and find out whether they differ because of near-ties.

If two values in a window differ only in the last bit, their order can change in another framework. Then the
index is different, and the unpooled value is at another position. With the indices of the other framework, a
correctly ported network gives the same scores up to rounding.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from mlx_unpool import MaxPool1d, MaxPool2d, MaxPool3d, convert_indices
from mlx_unpool._layer import instead_of_pooling
from mlx_unpool._scopes import set_inside

from . import pytorch
from .checkpoints import arrays_of
from .messages import cut

Format = Literal["flat", "tensorflow", "tensorflow_batch", "onnx", "onnx_column_major", "pytorch"]


@contextlib.contextmanager
def pooled_indices(
    feed: Sequence[Any] | None = None,
    *,
    values: bool = False,
    gaps: list[Any] | None = None,
    format: Format = "flat",
) -> Iterator[list[mx.array]]:
    """Return a context manager that records the flat indices of pooling layers and can replace them.

    Only the layers ``MaxPool1d``, ``MaxPool2d`` and ``MaxPool3d`` with ``return_indices=True`` are recorded,
    in the thread or task of the ``with`` block. Not supported: functions such as ``mlx_unpool.max_pool2d``,
    and adaptive and fractional pools.

    Args:
        feed: Indices to return instead: one array per call, in the layer's layout.
        values: Whether the layers also return the values at these indices, so that gradients flow to them.
        gaps: A list to which each call appends a tuple: its layer, how many indices in ``feed`` differ from
            the computed ones, and the largest difference between the maximum of a window and the value at
            the index in ``feed``, divided by the largest absolute value of the layer's input.
        format: The format of ``feed``, a ``source`` of ``convert_indices`` other than ``"window"``.

    Yields the list to which each call appends the indices that it computed.
    """
    found: list[mx.array] = []

    def pooled(layer: Any, x: mx.array, stream: Any) -> Any:
        with set_inside(instead_of_pooling, None):
            if not (isinstance(layer, MaxPool1d | MaxPool2d | MaxPool3d) and layer.return_indices):
                return layer(x, stream=stream)
            flat_layer = copy.copy(layer)
            flat_layer.index_format = "flat"  # as in other frameworks
            maxima, indices = flat_layer(x, stream=stream)
        found.append(indices)
        if feed is None:
            return maxima, indices
        if len(found) > len(feed):
            raise ValueError(
                f"[pooled_indices] 'feed' has {len(feed)} arrays, but there are more calls of layers."
            )
        fed = mx.array(feed[len(found) - 1])
        if fed.shape != indices.shape:
            raise ValueError(
                f"[pooled_indices] 'feed' must have arrays of the shapes of the indices, but call "
                f"{len(found)} got {fed.shape} instead of {indices.shape}."
            )
        last = -1 if layer.data_format == "channels_first" else -2  # spatial axis
        first = last - layer.rank + 1
        if format != "flat":
            size = x.shape[x.ndim + first :][: layer.rank]
            fed = convert_indices(fed, format, "flat", size, data_format=layer.data_format)
        planes, flat = (a.flatten(first, last) for a in (x, fed))
        flat = mx.clip(flat, 0, planes.shape[last] - 1)
        there = mx.take_along_axis(planes, flat, axis=last).reshape(fed.shape)
        there = mx.where(indices < 0, maxima, there)  # a window without an element
        if gaps is not None:
            gap, largest = mx.abs(maxima - there).max(), mx.abs(x).max()
            gaps.append((layer, (fed != indices).sum(), mx.where(gap == 0, 0, gap / largest)))
        return there if values else maxima, fed

    with set_inside(instead_of_pooling, pooled):
        yield found
    if feed is not None and len(found) < len(feed):
        raise ValueError(
            f"[pooled_indices] 'feed' has {len(feed)} arrays, but {len(found)} calls of layers were "
            "recorded. Calls of functions such as mlx_unpool.max_pool2d are not recorded."
        )


@dataclasses.dataclass(repr=False)
class Comparison:
    """How a port differs from its original; see ``compare_port``.

    Attributes:
        layers: The name of the pooling layer of each call.
        flips: How many indices differ, for each call.
        gap: The largest of the ``gaps`` of ``pooled_indices``, or None without any. Near-ties give 1e-6
            or less.
        scores: The largest of the ``outputs``.
        gradients: For each parameter the norm of the difference divided by the norm, largest first.
        outputs: For each output the largest difference, divided by the range of the original's scores
            (maximum - minimum), largest first.
        constant: The outputs without a range; differences are divided by the largest absolute value, or by 1
            if all scores are 0.
    """

    layers: list[str]
    flips: list[int]
    gap: float | None
    scores: float
    gradients: dict[str, float]
    outputs: dict[str, float] = dataclasses.field(default_factory=dict)
    constant: list[str] = dataclasses.field(default_factory=list)

    def __repr__(self) -> str:
        flipped = f"{sum(count > 0 for count in self.flips)} of {len(self.flips)} layers with flips"
        gap = self.gap if self.gap is None else f"{self.gap:.2g}"
        scores = f"{self.scores:.2g}" + f" ({next(iter(self.outputs))})" * (len(self.outputs) > 1)
        scores += f"; constant: {cut(self.constant)}" * bool(self.constant)
        worst = next((f"at most {value:.2g} ({name})" for name, value in self.gradients.items()), "none")
        return f"Comparison({flipped}; gap {gap}; scores {scores}; gradients {worst})"


def compare_port(
    model: nn.Module,
    inputs: Sequence[Any],
    scores: Any,
    indices: Sequence[Any],
    *,
    loss: Callable[[mx.array], mx.array] | None = None,
    gradients: Mapping[str, Any] | None = None,
    format: Format = "flat",
    **options: Any,
) -> Comparison:
    """Compare a port with the results of its original for the same inputs.

    Args:
        model: The port, with the weights and the mode of the original. Its pools are made to return
            ``indices``.
        inputs: The arguments of a call.
        scores: The output of the original, in the layout of the port; a list, tuple or dict of several.
        indices: The original's indices, as ``feed`` of ``pooled_indices``.
        loss: A function of the output; pass it together with ``gradients``.
        gradients: The original's gradients of this loss by parameter name. Gradients that are None, or whose
            norm is below 1e-6 of the largest, are ignored.
        format: The format of ``indices``, such as ``"tensorflow"``.
        **options: ``names``, ``flatten`` and ``unflatten`` of ``pytorch.load_state_dict``.

    Returns:
        A ``Comparison``.
    """
    kinds = [type(value).__name__ for value in inputs if hasattr(value, "shape")]
    if not isinstance(inputs, list | tuple) or set(kinds) - {"array"}:
        got = f"a list with {cut(kinds)}" if isinstance(inputs, list | tuple) else type(inputs).__name__
        raise TypeError(
            f"'inputs' must be a list of the model's arguments, such as [mx.array(x)], but got {got}."
        )
    if (loss is None) != (gradients is None):
        raise ValueError("'loss' and 'gradients' must be given together, or neither.")
    expected = outputs_of(scores)
    feed = list(arrays_of({str(n): array for n, array in enumerate(indices)}).values())
    gaps: list[tuple[nn.Module, mx.array, mx.array]] = []
    with pooled_indices(feed, gaps=gaps, format=format):
        output = outputs_of(model(*inputs))
    for name in output | expected:
        shape, given = (getattr(arrays.get(name), "shape", None) for arrays in (output, expected))
        if shape != given:
            raise ValueError(f"{name!r} must have the shape {shape} but got {given}.")
    ranges = {name: float(np.ptp(value)) for name, value in expected.items()}
    sizes = {name: size or float(np.abs(expected[name]).max()) or 1 for name, size in ranges.items()}
    differences = {name: float(np.abs(output[name] - expected[name]).max()) / sizes[name] for name in sizes}
    outputs = largest_first(differences)
    names = {id(layer): name for name, layer in model.named_modules()}
    layers = [names.get(id(layer), "not in the model") for layer, _, _ in gaps]
    gap = max((float(gap) for *_, gap in gaps), default=None)
    flips, constant = [int(count) for _, count, _ in gaps], [n for n, size in ranges.items() if not size]
    result = Comparison(layers, flips, gap, max(outputs.values()), {}, outputs, constant)
    if loss is None or gradients is None:
        return result
    with pooled_indices(feed, values=True, format=format):
        _, tree = nn.value_and_grad(model, lambda *given: loss(model(*given)))(*inputs)
    ours = pytorch.to_state_dict(model, arrays=tree, **options)
    theirs = arrays_of({n: v for n, v in gradients.items() if v is not None})
    if unknown := [name for name in theirs if name not in ours]:
        raise ValueError(f"no trainable parameter has these 'gradients': {cut(unknown)}.")
    norms = {name: float(np.linalg.norm(value)) for name, value in theirs.items()}
    if not any(norms.values()):
        raise ValueError("all 'gradients' are 0, so nothing can be compared: use another loss or input.")
    result.gradients = largest_first(
        {
            name: float(np.linalg.norm(ours[name] - theirs[name])) / norm
            for name, norm in norms.items()
            if norm >= 1e-6 * max(norms.values())
        }
    )
    return result


def outputs_of(output: Any) -> dict[str, np.ndarray]:
    """The arrays of an output, or of a list, tuple or dict of several, by name."""
    several: Any = tree_flatten(output, ".scores") if isinstance(output, list | tuple | dict) else []
    return arrays_of(dict(several or {"scores": output}))


def largest_first(differences: dict[str, float]) -> dict[str, float]:
    return dict(sorted(differences.items(), key=lambda item: -item[1]))
