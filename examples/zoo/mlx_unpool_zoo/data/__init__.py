"""Images and masks of other people: read, checked and described."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from ..classes import CAMVID
from ..pictures import reduced
from ..pytorch import cut
from .layouts import Found, find
from .masks import Mask, read_mask
from .meaning import Meaning, meaning_of
from .pictures import Facts, range_of, scaled, values_of
from .tables import IGNORED, is_ignored, read_table


@dataclass
class Record:
    """What was read of one split; all lines, checks and figures are made from it."""

    split: str
    facts: list[Facts]
    masks: list[Mask]
    meaning: Meaning
    ends: list[float] | None  # the values that became 0 and 255
    pairs: list[tuple[np.ndarray, np.ndarray]]
    names: list[str] | None  # of the classes of shapes
    notes: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """What a person should know, before the training."""
        count, first = len(self.facts), f"{self.facts[0].path} has the mask {self.masks[0].path}"
        lines = [f"{self.split}: {count} images; {first}, and so on.", *self.notes]
        if turned := sum(facts.turned for facts in self.facts):
            lines.append(
                f"{turned} of {count} images are turned by their EXIF data; masks must be upright: look at data.png."
            )
        if self.ends:
            lines.append(
                f"In images of more than 8 bits, black is {self.ends[0]:g} and white {self.ends[1]:g}."
            )
        if self.meaning.said:
            lines.append(self.meaning.said)
        pixels: Counter[int] = Counter()
        for mask in self.masks:
            for (number, colour), n in zip(mask.pairs, mask.counts):
                pixels[self.meaning.indices[colour if self.meaning.in_colours else number]] += n
        named = {n: c["name"] for n, c in enumerate(self.meaning.classes) if not is_ignored(c)} | {
            IGNORED: "ignored"
        }
        shares = [f"{name} {pixels[n] / pixels.total():.1%}" for n, name in named.items()]
        return [*lines, f"Pixels: {cut(shares)}."]


def read(
    folders: Sequence[Path],
    side: int,
    classes: Path | None = None,
    like: Record | None = None,
    mask_ending: str | None = None,
    threshold: bool = False,
) -> dict[str, Record]:
    """Read the images and masks of each split, and hold them in memory.

    Raises:
        ValueError: If a file cannot be read, or it is not clear what it means.
    """
    splits = find(folders, mask_ending)
    train = splits["train"] if not like else None
    if train:
        path = classes or train.table
        table = read_table(path) if path else None
        if train.names:
            table = [{"name": name, "label": n} for n, name in enumerate(train.names)]
            table.append({"name": "void", "label": IGNORED})
        if not table and any(
            isinstance(m, Path) and m.parent.name == "trainannot" for _, m in train.files[:1]
        ):
            table = CAMVID
    found = {}
    for split, files in splits.items():
        files.names = files.names and (like.names if like else files.names)
        found[split] = like = read_split(split, files, side, table if not like else None, like, threshold)
    return found


def read_split(
    split: str, files: Found, side: int, table: Any, like: Record | None, threshold: bool
) -> Record:
    """Read the files of a split."""
    facts, masks, values = [], [], []
    for path, mask_path in tqdm(files.files, f"Reading {split}", unit="image", leave=False, disable=None):
        picture, said = values_of(path)
        mask = read_mask(mask_path, files.names or (), picture.shape[1::-1], threshold)
        check_size(mask, picture, said)
        picture = shrunk(picture, side)
        mask = replace(mask, places=nearest(mask.places, picture.shape))
        facts.append(said)
        masks.append(mask)
        values.append(picture)
    meaning = like.meaning if like else meaning_of(masks, table)
    truths = [meaning.truth(mask) for mask in masks]
    deep = [n for n, each in enumerate(facts) if each.deep]
    ends = (
        like.ends
        if like
        else range_of([values[n] for n in deep], [truths[n] for n in deep])
        if deep
        else None
    )
    check_depths(facts, ends)
    pictures = [scaled(v, ends, f.path) if f.deep and ends else v for v, f in zip(values, facts)]
    return Record(split, facts, masks, meaning, ends, [*zip(pictures, truths)], files.names, files.notes)


def check_size(mask: Mask, picture: np.ndarray, facts: Facts) -> None:
    """Raise ValueError if a mask does not have the size of its upright image."""
    size, upright = mask.places.shape[::-1], picture.shape[1::-1]
    if size != upright:
        turned = " as it is stored; save it upright" if size == facts.size and facts.turned else ""
        raise ValueError(
            f"{mask.path} must have the size of its image (rotated as in its EXIF data), {upright}, but has {size}{turned}."
        )


def check_depths(facts: Sequence[Facts], ends: Any) -> None:
    """Raise ValueError for pictures of a depth that the model does not learn."""
    if (deep := [f for f in facts if f.deep]) and (ends is None or len(deep) < len(facts)):
        other = next((f for f in facts if not f.deep), None)
        beside = f"{other.path} 8" if other else "the training images have 8"
        raise ValueError(f"{deep[0].path} has more than 8 bits, but {beside}: save them alike.")


def shrunk(picture: np.ndarray, side: int) -> np.ndarray:
    """A picture whose shorter side is at most ``side``."""
    if picture.dtype == np.uint8 or min(picture.shape[:2]) <= side:
        return reduced(picture, side)
    size = [round(n / (min(picture.shape[:2]) / side)) for n in picture.shape[1::-1]]
    planes = picture.astype(np.float32).reshape(*picture.shape[:2], -1)
    made = np.stack([np.asarray(Image.fromarray(p).resize(size)) for p in np.moveaxis(planes, -1, 0)], -1)
    made = made.clip(picture.min(), picture.max())  # bicubic sums overshoot
    return made if picture.ndim == 3 else made[..., 0]


def nearest(places: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Places (H, W) scaled to the shape of a picture."""
    numbers = Image.fromarray(places.astype(np.int32)).resize(shape[1::-1], Image.Resampling.NEAREST)
    return np.array(numbers).astype(np.uint16)
