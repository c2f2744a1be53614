"""Images with a class for every pixel: batches for training, metrics and a summary."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import mlx.core as mx
import numpy as np

from .data import Record
from .data.pictures import IGNORED
from .metrics import boundary_f_score, confusion_matrix, iou
from .model import Model

SPLITS = ("train", "validation", "test")


@dataclass
class Pictures:
    """Images (H, W, 3) with the class index of every pixel (H, W), all uint8, and the classes.

    ``record``: what was read, if they are from files. ``weighted``: see :meth:`class_weights`.
    """

    pairs: list[tuple[np.ndarray, np.ndarray]]
    classes: list[dict[str, Any]]
    record: Record | None = None
    weighted: bool = True

    @classmethod
    def of(cls, record: Record) -> Pictures:
        """The images of a split."""
        return cls(record.pairs, record.classes, record)

    def counts(self) -> np.ndarray:
        """The number of pixels (256) of each class index, and of those that are ignored."""
        counts = np.zeros(256, int)
        for _, truth in self.pairs:
            counts += np.bincount(truth.ravel(), minlength=256)
        return counts

    def counted(self) -> dict[str, Any]:
        """How many classes have pixels, how many pixels count, and the share that is ignored."""
        counts = self.counts()
        counted = counts[:IGNORED]
        return {
            "counted_classes": int((counted > 0).sum()),
            "counted_pixels": int(counted.sum()),
            "ignored_share": float(1 - counted.sum() / counts.sum()),
        }

    def summary(self) -> str:
        """The number of images and a checksum of them and their masks."""
        checksum = 0
        for array in chain(*self.pairs):
            checksum = zlib.crc32(array.tobytes(), checksum)
        return f"{len(self.pairs)} images with the checksum {checksum:08x}"

    def class_weights(self) -> np.ndarray:
        """The weight of each value of a pixel in the loss, 0 if it is ignored.

        That of a class is ``1 / ln(1.02 + share)`` as in ENet's paper, or 1 if not ``weighted``.
        """
        weights = np.ones(256)
        if self.weighted:
            counts = self.counts()
            weights = 1 / np.log(1.02 + counts / counts[:IGNORED].sum())
        weights[IGNORED] = 0
        return weights.astype(np.float32)

    def crop_of(self, model: Model, crop: int | None) -> int:
        """The side of training squares: ``crop``, or the median of the shorter sides."""
        multiple = check_crop(model, crop)
        median = int(np.median([min(truth.shape) for _, truth in self.pairs]))
        return crop or max(multiple, median // multiple * multiple)

    def batches(
        self, model: Model, count: int, seed: int, crop: int | None = None
    ) -> Iterator[tuple[mx.array, ...]]:
        """Endless batches of inputs, classes and weights: squares of random images, half mirrored.

        Their side is that of :meth:`crop_of`. Smaller images are padded with ignored pixels.
        """
        random, weights = np.random.default_rng(seed), self.class_weights()
        side, few = self.crop_of(model, crop), len(self.pairs) < count
        while True:
            pictures, truths = [], []
            for number in random.choice(len(self.pairs), count, replace=few):
                picture, truth = self.pairs[number]
                picture, truth = square_of(picture, truth, side, random)
                pictures.append(picture)
                truths.append(truth)
            classes = np.stack(truths)
            numbers = classes.clip(max=len(self.classes) - 1).astype(np.int32)
            inputs = model.preprocess(np.stack(pictures))
            yield inputs, mx.array(numbers), mx.array(weights[classes])

    def metrics_of(self, model: Model) -> dict[str, Any]:
        """IoU of each class, its mean, boundary F-score (1 pixel), accuracy and confusion matrix.

        They are computed over the pixels of all images that count. The rows of the confusion matrix
        are the true classes. The mean IoU is None if fewer than two classes have pixels.
        """
        training = model.training
        model.eval()  # once, because predict copies a model in training mode
        predictions = [model.predict(picture) for picture, _ in self.pairs]
        model.train(training)
        truth, prediction = stacked([truth for _, truth in self.pairs]), stacked(predictions)
        counts = confusion_matrix(truth, prediction, len(self.classes))
        names = [entry["name"] for entry in self.classes]
        named = dict(zip(names, iou(counts).tolist(), strict=True))
        named = {name: value for name, value in named.items() if not np.isnan(value)}
        counted = self.counted()
        mean = float(np.mean([*named.values()]))
        return {
            "miou": mean if counted["counted_classes"] > 1 else None,
            "boundary_f_score": boundary_f_score(truth, prediction),
            "pixel_accuracy": float(np.trace(counts) / counts.sum()),
            "iou": named,
            "classes": names,
            "confusion": counts.tolist(),
        } | counted


def square_of(
    picture: np.ndarray, truth: np.ndarray, side: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A random square of an image and of its classes, mirrored or not.

    An image that is smaller is padded below and on the right, with pixels that are ignored.
    """
    below = [(0, max(0, side - size)) for size in truth.shape]
    picture = np.pad(picture, [*below, (0, 0)], "edge")
    truth = np.pad(truth, below, constant_values=IGNORED)
    step = random.choice((1, -1))  # from pixel to pixel of a row
    y, x = (random.integers(size - side + 1) for size in truth.shape)
    area = np.s_[y : y + side, x : x + side]
    return picture[area][:, ::step], truth[area][:, ::step]


def check_crop(model: Model | type[Model], crop: int | None) -> int:
    """The number of which sizes are multiples. Raises ValueError if ``crop`` is not one."""
    multiple = model.facts.multiple_of
    if crop and crop % multiple:
        raise ValueError(f"--crop must be a multiple of {multiple} for this model, but got {crop}.")
    return multiple


def stacked(planes: Sequence[np.ndarray]) -> np.ndarray:
    """Planes (H, W) of any sizes as one array, padded with ignored pixels."""
    size = np.max([plane.shape for plane in planes], axis=0)
    padded = [
        np.pad(p, [(0, a - b) for a, b in zip(size, p.shape)], constant_values=IGNORED)
        for p in planes
    ]
    return np.stack(padded)
