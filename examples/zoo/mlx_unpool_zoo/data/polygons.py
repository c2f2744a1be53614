"""Polygons in the files of labelme, COCO and YOLO: which files have them, and the masks that they draw."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from .pictures import SPLITS, open_picture, pictures_in
from .tables import IGNORED, TABLES, read_table

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


# Which files have polygons.


def shapes_of(
    images: Path, masks: Path, root: Path
) -> tuple[list[tuple[Path, Path | Shapes]], list[str], Path | None, list[str]] | None:
    """The images of a split with their shapes, the names of the classes, their table, and lines for people.

    ``masks`` is a folder, or a file of COCO. None if there are no polygons.
    """
    notes: list[str] = []
    shapes = masks if masks.is_file() else next(filter(None, map(shapes_file, (masks, root))), None)
    if shapes is None:
        return None
    table = None
    if shapes.suffix == ".txt":
        near = dict.fromkeys((masks.parent, masks, root, root.parent))
        table = next((path for base in near for path in sorted(base.glob("*.y*ml"))), None)
        if not table:
            raise ValueError(f"{masks} has polygons of YOLO, but there is no data.yaml with their names.")
        names, files = yolo(images, masks, table, notes.append)
    elif "categories" in read_json(shapes):
        names, files = coco(shapes, root, notes.append)
    else:
        names, files = labelme(shapes.parent, notes.append)
    if gone := [path for path in files if not path.exists()]:
        notes.append(f"{len(gone)} images of {shapes} are not there: {gone[0].name}, for example.")
    found: list[tuple[Path, Path | Shapes]] = [(p, each) for p, each in sorted(files.items()) if p.exists()]
    return found, names, table, notes


def coco_splits(root: Path) -> dict[str, Path]:
    """Files of COCO by the split in their names, such as annotations/instances_val2017.json."""
    found = {}
    for path in sorted(root.glob("annotations/*.json")):
        words = re.findall(r"[a-z]+", path.stem.lower())
        if "categories" in read_json(path):
            found[next((SPLITS[word] for word in words if word in SPLITS), path.name)] = path
    return found


def shapes_file(folder: Path) -> Path | None:
    """A file of COCO or labelme, or one of YOLO (a class and numbers from 0 to 1), in a folder."""
    for path in [*sorted(folder.glob("*.json")), *sorted(folder.glob("annotations/*.json"))]:
        keys = read_json(path).keys()
        if {"images", "annotations", "categories"} <= keys or {"imagePath", "shapes"} <= keys:
            return path
    texts = (path for path in folder.rglob("*.txt") if path.name not in TABLES)
    line = r"\d+( [\d.e-]+){4,}\s"
    return next((p for p in texts if re.match(line, p.read_text(errors="replace") + "\n")), None)


def foreign_in(folder: Path) -> str:
    """Which files of annotations that are not read a folder has, and what to export instead."""
    if any(path.read_text(errors="replace").lstrip()[:1] == "[" for path in folder.glob("*.json")):
        return ", and a list in JSON as of Label Studio (export as COCO)"
    if any("<annotation" in path.read_text(errors="replace")[:300] for path in folder.rglob("*.xml")):
        return ", and XML as of CVAT (export as COCO 1.0, or as Segmentation mask 1.1)"
    return ""
