"""Images and masks of other people: read, checked and described."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from ..inputs import nearest, reduced
from .class_file import check_values, read_class_file
from .folders import CLASS_FILE, Pair, class_file_of, find
from .masks import Mask, check_forms, check_palettes, read_mask
from .pictures import Facts, few_left, range_of, scaled, values_of
from .proposal import proposal
from .records import Record

__all__ = ["Record", "class_file_of", "proposed_classes", "read"]

BAR: Any = {"unit": "image", "leave": False, "disable": None}  # no bar outside of a terminal
EVERY = 5  # of so many images one is for validation, if there are no others
DIVIDED = (
    "Every fifth image, in the order of names, is for validation. If several show the same thing "
    "(augmented copies, frames of a video), scores are too high: use folders train and val."
)


def read(
    folders: Sequence[Path],
    side: int,
    classes: Path | None = None,
    *,
    others: Mapping[str, Sequence[Path]] = {},
    mask_ending: str = "",
    ends: Sequence[float] | None = None,
    divided: bool = False,
    known: Collection[str] = (),
) -> dict[str, Record]:
    """Read the images and masks of each split, and hold them in memory.

    Args:
        folders: See :func:`folders.find`.
        side: Larger images are reduced, so that their shorter side has this many pixels.
        classes: The class file. Default: classes.txt in the folder, or in that of the masks.
        others: The same as ``folders`` for further splits.
        mask_ending: See :func:`folders.find`.
        ends: The values that become 0 and 255 in images of more than 8 bits. Default:
            :func:`range_of`.
        divided: Whether every fifth image is for validation, if there are no others.
        known: See :func:`class_file.check_values`.

    Raises:
        ValueError: If a file is missing, is not used, cannot be read, or has another form; without
            a class file, with the lines of one.
    """
    splits = find(folders, others, mask_ending, classes)
    divided = divided and "validation" not in splits
    if divided:
        splits = divide(splits)
    path = class_file_of(folders, classes)
    table = read_class_file(path) if path.exists() else None
    masks = read_masks(splits, side)
    if not table:
        raise ValueError(without_classes(path, [*chain(*masks.values())]))
    for split, each in masks.items():
        check_values(split, each, table, known)
    found: dict[str, Record] = {}
    for split, pairs in splits.items():
        found[split] = Record(split, table, masks[split], side)
        read_images(found[split], pairs, found["train"], ends)
        found[split].note_losses()
    check_apart(found)
    if divided:
        found["validation"].notes.append(DIVIDED)
    return found


def without_classes(path: Path, masks: Sequence[Mask]) -> str:
    """What to do if there is no class file."""
    said = f"There is no class file {path}."
    above = path.parent.parent / CLASS_FILE
    if above.is_file():
        said += f" To use that of the folder above, pass --classes {above}."
    write = "Write it, or add --write-classes to the command, once, and write the names into it:"
    return f"{said} {write}\n\n{proposal(masks)}"


def proposed_classes(
    folders: Sequence[Path],
    classes: Path | None = None,
    *,
    others: Mapping[str, Sequence[Path]] = {},
    mask_ending: str = "",
) -> str:
    """The lines of a class file for the masks in folders; see :func:`read`."""
    masks = read_masks(find(folders, others, mask_ending, classes), 256)
    return proposal([*chain(*masks.values())])


def divide(splits: Mapping[str, list[Pair]]) -> dict[str, list[Pair]]:
    """Splits in which every fifth training image is for validation."""
    train = splits["train"]
    if len(train) < EVERY:
        raise ValueError(
            f"a folder val, or --validation, is needed for fewer than {EVERY} images, but there "
            f"are {len(train)}."
        )
    kept = [pair for number, pair in enumerate(train, 1) if number % EVERY]
    return {**splits, "train": kept, "validation": train[EVERY - 1 :: EVERY]}


def read_masks(splits: Mapping[str, list[Pair]], side: int) -> dict[str, list[Mask]]:
    """The masks of each split. Raises ValueError if their forms or palettes differ, too."""
    found: dict[str, list[Mask]] = {}
    for split, pairs in splits.items():
        bar = tqdm(pairs, f"Reading masks for {split}", **BAR)
        found[split] = [read_mask(pair.mask, side) for pair in bar]
    every = [*chain(*found.values())]
    check_forms(every)
    check_palettes(every)
    return found


def read_images(
    record: Record, pairs: Sequence[Pair], like: Record, ends: Sequence[float] | None
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
        small = nearest(values, mask.values.shape) if facts.deep else reduced(values, record.side)
        pictures.append(small)
    truths = [mask.mapped(record.table.indices) for mask in record.masks]
    if record.facts[0].deep:
        record.ends = like.ends or [*map(float, ends or range_of(pictures, truths))]
        pictures = in_range_of(record)
    record.pairs = [*zip(pictures, truths)]


def check_image(picture: np.ndarray, facts: Facts, mask: Mask, first: Facts) -> None:
    """Raise ValueError if an image differs in size from its mask, or in depth from the first."""
    size = picture.shape[1::-1]
    if mask.size != size:
        stored = " as it is stored; save it upright" if mask.size == facts.size else ""
        raise ValueError(
            f"{mask.path} must have the size of its image (rotated as in its EXIF data), {size}, "
            f"but has {mask.size}{stored}."
        )
    if facts.depth != first.depth:
        one, other = (f"{each.path} has {each.depth}" for each in (facts, first))
        raise ValueError(f"{one}, but {other}: save all images with the same bit depth.")


def in_range_of(record: Record) -> list[np.ndarray]:
    """The images of a record, of more than 8 bits, as uint8 with its range.

    A note says which keep too few levels; it is an error if half of them do.
    """
    pictures: list[np.ndarray] = []
    problems: list[str] = []
    ends: Any = record.ends
    for each in record.facts:
        picture = scaled(values_of(each.path)[0], {"range": ends})
        if problem := few_left(each, picture):
            problems.append(problem)
        pictures.append(reduced(picture, record.side))
    if problems:
        count = f"{len(problems)} of {len(record.facts)} images keep too few levels"
        between = "between black, {:g}, and white, {:g}".format(*ends)
        said = f"{count}: {problems[0]}, for example, {between}. Pass --range LOW HIGH."
        if 2 * len(problems) >= len(record.facts):
            raise ValueError(said)
        record.notes.append(said)
    return pictures


def check_apart(records: Mapping[str, Record]) -> None:
    """Raise ValueError if a picture is in two splits, whatever the names of the files are.

    Pictures in which all pixels are equal do not count.
    """
    seen: dict[str, tuple[str, Path]] = {}
    for split, record in records.items():
        digests = [digest_of(picture) for picture, _ in record.pairs]
        copies = [n for n, digest in enumerate(digests) if seen.get(digest, (split,))[0] != split]
        if copies:
            path, (other, known) = record.facts[copies[0]].path, seen[digests[copies[0]]]
            raise ValueError(
                f"{len(copies)} of {len(digests)} images for {split} are also for {other}: {path} "
                f"and {known} are the same picture, for example. Remove one of them, or put both "
                "into the same split, with folders train and val."
            )
        for digest, facts in zip(digests, record.facts):
            if digest:
                seen.setdefault(digest, (split, facts.path))


def digest_of(picture: np.ndarray) -> str:
    """A digest of the pixels of a picture; nothing if all are equal."""
    if (picture == picture[0, 0]).all():
        return ""
    return hashlib.sha256(repr(picture.shape).encode() + picture.tobytes()).hexdigest()
