"""The base class of the models: arguments, loading, saving, conversion of the authors' weights, prediction."""

from __future__ import annotations

import inspect
import json
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, validate_call
from typing_extensions import NotRequired, TypedDict

import mlx_unpool

from . import pytorch

M = TypeVar("M", bound="Model")
WEIGHTS = "model.safetensors"
Plane = Literal["axial", "coronal", "sagittal"]
# The normalisation of pictures from 0 to 255 for networks trained on ImageNet.
IMAGENET: Any = {"scale": 1 / 255, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
AXES = {1: "L", 2: "H, W", 3: "D, H, W"}
# Other spellings of an argument in the authors' configurations.
ALIASES = dict.fromkeys(("classes", "num_class", "n_classes"), "num_classes")
# Licences with an identifier on the Hub; all others are "other" with a name and a link.
LICENCES = ("apache-2.0", "mit", "bsd-3-clause", "bsd-2-clause", "cc0-1.0", "cc-by-4.0", "gpl-3.0")
MODELS: dict[str, type[Model]] = {}


class Class(TypedDict):
    """A class of a segmentation model."""

    name: str
    colour: Annotated[list[Annotated[int, Field(ge=0, le=255)]], Field(min_length=3, max_length=3)]
    label: NotRequired[int]  # in the volumes of FreeSurfer


class Normalisation(TypedDict):
    """A factor, then mean and standard deviation of each channel."""

    scale: float
    mean: list[float]
    std: list[float]


class Input(TypedDict, total=False):
    """Channels of the input, supported sizes, of which each size must be a multiple, and normalisation."""

    planes: PositiveInt
    size: str
    multiple_of: PositiveInt
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


class Model(nn.Module):
    """A model that can be saved, loaded, uploaded, and converted from its authors' weights.

    ``save_pretrained(folder)`` and ``push_to_hub("owner/name")`` are those of
    :class:`huggingface_hub.ModelHubMixin`. The arguments of a model are checked by pydantic.

    Attributes:
        about: Information about the model, which is saved with it.
    """

    model_type: ClassVar[str] = ""
    default_about: ClassVar[About]
    citation: ClassVar[str] = ""  # BibTeX
    medical: ClassVar[bool] = False
    segments: ClassVar[bool] = True  # autoencoders do not
    # Entries of the authors' configurations that do not affect the model.
    without_effect: ClassVar[frozenset[str]] = frozenset()

    config: dict[str, Any]
    about: About

    def __init_subclass__(cls, **options: Any) -> None:
        if "__init__" in vars(cls):
            cls.__init__ = validate_call(config=ConfigDict(strict=True))(cls.__init__)  # type: ignore
        super().__init_subclass__(**options)
        if cls.model_type:
            MODELS[cls.model_type] = cls

    def __new__(cls, *args: Any, **kwargs: Any) -> Model:
        model = super().__new__(cls)
        given = inspect.signature(cls.__init__).bind(model, *args, **kwargs)
        given.apply_defaults()
        # mlx.nn.Module would treat the entries of a dict as parameters.
        object.__setattr__(model, "config", dict(list(given.arguments.items())[1:]))
        model.about = cls.default_about.model_copy(deep=True)
        return model

    # Loading and saving.

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls: type[M],
        pretrained_model_name_or_path: str | Path,
        *,
        dtype: mx.Dtype | str | None = None,
        strict: bool = True,
        ignore_mismatched_sizes: bool = False,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        force_download: bool = False,
        **arguments: Any,
    ) -> M:
        """Load a model from a folder, or from "owner/name" on the Hugging Face Hub, in evaluation mode.

        Args:
            pretrained_model_name_or_path: A folder, or a repository, which is downloaded.
            dtype: The type of the parameters, such as ``"bfloat16"``. Default: as in the file.
            strict: Whether the file must have exactly the parameters of the model.
            ignore_mismatched_sizes: Whether parameters of another shape keep their random values.
            revision: A branch, tag or commit on the Hub.
            token: A token for private repositories. Default: that of ``hf auth login``.
            cache_dir: The folder for downloaded files.
            local_files_only: Whether to use only files that were downloaded before.
            force_download: Whether to download files again.
            **arguments: Arguments of the model that replace those in ``config.json``.

        Raises:
            ValueError: If the folder does not contain a model of this class.
        """
        folder = Path(pretrained_model_name_or_path)
        if not folder.is_dir():
            from huggingface_hub import snapshot_download

            try:
                download = snapshot_download(
                    str(pretrained_model_name_or_path),
                    revision=revision,
                    token=token,
                    cache_dir=cache_dir,
                    local_files_only=local_files_only,
                    force_download=force_download,
                    allow_patterns=["config.json", WEIGHTS, "LICENSE"],
                )
            except (OSError, ValueError) as error:
                reason = str(error).splitlines()[0]
                raise OSError(f"{folder} is neither a folder nor on the Hub: {reason}") from error
            folder = Path(download)
        try:
            content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            kind = MODELS.get(content.pop("model_type", None))
            if kind is None or not issubclass(kind, cls):
                raise ValueError(f"'model_type' must be one of {', '.join(cls.kinds())}")
            quantization, about = content.pop("quantization", None), content.pop("about", {})
            model = kind(**content | arguments)
            about["input"] = {**model.about.input, **about.get("input", {})}
            model.about = About(**{**model.about.model_dump(), **about})
        except (ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"{folder / 'config.json'}: {error}") from None
        if (folder / "LICENSE").is_file():
            model.about.licence_text = (folder / "LICENSE").read_text(encoding="utf-8")
        weights, metadata = pytorch.load_safetensors(folder / WEIGHTS)
        if metadata.get("format") == "pt":  # published for PyTorch
            weights = model.sanitize(weights, strict=strict)
        if quantization:
            nn.quantize(
                model, **quantization, class_predicate=lambda path, _: f"{path}.scales" in weights
            )
        return model._load(weights, dtype, strict, ignore_mismatched_sizes)

    @classmethod
    def kinds(cls) -> list[str]:
        """The model types of this class and its subclasses."""
        return [name for name, kind in MODELS.items() if issubclass(kind, cls)]

    def _load(
        self: M,
        weights: Mapping[str, mx.array],
        dtype: mx.Dtype | str | None,
        strict: bool,
        ignore_mismatched_sizes: bool = False,
    ) -> M:
        """Set the parameters and evaluate them, because MLX cannot export lazily loaded arrays."""
        weights, own = dict(weights), dict(tree_flatten(self.parameters()))
        wrong = [n for n, v in own.items() if n in weights and weights[n].shape != v.shape]
        if wrong and ignore_mismatched_sizes:
            warnings.warn(f"Parameters with their random values: {', '.join(wrong)}", stacklevel=3)
            weights |= {name: own[name] for name in wrong}
        elif wrong:
            lines = [f"{n}: {weights[n].shape} instead of {own[n].shape}" for n in wrong]
            raise pytorch.mismatch(type(self).__name__, lines)
        self.load_weights(list(weights.items()), strict=strict)
        if dtype is not None:
            self.set_dtype(getattr(mx, dtype) if isinstance(dtype, str) else dtype)
        mx.eval(self.parameters())
        return self.eval()

    def push_to_hub(
        self, repo_id: str, *, private: bool | None = None, token: str | None = None
    ) -> str:
        """Upload the model to the Hugging Face Hub, into a repository that is created if necessary."""
        from huggingface_hub import HfApi

        api = HfApi(token=token)
        api.create_repo(repo_id, private=private, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return api.upload_folder(repo_id=repo_id, folder_path=folder)

    def save_pretrained(self, folder: str | Path) -> None:
        """Save the model as a folder with weights, configuration, model card and licence."""
        save_directory = Path(folder)
        save_directory.mkdir(parents=True, exist_ok=True)
        weights = dict(tree_flatten(self.parameters()))
        mx.save_safetensors(str(save_directory / WEIGHTS), weights, {"format": "mlx"})
        config = {"model_type": self.model_type, **self.config, "about": self.about.model_dump()}
        quantised = (nn.QuantizedLinear, nn.QuantizedEmbedding)
        for layer in self.modules():
            if isinstance(layer, quantised):
                config["quantization"] = {"group_size": layer.group_size, "bits": layer.bits}
        text = json.dumps(config, indent=2) + "\n"
        (save_directory / "config.json").write_text(text, encoding="utf-8")
        self.generate_model_card().save(save_directory / "README.md")
        if self.about.licence_text:
            (save_directory / "LICENSE").write_text(self.about.licence_text, encoding="utf-8")

    def generate_model_card(self) -> Any:
        """A model card with the Hub's metadata and all facts that a user of the weights needs."""
        from huggingface_hub import ModelCard, ModelCardData

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
            "Input": json.dumps(about.input),
            "Classes": ", ".join(entry["name"] for entry in about.classes) or "not named",
            "Arguments": json.dumps(self.config),
        }
        facts_text = "\n".join(f"- {name}: {value}" for name, value in facts.items() if value)
        return ModelCard(
            f"---\n{data.to_yaml()}\n---\n\n# {type(self).__name__} for MLX{slices}\n\n{summary}\n\n"
            f"{warning if self.medical else ''}\n{facts_text}\n\n```python\n"
            "from mlx_unpool_zoo import from_pretrained  # pip install 'mlx-unpool[zoo]'\n\n"
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
        """Create a model from a PyTorch state dict with the authors' parameter names, in evaluation mode.

        Args:
            state_dict: Tensors or arrays by name, or a checkpoint that contains them.
            dtype: The type of the parameters, such as ``"bfloat16"``. Default: float32.
            strict: Whether it must have exactly the parameters of the model.
            **arguments: Arguments of the model that cannot be inferred from the shapes of the arrays.

        Raises:
            ValueError: If the arrays do not fit. The message lists the differences.
        """
        state = cls.canonical(pytorch.arrays_of(pytorch.state_of(state_dict)))
        try:
            inferred = cls.config_of(state)
        except (KeyError, IndexError, StopIteration) as error:
            raise ValueError(
                f"[from_pytorch] 'state_dict' must contain the weights of {cls.model_type} with its authors' "
                f"parameter names, but there is no {error}. It has {pytorch.cut(list(state))}."
            ) from None
        given = {ALIASES.get(name, name): value for name, value in arguments.items()}
        known = inspect.signature(cls.__init__).parameters
        given = {n: v for n, v in given.items() if n in known or n not in cls.without_effect}
        model = cls(**inferred | given)
        model.about.converter = f"mlx_unpool {mlx_unpool.__version__}"
        return model._load(model.sanitize(state, strict=strict), dtype, strict)

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The arguments that can be inferred from the shapes of a state dict."""
        raise NotImplementedError

    @classmethod
    def canonical(cls, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Rename the parameters of a state dict to those of :meth:`pytorch_names`, if they are different."""
        return state

    @staticmethod
    def pytorch_names(name: str) -> tuple[str, ...]:
        """The names of a parameter in the authors' state dict."""
        return (name,)

    def sanitize(self, weights: Mapping[str, Any], *, strict: bool = True) -> dict[str, mx.array]:
        """Convert weights with the authors' names and layout, as arrays of any framework."""
        state = self.canonical(pytorch.arrays_of(pytorch.state_of(weights)))
        return pytorch.convert_state_dict(self, state, self.pytorch_names, strict=strict)

    # Inputs and predictions.

    def takes(self, channels: int, dims: int = 2) -> None:
        """Set the number of channels and of spatial dimensions of the inputs."""
        object.__setattr__(self, "_inputs", (channels, dims))
        self.about.input["planes"] = channels

    def check_input(self, x: mx.array) -> None:
        """Raise ValueError if an input does not have the shape (N, ..., channels)."""
        channels, dims = self._inputs
        if x.ndim == dims + 2 and x.shape[-1] == channels:
            return
        message = (
            f"[{type(self).__name__}] inputs must be (N, {AXES[dims]}, {channels}), channels last, but got "
            f"{tuple(x.shape)}."
        )
        if x.ndim == dims + 2 and x.shape[1] == channels:
            axes = ", ".join(map(str, (0, *range(2, dims + 2), 1)))
            message += f" If this is PyTorch's layout, channels first, pass x.transpose({axes})."
        raise ValueError(message)

    def preprocess(self, images: Any) -> mx.array:
        """The input of the model for one image or a batch: a picture of Pillow, or arrays, 0 to 255."""
        values = np.asarray(images)
        channels, dims = self._inputs
        if values.ndim == dims and channels == 1:
            values = values[..., None]
        values = values if values.ndim > dims + 1 else values[None]
        how = self.about.input.get("normalisation")
        if how is not None:
            values = (values * how["scale"] - np.array(how["mean"])) / np.array(how["std"])
        return mx.array(values.astype(np.float32))

    def predict(self, images: Any, *args: Any, **kwargs: Any) -> np.ndarray:
        """The class of every position of images of any size, (N, ...); see :meth:`preprocess`.

        Further arguments, such as the scale factor of FastSurferVINN, are passed to the model.
        """
        x, multiple = self.preprocess(images), self.about.input.get("multiple_of", 1)
        sizes = x.shape[1:-1]
        beyond = [(0, 0), *((0, -size % multiple) for size in sizes), (0, 0)]
        self.eval()
        found = []
        for image in mx.split(mx.pad(x, beyond, mode="edge"), len(x)):
            found.append(mx.argmax(self(image, *args, **kwargs), axis=-1).astype(mx.uint16))
            mx.eval(found)
        return np.array(mx.concatenate(found))[(slice(None), *map(slice, sizes))]


def from_pretrained(path_or_hub_id: str | Path, **options: Any) -> Model:
    """Load a model of any type; see :meth:`Model.from_pretrained`."""
    return Model.from_pretrained(path_or_hub_id, **options)


def from_pytorch(model_type: str, state_dict: Mapping[str, Any], **options: Any) -> Model:
    """Create a model of a type in :data:`MODELS` from PyTorch weights; see :meth:`Model.from_pytorch`."""
    if model_type not in MODELS:
        raise ValueError(
            f"[from_pytorch] 'model_type' must be one of {', '.join(MODELS)} but got {model_type!r}."
        )
    return MODELS[model_type].from_pytorch(state_dict, **options)
