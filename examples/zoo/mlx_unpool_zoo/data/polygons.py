"""What shapes annotation files have: labelme, COCO and YOLO."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from .pictures import open_picture, pictures_in
from .tables import IGNORED, read_table

VOID = "(ignored)"  # the class of shapes that do not count
Note = Callable[[str], None]


@dataclass
class Shapes:
    """The shapes of an upright picture: a class name with points (N, 2) in pixels, or a mask (H, W), each.

    Names, because the numbers of classes are those of the training split in all splits.
    """

    file: Path
    size: tuple[int, int]
    shapes: list[tuple[str, np.ndarray]] = field(default_factory=list)

    def __str__(self) -> str:
        return str(self.file)

    def drawn(self, names: Sequence[str]) -> np.ndarray:
        """The position of the class of each pixel (H, W) among ``names``; later shapes cover earlier ones."""
        canvas = Image.new("L", self.size)
        for name, shape in self.shapes:
            if name not in (*names, VOID):
                raise ValueError(f"{self.file} has the class {name}, which the training files do not have.")
            number = IGNORED if name == VOID else names.index(name)
            if shape.dtype == bool:
                canvas.paste(number, mask=Image.fromarray(shape))
            else:
                ImageDraw.Draw(canvas).polygon([*map(tuple, shape)], fill=number)
        return np.array(canvas)


def labelme(folder: Path, note: Note) -> tuple[list[str], dict[Path, Shapes]]:
    """Files a.json, one for each picture."""
    found = {}
    for path, data in ((path, read_json(path)) for path in sorted(folder.glob("*.json"))):
        if not {"imagePath", "shapes"} <= data.keys():
            continue
        picture = path.parent / data["imagePath"].replace("\\", "/")
        shapes = Shapes(path, (data["imageWidth"], data["imageHeight"]))
        found[picture if picture.exists() else path.with_name(picture.name)] = shapes
        for shape in data["shapes"]:
            points, kind, name = np.array(shape["points"], float), shape.get("shape_type"), shape["label"]
            if kind == "rectangle":
                (x, y), (right, below) = points
                points = np.array([(x, y), (right, y), (right, below), (x, below)])
            elif kind == "circle":
                angles, radius = np.linspace(0, 2 * np.pi, 64), np.hypot(*(points[1] - points[0]))
                points = points[0] + radius * np.stack([np.cos(angles), np.sin(angles)], -1)
            elif kind not in ("polygon", None):
                note(f"{path}: a {kind} of {name} is not drawn.")
                continue
            shapes.shapes.append((VOID if name == "__ignore__" else plain(name), points))
    names = {name for shapes in found.values() for name, _ in shapes.shapes}
    return with_background(sorted(names)), found


def coco(path: Path, root: Path, note: Note) -> tuple[list[str], dict[Path, Shapes]]:
    """A file with images, categories and annotations: polygons, or run lengths."""
    data, inside = read_json(path), {picture.name: picture for picture in pictures_in(root)}
    names = {entry["id"]: plain(entry["name"]) for entry in data["categories"]}
    images = {entry["id"]: Shapes(path, (entry["width"], entry["height"])) for entry in data["images"]}
    for entry in data["annotations"]:
        shapes, drawn = images.get(entry["image_id"]), entry.get("segmentation")
        if shapes is None or entry["category_id"] not in names or not drawn:
            missing = "image" if shapes is None else "polygon" if not drawn else "category"
            note(f"{path}: annotation {entry['id']} has no {missing}, and is not drawn.")
            continue
        name = VOID if entry.get("iscrowd") else names[entry["category_id"]]
        parts = [decoded(drawn)] if isinstance(drawn, dict) else [np.reshape(p, (-1, 2)) for p in drawn]
        shapes.shapes += [(name, part) for part in parts if len(part) > 2]
    whole = {entry["id"]: path.parent / entry["file_name"] for entry in data["images"]}
    found = {
        place if place.exists() else inside.get(place.name, place): images[n] for n, place in whole.items()
    }
    return with_background([*names.values()]), found


def decoded(rle: dict[str, Any]) -> np.ndarray:
    """A mask (H, W) from COCO's run lengths, which go down the columns."""
    if isinstance(rle["counts"], list):
        values = np.arange(len(rle["counts"])) % 2 > 0
        return np.repeat(values, rle["counts"]).reshape(rle["size"][::-1]).T
    from pycocotools import mask

    return mask.decode(rle).astype(bool)


def yolo(images: Path, labels: Path, table: Path, note: Note) -> tuple[list[str], dict[Path, Shapes]]:
    """A file a.txt for each picture: a class and the points of a polygon, in parts of the size, in a line."""
    found, names = {}, [plain(entry["name"]) for entry in read_table(table)]
    for picture in pictures_in(images):
        path = labels / picture.relative_to(images).with_suffix(".txt")
        found[picture] = shapes = Shapes(path, open_picture(picture)[0].size)
        if not path.exists():
            note(f"{path} is not there: all of {picture.name} is background.")
        for line in path.read_text().splitlines() if path.exists() else ():
            number, *points = line.split()
            if int(number) >= len(names):
                raise ValueError(f"{path} has the class {number}, but {table} has {len(names)}.")
            if len(points) < 6:
                note(f"{path} has a box without a polygon, which is not drawn.")
            else:
                corners = np.reshape(points, (-1, 2)).astype(float) * shapes.size
                shapes.shapes.append((names[int(number)], corners))
    return with_background(names), found


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if it has none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def plain(name: str) -> str:
    """A name; "background" for labelme's "_background_"."""
    return "background" if name.strip("_").lower() == "background" else name


def with_background(names: Sequence[str]) -> list[str]:
    """Names of classes with the background first, which is everything that has no shape."""
    return ["background", *(name for name in dict.fromkeys(names) if name not in ("background", VOID))]
