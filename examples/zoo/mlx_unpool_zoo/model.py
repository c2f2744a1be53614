"""The base class of the models: arguments, loading, saving, conversion of weights, prediction."""

from __future__ import annotations

import copy
import functools
import inspect
import json
import re
import reprlib
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from huggingface_hub import HfApi, ModelCard, ModelCardData, snapshot_download
from mlx.utils import tree_flatten, tree_map
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, validate_call
from pydantic_core import from_json
from typing_extensions import NotRequired, TypedDict

import mlx_unpool

from . import pytorch
from .files import CHECKSUM, load_arrays, save_arrays, write_file

M = TypeVar("M", bound="Model")
WEIGHTS = "model.safetensors"
Plane = Literal["axial", "coronal", "sagittal"]
# Arguments of models are limited, because a file could ask for more modules than fit in memory.
Size = Annotated[int, Field(gt=0, le=65536)]
Sizes = Annotated[Sequence[Size], Field(min_length=1, max_length=16)]
Counts = Annotated[Sequence[Annotated[int, Field(gt=0, le=64)]], Field(min_length=1, max_length=16)]
Channel = Annotated[int, Field(ge=0, le=255)]  # of a colour
# The normalisation of pictures from 0 to 255 for networks trained on ImageNet.
IMAGENET: Any = {"scale": 1 / 255, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
DTYPES = {name: getattr(mx, name) for name in ("float32", "float16", "bfloat16", "float64")}
AXES = {1: "L", 2: "H, W", 3: "D, H, W"}
# Other spellings of an argument in the authors' configurations.
ALIASES = dict.fromkeys(("classes", "num_class", "n_classes"), "num_classes")
# Licences with an identifier on the Hub; all others are "other" with a name and a link.
LICENCES = ("apache-2.0", "mit", "bsd-3-clause", "bsd-2-clause", "cc0-1.0", "cc-by-4.0", "gpl-3.0")
MODELS: dict[str, type[Model]] = {}
# BibTeX by key.
CITATIONS = {
    text.split("{")[1].split(",")[0]: text
    for text in Path(__file__).with_name("citations.bib").read_text(encoding="utf-8").strip().split("\n\n")
}


class Class(TypedDict):
    """A class of a segmentation model."""

    name: str
    colour: Annotated[list[Channel], Field(min_length=3, max_length=3)]
    label: NotRequired[int]  # in the volumes of FreeSurfer


class Normalisation(TypedDict):
    """A factor, then mean and standard deviation of each channel."""

    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    mean: list[Annotated[float, Field(allow_inf_nan=False)]]
    std: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]]


class Input(TypedDict, total=False):
    """The entries of ``about.input``; see :class:`Model`."""

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
    base_model: str = ""
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
    return pytorch.cut(lines, 3, "; ")


def configuration(file: Path, metadata: Mapping[str, str]) -> Configuration:
    """The configuration for weights with this metadata: that of config.json, or the one in the metadata.

    config.json, which somebody may have edited, is used if it has the checksum of the weights, or if the
    weights have no configuration.
    """
    own, tag = metadata.get("config.json"), metadata.get(CHECKSUM)
    if own is not None and not file.is_file():
        return Configuration.model_validate_json(own)
    try:
        content: Any = from_json(file.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        hint = f" Correct or delete it: {WEIGHTS} contains the configuration as well." * (own is not None)
        raise ValueError(f"it is not valid JSON: {error}.{hint}") from None
    saved = content.get("saved") if isinstance(content, dict) else None
    if own is not None and saved != tag:  # a process is saving a model, or was killed meanwhile
        warnings.warn(
            f"{file} is ignored, because it was not saved with {WEIGHTS}, which contains the configuration. "
            "If you did not edit it, delete it; saving the model replaces it.",
            stacklevel=3,
        )
        return Configuration.model_validate_json(own)
    if (
        own is None and saved is not None and metadata.get("saved", saved) != saved
    ):  # saved by an older version
        raise ValueError(f"it was not saved together with {WEIGHTS}.")
    return Configuration.model_validate(content)


def downloaded(name: str, **options: Any) -> Path:
    """The folder of a repository on the Hugging Face Hub, downloaded if necessary."""
    nothing = f"There is no folder {name}"
    if Path(name).is_file() or not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise ValueError(f"{nothing}. Pass a folder, or owner/name on the Hugging Face Hub.")
    try:
        options["allow_patterns"] = ["config.json", WEIGHTS, "LICENSE"]
        return Path(snapshot_download(name, **options))
    except OSError as error:
        raise OSError(f"{nothing}, and the Hugging Face Hub says: {error}") from error


def checked(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that checks its arguments and stores them, with defaults, as ``config``."""
    signature = inspect.signature(init)
    validated = validate_call(config=ConfigDict(strict=True))(init)

    @functools.wraps(init)
    def call(self: Model, *args: Any, **kwargs: Any) -> None:
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


class Model(nn.Module):
    """Base class of the models: load, save, upload, convert the authors' weights.

    Attributes:
        config: Arguments of the model, with defaults.
        about: Information saved with the model; setting an invalid entry raises ValueError.
        ``about.input``: ``planes`` (channels), ``size`` (supported sizes, as text), ``multiple_of`` (sizes
            are padded to a multiple of it), ``normalisation`` (None, or ``scale``, ``mean`` and ``std``),
            after training ``side`` (see :meth:`predict`) and ``white_level`` (see :meth:`preprocess`).
        ``about.classes``: For each score ``name``, ``colour`` (RGB, 0 to 255) and, if known, ``label``.
        ``about.plane``: ``"axial"``, ``"coronal"``, ``"sagittal"`` or None.
        ``about.paper``, ``source``, ``base_model``, ``converter``, ``licence``, ``licence_link``,
            ``licence_text``: Texts for the model card.
    """

    model_type: ClassVar[str] = ""
    default_about: ClassVar[About]
    citation: ClassVar[str] = ""  # BibTeX
    medical: ClassVar[bool] = False
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

    # Loading and saving.

    @classmethod
    def from_pretrained(
        cls: type[M],
        path_or_hub_id: str | Path,
        *,
        dtype: mx.Dtype | str | None = None,
        strict: bool = True,
        ignore_mismatched_sizes: bool = False,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        **arguments: Any,
    ) -> M:
        """Load a model from a folder, or from "owner/name" on the Hugging Face Hub, in evaluation mode.

        Args:
            path_or_hub_id: A folder, or a repository to download.
            dtype: Type of parameters and inputs: ``"float32"``, ``"float16"``, ``"bfloat16"`` or
                ``"float64"``. Default: as in the file.
            strict: Whether the file must have exactly the parameters of the model. If False, missing ones
                get new random values and others are ignored, with a warning.
            ignore_mismatched_sizes: Whether parameters with a different shape get new random values.
            revision, token, cache_dir, local_files_only: As for ``huggingface_hub.snapshot_download``.
            **arguments: Arguments of the model that replace those in ``config.json``.

        Raises:
            OSError: If there is no such repository, or a file is missing.
            ValueError: If the folder does not contain a model of this class, the weights do not fit, or there
                is no such folder and the name is not of the form "owner/name".
        """
        folder = Path(path_or_hub_id)
        if not folder.is_dir():
            options = {"revision": revision, "token": token, "cache_dir": cache_dir}
            folder = downloaded(str(folder), local_files_only=local_files_only, **options)
        file = folder / WEIGHTS
        try:
            weights, metadata = load_arrays(file)
            file = folder / "config.json"
            found = configuration(file, metadata)
            model = cls._configured(found, arguments)
            model.about.licence_text = metadata.get("LICENSE", "")
            file = folder / "LICENSE"
            if "config.json" not in metadata and file.is_file():
                model.about.licence_text = file.read_text(encoding="utf-8")
            file = folder / WEIGHTS
            if metadata.get("format") == "pt":  # published for PyTorch
                weights = model.sanitize(weights, strict=strict)
            if how := found.quantization:
                nn.quantize(model, class_predicate=lambda path, _: how.get(path, False))
            return model._load(weights, dtype, strict, ignore_mismatched_sizes)
        except (ValueError, TypeError) as error:
            said = in_one_line(error) if isinstance(error, ValidationError) else str(error)
            raise ValueError(f"{file}: {said}") from None

    @classmethod
    def _configured(cls: type[M], found: Configuration, arguments: dict[str, Any]) -> M:
        """A new model as described by a configuration, before it is quantised."""
        if found.model_extra:
            warnings.warn(f"Unknown keys of config.json: {[*found.model_extra]}", stacklevel=4)
        kinds = {name: kind for name, kind in MODELS.items() if issubclass(kind, cls)}
        if found.model_type not in kinds:
            names = ", ".join(kinds)
            raise ValueError(f"'model_type' must be one of {names}, but got {found.model_type!r}")
        model = kinds[found.model_type](**found.config | arguments)
        if "num_classes" in arguments:  # a new head
            found.about.pop("classes", None)
        defaults = model.about.model_dump()
        if isinstance(given := found.about.get("input", {}), dict):
            found.about["input"] = defaults["input"] | given
        model.about = About(**defaults | found.about)
        model.check_about()
        layers = dict(model.named_modules())
        if bad := [n for n in found.quantization if not hasattr(layers.get(n), "to_quantized")]:
            raise ValueError(f"'quantization' must name Linear layers, but got {pytorch.cut(bad)}.")
        return model

    def _load(
        self: M,
        weights: Mapping[str, mx.array],
        dtype: mx.Dtype | str | None,
        strict: bool,
        ignore_mismatched_sizes: bool = False,
    ) -> M:
        """Set the parameters and evaluate them, because MLX cannot export lazily loaded arrays."""
        own = dict(tree_flatten(self.parameters()))
        missing = [name for name in own if name not in weights]
        unused = [name for name in weights if name not in own]
        other = [n for n in own if n in weights and weights[n].shape != own[n].shape]
        lines = [f"missing: {n}" for n in missing if strict]
        if not ignore_mismatched_sizes:
            lines += [f"shape {weights[n].shape} instead of {own[n].shape}: {n}" for n in other]
        lines += [f"not used: {n}" for n in unused if strict]
        lines += [line for n in own if n in weights for line in pytorch.wrong_type(n, weights[n], own[n])]
        if lines:
            hint = "ignore_mismatched_sizes=True gives these parameters new random values."
            new_head = len(other) == len(lines)  # probably
            raise pytorch.mismatch(type(self).__name__, lines, hint * new_head)
        if new := [*missing, *other]:
            warnings.warn(f"Parameters with new random values: {pytorch.cut(new)}", stacklevel=3)
        if unused:
            warnings.warn(f"Parameters that are ignored: {pytorch.cut(unused)}", stacklevel=3)
        self.load_weights([(n, weights[n]) for n in own.keys() - new], strict=False)
        if dtype is not None:
            wanted = DTYPES.get(dtype) if isinstance(dtype, str) else dtype
            if not isinstance(wanted, mx.Dtype) or wanted not in DTYPES.values():
                raise ValueError(f"'dtype' must be one of {', '.join(DTYPES)} but got {dtype!r}.")
            self.set_dtype(wanted)
        self._check_finite()
        self.eval()
        return self

    def _check_finite(self) -> None:
        """Raise ValueError if a weight is NaN or infinite."""
        found = dict(tree_flatten(self.parameters()))
        if bad := [name for name, value in found.items() if not mx.isfinite(value).all()]:
            raise ValueError(f"the weights must be finite, but these are not: {pytorch.cut(bad)}")

    def save_pretrained(self, folder: str | Path) -> None:
        """Save the model as a folder with weights, configuration, model card and licence.

        The weights contain the configuration and the licence; the other files are for people and the Hub. A
        load always gets the old model or the new one, even if another process saves it meanwhile, or this one
        is killed. If this model has no licence text, the LICENSE of the old model is renamed to LICENSE.old.

        Raises:
            OSError: If the weights cannot be written, for example because the disk is full. The folder is
                then unchanged. If another file cannot be written, there is a warning.
            ValueError: If a weight is not finite, or ``about`` is invalid.
        """
        self.check_about()
        self._check_finite()
        about = self.about.model_dump()
        config = {"model_type": self.model_type, "config": self.config, "about": about}
        config["quantization"] = {
            name: {key: getattr(layer, key) for key in ("group_size", "bits", "mode")}
            for name, layer in self.named_modules()
            if isinstance(layer, nn.QuantizedLinear)
        }
        path, licence = Path(folder, WEIGHTS), self.about.licence_text
        metadata = {"format": "mlx", "config.json": json.dumps(config), "LICENSE": licence}
        files = {"README.md": str(self.model_card()).encode(), "LICENSE": licence.encode()}
        replaces_model = path.exists()
        config["saved"] = save_arrays(path, dict(tree_flatten(self.parameters())), metadata)
        files = {"config.json": f"{json.dumps(config, indent=2)}\n".encode()} | files
        for name, content in files.items():
            try:
                if content:
                    write_file(path.with_name(name), content)
                elif replaces_model and path.with_name(name).exists():  # a licence of the old model
                    path.with_name(name).replace(path.with_name(f"{name}.old"))
            except OSError as error:
                said = f"The model is saved, in {WEIGHTS}, but {name} is still that of the model before"
                warnings.warn(f"{said}: {error}", stacklevel=2)

    def push_to_hub(self, repo_id: str, *, private: bool | None = None, token: str | None = None) -> str:
        """Upload the model to a repository, created if necessary, and return the URL of the commit."""
        api = HfApi(token=token)
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            # The licence of a model before; uploaded files are not deleted.
            return str(api.upload_folder(repo_id=repo_id, folder_path=folder, delete_patterns="LICENSE"))

    def model_card(self) -> Any:
        """A model card with the Hub's metadata and all facts that a user of the weights needs."""
        about, known = self.about, self.about.licence.lower() in LICENCES
        link = "LICENSE" if about.licence_text else about.licence_link
        data = ModelCardData(
            library_name="mlx-unpool",
            license=about.licence.lower() if known else "other",
            license_name=None if known else about.licence,
            license_link=link or None,
            pipeline_tag="image-segmentation" if self.segments else None,
            base_model=about.base_model or None,
            tags=["mlx", "mlx-unpool", self.model_type, *([about.plane] if about.plane else [])],
        )
        slices = f", {about.plane} slices" if about.plane else ""
        summary = (inspect.getdoc(type(self)) or "").splitlines()[0]
        warning = "**Not for clinical use.** For research only; not approved as a medical device.\n"
        facts = {
            "Paper": about.paper,
            "Weights": about.source,
            "Licence of the weights": f"{about.licence} ({link or 'no copy in this folder'})",
            "Converted by": about.converter,
            "Classes": ", ".join(entry["name"] for entry in about.classes),
            "Arguments": json.dumps(self.config),
        }
        listed = "\n".join(f"- {name}: {value}" for name, value in facts.items() if value)
        return ModelCard(
            f"---\n{data.to_yaml()}\n---\n\n# {type(self).__name__} for MLX{slices}\n\n{summary}\n\n"
            f"{warning * self.medical}\n{listed}\n\n```python\nfrom mlx_unpool_zoo import from_pretrained\n\n"
            'model = from_pretrained("path/to/this/folder")  # arrays are channels last\n'
            f"```\n\n## Citation\n\n```bibtex\n{self.citation.strip()}\n```\n"
        )

    # Weights of the authors.

    @classmethod
    def from_pytorch(
        cls: type[M],
        state_dict: Mapping[str, Any],
        *,
        dtype: mx.Dtype | str | None = None,
        strict: bool = True,
        **arguments: Any,
    ) -> M:
        """Create a model from a PyTorch state dict with the authors' names, in evaluation mode.

        ``state_dict`` is a checkpoint or contains tensors or arrays. ``arguments`` are those that neither its
        shapes nor its configuration determine. ``dtype`` and ``strict`` are as for :meth:`from_pretrained`.
        """
        published = pytorch.config_of(state_dict)
        state = cls.canonical(pytorch.arrays_of(pytorch.state_of(state_dict)))
        try:
            model = cls._inferred(state, published, arguments)
            model.about.converter = f"mlx_unpool {mlx_unpool.__version__}"
            table = cls.published_tables.get(model.config.get("num_classes"), [])
            model.about.classes = model.about.classes or table
            return model._load(model.sanitize(state, strict=strict), dtype, strict)
        except (ValueError, TypeError) as error:
            others = [n for n, kind in MODELS.items() if kind is not cls and kind.fits(state)]
            hint = f" The weights look like those of {' or '.join(others)}." * bool(others)
            if not others and cls.default_about.base_model and re.search("missing: |not used: ", str(error)):
                hint = f" The names must be those of {cls.default_about.base_model}."
            raise ValueError(f"{error}{hint}") from None

    @classmethod
    def _inferred(cls: type[M], state: Any, published: Mapping[str, Any], arguments: Any) -> M:
        """A new model with the arguments that the shapes and a configuration determine, and further ones."""
        known = inspect.signature(cls.__init__).parameters
        try:
            inferred = cls.config_of(state)
        except (KeyError, IndexError, StopIteration) as error:
            raise ValueError(
                f"these are not weights of {cls.model_type} with the names of "
                f"{cls.default_about.base_model or 'its authors'}: there is no {error} but "
                f"{pytorch.cut(list(state))}."
            ) from None
        renamed = [{ALIASES.get(n, n): v for n, v in given.items()} for given in (published, arguments)]
        file = {n: v for n, v in renamed[0].items() if n in known}
        given = {n: v for n, v in renamed[1].items() if n in known or n not in cls.without_effect}
        return cls(**file | inferred | given)

    @classmethod
    def fits(cls, state: dict[str, np.ndarray]) -> bool:
        """Whether a state dict has exactly the parameters of this model."""
        try:
            cls._inferred(state, {}, {}).sanitize(state)
        except (ValueError, TypeError):
            return False
        return True

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The arguments that can be inferred from the shapes of a state dict."""
        raise NotImplementedError

    @classmethod
    def canonical(cls, state: dict[str, Any]) -> dict[str, Any]:
        """Rename the parameters of a state dict to those of :meth:`pytorch_names`, if they are different."""
        return state

    @staticmethod
    def pytorch_names(name: str) -> tuple[str, ...]:
        """The names of a parameter in the authors' state dict."""
        return (name,)

    def sanitize(self, weights: Mapping[str, Any], *, strict: bool = True) -> dict[str, mx.array]:
        """Convert weights with the authors' names and layout, as arrays of any framework."""
        state = self.canonical(pytorch.state_of(weights))
        return pytorch.convert_state_dict(self, state, self.pytorch_names, strict=strict)

    # Inputs and predictions.

    def takes(self, channels: int, dims: int = 2, smallest: int = 1, *, pictures: int | None = None) -> None:
        """Set the number of channels and of spatial dimensions of the inputs, and the smallest size.

        ``pictures``: channels of the images that :meth:`predict` accepts, if the inputs have more.
        """
        object.__setattr__(self, "_inputs", (channels, dims))
        object.__setattr__(self, "_pictures", pictures or channels)
        object.__setattr__(self, "_smallest", smallest)
        self.about.input["planes"] = channels

    def check_input(self, x: mx.array) -> None:
        """Raise an error if an input is not an array of MLX with the shape (N, ..., channels)."""
        channels, dims = self._inputs
        if not isinstance(x, mx.array):
            got = f"got {type(x).__name__}: pass mx.array(x), or call preprocess or predict for images."
            raise TypeError(f"[{type(self).__name__}] inputs must be arrays of MLX, but {got}")
        if x.ndim == dims + 2 and x.shape[-1] == channels:
            if min(x.shape[1:-1]) >= self._smallest:
                return
            least = f"at least {self._smallest} positions on each axis"
            raise ValueError(f"[{type(self).__name__}] inputs must have {least}, but got {x.shape}.")
        message = f"inputs must be (N, {AXES[dims]}, {channels}), channels last, but got {x.shape}."
        if x.ndim == dims + 2 and x.shape[1] == channels:
            axes = ", ".join(map(str, (0, *range(2, dims + 2), 1)))
            message += f" If this is PyTorch's layout, channels first, pass x.transpose({axes})."
        raise ValueError(f"[{type(self).__name__}] {message}")

    def preprocess(self, images: Any) -> mx.array:
        """Images as an input of the model, normalised and padded at the bottom and right.

        Args:
            images: A Pillow image or an array (H, W, channels), or several of the same size in a list or an
                array. Values are 0 to 255 (uint8) or 0 to 1 (floating point), and in grey Pillow images of
                more than 8 bits 0 to ``about.input["white_level"]`` (default: 65535; 1 for floats). An axis
                of one channel may be left out. For a medical model also a volume (N, H, W), or (N, H, W, 2)
                for two modalities; neighbouring slices are its channels. Signals and 3-D inputs: not scaled.

        Returns:
            An MLX array (N, ..., channels).
        """
        return self._normalised(self._batch(images)[0])

    def predict(self, images: Any, *args: Any, **kwargs: Any) -> np.ndarray:
        """The class of every position of images, as an index into ``about.classes``.

        Images are processed one by one in evaluation mode. The mode of the model does not change. Images
        whose shorter side is larger than ``about.input["side"]`` are scaled down, and their classes up again.

        Args:
            images: As for :meth:`preprocess`.
            *args, **kwargs: Further arguments of the model, such as the scale factor of FastSurferVINN.

        Returns:
            A NumPy array of integers, (H, W) for one image and (N, H, W) for a batch or a volume.
        """
        if not self.segments:
            raise ValueError(f"[{type(self).__name__}] predict needs a model with classes.")
        (values, single), found = self._batch(images), []
        # A change of the mode would affect other threads that use the model.
        model: Any = copied(self).eval() if any(module.training for module in self.modules()) else self
        for image in values:
            small = reduced(image, self.about.input.get("side"))
            scores = model(model._normalised(small[None]), *args, **kwargs)
            kind = mx.uint8 if scores.shape[-1] <= 256 else mx.uint32
            classes = np.array(mx.argmax(scores[0], axis=-1).astype(kind))
            sizes = zip(small.shape, image.shape[:-1])
            found.append(classes[np.ix_(*(((np.arange(n) + 0.5) * old / n).astype(int) for old, n in sizes))])
        return found[0] if single else np.stack(found)

    def _batch(self, images: Any) -> tuple[np.ndarray, bool]:
        """Images as an array (N, ..., channels), and whether there was only one, without an axis N."""
        self.check_about()
        channels, dims = self._pictures, self._inputs[1]
        values = array_of(images, "RGB" if channels == 3 else "L", self.about.input.get("white_level"))
        if channels == 1 and values.shape[-1:] != (1,):
            values = values[..., None]
        elif self.medical and values.ndim in (3, 4) and values.shape[-1] != channels:
            around, thickness = [(0, 0)] * 4, channels // self.modalities
            around[0] = thickness // 2, (thickness - 1) // 2
            slices = np.pad(values.reshape(*values.shape[:3], -1), around, "edge")
            windows = np.lib.stride_tricks.sliding_window_view(slices, thickness, axis=0)
            values = windows.reshape(*values.shape[:3], -1)
        single = values.ndim == dims + 1
        values = values[None] if single else values
        problem = f"the shape {np.shape(values)}"
        if values.ndim == dims + 2 and values.shape[-1] == channels and values.size:
            if dims != 2 or values.dtype == np.uint8:
                return values, single
            problem = f"{values.dtype} from {values.min()} to {values.max()}"
            if values.dtype.kind == "f" and 0 <= values.min() <= values.max() <= 1:
                return values, single
        shapes = f"([N,] {AXES[dims]}, {channels}){' or a volume' * self.medical}"
        kinds = ", of uint8 (0 to 255) or floating-point numbers (0 to 1)" * (dims == 2)
        problem += '. Pass a Pillow image, or its .convert("RGB")' * (dims == 2 and channels == 3)
        raise ValueError(f"[{type(self).__name__}] 'images' must be {shapes}{kinds}, but got {problem}.")

    def _normalised(self, values: np.ndarray) -> mx.array:
        """A batch as the model was trained on it, padded with its edges to a multiple of the size."""
        how, multiple = self.about.input.get("normalisation"), self.about.input.get("multiple_of")
        beyond = [(0, 0), *((0, -size % (multiple or 1)) for size in values.shape[1:-1]), (0, 0)]
        values = np.pad(values, beyond, "edge")
        if self._inputs[1] == 2 and values.dtype != np.uint8:
            values = values * 255.0
        if how:
            values = (values * how["scale"] - np.array(how["mean"])) / np.array(how["std"])
        parameters = dict(tree_flatten(self.parameters())).values()
        dtype = next(v.dtype for v in parameters if mx.issubdtype(v.dtype, mx.floating))
        return mx.array(values.astype(np.float32)).astype(dtype)


def copied(value: Any) -> Any:
    """A copy of a module and the modules in it, with the same arrays."""
    if not isinstance(value, nn.Module):
        return value
    made = copy.copy(value)
    dict.update(made, tree_map(copied, dict(value), is_leaf=lambda v: isinstance(v, nn.Module)))
    return made


def reduced(picture: np.ndarray, side: int | None) -> np.ndarray:
    """A picture (H, W, channels), or a smaller one whose shorter side is ``side``."""
    if not side or min(picture.shape[:2]) <= side:
        return picture
    size = [round(n / (min(picture.shape[:2]) / side)) for n in picture.shape[1::-1]]
    kind = np.uint8 if picture.dtype == np.uint8 else np.float32
    channels = [Image.fromarray(c).resize(size) for c in np.moveaxis(picture.astype(kind), -1, 0)]
    return np.stack([np.asarray(c) for c in channels], -1).clip(0, 255 if kind is np.uint8 else 1)


def array_of(images: Any, mode: str, white: float | None = None) -> np.ndarray:
    """Arrays of any framework, pictures of Pillow as uint8 in a mode, or a list of either."""
    if isinstance(images, list | tuple):
        arrays = [array_of(image, mode, white) for image in images]
        if len({array.shape for array in arrays}) != 1:
            sizes = pytorch.cut([str(array.shape) for array in arrays])
            raise ValueError(f"'images' must be one or more images of the same shape, but got [{sizes}].")
        return np.stack(arrays)
    if isinstance(images, str | Path):
        path = str(images)
        raise TypeError(
            f"'images' must be a Pillow image or an array, not a path: use PIL.Image.open({path!r})."
        )
    if hasattr(images, "convert") and images.mode[0] in "IF":  # Pillow would clip the values to 255
        values, white = np.asarray(images, np.float32), white or (1 if images.mode == "F" else 65535)
        low, high = values.min(), values.max()
        if not 0 <= low <= high <= white:  # or NaN
            raise ValueError(f"the values of the image must be 0 to {white:g} but are {low:g} to {high:g}.")
        images = np.stack([(values * (255 / white)).round().astype(np.uint8)] * len(mode), axis=-1)
    if hasattr(images, "convert"):
        images = images.convert(mode)
    is_bfloat16 = isinstance(images, mx.array) and images.dtype == mx.bfloat16
    return np.asarray(images.astype(mx.float32) if is_bfloat16 else images)


from_pretrained = Model.from_pretrained  # a model of any type


def from_pytorch(model_type: str, state_dict: Mapping[str, Any], **options: Any) -> Model:
    """Create a model of a ``model_type`` such as ``"enet"`` from PyTorch weights; see
    :meth:`Model.from_pytorch`."""
    if model_type not in MODELS:
        raise ValueError(f"'model_type' must be one of {', '.join(MODELS)} but got {model_type!r}.")
    return MODELS[model_type].from_pytorch(state_dict, **options)
