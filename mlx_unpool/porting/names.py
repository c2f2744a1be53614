"""The names of parameters in MLX and in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import mlx.nn as nn

from .messages import cut, warn

# Maps the name of a parameter in MLX to its names in the state dict.
Names = Callable[[str], tuple[str, ...]]
# What DataParallel, torch.compile, FSDP and checkpointing add to names, anywhere in them.
WRAPPERS = ("_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_orig_mod", "module")


def sequential_names(model: nn.Module) -> Names:
    """Maps MLX names to PyTorch's, which have no ``layers`` between an ``nn.Sequential`` and its layers."""

    def names(name: str) -> tuple[str, ...]:
        steps = zip(name.split("."), modules_of(model, name))
        kept = [
            part for part, module in steps if not (part == "layers" and isinstance(module, nn.Sequential))
        ]
        return (".".join(kept),)

    return names


def modules_of(model: nn.Module, name: str) -> list[Any]:
    """The modules and lists that contain a parameter, from the model inwards, and the parameter."""
    found: list[Any] = [model]
    for part in name.split("."):
        found.append(found[-1][int(part) if isinstance(found[-1], list) else part])
    return found


def underscore_hint(names: Sequence[str]) -> str:
    """What to do about names with a part that begins with an underscore, if there are any."""
    parts = [part for name in names for part in name.split(".") if part.startswith("_")]
    if not parts:
        return ""
    return (
        f" MLX ignores attributes whose names begin with an underscore, such as {cut([parts[0]])!r}: name "
        f"the layer {cut([parts[0].lstrip('_')])!r} and pass 'names'."
    )


def without_prefixes(state: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    """A state dict whose names have no parts of wrappers, and not the prefix before the first wanted name.

    A state dict with all wanted names stays as it is.

    Raises:
        ValueError: If there are several such prefixes, or if two names become one.
    """
    if state.keys() >= set(wanted):
        return dict(state)
    wrappers = wrappers_in(state, wanted)
    bare = [without_parts(name, wrappers) for name in state]
    prefix = prefix_before(wanted[0], bare)
    names = [name.removeprefix(prefix) for name in bare]
    check_unique(dict(zip(state, names)))
    removed = [f"{part}." for part in wrappers]
    if prefix:
        removed.append(prefix)
    if removed and removed != ["module."]:  # of DataParallel alone, which everybody expects
        warn(f"Removed {' and '.join(map(repr, removed))} from the names of the weights.")
    return dict(zip(names, state.values()))


def wrappers_in(names: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """The wrappers that are parts of names, but of no wanted one."""
    parts, wanted_parts = ".".join(names).split("."), ".".join(wanted).split(".")
    return [part for part in WRAPPERS if part in parts and part not in wanted_parts]


def without_parts(name: str, parts: Sequence[str]) -> str:
    """A name such as ``module.encoder.weight`` without some of the parts between its points."""
    return ".".join(part for part in name.split(".") if part not in parts)


def prefix_before(wanted: str, names: Sequence[str]) -> str:
    """What is before a wanted name, such as ``model.``; "" if the name itself is there, or none ends so."""
    if wanted in names:
        return ""
    prefixes = [name.removesuffix(wanted) for name in names if name.endswith(f".{wanted}")]
    if len(prefixes) > 1:
        both = cut([repr(prefix) for prefix in sorted(prefixes)], 3, " and without ")
        raise ValueError(
            f"the names of the weights fit without {both}: pass only the arrays with one of them."
        )
    return prefixes[0] if prefixes else ""


def check_unique(names: Mapping[str, str]) -> None:
    """Raise ValueError if two old names have the same new name."""
    old_names: dict[str, str] = {}
    for old, new in names.items():
        if new in old_names:
            both = cut([repr(old_names[new]), repr(old)], separator=" and ")
            raise ValueError(f"the weights have both {both}: pass only one of them.")
        old_names[new] = old
