"""Convert weights that were published for PyTorch into a folder.

    python -m mlx_unpool_zoo.convert fastsurfer_vinn aparc_vinn_axial_v2.0.0.pkl fastsurfer/axial
    python -m mlx_unpool_zoo.convert enet best_model.pth enet --input raw
    python -m mlx_unpool_zoo.convert segnet vgg16_bn.pth start --config num_classes=12

The output folder contains the weights, a configuration and a model card. Input files may be state dicts,
checkpoints that contain them, whole pickled models (all three need PyTorch, but no code in them is run) or
.safetensors files. If the weights do not fit, an error lists the differences and nothing is written.
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
    """The plane in the name of a file or of one of the two folders above it, as in FastSurfer 1."""
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
    """Parse the command line."""
    description = (__doc__ or "").split("\n\n")[0]
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("model", choices=MODELS, help="type of the model")
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
        help="input of models for pictures: values from 0 to 255, or normalised as for ImageNet "
        "(default: raw for enet, normalised for segnet)",
    )
    parser.add_argument(
        "--plane",
        choices=PLANES,
        help="plane of the slices that the model segments (default: as in the file name)",
    )
    parser.add_argument(
        "--classes",
        type=Path,
        help="colour table: number name red green blue (default for pictures of 12 classes: CamVid's)",
    )
    parser.add_argument("--source", default="", help="origin of the weights, for the model card")
    parser.add_argument("--base-model", help="the original model, owner/name, for the model card")
    parser.add_argument(
        "--licence", default="unknown", help="SPDX identifier of the licence of the weights"
    )
    parser.add_argument("--licence-link", default="", help="address of the licence")
    parser.add_argument(
        "--licence-file", type=Path, help="text of the licence, which is copied into the folder"
    )
    return parser.parse_args()


def convert(arguments: argparse.Namespace) -> str:
    """Convert the weights and return a line about the result."""
    check_output_folder("folder", arguments.folder)
    source = arguments.weights
    plane = plane_of(source)
    if arguments.plane and plane and arguments.plane != plane:
        raise ValueError(f"--plane is {arguments.plane}, but the name of {source} says {plane}.")
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        state = pytorch.read_state(source)
    mx.random.seed(0)  # for parameters that are not in the file
    for note in notes:
        print(f"{source}: {note.message}", file=sys.stderr)
    try:
        model = from_pytorch(arguments.model, state, **dict(arguments.config))
    except ValueError as error:
        raise of_file(error, source) from None
    about = model.about
    pictures = arguments.model in ("enet", "segnet") and about.input["planes"] == 3
    if arguments.input and not pictures:
        raise ValueError(f"--input is only for models of pictures, not for {arguments.model}.")
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
    slices = f", {about.plane} slices" if about.plane else ""
    return f"{arguments.folder}: {len(arrays)} arrays, {numbers:,} numbers{slices}"


def main() -> int:
    """Run the program and return the exit status. Errors are printed without a traceback."""
    arguments = parse_arguments()
    try:
        print(convert(arguments))
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
