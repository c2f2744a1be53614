"""Load a model with weights from a folder, from the Hub or from a PyTorch state dict."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from .autoencoders import ConvAutoencoder3d, InceptionAutoencoder
from .enet import ENet
from .fastsurfer import CerebNet, FastSurferCNN, FastSurferVINN, HypVINN
from .files import load_arrays
from .folders import load, ready
from .model import IMAGENET, Model
from .quicknat import QuickNAT
from .segnet import SegNet, segnet_vgg16

MODELS: dict[str, type[Model]] = {
    model.model_type: model
    for model in (
        SegNet,
        ENet,
        FastSurferCNN,
        FastSurferVINN,
        CerebNet,
        HypVINN,
        QuickNAT,
        InceptionAutoencoder,
        ConvAutoencoder3d,
    )
}


def from_pretrained(
    path_or_hub_id: str | Path,
    *,
    dtype: mx.Dtype | None = None,
    strict: bool = True,
    revision: str | None = None,
) -> Model:
    """Load a model from a folder written by ``save_pretrained``, on this machine or on the Hugging Face Hub.

    Args:
        path_or_hub_id: A folder, or ``"owner/name"``, which is downloaded with ``huggingface_hub``. Weights
            files of earlier versions of ``camvid_train.py`` are supported as well.
        dtype: The dtype of the parameters, such as ``mx.bfloat16``. Default: as in the file.
        strict: Whether the file must have exactly the parameters of the model. If False, missing parameters
            keep their random values, and others are ignored with a warning.
        revision: A branch, tag or commit on the Hub. Ignored for a folder on this machine.

    Returns:
        The model in evaluation mode.

    Raises:
        ValueError: If the folder does not exist, is damaged or does not contain a model of this package. The
            message names the file and the key.
    """
    path = Path(path_or_hub_id)
    if path.is_file():
        return from_old_file(path, dtype, strict)
    return load(path_or_hub_id, MODELS, dtype=dtype, strict=strict, revision=revision)


def from_pytorch(
    model_type: str,
    state_dict: Mapping[str, Any],
    *,
    dtype: mx.Dtype | None = None,
    strict: bool = True,
    **config: Any,
) -> Model:
    """Create a model with the weights of a PyTorch state dict that has the authors' parameter names.

    Args:
        model_type: A key of :data:`MODELS`.
        state_dict: Tensors or NumPy arrays by name, or a checkpoint that contains them; see
            :func:`mlx_unpool_zoo.pytorch.state_of`.
        dtype: The dtype of the parameters, such as ``mx.bfloat16``. Default: float32.
        strict: Whether the state dict must have exactly the parameters of the model.
        **config: Arguments of the model, except those that can be inferred from the shapes of the arrays.

    Returns:
        The model in evaluation mode; its arrays are evaluated and contiguous, so that it can be exported.

    Raises:
        ValueError: If there is no such model, or the arrays do not fit it. The message lists the parameters
            that are missing, unused or of another shape.
    """
    if model_type not in MODELS:
        raise ValueError(
            f"[from_pytorch] 'model_type' must be one of {', '.join(MODELS)} but got {model_type!r}."
        )
    cls = MODELS[model_type]
    return cls.from_pytorch(state_dict, dtype=dtype, strict=strict, **config)


def from_old_file(path: Path, dtype: mx.Dtype | None, strict: bool) -> Model:
    """Load a model from a weights file of earlier versions of ``camvid_train.py``."""
    weights, about = load_arrays(path) if path.suffix == ".safetensors" else ({}, {})
    if about.get("model") not in ("segnet", "enet"):
        raise ValueError(
            f"[from_pretrained] {path} must be a folder, or a weights file that says which model it belongs "
            f"to. Convert it first: from_pytorch(model_type, pytorch.read_state({path.name!r}))"
            ".save_pretrained(folder)."
        )
    classes = 12  # these files contain models for CamVid
    is_enet = about["model"] == "enet"
    model: Model = ENet(classes) if is_enet else segnet_vgg16(classes, float(about["width"]))
    model.about.input["normalisation"] = None if about.get("input") == "raw" else IMAGENET
    return ready(model, weights, dtype=dtype, strict=strict, source=str(path))
