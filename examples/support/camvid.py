"""CamVid (Brostow, Fauqueur and Cipolla, 2009): street scenes in 11 classes, as SegNet's authors publish it.

A data set is a folder with the subfolders ``train``, ``val`` and ``test`` (pictures) and ``trainannot``,
``valannot`` and ``testannot`` (PNG files of the same names, whose pixels are class numbers).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from mlx_unpool_zoo.classes import CAMVID
from mlx_unpool_zoo.pytorch import cut
from PIL import Image

SPLITS = ("train", "val", "test")
CLASSES = CAMVID
CLASS_NAMES = tuple(entry["name"] for entry in CLASSES)
UNLABELLED = CLASS_NAMES.index("unlabelled")  # excluded from the loss and the metrics


class CamVid:
    """One split of a data set.

    Args:
        folder: The folder of the data set.
        split: ``"train"``, ``"val"`` or ``"test"``.

    Raises:
        ValueError: If the folder has no such split, or the names of pictures and labels differ.
    """

    def __init__(self, folder: Path, split: str) -> None:
        pictures, labels = folder / split, folder / f"{split}annot"
        for needed in (pictures, labels):
            if not needed.is_dir():
                raise ValueError(
                    f"{folder} is not a CamVid folder: it has no {needed.name}/. Its pictures are in "
                    f"{', '.join(SPLITS)}, their classes in {', '.join(s + 'annot' for s in SPLITS)}."
                )
        names = {path.name for path in pictures.glob("*.png")}
        alone = sorted(names ^ {path.name for path in labels.glob("*.png")})
        if alone:
            raise ValueError(f"{split} and {split}annot of {folder} differ in {cut(alone)}.")
        if not names:
            raise ValueError(f"{pictures} has no PNG files.")
        self.files = [(pictures / name, labels / name) for name in sorted(names)]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """A picture (H, W, 3), 0 to 255, and the class of every pixel (H, W), both uint8."""
        picture_file, labels_file = self.files[number]
        picture = read_picture(picture_file)
        with Image.open(labels_file) as image:
            labels = np.array(image)
        if labels.shape != picture.shape[:2]:
            raise ValueError(
                f"{labels_file} must have one class number per pixel of its picture, {picture.shape[:2]}, "
                f"but its shape is {labels.shape}."
            )
        if labels.max() >= len(CLASS_NAMES):
            raise ValueError(
                f"{labels_file} has class {labels.max()}; the last one is {UNLABELLED}."
            )
        return picture, labels

    def class_shares(self) -> np.ndarray:
        """The fraction of all pixels that belong to each class."""
        each = [np.bincount(self[n][1].ravel(), minlength=12) for n in range(len(self))]
        counts = np.sum(each, axis=0)
        return counts / counts.sum()


def read_picture(path: Path) -> np.ndarray:
    """Read a picture as (H, W, 3), uint8."""
    with Image.open(path) as image:
        return np.array(image.convert("RGB"))
