"""Images and masks of other people: read, checked and described."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from ..classes import CAMVID
from ..inputs import nearest, reduced
from ..messages import cut
from .layouts import Found, find
from .masks import Mask, read_mask, thresholded
from .meaning import Meaning, meaning_of
from .pictures import IGNORED, Facts, few_left, range_of, scaled, values_of
from .tables import is_ignored, read_table

EVERY = 5  # of so many images one is for validation, if there are no others


@dataclass
class Record:
    """What was read of one split; the printed lines, data.png, the checks and metrics.json are made from it.

    ``ends``: the values that became 0 and 255 in images of more than 8 bits. ``pairs``: images (H, W, 3) and
    the class index of every pixel (H, W), uint8.
    """

    split: str
    facts: list[Facts]
    masks: list[Mask]
    meaning: Meaning
    ends: list[float] | None
    pairs: list[tuple[np.ndarray, np.ndarray]]
    table: Path | None
    notes: list[str]

    @property
    def classes(self) -> list[dict[str, Any]]:
        """The classes, in the order of their indices."""
        return self.meaning.classes

    def pixels(self) -> dict[str, int]:
        """The pixels of each class in the files, and how many are ignored."""
        counts: Counter[int] = Counter()
        for mask in self.masks:
            for index, pixels in zip(self.meaning.indices_of(mask).tolist(), mask.counts):
                counts[index] += pixels
        named = {c["name"]: counts[n] for n, c in enumerate(self.classes) if not is_ignored(c)}
        return named | {"ignored": counts[IGNORED]}

    def lines(self) -> list[str]:
        """What a person should know before the training."""
        count, pixels, train = len(self.facts), self.pixels(), self.split == "train"
        shares = [f"{name} {number / sum(pixels.values()):.1%}" for name, number in pixels.items()]
        absent = [name for name, number in pixels.items() if not number and name != "ignored"]
        first = f"{self.facts[0].path} has the mask {self.masks[0].path}, and so on."
        lines = [
            f"{count} images for {self.split}: {first}{f' Classes: {self.table}.' if self.table else ''}",
            self.meaning.said if train else "",
            f"Pixels for {self.split}: {cut(shares)}.",
            f"Not in the masks for {self.split}: {cut(absent)}." if absent else "",
        ]
        if turned := sum(facts.turned for facts in self.facts):
            said = "images are turned by their EXIF data; masks must be upright: look at data.png."
            lines.append(f"{turned} of {count} {said}")
        if train and self.ends:
            lines.append("In images of more than 8 bits, black is {:g} and white {:g}.".format(*self.ends))
        return [*filter(None, lines), *self.notes]

    def report(self) -> dict[str, Any]:
        """What was read, for metrics.json."""
        sizes = Counter("{} x {}".format(*facts.size) for facts in self.facts)
        depths, turned = Counter(f.depth for f in self.facts), sum(f.turned for f in self.facts)
        read = {"images": len(self.facts), "sizes": dict(sizes), "depths": dict(depths), "turned": turned}
        return read | {"range": self.ends, "pixels": self.pixels(), "notes": self.notes}


def read(
    folders: Sequence[Path],
    side: int,
    classes: Path | None = None,
    *,
    others: Mapping[str, Sequence[Path]] = {},
    mask_ending: str | None = None,
    threshold: bool = False,
    ends: Sequence[float] | None = None,
    divided: bool = False,
) -> dict[str, Record]:
    """Read the images and masks of each split, and hold them in memory.

    Args:
        folders: A folder in one of the layouts of :func:`layouts.find`, or the folders of images and masks.
        side: Larger images are reduced, so that their shorter side has this many pixels.
        classes: A table of classes. Default: the one beside the masks, or the values that they have.
        others: The same as ``folders`` for further splits, which replace those that are found.
        mask_ending, threshold: See :func:`layouts.files_of` and :func:`masks.thresholded`.
        ends: The values that become 0 and 255 in images of more than 8 bits. Default: :func:`range_of`.
        divided: Whether every fifth image is for validation, if there are no others.

    Raises:
        ValueError: If a file cannot be read, or it is not clear what it means.
    """
    splits = find(folders, mask_ending)
    for split, paths in others.items():
        splits[split] = separate(split, find(paths, mask_ending), splits["train"])
    train = splits["train"]
    if divided and "validation" not in splits:
        if (count := len(train.files)) < EVERY:
            raise ValueError(f"--validation is needed for fewer than {EVERY} images, but there are {count}.")
        splits["validation"] = Found(train.files[EVERY - 1 :: EVERY], train.names)
        train.files = [file for n, file in enumerate(train.files) if (n + 1) % EVERY]
    train.table = classes or train.table
    table = read_table(train.table) if train.table else None
    if train.names:
        if classes or threshold:
            raise ValueError(f"--{'classes' if classes else 'threshold'} is for masks, not for polygons.")
        table = [{"name": name, "label": n} for n, name in enumerate(train.names)]
        table.append({"name": "void", "label": IGNORED})
    if not table and isinstance(mask := train.files[0][1], Path) and mask.parent.name == "trainannot":
        table = CAMVID
    found: dict[str, Record] = {}
    for split, files in splits.items():
        if bool(files.names) != bool(train.names):
            raise ValueError(f"the images for {split} must have masks or polygons as those for training.")
        files.names, files.table = train.names, None if found else train.table
        found[split] = read_split(split, files, side, table, found.get("train"), threshold, ends)
    return found


def separate(split: str, found: dict[str, Found], train: Found) -> Found:
    """The files of an option such as --validation, with a warning if they are those of --data."""
    (files, *further) = found.values()
    if further:
        raise ValueError(f"--{split} has the splits {', '.join(found)}: pass the folder of one of them.")
    known = {image.resolve() for image, _ in train.files}
    if same := sum(image.resolve() in known for image, _ in files.files):
        files.notes.append(f"Warning: {same} of {len(files.files)} images for {split} are also for training.")
    return files


def read_split(
    split: str,
    files: Found,
    side: int,
    table: Any,
    like: Record | None,
    threshold: bool,
    ends: Sequence[float] | None,
) -> Record:
    """Read the files of a split, which have the meaning and the range of the record ``like``."""
    facts: list[Facts] = []
    masks: list[Mask] = []
    pictures: list[np.ndarray] = []
    for path, mask_path in tqdm(files.files, f"Reading {split}", unit="image", leave=False, disable=None):
        values, said = values_of(path)
        facts.append(said)
        first = like.facts[0] if like else facts[0]
        if said.depth != first.depth:
            one, other = (f"{each.path} has {each.depth}" for each in (said, first))
            raise ValueError(f"{one}, but {other}: save all images with the same bit depth.")
        if ends and not said.deep:
            raise ValueError(f"--range is for images of more than 8 bits, but {path} has 8.")
        mask = read_mask(mask_path, files.names or (), values.shape[1::-1], threshold)
        check_size(mask, values, said)
        scale = max(1, min(values.shape[:2]) / side)
        shape = [round(n / scale) for n in values.shape[:2]]
        # The range needs values of the file, not means of several.
        pictures.append(nearest(values, shape) if said.deep else reduced(values, side))
        masks.append(replace(mask, places=nearest(mask.places, shape)))
    masks = thresholded(masks) if threshold else masks
    meaning = like.meaning if like else meaning_of(masks, table)
    truths = [meaning.truth(mask) for mask in masks]
    if all((truth == IGNORED).all() for truth in truths):
        raise ValueError(f"every pixel of the images for {split} is ignored.")
    found = None
    if facts[0].deep:
        found = like.ends if like else [*map(float, ends or range_of(pictures, truths))]
        pictures = in_range_of(found, facts, side, files.notes)
    pairs = [*zip(pictures, truths)]
    return Record(split, facts, masks, meaning, found, pairs, files.table, files.notes)


def in_range_of(ends: Any, facts: Sequence[Facts], side: int, notes: list[str]) -> list[np.ndarray]:
    """Images of more than 8 bits as uint8, of which ``ends`` are 0 and 255.

    A line of the ``notes`` says which keep too few levels; it is an error if half of them do.
    """
    pictures: list[np.ndarray] = []
    problems: list[str] = []
    for each in facts:
        picture = scaled(values_of(each.path)[0], {"range": ends})
        if problem := few_left(each, picture):
            problems.append(problem)
        pictures.append(reduced(picture, side))
    if problems:
        few = f"{len(problems)} of {len(facts)} images keep too few levels: {problems[0]}, for example, "
        few += "between black, {:g}, and white, {:g}. Pass --range LOW HIGH.".format(*ends)
        if 2 * len(problems) >= len(facts):
            raise ValueError(few)
        notes.append(few)
    return pictures


def check_size(mask: Mask, picture: np.ndarray, facts: Facts) -> None:
    """Raise ValueError if a mask does not have the size of its upright image."""
    size, upright = mask.places.shape[::-1], picture.shape[1::-1]
    if size != upright:
        stored = " as it is stored; save it upright" if size == facts.size and facts.orientation > 1 else ""
        raise ValueError(
            f"{mask.path} must have the size of its image (rotated as in its EXIF data), {upright}, but has "
            f"{size}{stored}."
        )
