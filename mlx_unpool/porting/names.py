"""The names of weights in a state dict: what others add to them, and why they are not found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .messages import cut, warn

# What DataParallel, torch.compile, FSDP and checkpointing add to names, anywhere in them.
WRAPPERS = ("_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_orig_mod", "module")


def without_prefixes(state: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    """A state dict without what wrappers and trainers add to the names of a model's weights.

    If a wanted name is missing, the parts in ``WRAPPERS`` that no wanted name has are removed, and
    then one prefix, such as Lightning's ``model.``, with which all wanted names are there. Names
    without this prefix stay as they are.

    Raises:
        ValueError: If there are several such prefixes, or if two names become one.
    """
    if state.keys() >= set(wanted):
        return dict(state)
    wrappers = wrappers_in(state, wanted)
    bare = [without_parts(name, wrappers) for name in state]
    prefix = prefix_of_all(bare, wanted)
    names = [name.removeprefix(prefix) for name in bare]
    check_unique(state, names)
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


def prefixes_before(wanted: str, names: Iterable[str]) -> list[str]:
    """What names have before a wanted name, such as ``model.``."""
    return [name.removesuffix(wanted) for name in names if name.endswith(f".{wanted}")]


def prefix_of_all(names: Sequence[str], wanted: Sequence[str]) -> str:
    """The prefix with which all wanted names are among the names; "" if there is none."""
    present = set(names)
    if present.issuperset(wanted):
        return ""
    prefixes = [
        prefix
        for prefix in prefixes_before(wanted[0], names)
        if present.issuperset(prefix + name for name in wanted)
    ]
    if len(prefixes) > 1:
        both = cut([repr(prefix) for prefix in sorted(prefixes)], 3, " and without ")
        raise ValueError(
            f"the names of the weights fit without {both}: pass only the arrays with one of them."
        )
    return prefixes[0] if prefixes else ""


def check_unique(old_names: Iterable[str], new_names: Iterable[str]) -> None:
    """Raise ValueError if two old names have the same new name."""
    seen: dict[str, str] = {}
    for old, new in zip(old_names, new_names):
        if new in seen:
            both = cut([repr(seen[new]), repr(old)], separator=" and ")
            raise ValueError(f"the weights have both {both}: pass only one of them.")
        seen[new] = old


def hint_on_names(unused: Sequence[str], missing: Sequence[str]) -> str:
    """A sentence on what to do about unused and missing names, or ""."""
    for name in missing:
        for prefix in prefixes_before(name, unused):
            return (
                f"A prefix is removed only if all names of the model are there with it. To remove "
                f"{cut([prefix])!r} anyway, pass {{name.removeprefix({cut([prefix])!r}): value for "
                "name, value in state_dict.items()}."
            )
    for part in ".".join(unused).split("."):
        if part.startswith("_"):
            return (
                "MLX ignores attributes whose names begin with an underscore, such as "
                f"{cut([part])!r}: name the layer {cut([part.lstrip('_')])!r} and pass 'names'."
            )
    return ""
