"""Read masks: which values they have, and how many pixels have each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from ..inputs import nearest, reduced_shape
from .pictures import Facts, open_picture

FORMATS = ("PNG", "TIFF", "BMP")
COLOUR = 1 << 24  # is added to the 24 bits of a colour, which is then no number
MOST = 4096  # values in a mask
SCALES = {"L;2": 85, "L;4": 17}  # by which Pillow multiplies the numbers of grey images of 2 and 4 bits


@dataclass
class Mask:
    """A mask file: its size (W, H), the pixels of each value, and the values (H, W) in the reduced size.

    A value is a number from 0 to 65535, which may be an index of the ``palette``, or a colour: 0x804080 +
    ``COLOUR``, for example. ``palette``: the colours of the indices that occur.
    """

    path: Path
    size: tuple[int, int]
    counts: dict[int, int]
    palette: dict[int, int]
    values: np.ndarray

    def mapped(self, indices: dict[int, int]) -> np.ndarray:
        """The class index of each pixel: uint8 (H, W)."""
        found = sorted(self.counts)
        classes = np.array([indices[value] for value in found], np.uint8)
        return classes[np.searchsorted(found, self.values)]


def read_mask(path: Path, side: int) -> Mask:
    """A mask, reduced to a shorter side as its image is.

    Raises:
        ValueError: If it cannot be read, or its values may not be those that were drawn.
    """
    image, facts = open_picture(path)
    if problem := problem_of(image, facts):
        raise ValueError(f"{path} {problem}")
    values = (
        colours_of(np.array(image.convert("RGB")))
        if image.mode in ("RGB", "RGBA")
        else numbers_in(image, facts)
    )
    found, counts = np.unique(values, return_counts=True)
    if len(found) > MOST:
        raise ValueError(
            f"{path} has {len(found):,} values: it is a photograph, or was saved as JPEG before."
        )
    if found[0] < 0 or 65535 < found[-1] < COLOUR:
        raise ValueError(f"{path} must have numbers from 0 to 65535, but has {found[0]} to {found[-1]}.")
    palette: dict[int, int] = {}
    if image.mode == "P":
        shades = np.resize([*(image.getpalette() or ()), *bytes(768)], (256, 3))
        palette = dict(zip(found.tolist(), colours_of(shades[found]).tolist()))
    small = nearest(values, reduced_shape(values.shape, side))
    return Mask(path, values.shape[::-1], dict(zip(found.tolist(), counts.tolist())), palette, small)


def problem_of(image: Image.Image, facts: Facts) -> str:
    """Why the values of a mask may not be those that were drawn; nothing if they are."""
    if facts.format not in FORMATS or "jpeg" in str(image.info.get("compression")).lower():
        return f"must be PNG, TIFF or BMP, but is {facts.format} or has its compression: JPEG changes values."
    if facts.pages > 1:
        return f"must have one page, but has {facts.pages}."
    if facts.orientation > 1:
        return "is turned by its EXIF data: save it upright, without them."
    if facts.white_is_zero:
        return "is a TIFF with WhiteIsZero, whose numbers some programs invert: save it as PNG."
    deep = image.mode.startswith("I")  # 16 bits in one channel
    if facts.deep != deep or not (deep or image.mode in ("1", "L", "LA", "P", "RGB", "RGBA")):
        return f"must have one channel of 1, 8 or 16 bits, a palette, or RGB of 8 bits, but has {facts.mode}."
    if image.mode in ("LA", "RGBA") and np.array(image.getchannel("A")).min() < 255:
        return "has transparent pixels: save it without transparency."
    return ""


def numbers_in(image: Image.Image, facts: Facts) -> np.ndarray:
    """The number, or the index of the palette, of each pixel (H, W)."""
    numbers = np.array(image.getchannel(0) if image.mode == "LA" else image)
    if numbers.dtype == bool:
        return numbers.astype(np.uint8)
    return numbers // SCALES.get(facts.raw, 1)


def colours_of(pixels: np.ndarray) -> np.ndarray:
    """The value of each colour (..., 3)."""
    return COLOUR + pixels.astype(np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32)


def text_of(value: int) -> str:
    """A number, or a colour such as #804080."""
    return str(value) if value < COLOUR else f"#{value - COLOUR:06x}"
