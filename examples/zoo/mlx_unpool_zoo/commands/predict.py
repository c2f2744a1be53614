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
Pair = tuple[np.ndarray, np.ndarray]  # an image and the class indices of its pixels


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
    files: list[Path] = []
    for path in paths:
        files += files_in(path) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"there is no image in {', '.join(map(str, paths))}.")
    names = distinct_names(files)
    pictures = {output.with_name(f"{output.stem}-{name}.png"): file for name, file in zip(names, files)}
    if len(pictures) < len(files):
        raise ValueError(f"images must have different names, but got {cut(list(map(str, files)))}.")
    refuse_inputs(files, [output, *pictures])
    return pictures


def distinct_names(files: list[Path]) -> list[str]:
    """The stem of each file, its name if another one has this stem, with the folder if one has this name."""
    stems, names = Counter(path.stem for path in files), Counter(path.name for path in files)
    result = []
    for path in files:
        name = path.stem if stems[path.stem] == 1 else path.name
        if names[path.name] > 1:
            name = f"{path.absolute().parent.name}-{name}"
        result.append(name)
    return result


def labels_of(classes: list) -> np.ndarray:
    """The number of each class in label maps: its label if every class has one, or its class index."""
    labels = [entry.get("label", -1) for entry in classes]
    are_labels = 0 <= min(labels) <= max(labels) <= 65535 and len({*labels}) == len(labels)
    numbers = labels if are_labels else list(range(len(classes)))
    names = cut([f"{number} {entry['name']}" for number, entry in zip(numbers, classes)])
    kind = "labels" if are_labels else "class indices"
    print(f"Numbers in the label maps: {kind} ({names}).", flush=True)
    return np.array(numbers).astype(np.uint8 if max(numbers) < 256 else np.uint16)


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


def report_failures(failed: list[str], count: int) -> None:
    """Print the errors of the images that were not labelled."""
    if failed:
        summary = f"{len(failed)} of {count} images were not labelled."
        print(*failed, summary, sep="\n", file=sys.stderr)


def draw(pairs: list[Pair], classes: list[Any], output: Path, is_part: bool) -> None:
    """Draw images beside their classes, and with their classes on them. ``is_part``: there are more."""
    images, numbers = zip(*pairs)
    overlays = [overlaid(image, indices, classes) for image, indices in zip(images, numbers)]
    draw_rows({"image": images, "classes": numbers, "overlay": overlays}, classes, output)
    print(f"Wrote {output} with the first {ROWS} images." if is_part else f"Wrote {output}.")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    arguments = parse_arguments(words)
    output = arguments.output
    pictures = pictures_of(arguments.images, output)
    model = model_of(arguments.model)
    for name in ("side", "range"):
        if value := getattr(arguments, name):
            model.about.input[name] = value
    print_notices(model)
    labels = labels_of(model.about.classes)
    pairs: list[Pair] = []  # of the figure
    failed = []
    for target, path in tqdm(pictures.items(), unit="image", disable=None):
        try:
            image = read_picture(path, model)
            numbers = model.predict(image)
        except (ValueError, OSError) as error:
            failed.append(str(error) if str(path) in str(error) else f"{path}: {error}")
            continue
        write_labels(target, numbers, labels, model.about.classes)
        written = [target]
        if arguments.probabilities:
            written.append(target.with_suffix(".npy"))
            write_file(written[-1], partial(np.save, arr=model.probabilities(image)))
        tqdm.write(f"{path.name}: {largest_classes(numbers, model.about.classes)}")
        tqdm.write(f"Wrote {' and '.join(map(str, written))}.")
        if len(pairs) < ROWS:
            pairs.append(small(image, numbers))
    if pairs:
        draw(pairs, model.about.classes, output, is_part=len(pictures) - len(failed) > ROWS)
    report_failures(failed, len(pictures))
    return 1 if failed else 0
