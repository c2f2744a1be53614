"""What was read of one split, for the printed lines and metrics.json."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlx_unpool.porting.messages import cut

from .class_file import Classes
from .masks import Mask
from .pictures import IGNORED, Facts
from .proposal import percent

FEW = 4  # pixels, about the fewest that show an object


@dataclass
class Record:
    """What was read of one split; the printed lines, data.png and metrics.json are made from it.

    ``ends``: the values that became 0 and 255 in images of more than 8 bits. ``pairs``: images
    (H, W, 3) and the class index of every pixel (H, W), uint8.
    """

    split: str
    table: Classes
    masks: list[Mask]
    side: int
    facts: list[Facts] = field(default_factory=list)
    ends: list[float] | None = None
    pairs: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def classes(self) -> list[dict[str, Any]]:
        """The classes, in the order of their indices."""
        return self.table.entries()

    def pixels(self) -> dict[str, int]:
        """The pixels of each class in the files, and how many are ignored."""
        counts: Counter[int] = Counter()
        for mask in self.masks:
            for value, pixels in mask.counts.items():
                counts[self.table.indices[value]] += pixels
        named = {name: counts[index] for index, name in enumerate(self.table.counted)}
        return named | {"ignored": counts[IGNORED]}

    def lines(self) -> list[str]:
        """What a person should know before the training."""
        count, pair = len(self.facts), f"{self.facts[0].path} has the mask {self.masks[0].path}"
        lines = [f"{count} images for {self.split}: {pair}, and so on.", self.shares()]
        pixels = self.pixels()
        if absent := [name for name in self.table.counted if not pixels[name]]:
            lines.append(f"Warning: no mask for {self.split} has {cut(absent)}.")
        if turned := sum(each.turned for each in self.facts):
            said = "images are turned by their EXIF data; masks must be upright: look at data.png."
            lines.append(f"{turned} of {count} {said}")
        if fourth := sum(each.fourth for each in self.facts):
            lines.append(f"The transparency, or fourth channel, of {fourth} images is not used.")
        if self.split == "train":
            lines += self.lines_for_all()
        return [*lines, *self.notes]

    def lines_for_all(self) -> list[str]:
        """Lines that are the same for all splits."""
        lines = [f"Classes: {self.table.path}."]
        if merged := self.table.merged():
            lines.append(f"Values of one class: {'; '.join(merged)}.")
        if self.ends:
            low, high = self.ends
            lines.append(f"In images of more than 8 bits, black is {low:g} and white {high:g}.")
        return lines

    def shares(self) -> str:
        """The shares of the classes, from the most pixels to the fewest, and of those ignored."""
        pixels = self.pixels()
        whole, ignored = sum(pixels.values()), pixels.pop("ignored")
        ordered = [*Counter(pixels).most_common(), ("ignored", ignored)]
        shares = [f"{name} {percent(number, whole)}" for name, number in ordered]
        return f"Pixels for {self.split}: {', '.join(shares)}."

    def note_losses(self) -> None:
        """Add a note for each class that nearly vanishes in most of its masks by scaling.

        Raises:
            ValueError: If nothing is left of a class in the training masks.
        """
        before = np.zeros((len(self.masks), 256), int)
        for row, mask in zip(before, self.masks):
            for value, pixels in mask.counts.items():
                row[self.table.indices[value]] += pixels
        after = np.stack([np.bincount(truth.ravel(), minlength=256) for _, truth in self.pairs])
        for index, name in enumerate(self.table.counted):
            having = np.count_nonzero(before[:, index])
            faint = np.count_nonzero(after[:, index] < np.minimum(FEW, before[:, index]))
            scaled = f"after scaling to --side {self.side}"
            if having and self.split == "train" and not after[:, index].any():
                raise ValueError(f"no pixel of {name} is left {scaled}: pass a larger --side.")
            if 2 * faint > having:
                self.notes.append(
                    f"Warning: {faint} of the {having} masks with {name} have fewer than {FEW} of "
                    f"its pixels {scaled}: pass a larger --side."
                )

    def report(self) -> dict[str, Any]:
        """What was read, for metrics.json."""
        sizes = Counter("{} x {}".format(*facts.size) for facts in self.facts)
        return {
            "images": len(self.facts),
            "sizes": dict(sizes),
            "depths": dict(Counter(facts.depth for facts in self.facts)),
            "turned": sum(facts.turned for facts in self.facts),
            "range": self.ends,
            "pixels": self.pixels(),
            "notes": self.notes,
        }
