"""Replacing the max pooling layers of ``mlx.nn`` inside a model."""

from __future__ import annotations

import warnings
from importlib.metadata import version
from typing import Any

import mlx.nn as nn

from ._arguments import short_repr
from .layers import MaxPool1d, MaxPool2d, MaxPool3d, _Pool

_LAYERS = {nn.MaxPool1d: MaxPool1d, nn.MaxPool2d: MaxPool2d, nn.MaxPool3d: MaxPool3d}


def replace_max_pools(model: nn.Module) -> nn.Module:
    """Replace every ``mlx.nn.MaxPool1d/2d/3d`` inside a model by this library's layer with the same window.

    The model is changed in place. Parameters, other layers and their order stay the same. Pools are found
    in attributes, lists, tuples and dicts, and a shared pool stays shared. Class attributes and pools
    created in ``__call__`` are not replaced. Subclasses of these layers, pools with padding above half the
    window, and pools in a subclass of ``tuple`` other than a named tuple are left in the model, and one
    ``UserWarning`` lists them. A model without any pool also gives a ``UserWarning``. Call this function
    before ``mx.compile``. A replaced model must be exported inside :func:`exporting`, even if that was not
    necessary before.

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
    left: list[str] = []
    pending: list[tuple[Any, str, bool]] = [(model, "", False)]  # and whether its items are done
    while pending:
        value, path, is_done = pending.pop()
        if is_done:
            seen[id(value)] = value, _with_items(value, path, seen, left)
        elif isinstance(value, (dict, list, tuple)) and id(value) not in seen:
            seen[id(value)] = value, value
            try:
                if isinstance(value, tuple(_LAYERS)):
                    seen[id(value)] = value, _layer_like(value)
                    continue
            except ValueError as error:
                left.append(f"{path or 'the model'}: {error}")
            pending.append((value, path, True))
            items = [(item, f"{path}.{key}".lstrip("."), False) for key, item in _items(value)]
            pending.extend(reversed(items))
    if left:
        warnings.warn("\n  ".join(["[replace_max_pools] not replaced:", *left]), stacklevel=2)
    elif not any(isinstance(value, (*_LAYERS, _Pool)) for value, _ in seen.values()):
        warnings.warn(
            "[replace_max_pools] 'model' has no max pooling layer. A layer that is created in __call__, or a "
            "class attribute, is not found.",
            stacklevel=2,
        )
    return seen[id(model)][1]


def _items(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items() if isinstance(value, dict) else enumerate(value))


def _with_items(value: Any, path: str, seen: dict[int, tuple], left: list[str]) -> Any:
    """A container with its items replaced: the same one or, for a tuple, a new one."""
    kind = type(value)
    new = {key: seen.get(id(item), (item, item))[1] for key, item in _items(value)}
    changed = [key for key, item in _items(value) if new[key] is not item]
    if not isinstance(value, tuple):
        for key in changed:
            value[key] = new[key]
    elif changed and (kind is tuple or hasattr(kind, "_make")):  # or a named tuple
        return getattr(kind, "_make", kind)(new.values())
    elif changed:
        left.append(f"{path}: {kind.__name__} is a subclass of tuple.")
    return value


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
