"""Drawn street scenes in the layout of CamVid, for training without the real data set.

``python examples/camvid_train.py`` calls :func:`write_streets` if no data set is given.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from scipy.ndimage import gaussian_filter

from support.camvid import CLASS_NAMES, SPLITS

Paint = tuple[int, ...]

COUNTS = {"train": 60, "val": 10, "test": 10}
# Colours of the objects of each class, in RGB.
PAINTS = {
    "sky": [(150, 190, 230), (200, 205, 210), (110, 160, 220)],
    "building": [(150, 110, 90), (180, 160, 140), (120, 120, 130), (170, 90, 70)],
    "pole": [(70, 70, 75), (110, 105, 95)],
    "road": [(85, 85, 90), (100, 98, 95), (70, 70, 72)],
    "pavement": [(150, 145, 140), (165, 150, 135)],
    "tree": [(50, 95, 45), (80, 120, 50), (40, 75, 40)],
    "sign": [(200, 40, 40), (40, 70, 180), (230, 190, 40)],
    "fence": [(110, 85, 60), (90, 95, 90)],
    "car": [(180, 30, 35), (40, 50, 120), (220, 220, 225), (30, 30, 35)],
    "pedestrian": [(60, 50, 110), (140, 60, 60), (40, 40, 40)],
    "bicyclist": [(200, 140, 40), (60, 130, 130)],
}


class Street:
    """One scene: shapes drawn from far to near, in the picture and in the class map."""

    def __init__(self, random: np.random.Generator, width: int, height: int) -> None:
        self.random, self.width, self.height = random, width, height
        self.picture = Image.new("RGB", (width, height))
        self.classes = Image.new("L", (width, height))
        horizon = height * random.uniform(0.38, 0.5)
        vanishing = width * random.uniform(0.35, 0.65)
        self._box("sky", 0, 0, width, height)
        self._houses(horizon)
        self._box("pavement", 0, horizon, width, height)
        edges = width * random.uniform(-0.25, 0.15), width * random.uniform(0.85, 1.25)
        road = [(vanishing - 3, horizon), (vanishing + 3, horizon), (edges[1], height)]
        self._polygon("road", [*road, (edges[0], height)])
        if random.random() < 0.6:
            self._box("fence", 0, horizon - 5, width * random.uniform(0.1, 0.3), horizon + 7)
        things = (self._tree, self._car, self._pole, self._person, self._bicycle)
        count = random.integers(7, 12)
        for foot in np.sort(random.uniform(horizon + 4, height, count)):
            near = (foot - horizon) / (height - horizon)  # 0 at the horizon, 1 at the lower edge
            middle = vanishing + (0.5 - random.integers(2)) * near * 1.3 * width
            thing = things[random.choice(len(things), p=(0.2, 0.3, 0.2, 0.2, 0.1))]
            thing(middle + random.normal(0, 0.12 * width), foot, (0.15 + 0.85 * near) * height)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """The picture (H, W, 3), with light, texture and noise, and its classes (H, W), uint8."""
        picture = np.array(self.picture, float)
        texture = gaussian_filter(self.random.normal(0, 1, picture.shape[:2]), 1.2)
        light = gaussian_filter(self.random.normal(0, 1, picture.shape[:2]), 25)
        picture *= 1 + 0.12 * (texture / texture.std() + light / light.std())[..., None]
        picture = gaussian_filter(picture, (0.5, 0.5, 0)) + self.random.normal(0, 5, picture.shape)
        return picture.clip(0, 255).astype(np.uint8), np.array(self.classes)

    def _houses(self, horizon: float) -> None:
        left = 0.0
        while left < self.width:
            width = self.random.uniform(0.1, 0.3) * self.width
            top = horizon * self.random.uniform(0.05, 0.9)
            if self.random.random() < 0.85:
                self._box("building", left, top, left + width, horizon)
                window = ImageDraw.Draw(self.picture)
                for x in np.arange(left + 4, left + width - 5, 9):
                    for y in np.arange(top + 4, horizon - 9, 11):
                        window.rectangle((x, y, x + 3, y + 5), fill=(60, 65, 80))
            left += width

    def _tree(self, x: float, foot: float, size: float) -> None:
        self._box("tree", x - 0.015 * size, foot - 0.3 * size, x + 0.015 * size, foot)
        for _ in range(6):
            dx, dy = self.random.normal(0, 0.07 * size, 2)
            self._ellipse("tree", x + dx, foot - 0.42 * size + dy, 0.09 * size, 0.11 * size)

    def _car(self, x: float, foot: float, size: float) -> None:
        paint = self._paint("car")
        self._box("car", x - 0.2 * size, foot - 0.13 * size, x + 0.2 * size, foot, paint)
        roof = [(x - 0.14 * size, foot - 0.12 * size), (x - 0.09 * size, foot - 0.21 * size)]
        roof += [(2 * x - px, py) for px, py in reversed(roof)]
        self._polygon("car", roof, paint)
        for wheel in (x - 0.12 * size, x + 0.12 * size):
            self._ellipse("car", wheel, foot, 0.035 * size, 0.035 * size, (25, 25, 25))

    def _pole(self, x: float, foot: float, size: float) -> None:
        top = foot - 0.6 * size
        half = max(0.7, 0.012 * size)
        self._box("pole", x - half, top, x + half, foot)
        if self.random.random() < 0.7:
            self._ellipse("sign", x, top, 0.05 * size, 0.05 * size)

    def _person(self, x: float, foot: float, size: float, kind: str = "pedestrian") -> None:
        paint = self._paint(kind)
        self._ellipse(kind, x, foot - 0.15 * size, 0.035 * size, 0.09 * size, paint)
        for leg in (-0.02, 0.012):
            self._box(
                kind, x + leg * size, foot - 0.09 * size, x + (leg + 0.01) * size, foot, paint
            )
        self._ellipse(kind, x, foot - 0.26 * size, 0.02 * size, 0.025 * size, (205, 165, 140))

    def _bicycle(self, x: float, foot: float, size: float) -> None:
        self._person(x, foot - 0.04 * size, size, "bicyclist")
        for wheel in (x - 0.06 * size, x + 0.06 * size):
            self._ellipse("bicyclist", wheel, foot - 0.03 * size, 0.04 * size, 0.04 * size)

    def _paint(self, kind: str) -> Paint:
        paints = PAINTS[kind]
        paint = np.array(paints[self.random.integers(len(paints))]) + self.random.normal(0, 12, 3)
        return tuple(int(v) for v in paint.clip(0, 255))

    def _box(
        self,
        kind: str,
        left: float,
        top: float,
        right: float,
        bottom: float,
        paint: Paint | None = None,
    ) -> None:
        self._polygon(kind, [(left, top), (right, top), (right, bottom), (left, bottom)], paint)

    def _ellipse(
        self, kind: str, x: float, y: float, rx: float, ry: float, paint: Paint | None = None
    ) -> None:
        angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
        points = zip(x + rx * np.cos(angles), y + ry * np.sin(angles))
        self._polygon(kind, [(float(a), float(b)) for a, b in points], paint)

    def _polygon(
        self, kind: str, points: list[tuple[float, float]], paint: Paint | None = None
    ) -> None:
        ImageDraw.Draw(self.picture).polygon(points, fill=paint or self._paint(kind))
        ImageDraw.Draw(self.classes).polygon(points, fill=CLASS_NAMES.index(kind))


def write_streets(
    folder: Path, counts: dict[str, int] = COUNTS, size: tuple[int, int] = (128, 96)
) -> None:
    """Write a data set, always the same, into a folder; ``size`` is the width and height of its pictures."""
    for split, count in counts.items():
        for kind in ("", "annot"):
            (folder / (split + kind)).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            random = np.random.default_rng([SPLITS.index(split), number])
            picture, classes = Street(random, *size).arrays()
            save(picture, folder / split / f"{number:03}.png")
            save(classes, folder / f"{split}annot" / f"{number:03}.png")


def save(array: np.ndarray, path: Path) -> None:
    """Write a PNG atomically, because several processes of a training may write the same file."""
    partial = path.with_suffix(f".{os.getpid()}")
    Image.fromarray(array).save(partial, "PNG")
    partial.replace(path)
