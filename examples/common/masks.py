"""Find the mask of each image, read masks, and decide which class each of their values is."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from common.classes import IGNORED, completed, hexadecimal, is_ignored
from common.images import LOSSLESS, SUFFIXES, files_in, read_image

# The mask of each image.


def files_of(images: Path, masks: Path, ending: str | None = None) -> list[tuple[Path, Path]]:
    """Pairs of an image and its mask, sorted by name. Both can be in one folder.

    A mask has the name of its image, or the part of it in which the images differ, with the same text
    before and after it in all masks::

        a.jpg with a_mask.png           b_leftImg8bit.png with b_gtFine_labelIds.png
        a_1.jpg with mask_1.png         21_training.tif with 21_manual1.gif

    Args:
        images: The folder of the images. If it has only subfolders, the images in them.
        masks: The same for the masks.
        ending: How the names of the masks end, needed if several ways fit.
    """
    if images.samefile(masks):
        pictures, named = in_one_folder(images)
    else:
        pictures = names_in(images, SUFFIXES)
        named = names_in(masks, LOSSLESS) or names_in(masks, SUFFIXES)  # read_mask says why JPEG is refused
    if not pictures:
        raise ValueError(f"{images} has no images ({', '.join(SUFFIXES)}).")
    if images.name == "JPEGImages" and not pictures.keys().isdisjoint(named):  # has images for other tasks
        pictures = {name: path for name, path in pictures.items() if name in named}
    ways = ways_of([*pictures], named)
    fitting = {text: way for text, way in ways.items() if all(name in named for name in way)}
    chosen = [text for text in fitting if ending is None or text.endswith(ending.removesuffix(".png"))]
    chosen = [""] if "" in chosen and not ending else chosen
    if fitting and len(chosen) != 1:
        listed = ", ".join(f"'{text}'" for text in sorted(fitting))
        wrong = f", but got '{ending}'" if ending else ""
        raise ValueError(f"the masks in {masks} end in {listed}: pass one as --mask-ending{wrong}.")
    # If no way fits all images, that for most of them shows which name is missing.
    way = ways[chosen[0]] if chosen else max(ways.values(), key=lambda way: sum(n in named for n in way))
    needed = dict(zip(way, pictures.values()))
    if alone := [name for name in needed if name not in named]:
        raise ValueError(
            f"{len(alone)} of {len(pictures)} files have no mask in {masks}: {needed[alone[0]]}, for example,"
            f" needs {Path(alone[0]).name}.png there (or {', '.join(LOSSLESS[1:5])}, not JPEG)."
        )
    others = {name for each in fitting.values() for name in each}
    if alone := [name for name in named if name not in others and name.endswith(chosen[0])]:
        raise ValueError(
            f"{len(alone)} of {len(named)} files have no image in {images}: {named[alone[0]]}, for example, "
            f"needs {Path(alone[0]).name.removesuffix(chosen[0])}.jpg or .png there."
        )
    return [(path, named[name]) for name, path in needed.items()]


def names_in(folder: Path, suffixes: Sequence[str]) -> dict[str, Path]:
    """The files of a folder, or of its subfolders if it has none, by name without suffix."""
    files, found = files_in(folder, suffixes), {}
    for inside in () if files else sorted(folder.iterdir()):
        if inside.is_dir() and inside.name[0] != ".":
            files += files_in(inside, suffixes)
    for path in files:
        name = unicodedata.normalize("NFC", path.relative_to(folder).with_suffix("").as_posix())
        if (other := found.setdefault(name, path)) != path:
            raise ValueError(f"{other} and {path.name} have the same name: remove one.")
    return dict(sorted(found.items()))


def in_one_folder(folder: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """The images and the masks of one folder: by format, or ``a_mask.png`` is the mask of ``a.png``."""
    lossy = names_in(folder, [suffix for suffix in SUFFIXES if suffix not in LOSSLESS])
    named = names_in(folder, LOSSLESS)
    if lossy:
        return lossy, named
    first = next(iter(named), "")
    for ending in (name[len(first) :] for name in named if name.startswith(first)):
        pictures = {name: path for name, path in named.items() if ending and not name.endswith(ending)}
        if pictures and {name + ending for name in pictures} == named.keys() - pictures.keys():
            return pictures, {name: path for name, path in named.items() if name not in pictures}
    raise ValueError(f"{folder} must have images and masks with names such as a.png and a_mask.png.")


def ways_of(images: Sequence[str], masks: Iterable[str]) -> dict[str, list[str]]:
    """Possible names of the masks of images, by the ending (or "start*ending") of these names."""
    ways = {"": [*images]}
    words = [re.findall(r"\d+|[^\W\d_]+|[\W_]", name) for name in images]
    same = [len({*each}) == 1 for each in zip(*words)]
    last = [len({*each}) == 1 for each in zip(*(row[::-1] for row in words))]
    after = min([*last, False].index(False), len(last) - 1)
    before = min([*same, False].index(False), len(same) - 1 - after)
    parts = ["".join(row[before : len(row) - after]) for row in words]
    start = "".join(words[0][:before])
    for part in {parts[0], parts[-1]}:
        # Not within a number, nor after a letter.
        edges = (r"(?<!\d)" if part[0].isdigit() else r"(?<![^\W\d_])") + re.escape(part)
        edges += r"(?!\d)" if part[-1].isdigit() else ""
        for name in masks:
            for found in re.finditer(edges, name):
                first, ending = name[: found.start()], name[found.end() :]
                text = ending if first == start else f"{first}*{ending}"
                ways.setdefault(text, [f"{first}{part}{ending}" for part in parts])
    return ways


# Values of masks.


@dataclass
class Seen:
    """The values in all masks for training: as numbers, and as colours where they have some."""

    numbers: set[int] = field(default_factory=set)
    colours: set[int] = field(default_factory=set)
    shades: dict[int, set[int]] = field(default_factory=dict)  # the colours of each number of palettes
    numbered: Path | None = None  # the first mask that has numbers and no colours
    coloured: Path | None = None  # the first mask with colours other than grey
    grey: bool = False  # a mask has red, green and blue, but they are equal
    beside: Path | None = None  # the first mask that has only 0 and 255
    together: bool = False  # whether a mask has 255 and a number other than 0

    def add(self, path: Path) -> None:
        """Add the values of a mask."""
        values, shades = load(path)
        if values.ndim == 3:
            colours = np.unique(as_numbers(values))
            self.colours.update(colours.tolist())
            if (colours == (colours & 255) * 0x010101).all():
                self.numbers.update((colours & 255).tolist())
                self.grey = True
            else:
                self.coloured = self.coloured or path
            return
        numbers = np.unique(values).tolist()
        self.numbers.update(numbers)
        if IGNORED in numbers:
            self.together = self.together or not {*numbers} <= {0, IGNORED}
            self.beside = self.beside or (path if numbers == [0, IGNORED] else None)
        if shades is None:
            self.numbered = self.numbered or path
        for number in numbers if shades is not None else ():
            colour = as_numbers(shades[number]).item()
            self.colours.add(colour)
            self.shades.setdefault(number, set()).add(colour)


def load(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """The numbers (H, W) or colours (H, W, 3) of a mask, and the colours (256, 3) of a palette.

    Raises:
        ValueError: If it cannot be read, has several pages, or its format changes numbers.
    """
    mask = read_image(path)
    how = mask.info["format"], str(mask.info.get("compression")).lower()
    lossless = how[0] == "WEBP" and b"VP8L" in path.read_bytes()[:100]
    if (how[0] in ("JPEG", "MPO", "JPEG2000", "HEIF", "AVIF", "WEBP") or "jpeg" in how[1]) and not lossless:
        raise ValueError(f"{path} must be PNG: {how[0]} with loss changes the numbers of classes at edges.")
    if mask.info["pages"] > 1:
        raise ValueError(f"{path} must have one page, but has {mask.info['pages']}.")
    if "A" in mask.getbands():
        check_transparency(mask, path)
        mask, shades = (mask.getchannel(0), mask.getpalette()) if mask.mode != "RGBA" else (mask, None)
    else:
        shades = mask.getpalette() if mask.mode == "P" else None
    if mask.mode in ("RGB", "RGBA"):
        if "16" in mask.info["raw"]:
            raise ValueError(f"{path} must have colours of 8 bits, but they have 16.")
        return np.array(mask.convert("RGB")), None
    values = np.array(mask)
    if values.dtype.kind == "f" and (values == values.round()).all():
        values = values.astype(np.int32)
    if values.ndim != 2 or values.dtype.kind not in "biu":
        raise ValueError(f"{path} must have whole numbers or colours (RGB), but its mode is {mask.mode}.")
    # Pillow scales the numbers of grey images of 2 and 4 bits to 255.
    values = values // {"L;2": 85, "L;4": 17}.get(mask.info["raw"], 1)
    if shades is None:
        return values, None
    shades = np.resize([*shades, *[0] * 768], (256, 3)).astype(np.uint8)
    if how[0] == "GIF" and (shades[values] == shades[values][..., :1]).all():
        return shades[values][..., 0], None  # GIF stores grey images with a palette, in any order
    return values, shades


def check_transparency(mask: Any, path: Path) -> None:
    """Raise ValueError if transparency is all that distinguishes some pixels of a mask."""
    *channels, alpha = (np.array(channel).astype(np.int64) for channel in mask.split())
    clear, solid = (
        {*np.unique(sum(c << 8 * n for n, c in enumerate(channels))[w]).tolist()}
        for w in (alpha == 0, alpha > 0)
    )
    if len(np.unique(alpha)) > 1 and (clear & solid or ((alpha > 0) & (alpha < 255)).any()):
        raise ValueError(f"{path} must have no transparent pixels of the colour of others: remove its alpha.")


def read_mask(path: Path, in_colours: bool) -> np.ndarray:
    """The numbers of a mask (H, W), or its colours as numbers."""
    values, shades = load(path)
    if in_colours and values.ndim == 2:
        if shades is None:
            raise ValueError(f"{path} has numbers, but the training masks have colours.")
        values = shades[values]
    if in_colours:
        return as_numbers(values)
    if values.ndim == 3 and (values != values[..., :1]).any():
        raise ValueError(f"{path} has colours, but the training masks have numbers.")
    return values[..., 0] if values.ndim == 3 else values


def as_numbers(colours: Any) -> np.ndarray:
    """Each colour (..., 3) as one number."""
    return np.asarray(colours, np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32)


@dataclass
class Meaning:
    """What the values of masks mean, decided once from all training masks.

    ``classes`` have a ``label``, their number in masks, unless the masks have colours.
    """

    classes: list[dict[str, Any]]
    ignored: set[int]  # values without a class, numbers or colours
    in_colours: bool = False
    unlisted: bool = False  # whether masks have 255, which is ignored, and no table says so
    doubtful: Path | None = None  # a mask that has only 0 and 255, if no mask has 255 and other numbers

    def indices(self) -> dict[int, int]:
        """The class index, or ``IGNORED``, of each value."""
        known = dict.fromkeys(self.ignored, IGNORED)
        for number, entry in enumerate(self.classes):
            value = as_numbers(entry["colour"]).item() if self.in_colours else entry["label"]
            number = IGNORED if is_ignored(entry) else number
            if self.in_colours and known.setdefault(value, number) != number:
                raise ValueError(f"two classes have the colour of {entry['name']}, which masks contain.")
            known[value] = number
        return known


def meaning_of(seen: Seen, table: list[dict[str, Any]] | None) -> Meaning:
    """Decide what the values of masks mean, from a table or, without one, from the values.

    255 means ignored, except if a table lists it, if a table has two classes and masks only have 0 and 255,
    if numbers exceed it or, without a table, if they are evenly spaced from 0 to 255.
    """
    if seen.coloured and seen.numbered:
        raise ValueError(f"{seen.numbered} has numbers, but {seen.coloured} has colours.")
    binary = IGNORED in seen.numbers <= {0, IGNORED}
    given = [as_numbers(entry["colour"]).item() for entry in table or [] if "colour" in entry]
    in_colours, clear = bool(seen.coloured), table is not None and "label" in table[0]
    if not in_colours and not seen.numbered and not (binary and len(table or []) < 3):
        mixed = [number for number, colours in seen.shades.items() if len(colours) > 1]
        fits = bool(given) and seen.colours <= {*given}
        in_colours = fits and (seen.grey or not clear)
        if mixed and not fits and not clear:
            raise ValueError(
                f"the palettes of the masks differ: number {mixed[0]} has several colours. Pass --classes "
                "with the number, or with the colour, of each class."
            )
    shown = [(number, colour) for number, colours in seen.shades.items() for colour in colours]
    places = {colour: place for place, colour in enumerate(given)}
    other = [number for number, colour in shown if number != IGNORED and places.get(colour, number) != number]
    if other and not in_colours and not clear:
        raise ValueError(
            f"number {other[0]} has another colour in the palettes of the masks than at this position of the "
            "table. Give the table numbers, or only names."
        )
    if in_colours and not seen.coloured and all(colour % 0x010101 == 0 for colour in given):  # Supervisely
        return numbers_mean(seen, [entry | {"label": entry["colour"][0]} for entry in table or []])
    return (colours_mean if in_colours else numbers_mean)(seen, table)


def colours_mean(seen: Seen, table: list[dict[str, Any]] | None) -> Meaning:
    if table is None:
        found = [[value >> 16, value >> 8 & 255, value & 255] for value in sorted(seen.colours)]
        return Meaning([{"name": hexadecimal(c), "colour": c} for c in found], set(), True)
    if "colour" not in table[0]:
        raise ValueError("the masks have colours, but the table of classes has none.")
    ignored = {as_numbers(entry["colour"]).item() for entry in table if is_no_class(entry)}
    classes = [{"name": c["name"], "colour": c["colour"]} for c in table if not is_no_class(c)]
    return Meaning(classes, ignored, True)


def numbers_mean(seen: Seen, table: list[dict[str, Any]] | None) -> Meaning:
    numbers = sorted(seen.numbers)
    if table is None:
        steps = np.diff(numbers) * (len(numbers) - 1)
        levels = numbers[:1] + numbers[-1:] == [0, IGNORED] and (abs(steps - IGNORED) < len(numbers)).all()
        kept = [v for v in numbers if v != IGNORED or levels or numbers[-1] > IGNORED]
        table = [{"name": str(v), "label": v} for v in kept]
    entries = completed(table)
    for entry in entries if table and "label" not in table[0] else ():
        if is_ignored(entry) and IGNORED in numbers and entry["label"] not in {-1, *numbers}:
            entry["label"] = IGNORED  # the last of VOC's 22 names
    by_label = sorted(entries, key=lambda entry: entry["label"])
    if len(entries) == 2 and IGNORED in numbers and {*numbers} <= {0, IGNORED} and by_label[0]["label"] >= 0:
        by_label[1]["label"] = IGNORED
    classes = [entry for entry in entries if not is_no_class(entry)]
    labels, ignored = ({e["label"] for e in entries if is_no_class(e) == said} for said in (False, True))
    if labels and max(labels) > 65535:
        raise ValueError(f"masks must have numbers from 0 to 65535, but have {max(labels)}.")
    unlisted = IGNORED in numbers and not (IGNORED in labels or ignored) and max(*numbers, *labels) <= IGNORED
    if IGNORED not in labels and max([*labels, 0]) <= IGNORED:
        ignored.add(IGNORED)
    alone = not seen.together and not {*numbers} <= {0, IGNORED}
    return Meaning(classes, ignored, unlisted=unlisted, doubtful=seen.beside if alone else None)


def is_no_class(entry: dict[str, Any]) -> bool:
    """Whether an entry of a table only says which number is ignored: -1 or 255."""
    return entry.get("label", 0) < 0 or (entry.get("label") == IGNORED and is_ignored(entry))
