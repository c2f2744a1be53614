"""What is known about a model: its arguments, information for people, and what a file says of both."""

from __future__ import annotations

import contextlib
import functools
import inspect
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import mlx.nn as nn
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, validate_call
from typing_extensions import NotRequired, TypedDict

from .checkpoints import cut

Plane = Literal["axial", "coronal", "sagittal"]
# Arguments of models are limited, because a file could ask for more modules than fit in memory.
Size = Annotated[int, Field(gt=0, le=65536)]
Sizes = Annotated[Sequence[Size], Field(min_length=1, max_length=16)]
Counts = Annotated[Sequence[Annotated[int, Field(gt=0, le=64)]], Field(min_length=1, max_length=16)]
Channel = Annotated[int, Field(ge=0, le=255)]  # of a colour
# The normalisation of pictures from 0 to 255 for networks trained on ImageNet.
IMAGENET: Any = {"scale": 1 / 255, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
MODELS: dict[str, type[Any]] = {}  # by model_type
RESEARCH = "Not for clinical use. For research only; not approved as a medical device."
# BibTeX by key.
CITATIONS = {
    text.split("{")[1].split(",")[0]: text
    for text in Path(__file__).with_name("citations.bib").read_text(encoding="utf-8").strip().split("\n\n")
}


class Class(TypedDict):
    """A class of a segmentation model."""

    name: str
    colour: Annotated[list[Channel], Field(min_length=3, max_length=3)]
    label: NotRequired[int]  # the number of the class in masks, or in the volumes of FreeSurfer


class Normalisation(TypedDict):
    """A factor, then mean and standard deviation of each channel."""

    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    mean: list[Annotated[float, Field(allow_inf_nan=False)]]
    std: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]]


class Input(TypedDict, total=False):
    """The entries of ``about.input``; see ``Model``."""

    planes: PositiveInt
    size: str
    multiple_of: Annotated[int, Field(gt=0, le=4096)]
    side: PositiveInt
    white_level: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    normalisation: Normalisation | None


class About(BaseModel):
    """Information about a model, which ``config.json`` contains in addition to the arguments."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    paper: str = ""
    input: Input = Field(default_factory=lambda: Input())
    classes: list[Class] = []
    plane: Plane | None = None
    source: str = "unknown"
    base_model: Annotated[str, Field(pattern=r"^([\w.-]+/[\w.-]+)?$")] = ""  # on the Hugging Face Hub
    licence: str = "unknown"
    licence_link: str = ""
    licence_text: str = Field(default="", exclude=True)  # a separate file
    converter: str = ""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an entry. Raise ValueError if it is invalid."""
        try:
            super().__setattr__(name, value)
        except ValidationError as error:
            raise ValueError(f"[About] {in_one_line(error)}") from None


class Configuration(BaseModel):
    """The content of ``config.json``."""

    model_config = ConfigDict(extra="allow", strict=True)

    model_type: str
    config: dict[str, Any]
    about: dict[str, Any]
    quantization: dict[str, dict[str, Any]] = {}  # the arguments of each quantised layer
    saved: str | None = None  # the checksum of the weights that were saved with it


def in_one_line(error: ValidationError) -> str:
    """The first errors of pydantic, each with the name, the value and what is allowed."""
    lines = []
    for each in error.errors(include_url=False):
        name, got = ".".join(map(str, each["loc"])), reprlib.repr(each["input"])
        got = "" if each["type"].startswith("missing") else f", but got {got}"
        lines.append(f"{name!r}: {each['msg']}{got}" if name else f"{each['msg']}{got}")
    return cut(lines, 3, "; ")


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the path of a file before the message of an error about its content, which becomes one line."""
    try:
        yield
    except (ValueError, TypeError) as error:
        said = in_one_line(error) if isinstance(error, ValidationError) else str(error)
        raise ValueError(f"{path}: {said}") from None


def checked(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that checks its arguments and stores them, with defaults, as ``config``."""
    signature = inspect.signature(init)
    validated = validate_call(config=ConfigDict(strict=True))(init)

    @functools.wraps(init)
    def call(self: Configured, *args: Any, **kwargs: Any) -> None:
        try:
            given = signature.bind(self, *args, **kwargs)
        except TypeError as error:  # a missing or unexpected argument
            unknown = [repr(name) for name in kwargs if name not in signature.parameters]
            hint = f", and got {', '.join(unknown)}" if unknown and "missing" in str(error) else ""
            known = ", ".join(list(signature.parameters)[1:])
            raise TypeError(f"[{type(self).__name__}] {error}{hint}; the arguments are {known}.") from None
        try:
            given.apply_defaults()
            arguments = {name: v for name, v in given.arguments.items() if name != "self"}
            if "config" not in vars(self):  # not the constructor of a base class
                # mlx.nn.Module would treat the entries of a dict as parameters.
                object.__setattr__(self, "config", arguments)
                self.about = self.default_about.model_copy(deep=True)
                count = arguments.get("num_classes")  # not checked yet: it may be a list
                count = count if isinstance(count, int) else None
                self.about.classes = self.class_tables.get(count, [])
            validated(self, **arguments)
        except ValidationError as error:
            raise ValueError(f"[{type(self).__name__}] {in_one_line(error)}") from None

    return call


class Configured(nn.Module):
    """A module with checked arguments and with information about it; the base of ``Model``."""

    model_type: ClassVar[str] = ""
    default_about: ClassVar[About]
    names_of: ClassVar[str] = ""  # the repository on GitHub whose names of parameters are used
    citation: ClassVar[str] = ""  # BibTeX
    medical: ClassVar[bool] = False  # inputs are scans of a head, of which slices may be channels
    notice: ClassVar[str] = ""  # for the model card; programs print it
    cpu_notice: ClassVar[str] = ""  # the time and the memory of a prediction, if programs should say it
    segments: ClassVar[bool] = True  # autoencoders do not
    modalities: ClassVar[int] = 1  # scans of one head in the channels of an input
    class_tables: ClassVar[Mapping[Any, list[Any]]] = {}  # by number of classes
    published_tables: ClassVar[Mapping[Any, list[Any]]] = {}  # the same, for weights of the authors
    # Entries of the authors' configurations that do not affect the model.
    without_effect: ClassVar[frozenset[str]] = frozenset()

    config: dict[str, Any]
    about: About

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]
        if "model_type" in vars(cls):
            MODELS[cls.model_type] = cls

    def takes(self, channels: int, dims: int = 2, smallest: int = 1, *, pictures: int | None = None) -> None:
        """Set the number of channels and of spatial dimensions of the inputs, and the smallest size.

        ``pictures``: channels of the images that ``predict`` accepts, if the inputs have further ones.
        """
        object.__setattr__(self, "_inputs", (channels, dims))
        object.__setattr__(self, "_pictures", pictures or channels)
        object.__setattr__(self, "_smallest", smallest)
        self.about.input["planes"] = channels

    def check_about(self) -> None:
        """Raise ValueError if an entry of ``about`` is invalid or does not fit the model."""
        try:  # lists and dicts may have been changed in place
            about = About(**self.about.model_dump(warnings=False))
        except ValidationError as error:
            raise ValueError(f"'about' is invalid: {in_one_line(error)}") from None
        count, channels = self.config.get("num_classes"), self._inputs[0]
        lengths = {"classes": (about.classes, (0, count))}
        for name in ("mean", "std") if about.input.get("normalisation") else ():
            lengths[name] = (about.input["normalisation"][name], (channels,))  # type: ignore
        for name, (found, allowed) in lengths.items():
            if len(found) not in allowed:
                wanted = " or ".join(map(str, allowed))
                raise ValueError(f"{name!r} must have {wanted} entries but got {len(found)}.")
        if (planes := about.input.get("planes", channels)) != channels:
            raise ValueError(f"'planes' must be {channels} but got {planes}.")
