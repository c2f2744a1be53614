"""What is in a picture file, and which grey level each of its values becomes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

with contextlib.suppress(ImportError):  # reads HEIC files
    from pi_heif import register_heif_opener

    register_heif_opener()

LOSSLESS = (".png", ".tif", ".tiff", ".bmp", ".gif", ".ppm", ".pgm", ".pbm", ".pnm")
SUFFIXES = (*LOSSLESS, ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".heic", ".heif", ".avif", ".jp2")
# Names of folders and lists of a split.
SPLITS = {"train": "train", "training": "train", "val": "validation", "valid": "validation"}
SPLITS |= {"validation": "validation", "test": "test", "testing": "test"}
HEIC = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")  # brands of such files
# Pillow keeps the upper 8 of the 16 bits of a colour; in the opposite byte order it keeps the lower ones.
OTHER_BYTE = {"RGB;16B": "RGB;16L", "RGB;16L": "RGB;16B", "RGB;16N": "RGB;16B"}
OTHER_BYTE |= {"RGBA;16B": "RGBA;16L", "RGBA;16L": "RGBA;16B", "RGBA;16N": "RGBA;16B"}
LEVELS = 32  # that a picture of more than 8 bits must keep
SAMPLE = 2000  # pixels of each class of each picture, for the range


@dataclass
class Facts:
    """What a picture file says: Pillow's mode, size as stored, format, pages and EXIF orientation."""

    path: Path
    mode: str
    size: tuple[int, int]
    format: str
    pages: int
    orientation: int

    @property
    def deep(self) -> bool:
        """Whether it has more than 8 bits."""
        return self.mode[0] in "IF" or "16" in self.mode

    @property
    def turned(self) -> bool:
        return self.orientation > 1


def files_in(folder: Path, suffixes: Sequence[str] = SUFFIXES) -> list[Path]:
    """The files of a folder with these suffixes, sorted."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in suffixes and p.name[0] != ".")


def folders_in(folder: Path) -> dict[str, Path]:
    """The folders in a folder by their names in lower case, without hidden ones."""
    return {p.name.lower(): p for p in sorted(folder.iterdir()) if p.is_dir() and p.name[0] not in "._"}


def pictures_in(folder: Path) -> list[Path]:
    """The pictures in a folder and its subfolders, sorted."""
    return sorted(
        [*files_in(folder), *(p for each in folders_in(folder).values() for p in pictures_in(each))]
    )


def open_picture(path: Path) -> tuple[Image.Image, Facts]:
    """A picture, turned as its EXIF data say, and what its file says.

    Raises:
        ValueError: If it is damaged, is no image or is very large.
    """
    with path.open("rb") as file:  # raises an error that gives the reason
        start = file.read(64)
    try:
        with Image.open(path) as image:
            raw = raw_mode(image)
            mode = raw if "16" in raw else image.mode
            pages, turned = getattr(image, "n_frames", 1), image.getexif().get(0x112, 1)
            facts = Facts(path, mode, image.size, image.format or "", pages, turned)
            image.info["raw"] = raw
            return ImageOps.exif_transpose(image), facts
    except Exception as error:  # formats and damaged files raise many kinds of errors
        reason = (str(error).splitlines() or [type(error).__name__])[0]
    if start[4:8] == b"ftyp" and b"avif" not in start and any(brand in start[8:] for brand in HEIC):
        if "HEIF" in Image.OPEN:
            raise ValueError(f"{path} is a damaged HEIC file: {reason}")
        convert = f"sips -s format jpeg '{path.name}' --out '{path.stem}.jpg'"
        raise ValueError(f"{path} is a HEIC file: pip install pi-heif, or convert it (on a Mac: {convert}).")
    raise ValueError(f"{path} cannot be read as an image: {reason}")


def raw_mode(image: Image.Image) -> str:
    """The mode in the file, such as RGB;16B."""
    raw = image.tile[0][3] if image.tile else ""
    return raw if isinstance(raw, str) else str(raw[0])


def values_of(path: Path) -> tuple[np.ndarray, Facts]:
    """The values of a picture: uint8 (H, W, 3), or (H, W[, 3]) of any kind if it has more than 8 bits."""
    image, facts = open_picture(path)
    if facts.pages > 1 and facts.format != "MPO":  # the second page of MPO is a preview or the other eye
        raise ValueError(f"{path} must have one page, but has {facts.pages}: save the one to learn from.")
    if not facts.deep:
        return np.array(image.convert("RGB")), facts
    if image.mode[0] in "IF":
        return np.asarray(image), facts
    if facts.mode not in OTHER_BYTE:
        raise ValueError(f"{path} has 16 bits in the mode {facts.mode}: save it as grey or RGB.")
    with Image.open(path) as low:
        tile, parts = low.tile[0], low.tile[0][3]
        args = OTHER_BYTE[facts.mode]
        low.tile = [(*tile[:3], args if isinstance(parts, str) else (args, *parts[1:]))]
        low.load()
        lower = ImageOps.exif_transpose(low)
    return (np.array(image).astype(np.uint16) << 8 | np.array(lower))[..., :3], facts


def range_of(values: Sequence[np.ndarray], truths: Sequence[np.ndarray]) -> list[float]:
    """The values that become black and white: the .5 and 99.5 percentiles of each class, and those between.

    A hot pixel is outside; an object that is bright and small, whose pixels are a class, is not.
    """
    found: dict[int, list[np.ndarray]] = {}
    for picture, truth in zip(values, truths, strict=True):
        for number in np.unique(truth):
            pixels = picture[truth == number].ravel()
            found.setdefault(int(number), []).append(pixels[:: 1 + len(pixels) // SAMPLE])
    ends = [np.percentile(np.concatenate(pixels), (0.5, 99.5)) for pixels in found.values()]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    return [float(low), float(max(high, low + 1e-6))]


def scaled(values: np.ndarray, ends: Sequence[float], path: Any = "the image") -> np.ndarray:
    """Values of more than 8 bits as uint8 (H, W, 3): those of the range become 0 to 255.

    Raises:
        ValueError: If values are not finite, or fewer than 32 levels are left of more.
    """
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"{path} has values that are infinite or NaN.")
    low, high = ends
    levels = ((values.astype(np.float32) - low) * (255 / (high - low))).round().clip(0, 255).astype(np.uint8)
    left = len(np.unique(levels))
    if left < LEVELS and (before := len(np.unique(values))) >= LEVELS:
        raise ValueError(
            f"{path} keeps {left} of {before} levels: its values are {values.min():g} to {values.max():g}, "
            f"while black is {low:g} and white {high:g}."
        )
    return levels if levels.ndim == 3 else np.stack([levels] * 3, -1)


def for_model(path: Path, how: dict[str, Any]) -> np.ndarray:
    """A picture as a model with ``about.input`` learned it: uint8 (H, W, 3).

    Raises:
        ValueError: If it cannot be read, or has a depth that the model has not learned.
    """
    values, facts = values_of(path)
    ends = how.get("range") or ([0, how["white_level"]] if "white_level" in how else None)
    if facts.deep != bool(ends):
        learned = "more than 8 bits" if ends else "8 bits"
        raise ValueError(
            f"{path} has {'more than ' * facts.deep}8 bits, but the model learned from images of {learned}."
        )
    return scaled(values, ends, path) if facts.deep and ends else values
