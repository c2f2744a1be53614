"""Replacing the max pooling layers of ``mlx.nn`` inside a model."""

from __future__ import annotations

import warnings
from importlib.metadata import version
from typing import Any

import mlx.nn as nn

from ._arguments import short_repr
from .layers import MaxPool1d, MaxPool2d, MaxPool3d

_LAYERS = {nn.MaxPool1d: MaxPool1d, nn.MaxPool2d: MaxPool2d, nn.MaxPool3d: MaxPool3d}


def replace_max_pools(model: nn.Module) -> nn.Module:
    """Replace every ``mlx.nn.MaxPool1d/2d/3d`` inside a model by this library's layer with the same window.

    The model is changed in place. Parameters, other layers and their order stay the same. Pools are found
    in attributes, lists, tuples and dicts, and a shared pool stays shared. Class attributes and pools
    created in ``__call__`` are not replaced. Subclasses of these layers and pools with padding above half
    the window are left in the model, and one ``UserWarning`` lists them. Call this function before
    ``mx.compile``. A replaced model must be exported inside :func:`exporting`, even if that was
    not necessary before.

    Args:
        model (Module): The model, or a single pool.

    Returns:
        Module: The same model, or a new layer if ``model`` is a pool.

    Raises:
        TypeError: If ``model`` is not an ``mlx.nn.Module``.
        RuntimeError: If the installed MLX stores the window of a pool in an unknown way.

    Example:

        >>> import mlx.nn as nn
        >>> import mlx_unpool
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2))
        >>> mlx_unpool.replace_max_pools(model).layers[2]
        MaxPool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0))
    """
    if not isinstance(model, nn.Module):
        got = short_repr(model)
        raise TypeError(f"[replace_max_pools] 'model' must be an mlx.nn.Module but got {got}.")
    seen: dict[int, tuple] = {}  # each object, so that its id is not reused, and its replacement
    left = []

    def replaced(value: Any, path: str) -> Any:
        if not isinstance(value, (dict, list, tuple)) or id(value) in seen:
            return seen.get(id(value), (value, value))[1]
        seen[id(value)] = value, value
        result: Any = value
        try:
            result = _layer_like(value) if isinstance(value, tuple(_LAYERS)) else value
        except ValueError as error:
            left.append(f"{path or 'the model'}: {error}")
        if result is value:
            items = list(value.items() if isinstance(value, dict) else enumerate(value))
            new = {key: replaced(item, f"{path}.{key}".lstrip(".")) for key, item in items}
            changed = {key: new[key] for key, item in items if new[key] is not item}
            if not isinstance(value, tuple):
                for key, item in changed.items():
                    value[key] = item
            elif changed:
                result = getattr(value, "_make", type(value))(new.values())  # or a named tuple
        seen[id(value)] = value, result
        return result

    result = replaced(model, "")
    if left:
        warnings.warn("\n  ".join(["[replace_max_pools] not replaced:", *left]), stacklevel=2)
    return result


def _layer_like(pool: Any) -> nn.Module:
    """The layer with the window of a pool of ``mlx.nn``; ValueError if there is none."""
    kind = type(pool)
    if kind not in _LAYERS:
        raise ValueError(f"{kind.__name__} is a subclass of an mlx.nn pool.")
    try:
        sizes = pool._kernel_size, pool._stride, [before for before, _ in pool._padding]
        window = [list(map(int, size)) for size in sizes]
        same = kind(*window)
    except (AttributeError, TypeError, ValueError) as error:
        message = f"[replace_max_pools] cannot read the window of {kind.__name__} in MLX {version('mlx')}."
        raise RuntimeError(message) from error
    if {**pool, **vars(pool), "_training": True, "_no_grad": set()} != {**same, **vars(same)}:
        raise ValueError(f"attributes of this {kind.__name__} were changed.")
    return _LAYERS[kind](*window).train(pool.training)
