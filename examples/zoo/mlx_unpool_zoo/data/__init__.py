"""Images and masks of other people: read, checked and described."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from mlx_unpool.porting.messages import cut

from ..inputs import nearest, reduced
from .class_file import Classes, check_palettes, check_values, proposal, read_class_file
from .folders import CLASS_FILE, Pair, find
from .masks import Mask, read_mask
from .pictures import IGNORED, Facts, few_left, range_of, scaled, values_of

NO_CLASSES = (
    "There is no class file {}. Write it, or add --write-classes to the command, once, and change the names:"
)
BAR: Any = {"unit": "image", "leave": False, "disable": None}  # no bar outside of a terminal
EVERY = 5  # of so many images one is for validation, if there are no others


@dataclass
class Record:
    """What was read of one split; the printed lines, data.png and metrics.json are made from it.

    ``ends``: the values that became 0 and 255 in images of more than 8 bits. ``pairs``: images (H, W, 3) and
    the class index of every pixel (H, W), uint8.
    """

    split: str
    table: Classes
    masks: list[Mask]
    facts: list[Facts] = field(default_factory=list)
    ends: list[float] | None = None
    pairs: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def classes(self) -> list[dict[str, Any]]:
        """The classes, in the order of their indices."""
        return self.table.entries()

    def pixels(self) -> dict[str, int]:
        """The pixels of each class in the files, and how many are ignored."""
        counts: Counter[int] = Counter()
        for mask in self.masks:
            for value, pixels in mask.counts.items():
                counts[self.table.indices[value]] += pixels
        return {name: counts[n] for n, name in enumerate(self.table.counted)} | {"ignored": counts[IGNORED]}

    def lines(self) -> list[str]:
        """What a person should know before the training."""
        count, pixels, facts = len(self.facts), self.pixels(), self.facts
        shares = [f"{name} {number / sum(pixels.values()):.1%}" for name, number in pixels.items()]
        first = f"{facts[0].path} has the mask {self.masks[0].path}, and so on."
        table = f" Classes: {self.table.path}." if self.split == "train" else ""
        lines = [
            f"{count} images for {self.split}: {first}{table}",
            f"Pixels for {self.split}: {cut(shares, len(shares))}.",
        ]
        if absent := [name for name, number in pixels.items() if not number and name != "ignored"]:
            lines.append(f"Warning: no mask for {self.split} has {cut(absent)}.")
        if turned := sum(each.turned for each in facts):
            said = "images are turned by their EXIF data; masks must be upright: look at data.png."
            lines.append(f"{turned} of {count} {said}")
        if self.split == "train" and self.ends:
            lines.append("In images of more than 8 bits, black is {:g} and white {:g}.".format(*self.ends))
        return [*lines, *self.notes]

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
    mask_ending: str = "",
    ends: Sequence[float] | None = None,
    divided: bool = False,
) -> dict[str, Record]:
    """Read the images and masks of each split, and hold them in memory.

    Args:
        folders: See :func:`folders.find`.
        side: Larger images are reduced, so that their shorter side has this many pixels.
        classes: The class file. Default: classes.txt in the folder, or in that of the masks.
        others: The same as ``folders`` for further splits.
        mask_ending: See :func:`folders.find`.
        ends: The values that become 0 and 255 in images of more than 8 bits. Default: :func:`range_of`.
        divided: Whether every fifth image is for validation, if there are no others.

    Raises:
        ValueError: If a file is missing, is not used, cannot be read, or has another form; without a class
            file, with the lines of one.
    """
    splits = find(folders, others, mask_ending)
    if divided and "validation" not in splits:
        splits = divide(splits)
    path = class_file_of(folders, classes)
    table = read_class_file(path) if path.exists() else None
    if not classes:
        check_class_files(path, [*folders, *chain(*others.values())])
    masks = read_masks(splits, side)
    if not table:
        raise ValueError(f"{NO_CLASSES.format(path)}\n\n{proposal([*chain(*masks.values())])}")
    for split, each in masks.items():
        check_values(split, each, table)
    found: dict[str, Record] = {}
    for split, pairs in splits.items():
        found[split] = Record(split, table, masks[split])
        read_images(found[split], pairs, side, found["train"], ends)
    check_apart(found)
    return found


def class_file_of(folders: Sequence[Path], classes: Path | None = None) -> Path:
    """The class file: the one that is given, or classes.txt in the folder, or in that of the masks."""
    return classes or folders[-1] / CLASS_FILE


def divide(splits: Mapping[str, list[Pair]]) -> dict[str, list[Pair]]:
    """Splits in which every fifth training image is for validation."""
    train = splits["train"]
    if len(train) < EVERY:
        raise ValueError(f"--validation is needed for fewer than {EVERY} images, but there are {len(train)}.")
    kept = [pair for number, pair in enumerate(train, 1) if number % EVERY]
    return {**splits, "train": kept, "validation": train[EVERY - 1 :: EVERY]}


def check_class_files(path: Path, folders: Iterable[Path]) -> None:
    """Raise ValueError if a folder of the data has a class file that differs from ``path``."""
    expected = path.read_bytes() if path.exists() else b""
    for folder, depth in product(folders, ("", "*/", "*/*/")):
        for other in folder.glob(f"{depth}{CLASS_FILE}"):
            if other.read_bytes() != expected:
                raise ValueError(
                    f"{other} is not used: the class file is {path}. Remove it, or pass --classes."
                )


def read_masks(splits: Mapping[str, list[Pair]], side: int) -> dict[str, list[Mask]]:
    """The masks of each split. Raises ValueError if their palettes differ, too."""
    found: dict[str, list[Mask]] = {}
    for split, pairs in splits.items():
        bar = tqdm(pairs, f"Reading masks for {split}", **BAR)
        found[split] = [read_mask(pair.mask, side) for pair in bar]
    check_palettes([*chain(*found.values())])
    return found


def proposed_classes(
    folders: Sequence[Path], *, others: Mapping[str, Sequence[Path]] = {}, mask_ending: str = ""
) -> str:
    """The lines of a class file for the masks in folders; see :func:`read`."""
    masks = read_masks(find(folders, others, mask_ending), 256)
    return proposal([*chain(*masks.values())])


def read_images(
    record: Record, pairs: Sequence[Pair], side: int, like: Record, ends: Sequence[float] | None
) -> None:
    """Read the images of a record, with the depth and the range of the record ``like``."""
    pictures: list[np.ndarray] = []
    bar = tqdm(pairs, f"Reading {record.split}", **BAR)
    for pair, mask in zip(bar, record.masks):
        values, facts = values_of(pair.image)
        record.facts.append(facts)
        check_image(values, facts, mask, like.facts[0])
        if ends and not facts.deep:
            raise ValueError(f"--range is for images of more than 8 bits, but {facts.path} has 8.")
        # The range needs values of the file, not means of several.
        pictures.append(nearest(values, mask.values.shape) if facts.deep else reduced(values, side))
    truths = [mask.mapped(record.table.indices) for mask in record.masks]
    if record.facts[0].deep:
        record.ends = like.ends or [*map(float, ends or range_of(pictures, truths))]
        pictures = in_range_of(record.ends, record.facts, side, record.notes)
    record.pairs = [*zip(pictures, truths)]


def check_image(picture: np.ndarray, facts: Facts, mask: Mask, first: Facts) -> None:
    """Raise ValueError if an image has another size than its mask, or another depth than the first."""
    size = picture.shape[1::-1]
    if mask.size != size:
        stored = " as it is stored; save it upright" if mask.size == facts.size else ""
        raise ValueError(
            f"{mask.path} must have the size of its image (rotated as in its EXIF data), {size}, but has "
            f"{mask.size}{stored}."
        )
    if facts.depth != first.depth:
        one, other = (f"{each.path} has {each.depth}" for each in (facts, first))
        raise ValueError(f"{one}, but {other}: save all images with the same bit depth.")


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


def check_apart(records: Mapping[str, Record]) -> None:
    """Raise ValueError if an image is in two splits, whatever the names of the files are."""
    seen: dict[str, tuple[str, Path]] = {}
    for split, record in records.items():
        digests = [hashlib.sha256(repr(p.shape).encode() + p.tobytes()).hexdigest() for p, _ in record.pairs]
        same = [number for number, digest in enumerate(digests) if seen.get(digest, (split,))[0] != split]
        if same:
            path, (other, known) = record.facts[same[0]].path, seen[digests[same[0]]]
            raise ValueError(
                f"{len(same)} of {len(digests)} images for {split} are also for {other}: {path} and {known} "
                "are the same picture, for example. Keep each picture in one split."
            )
        for digest, facts in zip(digests, record.facts):
            seen.setdefault(digest, (split, facts.path))
