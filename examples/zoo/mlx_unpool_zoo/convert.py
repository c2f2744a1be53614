"""Convert weights that were published for PyTorch into a folder.

    python -m mlx_unpool_zoo.convert fastsurfer_vinn aparc_vinn_axial_v2.0.0.pkl fastsurfer/axial
    python -m mlx_unpool_zoo.convert enet best_model.pth enet --input raw
    python -m mlx_unpool_zoo.convert segnet vgg16_bn.pth start --config num_classes=12

The folder gets the weights, a configuration and a model card. It reads state dicts, checkpoints that contain
them and whole pickled models, of which no code is run (with PyTorch), and .safetensors files (without).
Weights that do not fit are an error that lists the differences, and nothing is written.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from . import pytorch
from .classes import CAMVID, read_classes
from .config import PLANES
from .errors import of_file
from .files import check_output_folder
from .loading import MODELS, from_pytorch
from .model import IMAGENET

INPUTS = ("raw", "normalised")


def plane_of(path: Path) -> str | None:
    """The plane in the name of a file or, as FastSurfer 1 has it, of one of its two folders."""
    for name in (path.name, *(folder.name for folder in list(path.parents)[:2])):
        found = {plane for plane in PLANES if re.search(plane, name, re.IGNORECASE)}
        if len(found) == 1:
            return found.pop()
    return None


def argument(text: str) -> tuple[str, Any]:
    """Parse ``name=value``; a value that is not JSON is a string."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must be name=value but got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    description = (__doc__ or "").split("\n\n")[0]
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("model", choices=MODELS, help="which model the weights are for")
    parser.add_argument("weights", type=Path, help="checkpoint (.pth, .pkl, .safetensors, ...)")
    parser.add_argument("folder", type=Path, help="folder to write")
    parser.add_argument(
        "--config",
        type=argument,
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="arguments of the model that the shapes of the weights do not determine",
    )
    parser.add_argument(
        "--input",
        choices=INPUTS,
        help="for pictures: values from 0 to 255, or normalised as for ImageNet "
        "(default: raw for enet, normalised for segnet)",
    )
    parser.add_argument(
        "--plane",
        choices=PLANES,
        help="of the slices that the weights are for (default: as in the name of the file)",
    )
    parser.add_argument(
        "--classes",
        type=Path,
        help="colour table: number name red green blue (default for 12 classes of pictures: CamVid's)",
    )
    parser.add_argument("--source", default="", help="where the weights come from, for the card")
    parser.add_argument("--base-model", help="the converted model, for the card: owner/name")
    parser.add_argument("--licence", default="unknown", help="of the weights: an SPDX identifier")
    parser.add_argument("--licence-link", default="", help="where the licence is published")
    parser.add_argument("--licence-file", type=Path, help="its text, to be copied into the folder")
    return parser.parse_args()


def convert(arguments: argparse.Namespace) -> str:
    """Reads, converts and writes; what was written, in a line."""
    check_output_folder("folder", arguments.folder)
    source = arguments.weights
    plane = plane_of(source)
    if arguments.plane and plane and arguments.plane != plane:
        raise ValueError(f"--plane is {arguments.plane}, but the name of {source} says {plane}.")
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        state = pytorch.read_state(source)
    mx.random.seed(0)  # of parameters that are not in the file
    for note in notes:
        print(f"{source}: {note.message}", file=sys.stderr)
    try:
        model = from_pytorch(arguments.model, state, **dict(arguments.config))
    except ValueError as error:
        raise of_file(error, source) from None
    about = model.about
    pictures = arguments.model in ("enet", "segnet") and about.input["planes"] == 3
    if arguments.input and not pictures:
        raise ValueError(f"--input is for enet and segnet of pictures, not for {arguments.model}.")
    if arguments.input == "raw":
        about.input["normalisation"] = None
    elif arguments.input == "normalised":
        about.input["normalisation"] = IMAGENET
    if arguments.classes:
        about.classes = read_classes(arguments.classes)
    elif pictures and model.config["num_classes"] == len(CAMVID):
        about.classes = CAMVID
    if arguments.licence_file:
        about.licence_text = arguments.licence_file.read_text(encoding="utf-8")
    if model.medical and model.segments:
        about.plane = arguments.plane or plane
    about.source = arguments.source or source.name
    about.base_model = arguments.base_model or about.base_model
    about.licence, about.licence_link = arguments.licence, arguments.licence_link
    model.save_pretrained(arguments.folder)
    arrays = dict(tree_flatten(model.parameters()))
    numbers = sum(value.size for value in arrays.values())
    said = f", {about.plane} slices" if about.plane else ""
    return f"{arguments.folder}: {len(arrays)} arrays, {numbers:,} numbers{said}"


def main() -> int:
    """Converts; an error is one or a few lines on standard error, and status 1."""
    arguments = parse_arguments()
    try:
        print(convert(arguments))
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
