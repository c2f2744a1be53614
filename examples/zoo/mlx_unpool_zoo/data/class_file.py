"""Read the class file, which says what each value of the masks means.

    # A comment.
    0 background
    1 road  # also a comment, after two spaces
    255 ignored

A value is a number, or a colour such as #804080. Values with the same name are one class. Pixels
called ignored count neither in the loss nor in the scores.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from mlx_unpool.porting.messages import cut, shortened

from ..classes import palette as distinct
from .masks import COLOUR, Mask, text_of
from .pictures import IGNORED
from .proposal import oddities, share_of, total

VALUE = r"([0-9]+|#[0-9a-fA-F]{6})"
COMMENT = r"(^|\s{2,}|\t)#(\s.*)?$"
IGNORED_NAME = "ignored"
# What is wrong with a name that has one of these forms.
WRONG_NAMES = {
    r"[=:,;].*": "it must have only spaces between value and name: {line!r}.",
    r"\?.*|.*\s\?": "write a name for {value} in place of ?.",
    rf"{VALUE}\s.*|#[0-9a-fA-F]{{6}}": "it must have one value, but has two: {line!r}.",
    r".*(\s[0-9]+){3}": "a colour, as #804080, is in place of the number: {line!r}.",
    r"[\W_]*(ignored?|void|unlabell?ed)([\W_].*)?": (
        "{name!r} can mean two things. Call it ignored (two spaces before a comment) if its pixels "
        "do not count, or give it another name if it is a class."
    ),
}


class Classes:
    """The classes, in the order of the file, and the class index, or ``IGNORED``, of each value."""

    def __init__(self, path: Path, names: dict[int, str]) -> None:
        self.path, self.names = path, names
        self.counted = [*dict.fromkeys(name for name in names.values() if name != IGNORED_NAME)]
        indices = {name: number for number, name in enumerate(self.counted)}
        self.indices = {value: indices.get(name, IGNORED) for value, name in names.items()}

    @property
    def in_colours(self) -> bool:
        """Whether the values are colours, not numbers."""
        return max(self.names) >= COLOUR

    def entries(self) -> list[dict[str, Any]]:
        """The name, the colour and the label, the first of its numbers, of each class."""
        first = {name: value for value, name in reversed(self.names.items())}
        if self.in_colours:
            return [{"name": name, "colour": rgb(first[name])} for name in self.counted]
        colours = distinct(len(self.counted))
        return [
            {"name": name, "colour": colour, "label": first[name]}
            for name, colour in zip(self.counted, colours)
        ]

    def merged(self) -> list[str]:
        """The values of each class that has several, such as "1, 2 = leaf"."""
        values: dict[str, list[str]] = {}
        for value, name in self.names.items():
            values.setdefault(name, []).append(text_of(value))
        return [f"{', '.join(each)} = {name}" for name, each in values.items() if len(each) > 1]


def rgb(colour: int) -> list[int]:
    """Red, green and blue of a colour."""
    return [colour >> 16 & 255, colour >> 8 & 255, colour & 255]


def read_class_file(path: Path) -> Classes:
    """The classes in a file.

    Raises:
        ValueError: If a line has another form, a value is in two lines, or there are fewer than 2
            or more than 254 classes.
    """
    if not path.is_file():
        raise ValueError(f"the class file must be a file, unlike {path}.")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{path} must be text in UTF-8.") from None
    names: dict[int, str] = {}
    for number, line in enumerate(lines, 1):
        text = re.sub(COMMENT, "", line.strip())
        if not text:
            continue
        try:
            value, name = value_and_name(text)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        if value in names:
            raise ValueError(f"{path}, line {number}: {text_of(value)} is in the file twice.")
        names[value] = name
    if len({value >= COLOUR for value in names}) > 1:
        raise ValueError(f"{path} must have numbers or colours, but has both.")
    classes = Classes(path, names)
    if not 2 <= len(classes.counted) < IGNORED:
        raise ValueError(
            f"{path} must have 2 to {IGNORED - 1} classes besides ignored, but has "
            f"{len(classes.counted)}."
        )
    return classes


def value_and_name(line: str) -> tuple[int, str]:
    """The value and the name in a line. Raises ValueError with what is wrong with its form."""
    text, _, name = re.sub(r"\s+", " ", line, count=1).partition(" ")
    if not re.fullmatch(VALUE, text) or not name:
        form = "it must be VALUE NAME, such as '1 road' or '#804080 road', but is "
        form += f"{shortened(line)!r} (move the file away, and --write-classes writes such a file)."
        if text.startswith("#") and not re.fullmatch(VALUE, text):
            form += " A colour has six hexadecimal digits; a comment begins with '# '."
        raise ValueError(form)
    for pattern, problem in WRONG_NAMES.items():
        if name != IGNORED_NAME and re.fullmatch(pattern, name, re.IGNORECASE):
            raise ValueError(problem.format(value=text, name=name, line=shortened(line)))
    if text.startswith("#"):
        return COLOUR + int(text[1:], 16), name
    if int(text) > 65535:
        raise ValueError(f"a number must be at most 65535, but is {text}.")
    return int(text), name


def check_values(
    split: str, masks: Sequence[Mask], classes: Classes, known: Collection[str] = ()
) -> None:
    """Check that masks have classes, and training masks all of them.

    Args:
        split: Of the masks.
        masks: The masks of a split.
        classes: Those of the class file.
        known: The names of classes of a trained model, which training masks need not have.

    Raises:
        ValueError: If a value is not listed, no pixel counts, or a class has no training pixels.
    """
    counts = total(masks)
    if unlisted := [value for value, _ in counts.most_common() if value not in classes.names]:
        raise ValueError(about_unlisted(unlisted, masks, classes))
    present = {classes.names[value] for value in counts}
    if present == {IGNORED_NAME}:
        raise ValueError(f"every pixel of the masks for {split} is ignored.")
    absent = [name for name in classes.counted if name not in {*present, *known}]
    if absent and split == "train":
        raise ValueError(
            f"no training mask has {cut(absent)}. Move images that have it to the training images "
            "(without a folder val, every fifth image by name is for validation), or call it "
            f"ignored in {classes.path}, or remove its line if no mask has it."
        )


def about_unlisted(unlisted: list[int], masks: Sequence[Mask], classes: Classes) -> str:
    """What to do about values of masks that are not in the class file."""
    counts = total(masks)
    having = [mask.path for mask in masks if not classes.names.keys() >= mask.counts.keys()]
    shares = [f"{text_of(value)} ({share_of(counts, value)})" for value in unlisted]
    masks_named = f"see {having[0]}, one of {len(having)} such masks."
    said = f"{classes.path} does not list {cut(shares)}: {masks_named}"
    if (unlisted[0] >= COLOUR) != classes.in_colours:
        kinds = ["colours", "numbers (or indices of a palette)"]
        mask, listed = reversed(kinds) if classes.in_colours else kinds
        return f"{said} These masks have {mask}, but the file has {listed}."
    if odd := oddities(masks, counts):
        return f"{said} {' '.join(odd)} Correct masks, or add a line for each value of a class."
    ways = f"'{text_of(unlisted[0])} NAME'"
    if 1000 * counts[unlisted[0]] < counts.total():
        ways += f" or '{text_of(unlisted[0])} ignored'"
    return f"{said} Add a line {ways} for each, or correct the masks."
