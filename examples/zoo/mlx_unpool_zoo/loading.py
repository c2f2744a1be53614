"""The registry of the zoo, and the two ways to a model with weights: from its authors, from a folder."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from . import pytorch
from .autoencoders import ConvAutoencoder3d, InceptionAutoencoder
from .enet import ENet
from .fastsurfer import FastSurferCNN, FastSurferVINN
from .files import load_arrays
from .model import CONFIG, WEIGHTS, About, Model
from .quicknat import QuickNAT
from .segnet import SegNet, segnet_vgg16

MODELS: dict[str, type[Model]] = {
    model.model_type: model
    for model in (
        SegNet,
        ENet,
        FastSurferCNN,
        FastSurferVINN,
        QuickNAT,
        InceptionAutoencoder,
        ConvAutoencoder3d,
    )
}
CLASS_COUNTS = ("classes", "num_classes", "num_class")  # what authors call the same argument


def from_pytorch(model_type: str, state_dict: Mapping[str, Any], **config: Any) -> Model:
    """A model with the weights of a PyTorch state dict under its authors' names, ready to predict.

    Args:
        model_type: A key of :data:`MODELS`.
        state_dict: Tensors or NumPy arrays by name; also a checkpoint around one, see
            :func:`zoo.pytorch.state_of`.
        **config: Arguments of the model. What the shapes of the arrays tell can be left out.

    Returns:
        The model in evaluation mode; its arrays are evaluated and contiguous, so that it can be exported.

    Raises:
        ValueError: If there is no such model, or the arrays are not those of this one. All that are missing,
            left over or misshapen are named.
    """
    cls = model_class(model_type)
    state = cls.canonical(pytorch.arrays_of(pytorch.state_of(state_dict)))
    try:
        arguments = cls.config_of(state) | own_arguments(cls, config)
    except (KeyError, IndexError, StopIteration) as error:
        raise ValueError(
            f"[from_pytorch] 'state_dict' must hold the weights of {model_type} under its authors' names, "
            f"but there is no {error}. It has {', '.join(list(state)[:5])}, ..."
        ) from None
    needed = [
        name
        for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]
        if parameter.default is parameter.empty and name not in arguments
    ]
    if needed:
        raise ValueError(
            f"[from_pytorch] 'config' of {model_type} must hold what these weights do not tell: "
            f"{', '.join(needed)}."
        )
    model = cls(**arguments)
    return ready(model, model.sanitize(state))


def from_pretrained(path_or_hub_id: str | Path) -> Model:
    """A model of a folder that ``save_pretrained`` wrote, or of such a folder on the Hugging Face Hub.

    Args:
        path_or_hub_id: The folder, or ``"owner/name"``, which is downloaded with ``huggingface_hub``. A
            weights file of earlier versions of ``camvid_convert.py`` and ``camvid_train.py`` is read as well.

    Raises:
        ValueError: If there is no such folder, or it does not hold a model of the zoo.
    """
    path = Path(path_or_hub_id)
    if path.is_file():
        return from_old_file(path)
    if not path.is_dir():
        path = downloaded(str(path_or_hub_id))
    for name in (CONFIG, WEIGHTS):
        if not (path / name).is_file():
            raise ValueError(
                f"[from_pretrained] {path} must hold {CONFIG} and {WEIGHTS}, but {name} is not there. "
                "Convert weights first: zoo.from_pytorch(...).save_pretrained(folder)."
            )
    try:
        about = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"[from_pretrained] {path / CONFIG} is no JSON: {error}.") from None
    cls = model_class(about.pop("model_type", None))
    model = cls(**about.pop("config"))
    model.about = About(**about)
    weights, metadata = load_arrays(path / WEIGHTS)
    if metadata.get("format") != "mlx":  # published for PyTorch, with a configuration for this
        weights = model.sanitize(weights)
    return ready(model, weights)


def from_old_file(path: Path) -> Model:
    """A model of a weights file as ``camvid_train.py`` wrote them before there were folders."""
    weights, about = load_arrays(path) if path.suffix == ".safetensors" else ({}, {})
    if about.get("model") not in ("segnet", "enet"):
        raise ValueError(
            f"[from_pretrained] {path} must be a folder of the zoo, or a weights file that says which model "
            "it belongs to. Convert it first: zoo.from_pytorch(model_type, "
            f"zoo.pytorch.read_state({path.name!r})).save_pretrained(folder)."
        )
    classes = 12  # of CamVid, which these files are for
    is_enet = about["model"] == "enet"
    model: Model = ENet(classes) if is_enet else segnet_vgg16(classes, float(about["width"]))
    if about.get("input") == "raw":
        model.about.input["normalisation"] = None
    return ready(model, weights)


def downloaded(hub_id: str) -> Path:
    """The folder of a model on the Hugging Face Hub, fetched if it is not there yet."""
    if hub_id.count("/") != 1 or hub_id.startswith((".", "/")):
        raise ValueError(
            f"[from_pretrained] 'path_or_hub_id' must be a folder or 'owner/name' but got {hub_id!r}."
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ValueError(
            f"[from_pretrained] There is no folder {hub_id}; to look on the Hugging Face Hub "
            "'pip install huggingface_hub' is needed."
        ) from None
    return Path(snapshot_download(hub_id, allow_patterns=["*.json", "*.safetensors", "README.md"]))


def model_class(model_type: Any) -> type[Model]:
    """The class of a model type."""
    if model_type not in MODELS:
        raise ValueError(
            f"[zoo] 'model_type' must be one of {', '.join(MODELS)} but got {model_type!r}."
        )
    return MODELS[model_type]


def own_arguments(cls: type[Model], config: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, by the names of the arguments of the model."""
    known = inspect.signature(cls.__init__).parameters
    (classes,) = [name for name in CLASS_COUNTS if name in known] or [""]
    own = {}
    for name, value in config.items():
        name = classes if name in CLASS_COUNTS and classes else name
        if name in known:
            own[name] = value
        elif name not in cls.without_effect:
            raise ValueError(
                f"[from_pytorch] 'config' of {cls.model_type} must hold none but "
                f"{', '.join(list(known)[1:])}, but got {name!r}."
            )
    return own


def ready(model: Model, weights: Mapping[str, mx.array]) -> Model:
    """A model with its weights, to predict with.

    The arrays lie in memory, in order: MLX cannot export those it has yet to load, and exports others
    wrongly.
    """
    model.load_weights([(name, mx.contiguous(value)) for name, value in weights.items()])
    model.eval()
    mx.eval(model.parameters())
    return model
