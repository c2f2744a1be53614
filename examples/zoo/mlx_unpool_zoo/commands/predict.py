"""Label the pixels of images, draw each beside a map of its classes, and save its label map.

    python -m mlx_unpool_zoo predict runs/train/segnet street.png --output classes.png
    python -m mlx_unpool_zoo predict runs/train/segnet folder --output labels/all.png
    python -m mlx_unpool_zoo predict relaynet scan.png

The model is a folder written by the commands train or convert, "digits", which is in the package,
or the name of published weights ("hair", "relaynet"), which the first run downloads. Images are
files, or all those in a folder, of any size. The label map of street.png is classes-street.png. Its
pixels are labels, the numbers of the masks with which the model was trained, or, if the model has
none, class indices (positions in the model's list of classes). Its palette has their colours; with
labels above 255 it has 16 bits and no palette. --probabilities also writes classes-street.npy: a
float32 array (H, W, classes), in the order of the model's list of classes. If an image cannot be
read, the others are labelled, and the exit status is 1.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
from PIL import Image
from tqdm import tqdm

import mlx_unpool_zoo as zoo
from mlx_unpool.porting.messages import cut

from ..classes import palette
from ..data.pictures import files_in, read_picture
from ..drawing import PICTURE_SUFFIXES, draw_rows, overlaid
from ..files import replacing, write_file
from .command_line import parser_of
from .outputs import check_inputs, check_output_file, check_range, refuse_inputs

ROWS = 20  # of the figure


class Row(NamedTuple):
    """A row of the figure: an image and the class indices of its pixels."""

    name: str
    image: np.ndarray
    numbers: np.ndarray


def model_of(path: Path) -> zoo.Model:
    """A model that labels pictures, with names and colours for its classes."""
    model = zoo.from_pretrained(path)
    channels, dims = model.picture_channels, model.dims
    if channels not in (1, 3) or dims != 2 or model.facts.modalities:
        raise ValueError(
            f"{path} does not segment images: it is a {model.model_type}, {dims}-D, for {channels} "
            "channels. For scans call predict in Python, with a volume (docs/zoo.md)."
        )
    if not model.about.classes:
        count = model.config["num_classes"]
        model.about.classes = [{"name": str(n), "colour": c} for n, c in enumerate(palette(count))]
    return model


def pictures_of(paths: list[Path], output: Path) -> dict[Path, Path]:
    """The images, also those in folders, by the label maps to write."""
    check_inputs(paths)
    files: list[Path] = []
    for path in paths:
        files += files_in(path) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"there is no image in {', '.join(map(str, paths))}.")
    names = distinct_names(files)
    pictures = {
        output.with_name(f"{output.stem}-{name}.png"): file for name, file in zip(names, files)
    }
    if len(pictures) < len(files):
        raise ValueError(f"images must have different names, but got {cut(list(map(str, files)))}.")
    refuse_inputs(files, [output, *pictures])
    return pictures


def distinct_names(files: list[Path]) -> list[str]:
    """A name for each file: its stem, or if another one has this stem, its name.

    If another one has this name, too, the name of its folder comes first.
    """
    stems, names = Counter(path.stem for path in files), Counter(path.name for path in files)
    result = []
    for path in files:
        if names[path.name] > 1:
            result.append(f"{path.absolute().parent.name}-{path.name}")
        elif stems[path.stem] > 1:
            result.append(path.name)
        else:
            result.append(path.stem)
    return result


def label_values(classes: list[Any]) -> np.ndarray:
    """The number of each class in label maps: its label if each has its own, or its class index."""
    values = list(range(len(classes)))
    if has_labels(classes):
        values = [entry["label"] for entry in classes]
    return np.array(values).astype(np.uint8 if max(values) < 256 else np.uint16)


def has_labels(classes: list[Any]) -> bool:
    """Whether each class has its own label, of at most 16 bits."""
    labels = {entry.get("label", -1) for entry in classes}
    return len(labels) == len(classes) and 0 <= min(labels) <= max(labels) <= 65535


def print_labels(classes: list[Any]) -> None:
    """Print which number each class has in label maps."""
    kind = "labels" if has_labels(classes) else "class indices"
    values = label_values(classes)
    names = cut([f"{value} {entry['name']}" for value, entry in zip(values, classes)])
    print(f"Numbers in the label maps: {kind} ({names}).", flush=True)


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Parse and check the command line."""
    parser = parser_of("python -m mlx_unpool_zoo predict", __doc__)
    add = parser.add_argument
    add("model", type=Path, help="folder of a model, or hair or relaynet")
    add("images", type=Path, nargs="+", help="images that Pillow reads, or folders")
    default = Path("runs/classes.png")
    add("--output", type=Path, default=default, help=f"figure to write (default: {default})")
    side = "reduce images to this shorter side (default: as in training, if the model stores it)"
    add("--side", type=int, help=side)
    black = (
        "values that are black and white, in images of more than 8 bits (default: as in training)"
    )
    add("--range", type=float, nargs=2, metavar=("LOW", "HIGH"), help=black)
    text = (
        "also write the probabilities of the classes, classes-street.npy: float32 (H, W, classes)"
    )
    add("--probabilities", action="store_true", help=text)
    arguments = parser.parse_args(words)
    if arguments.side is not None and arguments.side < 8:
        parser.error("--side must be 8 or more")
    check_range(arguments.range)
    check_output_file("--output", arguments.output, PICTURE_SUFFIXES)
    return arguments


def row_of(path: Path, image: np.ndarray, numbers: np.ndarray) -> Row:
    """A row of the figure, with an image of at most 512 x 512 pixels."""
    picture = Image.fromarray(image).convert("RGB")
    picture.thumbnail((512, 512))
    classes = Image.fromarray(numbers.astype(np.int32))
    reduced = classes.resize(picture.size, Image.Resampling.NEAREST)
    return Row(path.name, np.array(picture), np.array(reduced))


def write_labels(target: Path, numbers: np.ndarray, values: np.ndarray, classes: list[Any]) -> None:
    """Write a label map, with a palette unless it has 16 bits."""
    labels = Image.fromarray(values[numbers])
    if values.dtype == np.uint8:
        colours = np.zeros((256, 3), np.uint8)
        colours[values] = [entry["colour"] for entry in classes]
        labels.putpalette(colours.tobytes())
    with replacing(target) as new:
        labels.save(new)


def print_notices(model: zoo.Model) -> None:
    """Print what a user of the network must know."""
    notices = [model.facts.notice]
    if mx.default_device() == mx.cpu:
        notices.append(model.facts.cpu_notice)
    for notice in notices:
        if notice:
            print(notice, flush=True)


def largest_classes(numbers: np.ndarray, classes: list[Any]) -> str:
    """The names of the four classes with the most pixels, and their shares."""
    shares = np.bincount(numbers.ravel(), minlength=len(classes)) / numbers.size
    largest = [n for n in np.argsort(-shares)[:4] if shares[n]]
    return ", ".join(f"{classes[n]['name']} {shares[n]:.0%}" for n in largest)


def draw(rows: list[Row], classes: list[Any], output: Path) -> None:
    """Draw images beside their classes, and with their classes on them."""
    columns = {
        "image": [row.image for row in rows],
        "classes": [row.numbers for row in rows],
        "overlay": [overlaid(row.image, row.numbers, classes) for row in rows],
    }
    draw_rows(columns, classes, output, names=[row.name for row in rows])


def write_results(
    image: np.ndarray, numbers: np.ndarray, target: Path, model: zoo.Model, probabilities: bool
) -> str:
    """Write the label map of an image and, on request, its probabilities. Return their paths."""
    classes = model.about.classes
    write_labels(target, numbers, label_values(classes), classes)
    if not probabilities:
        return str(target)
    path = target.with_suffix(".npy")
    write_file(path, partial(np.save, arr=model.probabilities(image)))
    return f"{target} and {path}"


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    arguments = parse_arguments(words)
    output = arguments.output
    pictures = pictures_of(arguments.images, output)
    model = model_of(arguments.model)
    classes = model.about.classes
    for name in ("side", "range"):
        if value := getattr(arguments, name):
            model.about.input[name] = value
    print_notices(model)
    print_labels(classes)
    rows: list[Row] = []
    failed = []
    for target, path in tqdm(pictures.items(), unit="image", disable=None):
        try:
            image = read_picture(path, model)
            numbers = model.predict(image)
        except (ValueError, OSError) as error:
            failed.append(str(error) if str(path) in str(error) else f"{path}: {error}")
            continue
        written = write_results(image, numbers, target, model, arguments.probabilities)
        tqdm.write(f"{path.name}: {largest_classes(numbers, classes)}\nWrote {written}.")
        if len(rows) < ROWS:
            rows.append(row_of(path, image, numbers))
    if rows:
        draw(rows, classes, output)
        first = f" with the first {ROWS} images" if len(pictures) - len(failed) > ROWS else ""
        print(f"Wrote {output}{first}.")
    if failed:
        summary = f"{len(failed)} of {len(pictures)} images were not labelled."
        print(*failed, summary, sep="\n", file=sys.stderr)
        return 1
    return 0
