"""Read the class file, which says what each value of the masks means, or propose one.

    0 background      # a comment
    1 road
    255 ignored

A value is a number, or a colour such as #804080. Values with the same name are one class. Pixels whose class
is called ignored, void or unlabelled count neither in the loss nor in the scores.
"""

from __future__ import annotations

import re
from collections import ChainMap, Counter
from pathlib import Path
from typing import Any

from mlx_unpool.porting.messages import cut

from ..classes import palette as distinct
from .masks import COLOUR, Mask, text_of
from .pictures import IGNORED

LINE = r"(\d{1,5}|#[0-9a-fA-F]{6})\s+(\S.*)"
COMMENT = r"(^|\s)#(?![0-9a-fA-F]{6}\s).*"
MEAN_IGNORED = ("ignore", "ignored", "void", "unlabelled", "unlabeled")
HEAD = "# Change the names. Lines with the same name are one class; pixels called 'ignored' do not count."
MANY = 32  # values, of which so many are rarely classes
SMOOTHED = (
    "So many values are rarely classes. Masks that were saved as JPEG, resized with interpolation or drawn "
    "with smooth edges have shades between their values; a photograph has thousands; and masks of single "
    "objects number these instead of the classes."
)


class Classes:
    """The classes, in the order of the file, and the class index, or ``IGNORED``, of each value."""

    def __init__(self, path: Path, names: dict[int, str]) -> None:
        self.path, self.names = path, names
        self.counted = [*dict.fromkeys(name for name in names.values() if not is_ignored(name))]
        indices = {name: number for number, name in enumerate(self.counted)}
        self.indices = {value: indices.get(name, IGNORED) for value, name in names.items()}

    @property
    def in_colours(self) -> bool:
        """Whether the values are colours, not numbers."""
        return max(self.names) >= COLOUR

    def entries(self) -> list[dict[str, Any]]:
        """The name and colour of each class, and its label, the first of its numbers in the masks."""
        first = {name: value for value, name in reversed(self.names.items())}
        if self.in_colours:
            return [{"name": name, "colour": rgb(first[name])} for name in self.counted]
        colours = distinct(len(self.counted))
        return [{"name": n, "colour": c, "label": first[n]} for n, c in zip(self.counted, colours)]


def is_ignored(name: str) -> bool:
    """Whether pixels of a class count neither in the loss nor in the scores."""
    return name.strip("_ ").lower() in MEAN_IGNORED  # labelme has __ignore__


def rgb(colour: int) -> list[int]:
    """Red, green and blue of a colour."""
    return [colour >> 16 & 255, colour >> 8 & 255, colour & 255]


def read_class_file(path: Path) -> Classes:
    """The classes in a file. Raises ValueError if a line has another form, or a value is in two lines."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{path} must be text in UTF-8.") from None
    names: dict[int, str] = {}
    for number, line in enumerate(lines, 1):
        text = re.sub(COMMENT, "", line).strip()
        if not text:
            continue
        found = re.fullmatch(LINE, text)
        if not found or len(re.findall(r"\b\d+\b", found[2])) > 1:  # such as a colour beside a number
            form = "must be VALUE NAME, such as '1 road' or '#804080 road'"
            raise ValueError(f"{path}, line {number}: it {form}, but is {line.strip()!r}.")
        value = int(found[1]) if found[1].isdigit() else COLOUR + int(found[1][1:], 16)
        if value in names:
            raise ValueError(f"{path}, line {number}: {found[1]} is in the file twice.")
        names[value] = found[2]
    kinds = {value >= COLOUR for value in names}
    if len(kinds) > 1:
        raise ValueError(f"{path} must have numbers or colours, but has both.")
    classes = Classes(path, names)
    if not 2 <= len(classes.counted) < IGNORED:
        raise ValueError(f"{path} must have 2 to {IGNORED - 1} classes, but has {len(classes.counted)}.")
    return classes


def check_values(split: str, masks: list[Mask], classes: Classes) -> None:
    """Raise ValueError for values without a class, and, in training masks, for classes without pixels."""
    counts = total(masks)
    if unlisted := [value for value, _ in counts.most_common() if value not in classes.names]:
        raise ValueError(about_unlisted(unlisted, masks, classes))
    present = {classes.indices[value] for value in counts}
    absent = [name for index, name in enumerate(classes.counted) if index not in present]
    if absent and split == "train":
        raise ValueError(f"no training mask has {cut(absent)}: remove these lines of {classes.path}.")
    if present == {IGNORED}:
        raise ValueError(f"every pixel of the masks for {split} is ignored.")


def about_unlisted(unlisted: list[int], masks: list[Mask], classes: Classes) -> str:
    """What to do about values of masks that are not in the class file."""
    counts, first = total(masks), text_of(unlisted[0])
    having = [mask.path for mask in masks if not classes.names.keys() >= mask.counts.keys()]
    shares = [f"{text_of(value)} ({share_of(counts, value)})" for value in unlisted]
    said = f"{classes.path} does not list {cut(shares)}: see {having[0]}, one of {len(having)} such masks."
    if (unlisted[0] >= COLOUR) != classes.in_colours:
        kinds = ["colours", "numbers (or indices of a palette)"]
        mask, listed = reversed(kinds) if classes.in_colours else kinds
        return f"{said} These masks have {mask}, but the file has {listed}."
    if len(unlisted) > MANY:
        return f"{said} {SMOOTHED}"
    return f"{said} Add a line for each, such as '{first} NAME' or '{first} ignored', or correct the masks."


def check_palettes(masks: list[Mask]) -> None:
    """Raise ValueError if an index has different colours in the palettes of masks."""
    first: dict[int, tuple[int, Mask]] = {}
    for mask in masks:
        for index, colour in mask.palette.items():
            other, before = first.setdefault(index, (colour, mask))
            if other != colour:
                raise ValueError(
                    f"the palettes of the masks differ: {index} is {text_of(other)} in {before.path}, but "
                    f"{text_of(colour)} in {mask.path}. Save masks in RGB, and list colours, or save numbers "
                    "without a palette."
                )


def proposal(masks: list[Mask]) -> str:
    """The lines of a class file for the values of masks, and what may be wrong with these, as comments.

    Raises:
        ValueError: If the masks have one value only, or more than classes can have.
    """
    counts = total(masks)
    if len(counts) == 1:
        raise ValueError(f"every pixel of the masks is {text_of(*counts)}, so they show nothing.")
    if len(counts) >= IGNORED:
        worst = max(masks, key=lambda mask: len(mask.counts))
        raise ValueError(f"the masks have {len(counts)} values, {worst.path} {len(worst.counts)}. {SMOOTHED}")
    lines = [HEAD, *hints(masks, counts)]
    palette = ChainMap(*(mask.palette for mask in masks))
    for place, value in enumerate(sorted(counts)):
        name = f"class{value if value < COLOUR else place}"
        shade = f", {text_of(palette[value])} in the palette" if value in palette else ""
        lines.append(f"{text_of(value)} {name}  # {share_of(counts, value)}{shade}")
    return "\n".join(lines)


def hints(masks: list[Mask], counts: Counter[int]) -> list[str]:
    """Comments about values that may not be classes."""
    found = []
    if len(counts) > MANY:
        found.append(f"# {SMOOTHED}")
    if len(counts) == 2:
        found.append("# Two values: call the one of the object by its name, and the other background.")
    elif IGNORED in counts:
        found.append("# Does 255 mark pixels that do not count, such as outlines? Then call it ignored.")
    last = {max(mask.counts) for mask in masks}
    if len(last) > 2 and all([*range(max(mask.counts) + 1)] == sorted(mask.counts) for mask in masks):
        found.append("# Every mask has 0 to another number: these seem to number objects, not classes.")
    return found


def total(masks: list[Mask]) -> Counter[int]:
    """The pixels of each value in all masks."""
    counts: Counter[int] = Counter()
    for mask in masks:
        counts.update(mask.counts)
    return counts


def share_of(counts: Counter[int], value: int) -> str:
    """The share of the pixels that have a value."""
    return f"{counts[value] / counts.total():.1%} of the pixels"
