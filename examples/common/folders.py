"""Images and masks: a class for every pixel, read from folders."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from matplotlib import colormaps
from mlx_unpool_zoo import CAMVID, Model, read_classes
from mlx_unpool_zoo.metrics import boundary_f_score, confusion_matrix, iou
from mlx_unpool_zoo.pictures import array_of, reduced
from mlx_unpool_zoo.pytorch import cut
from PIL import Image, ImageOps
from tqdm import tqdm

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
IGNORED = 255  # the class of pixels that count neither in the loss nor in the metrics
NAMED_IGNORED = ("unlabelled", "unlabeled", "void", "ignore", "ignored")
TABLES = ("classes.txt", "class_names.txt", "labelmap.txt")  # of this program, labelme and CVAT


@dataclass
class Pictures:
    """Images (H, W, 3) with the class of every pixel (H, W), all uint8, and the classes.

    ``white_level``: the value that became 255 in images of more than 8 bits.
    """

    pairs: list[tuple[np.ndarray, np.ndarray]]
    classes: list[dict[str, Any]]
    white_level: float | None = None

    def divided(self, every: int = 5) -> tuple[Pictures, Pictures]:
        """The images without and with every fifth."""
        if len(self.pairs) < every:
            raise ValueError(
                f"--validation is needed for fewer than {every} images, and there are {len(self.pairs)}."
            )
        last = slice(every - 1, None, every)
        rest = [pair for n, pair in enumerate(self.pairs) if n % every != every - 1]
        return replace(self, pairs=rest), replace(self, pairs=self.pairs[last])

    def absent_classes(self) -> list[str]:
        """The names of the classes that no pixel has, except those that are ignored."""
        seen = np.unique([number for _, truth in self.pairs for number in np.unique(truth)])
        names = [entry["name"] for number, entry in enumerate(self.classes) if number not in seen]
        return [name for name in names if name.lower() not in NAMED_IGNORED]

    def summary(self) -> str:
        """The number of images and a checksum of them and their masks."""
        sum_of = functools.reduce(lambda crc, a: zlib.crc32(a.tobytes(), crc), chain(*self.pairs), 0)
        return f"{len(self.pairs)} images with the checksum {sum_of:08x}"

    def class_weights(self) -> np.ndarray:
        """The weight of each value of a pixel: ``1 / ln(1.02 + share)`` as in ENet's paper, 0 if ignored."""
        counts = sum(np.bincount(truth.ravel(), minlength=256) for _, truth in self.pairs)
        if not counts[:IGNORED].any():
            raise ValueError("every pixel of the training images is ignored.")
        weights = 1 / np.log(1.02 + counts / counts[:IGNORED].sum())
        weights[IGNORED] = 0
        return weights.astype(np.float32)

    def batches(
        self, model: Model, count: int, seed: int, crop: int | None = None
    ) -> Iterator[tuple[mx.array, ...]]:
        """Endless batches of inputs, classes and weights: squares of random images, half mirrored.

        Their side is ``crop``, by default the median of the shorter sides. Smaller images are padded with
        ignored pixels.
        """
        random, multiple = np.random.default_rng(seed), model.about.input.get("multiple_of") or 1
        weights = self.class_weights()
        median = int(np.median([min(truth.shape) for _, truth in self.pairs]))
        side = crop or max(multiple, median // multiple * multiple)
        if side % multiple:
            raise ValueError(f"--crop must be a multiple of {multiple} for this model, but got {crop}.")
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
        """IoU of each class, its mean, boundary F-score (1 pixel), accuracy and confusion matrix.

        They are computed over the pixels of all images that count. The rows of the confusion matrix are the
        true classes.
        """
        training = model.training
        model.eval()  # once, because predict copies a model in training mode
        truths, found = zip(*((truth, model.predict(picture)) for picture, truth in self.pairs))
        model.train(training)
        counts = sum(confusion_matrix(*pair, len(self.classes)) for pair in zip(truths, found))
        if not counts.any():
            raise ValueError("every pixel of the validation or test images is ignored.")
        names = [entry["name"] for entry in self.classes]
        named = {
            name: float(value)
            for name, value in zip(names, iou(counts), strict=True)
            if name.lower() not in NAMED_IGNORED and not np.isnan(value)
        }
        return {
            "miou": float(np.mean([*named.values()])),
            "boundary_f_score": boundary_f_score(stacked(truths), stacked(found)),
            "pixel_accuracy": float(np.trace(counts) / counts.sum()),
            "iou": named,
            "classes": names,
            "confusion": counts.tolist(),
        }


def stacked(planes: Sequence[np.ndarray]) -> np.ndarray:
    """Planes (H, W) of any sizes as one array, padded with ignored pixels."""
    size = np.max([plane.shape for plane in planes], axis=0)
    padded = [np.pad(p, [(0, a - b) for a, b in zip(size, p.shape)], constant_values=IGNORED) for p in planes]
    return np.stack(padded)


def read_folders(
    folders: Sequence[Path], side: int, classes: Path | None = None, like: Pictures | None = None
) -> Pictures:
    """Read images and the masks of the same names, and hold them in memory.

    Args:
        folders: A folder in one of the layouts of :func:`folders_of`, or the folders of images and masks.
        side: Larger images are reduced, so that their shorter side has this many pixels.
        classes: A file with a line ``number name red green blue`` for each class, or with the name of
            labelme's or CVAT's file in :data:`TABLES`. Default: such a file beside the masks' folder, the
            classes of CamVid for its layout, or the numbers or colours that occur in the masks.
        like: Images of another split, whose classes and white level are used.

    Raises:
        ValueError: If an image has no mask, a file cannot be read, or a mask does not fit.
    """
    images, masks = folders_of(folders)
    files = files_of(images, masks)
    white = like.white_level if like else white_level_of(files)
    table = classes or next((file for name in TABLES if (file := masks.parent / name).exists()), None)
    in_colours = read_mask(files[0][1])[1]
    if like:
        listed = like.classes
    elif table or masks.name == "trainannot":
        listed = table_of(table) if table else CAMVID
    else:
        listed = found_in(files, in_colours)
    if not 2 <= len(listed) < IGNORED:
        raise ValueError(f"{table or masks} must have 2 to {IGNORED - 1} classes, but has {len(listed)}.")
    known = {} if in_colours else {IGNORED: IGNORED}
    for number, entry in enumerate(listed):
        value = as_numbers(np.array(entry["colour"])).item() if in_colours else entry["label"]
        known[value] = IGNORED if entry["name"].lower() in NAMED_IGNORED else number
    pairs = []
    for picture_file, mask_file in tqdm(files, "Reading", unit="image", leave=False, disable=None):
        picture, (mask, colours) = read_picture(picture_file, white), read_mask(mask_file)
        if colours != in_colours:
            kinds = ("numbers", "colours") if colours else ("colours", "numbers")
            raise ValueError(f"{files[0][1]} has {kinds[0]}, but {mask_file} has {kinds[1]}.")
        if mask.shape != picture.shape[:2]:
            raise ValueError(
                f"{mask_file} must have the size of its image (rotated as in its EXIF data), "
                f"{picture.shape[1::-1]}, but has {mask.shape[::-1]}."
            )
        picture = reduced(picture, side)
        numbers, nearest = Image.fromarray(mask.astype(np.int32)), Image.Resampling.NEAREST
        mask = np.array(numbers.resize(picture.shape[1::-1], nearest))
        values, places = np.unique(mask, return_inverse=True)
        if unknown := [value for value in values.tolist() if value not in known]:
            wrong = [f"#{value:06x}" if in_colours else str(value) for value in unknown]
            names = cut([entry["name"] for entry in listed])
            raise ValueError(f"{mask_file} has values without a class: {cut(wrong)}. Classes: {names}.")
        truth = np.array([known[value] for value in values.tolist()], np.uint8)
        pairs.append((picture, truth[places].reshape(mask.shape)))
    return Pictures(pairs, listed, white)


def folders_of(folders: Sequence[Path], split: str = "train") -> tuple[Path, Path]:
    """The folders of pictures and of masks."""
    if len(folders) > 2:
        raise ValueError(f"pass one folder or two, but got {', '.join(map(str, folders))}.")
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder.")
    if len(folders) == 2:
        return folders[0], folders[1]
    voc = [("JPEGImages", f"SegmentationClass{end}") for end in ("PNG", "")]  # labelme; CVAT, VOC
    for images, masks in (("images", "masks"), (split, f"{split}annot"), *voc):
        if (folder / images).is_dir() and (folder / masks).is_dir():
            return folder / images, folder / masks
    raise ValueError(
        f"{folder} must contain images/ and masks/, {split}/ and {split}annot/, or JPEGImages/ and "
        "SegmentationClass/."
    )


def files_of(images: Path, masks: Path) -> list[tuple[Path, Path]]:
    """Pairs of an image and its mask, sorted by name."""
    found: list[dict[str, Path]] = []
    for folder, suffixes in ((images, SUFFIXES), (masks, (".png",))):  # JPEG changes numbers
        found.append({})
        for path in files_in(folder, suffixes):
            other = found[-1].setdefault(path.stem, path)
            if other != path:
                raise ValueError(f"{other} and {path.name} have the same name: remove one.")
    pictures, named = found
    if images.name == "JPEGImages":  # also has images for other tasks
        pictures = {stem: path for stem, path in pictures.items() if stem in named}
    for some, others, what in ((pictures, named, "mask"), (named, pictures, "image")):
        folder = masks if what == "mask" else images
        if alone := [path for stem, path in some.items() if stem not in others]:
            like = f"{alone[0].stem}.png" if what == "mask" else f"{alone[0].stem}.jpg or .png"
            raise ValueError(
                f"{len(alone)} of {len(some)} files have no {what} in {folder}: {alone[0]}, for example, "
                f"needs {like} there."
            )
    if not pictures:
        raise ValueError(f"{images} has no images ({', '.join(SUFFIXES)}).")
    return [(path, named[stem]) for stem, path in sorted(pictures.items())]


def files_in(folder: Path, suffixes: Sequence[str] = SUFFIXES) -> list[Path]:
    """The files of a folder with these suffixes, sorted."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in suffixes and p.name[0] != ".")


def read_image(path: Path) -> Image.Image:
    """Read an image, rotated as in its EXIF data. ``info["raw"]`` is the mode in the file.

    Raises:
        ValueError: If it is damaged, is no image or is very large.
    """
    path.open("rb").close()  # raises an error that gives the reason
    try:
        with Image.open(path) as image:
            image.info["raw"] = image.tile[0][3] if image.tile else ""
            return ImageOps.exif_transpose(image)
    except Exception as error:  # formats and damaged files raise many kinds of errors
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path} cannot be read as an image: {reason}") from None


def read_picture(path: Path, white: float | None = None) -> np.ndarray:
    """Read an image as :meth:`Model.preprocess` does: uint8 (H, W, 3)."""
    image = read_image(path)
    try:
        return array_of(image, "RGB", white)
    except ValueError as error:  # its values, or a mode that cannot be converted
        raise ValueError(f"{path}: {error}") from None


def white_level_of(files: Sequence[tuple[Path, Path]]) -> float | None:
    """The largest value of the images of more than 8 bits, rounded up to a power of 2; None without any."""
    largest = []
    for path, _ in files:
        with contextlib.suppress(Exception), Image.open(path) as image:  # damaged files are reported later
            if image.mode[0] in "IF":
                largest.append(np.max(image).item())
    finite = [value for value in largest if 1 < value < math.inf]
    return 2.0 ** math.ceil(math.log2(max(finite, default=1))) if largest else None


def read_mask(path: Path) -> tuple[np.ndarray, bool]:
    """The numbers of the pixels of a mask (H, W), or their colours as numbers, and whether it has colours."""
    mask = read_image(path)
    in_colours = mask.mode in ("RGB", "RGBA")
    numbers = as_numbers(np.array(mask.convert("RGB"))) if in_colours else np.array(mask)
    if numbers.ndim != 2 or numbers.dtype.kind not in "biu":
        raise ValueError(f"{path} must have numbers or colours (RGB), but its mode is {mask.mode}.")
    # Pillow scales the numbers of grey images of 2 and 4 bits to 255.
    return numbers // {"L;2": 85, "L;4": 17}.get(mask.info["raw"], 1), in_colours


def as_numbers(colours: np.ndarray) -> np.ndarray:
    """Each colour (..., 3) as one number."""
    return colours.astype(np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32)


def table_of(path: Path) -> list[Any]:
    """The classes in a file. Their numbers, names and colours must be different and fit."""
    try:
        text = path.read_text("utf-8")
        numbered = re.search(r"^\s*\d+\s+\S", text, re.MULTILINE)
        if path.name == "class_names.txt" or not (path.name == "labelmap.txt" or numbered):  # a name per line
            lines = enumerate(text.split("\n"))
            named = [(name.strip(), colour_of(n)["colour"]) for n, name in lines if name.strip()]
        elif path.name == "labelmap.txt":  # name:red,green,blue:parts:actions
            found = re.findall(r"^([^#:\n]+):(\d+),(\d+),(\d+)", text, re.MULTILINE)
            named = [(name, [*map(int, colour)]) for name, *colour in found]
        else:
            named = []
        classes = [{"name": name, "colour": c, "label": n} for n, (name, c) in enumerate(named)]
        classes = classes or read_classes(path)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8: {error}") from None
    for key in ("label", "name", "colour"):
        entries = [str(c[key]) for c in classes]
        if twice := [e for e in dict.fromkeys(entries) if entries.count(e) > 1]:
            raise ValueError(f"{path} has the same {key.replace('label', 'number')} twice: {cut(twice)}.")
    if wrong := [c["name"] for c in classes if max(c["colour"]) > 255]:
        raise ValueError(f"{path} must have colours from 0 to 255, unlike {cut(wrong)}.")
    return classes


def found_in(files: Sequence[tuple[Path, Path]], in_colours: bool) -> list[Any]:
    """The classes that occur in masks."""
    found = sorted({value for _, path in files for value in np.unique(read_mask(path)[0]).tolist()})
    if not in_colours and found != [0, IGNORED]:  # only 0 and 255 are two classes
        found = [value for value in found if value != IGNORED]
    entries: list[Any] = [{"name": str(v), "label": v} | colour_of(n) for n, v in enumerate(found)]
    for entry in entries if in_colours else ():
        value = entry["label"]
        entry |= {"name": f"#{value:06x}", "colour": [value >> 16, value >> 8 & 255, value & 255]}
    return entries


def colour_of(number: int) -> dict[str, Any]:
    """A colour for a class without one; the first is nearly black."""
    colour = [round(255 * part) for part in colormaps["tab20"]((number - 1) * 2 % 19)[:3]]
    return {"colour": colour if number else [21, 21, 28]}
