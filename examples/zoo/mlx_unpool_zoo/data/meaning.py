"""What each value of the masks means, decided once from all masks for training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..classes import is_background
from ..messages import cut
from .masks import GREY, NONE, PHOTOGRAPH, Mask, as_numbers, check_edges, coloured, text_of, total
from .tables import IGNORED, completed, is_ignored

BORDER = (IGNORED, 0xE0E0C0)  # number and colour of "void" in the palettes of VOC and labelme
BACKGROUND = "Number 0 has no name in the table: it is called background."
FEW = 5  # times the pixels of a class, which 255 as its border does not have
ONE = "The masks have no 0: the first class of the table is 1."
Table = list[dict[str, Any]]
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
        return self.indices_of(mask)[mask.places]

    def indices_of(self, mask: Mask) -> np.ndarray:
        """The class index of each value of a mask."""
        values = [pair[self.in_colours] for pair in mask.pairs]
        if NONE in values:
            kinds = ("numbers", "colours") if self.in_colours else ("colours", "numbers")
            raise ValueError(f"{mask.path} has {kinds[0]}, but the training masks have {kinds[1]}.")
        known = {IGNORED: IGNORED} | self.indices if BORDER in mask.pairs else self.indices
        if unknown := [text_of(p) for p, value in zip(mask.pairs, values) if value not in known]:
            names = cut([entry["name"] for entry in self.classes])
            raise ValueError(
                f"{mask.path} has values without a class: {cut(unknown)}. Classes: {names}. If it is right, "
                "and no training mask has these, list all classes in a table."
            )
        return np.array([known[value] for value in values], np.uint8)


def meaning_of(masks: list[Mask], table: Table | None) -> Meaning:
    """The meaning in the first of the :meth:`Seen.rows` that have all values of the masks, except 255.

    Raises:
        ValueError: If no row has them, if another one may be meant, or if masks contradict each other.
    """
    table = table or []
    seen = Seen(masks, table)
    seen.check_kinds()
    greys = {colour // GREY for colour in seen.shades if colour % GREY == 0}
    check_edges(masks, {*(seen.labels or range(len(table))), *seen.shades, *greys})
    row = next((row for row in seen.rows() if seen.fits(*row[:2])), None)
    if row is None:
        raise ValueError(seen.unexplained())
    in_colours, values, classes, said = row
    present, border = seen.values(in_colours), seen.border(in_colours, values)
    absent = [c["name"] for value, c in zip(values, classes) if value not in present and not is_ignored(c)]
    if twice := [c["name"] for v, c in zip(values, classes) if values.count(v) > 1 and not is_ignored(c)]:
        raise ValueError(f"the table gives {' and '.join(twice)} a colour that is in it twice.")
    if border and not in_colours and BORDER not in seen.counts:
        seen.check_ignored(absent)
    if classes is table and not (seen.labels or in_colours or has_background(table)):
        seen.check_first(absent)
    if in_colours:
        entries = [{"name": entry["name"], "colour": entry["colour"]} for entry in classes]
    else:
        entries = [entry | {"label": value} for value, entry in zip(values, classes)]
    kept = [c for c in entries if not (is_ignored(c) and c.get("label") in (-1, IGNORED))]
    if not 2 <= len(kept) < IGNORED:
        most = max(masks, key=lambda mask: len(mask.pairs))
        seems = f"It seems to be {PHOTOGRAPH}; or it numbers objects"
        why = f": {most.path} has {len(most.pairs)} values. {seems}" if len(kept) > 1 else ""
        raise ValueError(f"masks must have 2 to {IGNORED - 1} classes, but have {len(kept)}{why}.")
    indices = dict.fromkeys(border, IGNORED)
    for value, entry in zip(values, entries):
        indices[value] = IGNORED if is_ignored(entry) or entry not in kept else kept.index(entry)
    return Meaning(kept if in_colours else completed(kept), indices, in_colours, said)


class Seen:
    """The values of the masks for training, how many pixels have each, and what a table says of them."""

    def __init__(self, masks: list[Mask], table: Table) -> None:
        self.masks, self.table, self.counts = masks, table, total(masks)
        self.labels = [entry["label"] for entry in table if "label" in entry]
        self.shades = [as_numbers(np.array(entry["colour"])).item() for entry in table if "colour" in entry]
        self.numbers: Counter[int] = Counter()
        for (number, _), pixels in self.counts.items():
            self.numbers[number] += pixels

    def values(self, in_colours: bool) -> set[int]:
        """The numbers or the colours of the masks."""
        return {pair[in_colours] for pair in self.counts}

    def share(self, pixels: int) -> str:
        """So many pixels as a part of all."""
        return f"{pixels / self.counts.total():.1%} of the pixels"

    def rows(self) -> Iterator[Row]:
        """What masks may contain, and what it then means: the first row that fits the masks counts.

        A row: whether the values are colours, the values, their classes, and a line for people. A row without
        values never fits.
        """
        table, labels, shades, n = self.table, self.labels, self.shades, len(self.table)
        numbers, colours = self.values(False), sorted(self.values(True) - {BORDER[1]})
        front, has_0 = [{"name": "background"}, *table], 0 in labels or any(map(is_background, table))
        two = sorted(numbers - {IGNORED}) if len(numbers) > 2 else sorted(numbers)
        if not table:
            yield False, levels(numbers), [{"name": str(value)} for value in levels(numbers)], ""
            yield True, colours, [{"name": f"#{c:06x}", "colour": rgb(c)} for c in colours], ""
        if not labels:
            yield False, [c // GREY for c in shades] if not any(c % GREY for c in shades) else [], table, ""
            yield True, shades, table, ""
        if n == 2 and numbers == {0, IGNORED}:
            yield False, [0, IGNORED], sorted(table, key=lambda entry: entry.get("label", 0)), ""
        if n == 1 and not has_background(table) and len(two) == 2 and two[0] == 0:
            yield False, two, front, BACKGROUND
        if labels:
            yield False, labels, table, ""
            yield True, shades, table, ""
            yield False, [] if has_0 else [0, *labels], front, BACKGROUND
        elif self.agrees():
            yield False, positions(table, numbers), table, ""
            yield False, [] if 0 in numbers else [*range(1, n + 1)], table, ONE
            is_0 = self.numbers[0] > 0.5 * self.counts.total() and not has_background(table)
            yield False, [*range(n + 1)] if is_0 else [], front, BACKGROUND

    def fits(self, in_colours: bool, values: list[int]) -> bool:
        """Whether a row has all values of the masks, except the border."""
        seen = self.values(in_colours)
        return bool(values) and NONE not in seen and seen - {*values} <= self.border(in_colours, values)

    def border(self, in_colours: bool, values: list[int]) -> set[int]:
        """255, or its colour in VOC's palette, which is no class, unless a row has it or larger numbers."""
        if in_colours:
            return {BORDER[1]} - {*values}
        return {IGNORED} & self.values(False) - {*values} if max(values) <= IGNORED else set()

    def agrees(self) -> bool:
        """Whether the palettes of masks have the colours of the table at its positions."""
        places = range(len(self.shades))
        shown = [pair for pair in self.counts if pair[1] not in (NONE, pair[0] * GREY) and pair[0] in places]
        return all(self.shades[number] == colour for number, colour in shown)

    def check_kinds(self) -> None:
        """Raise ValueError for masks with one value, with numbers and colours, or with differing palettes."""
        numbered = next((m.path for m in self.masks if any(colour == NONE for _, colour in m.pairs)), None)
        if numbered and (path := coloured(self.masks)):
            raise ValueError(f"{numbered} has numbers, but {path} has colours.")
        if len(self.counts) == 1:
            black = "all masks are black: " * (0 in self.numbers)
            value = text_of(*self.counts)
            raise ValueError(f"{black}every pixel of the masks is {value}, so they show nothing.")
        if (largest := max(self.numbers)) > 65535:
            raise ValueError(f"masks must have numbers from 0 to 65535, but have {largest}.")
        times = Counter(number for number, _ in self.counts if number != NONE)
        several = [number for number in times if times[number] > 1]
        if several and not self.labels and not self.values(True) <= {*self.shades}:
            raise ValueError(
                f"the palettes of the masks differ: number {several[0]} has several colours. Pass --classes "
                "with the number, or with the colour, of each class."
            )

    def check_first(self, absent: list[str]) -> None:
        """Raise ValueError if plain names may begin with that of another number than they seem to."""
        first, last = self.table[0]["name"], self.table[-1]["name"]
        if first in absent or (last in absent and self.numbers[0] > 0.5 * self.counts.total()):
            missing = [name for name in (first, last) if name in absent]
            raise ValueError(
                f"no mask has {' and '.join(missing)}, and {self.share(self.numbers[0])} are 0: it is not "
                f"clear whether 0 is {first}. Put 'background' or 'void' first, or give every name its "
                f"number, such as '0 {first}'."
            )

    def check_ignored(self, absent: list[str]) -> None:
        """Raise ValueError if 255, which is not in the table, may be a class.

        That is if a class of the table (``absent``) has no pixel, if masks with 255 have only 0 beside it
        while others have other numbers, if it is the commonest number or far commoner than all but 0 (JPEG
        makes a few 1 beside 0), or, unless the table has plain names, if another number is large, too: then
        all may be grey levels.
        """
        counts, others = self.numbers, self.values(False) - {IGNORED}
        largest = max([counts[number] for number in others if number], default=counts[IGNORED])
        inside = [{number for number, _ in mask.pairs} for mask in self.masks]
        together = any(IGNORED in each and each - {0, IGNORED} for each in inside)
        alone = [m.path for m, each in zip(self.masks, inside) if each == {0, IGNORED} and not together]
        if absent:
            why = f"no mask has {cut(absent)}"
        elif alone:
            why = f"{alone[0]}, for example, has only 0 beside it"
        elif counts[IGNORED] > max(counts[number] for number in others):
            why = "no other number has as many pixels"
        elif counts[IGNORED] > FEW * largest:
            why = "numbers other than 0 have less than a fifth of that"
        elif (not self.table or self.labels) and 63 < max(others) < IGNORED and len(others) < 64:
            why = f"{max(others)} is large, too"
        else:
            return
        share = f"255 has {self.share(counts[IGNORED])} and may be a class or mean ignored"
        settles = f"The table of classes says what it is, with {line_for('255', 'void', self.table)}"
        raise ValueError(f"{share}: {why}. {settles} if it means ignored.")

    def unexplained(self) -> str:
        """Why no row fits: the values without a class, how many pixels they have, and what to write."""
        table, labels, shades, n = self.table, self.labels, self.shades, len(self.table)
        counts, by_number, in_colours = self.counts, self.numbers, NONE in self.numbers
        if in_colours and not shades:
            return "the masks have colours, but the table of classes has none."
        if not in_colours and not labels and not self.agrees():
            return (
                "a number has another colour in the palettes of the masks than at its position in the table. "
                "Give the table numbers, or only names."
            )
        known = {*shades} if in_colours else {*(labels or range(n)), IGNORED}
        missing = [pair for pair, _ in counts.most_common() if pair[in_colours] not in known]
        shown = [f"#{pair[1]:06x}" if in_colours else text_of(pair) for pair in missing]
        shares = [f"{text} ({self.share(counts[p])})" for text, p in zip(shown, missing)]
        path, first = next(mask.path for mask in self.masks if missing[0] in mask.pairs), missing[0]
        names, most = [entry["name"] for entry in table], max(counts.values())
        said = f"{path} has values without a class: {cut(shares)}. Classes: {cut(names)}."
        if in_colours or labels:
            value = " ".join(map(str, rgb(first[1]))) if in_colours else shown[0]
            name = "NAME" if any(map(is_background, table)) else "background"
            name = name if counts[first] == most else "void"
            meant = {"background": "if it is the background", "void": "if it means ignored"}.get(name, "")
            return f"{said} Give {shown[0]} {line_for(value, name, table)} {meant}".rstrip() + "."
        if [number for number, _ in missing] != [n]:
            return f"{said} Give every name its number in the table, such as '0 {names[0]}'."
        zero, last = (f"{k} has {self.share(by_number[k])}" for k in (0, n))
        void = ""
        if by_number[n] <= max(by_number[k] for k in range(n)):
            void = f" If {n} has none ({last}), put 'void' last."
        return f"{said} If 0 has no name ({zero}), put 'background' first.{void}"


def has_background(table: Table) -> bool:
    """Whether a class of the table is the background, or what has no label."""
    return any(is_background(c) or is_ignored(c) for c in table)


def levels(numbers: set[int]) -> list[int]:
    """The numbers that are classes without a table: not 255, unless it is the last of evenly spaced ones."""
    values = sorted(numbers)
    steps = np.abs(np.diff(values) * (len(values) - 1) - IGNORED)
    even = (values[0], values[-1]) == (0, IGNORED) and bool((steps < len(values)).all())
    return [v for v in values if v != IGNORED or even or values[-1] > IGNORED]


def positions(table: Table, numbers: set[int]) -> list[int]:
    """Positions in the table; 255 for "void" if no mask has its position: the last of VOC's names."""
    void = [is_ignored(entry) and IGNORED in numbers and n not in numbers for n, entry in enumerate(table)]
    return [IGNORED if is_void else n for n, is_void in enumerate(void)]


def rgb(colour: int) -> list[int]:
    """Red, green and blue."""
    return [colour >> 16, colour >> 8 & 255, colour & 255]


def line_for(value: str, name: str, table: Table) -> str:
    """A line of a table, in its form."""
    if table and not {"label", "colour"} & table[0].keys():
        return f"a {'last' if name == 'void' else 'first'} line '{name}'"
    if table and "label" not in table[0]:
        return f"a line '{name} {value}'"
    return f"a line '{value} {name}{' 0 0 0' if table and 'colour' in table[0] else ''}'"
