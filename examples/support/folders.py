"""Pictures and masks: a class for every pixel, read from folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from matplotlib import colormaps
from mlx_unpool_zoo import CAMVID, Model, read_classes
from mlx_unpool_zoo.metrics import class_iou
from mlx_unpool_zoo.pytorch import cut
from PIL import Image, ImageOps
from tqdm import tqdm

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
IGNORED = 255  # the class of pixels that count neither in the loss nor in the metrics
NAMED_IGNORED = ("unlabelled", "unlabeled", "void", "ignore")


@dataclass
class Pictures:
    """Pictures (H, W, 3) with the class of every pixel (H, W), all uint8, and the classes."""

    pairs: list[tuple[np.ndarray, np.ndarray]]
    classes: list[dict[str, Any]]

    def divided(self, every: int = 5) -> tuple[Pictures, Pictures]:
        """The pictures without and with every fifth."""
        if len(self.pairs) < every:
            raise ValueError(
                f"--validation is needed for fewer than {every} pictures, and there are {len(self.pairs)}."
            )
        last = slice(every - 1, None, every)
        rest = [pair for n, pair in enumerate(self.pairs) if n % every != every - 1]
        return Pictures(rest, self.classes), Pictures(self.pairs[last], self.classes)

    def class_weights(self) -> np.ndarray:
        """The weight of each value of a pixel: ``1 / ln(1.02 + share)`` as in ENet's paper, 0 if ignored."""
        counts = sum(np.bincount(truth.ravel(), minlength=256) for _, truth in self.pairs)
        if not counts[:IGNORED].any():
            raise ValueError("every pixel of the training pictures is ignored.")
        weights = 1 / np.log(1.02 + counts / counts[:IGNORED].sum())
        weights[IGNORED] = 0
        return weights.astype(np.float32)

    def batches(self, model: Model, count: int, seed: int) -> Iterator[tuple[mx.array, ...]]:
        """Endless batches of inputs, classes and weights: squares of random pictures, half mirrored.

        Their side is the median of the shorter sides. Smaller pictures are padded with ignored pixels.
        """
        random, multiple = np.random.default_rng(seed), model.about.input.get("multiple_of") or 1
        weights = self.class_weights()
        median = int(np.median([min(truth.shape) for _, truth in self.pairs]))
        side = max(multiple, median // multiple * multiple)
        while True:
            parts = []
            for number in random.choice(len(self.pairs), count, replace=len(self.pairs) < count):
                picture, truth = self.pairs[number]
                below = [(0, max(0, side - size)) for size in truth.shape]
                picture = np.pad(picture, [*below, (0, 0)], "edge")
                truth, flip = np.pad(truth, below, constant_values=IGNORED), random.choice((1, -1))
                y, x = (random.integers(size - side + 1) for size in truth.shape)
                parts.append([a[y : y + side, x : x + side][:, ::flip] for a in (picture, truth)])
            pictures, classes = (np.stack(part) for part in zip(*parts, strict=True))
            numbers = classes.clip(max=len(self.classes) - 1).astype(np.int32)
            yield model.preprocess(pictures), mx.array(numbers), mx.array(weights[classes])

    def metrics_of(self, model: Model) -> dict[str, Any]:
        """Intersection over union of each class, its mean, and the accuracy, over pixels that count."""
        pairs = [(truth, model.predict(picture)) for picture, truth in self.pairs]
        truth, said = (np.concatenate([a.ravel() for a in part]) for part in zip(*pairs))
        truth, said = truth[truth != IGNORED], said[truth != IGNORED]
        if not truth.size:
            raise ValueError("every pixel of the validation pictures is ignored.")
        iou, named = class_iou(truth, said, len(self.classes)), {}
        for entry, value in zip(self.classes, iou, strict=True):
            if entry["name"].lower() not in NAMED_IGNORED and not np.isnan(value):
                named[entry["name"]] = float(value)
        accuracy = float((truth == said).mean())
        return {"miou": float(np.mean([*named.values()])), "pixel_accuracy": accuracy, "iou": named}


def read_folders(folders: Sequence[Path], side: int, classes: Path | list[Any] | None = None) -> Pictures:
    """Read pictures and the masks of the same names, and hold them in memory.

    Args:
        folders: One folder that contains ``images`` and ``masks``, or ``train`` and ``trainannot`` (CamVid),
            or a folder of pictures and one of masks.
        side: Larger pictures are reduced, so that their shorter side has this many pixels.
        classes: The classes, or a file with a line ``number name red green blue`` for each. Default:
            ``classes.txt`` beside the masks, the classes of CamVid for its layout, or the numbers or colours
            that occur in the masks.

    Raises:
        ValueError: If a picture has no mask, a file cannot be read, or a mask does not fit.
    """
    images, masks = folders_of(folders)
    files = files_of(images, masks)
    values: dict[Path, np.ndarray] = {}
    pictures, in_colours = [], None
    for picture_file, mask_file in tqdm(files, "Reading", unit="picture", leave=False, disable=None):
        image, (numbers, colours) = read_image(picture_file), read_mask(mask_file)
        if in_colours not in (None, colours):
            kinds = ("numbers", "colours") if colours else ("colours", "numbers")
            raise ValueError(f"{files[0][1]} has {kinds[0]}, but {mask_file} has {kinds[1]}.")
        if numbers.shape != image.size[::-1]:
            raise ValueError(
                f"{mask_file} must have the size of its picture (turned as its EXIF data says), "
                f"{image.size}, but has {numbers.shape[::-1]}."
            )
        image = image.convert("RGB")
        size = reduced(image.size, side)
        pictures.append(np.array(image if size == image.size else image.resize(size)))
        rows, columns = (
            ((np.arange(new) + 0.5) * old / new).astype(int)
            for new, old in zip(size[::-1], numbers.shape, strict=True)
        )
        values[mask_file], in_colours = numbers[rows][:, columns], colours
    table = masks.parent / "classes.txt"
    if classes is None and masks.name == "trainannot" and not table.exists():
        classes = CAMVID
    if classes or table.exists():
        listed = classes if isinstance(classes, list) else table_of(classes or table)
    else:
        listed = found_in(masks, values.values(), bool(in_colours))
    known = np.array([c["label"] for c in listed])
    if in_colours:
        known = as_numbers(np.array([c["colour"] for c in listed]))
    pairs = [
        (picture, classes_of(path, numbers, known, listed, bool(in_colours)))
        for picture, (path, numbers) in zip(pictures, values.items(), strict=True)
    ]
    return Pictures(pairs, listed)


def folders_of(folders: Sequence[Path], split: str = "train") -> tuple[Path, Path]:
    """The folders of pictures and of masks."""
    if len(folders) > 2:
        raise ValueError(f"pass one folder or two, but got {', '.join(map(str, folders))}.")
    if len(folders) == 1:
        folder = folders[0]
        for names in (("images", "masks"), (split, f"{split}annot")):
            if all((folder / name).is_dir() for name in names):
                return folder / names[0], folder / names[1]
        what = "is no folder" if not folder.is_dir() else "has neither"
        raise ValueError(
            f"{folder} {what}: it must contain images/ and masks/, or {split}/ and {split}annot/."
        )
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} is no folder.")
    return folders[0], folders[1]


def files_of(images: Path, masks: Path) -> list[tuple[Path, Path]]:
    """Each picture with its mask, sorted by name."""
    found: list[dict[str, Path]] = []
    for folder, suffixes in ((images, SUFFIXES), (masks, (".png",))):  # JPEG changes numbers
        found.append({})
        for path in sorted(folder.iterdir()):
            if path.suffix.lower() in suffixes and not path.name.startswith("."):
                other = found[-1].setdefault(path.stem, path)
                if other != path:
                    raise ValueError(f"{other} and {path.name} have the same name: which one counts?")
    pictures, named = found
    for some, others, what in ((pictures, named, "mask"), (named, pictures, "picture")):
        folder = masks if what == "mask" else images
        if alone := [path for stem, path in some.items() if stem not in others]:
            like = f"{alone[0].stem}.png" if what == "mask" else f"{alone[0].stem}.jpg or .png"
            raise ValueError(
                f"{len(alone)} of {len(some)} files have no {what} in {folder}: {alone[0]}, for example, "
                f"needs {like} there."
            )
    if not pictures:
        raise ValueError(f"{images} has no pictures ({', '.join(SUFFIXES)}).")
    return [(path, named[stem]) for stem, path in sorted(pictures.items())]


def read_image(path: Path) -> Image.Image:
    """Read a picture, turned as its EXIF data says.

    Raises:
        ValueError: If it is damaged, is no picture or is very large.
    """
    path.open("rb").close()  # raises an error that gives the reason
    try:
        with Image.open(path) as image:
            return ImageOps.exif_transpose(image)
    except Exception as error:  # formats and damaged files raise many kinds of errors
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path} cannot be read as a picture: {reason}") from None


def read_mask(path: Path) -> tuple[np.ndarray, bool]:
    """The number of each pixel (H, W), and whether it is a colour: red * 65536 + green * 256 + blue."""
    image = read_image(path)
    if image.mode in ("RGB", "RGBA"):
        return as_numbers(np.array(image.convert("RGB"))), True
    values = np.array(image)
    if values.ndim != 2 or values.dtype.kind not in "biu":
        raise ValueError(f"{path} must have numbers or colours (RGB), but its mode is {image.mode}.")
    return values.astype(np.int64), False


def as_numbers(colours: np.ndarray) -> np.ndarray:
    """Each colour (..., 3) as one number."""
    return colours.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])


def reduced(size: tuple[int, int], side: int) -> tuple[int, int]:
    """The width and height of a picture whose shorter side is at most ``side``."""
    factor = max(1, min(size) / side)
    return round(size[0] / factor), round(size[1] / factor)


def table_of(path: Path) -> list[Any]:
    """The classes in a file. Their numbers, names and colours must be different and fit."""
    try:
        classes = read_classes(path)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8: {error}") from None
    for key in ("label", "name", "colour"):
        entries = [str(c[key]) for c in classes]
        if twice := [e for e in dict.fromkeys(entries) if entries.count(e) > 1]:
            raise ValueError(f"{path} has the same {key.replace('label', 'number')} twice: {cut(twice)}.")
    if wrong := [c["name"] for c in classes if max(c["colour"]) > 255]:
        raise ValueError(f"{path} must have colours from 0 to 255, but not those of {cut(wrong)}.")
    return checked(path, classes)


def found_in(masks: Path, values: Any, in_colours: bool) -> list[Any]:
    """The classes that occur in masks."""
    found = sorted(set().union(*(np.unique(each).tolist() for each in values)))
    if not in_colours and found != [0, IGNORED]:  # only 0 and 255 are two classes
        found = [value for value in found if value != IGNORED]
    if not in_colours:
        return checked(masks, [{"name": str(v), "label": v} | colour_of(n) for n, v in enumerate(found)])
    parts = [[v >> 16, v >> 8 & 255, v & 255] for v in found]
    named = zip(found, parts, strict=True)
    return checked(masks, [{"name": f"#{v:06x}", "colour": c, "label": v} for v, c in named])


def colour_of(number: int) -> dict[str, Any]:
    """A colour for a class without one; the first is nearly black."""
    colour = [round(255 * part) for part in colormaps["tab20"]((number - 1) * 2 % 19)[:3]]
    return {"colour": colour if number else [21, 21, 28]}


def checked(path: Path, classes: list[Any]) -> list[Any]:
    """Classes whose number is one that a mask can have."""
    if not 2 <= len(classes) < IGNORED:
        raise ValueError(f"{path} must have 2 to {IGNORED - 1} classes, but has {len(classes)}.")
    return classes


def classes_of(
    path: Path, numbers: np.ndarray, known: np.ndarray, listed: list[Any], in_colours: bool
) -> np.ndarray:
    """The class of each pixel of a mask, IGNORED for those that do not count."""
    order = np.argsort(known)
    place = order[np.searchsorted(known, numbers, sorter=order).clip(max=len(order) - 1)]
    fits = known[place] == numbers
    if unknown := np.setdiff1d(numbers[~fits], [] if in_colours else [IGNORED]).tolist():
        wrong = [f"#{value:06x}" if in_colours else str(value) for value in unknown]
        names = [c["name"] for c in listed]
        raise ValueError(f"{path} has values that are no class: {cut(wrong)}. Classes: {cut(names)}.")
    ignored = np.array([c["name"].lower() in NAMED_IGNORED for c in listed])
    return np.where(fits & ~ignored[place], place, IGNORED).astype(np.uint8)
