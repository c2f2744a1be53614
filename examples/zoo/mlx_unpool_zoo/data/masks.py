"""Read masks: which values they have, and how many pixels have each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from ..inputs import nearest, reduced_shape
from .pictures import Facts, open_picture

FORMATS = ("PNG", "TIFF", "BMP")
LOSSY = ("jpeg", "webp")  # in the names of TIFF's compressions
COLOUR = 1 << 24  # is added to the 24 bits of a colour, which is then no number
MOST = 4096  # values in a mask
SCALES = {"L;2": 85, "L;4": 17}  # by which Pillow multiplies the numbers of grey images
NUMBERS, PALETTE, COLOURS = "8 or 16 bits per pixel", "a palette", "colours"
ONE_BIT = "1 bit per pixel (white is 1)"
FORMS = {"L;2": "2 bits per pixel", "L;4": "4 bits per pixel"}


@dataclass
class Mask:
    """A mask file: its form, its size (W, H), the pixels of each value, and the reduced values.

    A value is a number from 0 to 65535, which may be an index of the ``palette``, or a colour:
    0x804080 + ``COLOUR``, for example. ``palette``: the colours of the indices that occur.
    """

    path: Path
    form: str
    size: tuple[int, int]
    counts: dict[int, int]
    palette: dict[int, int]
    values: np.ndarray

    @property
    def is_identity(self) -> bool:
        """Whether each index that occurs has itself as its grey level in the palette."""
        return all(colour == COLOUR + 0x10101 * index for index, colour in self.palette.items())

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
    if problem := problem_of_file(image, facts) or problem_of_mode(image, facts):
        raise ValueError(f"{path} {problem}")
    form = form_of(image, facts)
    values = values_in(image, facts)
    counts = counts_of(values)
    least, most = min(counts), max(counts)
    if len(counts) > MOST:
        said = "it is a photograph, or was saved as JPEG before."
        raise ValueError(f"{path} has {len(counts):,} values: {said}")
    if least < 0 or 65535 < most < COLOUR:
        raise ValueError(f"{path} must have numbers from 0 to 65535, but has {least} to {most}.")
    palette = palette_of(image, [*counts]) if form == PALETTE else {}
    small = nearest(values, reduced_shape(values.shape, side))
    return Mask(path, form, values.shape[::-1], counts, palette, small)


def problem_of_file(image: Image.Image, facts: Facts) -> str:
    """Why a file may not have the values that were drawn; nothing if it has."""
    compression = str(image.info.get("compression")).lower()
    if facts.format not in FORMATS or any(name in compression for name in LOSSY):
        return (
            f"must be PNG, TIFF or BMP, but is {facts.format} or has its compression. JPEG changes "
            "values, also if it is saved as PNG afterwards: export the mask as PNG."
        )
    if facts.pages > 1:
        return f"must have one page, but has {facts.pages}: save the one to use."
    if facts.orientation > 1:
        return "is turned by its EXIF data: save it upright, without them."
    if facts.white_is_zero:
        return (
            "is a TIFF with WhiteIsZero, which some programs invert: save it as PNG, and check "
            "that objects have the same value in all masks (tifffile reads the stored values)."
        )
    return ""


def problem_of_mode(image: Image.Image, facts: Facts) -> str:
    """Why the pixels of a file may not have the values that were drawn; nothing if they have."""
    if image.mode == "F":
        return (
            "has floating-point numbers. Save whole ones, for example with Image.fromarray("
            "np.array(Image.open(path)).round().astype('uint16')).save('mask.png')"
        )
    deep = image.mode.startswith("I")  # 16 bits in one channel
    if facts.deep != deep or not (deep or image.mode in ("1", "L", "LA", "P", "RGB", "RGBA")):
        return (
            "must have one channel of 1, 8 or 16 bits, a palette, or RGB of 8 bits, but has "
            f"{facts.mode}: save it so."
        )
    if image.mode in ("LA", "RGBA") and np.array(image.getchannel("A")).min() < 255:
        return (
            "has transparent pixels, whose colour is not seen. Fill them with a colour that no "
            "class has, such as black below white objects, and save it without transparency."
        )
    return ""


def form_of(image: Image.Image, facts: Facts) -> str:
    """How values are stored."""
    if image.mode in ("RGB", "RGBA"):
        return COLOURS
    if image.mode == "P":
        return PALETTE
    return ONE_BIT if image.mode == "1" else FORMS.get(facts.raw[:3], NUMBERS)


def values_in(image: Image.Image, facts: Facts) -> np.ndarray:
    """The number, the index of the palette, or the colour of each pixel (H, W)."""
    if image.mode in ("RGB", "RGBA"):
        return colours_of(np.array(image.convert("RGB")))
    numbers = np.array(image.getchannel(0) if image.mode == "LA" else image)
    if numbers.dtype == bool:
        return numbers.astype(np.uint8)
    return numbers // SCALES.get(facts.raw[:3], 1)


def counts_of(values: np.ndarray) -> dict[int, int]:
    """The number of pixels of each value, in the order of values."""
    flat = values.ravel()
    starts = np.append(0, 1 + np.flatnonzero(flat[1:] != flat[:-1]))
    found, places = np.unique(flat[starts], return_inverse=True)
    counts = np.bincount(places, np.diff(starts, append=flat.size))
    return dict(zip(found.tolist(), counts.astype(int).tolist()))


def palette_of(image: Image.Image, indices: list[int]) -> dict[int, int]:
    """The colour of each index."""
    stored = image.getpalette() or []
    shades = np.zeros(768, int)
    shades[: len(stored)] = stored
    return dict(zip(indices, colours_of(shades.reshape(256, 3)[indices]).tolist()))


def colours_of(pixels: np.ndarray) -> np.ndarray:
    """The value of each colour (..., 3)."""
    return COLOUR + pixels.astype(np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32)


def text_of(value: int) -> str:
    """A number, or a colour such as #804080."""
    return str(value) if value < COLOUR else f"#{value - COLOUR:06x}"


def check_forms(masks: list[Mask]) -> None:
    """Raise ValueError if one value may mean different things in masks of different forms.

    White is 1 in masks of 1 bit and 255 in others, and an index of a palette can have any colour,
    unless each index has itself as its grey level.
    """
    other = any(mask.form == PALETTE and not mask.is_identity for mask in masks)
    first: Mask | None = None
    for mask in masks:
        if mask.form == PALETTE and mask.is_identity and not other:
            mask.form = NUMBERS
        first = first or mask
        if mask.form != first.form:
            raise ValueError(
                f"{first.path} has {first.form}, but {mask.path} has {mask.form}: one value can "
                "mean different things. Save all masks in RGB, of 8 bits, and list their colours."
            )


def check_palettes(masks: list[Mask]) -> None:
    """Raise ValueError if an index has different colours in the palettes of masks."""
    first: dict[int, tuple[int, Mask]] = {}
    for mask in masks:
        for index, colour in mask.palette.items():
            other, before = first.setdefault(index, (colour, mask))
            if other != colour:
                raise ValueError(
                    f"the palettes of the masks differ: {index} is {text_of(other)} in "
                    f"{before.path}, but {text_of(colour)} in {mask.path}. Save all masks in RGB, "
                    "and list their colours. Or, only if equal indices mean the same in spite of "
                    "their colours, save all without a palette."
                )
