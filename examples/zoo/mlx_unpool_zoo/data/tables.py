"""Read the names, colours and labels of classes from the tables of other tools.

The label of a class is its number in masks, its class index its position in the list of classes.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from matplotlib import colormaps
from PIL import ImageColor

from ..messages import cut
from .pictures import IGNORED

# Files that are read if they lie beside the masks: of this program, labelme, CVAT, CamVid, Kaggle, Roboflow
# and Supervisely.
TABLES = [
    *("classes.txt", "classes.csv", "classes.json", "class_names.txt", "labels.txt", "labelmap.txt"),
    *("label_colors.txt", "class_dict.csv", "_classes.csv", "obj_class_to_machine_color.json"),
]
FORM = "must have a line 'number name red green blue' for each class, or only its name"
# Titles of columns and keys, in lower case; the first ones count.
NAMES = ("name", "classname", "title", "class", "label")
LABELS = ("id", "number", "index", "idx", "value", "pixel value", "trainid", "class", "label")
INDEX = ("", "unnamed: 0")  # the column that pandas adds, which counts if there is no other
LISTS = ("categories", "classes", "class_names", "labels", "names", "id2label", "tools")
NUMBER = r"(?:-?\d+(?:\.\d+)?|#[0-9a-fA-F]{6}(?:[0-9a-fA-F]{2})?)"
BETWEEN = r"[\s,;:=|()\[\]\"']"  # numbers, names and colours
# How many numbers a line has before and after a name: a label, a colour, or both, and what some tools add.
COUNTS = [(0, 0), (1, 0), (0, 1), (3, 0), (0, 3), (4, 0), (1, 3), (5, 0), (1, 4), (7, 0)]


def completed(classes: list[dict[str, Any]]) -> list[Any]:
    """Classes with a label, by default the position, and a colour, by default distinct ones."""
    colours = enumerate(palette(len(classes)))
    return [{"name": "", "colour": colour, "label": n} | c for c, (n, colour) in zip(classes, colours)]


def read_table(path: Path) -> list[dict[str, Any]]:
    """What a file says about classes: ``name`` and, if it gives them, ``label`` and ``colour``.

    It is JSON or YAML, a table whose first line has titles, or a class per line::

        [{"id": 1, "name": "road", "color": "#804080"}]   name,r,g,b         1 road 128 64 128
        {"road": [128, 64, 128], "car": [0, 0, 142]}      road,128,64,128    128 64 128 traffic light
        names: {0: road, 1: car}                                             road
    """
    try:
        text = text_of(path).strip()
        if text.startswith("<"):
            raise ValueError(f"{FORM}, but is XML.")
        if path.suffix.lower() in (".json", ".yaml", ".yml") or text.startswith(("[", "{", "- ")):
            try:
                classes = of_data(yaml.safe_load(text.replace("\t", " ")))
            except yaml.YAMLError as error:
                raise ValueError(f"cannot be read as JSON or YAML: {error}") from None
        else:
            comment = "(^|\\s)#(?![0-9a-fA-F]{6}).*|^//.*|^%.*"
            lines = [re.sub(comment, "", line).strip() for line in text.splitlines()]
            lines = [line for line in lines if line.strip(",;") and not line.startswith("sep=")]
            classes = of_columns(lines) or of_lines(lines)
        if len([c for c in classes if c.get("label") == IGNORED]) > 1:
            classes = [c | {"label": -1} if c["label"] == IGNORED else c for c in classes]
        check(classes)
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path} {' '.join(str(error).split())}") from None
    return classes


def text_of(path: Path) -> str:
    """The text of a file as editors and spreadsheets save it: UTF-8, or UTF-16 with a byte order mark."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"must be UTF-8 text (in a spreadsheet: CSV UTF-8): {error}") from None
    if "\0" in text:
        raise ValueError("must be UTF-8 text, but is another kind of file.")
    return text


def is_ignored(entry: dict[str, Any]) -> bool:
    """Whether the pixels of a class count neither in the loss nor in the metrics."""
    named = re.fullmatch(r"(void--)?_*(unlabell?ed|void|ignored?)_*", entry["name"].lower())
    return bool(named) or entry.get("label", 0) < 0


def check(classes: list[dict[str, Any]]) -> None:
    """Raise ValueError if names or labels are not unique, or only some classes have a label or a colour."""
    if not classes:
        raise ValueError(f"{FORM}, but has no classes.")
    for key, word in (("label", "number"), ("colour", "colour")):
        if (without := [c["name"] for c in classes if key not in c]) and len(without) < len(classes):
            raise ValueError(f"must have a {word} for every class or for none: {cut(without)} has none.")
    for key, word in (("name", "name"), ("label", "number")):
        counted = [str(c.get(key, n)) for n, c in enumerate(classes) if not is_ignored(c)]
        others = {str(c.get(key, n)) for n, c in enumerate(classes) if is_ignored(c)}
        if twice := [e for e in dict.fromkeys(counted) if counted.count(e) > 1 or e in others]:
            raise ValueError(f"has the same {word} twice: {cut(twice)}.")
    shades = {c["name"]: tuple(c["colour"]) for c in classes if "colour" in c and "label" not in c}
    if twice := [name for name, shade in shades.items() if [*shades.values()].count(shade) > 1]:
        raise ValueError(f"has the same colour twice: {cut(twice)}.")
    if wrong := [c["name"] for c in classes if not -1e9 < c.get("label", 0) < 65536]:
        raise ValueError(f"must have numbers from 0 to 65535, unlike {cut(wrong)}.")


def of_lines(lines: Sequence[str]) -> list[dict[str, Any]]:
    """A class per line: its name, with numbers before or after it."""
    rows = [parts_of(line) for line in lines]
    if len({name for _, name, _ in rows}) < len(rows):  # "class 0", "class 1"
        rows = [(before, " ".join([name, *after]), []) for before, name, after in rows]
    found = []
    for line, (before, name, after) in zip(lines, rows):
        if (len(before), len(after)) not in COUNTS or [*map(len, rows[0])][::2] != [len(before), len(after)]:
            raise ValueError(f"{FORM}, in the same form in each line, unlike {line!r}.")
        if not re.search(r"[^\W\d]", name):
            raise ValueError(f"{FORM}, but {line!r} has numbers or a colour in place of a name.")
        found.append(entry_from(name, *before, *after))
    if len(rows) > 1 and all(len(before) == 4 and before[3] == "255" for before, *_ in rows):
        raise ValueError(f"{FORM}: {lines[0]!r} may have a number and a colour, or a colour and its alpha.")
    if found and found[0] == {"name": "__ignore__"}:  # in labelme's labels.txt it has the number -1
        found = [entry | {"label": n - 1} for n, entry in enumerate(found)]
    return found


def parts_of(line: str) -> tuple[list[str], str, list[str]]:
    """The numbers before a name, the name and the numbers after it; a colour such as #804080 is three."""
    line = re.sub(r"^([^:]+:\d+,\d+,\d+):.*", r"\1", line)  # CVAT: parts and actions
    if (word := re.search(r"[,;:\t]\s*(\w+)$", line)) and word[1].lower() in ImageColor.colormap:
        raise ValueError(f"{FORM}, but {line!r} has a colour by its name: write its red, green and blue.")
    first = re.match(rf"(?:{BETWEEN}*{NUMBER}(?={BETWEEN}|$))*{BETWEEN}*", line)
    rest = line[first.end() :] if first else line
    last = re.search(rf"(?!\))(?:{BETWEEN}+{NUMBER})+{BETWEEN}*$|[\s,;:|\"']*$", rest)
    parts = first.group() if first else "", last.group() if last else ""
    before, after = ([*map(str, chain(*map(numbers_in, re.findall(NUMBER, part))))] for part in parts)
    return before, rest[: last.start()] if last else rest, after


def numbers_in(text: str) -> list[Any]:
    """A number, or the red, green and blue of a colour such as #804080."""
    return colour_from(text) if "#" in text else [text]


def of_columns(lines: Sequence[str]) -> list[dict[str, Any]]:
    """A table whose first line has titles; nothing without one that means a name."""
    for separator in "\t;,":
        rows = [*csv.DictReader(lines, delimiter=separator, skipinitialspace=True)]
        titles = {str(title).lower() for row in rows[:1] for title in row}
        if not titles.isdisjoint(NAMES) and len(titles) > 1:
            return [entry_of(row) for row in rows]
    return of_lines(lines[1:]) if lines and lines[0].lower() in (*NAMES, *LISTS) else []


def of_data(data: Any) -> list[dict[str, Any]]:
    """JSON or YAML: a list of names or objects, or names with their labels or colours."""
    if isinstance(data, list):
        return [entry_of(each) if isinstance(each, dict) else entry_from(each) for each in data]
    if not isinstance(data, dict):
        raise ValueError(f"{FORM}, but has only {data!r}.")
    for title, inner in data.items():
        if str(title).lower() in LISTS and isinstance(inner, list | dict):
            return of_data(inner)
    if not all(isinstance(v, list) or is_number(v) or is_number(title) for title, v in data.items()):
        raise ValueError(f"{FORM}, or an object with a number or a colour [red, green, blue] for each name.")
    items = ((inner, title) if is_number(title) else (title, inner) for title, inner in data.items())
    return [entry_from(name, *(v if isinstance(v, list) else [v])) for name, v in items]


def entry_of(fields: dict[Any, Any]) -> dict[str, Any]:
    """A class from the values below titles."""
    known = {str(title).lower(): v for title, v in fields.items() if v not in (None, "")}
    name = next((known[title] for title in NAMES if title in known and not is_number(known[title])), None)
    labels = [title for title in LABELS if is_number(known.get(title))]
    labels = labels or [title for title in INDEX if is_number(known.get(title))]
    if len(labels) > 1:
        raise ValueError(f"has several columns of numbers, {' and '.join(labels)}: keep that of the masks.")
    colour: list[Any] = [known.get(c, known.get(c[0])) for c in ("red", "green", "blue")]
    if None in colour:
        found = (colour_from(v) for title, v in known.items() if re.match("colou?r|rgb|hex", title))
        colour = next(found, [])
    return entry_from(name, *(known[title] for title in labels), *colour)


def entry_from(name: Any, *numbers: Any) -> dict[str, Any]:
    """A class from its name and its label, its colour, or both."""
    if not isinstance(name, str):
        raise ValueError(f"must have a name for each class, unlike {name!r}.")
    entry: dict[str, Any] = {"name": name.strip()}
    if len(numbers) not in (0, 3):
        entry["label"] = whole_number(numbers[0])
        numbers = numbers[1:4]
    if numbers:
        entry["colour"] = colour_from(list(numbers))
    return entry


def is_number(value: Any) -> bool:
    """Whether a value is a number, as a number or as a text."""
    return not isinstance(value, bool) and bool(re.fullmatch(r"-?\d+(\.\d+)?", str(value)))


def whole_number(value: Any) -> int:
    """A number from a table, such as 1, "1" or "1.0"."""
    if not is_number(value) or float(value) % 1:
        raise ValueError(f"must have whole numbers, unlike {value!r}.")
    return int(float(value))


def colour_from(value: Any) -> list[int]:
    """Red, green and blue, 0 to 255, from numbers in a list or a text, or from a colour of CSS."""
    if isinstance(value, str):
        numbers = re.findall(r"\d+", value) if "#" not in value else []
        try:
            value = numbers if len(numbers) > 2 else ImageColor.getrgb(value)
        except ValueError:
            raise ValueError(f"must have colours, but {value!r} is none.") from None
    colour = [whole_number(part) for part in value[:3]] if isinstance(value, list | tuple) else []
    if len(colour) < 3 or not 0 <= min(colour) <= max(colour) <= 255:
        raise ValueError(f"must have colours of three numbers from 0 to 255, unlike {value!r}.")
    return colour


def palette(count: int) -> list[list[int]]:
    """Distinct colours for classes without one; the first is nearly black. For more than 20: that of VOC."""
    if count <= 20:
        shades = [colormaps["tab20"]((number - 1) * 2 % 19)[:3] for number in range(1, count)]
        return [[21, 21, 28], *([round(255 * part) for part in shade] for shade in shades)][:count]
    part = np.arange(count)[:, None] >> np.arange(3)  # every third bit is of the same colour
    return (((part[..., None] >> np.arange(0, 24, 3) & 1) << np.arange(7, -1, -1)).sum(-1)).tolist()
