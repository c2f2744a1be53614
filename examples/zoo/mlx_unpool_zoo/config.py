"""Read ``config.json``: every error names the file, the key and what is allowed."""

from __future__ import annotations

import collections.abc
import inspect
import json
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import cut, first_line

NUM_CLASSES = "num_classes"
# Other spellings of arguments in the authors' configurations.
ALIASES = {"classes": NUM_CLASSES, "num_class": NUM_CLASSES, "n_classes": NUM_CLASSES}
PLANES = ("axial", "coronal", "sagittal")
LARGEST = 2**16  # largest size in a configuration
LONGEST = 64  # most elements of a list in a configuration
KINDS = {
    str: "a string",
    int: f"an integer from 1 to {LARGEST:,}",
    float: "a number",
    bool: "a boolean",
}


def with_one_spelling(arguments: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Arguments in the spelling of this package.

    Raises:
        TypeError: If an argument is given in two spellings.
    """
    renamed: dict[str, Any] = {}
    for name, value in arguments.items():
        usual = ALIASES.get(name, name)
        if usual in renamed:
            raise TypeError(f"[{owner}] {usual!r} must be given once, but got {name!r} as well.")
        renamed[usual] = value
    return renamed


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(
            f"{path} must contain a JSON object, but it is nested too deeply."
        ) from None
    except ValueError as error:  # not JSON or not UTF-8
        raise ValueError(f"{path} must contain a JSON object: {first_line(error)}.") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must contain a JSON object, but got {shown(content)}.")
    return content


def arguments_of(cls: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a model's constructor."""
    return dict(list(inspect.signature(cls.__init__).parameters.items())[1:])


def check_arguments(cls: Any, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Arguments for a model, in the spelling of this package, with their types checked.

    Entries of the authors' configurations that do not affect the model are dropped.

    Args:
        cls: The class of the model.
        given: The arguments by name.
        where: The start of error messages.
    """
    known, hints = arguments_of(cls), typing.get_type_hints(cls.__init__)
    try:
        renamed = with_one_spelling(given, cls.__name__)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None
    arguments = {}
    for name, value in renamed.items():
        if name in known:
            if not fits(value, hints[name]):
                raise ValueError(
                    f"{where}: {name!r} of {cls.model_type} must be {kind(hints[name])}, "
                    f"but got {shown(value)}."
                )
            arguments[name] = value
        elif name not in cls.without_effect:
            raise ValueError(
                f"{where} of {cls.model_type} allows only the keys {', '.join(known)}, but got {name!r}."
            )
    return arguments


def check_keys(given: Mapping[str, Any], kinds: Mapping[str, Any], where: str) -> None:
    """Raise ValueError if an object has an unknown key or a value of the wrong type."""
    for name, value in given.items():
        if name not in kinds:
            raise ValueError(f"{where} allows only the keys {', '.join(kinds)}, but got {name!r}.")
        if not fits(value, kinds[name]):
            raise ValueError(
                f"{where}: {name!r} must be {kind(kinds[name])}, but got {shown(value)}."
            )


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is valid for a type hint. Integers must be positive, because they are sizes."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return True
    if origin in (types.UnionType, typing.Union):
        return any(fits(value, part) for part in typing.get_args(hint))
    if origin in (collections.abc.Sequence, list):
        (inner,) = typing.get_args(hint)
        is_list = isinstance(value, list | tuple) and (origin is list or len(value) <= LONGEST)
        return is_list and all(fits(part, inner) for part in value)
    if origin is dict or hint is dict:
        return isinstance(value, dict)
    if hint is types.NoneType:
        return value is None
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST
    if hint is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and math.isfinite(value)
    return isinstance(value, hint)


def kind(hint: Any) -> str:
    """A description of the values that a type allows."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(kind(part) for part in parts)
    if origin in (collections.abc.Sequence, list):
        return f"a list, each element {kind(parts[0])}"
    if origin is dict or hint is dict:
        return "an object"
    return "null" if hint is types.NoneType else KINDS.get(hint, str(hint))


def shown(value: Any) -> str:
    """A value as JSON, truncated if it is long."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_about(about: dict[str, Any], where: str) -> None:
    """Raise ValueError if an entry of ``config.json`` other than the arguments is invalid."""
    number = float
    check_keys(
        about,
        {
            "paper": str,
            "input": dict,
            "classes": list[dict],
            "plane": str | None,
            "source": str,
            "base_model": str,
            "licence": str,
            "licence_link": str,
            "converter": str,
        },
        where,
    )
    if about.get("plane") not in (None, *PLANES):
        raise ValueError(
            f"{where}: 'plane' must be null or one of {', '.join(PLANES)}, but got {shown(about['plane'])}."
        )
    taken = about.get("input", {})
    check_keys(
        taken,
        {"planes": int, "size": str, "multiple_of": int, "normalisation": dict | None},
        f"{where}: 'input'",
    )
    normalisation = taken.get("normalisation")
    if normalisation is not None:
        numbers = list[float]
        check_keys(
            normalisation,
            {"scale": number, "mean": numbers, "std": numbers},
            f"{where}: 'normalisation'",
        )
        missing = [name for name in ("scale", "mean", "std") if name not in normalisation]
        if missing:
            raise ValueError(f"{where}: 'normalisation' must have {cut(missing)} as well.")
    for entry in about.get("classes", []):
        colour = entry.get("colour")
        good = isinstance(entry.get("name"), str) and isinstance(colour, list | tuple)
        if not (
            good and len(colour) == 3 and all(isinstance(v, int) and 0 <= v < 256 for v in colour)
        ):
            raise ValueError(
                f"{where}: each of 'classes' must have a 'name' and a 'colour' of three integers from 0 to "
                f"255, but got {shown(entry)}."
            )
