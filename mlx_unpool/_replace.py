"""Replacing the max pooling layers of ``mlx.nn`` inside a model."""

from __future__ import annotations

import operator
import warnings
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import mlx.nn as nn

from . import _arguments as arguments
from ._layer import PoolingLayer
from .pooling import MaxPool1d, MaxPool2d, MaxPool3d

M = TypeVar("M", bound=nn.Module)
_LAYERS: dict[type, type] = {
    nn.MaxPool1d: MaxPool1d,
    nn.MaxPool2d: MaxPool2d,
    nn.MaxPool3d: MaxPool3d,
}


def replace_max_pools(model: M) -> M:
    """Replace every ``mlx.nn.MaxPool1d/2d/3d`` in a model with this library's equivalent layer.

    The model is changed in place. Parameters, other layers and their order stay the same. Pools are
    found in attributes, lists, tuples and dicts, and a shared pool stays shared. Class attributes
    and pools created in ``__call__`` are not replaced. A ``UserWarning`` lists pools that are not
    replaced: subclasses of these layers, pools with padding of the length of the window or more,
    pools with padding only after the axes (set by hand; ``mlx.nn`` does not apply it), pools whose
    attributes were added or changed, and pools in a subclass of ``tuple`` other than a named tuple.
    A model without any pool also gives a ``UserWarning``.

    Call this function before ``mx.compile``. Afterwards, export the model inside ``exporting``.

    Args:
        model (Module): The model, or a single pool.

    Returns:
        Module: The same model, or a new layer if ``model`` is a pool.

    Raises:
        RuntimeError: If the installed MLX stores the window of a pool in an unknown way. Pools
            found earlier are already replaced.

    Example:
        >>> import mlx.nn as nn
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2))
        >>> mlx_unpool.replace_max_pools(model).layers[2]
        MaxPool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0), return_indices=False)

    See also: ``MaxPool2d``, ``exporting``.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            arguments.message("replace_max_pools", "model", "be an mlx.nn.Module", model)
        )
    found = _Found({}, [], [])
    result = found.replaced(model, "")
    while found.pending:
        value, path = found.pending.pop(0)
        for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
            new = found.replaced(item, f"{path}.{key}".lstrip("."))
            if new is not item:
                value[key] = new
    if found.left:
        warnings.warn("\n  ".join(["[replace_max_pools] not replaced:", *found.left]), stacklevel=2)
    elif not any(isinstance(value, (*_LAYERS, PoolingLayer)) for value, _ in found.seen.values()):
        message = "'model' contains no max pooling layer; those created in __call__ are not found."
        warnings.warn(f"[replace_max_pools] {message}", stacklevel=2)
    return result


class _Found(NamedTuple):
    """What was found in a model."""

    seen: dict[int, tuple]  # each object, so that its id is not reused, and its replacement
    pending: list[tuple[Any, str]]  # dicts and lists with items still to be replaced; paths
    left: list[str]  # a line of the warning for each pool or tuple that is not replaced

    def replaced(self, value: Any, path: str) -> Any:
        """The replacement of a pool or of a tuple that contains one; any other object itself."""
        if id(value) not in self.seen:
            self.seen[id(value)] = value, value
            if isinstance(value, (dict, list)):
                self.pending.append((value, path))
            try:
                self.seen[id(value)] = value, self._like(value, path)
            except ValueError as error:
                self.left.append(f"{path or 'the model'}: {error}")
        return self.seen[id(value)][1]

    def _like(self, value: Any, path: str) -> Any:
        if isinstance(value, tuple(_LAYERS)):
            return _layer_like(value)
        if isinstance(value, tuple):
            items = [self.replaced(item, f"{path}.{n}") for n, item in enumerate(value)]
            if any(map(operator.is_not, items, value)):
                kind = type(value)
                if kind is not tuple and not hasattr(kind, "_make"):  # of a named tuple
                    raise ValueError(f"{kind.__name__} is a subclass of tuple.")
                return getattr(kind, "_make", kind)(items)
        return value


def _layer_like(pool: Any) -> nn.Module:
    """The layer with the window of a pool of ``mlx.nn``; ValueError if there is none."""
    kind = type(pool)
    if kind not in _LAYERS:
        raise ValueError(f"{kind.__name__} is a subclass of an mlx.nn pool.")
    try:
        kernel, stride = (list(map(int, sizes)) for sizes in (pool._kernel_size, pool._stride))
        before, after = zip(*(map(int, sides) for sides in pool._padding))
        same = kind(kernel, stride)
    except (AttributeError, TypeError, ValueError) as error:
        from importlib.metadata import version  # slow to import

        where = f"{kind.__name__} in MLX {version('mlx')}"
        message = f"[replace_max_pools] cannot read the window of {where}."
        raise RuntimeError(message) from error
    attributes = {**pool, **vars(pool), "_training": True, "_no_grad": set()}
    changed = True
    with suppress(ValueError):  # an attribute that is an array has no truth value
        changed = attributes != {**same, **vars(same), "_padding": pool._padding}
    if changed:
        raise ValueError(f"attributes of this {kind.__name__} were changed.")
    if any(after) and not any(before):
        raise ValueError(
            f"padding {[*zip(before, after)]} is only after the axes: mlx.nn does not apply it."
        )
    padding = [p if p == q else (p, q) for p, q in zip(before, after)]
    return _LAYERS[kind](kernel, stride, padding).train(pool.training)
