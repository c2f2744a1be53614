"""The base class of the models: loading, saving and conversion of the authors' weights."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

import mlx_unpool

from . import pytorch
from .card import model_card
from .config import check_arguments, with_one_spelling
from .errors import cut
from .files import replacing
from .folders import CARD, CHECKSUM, CONFIG, LICENCE, WEIGHTS, load, ready, sha256

M = TypeVar("M", bound="Model")
# The normalisation of pictures from 0 to 255 for networks trained on ImageNet.
IMAGENET = {"scale": 1 / 255, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
AXES = {1: "L", 2: "H, W", 3: "D, H, W"}


@dataclasses.dataclass
class About:
    """Information about a model, which its folder contains in addition to the arguments.

    Attributes:
        paper: The publication of the model.
        input: ``planes`` (channels of the input), ``size`` (the supported sizes), ``multiple_of`` (of which
            each size must be a multiple) and ``normalisation``: ``scale`` (a factor), then ``mean`` and
            ``std`` of each plane, or None for no normalisation.
        classes: For segmentation, in the order of the scores: ``name`` and ``colour`` (RGB, 0 to 255).
        plane: ``"axial"``, ``"coronal"`` or ``"sagittal"`` if the weights are for slices of one plane.
        source: The origin of the weights.
        base_model: The original model, for the Hugging Face Hub.
        licence: The licence of the weights, as an SPDX identifier if it has one.
        licence_link: The address of the licence.
        converter: The version of this package that converted the weights.
        licence_text: The text of the licence, which is saved as a separate file.
    """

    paper: str = ""
    input: dict[str, Any] = dataclasses.field(default_factory=dict)
    classes: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    plane: str | None = None
    source: str = "unknown"
    base_model: str = ""
    licence: str = "unknown"
    licence_link: str = ""
    converter: str = ""
    licence_text: str = ""


class OneSpelling(type):
    """Translates the authors' spellings of arguments when a model is made."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **with_one_spelling(kwargs, cls.__name__))


class Model(nn.Module, metaclass=OneSpelling):
    """A model that can be saved as a folder and loaded with its authors' weights.

    The number of classes is ``num_classes`` in every model; ``classes`` and ``num_class`` are aliases.

    Attributes:
        config: The arguments by name, with defaults.
        about: Information about the model, which is saved in its folder.
    """

    model_type: ClassVar[str]
    default_about: ClassVar[About]
    # A BibTeX entry for the publication.
    citation: ClassVar[str] = ""
    # Whether the model is for medical images.
    medical: ClassVar[bool] = False
    # Whether the model segments images; autoencoders do not.
    segments: ClassVar[bool] = True
    # Entries of the authors' configurations that do not affect the model.
    without_effect: ClassVar[frozenset[str]] = frozenset()

    config: dict[str, Any]
    about: About

    def __new__(cls, *args: Any, **kwargs: Any) -> Model:
        model = super().__new__(cls)
        given = inspect.signature(cls.__init__).bind_partial(model, *args, **kwargs)
        given.apply_defaults()
        # mlx.nn.Module would treat the entries of a dict as parameters.
        object.__setattr__(model, "config", dict(list(given.arguments.items())[1:]))
        object.__setattr__(model, "about", copy.deepcopy(cls.default_about))
        return model

    @classmethod
    def from_pretrained(
        cls: type[M],
        path_or_hub_id: str | Path,
        *,
        dtype: mx.Dtype | None = None,
        strict: bool = True,
        revision: str | None = None,
    ) -> M:
        """Load a model of this class from a folder; see :func:`mlx_unpool_zoo.from_pretrained`."""
        models: dict[str, type[Model]] = {cls.model_type: cls}
        loaded: Any = load(path_or_hub_id, models, dtype=dtype, strict=strict, revision=revision)
        return loaded

    @classmethod
    def from_pytorch(
        cls: type[M],
        state_dict: Mapping[str, Any],
        *,
        dtype: mx.Dtype | None = None,
        strict: bool = True,
        **config: Any,
    ) -> M:
        """Create a model of this class with weights from PyTorch; see :func:`mlx_unpool_zoo.from_pytorch`."""
        state = cls.canonical(pytorch.arrays_of(pytorch.state_of(state_dict)))
        try:
            arguments = cls.config_of(state)
        except (KeyError, IndexError, StopIteration) as error:
            raise ValueError(
                f"[from_pytorch] 'state_dict' must contain the weights of {cls.model_type} with its authors' "
                f"parameter names, but there is no {error}. It has {cut(list(state))}."
            ) from None
        arguments |= check_arguments(cls, config, "[from_pytorch] 'config'")
        needed = [
            name
            for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]
            if parameter.default is parameter.empty and name not in arguments
        ]
        if needed:
            raise ValueError(
                f"[from_pytorch] 'config' of {cls.model_type} must contain what these weights do not "
                f"determine: {', '.join(needed)}."
            )
        model = cls(**arguments)
        model.about.converter = f"mlx_unpool {mlx_unpool.__version__}"
        weights = model.sanitize(state, strict=strict)
        loaded: Any = ready(model, weights, dtype=dtype, strict=strict, source="the state dict")
        return loaded

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
        """Convert weights with the authors' names and layout to weights for this model.

        Args:
            weights: A state dict: arrays of any framework by name, in PyTorch's layout.
            strict: Whether it must have exactly the parameters of the model.

        Raises:
            ValueError: If the weights do not fit the model.
        """
        state = self.canonical(pytorch.arrays_of(pytorch.state_of(weights)))
        return pytorch.convert_state_dict(self, state, self.pytorch_names, strict=strict)

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

    def save_pretrained(self, folder: str | Path) -> None:
        """Save the model as a folder with weights, configuration, model card and licence.

        If this fails, a folder that did not exist before is removed again.

        Args:
            folder: The folder, which is created if necessary. Load it with
                :func:`mlx_unpool_zoo.from_pretrained`.
        """
        folder = Path(folder)
        existed = folder.exists()
        weights = dict(tree_flatten(self.parameters()))
        about = dataclasses.asdict(self.about)
        licence = about.pop("licence_text")
        config = {"model_type": self.model_type, "config": self.config} | about
        count = sum(value.size for value in weights.values())
        try:
            with replacing(folder / WEIGHTS) as partial:
                try:
                    mx.save_safetensors(str(partial), weights, {"format": "mlx"})
                except RuntimeError as error:
                    raise OSError(f"{folder / WEIGHTS} cannot be written: {error}") from None
                config[CHECKSUM] = sha256(partial)
            texts = {CONFIG: json.dumps(config, indent=2) + "\n", CARD: model_card(self, count)}
            if licence:
                texts[LICENCE] = licence
            for name, text in texts.items():
                with replacing(folder / name) as partial:
                    partial.write_text(text, encoding="utf-8")
        except BaseException:
            if not existed:
                shutil.rmtree(folder, ignore_errors=True)
            raise
