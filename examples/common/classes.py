"""Read the names, colours and labels of classes from the tables of other tools.

The label of a class is its number in masks, its class index its position in the list of classes.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import yaml
from matplotlib import colormaps
from mlx_unpool_zoo.messages import cut
from PIL import ImageColor

IGNORED = 255  # the class index of pixels that count neither in the loss nor in the metrics
# Files that are read if they lie beside the masks: of this program, labelme, CVAT, CamVid, Kaggle, Roboflow
# and Supervisely.
TABLES = ("classes.txt", "classes.csv", "classes.json", "class_names.txt", "labels.txt", "labelmap.txt")
TABLES += ("label_colors.txt", "class_dict.csv", "_classes.csv", "obj_class_to_machine_color.json")
FORM = "must have a line 'number name red green blue' for each class, or only its name"
# Titles of columns, in lower case and without spaces; the first ones count.
NAMES = ("name", "names", "classname", "labelname", "title", "class", "classes", "label", "labels")
NAMES += ("category",)
LABELS = ("id", "number", "no", "index", "idx", "value", "pixelvalue", "classid", "labelid", "trainid")
LABELS += ("class", "label")
NUMBER = r"(?:-?\d+(?:\.\d+)?|#[0-9a-fA-F]{6}(?:[0-9a-fA-F]{2})?)"
BETWEEN = r"[\s,;:=|()\[\]\"']"
# How many numbers a line has before and after a name: a label, a colour, or both (with alpha in files of
# FreeSurfer and QGIS, and with three further numbers in those of ITK-SNAP).
COUNTS = [(0, 0), (1, 0), (0, 1), (3, 0), (0, 3), (4, 0), (1, 3), (5, 0), (1, 4), (7, 0)]


def table_of(path: Path) -> list[Any]:
    """Read the classes in a file: a dict with ``name``, ``colour`` and ``label`` for each.

    Labels that are not in the file are the positions, and colours that are not in it are distinct.

    Raises:
        ValueError: If the file cannot be read, or two classes have the same name or label.
    """
    return completed(read_table(path))


def completed(classes: list[dict[str, Any]]) -> list[Any]:
    """Classes with a label and a colour."""
    colours = enumerate(palette(len(classes)))
    return [{"name": "", "colour": colour, "label": n} | c for c, (n, colour) in zip(classes, colours)]


def read_table(path: Path) -> list[dict[str, Any]]:
    """What a file says about classes: ``name`` and, if it gives them, ``label`` and ``colour``.

    The content, not the name of the file, decides how it is read. Lines that start with ``#`` are ignored.
    """
    try:
        text = text_of(path).strip()
        if path.suffix.lower() in (".yaml", ".yml") or text.startswith(("[", "{")):
            classes = of_data(data_of(text))
        elif text.startswith("<"):
            classes = of_xml(text)
        else:
            lines = [line.strip() for line in re.split(r"\r\n?|\n", text)]
            comment = r"(^|\s)#(?![0-9a-fA-F]{6}).*|^//.*|^%.*|^sep=.$|^[-*] +"  # also a bullet; sep: Excel
            lines = [re.sub(comment, "", line).strip() for line in lines]
            lines = [line for line in lines if line.strip(",;")]
            classes = of_columns(lines) or of_lines(lines)
        if len([c for c in classes if c.get("label") == 255]) > 1:
            classes = [c | {"label": -1} if c["label"] == 255 else c for c in classes]
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
    if wrong := [c["name"] for c in classes if not -1e9 < c.get("label", 0) < 65536]:
        raise ValueError(f"must have numbers from 0 to 65535, unlike {cut(wrong)}.")


# Readers of one form each.


def of_lines(lines: Sequence[str]) -> list[dict[str, Any]]:
    """A class per line: its name, with numbers before or after it.

    ::

        1 road 128 64 128      road               128 64 128<TAB>road      road:128,64,128::
        2 traffic light 9 9 9  traffic light      9 9 9<TAB>traffic light  traffic light:9,9,9:parts:
    """
    rows = [parts_of(line) for line in lines]
    names = {name for _, name, _, _ in rows}
    if len(names) < len(rows) or any(before or len(after) != 1 for before, _, after, _ in rows):
        # Otherwise every name has a label; here a number after a space is a part of the name: "class 1".
        rows = [(before, whole or name, [] if whole else after, "") for before, name, after, whole in rows]
    found = []
    for line, (before, name, after, _) in zip(lines, rows):
        numbers, counts = [*before, *after], (len(before), len(after))
        if counts not in COUNTS or counts != (len(rows[0][0]), len(rows[0][2])):
            raise ValueError(f"{FORM}, in the same form in each line, unlike {line!r}.")
        colour_like = rf"(?:{NUMBER}{BETWEEN}+){{2}}{NUMBER}|#[0-9a-fA-F]{{6}}\b"
        if not re.search(r"[^\W\d]", name) or re.search(colour_like, name):
            raise ValueError(f"{FORM}, but {line!r} has numbers or a colour in place of a name.")
        entry: dict[str, Any] = {"name": name}
        if len(numbers) not in (0, 3):
            entry["label"] = whole_number(numbers.pop(0))
        if numbers:
            entry["colour"] = colour_from(numbers)
        found.append(entry)
    if len(rows) > 1 and all(len(before) == 4 and before[3] == "255" for before, *_ in rows):
        raise ValueError(f"{FORM}: {lines[0]!r} may have a number and a colour, or a colour and its alpha.")
    if found and found[0] == {"name": "__ignore__"}:  # in labelme's labels.txt it has the number -1
        found = [entry | {"label": n - 1} for n, entry in enumerate(found)]
    return found


def parts_of(line: str) -> tuple[list[str], str, list[str], str]:
    """The numbers before a name, the name and the numbers after it; also the name with one after a space."""
    line = re.sub(r"^([^:]+:\d+,\d+,\d+):.*", r"\1", line)  # CVAT: parts and actions
    colour = re.search(r"[,;:\t]\s*(\w+)$", line)
    if colour and colour[1].lower() in ImageColor.colormap:  # road,red
        line = f"{line[: colour.start()]} {hexadecimal(ImageColor.getrgb(colour[1]))}"
    first = re.match(rf"{BETWEEN}*(?:{NUMBER}(?:{BETWEEN}+|$))*", line)
    rest = line[first.end() :] if first else line
    last = re.search(rf"(?:(?:^|{BETWEEN}+){NUMBER})*{BETWEEN}*$", rest)
    numbers: list[list[str]] = []
    for text in (first, last):
        tokens = re.findall(NUMBER, text.group() if text else "")
        parts = [map(str, colour_from(token)) if "#" in token else [token] for token in tokens]
        numbers.append([*chain.from_iterable(parts)])
    spaced = last and len(numbers[1]) == 1 and re.fullmatch(r" +\d+", last.group())
    name = rest[: last.start()] if last else rest
    return numbers[0], name.strip(" ,;\"'\t"), numbers[1], rest if spaced else ""


def of_columns(lines: Sequence[str]) -> list[dict[str, Any]]:
    """A table whose first line has titles; nothing without one that means a name.

    ::

        name,r,g,b             Pixel Value;Class          id<TAB>name<TAB>color
        road,128,64,128        1;road                     1<TAB>road<TAB>#804080
    """
    for separator in "\t;, ":
        titles, *rows = csv.reader(lines, delimiter=separator, skipinitialspace=True) if lines else [[]]
        fitting = all(len(row) == len(titles) for row in rows) and not any(map(is_whole, titles))
        if fitting and any(plain(title) in NAMES for title in titles):
            return [entry_of(dict(zip(titles, row))) for row in rows] if titles[1:] else of_lines(lines[1:])
    return []


def data_of(text: str) -> Any:
    """The content of a file of JSON or YAML."""
    try:
        return json.loads(text)
    except ValueError:
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(f"cannot be read as JSON or YAML: {error}") from None


def of_data(data: Any) -> list[dict[str, Any]]:
    """JSON or YAML: a list of names or objects, or names with their labels or colours.

    ::

        [{"id": 1, "name": "road", "color": "#804080"}]     CVAT; as "categories": COCO and Label Studio
        {"road": [128, 64, 128], "car": [0, 0, 142]}        Supervisely
        names: {0: road, 1: car}                            YOLO; as "id2label": Hugging Face
    """
    if isinstance(data, list):
        return [entry_of(each) if isinstance(each, dict) else entry_from(each) for each in data]
    if not isinstance(data, dict):
        raise ValueError(f"{FORM}, but has only {data!r}.")
    for title, inner in data.items():
        parts = inner if isinstance(inner, list) else [*inner.values()] if isinstance(inner, dict) else []
        titles = r"categories|class(es|_names)|labels?|names|id2label|tools"
        if re.fullmatch(titles, str(title).lower()) and any(isinstance(part, str | dict) for part in parts):
            return of_data(inner)
    found = []
    for title, inner in data.items():
        if isinstance(inner, dict):
            found.append(entry_of({"id" if is_whole(title) else "name": title} | inner))
        else:
            found.append(entry_from(title, inner))
    return found


def of_xml(text: str) -> list[dict[str, Any]]:
    """The labels of Label Studio: ``<Label value="road" background="#804080"/>``."""
    try:
        labels = [*ElementTree.fromstring(text).iter("Label")]
    except ElementTree.ParseError as error:
        raise ValueError(f"cannot be read as XML: {error}") from None
    return [entry_of({"name": each.get("value"), "color": each.get("background")}) for each in labels]


def entry_of(fields: dict[str, Any]) -> dict[str, Any]:
    """A class from the values below titles."""
    known = {plain(title): v for title, v in fields.items() if v not in (None, "")}
    texts = [title for title in NAMES if isinstance(known.get(title), str)]
    name = next((title for title in texts if title == "name" or not is_whole(known[title])), "")
    labels = [title for title in ("", *LABELS) if title != name and is_whole(known.get(title))]
    labels = labels[1:] if labels[:1] == [""] and labels[1:] else labels  # the column that pandas adds
    if len(labels) > 1:
        raise ValueError(f"has several columns of numbers, {' and '.join(labels)}: keep that of the masks.")
    if not name:
        raise ValueError(f"must have a name for each class, unlike {fields}.")
    entry: dict[str, Any] = {"name": known[name].strip()}
    if labels:
        entry["label"] = whole_number(known[labels[0]])
    parts = [known.get(c, known.get(c[0])) for c in ("red", "green", "blue")]
    colours = [v for title, v in known.items() if re.match("colou?r|rgb|hex", title)]
    if None not in parts or colours:
        entry["colour"] = colour_from(colours[0] if None in parts else parts)
    return entry


def entry_from(*parts: Any) -> dict[str, Any]:
    """A class from its name and, in either order, its label or colour."""
    entry: dict[str, Any] = {}
    for part in parts:
        if is_whole(part):
            entry["label"] = whole_number(part)
        elif isinstance(part, str) and "name" not in entry and not re.search(r"\d+,|#\w{6}", part):
            entry["name"] = part.strip()
        else:
            entry["colour"] = colour_from(part)
    if not entry.get("name") or len(entry) < len(parts):
        raise ValueError(f"must have a name for each class, unlike {', '.join(map(repr, parts))}.")
    return entry


# Parts of them.


def plain(title: Any) -> str:
    """A title in lower case, without spaces and punctuation."""
    return re.sub(r"[\W_]", "", str(title).lower())


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number, as a number or as a text."""
    return not isinstance(value, bool) and bool(re.fullmatch(r"\s*-?\d+(\.0*)?\s*", str(value)))


def whole_number(value: Any) -> int:
    """A number from a table, such as 1, "1" or "1.0"."""
    if not is_whole(value):
        raise ValueError(f"must have whole numbers, unlike {value!r}.")
    return int(float(value))


def colour_from(value: Any) -> list[int]:
    """Red, green and blue, 0 to 255, from numbers in a list or a text, or from a colour of CSS."""
    value = [*value.values()] if isinstance(value, dict) else value
    if isinstance(value, str):
        value = f"#{value}" if re.fullmatch(r"[0-9a-fA-F]{6}", value) else value.strip()
        form = rf"(?:rgba?)?{BETWEEN}*({NUMBER}(?:{BETWEEN}+{NUMBER}){{2,3}}){BETWEEN}*"
        numbers = re.fullmatch(form, value)
        try:
            value = re.findall(NUMBER, numbers[1]) if numbers else ImageColor.getrgb(value)
        except ValueError:
            raise ValueError(f"must have colours, but {value!r} is none.") from None
    colour = [whole_number(part) for part in value[:3]] if isinstance(value, list | tuple) else []
    if len(colour) < 3 or not 0 <= min(colour) <= max(colour) <= 255:
        raise ValueError(f"must have colours of three numbers from 0 to 255, unlike {value!r}.")
    return colour


def hexadecimal(colour: Sequence[int]) -> str:
    """A colour as #rrggbb."""
    return "#{:02x}{:02x}{:02x}".format(*colour)


def palette(count: int) -> list[list[int]]:
    """Distinct colours for classes without one; the first is nearly black. For more than 20: that of VOC."""
    if count <= 20:
        shades = [colormaps["tab20"]((number - 1) * 2 % 19)[:3] for number in range(1, count)]
        return [[21, 21, 28], *([round(255 * part) for part in shade] for shade in shades)][:count]
    part = np.arange(count)[:, None] >> np.arange(3)  # every third bit is of the same colour
    return (((part[..., None] >> np.arange(0, 24, 3) & 1) << np.arange(7, -1, -1)).sum(-1)).tolist()
