"""Names and colours of the classes of segmentation models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

# fmt: off
PALETTE = (  # nearly black, then the colours of matplotlib's "tab20", strong ones first
    (21, 21, 28), (31, 119, 180), (255, 127, 14), (44, 160, 44), (214, 39, 40),
    (148, 103, 189), (140, 86, 75), (227, 119, 194), (127, 127, 127), (188, 189, 34),
    (23, 190, 207), (174, 199, 232), (255, 187, 120), (152, 223, 138), (255, 152, 150),
    (197, 176, 213), (196, 156, 148), (247, 182, 210), (199, 199, 199), (219, 219, 141),
)
# fmt: on


def read_classes(path: str | Path) -> list[Any]:
    """Read a table of FastSurfer or FreeSurfer.

    The result has a dict with ``name``, ``colour`` and ``label`` per class. A line has number,
    name, red, green and blue; further columns and other lines are ignored.
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


def palette(count: int) -> list[list[int]]:
    """Distinct colours of classes; the first is nearly black.

    For more than 20 classes they are those of Pascal VOC, in which the bits of a class index are
    spread over the three colours, highest bits first.
    """
    if count > len(PALETTE):
        return [voc_colour(index) for index in range(count)]
    return [[*colour] for colour in PALETTE[:count]]


def voc_colour(index: int) -> list[int]:
    """The colour of a class of Pascal VOC."""
    colour = [0, 0, 0]
    for bit in range(24):
        colour[bit % 3] |= (index >> bit & 1) << (7 - bit // 3)
    return colour


def not_drawn(classes: Sequence[Any]) -> int | None:
    """The index of the class that is not drawn over pictures: the background, or else class 0.

    The background is a class with this name, in any case and with any underscores around it. Class
    0 has the label 0 and the name "0", as in a class file without names.
    """
    names = [entry["name"].strip(" _").lower() for entry in classes]
    if "background" in names:
        return names.index("background")
    if "0" not in names:
        return None
    index = names.index("0")
    return index if classes[index].get("label", index) == 0 else None


_FOLDER = Path(__file__).parent
_FASTSURFER = read_classes(_FOLDER / "fastsurfer_labels.txt")
_CEREBNET = read_classes(_FOLDER / "cerebnet_labels.txt")
# Networks for sagittal slices do not distinguish the sides: those of FastSurfer have no classes for
# structures on the left and for the cortex on the right, those of CerebNet one for both sides.
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
