"""Draw class maps and save figures for light and dark pages."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text

from .classes import not_drawn
from .files import write_file

GREY = "#7a7a7a"  # readable on light and dark pages
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tiff", ".pdf", ".svg")
COLUMN = 3.6  # the width of a column of a figure, in inches


def overlaid(
    picture: np.ndarray, numbers: np.ndarray, classes: Sequence[Mapping[str, Any]]
) -> np.ndarray:
    """An image with its classes drawn on it, except the one of ``not_drawn``.

    Ignored pixels, with a number that is not the index of a class, are hatched.
    """
    colours = np.array([entry["colour"] for entry in classes])[
        np.minimum(numbers, len(classes) - 1)
    ]
    share = np.where(numbers == not_drawn(classes), 0, 0.45)
    ignored = numbers >= len(classes)
    rows, columns = np.indices(numbers.shape)
    width = max(2, min(numbers.shape) // 32)
    stripes = (rows + columns) // width % 2 == 1
    colours[ignored] = 127
    share[ignored] = np.where(stripes[ignored], 0.85, 0)
    share = share[..., None]
    return ((1 - share) * picture + share * colours).astype(np.uint8)


def draw_rows(
    columns: Mapping[str, Sequence[np.ndarray]],
    classes: Sequence[Mapping[str, Any]],
    path: Path,
    *,
    names: Sequence[str] = (),
    hatched: bool = False,
) -> None:
    """Save a figure with a column per entry and a row per picture (H, W, 3) or class map (H, W).

    It is transparent with grey text, so it suits light and dark pages.

    Args:
        columns: The pictures and class maps of each column, by its title.
        classes: The name and colour of each class, for class maps and the legend.
        path: The file to write. Its suffix determines the format.
        names: A name for each row.
        hatched: Whether the legend says that hatched pixels are ignored.
    """
    first = next(iter(columns.values()))
    ratios = [array.shape[0] / array.shape[1] for array in first]
    patches = legend_of(classes, hatched)
    width = COLUMN * len(columns)
    longest = max(len(entry["name"]) for entry in classes)
    per_line = min(6, max(1, int(width / (0.6 + 0.09 * longest))))
    height = COLUMN * sum(ratios) + 0.6 + 0.25 * math.ceil(len(patches) / per_line)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(len(first), len(columns), squeeze=False, height_ratios=ratios)
    for column, (title, arrays) in zip(axes.T, columns.items(), strict=True):
        column[0].set_title(title)
        for axis, array in zip(column, arrays, strict=True):
            show(axis, array, classes)
    for axis, name in zip(axes[:, 0], names):
        axis.set_ylabel(name)
    options: dict[str, Any] = {"ncols": per_line, "frameon": False}
    figure.legend(handles=patches, loc="outside lower center", **options)
    for words in figure.findobj(Text):
        words.set(color=GREY, parse_math=False)  # a name may contain a dollar sign
    options = {"dpi": 100, "transparent": True, "format": path.suffix[1:].lower()}
    write_file(path, lambda file: figure.savefig(file, **options))


def legend_of(classes: Sequence[Mapping[str, Any]], hatched: bool) -> list[Patch]:
    """The entries of a legend: the classes and, if ``hatched``, ignored pixels."""
    patches = []
    for entry in classes:
        colour = tuple(number / 255 for number in entry["colour"])
        patches.append(Patch(facecolor=colour, edgecolor=GREY, label=entry["name"]))
    if hatched:
        patches.append(Patch(facecolor="none", edgecolor=GREY, hatch="//////", label="(ignored)"))
    return patches


def show(axis: Axes, array: np.ndarray, classes: Sequence[Mapping[str, Any]]) -> None:
    """Draw a picture (H, W, 3), or a class map (H, W) in the colours of the classes."""
    if array.ndim == 3:
        axis.imshow(array)
    else:
        colours = ListedColormap([np.array(entry["colour"]) / 255 for entry in classes])
        counted = np.ma.masked_greater_equal(array, len(classes))
        axis.imshow(counted, cmap=colours, vmax=len(classes) - 1, vmin=0, interpolation="nearest")
    # A grey frame instead of axes: it shows the edge on a page of the same colour.
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_color(GREY)
