"""What a mask contains: its numbers or colours, and how many pixels have each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from .pictures import open_picture
from .polygons import Shapes
from .tables import IGNORED

RARE = 0.02  # the share of the pixels below which a value may be that of smoothed edges
# The share of such pixels that are between a smaller and a larger one: .5 or more in 22 kinds of smoothed
# masks and in photographs, .2 or less in 22 kinds of right ones (not numbered layers of one pixel: 1).
BETWEEN = 0.3
LOSSY = ("JPEG", "MPO", "JPEG2000", "HEIF", "AVIF", "WEBP")
MOST = 4096  # values in a mask
GREY = 0x010101  # a grey colour, divided by its red
NONE = -(1 << 30)  # in place of a number, if a mask has colours, or of a colour, if it has numbers
PHOTOGRAPH = "a photograph, or a mask drawn over one or saved as JPEG: save the mask alone, as PNG"
SMOOTHED = "its edges are smoothed: save masks without smoothing (not as JPEG, resized without interpolation)"
BINARY = ", or pass --threshold: 128 and more become 255, others 0"


@dataclass
class Mask:
    """The values (H, W) of a mask, as indices of ``pairs``: a number and a colour each (or ``NONE``)."""

    path: Path | Shapes
    places: np.ndarray
    pairs: list[tuple[int, int]]
    counts: list[int]  # the pixels of each, in the file
    between: list[int]  # how many of them are between a smaller and a larger value


def read_mask(path: Path | Shapes, names: Sequence[str], size: tuple[int, int], lossy: bool = False) -> Mask:
    """A mask from a file (``lossy``: or a JPEG file), or from shapes, whose classes have ``names``.

    Raises:
        ValueError: If it cannot be read, has several pages, a format or transparency that changes values,
            or if it is a photograph. For shapes, if the upright picture has another ``size`` (W, H).
    """
    values, shades = (path.drawn(names, size), None) if isinstance(path, Shapes) else load(path, lossy)
    coloured, numbers = values.ndim == 3, as_numbers(values) if values.ndim == 3 else values
    found, places = found_in(numbers)
    counts = np.bincount(places.ravel())
    if len(found) > MOST:
        is_mask = counts[counts > RARE * counts.sum()].sum() > 0.5 * counts.sum()
        kind = f"has {len(found)} {'colours' if coloured else 'values'}"
        raise ValueError(f"{path} {kind}: {SMOOTHED if is_mask else 'it seems to be ' + PHOTOGRAPH}.")
    pairs = []
    for value in found.tolist():
        if coloured:
            pairs.append((value & 255 if value % GREY == 0 else NONE, value))
        else:
            pairs.append((value, NONE if shades is None else as_numbers(shades[value]).item()))
    levels = values if shades is None else shades[values]
    among = places[lies_between(levels)] if len(found) > 2 else places[:0].ravel()
    return Mask(path, places, pairs, counts.tolist(), np.bincount(among, minlength=len(counts)).tolist())


def found_in(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different values, and the place among them of each pixel (H, W)."""
    if values.min() < 0 or values.max() > 4 * values.size:
        found, places = np.unique(values, return_inverse=True)
        return found, places.reshape(values.shape)
    occurs = np.bincount(values.ravel()) > 0  # faster than to sort the pixels
    return np.flatnonzero(occurs), (np.cumsum(occurs, dtype=np.int32) - 1)[values]


def lies_between(values: np.ndarray) -> np.ndarray:
    """Whether each pixel (H, W[, C]) is between those on two opposite sides of it, in all channels."""
    values = values.reshape(*values.shape[:2], -1)
    height, width, _ = values.shape
    padded, found = np.pad(values, [(1, 1), (1, 1), (0, 0)], "edge"), np.zeros((height, width), bool)
    for y, x in ((0, 1), (1, 0), (1, 1), (1, -1)):
        one, other = (padded[1 + k * y : 1 + k * y + height, 1 + k * x : 1 + k * x + width] for k in (1, -1))
        low, high = np.minimum(one, other), np.maximum(one, other)
        found |= ((low <= values) & (values <= high)).all(-1) & ((low < values) & (values < high)).any(-1)
    return found


def level_of(pair: tuple[int, int]) -> int:
    """The grey level of a value: that of its colour, or its number."""
    return pair[0] if pair[1] % GREY else pair[1] & 255


def check_edges(masks: list[Mask], known: set[int]) -> None:
    """Raise ValueError for smoothed edges and photographs: several values are rare and lie between others.

    A class has pixels among others of its own, or only smaller or only larger ones around it. The grey of a
    smoothed edge has a smaller value on one side and a larger one on the other. The numbers and colours of
    the table, ``known``, are classes, however rare.
    """
    pixels, between = total(masks), total(masks, "between")
    whole = pixels.total()
    rare = {pair for pair, count in pixels.items() if count < RARE * whole and known.isdisjoint(pair)}
    if max(level_of(pair) for pair in pixels) < 64 and not coloured(masks):
        return  # 0, 1, 2 ... are no shades of grey
    some = sum(pixels[pair] for pair in rare)
    if len(rare) < 2 or sum(between[pair] for pair in rare) < BETWEEN * some:
        return
    first = next(mask for mask in masks if not rare.isdisjoint(mask.pairs))
    if some > 0.5 * whole:
        raise ValueError(f"{first.path} seems to be {PHOTOGRAPH}; the masks have {len(pixels)} values.")
    common = " and ".join(text_of(pair) for pair, _ in pixels.most_common(2))
    binary = "" if coloured(masks) or middle(masks) else BINARY
    raise ValueError(
        f"{first.path}: {SMOOTHED}{binary}. Of {len(pixels)} values, {len(rare)} are rare "
        f"({some / whole:.1%} of the pixels) and between others, such as {common}. If they are classes, list "
        "them in a table."
    )


def coloured(masks: list[Mask]) -> Path | Shapes | None:
    """The first mask with colours that are not grey."""
    return next((mask.path for mask in masks if any(number == NONE for number, _ in mask.pairs)), None)


def middle(masks: list[Mask]) -> list[tuple[int, int]]:
    """The common values that are neither dark nor light, nor those of edges."""
    pixels, between = total(masks), total(masks, "between")
    common = [p for p, n in pixels.items() if n >= RARE * pixels.total() and between[p] < 0.5 * n]
    return [pair for pair in common if not (0 <= level_of(pair) < 64 or 192 <= level_of(pair) < 256)]


def thresholded(masks: list[Mask]) -> list[Mask]:
    """Binary masks with smoothed edges as masks with 0 and 255.

    Raises:
        ValueError: If they have colours, or a common value that is neither dark nor light.
    """
    if path := coloured(masks):
        raise ValueError(f"--threshold is for binary masks, but {path} has colours.")
    pixels = total(masks)
    for pair in middle(masks):
        share = f"{pixels[pair] / pixels.total():.1%} of the pixels have {level_of(pair)}"
        raise ValueError(f"--threshold is for binary masks, but {share}.")
    made = []
    for mask in masks:
        light = np.array([level_of(pair) >= 128 for pair in mask.pairs], np.uint16)
        counts = np.bincount(light, mask.counts, minlength=2).astype(int).tolist()
        pairs = [(0, NONE), (IGNORED, NONE)]
        made.append(replace(mask, places=light[mask.places], pairs=pairs, counts=counts))
    return made


def text_of(pair: tuple[int, int]) -> str:
    """The number of a value, or its colour."""
    return str(pair[0]) if pair[0] != NONE else f"#{pair[1]:06x}"


def load(path: Path, lossy: bool = False) -> tuple[np.ndarray, np.ndarray | None]:
    """The numbers (H, W) or colours (H, W, 3) of a mask, and the colours (256, 3) of a palette."""
    mask, facts = open_picture(path)
    changed = facts.format in LOSSY or "jpeg" in str(mask.info.get("compression")).lower()
    if changed and not lossy and b"VP8L" not in path.read_bytes()[:100]:  # lossless WebP
        raise ValueError(
            f"{path} must be PNG: {facts.format} with loss changes the numbers of classes at edges. If masks "
            "are black and white, pass --threshold."
        )
    if facts.pages > 1:
        raise ValueError(f"{path} must have one page, but has {facts.pages}.")
    if facts.turned:
        raise ValueError(f"{path} is turned by its EXIF data: save it upright, without them.")
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
    colours = np.resize([*shades, *[0] * 768], (256, 3)).astype(np.uint8)
    if facts.format == "GIF" and (colours[values] == colours[values][..., :1]).all():
        return colours[values][..., 0], None  # GIF stores grey images with a palette, in any order
    return values, colours


def check_transparency(mask: Image.Image, path: Path) -> None:
    """Raise ValueError if transparency is all that distinguishes some pixels of a mask."""
    alpha, rest = np.array(mask.getchannel("A")), np.array(mask)[..., :-1].astype(np.int64)
    numbers = rest @ (256 ** np.arange(rest.shape[-1]))
    clear, solid = ({*np.unique(numbers[w]).tolist()} for w in (alpha == 0, alpha > 0))
    partly = ((alpha > 0) & (alpha < 255)).any()
    if len(np.unique(alpha)) > 1 and (clear & solid or partly or len(solid) > 256):  # many: a cut-out
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
