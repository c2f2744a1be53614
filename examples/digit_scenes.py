"""Scenes to segment: handwritten digits on photographs, with a class for every pixel.

The digits are scikit-learn's ``load_digits`` (1,797 images of 8 x 8), the photographs its two
sample images. Training, validation and test scenes have no digit image and no part of a photograph
in common.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_unpool_zoo import Model
from mlx_unpool_zoo.batches import SPLITS, Pictures
from mlx_unpool_zoo.classes import palette
from scipy.ndimage import zoom
from sklearn.datasets import load_digits, load_sample_image

DIGITS = (0, 1, 4, 7)  # four of ten, which a network learns to tell apart in half a minute
LARGEST_DIGIT = 20  # the side, in pixels
CLASS_NAMES = ("background", *map(str, DIGITS))
_DIGIT_SHARES = (0.75, 0.10, 0.15)
# The columns of each photograph that belong to each split.
_COLUMNS = {
    "flower.jpg": {"train": (0, 240), "validation": (240, 400), "test": (400, 640)},
    "china.jpg": {"train": (0, 320), "validation": (320, 480), "test": (480, 640)},
}


class DrawnScenes(Pictures):
    """Squares for training, new ones in each step, with one or two digits."""

    def batches(
        self, model: Model, count: int, seed: int, crop: int | None = None
    ) -> Iterator[tuple[mx.array, ...]]:
        """Endless batches of inputs, classes and weights."""
        scenes = Scenes("train", crop or 32, digits=(1, 2), seed=seed)
        weights = self.class_weights()
        while True:
            images, classes = scenes.batch(count)
            yield model.preprocess(images), mx.array(classes), mx.array(weights[classes])

    def class_weights(self) -> np.ndarray:
        """The weight of each class: less for the background, which has most pixels."""
        return np.array([0.2, *[1] * len(DIGITS)], np.float32)

    def summary(self) -> str:
        """A description."""
        return "new scenes in each step"


def scenes_to_evaluate(split: str, count: int) -> Pictures:
    """Larger scenes with more digits than for training, always the same ones."""
    images, truth = Scenes(split, size=64, digits=(3, 6), seed=0).batch(count)
    pairs = zip((images * 255).astype(np.uint8), truth.astype(np.uint8), strict=True)
    named = zip(CLASS_NAMES, palette(len(CLASS_NAMES)), strict=True)
    return Pictures([*pairs], [{"name": name, "colour": colour} for name, colour in named])


class Scenes:
    """Endless random scenes of one split; the same seed gives the same scenes.

    Args:
        split: ``"train"``, ``"validation"`` or ``"test"``.
        size: Height and width of a scene in pixels.
        digits: Least and greatest number of digits in a scene.
        seed: Seed of the random generator.
        names: The photographs. Without the sky of ``china.jpg`` the scenes are dark, and easier.
    """

    def __init__(
        self,
        split: str,
        size: int,
        digits: tuple[int, int],
        seed: int,
        names: Sequence[str] = tuple(_COLUMNS),
    ) -> None:
        self.split, self.size, self.digits = split, size, digits
        self.random = np.random.default_rng([SPLITS.index(split), seed])
        self.digit_ids = digit_ids(split)
        self.photographs = photographs(split, names)

    def batch(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """``count`` scenes: images (count, size, size, 3) float32 in 0 to 1, classes int32."""
        scenes = [self._scene() for _ in range(count)]
        images, classes = zip(*scenes, strict=True)
        return np.stack(images).astype(np.float32), np.stack(classes)

    def _scene(self) -> tuple[np.ndarray, np.ndarray]:
        image = 0.6 * self._background()  # darker, so that bright ink has contrast
        classes = np.zeros((self.size, self.size), np.int32)
        taken = np.zeros((self.size, self.size), bool)  # the digits, without a margin of two pixels
        for _ in range(self.random.integers(self.digits[0], self.digits[1] + 1)):
            pixels = int(self.random.choice(np.arange(12, LARGEST_DIGIT + 1, 2)))
            corner = self._free_corner(pixels, taken)
            if corner is None:
                continue
            y, x = corner
            taken[y + 2 : y + pixels - 2, x + 2 : x + pixels - 2] = True
            digit = int(self.random.choice(self.digit_ids))
            ink = drawn_digit(digit, pixels)
            colour = self.random.uniform(0.65, 1.0, 3)
            area = np.s_[y : y + pixels, x : x + pixels]
            image[area] += ink[..., None] * (colour - image[area])
            classes[area][ink > 0.3] = 1 + DIGITS.index(digit_data().target[digit])
        return image, classes

    def _background(self) -> np.ndarray:
        photograph = self.photographs[self.random.integers(len(self.photographs))]
        width = int(self.size * self.random.uniform(0.6, 1.6))
        y = self.random.integers(photograph.shape[0] - width + 1)
        x = self.random.integers(photograph.shape[1] - width + 1)
        rows = np.arange(self.size) * width // self.size
        crop = photograph[y + rows][:, x + rows]
        return crop[:, ::-1] if self.random.random() < 0.5 else crop

    def _free_corner(
        self, pixels: int, taken: np.ndarray, tries: int = 20
    ) -> tuple[int, int] | None:
        """A corner where a digit overlaps no other by more than two pixels."""
        for _ in range(tries):
            y, x = (int(v) for v in self.random.integers(0, self.size - pixels + 1, 2))
            if not taken[y : y + pixels, x : x + pixels].any():
                return y, x
        return None


def digit_ids(split: str) -> np.ndarray:
    """The numbers of the digit images that belong to a split."""
    order = np.random.default_rng(0).permutation(len(digit_data().target))
    ends = np.cumsum(np.array(_DIGIT_SHARES) * len(order)).astype(int)
    chosen = np.split(order, ends[:-1])[SPLITS.index(split)]
    return chosen[np.isin(digit_data().target[chosen], DIGITS)]


def photographs(split: str, names: Sequence[str] = tuple(_COLUMNS)) -> list[np.ndarray]:
    """The pieces of photographs that belong to a split, float in 0 to 1."""
    pieces = [load_sample_image(name)[:, slice(*_COLUMNS[name][split])] for name in names]
    return [piece.astype(np.float32) / 255 for piece in pieces]


@functools.cache
def drawn_digit(digit: int, pixels: int) -> np.ndarray:
    """A digit image enlarged to ``pixels`` x ``pixels``: the amount of ink from 0 to 1."""
    small = digit_data().images[digit] / 16.0
    return np.clip(zoom(small, pixels / 8, order=3, mode="grid-constant", grid_mode=True), 0, 1)


@functools.cache
def digit_data() -> Any:
    """scikit-learn's digits: ``images`` (1797, 8, 8) in 0 to 16, ``target`` (1797,) in 0 to 9."""
    return load_digits()
