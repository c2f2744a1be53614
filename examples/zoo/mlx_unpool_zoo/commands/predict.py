"""Label the pixels of images, draw each beside a map of its classes, and save its label map.

    python -m mlx_unpool_zoo predict runs/train/segnet street.png --output classes.png
    python -m mlx_unpool_zoo predict runs/train/segnet folder --output labels/all.png   all images of a folder
    python -m mlx_unpool_zoo predict relaynet scan.png                                  published weights

The model is a folder written by the commands train or convert, or the name of published weights ("hair",
"relaynet"), which the first run downloads. Images may have any size. The label map of street.png is
classes-street.png. Its pixels are labels, the numbers of the masks with which the model was trained, or, if
the model has none, class indices (positions in the model's list of classes). Its palette has their colours;
with labels above 255 it has 16 bits and no palette. --probabilities also writes classes-street.npy: a float32
array (H, W, classes), in the order of the model's list of classes. If an image cannot be read, the others
are labelled, and the exit status is 1.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from PIL import Image
from tqdm import tqdm

import mlx_unpool_zoo as zoo
from mlx_unpool.porting.messages import cut

from ..data.pictures import files_in, read_picture
from ..drawing import PICTURE_SUFFIXES, draw_rows, overlaid, palette
from ..files import replacing, write_file
from .command_line import parser_of
from .outputs import check_inputs, check_output_file, check_range, refuse_inputs

ROWS = 20  # of the picture


def model_of(path: Path) -> zoo.Model:
    """A model that labels pictures, with names and colours for its classes."""
    model = zoo.from_pretrained(path)
    channels, dims = model.picture_channels, model.dims
    if channels not in (1, 3) or dims != 2 or model.facts.modalities:
        raise ValueError(
            f"{path} does not segment images: it is a {model.model_type}, {dims}-D, for {channels} channels. "
            "For scans call predict in Python, with a volume (docs/zoo.md)."
        )
    if not model.about.classes:
        count = model.config["num_classes"]
        model.about.classes = [{"name": str(n), "colour": c} for n, c in enumerate(palette(count))]
    return model


def pictures_of(paths: list[Path], output: Path) -> dict[Path, Path]:
    """The images, also those in folders, by the label maps to write."""
    check_inputs(paths)
    files = [file for path in paths for file in (files_in(path) if path.is_dir() else [path])]
    if not files:
        raise ValueError(f"there is no image in {', '.join(map(str, paths))}.")
    stems, names = Counter(path.stem for path in files), Counter(path.name for path in files)
    found = {}
    for path in files:  # the whole name where stems are equal, the folder where names are
        name = path.stem if stems[path.stem] < 2 else path.name
        name = f"{path.absolute().parent.name}-{name}" if names[path.name] > 1 else name
        found[output.with_name(f"{output.stem}-{name}.png")] = path
    if len(found) < len(files):
        raise ValueError(f"images must have different names, but got {cut(list(map(str, files)))}.")
    refuse_inputs(files, [output, *found])
    return found


def labels_of(classes: list) -> np.ndarray:
    """The number of each class in label maps: its label if every class has one, or its class index."""
    labels = [entry.get("label", -1) for entry in classes]
    fits = 0 <= min(labels) <= max(labels) <= 65535 and len({*labels}) == len(labels)
    names = cut([f"{n} {entry['name']}" for n, entry in zip(labels if fits else range(len(labels)), classes)])
    print(f"Numbers in the label maps: {'labels' if fits else 'class indices'} ({names}).", flush=True)
    numbers = np.array(labels) if fits else np.arange(len(classes))
    return numbers.astype(np.uint8 if numbers.max() < 256 else np.uint16)


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
    black = "values that are black and white, in images of more than 8 bits (default: as in training)"
    add("--range", type=float, nargs=2, metavar=("LOW", "HIGH"), help=black)
    text = "also write the probabilities of the classes, classes-street.npy: float32 (H, W, classes)"
    add("--probabilities", action="store_true", help=text)
    arguments = parser.parse_args(words)
    if arguments.side is not None and arguments.side < 8:
        parser.error("--side must be 8 or more")
    check_range(arguments.range)
    check_output_file("--output", arguments.output, PICTURE_SUFFIXES)
    return arguments


def small(image: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An image and its class indices for the figure, at most 512 pixels wide and high."""
    picture = Image.fromarray(image).convert("RGB")
    picture.thumbnail((512, 512))
    reduced = Image.fromarray(numbers.astype(np.int32)).resize(picture.size, Image.Resampling.NEAREST)
    return np.array(picture), np.array(reduced)


def write_labels(target: Path, numbers: np.ndarray, values: np.ndarray, classes: list[Any]) -> None:
    """Write a label map, with a palette unless it has 16 bits."""
    labels = Image.fromarray(values[numbers])
    if values.dtype == np.uint8:
        colours = np.zeros((256, 3), np.uint8)
        colours[values] = [entry["colour"] for entry in classes]
        labels.putpalette(colours.tobytes())
    with replacing(target) as new:
        labels.save(new)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    arguments = parse_arguments(words)
    output = arguments.output
    pictures = pictures_of(arguments.images, output)
    model = model_of(arguments.model)
    how: Any = model.about.input
    how |= {name: value for name in ("side", "range") if (value := getattr(arguments, name))}
    for notice in (model.facts.notice, model.facts.cpu_notice * (mx.default_device() == mx.cpu)):
        if notice:
            print(notice, flush=True)
    classes: list[Any] = model.about.classes
    values = labels_of(classes)
    columns: dict[str, Any] = {"image": [], "classes": [], "overlay": []}
    failed = []
    for target, path in tqdm(pictures.items(), unit="image", disable=None):
        try:
            image = read_picture(path, model)
            numbers = model.predict(image)
        except (ValueError, OSError) as error:
            failed.append(str(error) if str(path) in str(error) else f"{path}: {error}")
            continue
        fractions = np.bincount(numbers.ravel(), minlength=len(classes)) / numbers.size
        largest = [n for n in np.argsort(-fractions)[:4] if fractions[n]]
        parts = [f"{classes[n]['name']} {fractions[n]:.0%}" for n in largest]
        write_labels(target, numbers, values, classes)
        written = [target]
        if arguments.probabilities:
            written.append(target.with_suffix(".npy"))
            write_file(written[-1], partial(np.save, arr=model.probabilities(image)))
        tqdm.write(f"{path.name}: {', '.join(parts)}\nWrote {' and '.join(map(str, written))}.")
        if len(columns["overlay"]) < ROWS:
            picture, numbers = small(image, numbers)
            overlay = overlaid(picture, numbers, classes)
            for column, array in zip(columns.values(), (picture, numbers, overlay), strict=True):
                column.append(array)
    if done := len(pictures) - len(failed):
        draw_rows(columns, classes, output)
        print(f"Wrote {output}{f' with the first {ROWS} images' if done > ROWS else ''}.")
    if failed:
        summary = f"{len(failed)} of {len(pictures)} images were not labelled."
        print(*failed, summary, sep="\n", file=sys.stderr)
    return 1 if failed else 0
