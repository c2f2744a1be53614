"""Propose a class file for masks, and say which of their values may not be classes."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from .masks import COLOUR, Mask, text_of
from .pictures import IGNORED

HEAD = (
    "# Write a name in place of each ?. Lines with the same name are one class.\n"
    "# Pixels of the name ignored do not count."
)
MANY = 32  # values, of which so many are rarely classes
RARE = 5  # a value is rare beside one with more than so many times its pixels
SMOOTHED = (
    "Masks that were saved as JPEG, resized with interpolation or drawn with smooth edges have "
    "shades between their values: draw them again, or restore the values with a threshold."
)
TOO_MANY = (
    "So many values are rarely classes: a photograph has thousands, and masks of single objects "
    f"number these instead of the classes. {SMOOTHED}"
)


def proposal(masks: Sequence[Mask]) -> str:
    """The lines of a class file for the values of masks, and what looks odd in these, as comments.

    Raises:
        ValueError: If the masks have one value only, or more than classes can have.
    """
    counts = total(masks)
    if len(counts) == 1:
        raise ValueError(f"every pixel of the masks is {text_of(*counts)}, so they show nothing.")
    if len(counts) >= IGNORED:
        worst = max(masks, key=lambda mask: len(mask.counts))
        raise ValueError(
            f"the masks have {len(counts)} values, {worst.path} has {len(worst.counts)}. {TOO_MANY}"
        )
    palette = ChainMap(*(mask.palette for mask in masks))
    lines = [HEAD, *(f"# {hint}" for hint in hints(masks, counts))]
    for value in sorted(counts):
        shade = f", {text_of(palette[value])} in the palette" if value in palette else ""
        lines.append(f"{text_of(value)} ?  # {share_of(counts, value)}{shade}")
    return "\n".join(lines)


def hints(masks: Sequence[Mask], counts: Counter[int]) -> list[str]:
    """Sentences about values that may not be classes, or may be one."""
    found = oddities(masks, counts)
    if not found and len(counts) == 2:
        found.append("Two values: usually one is the background and the other one the object.")
    if not found and beside_objects(IGNORED, masks, counts):
        found.append(
            "255 has few pixels, in masks with other values. If it marks outlines, or pixels that "
            "nobody labelled, call it ignored."
        )
    return found


def oddities(masks: Sequence[Mask], counts: Counter[int]) -> list[str]:
    """Sentences about values that seem to be wrong."""
    found = []
    if len(counts) > MANY:
        found.append(TOO_MANY)
    elif len(between := rare_between(counts)) > 2:
        values = ", ".join(map(text_of, between[:3]))
        found.append(f"{values} have few pixels and lie between frequent values. {SMOOTHED}")
    if numbers_objects(masks):
        found.append(
            "Every mask has all numbers from 0 to another one: if these number objects, write "
            "masks that have the number of the class of each object instead."
        )
    if different := different_pairs(masks):
        found.append(
            f"No mask has more than two values, but these differ: {different}. Values that mean "
            "the same, as 1 and 255 may, need the same name."
        )
    return found


def different_pairs(masks: Sequence[Mask]) -> str:
    """Two pairs of values and masks with them, if no mask has more values; otherwise nothing."""
    pairs = {tuple(mask.counts): mask.path for mask in masks if len(mask.counts) == 2}
    if len(pairs) < 2 or max(len(mask.counts) for mask in masks) > 2:
        return ""
    shown = [*pairs.items()][:2]
    return ", ".join(f"{text_of(a)} and {text_of(b)} in {path}" for (a, b), path in shown)


def rare_between(counts: Counter[int]) -> list[int]:
    """Values with few pixels between two frequent ones, unless all are consecutive numbers."""
    ordered = sorted(counts)
    if ordered == [*range(ordered[0], ordered[0] + len(ordered))]:
        return []
    return [value for value in ordered if lies_between(value, counts)]


def lies_between(value: int, counts: Counter[int]) -> bool:
    """Whether a value is a mixture of two others, each of which has many more pixels."""
    frequent = [
        other for other, pixels in counts.most_common(MANY) if pixels > RARE * counts[value]
    ]
    point = parts_of(value)
    for one, other in combinations(frequent, 2):
        start, end = parts_of(one), parts_of(other)
        length = np.abs(end - start).max()
        part = np.abs(point - start).max() / length
        if part < 1 and np.abs(start + part * (end - start) - point).max() <= 2:
            return True
    return False


def parts_of(value: int) -> np.ndarray:
    """Red, green and blue of a colour, or a number three times."""
    if value < COLOUR:
        return np.array([value] * 3)
    return np.array([value >> 16 & 255, value >> 8 & 255, value & 255])


def beside_objects(value: int, masks: Sequence[Mask], counts: Counter[int]) -> bool:
    """Whether a value is rare, and most masks with it have two others or more."""
    having = [mask for mask in masks if value in mask.counts]
    several = [mask for mask in having if len(mask.counts) > 2]
    return 0 < 10 * counts[value] < counts.total() and 2 * len(several) > len(having)


def numbers_objects(masks: Sequence[Mask]) -> bool:
    """Whether every mask has all numbers from 0 to another one, and these differ."""
    last = {max(mask.counts) for mask in masks}
    return len(last) > 2 and all([*range(max(m.counts) + 1)] == sorted(m.counts) for m in masks)


def total(masks: Sequence[Mask]) -> Counter[int]:
    """The pixels of each value in all masks."""
    counts: Counter[int] = Counter()
    for mask in masks:
        counts.update(mask.counts)
    return counts


def share_of(counts: Counter[int], value: int) -> str:
    """The share of the pixels that have a value."""
    return f"{percent(counts[value], counts.total())} of the pixels"


def percent(pixels: int, of: int) -> str:
    """A share, with a digit after the point, that is 0.0% only for none."""
    return "<0.1%" if 0 < pixels < of / 1000 else f"{pixels / of:.1%}"
