"""A model of the zoo that segments pictures, with the input normalisation and classes from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_unpool_zoo as zoo
import numpy as np
from mlx_unpool_zoo.enet import ENet
from mlx_unpool_zoo.model import IMAGENET
from mlx_unpool_zoo.segnet import segnet_vgg16

from support import camvid


class Segmenter:
    """Predicts the class of every pixel.

    Args:
        model: The model, whose ``about`` defines the normalisation and the supported sizes of pictures.
    """

    def __init__(self, model: zoo.Model) -> None:
        self.model = model
        self.kind = model.model_type
        self.divisor = model.about.input["multiple_of"]  # of the supported heights and widths

    @property
    def classes(self) -> list[dict[str, Any]]:
        """Names and colours of the classes."""
        return self.model.about.classes

    def inputs(self, pictures: np.ndarray) -> mx.array:
        """The input of the model for pictures (N, H, W, 3) with values from 0 to 255, as float32."""
        how = self.model.about.input["normalisation"]
        if how is None:
            return mx.array(pictures.astype(np.float32))
        scaled = pictures * how["scale"]
        return mx.array(
            ((scaled - np.array(how["mean"])) / np.array(how["std"])).astype(np.float32)
        )

    def predict(self, pictures: np.ndarray) -> np.ndarray:
        """The class of every pixel (N, H, W) of pictures (N, H, W, 3), 0 to 255, of any size."""
        height, width = pictures.shape[1:3]
        beyond = [(0, 0), (0, -height % self.divisor), (0, -width % self.divisor), (0, 0)]
        self.model.eval()
        parts = []
        for picture in np.pad(pictures, beyond, mode="edge"):
            parts.append(mx.argmax(self.model(self.inputs(picture[None])), axis=-1))
            mx.eval(parts)
        return np.concatenate(parts)[:, :height, :width].astype(np.uint8)


def for_camvid(kind: str, width: float = 1.0, inputs: str = "normalised") -> Segmenter:
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
    return Segmenter(model)


def load(path: str | Path) -> Segmenter:
    """Load a model from a folder, or from a weights file for CamVid of an earlier version.

    Raises:
        ValueError: If there is no model, or its classes have no names.
    """
    path = Path(path)
    model = zoo.from_pretrained(path)
    if path.is_file():
        model.about.classes = camvid.CLASSES
    if not model.segments or model.about.input.get("planes") != 3:
        raise ValueError(
            f"{path} must contain a model that segments pictures with 3 channels, such as enet or segnet, "
            f"but it is a {model.model_type} (channels: {model.about.input.get('planes')})."
        )
    if not model.about.classes:
        raise ValueError(
            f"{path} must name its classes, but 'classes' in its config.json is empty: convert the weights "
            "with --classes."
        )
    return Segmenter(model)
