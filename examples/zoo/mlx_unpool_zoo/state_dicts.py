"""Find the state dict in a checkpoint, and convert its arrays to NumPy."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from mlx_unpool.porting.arrays import numpy_array
from mlx_unpool.porting.messages import cut, shortened, warn

from .pickles import Foreign, Named
from .torch_files import BFLOAT16, HOW_TO_EXPORT, not_supported

# The keys under which checkpoints store a state dict or a model.
KEYS = (
    "state_dict", "model_state_dict", "model_state", "model", "network", "net", "params", "weights",
)  # fmt: skip
PARTS = ("_parameters", "_buffers", "_modules")  # of a pickled module
LONGEST_NAMES = 10**7  # characters of the names of a model
CHOOSE = "Choose one with --key NAME of the converter or read_state(path, key=NAME); A/B is B in A"


def state_of(checkpoint: Any, key: str | None = None) -> dict[str, Any]:
    """The arrays of the state dict in a checkpoint.

    A checkpoint is a state dict, a whole model, or a dict that contains one of them under one of
    ``KEYS``. Entries of a state dict that are not arrays are ignored with a warning.

    Args:
        checkpoint: The checkpoint.
        key: The key of the state dict, if it is none of ``KEYS``. "A/B" is the entry B of A.

    Raises:
        ValueError: If there is no state dict, several, or tensors in it that are not supported.
    """
    weights = mapping_of(usual_value(checkpoint) if key is None else value_at(checkpoint, key))
    state = {}
    for name, value in weights.items():
        if is_unsupported(value):
            raise ValueError(f"{named(name)!r} is {not_supported(value.kind)}")
        if isinstance(name, str) and hasattr(value, "shape"):
            state[name] = value
    if not state:
        raise ValueError(why_no_arrays(weights))
    if len(state) < len(weights):
        ignored = [named(name) for name in weights if name not in state]
        warn(f"Ignored entries that are not arrays: {cut(ignored)}.")
    return state


def mapping_of(weights: Any) -> Mapping[Any, Any]:
    """The state dict of a model, or a state dict as it is."""
    if isinstance(weights, Foreign):
        return state_of_module(weights)
    if is_model(weights):
        weights = weights.state_dict()
    if not isinstance(weights, Mapping):
        raise ValueError(f"not a state dict but {described(weights)}. {HOW_TO_EXPORT}")
    return weights


def value_at(checkpoint: Any, key: str) -> Any:
    """The part of a checkpoint with a key. "A/B" is the entry B of the entry A."""
    for name in key.split("/"):
        keys = checkpoint if isinstance(checkpoint, Mapping) else {}
        if name not in keys:
            known = cut([named(each) for each in keys]) or "no other"
            raise ValueError(f"there is no key {shortened(name)!r} but {known}. {CHOOSE}.")
        checkpoint = checkpoint[name]
    return checkpoint


def usual_value(checkpoint: Any) -> Any:
    """What a checkpoint has under one of ``KEYS``, or the checkpoint itself."""
    if not isinstance(checkpoint, Mapping):
        return checkpoint
    found = [key for key in KEYS if has_weights(checkpoint.get(key))]
    if not found:
        return checkpoint
    if len(found) > 1:
        raise ValueError(f"the checkpoint has several state dicts, {', '.join(found)}. {CHOOSE}.")
    others = [
        named(key) for key, value in checkpoint.items() if key != found[0] and has_weights(value)
    ]
    if others:
        warn(f"Used {found[0]!r} of the checkpoint, not {cut(others)}. {CHOOSE}.")
    return checkpoint[found[0]]


def has_weights(value: Any) -> bool:
    """Whether a value is a model, or a dict of weights. Those of random generators are integers."""
    if not isinstance(value, Mapping):
        return is_model(value)
    return any(is_weight(item) for item in value.values())


def is_weight(value: Any) -> bool:
    """Whether a value is an array of floats, or one that cannot be read. Scalars can be metrics."""
    is_floating = "float" in str(getattr(value, "dtype", ""))
    return is_unsupported(value) or (is_floating and len(value.shape) > 0)


def is_model(value: Any) -> bool:
    """Whether a value is a model, of a class that is available or not."""
    return is_module(value) or callable(getattr(value, "state_dict", None))


def is_module(value: Any) -> bool:
    """Whether a value is a pickled module whose class is not available."""
    state = value.state if isinstance(value, Foreign) else None
    return isinstance(state, dict) and all(isinstance(state.get(part), dict) for part in PARTS)


def is_unsupported(value: Any) -> bool:
    """Whether a value is a tensor or an array that cannot be read, such as a sparse one."""
    kinds = ("a tensor of", "torch.", "numpy.")
    return isinstance(value, Foreign) and value.kind.startswith(kinds)


def why_no_arrays(checkpoint: Mapping[Any, Any]) -> str:
    """The message for a checkpoint in which no arrays were found."""
    inner = [
        named(key)
        for key, value in checkpoint.items()
        if isinstance(value, Mapping) or is_model(value)
    ]
    if inner:
        return (
            f"the checkpoint has no arrays under the usual keys ({', '.join(KEYS)}) but the keys "
            f"{cut(inner)}. {CHOOSE}."
        )
    kinds = [f"{named(key)!r} is {described(value)}" for key, value in list(checkpoint.items())[:3]]
    return (
        f"a state dict must contain arrays, but {cut(kinds) or 'it is empty'}. No code in a file "
        f"is run to create arrays. {HOW_TO_EXPORT}"
    )


def config_of(checkpoint: Any) -> dict[str, Any]:
    """The configuration of the model in a checkpoint (a dict or YAML), with names in lower case."""
    config = checkpoint.get("config") if isinstance(checkpoint, Mapping) else None
    if isinstance(config, str) and len(config) < 10**5 and "<<" not in config:
        # FastSurfer saves YAML. A few merges ("<<") that each refer to another twice take forever.
        import yaml

        with contextlib.suppress(yaml.YAMLError, RecursionError):
            config = yaml.safe_load(config)
    if isinstance(config, Mapping):
        config = config.get("MODEL", config)
    if not isinstance(config, Mapping):
        return {}
    return {str(name).lower(): value for name, value in config.items()}


# Whole models.


def state_of_module(model: Foreign) -> dict[str, Any]:
    """The state dict of a pickled model whose class is not available."""
    state: dict[str, Any] = {}
    length = 0
    rest: list[tuple[str, Any]] = [("", model)]
    while rest:
        prefix, module = rest.pop()
        arrays, modules = parts_of(module)
        # A module may be in several others. In a small file, each can contain the next one twice.
        length += sum(len(prefix) + len(str(name)) + 1 for name in (*arrays, *modules))
        if length > LONGEST_NAMES:
            raise ValueError(
                "the names in a model must have at most 10 million characters, but these have "
                f"more, or a module contains itself. {HOW_TO_EXPORT}"
            )
        for name, value in arrays.items():
            state[f"{prefix}{name}"] = value
        for name, child in reversed(modules.items()):
            rest.append((f"{prefix}{name}.", child))
    return state


def parts_of(module: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and buffers in the state dict of a pickled module, and its modules."""
    if not is_module(module):
        raise ValueError(f"not a model but {described(module)}. {HOW_TO_EXPORT}")
    arrays, buffers, modules = (without_none(module.state[part]) for part in PARTS)
    not_saved = module.state.get("_non_persistent_buffers_set")  # the items of a set
    for name in not_saved if isinstance(not_saved, list) else []:
        if isinstance(name, str):
            buffers.pop(name, None)
    arrays.update(buffers)
    return arrays, modules


def without_none(entries: dict[str, Any]) -> dict[str, Any]:
    """The parameters, buffers or modules that a module has; None is registered for others."""
    return {name: value for name, value in entries.items() if value is not None}


def named(key: Any) -> str:
    """A key of a checkpoint as text. Those of other types can be nested too deeply for it."""
    if isinstance(key, str | int):
        return shortened(str(key))
    return described(key)


def described(value: Any) -> str:
    """A description of the type of a value."""
    if isinstance(value, Named):
        return shortened(value.kind)
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


# Arrays.


def arrays_of(state: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Tensors and arrays of any framework as NumPy arrays; floating-point ones become float32.

    Views of the same few elements, which a file could contain and which would fill the memory, are
    refused.
    """
    arrays, bases, allowed = {}, set[int](), 10**6
    for name, value in state.items():
        if isinstance(value, np.ndarray) and isinstance(value.base, np.ndarray):  # a view
            if id(value.base) not in bases:
                bases.add(id(value.base))
                allowed += 4 * value.base.nbytes
            allowed -= value.size
        if allowed < 0:
            raise ValueError(f"{name} {value.shape} is expanded from a few stored elements.")
        if isinstance(value, np.ndarray) and value.dtype == BFLOAT16:
            value = (value["bfloat16"].astype(np.uint32) << 16).view(np.float32)
        arrays[name] = numpy_array(name, value)
    return arrays
