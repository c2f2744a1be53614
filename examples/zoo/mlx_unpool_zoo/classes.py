"""Names and colours of the classes of segmentation models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def read_classes(path: str | Path) -> list[Any]:
    """Read a table of FastSurfer or FreeSurfer: a dict with ``name``, ``colour`` and ``label`` per class.

    A line has number, name, red, green and blue; further columns and other lines are ignored.
    """
    classes = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        words = line.split()
        if len(words) >= 5 and all(word.isdigit() for word in (words[0], *words[2:5])):
            colour = [int(word) for word in words[2:5]]
            classes.append({"name": words[1], "colour": colour, "label": int(words[0])})
    if not classes:
        raise ValueError(f"{path} must contain a line 'number name red green blue' for each class.")
    return classes


def is_background(entry: Any) -> bool:
    """Whether a class is called "background" or "_background_", in any case."""
    return entry["name"].strip(" _").lower() == "background"


def not_drawn(classes: Sequence[Any]) -> int | None:
    """The index of the class that is not drawn over pictures: the background, or 0 if that is its name."""
    unnamed = [n for n, c in enumerate(classes) if c["name"] == "0" and c.get("label", n) == 0]
    return next((n for n, c in enumerate(classes) if is_background(c)), next(iter(unnamed), None))


_FOLDER = Path(__file__).parent
_FASTSURFER = read_classes(_FOLDER / "fastsurfer_labels.txt")
_CEREBNET = read_classes(_FOLDER / "cerebnet_labels.txt")
# Networks for sagittal slices do not distinguish the sides: those of FastSurfer have no classes for
# structures on the left and for the cortex on the right, those of CerebNet have one class for both sides.
_ONE_SIDE = [c for c in _FASTSURFER if not c["name"].startswith(("Left-", "ctx-rh-"))]
_EITHER = [
    {"name": c["name"].removeprefix("Left_"), "colour": c["colour"]}
    for c in _CEREBNET
    if not c["name"].startswith("Right_")
]
CAMVID: list[Any] = read_classes(_FOLDER / "camvid_labels.txt")
# By number of classes: for axial and coronal slices, and for sagittal slices.
FASTSURFER: dict[int, list[Any]] = {79: _FASTSURFER, 51: _ONE_SIDE}
CEREBNET: dict[int, list[Any]] = {28: _CEREBNET, 17: _EITHER}
