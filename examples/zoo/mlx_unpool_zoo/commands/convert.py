"""Convert published weights, and write a folder that the zoo can load.

    python -m mlx_unpool_zoo convert fastsurfer_vinn aparc_vinn_axial_v2.0.0.pkl axial --plane axial
    python -m mlx_unpool_zoo convert enet best_model.pth enet --input raw
    python -m mlx_unpool_zoo convert segnet vgg16_bn.pth start --config num_classes=12
    python -m mlx_unpool_zoo convert hair hair_segmentation.tflite hair

Files may be state dicts, checkpoints and whole pickled models (.pth, .pt, .pkl, .ckpt, .model),
.safetensors and .tflite files. No code in a file is run.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import mlx.core as mx
from mlx.utils import tree_flatten

from .. import MODELS, Model, from_pytorch
from ..about import IMAGENET, Plane, naming
from ..checkpoints import read_checkpoint
from ..classes import read_classes
from ..saving import WEIGHTS
from ..state_dicts import value_at
from .command_line import parser_of


def argument(text: str) -> tuple[str, Any]:
    """Parse ``name=value``; a value that is not JSON is a string."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = parser_of("python -m mlx_unpool_zoo convert", __doc__)
    add = parser.add_argument
    add("model", choices=MODELS, help="type of the model")
    add("weights", type=Path, help="checkpoint (.pth, .pkl, .safetensors, .tflite, ...)")
    add("folder", type=Path, help="folder to write")
    given = "arguments of the model that the shapes of the weights do not determine"
    add("--config", type=argument, nargs="+", default=[], metavar="NAME=VALUE", help=given)
    kinds = "input of models for images (default: raw for enet, normalised for segnet)"
    add("--input", choices=("raw", "normalised"), help=kinds)
    add("--key", help="the key of the weights in a checkpoint that has several; A/B is B in A")
    add("--no-strict", action="store_true", help="leave out arrays that the model does not have")
    add("--plane", choices=get_args(Plane), help="plane of the slices, for the model card")
    add("--classes", type=Path, help="colour table: number name red green blue")
    add("--source", help="origin of the weights, for the model card")
    add("--licence", default="unknown", help="SPDX identifier of the licence of the weights")
    add("--licence-link", default="", help="address of the licence")
    add("--licence-file", type=Path, help="text of the licence")
    return parser.parse_args(words)


def converted(arguments: argparse.Namespace) -> Model:
    """The model with the weights in the file."""
    with naming(arguments.weights):
        checkpoint = read_checkpoint(arguments.weights)
        if arguments.key is not None:
            checkpoint = value_at(checkpoint, arguments.key)
        strict = "missing" if arguments.no_strict else True
        try:
            return from_pytorch(
                arguments.model, checkpoint, strict=strict, **dict(arguments.config)
            )
        except ValueError as error:
            raise ValueError(f"{error}{hint_for(str(error))}") from None


def hint_for(problem: str) -> str:
    """The option that helps if weights cannot be converted."""
    if absent := re.search("missing a required argument: '(\\w+)'", problem):
        return f" Pass --config {absent[1]}=VALUE, for example --config num_classes=12."
    if "not used: " in problem:
        return " --no-strict leaves out arrays that are not used."
    return ""


def check_folder(weights: Path, folder: Path) -> None:
    """Raise ValueError if the new model would replace the file that is converted."""
    written = folder / WEIGHTS
    if written.exists() and weights.exists() and written.samefile(weights):
        raise ValueError(f"{weights} would be replaced: pass another folder than {folder}.")


def describe(model: Model, arguments: argparse.Namespace) -> None:
    """Set what the command line says about a model."""
    about = model.about
    if arguments.input:
        about.input["normalisation"] = IMAGENET if arguments.input == "normalised" else None
    if arguments.classes:
        about.classes = read_classes(arguments.classes)
    about.plane = arguments.plane
    about.source = arguments.source or arguments.weights.name
    about.licence, about.licence_link = arguments.licence, arguments.licence_link
    if arguments.licence_file:
        about.licence_text = arguments.licence_file.read_text(encoding="utf-8")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    arguments = parse_arguments(words)
    check_folder(arguments.weights, arguments.folder)
    mx.random.seed(0)  # for parameters that are not in the file
    model = converted(arguments)
    describe(model, arguments)
    model.save_pretrained(arguments.folder)
    count = sum(array.size for array in dict(tree_flatten(model.parameters())).values())
    print(f"{arguments.folder}: {count:,} parameters")
    return 0
