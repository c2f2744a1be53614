"""Models that pool with indices and unpool by them, one file a family, with their authors' weights.

A model is a folder: ``model.safetensors``, ``config.json`` and a model card. With ``examples/`` on the path::

    model = zoo.from_pytorch("quicknat", state_dict)  # a state dict under its authors' names
    model.save_pretrained("quicknat")
    model = zoo.from_pretrained("quicknat")  # or the name of a model on the Hugging Face Hub
    scores = model(images)  # channels last
"""

from __future__ import annotations

from .loading import MODELS, from_pretrained, from_pytorch
from .model import About, Model, read_classes

__all__ = ["MODELS", "About", "Model", "from_pretrained", "from_pytorch", "read_classes"]
