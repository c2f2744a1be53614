"""The base class of the models, and functions that create a model of any type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .about import MODELS as MODELS
from .pictures import Predicting
from .saving import Stored


class Model(Stored, Predicting):
    """Base class of the models: load, save, upload, convert the authors' weights.

    Attributes:
        config: Arguments of the model, with defaults.
        about: Information saved with the model; setting an invalid entry raises ValueError.
        about.input: ``planes`` (channels), ``size`` (supported sizes, as text), ``multiple_of`` (sizes are
            padded to a multiple of it), ``normalisation`` (None, or ``scale``, ``mean`` and ``std``), after
            training ``side`` (see ``Model.predict``) and ``white_level`` (see ``Model.preprocess``).
        about.classes: For each score ``name``, ``colour`` (RGB, 0 to 255) and, if known, ``label``
            (its number in masks).
        about.plane: ``"axial"``, ``"coronal"``, ``"sagittal"`` or None.
        about.base_model: The original model on the Hugging Face Hub, "owner/name".
        about.paper, about.source, about.converter: Texts for the model card.
        about.licence, about.licence_link, about.licence_text: The licence of the weights, for the card.
    """


from_pretrained = Model.from_pretrained  # a model of any type


def from_pytorch(model_type: str, state_dict: Mapping[str, Any], **options: Any) -> Model:
    """Create a model of a ``model_type`` such as ``"enet"`` from PyTorch weights; see
    ``Model.from_pytorch``."""
    if model_type not in MODELS:
        raise ValueError(f"'model_type' must be one of {', '.join(MODELS)} but got {model_type!r}.")
    return MODELS[model_type].from_pytorch(state_dict, **options)
