"""What a model says about itself, and the types of the arguments of models."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import reprlib
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, create_model
from typing_extensions import NotRequired, TypedDict

from mlx_unpool.porting.messages import cut, shortened

Plane = Literal["axial", "coronal", "sagittal"]
# Arguments of models are limited, because a file could ask for more modules than fit in memory.
Size = Annotated[int, Field(gt=0, le=65536)]
Sizes = Annotated[Sequence[Size], Field(min_length=1, max_length=16)]
Counts = Annotated[Sequence[Annotated[int, Field(gt=0, le=64)]], Field(min_length=1, max_length=16)]
Channel = Annotated[int, Field(ge=0, le=255)]  # of a colour
Finite = Annotated[float, Field(allow_inf_nan=False)]
# The normalisation of pictures from 0 to 255 for networks trained on ImageNet.
IMAGENET: Any = {"scale": 1 / 255, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
RESEARCH = "Not for clinical use. For research only; not approved as a medical device."
# BibTeX by key.
CITATIONS = {
    text.split("{")[1].split(",")[0]: text
    for text in Path(__file__)
    .with_name("citations.bib")
    .read_text(encoding="utf-8")
    .strip()
    .split("\n\n")
}


def divided_by_255(channels: int) -> Any:
    """The normalisation of pictures from 0 to 255 to values from 0 to 1."""
    return {"scale": 1 / 255, "mean": [0.0] * channels, "std": [1.0] * channels}


class Class(TypedDict):
    """A class of a segmentation model."""

    name: str
    colour: Annotated[list[Channel], Field(min_length=3, max_length=3)]
    label: NotRequired[int]  # the number of the class in masks, or in the volumes of FreeSurfer


class Normalisation(TypedDict):
    """A factor, then mean and standard deviation of each channel."""

    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    mean: list[Finite]
    std: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]]


class Input(TypedDict, total=False):
    """How images become inputs, as in the training."""

    normalisation: Normalisation | None
    side: PositiveInt  # larger images are scaled to this shorter side
    # Values of images of more than 8 bits that become black and white.
    range: Annotated[list[Finite], Field(min_length=2, max_length=2)]


# Entries of older models that are no longer used.
RETIRED = {"base_model", "converter", "paper"}
RETIRED_INPUT = {"multiple_of", "planes", "size", "white_level"}


class About(BaseModel):
    """Information about a model that is saved with it. Setting an invalid entry raises ValueError.

    Attributes:
        input: ``normalisation`` (None, or ``scale``, ``mean`` and ``std``), and after training
            ``side`` (see ``Model.predict``) and ``range`` (see ``Model.preprocess``).
        classes: For each score ``name``, ``colour`` (RGB, 0 to 255) and, if known, ``label`` (its
            number in masks).
        plane: The orientation of slices: ``"axial"``, ``"coronal"``, ``"sagittal"`` or None.
        source: Where the weights are from.
        licence, licence_link, licence_text: The licence of the weights.
    """

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    input: Input = Field(default_factory=lambda: Input())
    classes: list[Class] = []
    plane: Plane | None = None
    source: str = "unknown"
    licence: str = "unknown"
    licence_link: str = ""
    licence_text: str = Field(default="", exclude=True)  # a separate file

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an entry. Raise ValueError if it is invalid."""
        try:
            super().__setattr__(name, value)
        except ValidationError as error:
            raise ValueError(f"[About] {in_one_line(error)}") from None


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is known about a network, whatever its weights."""

    # Texts for the model card and for programs.
    paper: str
    citation: str  # BibTeX
    notice: str = ""  # a warning
    cpu_notice: str = ""  # the time and the memory of a prediction, if programs should say it
    # The defaults of ``about``: how inputs are normalised, and the classes by their number.
    normalisation: Any = None
    classes: Mapping[int, list[Any]] = dataclasses.field(default_factory=dict)
    multiple_of: int = 1  # ``preprocess`` pads the sizes of images to multiples of it
    modalities: int = 0  # scans of a head in an input, of which slices may be channels
    # The authors' weights.
    names_of: str = ""  # their repository on GitHub, whose names of parameters are used
    # Entries of configurations that do not affect the model.
    without_effect: frozenset[str] = frozenset()
    published_classes: Mapping[int, list[Any]] = dataclasses.field(default_factory=dict)


@functools.cache
def arguments_model(kind: Any) -> type[BaseModel]:
    """What checks the arguments of a class, which its constructor annotates."""
    hints = get_type_hints(kind.__init__, include_extras=True)
    fields: Any = {name: (hint, ...) for name, hint in hints.items() if name != "return"}
    return create_model(kind.__name__, __config__=ConfigDict(strict=True), **fields)


def arguments_of(kind: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with which a class is called, by name, with defaults.

    Raises:
        TypeError: If one is missing or unknown.
        ValueError: If one is not as the constructor annotates it.
    """
    signature = inspect.signature(kind)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        unknown = [repr(name) for name in kwargs if name not in signature.parameters]
        hint = f", and got {', '.join(unknown)}" if unknown and "missing" in str(error) else ""
        known = ", ".join(signature.parameters)
        raise TypeError(f"[{kind.__name__}] {error}{hint}; the arguments are {known}.") from None
    bound.apply_defaults()
    try:
        arguments_model(kind).model_validate(bound.arguments)
    except ValidationError as error:
        raise ValueError(f"[{kind.__name__}] {in_one_line(error)}") from None
    return bound.arguments


class ConfigFile(BaseModel):
    """The configuration of a saved model, which is in the weights and in ``config.json``."""

    model_config = ConfigDict(extra="allow", strict=True)

    note: str = ""  # for people, in config.json
    model_type: str
    config: dict[str, Any]
    about: dict[str, Any]
    quantization: dict[str, dict[str, Any]] = {}  # the arguments of each quantised layer

    def entries_of_about(self, defaults: About) -> dict[str, Any]:
        """The entries of ``about``, with the defaults of the network for those that are absent."""
        entries = defaults.model_dump() | without(self.about, RETIRED)
        given = entries["input"]
        if isinstance(given, dict):
            entries["input"] = defaults.input | without(given, RETIRED_INPUT)
            if "white_level" in given:
                entries["input"].setdefault("range", [0, given["white_level"]])
        return entries


def without(entries: Mapping[str, Any], names: Set[str]) -> dict[str, Any]:
    """Entries except those with some names."""
    return {name: value for name, value in entries.items() if name not in names}


def in_one_line(error: ValidationError) -> str:
    """The first errors of pydantic, each with the name, the value and what is allowed."""
    lines = []
    for problem in error.errors(include_url=False):
        name, got = ".".join(map(str, problem["loc"])), reprlib.repr(problem["input"])
        got = "" if problem["type"].startswith("missing") else f", but got {got}"
        lines.append(f"{name!r}: {problem['msg']}{got}" if name else f"{problem['msg']}{got}")
    return cut(lines, 3, "; ")


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the path of a file before the message of an error, which becomes one line."""
    try:
        yield
    except (ValueError, TypeError) as error:
        reason = in_one_line(error) if isinstance(error, ValidationError) else str(error)
        raise ValueError(f"{path}: {shortened(reason, 1000)}") from None


def check_about(about: About, classes: int, channels: int) -> None:
    """Raise ValueError if an entry is invalid, or does not fit a model."""
    try:  # lists and dicts may have been changed in place
        about = About(**about.model_dump(warnings=False))
    except ValidationError as error:
        raise ValueError(f"'about' is invalid: {in_one_line(error)}") from None
    if len(about.classes) not in (0, classes):
        raise ValueError(
            f"'classes' must have 0 or {classes} entries but got {len(about.classes)}."
        )
    normalisation: Any = about.input.get("normalisation") or {}
    for name in normalisation.keys() & {"mean", "std"}:
        if len(normalisation[name]) != channels:
            raise ValueError(
                f"{name!r} must have {channels} entries but got {len(normalisation[name])}."
            )
