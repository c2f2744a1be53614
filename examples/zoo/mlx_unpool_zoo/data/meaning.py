"""What each value of the masks means, decided once from all masks for training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..messages import cut
from .masks import NONE, Mask, as_numbers, check_edges, text_of, total
from .tables import IGNORED, completed, is_ignored

GREY = 0x010101  # a grey colour, divided by its red
BORDER = (IGNORED, 0xE0E0C0)  # number and colour of "void" in the palettes of VOC and labelme
BACKGROUND = "Number 0 has no name in the table: it is called background."
ONE = "The masks have no 0: the first class of the table is 1."
Table = list[dict[str, Any]]
Counts = Counter[tuple[int, int]]
Row = tuple[bool, list[int], Table, str]


@dataclass
class Meaning:
    """The classes, in order, and the class index, or ``IGNORED``, of each value: a number or a colour.

    ``said``: what was decided although no table says so, for people.
    """

    classes: Table
    indices: dict[int, int]
    in_colours: bool
    said: str

    def truth(self, mask: Mask) -> np.ndarray:
        """The class index of each pixel of a mask: uint8 (H, W)."""
        values = [pair[self.in_colours] for pair in mask.pairs]
        if NONE in values:
            kinds = ("numbers", "colours") if self.in_colours else ("colours", "numbers")
            raise ValueError(f"{mask.path} has {kinds[0]}, but the training masks have {kinds[1]}.")
        if unknown := [text_of(p) for p, value in zip(mask.pairs, values) if value not in self.indices]:
            names = cut([entry["name"] for entry in self.classes])
            raise ValueError(f"{mask.path} has values without a class: {cut(unknown)}. Classes: {names}.")
        return np.array([self.indices[value] for value in values], np.uint8)[mask.places]


def meaning_of(masks: list[Mask], table: Table | None) -> Meaning:
    """The meaning in the first of the :func:`rows` that have all values of the masks, except 255.

    Raises:
        ValueError: If no row has them, it has fewer than 2 classes, or masks contradict each other.
    """
    counts, table = total(masks), table or []
    check_kinds(masks, counts, table)
    check_edges(masks, {*labels_of(table), *shades_of(table)})
    row = next((row for row in rows(counts, table) if fits(counts, *row[:2])), None)
    if row is None:
        raise ValueError(unexplained(counts, table))
    in_colours, values, classes, said = row
    seen, border = {pair[in_colours] for pair in counts}, border_of(counts, in_colours, values)
    if in_colours:
        entries = [{"name": entry["name"], "colour": entry["colour"]} for entry in classes]
    else:
        entries = [entry | {"label": value} for value, entry in zip(values, classes)]
    kept = [c for c in entries if not (is_ignored(c) and c.get("label") in (-1, IGNORED))]
    if not 2 <= len(kept) < IGNORED:
        raise ValueError(f"masks must have 2 to {IGNORED - 1} classes, but have {len(kept)}.")
    if border and not in_colours and BORDER not in counts:
        check_ignored(
            masks, [c["name"] for c in kept if c["label"] not in seen and not is_ignored(c)], bool(table)
        )
    indices = dict.fromkeys(border, IGNORED)
    for value, entry in zip(values, entries):
        indices[value] = IGNORED if is_ignored(entry) or entry not in kept else kept.index(entry)
    return Meaning(kept if in_colours else completed(kept), indices, in_colours, said)


def rows(counts: Counts, table: Table) -> Iterator[Row]:
    """What masks may contain, and what it then means: the first row that fits the masks counts.

    A row: whether the values are colours, the values, their classes, and a line for people. A row without
    values never fits.
    """
    numbers, colours = ({pair[n] for pair in counts} for n in (0, 1))
    labels, shades, n = labels_of(table), shades_of(table), len(table)
    front = [{"name": "background"}, *table] if not has_background(table) else []
    inner = sorted(numbers - {IGNORED}) if len(numbers) > 2 else sorted(numbers)
    zero = sum(pixels for pair, pixels in counts.items() if pair[0] == 0) / counts.total()
    if not table:
        yield False, levels(numbers), [{"name": str(value)} for value in levels(numbers)], ""
        yield True, sorted(colours), [{"name": f"#{c:06x}", "colour": rgb(c)} for c in sorted(colours)], ""
    if not labels:
        yield False, [c // GREY for c in shades] if not any(c % GREY for c in shades) else [], table, ""
        yield True, shades, table, ""
    if n == 2 and numbers == {0, IGNORED}:
        yield False, [0, IGNORED], sorted(table, key=lambda entry: entry.get("label", 0)), ""
    if n == 1 and front and len(inner) == 2:
        yield False, inner, front, BACKGROUND
    if labels:
        yield False, labels, table, ""
        yield True, shades, table, ""
        yield False, [0, *labels] if front else [], front, BACKGROUND
    elif agrees(counts, shades):
        yield False, positions(table, numbers), table, ""
        yield False, [*range(1, n + 1)] if 0 not in numbers else [], table, ONE
        yield False, [*range(n + 1)] if front and zero > 0.5 else [], front, BACKGROUND


# Parts of them.


def fits(counts: Counts, in_colours: bool, values: list[int]) -> bool:
    """Whether a row has all values of the masks, except the border."""
    seen = {pair[in_colours] for pair in counts}
    return bool(values) and NONE not in seen and seen - {*values} <= border_of(counts, in_colours, values)


def border_of(counts: Counts, in_colours: bool, values: list[int]) -> set[int]:
    """255, or its colours in palettes, which is no class, unless a row has it or larger numbers."""
    if not in_colours and max(values) > IGNORED:
        return set()
    return {pair[in_colours] for pair in counts if pair[0] == IGNORED} - {*values}


def has_background(table: Table) -> bool:
    """Whether a class of the table is the background, or what has no label."""
    return any("background" in c["name"].lower() or is_ignored(c) for c in table)


def levels(numbers: set[int]) -> list[int]:
    """The numbers that are classes without a table: not 255, unless it is the last of evenly spaced ones."""
    values = sorted(numbers)
    steps = np.abs(np.diff(values) * (len(values) - 1) - IGNORED)
    even = (values[0], values[-1]) == (0, IGNORED) and bool((steps < len(values)).all())
    return [v for v in values if v != IGNORED or even or values[-1] > IGNORED]


def labels_of(table: Table) -> list[int]:
    """The numbers of the table, empty if it has none."""
    return [entry["label"] for entry in table if "label" in entry]


def shades_of(table: Table) -> list[int]:
    """The colours of the table as numbers, empty if it has none."""
    return [as_numbers(np.array(entry["colour"])).item() for entry in table if "colour" in entry]


def positions(table: Table, numbers: set[int]) -> list[int]:
    """Positions in the table; 255 for "void" if masks have 255 and not its position: the last of VOC's names."""
    void = [is_ignored(entry) and IGNORED in numbers and n not in numbers for n, entry in enumerate(table)]
    return [IGNORED if is_void else n for n, is_void in enumerate(void)]


def agrees(counts: Counts, shades: list[int]) -> bool:
    """Whether the palettes of masks have the colours of the table at its positions."""
    shown = [pair for pair in counts if pair[1] not in (NONE, pair[0] * GREY) and pair[0] < len(shades)]
    return all(shades[number] == colour for number, colour in shown)


def rgb(colour: int) -> list[int]:
    """Red, green and blue."""
    return [colour >> 16, colour >> 8 & 255, colour & 255]


def check_ignored(masks: list[Mask], absent: list[str], listed: bool) -> None:
    """Raise ValueError if 255, which is not in the table, may be a class.

    That is if a class of the table (``absent``) has no pixel, if masks with 255 have only 0 beside it while
    others have other numbers, if it is the commonest number, or, without a table (``listed``), if another
    number is large, too: then all may be grey levels.
    """
    counts, numbers = total(masks), [{number for number, _ in mask.pairs} for mask in masks]
    share = sum(pixels for pair, pixels in counts.items() if pair[0] == IGNORED) / counts.total()
    others, together = (
        set().union(*numbers) - {IGNORED},
        any(IGNORED in n and n - {0, IGNORED} for n in numbers),
    )
    alone = [mask.path for mask, n in zip(masks, numbers) if n == {0, IGNORED} and not together]
    if absent:
        why = f"no mask has {cut(absent)}"
    elif alone:
        why = f"{alone[0]}, for example, has only 0 beside it"
    elif share > 0.5:
        why = "no other number has as many pixels"
    elif not listed and 63 < max(others) < IGNORED and len(others) < 64:
        why = f"{max(others)} is large, too"
    else:
        return
    raise ValueError(
        f"255 has {share:.1%} of the pixels and may be a class or mean ignored: {why}. Pass a table of classes with "
        "a line for 255, such as '255 void' if it means ignored (or 'void' as the last of plain names)."
    )


def check_kinds(masks: list[Mask], counts: Counts, table: Table) -> None:
    """Raise ValueError for masks with one value, with numbers and colours, or with differing palettes."""
    by_kind = [next((m.path for m in masks if any(p[n] == NONE for p in m.pairs)), None) for n in (0, 1)]
    if None not in by_kind:
        raise ValueError(f"{by_kind[1]} has numbers, but {by_kind[0]} has colours.")
    if len(counts) == 1:
        raise ValueError(f"every pixel of the masks is {text_of(*counts)}: they show nothing.")
    if (largest := max(number for number, _ in counts)) > 65535:
        raise ValueError(f"masks must have numbers from 0 to 65535, but have {largest}.")
    several = [
        number for number, times in Counter(n for n, _ in counts).items() if times > 1 and number != NONE
    ]
    if several and not labels_of(table) and not {colour for _, colour in counts} <= {*shades_of(table)}:
        raise ValueError(
            f"the palettes of the masks differ: number {several[0]} has several colours. Pass --classes with the "
            "number, or with the colour, of each class."
        )


def unexplained(counts: Counts, table: Table) -> str:
    """Why no row fits: the values without a class, how many pixels they have, and what to write."""
    labels, shades, n = labels_of(table), shades_of(table), len(table)
    coloured = any(number == NONE for number, _ in counts)
    if coloured and not shades:
        return "the masks have colours, but the table of classes has none."
    if not coloured and not labels and not agrees(counts, shades):
        return (
            "a number has another colour in the palettes of the masks than at its position in the table. Give the "
            "table numbers, or only names."
        )
    known = {*shades} if coloured else {*(labels or range(n)), IGNORED}
    missing = [
        (pair, pixels / counts.total())
        for pair, pixels in counts.most_common()
        if pair[coloured] not in known
    ]
    listed = cut([f"{text_of(pair)} ({share:.1%} of the pixels)" for pair, share in missing])
    said = f"masks have values without a class: {listed}. Classes: {cut([c['name'] for c in table])}."
    if not coloured and not labels and [pair[0] for pair, _ in missing] == [n] and not has_background(table):
        return f"{said} If 0 has no name, put 'background', or 'void' (ignored), first; if {n} has none, put 'void' last."
    return f"{said} Give {text_of(missing[0][0])} a line with its number or colour in the table; the name 'void' ignores it."
