"""What is in a picture file, and which grey level each of its values becomes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from ..inputs import in_range

# Reads HEIC files. pi_heif has no wheel for Python 3.15; pillow_heif contains a GPL encoder.
HEIF = "pi_heif" if sys.version_info < (3, 15) else "pillow_heif"
if find_spec(HEIF):
    import_module(HEIF).register_heif_opener()

COMMON = (
    ".jpg",
    ".jpeg",
    ".jpe",
    ".jfif",
    ".png",
    ".tif",
    ".tiff",
    ".webp",
    ".bmp",
    ".gif",
    ".jp2",
)
RARE = (".heic", ".heif", ".avif", ".ppm", ".pgm", ".pbm", ".pnm")
SUFFIXES = COMMON + RARE
# Brands of such files.
HEIC = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
# Pillow keeps the upper 8 of the 16 bits of a colour; in the other byte order the lower ones.
OTHER_BYTE = {"RGB;16B": "RGB;16L", "RGB;16L": "RGB;16B", "RGB;16N": "RGB;16B"}
OTHER_BYTE |= {"RGBA;16B": "RGBA;16L", "RGBA;16L": "RGBA;16B", "RGBA;16N": "RGBA;16B"}
IGNORED = 255  # the class index of pixels that count neither in the loss nor in the metrics
SAMPLE = 10_000  # pixels of each class of each picture, for the range


@dataclass
class Facts:
    """What a picture file says. ``mode``: Pillow's, or that of the file for 16 bits."""

    path: Path
    mode: str
    raw: str  # the mode in the file
    size: tuple[int, int]  # (W, H) as stored
    format: str
    pages: int
    orientation: int  # of EXIF, 1 to 8; 1 is upright
    white_is_zero: bool  # of TIFF; Pillow inverts 1 and 8 bits, but not 16
    levels: int = 256  # how many values it has, if they have more than 8 bits

    @property
    def deep(self) -> bool:
        """Whether it has more than 8 bits."""
        return self.mode[0] in "IF" or "16" in self.mode

    @property
    def depth(self) -> str:
        """The kind of its values."""
        return "floats" if self.mode[0] == "F" else "more than 8 bits" if self.deep else "8 bits"

    @property
    def fourth(self) -> bool:
        """Whether it has a channel besides grey or colours, such as transparency."""
        return bool({"LA", "PA", "RGBA", "RGBX"} & {self.mode, self.raw})

    @property
    def turned(self) -> bool:
        """Whether its EXIF data turn it: a mask may be drawn on either form."""
        return self.orientation > 1


def files_in(folder: Path) -> list[Path]:
    """The pictures of a folder, sorted."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.name[0] != ".")


def open_picture(path: Path) -> tuple[Image.Image, Facts]:
    """A picture, turned as its EXIF data say, and what its file says.

    Raises:
        OSError: If it cannot be opened.
        ValueError: If it is damaged, is no image or is very large.
    """
    if path.exists() and not path.is_file():  # reading a FIFO would wait
        raise ValueError(f"{path} is no file.")
    with path.open("rb") as file:  # raises an error that gives the reason
        start = file.read(64)
    try:
        with Image.open(path) as image:
            facts = facts_of(path, image)
            return ImageOps.exif_transpose(image), facts
    except Image.DecompressionBombError as error:
        raise ValueError(f"{path} is too large: cut it into tiles. {error}") from None
    except Exception as error:  # formats and damaged files raise many kinds of errors
        reason = (str(error).splitlines() or [type(error).__name__])[0]
    if start[4:8] == b"ftyp" and b"avif" not in start and any(brand in start[8:] for brand in HEIC):
        raise ValueError(about_heic(path, reason))
    raise ValueError(f"{path} cannot be read as an image: {reason}")


def about_heic(path: Path, reason: str) -> str:
    """Why a HEIC file cannot be read."""
    if "HEIF" in Image.OPEN:
        return f"{path} is a damaged HEIC file: {reason}"
    convert = f"sips -s format jpeg '{path.name}' --out '{path.stem}.jpg'"
    return f"{path} is a HEIC file: pip install {HEIF}, or convert it (on a Mac: {convert})."


def facts_of(path: Path, image: Any) -> Facts:
    """What the file of an opened picture says."""
    raw = raw_mode(image)
    orientation = image.getexif().get(0x112)
    return Facts(
        path=path,
        mode=raw if "16" in raw else image.mode,
        raw=raw,
        size=image.size,
        format=image.format or "",
        pages=pages_of(image),
        orientation=orientation if orientation in range(2, 9) else 1,
        white_is_zero=getattr(image, "tag_v2", {}).get(262) == 0,
    )


def raw_mode(image: Any) -> str:
    """The mode in the file, such as RGB;16B."""
    raw = image.tile[0][3] if image.tile else ""
    parts = [raw] if isinstance(raw, str) else [*raw]
    # In PPM files the largest value follows; Pillow reduces colours to 8 bits.
    deep = (
        image.format == "PPM"
        and image.mode == "RGB"
        and isinstance(parts[-1], int)
        and parts[-1] > 255
    )
    return f"{parts[0]};16" if deep else str(parts[0])


def pages_of(image: Any) -> int:
    """The number of pages without previews, which are smaller, and other images of a phone."""
    if image.format in ("MPO", "HEIF") or getattr(image, "n_frames", 1) == 1:
        return 1
    sizes = [(image.seek(n), image.size)[1] for n in range(image.n_frames)]
    image.seek(0)
    return sum(min(size) >= min(sizes[0]) for size in sizes)


def values_of(path: Path) -> tuple[np.ndarray, Facts]:
    """The values of a picture: uint8 (H, W, 3), or (H, W[, 3]) of any kind for more than 8 bits.

    Raises:
        ValueError: If it cannot be read, has several pages, or bits that Pillow does not read.
    """
    image, facts = open_picture(path)
    if facts.pages > 1:
        raise ValueError(f"{path} must have one page, but has {facts.pages}: save the one to use.")
    if not facts.deep:
        return np.array(image.convert("RGB")), facts
    if facts.white_is_zero:
        raise ValueError(f"{path} is a TIFF with WhiteIsZero: save it with BlackIsZero, or as PNG.")
    if image.mode[0] in "IF":
        values = np.asarray(image)
    elif facts.mode in OTHER_BYTE:
        low: Any
        with Image.open(path) as low:
            tile = low.tile[0]
            args = OTHER_BYTE[facts.mode]
            low.tile = [(*tile[:3], args if isinstance(tile[3], str) else (args, *tile[3][1:]))]
            low.load()
            lower = ImageOps.exif_transpose(low)
        values = (np.array(image).astype(np.uint16) << 8 | np.array(lower))[..., :3]
    else:
        raise ValueError(
            f"{path} has 16 bits in the mode {facts.mode}: save it as PNG or TIFF, grey or RGB."
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"{path} has values that are infinite or NaN.")
    facts.levels = len(np.unique(values))
    return values, facts


def range_of(values: Sequence[np.ndarray], truths: Sequence[np.ndarray]) -> list[float]:
    """The values that become black and white: the lowest .5 and highest 99.5 percentile of classes.

    A hot pixel is outside; an object that is bright and small, whose pixels are a class, is not.
    """
    found: dict[int, list[np.ndarray]] = {}
    for picture, truth in zip(values, truths, strict=True):
        for number in np.unique(truth[truth != IGNORED]):
            pixels = picture[truth == number]
            found.setdefault(int(number), []).append(pixels[:: 1 + len(pixels) // SAMPLE].ravel())
    every = [np.concatenate(pixels) for pixels in found.values()]
    # Also of few pixels not the very lowest and highest.
    low = min(np.percentile(pixels, 0.5, method="higher") for pixels in every)
    high = max(np.percentile(pixels, 99.5, method="lower") for pixels in every)
    return [float(low), float(high if high > low else low + 1)]


def scaled(values: np.ndarray, how: Mapping[str, Any]) -> np.ndarray:
    """Values of more than 8 bits as uint8 (H, W, 3); see :func:`in_range`."""
    levels = in_range(values, how)
    return levels if levels.ndim == 3 else np.dstack([levels] * 3)


def few_left(facts: Facts, picture: np.ndarray) -> str:
    """What is wrong with a picture (uint8) that had 64 levels or more and keeps fewer than 32."""
    left = len(np.unique(picture)) if facts.deep else 256
    return (
        f"{facts.path} keeps {left} of {facts.levels} levels"
        if left < 32 and facts.levels > 63
        else ""
    )


def read_picture(path: Path, model: Any) -> np.ndarray:
    """A picture as a model learned it: uint8 (H, W, 3), or (H, W) for a model with one channel.

    Raises:
        ValueError: If it cannot be read, has a depth that the model has not learned, or would keep
            too few of its levels.
    """
    values, facts = values_of(path)
    how = model.about.input
    if not facts.deep:
        if "range" in how:
            raise ValueError(f"{path} has 8 bits, but the model learned from images of more.")
        made = values
    elif values.ndim == 3 and "range" not in how:
        made = (values >> 8).astype(np.uint8)  # as Pillow converts colours
    else:
        try:
            made = scaled(values, how)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    if problem := few_left(facts, made):
        learned = "the model learned from {:g} to {:g}".format(*how.get("range", (0, 65535)))
        own = values.min(), values.max()
        bits = min(0, own[0]), 2 ** int(own[1]).bit_length() - 1  # such as 0 to 4095
        fits = values.dtype.kind != "f" and not few_left(facts, scaled(values, {"range": bits}))
        low, high = bits if fits else own
        raise ValueError(
            f"{problem}: {learned}. For its own values, pass --range {low:g} {high:g}."
        )
    return made if model.picture_channels > 1 else np.array(Image.fromarray(made).convert("L"))
