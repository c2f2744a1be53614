"""The names of parameters in MLX and in PyTorch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
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


def without_additions(state: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    """A state dict whose names have no prefix such as ``model.`` and no parts that wrappers insert.

    They are removed if more names then are wanted, so a state dict with all wanted names stays as it is.

    Raises:
        ValueError: If two prefixes or parts would do, or if two names become one.
    """
    known, names, removed = set(wanted), list(state), list[str]()
    bare = [n if n in known else ".".join(p for p in n.split(".") if p not in WRAPPERS) for n in names]
    (count, best), (count_of_bare, best_of_bare) = additions(names, known), additions(bare, known)
    if count_of_bare > count:
        removed = [f"{part}." for part in WRAPPERS if any(part in name.split(".") for name in names)]
        names, best = bare, best_of_bare
    if len(best) > 1:
        both = " and without ".join(repr(addition.lstrip(".")) for addition in sorted(best)[:3])
        raise ValueError(
            f"the names of the weights fit without {both}: pass only the arrays with one of them."
        )
    for addition in best:
        names, removed = [shortened(name, addition) for name in names], [*removed, addition.lstrip(".")]
    often = Counter(names)
    for old, new in zip(state, names):
        if old != new and often[new] > 1 and new in known:
            raise ValueError(f"the weights have both {old!r} and {new!r}: pass only one of them.")
    if removed and removed != ["module."]:  # of DataParallel alone, which everybody expects
        warn(f"Removed {' and '.join(map(repr, removed))} from the names of the weights.")
    return dict(zip(names, state.values()))


def shortened(name: str, addition: str) -> str:
    """A name without a prefix such as ``model.`` or a part such as ``.base.`` (points on both sides)."""
    return name.replace(addition, ".") if addition.startswith(".") else name.removeprefix(addition)


def additions(names: Sequence[str], known: Collection[str]) -> tuple[int, list[str]]:
    """How many of the known names there are without the best prefix or part, and what may be this best one.

    One that a known name has is left out, and so is one that changes names as another one does.
    """
    fitting, found = set(names).intersection(known), dict[str, set[str]]()
    for name in names:
        pieces = name.split(".")
        starts = ["".join(f"{piece}." for piece in pieces[:n]) for n in range(1, len(pieces))]
        inside = [f".{piece}." for piece in pieces[1:-1] if not piece.isdigit()]
        for text in starts + inside:
            if shortened(name, text) in known:
                found.setdefault(text, set(fitting)).add(shortened(name, text))
    usable = [text for text in found if all(shortened(name, text) == name for name in fitting)]
    count = max((len(found[text]) for text in usable), default=len(fitting))
    best = [text for text in usable if len(found[text]) == count > len(fitting)]
    return count, list({tuple(shortened(name, text) for name in names): text for text in best}.values())
