"""Segment pictures, draw each next to a map of its classes with a legend, and save its label map.

    python examples/camvid_predict.py enet street.png --output classes.png

The model is a folder written by convert.py or camvid_train.py. Pictures may have any size. The label map of
street.png is classes-street.png: its pixels are class numbers, its palette has their colours.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from support.camvid import read_picture
from support.command_line import run_program
from support.drawing import PICTURE_SUFFIXES, class_legend, frame, save, show_classes
from support.files import check_output_file, replacing
from support.segmenter import load
from tqdm import tqdm


def draw(
    pictures: list[np.ndarray], numbers: list[np.ndarray], classes: list[dict[str, Any]], path: Path
) -> None:
    """Draw one row per picture: the picture, the class of each pixel, and an overlay of both."""
    figure, axes = plt.subplots(
        len(pictures),
        3,
        figsize=(12, 3.1 * len(pictures) + 0.8),
        squeeze=False,
        layout="constrained",
    )
    for row, picture, named in zip(axes, pictures, numbers, strict=True):
        row[0].imshow(picture)
        show_classes(row[1], named, classes)
        row[2].imshow(picture)
        show_classes(row[2], named, classes, alpha=0.6)
        for axis in row:
            frame(axis)
    class_legend(figure, classes)
    save(figure, path, dpi=110)


def save_labels(numbers: np.ndarray, classes: list[dict[str, Any]], path: Path) -> None:
    """Write the class of each pixel as a PNG file with a palette."""
    image = Image.fromarray(numbers)
    image.putpalette([value for entry in classes for value in entry["colour"]])
    with replacing(path) as partial:
        image.save(partial)


def main() -> int:
    """Run the program and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", type=Path, help="folder of a model")
    parser.add_argument(
        "pictures", type=Path, nargs="+", help="picture files in a format that Pillow reads"
    )
    parser.add_argument("--output", type=Path, default=Path("classes.png"), help="picture to write")
    arguments = parser.parse_args()
    check_output_file("--output", arguments.output, PICTURE_SUFFIXES)
    stems = [path.stem for path in arguments.pictures]
    if len(set(stems)) < len(stems):
        raise ValueError(f"pictures must have different names, but got {', '.join(stems)}.")
    model = load(arguments.model)
    pictures = [read_picture(path) for path in arguments.pictures]
    numbers = [model.predict(picture) for picture in tqdm(pictures, unit="picture")]
    classes = model.about.classes
    draw(pictures, numbers, classes, arguments.output)
    for path, named in zip(arguments.pictures, numbers, strict=True):
        fractions = np.bincount(named.ravel(), minlength=len(classes)) / named.size
        largest = [n for n in np.argsort(-fractions)[:4] if fractions[n]]
        parts = [f"{classes[n]['name']} {fractions[n]:.0%}" for n in largest]
        print(f"{path.name}: {', '.join(parts)}")
        labels = arguments.output.with_name(f"{arguments.output.stem}-{path.stem}.png")
        save_labels(named, classes, labels)
        print(f"Wrote {labels}.")
    print(f"Wrote {arguments.output}.")
    return 0


if __name__ == "__main__":
    run_program(main)
