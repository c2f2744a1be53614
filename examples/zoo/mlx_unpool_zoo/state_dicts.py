"""Find the state dict in a checkpoint, and convert its arrays to NumPy."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from mlx_unpool.porting.arrays import numpy_array
from mlx_unpool.porting.messages import cut, shortened, warn

from .pickles import AS_FLOAT32, BFLOAT16, Foreign
from .torch_files import HOW_TO_EXPORT

# The keys under which checkpoints store a state dict or a model; the first of them that exists is used.
KEYS = ("state_dict", "model_state_dict", "model_state", "model", "network", "net", "params", "weights")
DEPTH = 4  # of checkpoints in checkpoints; a dict can contain itself
LONGEST_NAMES = 10**7  # characters of the names of a model


def state_of(checkpoint: Any) -> dict[str, Any]:
    """The arrays of the state dict in a checkpoint.

    A checkpoint is a state dict, a whole model, or a dict that contains either under one of ``KEYS``. Entries
    that are not arrays, such as ``_extra_state``, are ignored with a warning, which also names other state
    dicts beside it.
    """
    state, ignored = split_state(checkpoint)
    if ignored:
        warn(f"Ignored entries that are not arrays: {cut(ignored)}.")
    return state


def split_state(checkpoint: Any) -> tuple[dict[str, Any], list[str]]:
    """The arrays of the state dict in a checkpoint, and the names of its other entries."""
    weights = weights_in(checkpoint)
    if isinstance(weights, Foreign):
        weights = state_of_foreign(weights)
    elif is_model(weights):
        weights = weights.state_dict()
    if not isinstance(weights, Mapping):
        raise ValueError(f"not a state dict but {described(weights)}. {HOW_TO_EXPORT}")
    state, ignored = {}, []
    for name, value in weights.items():
        if is_unsupported_tensor(value):
            raise ValueError(f"{named(name)!r} is {value.kind}, which is not supported. {AS_FLOAT32}")
        if not hasattr(value, "shape"):
            ignored.append(named(name))
        elif isinstance(name, str):
            state[name] = value
    if not state:
        raise ValueError(why_no_arrays(weights))
    return state, ignored


def weights_in(checkpoint: Any) -> Any:
    """What a checkpoint has under the first of ``KEYS``, or the checkpoint itself."""
    for _ in range(DEPTH):
        keys = [key for key in KEYS if contains_weights(checkpoint, key)]
        if not keys:
            break
        others = [key for key in checkpoint if key != keys[0] and has_arrays(checkpoint[key])]
        if others:
            unused = cut([repr(named(key)) for key in others])
            hint = "to use another one, see --key of the converter, or pass checkpoint[KEY]"
            warn(f"Used {keys[0]!r} of the checkpoint, not {unused}; {hint}.")
        checkpoint = checkpoint[keys[0]]
    return checkpoint


def contains_weights(checkpoint: Any, key: str) -> bool:
    """Whether a checkpoint has a model, or a dict that is not empty, under a key."""
    if not isinstance(checkpoint, Mapping) or key not in checkpoint:
        return False
    value = checkpoint[key]
    return is_model(value) or (isinstance(value, Mapping) and len(value) > 0)


def has_arrays(value: Any) -> bool:
    """Whether a value is a dict of floating-point arrays; those of random generators are integers."""
    if not isinstance(value, Mapping):
        return False
    arrays = [item for item in value.values() if "float" in str(getattr(item, "dtype", ""))]
    return any(len(array.shape) > 0 for array in arrays)


def is_model(value: Any) -> bool:
    """Whether a value is a model, of a class that is available or not."""
    if isinstance(value, Foreign):
        return isinstance(value.state, dict) and "_parameters" in value.state
    return callable(getattr(value, "state_dict", None))


def is_unsupported_tensor(value: Any) -> bool:
    """Whether a value is a tensor in a file whose kind cannot be read, such as a quantized or sparse one."""
    return isinstance(value, Foreign) and value.kind.startswith(("a tensor of", "torch._utils._rebuild_"))


def why_no_arrays(checkpoint: Mapping[Any, Any]) -> str:
    """The message for a checkpoint in which no arrays were found."""
    inner = [key for key, value in checkpoint.items() if isinstance(value, Mapping) or is_model(value)]
    if inner:
        keys = cut([repr(named(key)) for key in inner])
        return (
            f"the checkpoint has no arrays under the usual keys ({', '.join(KEYS)}). Choose one of {keys}: "
            "--key NAME of the converter, or read_checkpoint(path)[NAME]."
        )
    kinds = [f"{named(key)!r} is {described(value)}" for key, value in list(checkpoint.items())[:3]]
    return (
        f"a state dict must contain arrays, but {cut(kinds) or 'it is empty'}. No code in a file is run to "
        f"create arrays. {HOW_TO_EXPORT}"
    )


def config_of(checkpoint: Any) -> dict[str, Any]:
    """The configuration of the model in a checkpoint (a dict or YAML), with names in lower case."""
    config = checkpoint.get("config") if isinstance(checkpoint, Mapping) else None
    if isinstance(config, str) and len(config) < 10**5 and "<<" not in config:  # as FastSurfer saves it;
        # without merges, because a few that each refer twice to another take forever
        import yaml

        with contextlib.suppress(yaml.YAMLError, RecursionError):
            config = yaml.safe_load(config)
    if isinstance(config, Mapping):
        config = config.get("MODEL", config)
    return {str(n).lower(): v for n, v in config.items()} if isinstance(config, Mapping) else {}


# Whole models.


def state_of_foreign(model: Foreign) -> dict[str, Any]:
    """The state dict of a pickled model whose class is not available."""
    state: dict[str, Any] = {}
    length = 0
    rest: list[tuple[str, Any]] = [("", model)]
    while rest:
        prefix, module = rest.pop()
        arrays, modules, not_saved = parts_of(module)
        # A module may be in several others, but in a small file one can be twice in the next one, on and on.
        length += sum(len(prefix) + len(str(name)) + 1 for name in (*arrays, *modules, *not_saved))
        if length > LONGEST_NAMES:
            raise ValueError(
                "the names in a model must have at most 10 million characters, but these have more, or a "
                f"module contains itself. {HOW_TO_EXPORT}"
            )
        for name, value in arrays.items():
            if value is not None and name not in not_saved:
                state[f"{prefix}{name}"] = value
        for name, child in reversed(modules.items()):
            if child is not None:
                rest.append((f"{prefix}{name}.", child))
    return state


def parts_of(module: Any) -> tuple[dict[str, Any], dict[str, Any], set[str]]:
    """The parameters and buffers of a pickled module, its modules, and the names that are not saved."""
    state = getattr(module, "state", None)
    if not isinstance(state, dict):
        raise ValueError(f"not a model but {described(module)}. {HOW_TO_EXPORT}")
    parts: list[Any] = [state.get(kind) for kind in ("_parameters", "_buffers", "_modules")]
    if not all(isinstance(part, dict) for part in parts):
        raise ValueError(f"not a model but {described(module)}. {HOW_TO_EXPORT}")
    parameters, buffers, modules = parts
    names = state.get("_non_persistent_buffers_set")
    not_saved = {n for n in names if isinstance(n, str)} if isinstance(names, set | list) else set()
    return parameters | buffers, modules, not_saved - {*parameters}


def named(key: Any) -> str:
    """A key of a checkpoint as text. Those of other types can be nested too deeply for it."""
    if isinstance(key, str | int):
        return shortened(str(key))
    return described(key)


def described(value: Any) -> str:
    """A description of the type of a value."""
    if isinstance(value, Foreign):
        return shortened(value.kind)
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


# Arrays.


def arrays_of(state: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Tensors and arrays of any framework as NumPy arrays; floating-point ones become float32.

    Views of the same few elements that would fill the memory, as a file could contain them, are refused.
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
