"""The models for CamVid by name, their weights files, and what they say about a picture."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from data import camvid
from zoo.enet import ENet
from zoo.segnet import segnet_vgg16

from common.training import save_weights

MODELS = ("segnet", "enet")
INPUTS = {  # what a network was trained on, from pictures of 0 to 255
    "normalised": camvid.normalised,
    "raw": lambda pictures: mx.array(pictures.astype(np.float32)),
}


class Segmenter:
    """A model together with what its weights file has to say about it.

    Args:
        kind: ``"segnet"`` or ``"enet"``.
        width: Factor on the channels of SegNet.
        inputs: How pictures are given to it, a key of ``INPUTS``.
    """

    def __init__(self, kind: str, width: float = 1.0, inputs: str = "normalised") -> None:
        self.kind, self.width, self.inputs = kind, width, inputs
        classes = len(camvid.CLASS_NAMES)
        self.model: nn.Module = ENet(classes) if kind == "enet" else segnet_vgg16(classes, width)
        self.divisor = 8 if kind == "enet" else 1  # of the heights and widths that it takes

    def save(self, path: Path) -> None:
        """Writes the weights, and all that :func:`load` needs to know."""
        about = {"model": self.kind, "width": str(self.width), "input": self.inputs}
        save_weights(path, self.model, about)

    def predict(self, pictures: np.ndarray) -> np.ndarray:
        """The class of every pixel (N, H, W) of pictures (N, H, W, 3), 0 to 255, of any size."""
        height, width = pictures.shape[1:3]
        beyond = [(0, 0), (0, -height % self.divisor), (0, -width % self.divisor), (0, 0)]
        self.model.eval()
        parts = []
        for picture in np.pad(pictures, beyond, mode="edge"):
            parts.append(mx.argmax(self.model(INPUTS[self.inputs](picture[None])), axis=-1))
            mx.eval(parts)
        return np.concatenate(parts)[:, :height, :width].astype(np.uint8)


def load(path: Path) -> Segmenter:
    """The model of a weights file that :meth:`Segmenter.save` wrote.

    Raises:
        ValueError: If it is another kind of file.
    """
    weights, about = mx.load(str(path), return_metadata=True)
    if about.get("model") not in MODELS:
        raise ValueError(
            f"{path} does not say which model it belongs to: convert or train one first."
        )
    segmenter = Segmenter(about["model"], float(about["width"]), about["input"])
    segmenter.model.load_weights(list(weights.items()))
    return segmenter
