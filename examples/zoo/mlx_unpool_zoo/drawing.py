"""Draw class maps and save figures for light and dark pages."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text

from .classes import not_drawn
from .files import write_file

GREY = "#7a7a7a"  # readable on light and dark pages
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tiff", ".pdf", ".svg")


def palette(count: int) -> list[list[int]]:
    """Distinct colours of classes; the first is nearly black. For more than 20 classes: those of VOC."""
    if count <= 20:
        shades = [colormaps["tab20"]((number - 1) * 2 % 19)[:3] for number in range(1, count)]
        return [[21, 21, 28], *([round(255 * part) for part in shade] for shade in shades)][:count]
    part = np.arange(count)[:, None] >> np.arange(3)  # every third bit is of the same colour
    return (((part[..., None] >> np.arange(0, 24, 3) & 1) << np.arange(7, -1, -1)).sum(-1)).tolist()


def frame(axis: Axes) -> None:
    """Replace the axes of an image by a grey frame, which shows its edge on a page of the same colour."""
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_color(GREY)


def show_classes(axis: Axes, numbers: np.ndarray, classes: list[dict[str, Any]], alpha: float = 1) -> None:
    """Draw the class numbers of pixels (H, W) in the colours of the classes (RGB, 0 to 255)."""
    colours = ListedColormap([np.array(entry["colour"]) / 255 for entry in classes])
    options: dict = {"vmin": 0, "vmax": len(classes) - 1, "interpolation": "nearest"}
    axis.imshow(numbers, cmap=colours, alpha=alpha, **options)


def overlaid(picture: np.ndarray, numbers: np.ndarray, classes: list[dict[str, Any]]) -> np.ndarray:
    """An image with its classes drawn on it, except the one of ``not_drawn``; ignored pixels are hatched."""
    colours = np.array([entry["colour"] for entry in classes])[np.minimum(numbers, len(classes) - 1)]
    width = max(2, min(numbers.shape) // 32)
    ignored, stripes = numbers >= len(classes), np.add(*np.indices(numbers.shape)) // width % 2 > 0
    colours[ignored] = 127
    share = np.where(ignored, 0.85 * stripes, 0.45 * (numbers != not_drawn(classes)))[..., None]
    return ((1 - share) * picture + share * colours).astype(np.uint8)


def draw_rows(
    columns: dict[str, Sequence[np.ndarray]],
    classes: list[dict[str, Any]],
    path: Path,
    *,
    hatched: bool = False,
) -> None:
    """Save a figure with a column per entry and a row per picture (H, W, 3) or class map (H, W).

    It is transparent with grey text, so it suits light and dark pages. ``hatched``: whether the legend says
    that hatched pixels are ignored.
    """
    first = next(iter(columns.values()))
    ratios = [array.shape[0] / array.shape[1] for array in first]
    width, longest = 3.6 * len(columns), max(len(entry["name"]) for entry in classes)
    across = min(6, max(1, int(width / (0.6 + 0.09 * longest))))  # names of the legend, in inches
    height = 3.6 * sum(ratios) + 0.6 + 0.25 * math.ceil((len(classes) + hatched) / across)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(len(first), len(columns), squeeze=False, height_ratios=ratios)
    for column, (title, arrays) in zip(axes.T, columns.items(), strict=True):
        column[0].set_title(title)
        for axis, array in zip(column, arrays, strict=True):
            if array.ndim == 3:
                axis.imshow(array)
            else:
                show_classes(axis, np.ma.masked_greater_equal(array, len(classes)), classes)
            frame(axis)
    colours = (tuple(number / 255 for number in entry["colour"]) for entry in classes)
    patches = [Patch(facecolor=c, edgecolor=GREY, label=e["name"]) for c, e in zip(colours, classes)]
    if hatched:
        patches.append(Patch(facecolor="none", edgecolor=GREY, hatch="//////", label="(ignored)"))
    figure.legend(handles=patches, loc="outside lower center", ncols=across, frameon=False)
    for words in figure.findobj(Text):
        words.set(color=GREY, parse_math=False)  # a name may contain a dollar sign
    options: dict = {"dpi": 100, "transparent": True, "format": path.suffix[1:].lower()}
    write_file(path, lambda file: figure.savefig(file, **options))
