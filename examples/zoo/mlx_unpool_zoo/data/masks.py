"""What a mask contains: its numbers or colours, and how many pixels have each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from .pictures import open_picture
from .polygons import Shapes
from .tables import IGNORED

RARE = 0.02  # the share of the pixels below which a value may be that of smoothed edges
BETWEEN = (
    0.3  # the share of such pixels that have a smaller and a larger neighbour: .34 or more in 12 kinds of
)
# smoothed masks, .19 or less in 15 of others
MOST = 4096  # values in a mask
NONE = -(1 << 30)  # in place of a number, if a mask has colours, or of a colour, if it has numbers
PHOTOGRAPH = "a photograph, or a mask drawn over one (save the mask alone)"


@dataclass
class Mask:
    """The values (H, W) of a mask, as indices of ``pairs``: a number and a colour each (or ``NONE``)."""

    path: Path | Shapes
    places: np.ndarray
    pairs: list[tuple[int, int]]
    counts: list[int]  # the pixels of each, in the file
    between: list[int]  # how many of them have a smaller and a larger value beside them


def read_mask(
    path: Path | Shapes, names: Sequence[str], size: tuple[int, int], threshold: bool = False
) -> Mask:
    """A mask from a file, or drawn from shapes.

    Args:
        path: The file, or the shapes.
        names: Of the classes of shapes.
        size: The width and height of the upright picture.
        threshold: Whether values below 128 become 0 and others 255.

    Raises:
        ValueError: If it cannot be read, has several pages, a format or transparency that changes values,
            or if it is a photograph.
    """
    if isinstance(path, Shapes):
        values, shades = path.drawn(names, size), None
    else:
        values, shades = load(path)
    if threshold:
        values = np.where((values if values.ndim == 2 else values.mean(-1)) < 128, 0, 255)
    coloured, numbers = values.ndim == 3, as_numbers(values) if values.ndim == 3 else values
    found, places = found_in(numbers)
    if len(found) > MOST:
        kind = "colours" if coloured else "values"
        raise ValueError(f"{path} has {len(found)} {kind}: it seems to be {PHOTOGRAPH}.")
    among = lies_between(values) if shades is None and len(found) > 2 else np.zeros(numbers.shape, bool)
    pairs = []
    for value in found.tolist():
        if coloured:
            pairs.append((value & 255 if value % 0x010101 == 0 else NONE, value))
        else:
            pairs.append((value, NONE if shades is None else as_numbers(shades[value]).item()))
    counts = np.bincount(places.ravel()).tolist()
    return Mask(path, places, pairs, counts, np.bincount(places[among], minlength=len(counts)).tolist())


def found_in(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different values, and the place among them of each pixel (H, W)."""
    if values.min() < 0 or values.max() > 4 * values.size:
        found, places = np.unique(values, return_inverse=True)
        return found, places.reshape(values.shape)
    table = np.zeros(int(values.max()) + 1, np.int32)  # faster than to sort the pixels
    table[values.ravel()] = 1
    found = np.flatnonzero(table)
    table[found] = np.arange(len(found))
    return found, table[values]


def lies_between(values: np.ndarray) -> np.ndarray:
    """Whether each pixel (H, W[, C]) has a smaller and a larger value among its eight neighbours."""
    low, high = values, values
    for axis in (0, 1):
        around = [(1, 1) if n == axis else (0, 0) for n in range(values.ndim)]
        cut = [
            np.take(np.pad(e, around, "edge"), range(k, k + values.shape[axis]), axis)
            for e in (low, high)
            for k in range(3)
        ]
        low, high = np.minimum.reduce(cut[:3]), np.maximum.reduce(cut[3:])
    found = (low < values) & (values < high)
    return found if values.ndim == 2 else found.any(-1)


def check_edges(masks: list[Mask], known: set[int]) -> None:
    """Raise ValueError for smoothed edges and photographs: several values are rare and lie between others.

    A class has pixels among others of its own, or only smaller or only larger ones around it. The grey of a
    smoothed edge has a smaller value on one side and a larger one on the other.

    Args:
        masks: All masks for training.
        known: The numbers and colours of the table, which are classes, however rare.
    """
    pixels, between = total(masks), total(masks, "between")
    rare = {
        pair for pair, count in pixels.items() if count < RARE * pixels.total() and known.isdisjoint(pair)
    }
    numbers = {number for number, _ in pixels} - {IGNORED, -1}
    numbered = numbers == {*range(len(numbers))} and len(numbers) < 64  # 0, 1, 2 ... are no shades of grey
    some = sum(pixels[pair] for pair in rare)
    if len(rare) < 2 or numbered or sum(between[pair] for pair in rare) < BETWEEN * some:
        return
    first = next(mask for mask in masks if not rare.isdisjoint(mask.pairs))
    if some > 0.5 * pixels.total():
        raise ValueError(f"{first.path} seems to be {PHOTOGRAPH}: masks have {len(pixels)} values.")
    common = " and ".join(text_of(pair) for pair, _ in pixels.most_common(2))
    raise ValueError(
        f"{first.path} seems to have smoothed edges: the masks have {len(pixels)} values, and {len(rare)} of them are"
        f" rare ({some / pixels.total():.1%} of the pixels) and lie between others, such as {common}. Save masks "
        "without smoothing, or pass --threshold, which makes them 0 and 255."
    )


def text_of(pair: tuple[int, int]) -> str:
    """The number of a value, or its colour."""
    return str(pair[0]) if pair[0] != NONE else f"#{pair[1]:06x}"


def load(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """The numbers (H, W) or colours (H, W, 3) of a mask, and the colours (256, 3) of a palette."""
    mask, facts = open_picture(path)
    how = facts.format, str(mask.info.get("compression")).lower()
    lossless = how[0] == "WEBP" and b"VP8L" in path.read_bytes()[:100]
    if (how[0] in ("JPEG", "MPO", "JPEG2000", "HEIF", "AVIF", "WEBP") or "jpeg" in how[1]) and not lossless:
        raise ValueError(f"{path} must be PNG: {how[0]} with loss changes the numbers of classes at edges.")
    if facts.pages > 1:
        raise ValueError(f"{path} must have one page, but has {facts.pages}.")
    if "A" in mask.getbands():
        check_transparency(mask, path)
        mask, shades = (mask.getchannel(0), mask.getpalette()) if mask.mode != "RGBA" else (mask, None)
    else:
        shades = mask.getpalette() if mask.mode == "P" else None
    if mask.mode in ("RGB", "RGBA"):
        if facts.deep:
            raise ValueError(f"{path} must have colours of 8 bits, but they have 16.")
        return np.array(mask.convert("RGB")), None
    values = np.array(mask)
    if values.dtype.kind == "b" or (values.dtype.kind == "f" and (values == values.round()).all()):
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


def check_transparency(mask: Image.Image, path: Path) -> None:
    """Raise ValueError if transparency is all that distinguishes some pixels of a mask."""
    alpha, rest = np.array(mask.getchannel("A")), np.array(mask)[..., :-1].astype(np.int64)
    numbers = rest @ (256 ** np.arange(rest.shape[-1]))
    clear, solid = ({*np.unique(numbers[w]).tolist()} for w in (alpha == 0, alpha > 0))
    if len(np.unique(alpha)) > 1 and (clear & solid or ((alpha > 0) & (alpha < 255)).any()):
        raise ValueError(
            f"{path} seems to have its mask in its transparency: save the alpha channel instead "
            "(Pillow: image.getchannel('A').save(...))."
        )


def as_numbers(colours: np.ndarray) -> np.ndarray:
    """Each colour (..., 3) as one number."""
    return np.asarray(colours, np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32)


def total(masks: list[Mask], what: str = "counts") -> Counter[tuple[int, int]]:
    """The pixels of each number and colour in all masks."""
    counts: Counter[tuple[int, int]] = Counter()
    for mask in masks:
        counts.update(dict(zip(mask.pairs, getattr(mask, what))))
    return counts
