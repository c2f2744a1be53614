"""Models of the zoo that segment street scenes."""

from __future__ import annotations

from pathlib import Path

import mlx_unpool_zoo as zoo
from mlx_unpool_zoo.enet import ENet
from mlx_unpool_zoo.model import IMAGENET
from mlx_unpool_zoo.segnet import segnet_vgg16

from support import camvid


def for_camvid(kind: str, width: float = 1.0, inputs: str = "normalised") -> zoo.Model:
    """A new model for the classes of CamVid.

    Args:
        kind: ``"segnet"`` (as in the paper) or ``"enet"``.
        width: Factor for the channels of SegNet.
        inputs: ``"normalised"`` as for ImageNet, or ``"raw"``: values from 0 to 255.
    """
    classes = len(camvid.CLASSES)
    model: zoo.Model = ENet(classes) if kind == "enet" else segnet_vgg16(classes, width)
    model.about.classes = camvid.CLASSES
    model.about.input["normalisation"] = None if inputs == "raw" else IMAGENET
    return model


def load(path: str | Path) -> zoo.Model:
    """Load a model that segments pictures.

    Raises:
        ValueError: If it is another model, or its classes have no names.
    """
    model = zoo.from_pretrained(path)
    channels, named = model.about.input.get("planes"), len(model.about.classes)
    if not model.segments or channels != 3 or not named:
        raise ValueError(
            f"{path} must contain a model that segments pictures and names its classes, but it is a "
            f"{model.model_type} for {channels} channels with {named} named classes."
        )
    return model
