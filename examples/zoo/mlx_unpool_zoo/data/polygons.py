"""Polygons in the files of labelme, COCO and YOLO: which files have them, and the masks that they draw."""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import json
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os.path import normpath
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from pycocotools import mask

from ..messages import cut
from .pictures import files_in, pictures_in
from .tables import IGNORED, TABLES, read_table, text_of

VOID = "(ignored)"  # the class of shapes that do not count
POLYGONS = ("polygon", "oriented_rectangle", "rotation", None)  # shape_type of labelme and X-AnyLabeling
AREAS = ("rectangle", "circle", "mask")
COCO, LABELME = {"images", "annotations", "categories"}, {"imagePath", "shapes"}  # keys
YOLO = r"\s*-?[\d.]+([ \t]+[\d.e+-]+){4,}\s"  # a line
# Other tools: how names of their files end, what these contain, the tool, and what to export instead.
FOREIGN = [
    ("*.json", r"\s*\[\s*\{", "a list in JSON as of Label Studio", "COCO"),
    ("task-*-annotation-*.png", "", "brush PNGs of Label Studio, one per label", "COCO"),
    ("*.xml", "(?s:.*)<annotations?>", "XML as of CVAT", "COCO 1.0 or Segmentation mask 1.1"),
    ("*.json", '(?s:.*)"(_via_|regions)', "JSON of VIA", "COCO"),
    ("*.json", '(?s:.*)"objects": *\\[', "JSON of Supervisely", "masks (masks_machine) or COCO"),
]


@dataclass
class Shapes:
    """The shapes of one picture, each with the name of its class and as its file describes it.

    Names, because the numbers of classes are those of the training split in all splits.
    """

    file: Path
    draw: Callable[[Image.Image, list[tuple[int, Any]]], None]
    size: tuple[Any, Any] = (None, None)  # in the file
    shapes: list[tuple[str, Any]] = field(default_factory=list)
    flat: list[str] = field(default_factory=list)  # the kinds of shapes without an area

    def __str__(self) -> str:
        return str(self.file)

    def drawn(self, names: Sequence[str], size: tuple[int, int]) -> np.ndarray:
        """The position of the class of each pixel in ``names``, the background first: uint8 (H, W).

        Raises:
            ValueError: If the upright picture (width, height) has another size, or a class has no name.
        """
        numbers = {name: number for number, name in enumerate(names)} | {VOID: IGNORED}
        with naming(self.file):
            if all(self.size) and self.size != size:
                hint = "; if its EXIF data turn it, save it without them" * (self.size == size[::-1])
                raise ValueError(f"its shapes are for a picture of {self.size}, but that has {size}{hint}.")
            if unknown := [name for name, _ in self.shapes if name not in numbers]:
                raise ValueError(f"the training split has no class {unknown[0]}, but {cut(names)}.")
            canvas = Image.new("L", size)
            self.draw(canvas, [(numbers[name], shape) for name, shape in self.shapes])
        return np.array(canvas)


@dataclass
class Found:
    """The files of one split: an image with the file, or the shapes, of its mask."""

    files: list[tuple[Path, Path | Shapes]]
    names: list[str] | None = None  # of the classes, from files of polygons
    table: Path | None = None
    notes: list[str] = field(default_factory=list)


def shapes_of(path: Path, images: Path, root: Path, shared: bool = False) -> Found:
    """The images in a folder with the shapes in a file of COCO, or in files beside the one of another kind.

    ``root`` has both. ``shared``: whether there are files of images elsewhere.
    """
    if has_keys(path, COCO):
        return coco(path, images)
    folder, ending = path.parent, path.suffix.lower()
    pictures = files_in(images) or pictures_in(images)
    needed = {each: (folder / each.relative_to(images)).with_suffix(ending) for each in pictures}
    others = [] if shared else sorted({*files_in(folder, (ending,))} - {*needed.values()})
    if alone := [other for other in others if has_keys(other, LABELME) or is_yolo(other)]:
        raise ValueError(f"{alone[0]} has shapes, but there is no image for it in {images}.")
    if ending == ".txt":
        return yolo(needed, folder, [images.parent, folder.parent, folder, root, root.parent])
    found = labelme(needed, folder)
    if others:
        found.notes.append(f"Files that are not of labelme, and are not used: {cut([*map(str, others)])}.")
    return found


def found_with(files: dict[Path, Shapes], names: Iterable[str], notes: Sequence[str] = ()) -> Found:
    """The images of a split, with lines about shapes without an area and images without shapes."""
    flat = Counter(kind for each in files.values() for kind in each.flat)
    listed = ", ".join(f"{count} {kind}" for kind, count in flat.items())
    empty = [path for path, each in files.items() if not each.shapes]
    if listed and len(empty) == len(files):
        raise ValueError(f"{files[empty[0]]} has no polygons, only shapes without area: {listed}.")
    lines = [*notes]
    if listed:
        lines.append(f"Shapes without an area are not drawn: {listed}.")
    if empty:
        lines.append(f"{len(empty)} of {len(files)} images, such as {empty[0].name}, have only background.")
    names = ["background", *(name for name in dict.fromkeys(names) if name not in ("background", VOID))]
    if len(names) >= IGNORED:
        raise ValueError(f"shapes must have at most {IGNORED - 2} classes, but have {len(names) - 1}.")
    return Found(sorted(files.items()), names, notes=lines)


def labelme(needed: dict[Path, Path], folder: Path) -> Found:
    """The shapes in a.json for a.jpg. Shapes cover those before them."""
    if alone := [picture for picture, path in needed.items() if not path.exists()]:
        share = f"{len(alone)} of {len(needed)} images have no file of labelme"
        raise ValueError(f"{share}: {alone[0]}, for example, needs {needed[alone[0]].name} in {folder}.")
    files = {}
    for picture, path in needed.items():
        data = read_json(path)
        with naming(path):
            size = data.get("imageWidth"), data.get("imageHeight")
            files[picture] = found = Shapes(path, draw_labelme, size)
            for shape in data["shapes"]:
                kind, name = shape.get("shape_type"), plain(shape["label"])
                if kind in AREAS or (kind in POLYGONS and len(shape["points"]) > 2):
                    found.shapes.append((VOID if name == "__ignore__" else name, shape))
                else:
                    found.flat.append(kind or "line")
    return found_with(files, sorted(name for each in files.values() for name, _ in each.shapes))


def draw_labelme(canvas: Image.Image, shapes: list[tuple[int, Any]]) -> None:
    """Draw shapes as labelme's ``shape_to_mask``, each over those before it."""
    draw = ImageDraw.Draw(canvas)
    for number, shape in shapes:
        points, kind = points_of(shape["points"], canvas.size), shape.get("shape_type")
        (left, top), (right, below) = points.min(0).tolist(), points.max(0).tolist()
        if kind == "rectangle":
            draw.rectangle((left, top, right, below), fill=number, outline=number)
        elif kind == "circle":
            (x, y), radius = points[0].tolist(), float(np.hypot(*(points[1] - points[0])))
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=number, outline=number)
        elif kind == "mask":
            with Image.open(io.BytesIO(base64.b64decode(shape["mask"]))) as part:
                canvas.paste(number, (int(left), int(top)), part.convert("L").point(lambda v: 255 * (v > 0)))
        else:
            draw.polygon([*map(tuple, points.tolist())], fill=number, outline=number)


def coco(path: Path, images: Path) -> Found:
    """The shapes in a file of COCO: polygons and run lengths. The smaller of two shapes covers the other."""
    files: dict[Path, Shapes] = {}
    data, listed, notes = read_json(path), dict[Any, Shapes](), Counter[str]()
    by_name = defaultdict[str, list[Path]](list)
    for picture in pictures_in(images):
        by_name[picture.name].append(picture)
    with naming(path):
        for each in data["images"]:
            place = placed(each["file_name"], path, images, by_name)
            listed[each["id"]] = found = Shapes(path, draw_coco, (each.get("width"), each.get("height")))
            notes[f"Images that {path} lists, but are missing"] += not place
            if place and files.setdefault(place, found) is not found:
                raise ValueError(f"it lists {place.name} twice.")
        categories = {each["id"]: each for each in data["categories"]}
        for each in data["annotations"]:
            name, parts = plain(categories[each["category_id"]]["name"]), each.get("segmentation")
            shape = [part for part in parts if len(part) > 5] if isinstance(parts, list) else parts
            if each["image_id"] not in listed:
                notes[f"Shapes in {path} of images that it does not list, which are not used"] += 1
            elif shape:
                listed[each["image_id"]].shapes.append((VOID if each.get("iscrowd") else name, shape))
            else:
                listed[each["image_id"]].flat.append("line" if parts else "box")
        if not files:
            raise ValueError(f"its images are not in {images}: {data['images'][0]['file_name']}.")
    # Roboflow adds the group of all classes as a category.
    used = {each["category_id"] for each in data["annotations"]}
    groups = {c.get("supercategory") for c in categories.values() if c.get("supercategory") != c["name"]}
    names = [each["name"] for n, each in categories.items() if n in used or each["name"] not in groups]
    beside = {other for folder in {each.parent for each in files} for other in files_in(folder)}
    notes[f"Images that {path} does not list, which are not used"] = len(beside - files.keys())
    lines = [f"{text}: {count}." for text, count in notes.items() if count]
    return found_with(files, map(plain, names), lines)


def placed(name: str, path: Path, images: Path, by_name: dict[str, list[Path]]) -> Path | None:
    """The image with a name in a file of COCO: there, or the only one with this name; None without one."""
    parts = Path(name.replace("\\", "/"))
    places = (Path(normpath(base / parts)) for base in (path.parent, images))
    same = [place for place in places if images in place.parents and place.is_file()][:1]
    same = same or by_name.get(parts.name, [])
    if len(same) > 1:  # train2017/1.jpg and val2017/1.jpg
        same = [each for each in same if each.parent.name.lower() in path.stem.lower()] or same
    if len(same) > 1:
        raise ValueError(f"several folders in {images} have {name}.")
    return next(iter(same), None)


def draw_coco(canvas: Image.Image, shapes: list[tuple[int, Any]]) -> None:
    """Draw polygons (lists of x and y) and run lengths as pycocotools does, the larger ones first."""
    width, height = canvas.size
    runs, drawn = [], np.zeros((width, height), np.uint8)  # run lengths go down the columns
    for number, shape in shapes:
        if isinstance(shape, list):
            parts = [points_of(part, canvas.size).ravel().tolist() for part in shape]
            run = mask.merge(mask.frPyObjects(parts, height, width))
        else:
            if [*shape["size"]] != [height, width]:
                raise ValueError(f"run lengths must be for {[height, width]} pixels, not {shape['size']}.")
            run = mask.frPyObjects(shape, height, width) if isinstance(shape["counts"], list) else shape
        runs.append((number, run))
    for number, run in sorted(runs, key=lambda each: mask.area(each[1]), reverse=True):
        with warnings.catch_warnings():  # about its own use of NumPy
            warnings.simplefilter("ignore", DeprecationWarning)
            inside = mask.decode(run).T
        if np.count_nonzero(inside) != mask.area(run):  # decode does not set the pixels after the last run
            raise ValueError("the run lengths of a shape do not fill the picture.")
        np.copyto(drawn, number, where=inside.view(bool))
    canvas.paste(Image.fromarray(np.ascontiguousarray(drawn.T)))


def yolo(needed: dict[Path, Path], folder: Path, near: Sequence[Path]) -> Found:
    """The shapes in a.txt for a.jpg: a class and the points of a polygon in each line."""
    texts = [path for base in near for path in (*sorted(base.glob("*.y*ml")), *(base / n for n in TABLES))]
    texts = [path for path in texts if path.exists()]
    table = next((p for p in texts if p.name in TABLES or re.search(r"(?m)^names *:", text_of(p))), None)
    if not table:
        raise ValueError(f"{folder} has polygons of YOLO, but there is no data.yaml with their names.")
    if "kpt_shape" in text_of(table):
        raise ValueError(f"{table} describes keypoints (kpt_shape), but polygons are needed.")
    names: dict[float, str] = {e.get("label", n): plain(e["name"]) for n, e in enumerate(read_table(table))}
    files = {}
    for picture, path in needed.items():
        files[picture] = found = Shapes(path, draw_yolo)
        with naming(path):
            lines = text_of(path).splitlines() if path.exists() else []
            for number, *points in (map(float, line.split()) for line in lines if line.strip()):
                if number not in names:
                    raise ValueError(f"the class {number:g} is not in {table}.")
                if len(points) > 5:
                    found.shapes.append((names[number], points))
                else:
                    found.flat.append("box")
    made = found_with(files, names.values())
    made.table = table
    return made


def draw_yolo(canvas: Image.Image, shapes: list[tuple[int, Any]]) -> None:
    """Draw polygons whose points are parts of the width and height, as those of COCO."""
    scaled = []
    for number, shape in shapes:
        if not -0.01 < min(shape) <= max(shape) < 1.01:
            raise ValueError("points must be in parts of the size (0 to 1), not in pixels.")
        scaled.append((number, [(points_of(shape, canvas.size) * canvas.size).ravel().tolist()]))
    draw_coco(canvas, scaled)


def points_of(values: Any, size: tuple[int, int]) -> np.ndarray:
    """Points (N, 2) from numbers in a file."""
    numbers = np.array(values, float).ravel()
    if numbers.size % 2:
        raise ValueError("a shape has an odd number of coordinates.")
    points = numbers.reshape(-1, 2)
    if not np.isfinite(points).all() or np.abs(points).max() > 10 * max(size):
        raise ValueError(f"points are far outside the picture: {points.min():g} to {points.max():g}.")
    return points


def plain(name: Any) -> str:
    """A name; "background" for labelme's "_background_"."""
    return "background" if str(name).strip("_").lower() == "background" else str(name)


# Which files have shapes.


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name a file in the errors of its contents."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from None
    except Exception as error:  # a form that is not understood raises many kinds of errors
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path}: damaged, or not of labelme, COCO or YOLO ({reason}).") from None


@functools.lru_cache(None)  # cleared by those who find the files of a folder
def read_json(path: Path) -> dict[str, Any]:
    """The object in a file of JSON; empty if it has another value."""
    with naming(path):
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    if not isinstance(data, dict):
        return {}
    data.pop("imageData", None)  # megabytes
    return data


def has_keys(path: Path, keys: set[str]) -> bool:
    """Whether a file of JSON has an object with these keys."""
    with contextlib.suppress(ValueError):  # damaged
        return keys <= read_json(path).keys()
    return False


def is_yolo(path: Path) -> bool:
    """Whether a text has a class and at least four numbers in its first line."""
    return path.suffix == ".txt" and bool(re.match(YOLO, path.read_text(errors="replace") + "\n"))


def jsons_in(folder: Path) -> list[Path]:
    """The files of JSON in a folder and in its folder annotations/."""
    inside = folder / "annotations"
    return files_in(folder, (".json",)) + (files_in(inside, (".json",)) if inside.is_dir() else [])


def shapes_file(folder: Path) -> Path | None:
    """A file with shapes in a folder, of COCO, labelme or YOLO (lines of a class and numbers)."""
    files = jsons_in(folder)
    if path := only_coco(files):
        return path
    others = [path for path in files if has_keys(path, LABELME)]
    others += [path for path in files_in(folder, (".txt",)) if not others and is_yolo(path)]
    for path in files if not others else ():
        read_json(path)  # raises an error if it is damaged
    return next(iter(others), None)


def only_coco(paths: Sequence[Path]) -> Path | None:
    """The file of COCO among others, such as those of keypoints and captions."""
    paths = [path for path in paths if path.stem.startswith("instances")] or paths
    found = [path for path in paths if has_keys(path, COCO)]
    if len(found) > 1:
        raise ValueError(f"{found[0]} and {found[1]} are both files of COCO: keep one.")
    return next(iter(found), None)


def foreign_in(folder: Path) -> str:
    """A sentence about annotations of a tool that are not read, and what to export instead."""
    for ending, text, tool, export in FOREIGN:
        for path in sorted(folder.rglob(ending))[:9]:
            if re.match(text, path.read_bytes()[:100_000].decode(errors="replace")):
                return f"{path} has {tool}, which is not read: export it as {export}."
    return ""
