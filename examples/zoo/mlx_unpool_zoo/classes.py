"""Names and colours of the classes of segmentation models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CAMVID: list[Any] = [
    {"name": "sky", "colour": [128, 128, 128]},
    {"name": "building", "colour": [128, 0, 0]},
    {"name": "pole", "colour": [192, 192, 128]},
    {"name": "road", "colour": [128, 64, 128]},
    {"name": "pavement", "colour": [60, 40, 222]},
    {"name": "tree", "colour": [128, 128, 0]},
    {"name": "sign", "colour": [192, 128, 128]},
    {"name": "fence", "colour": [64, 64, 128]},
    {"name": "car", "colour": [64, 0, 128]},
    {"name": "pedestrian", "colour": [64, 64, 0]},
    {"name": "bicyclist", "colour": [0, 128, 192]},
    {"name": "unlabelled", "colour": [0, 0, 0]},
]


def read_classes(path: Path) -> list[Any]:
    """Names and colours of classes from a table of FastSurfer or FreeSurfer.

    A class is a line with number, name, red, green and blue; further columns and other lines are ignored.
    """
    classes = []
    for line in path.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if len(words) >= 5 and all(word.isdigit() for word in (words[0], *words[2:5])):
            colour = [int(word) for word in words[2:5]]
            classes.append({"name": words[1], "colour": colour, "label": int(words[0])})
    if not classes:
        raise ValueError(f"{path} must contain a line 'number name red green blue' for each class.")
    return classes


# The classes of FastSurfer's networks for axial and coronal slices (79) and for sagittal ones (51), which
# have no classes for structures on the left and for the cortex on the right.
_BOTH_SIDES = read_classes(Path(__file__).with_name("fastsurfer_labels.txt"))
_ONE_SIDE = [c for c in _BOTH_SIDES if not c["name"].startswith(("Left-", "ctx-rh-"))]
FASTSURFER: dict[int, list[Any]] = {len(c): c for c in (_BOTH_SIDES, _ONE_SIDE)}
