"""Convert published weights, and write a folder that the zoo can load.

    python -m mlx_unpool_zoo convert fastsurfer_vinn aparc_vinn_axial_v2.0.0.pkl fastsurfer/axial
    python -m mlx_unpool_zoo convert enet best_model.pth enet --input raw
    python -m mlx_unpool_zoo convert segnet vgg16_bn.pth start --config num_classes=12
    python -m mlx_unpool_zoo convert hair hair_segmentation.tflite hair

Files may be state dicts, checkpoints and whole pickled models (.pth, .pt, .pkl, .ckpt, .model), .safetensors
and .tflite files. No code in a file is run.
"""

from __future__ import annotations

import argparse
import hashlib
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
from ..state_dicts import value_at
from .command_line import parser_of

REMARKS = {  # SHA-256 of published files
    "5765d37ee5917a1b6e68df6cb227581587a2db295aad2a5593da98a91efb1c56": "These weights only prove the port: "
    "their mean IoU on three pictures of CamVid is .19, in PyTorch, too. Train ENet for better results."
}


def plane_of(path: Path, given: str | None = None) -> Any:
    """The plane in the name of a file or of one of the two folders above it, as in FastSurfer 1."""
    for part in reversed(path.parts[-3:]):
        found = [plane for plane in get_args(Plane) if plane in part.lower()]
        if len(found) == 1 and given in (None, found[0]):
            return found[0]
        if len(found) == 1:
            raise ValueError(f"--plane must be {found[0]}, as in {part}, but got {given}.")
    return given


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
    add("--plane", choices=get_args(Plane), help="plane of the slices, if not in the file name")
    add("--classes", type=Path, help="colour table: number name red green blue")
    add("--source", help="origin of the weights, for the model card")
    base = "owner/name of the original model on the Hugging Face Hub, for the card"
    add("--base-model", default="", help=base)
    add("--licence", default="unknown", help="SPDX identifier of the licence of the weights")
    add("--licence-link", default="", help="address of the licence")
    add("--licence-file", type=Path, help="text of the licence")
    add("--push-to-hub", metavar="OWNER/NAME", help="upload the model as well")
    return parser.parse_args(words)


def converted(arguments: argparse.Namespace) -> Model:
    """The model with the weights in the file."""
    with naming(arguments.weights):
        checkpoint = read_checkpoint(arguments.weights)
        if arguments.key is not None:
            checkpoint = value_at(checkpoint, arguments.key)
        strict = "missing" if arguments.no_strict else True
        try:
            return from_pytorch(arguments.model, checkpoint, strict=strict, **dict(arguments.config))
        except ValueError as error:
            raise ValueError(f"{error}{hint_for(str(error))}") from None


def hint_for(problem: str) -> str:
    """The option that helps if weights cannot be converted."""
    if absent := re.search("missing a required argument: '(\\w+)'", problem):
        return f" Pass --config {absent[1]}=VALUE, for example --config num_classes=12."
    if "not used: " in problem:
        return " --no-strict leaves out arrays that are not used."
    return ""


def describe(model: Model, arguments: argparse.Namespace, plane: Any) -> None:
    """Set what the command line says about a model."""
    about = model.about
    if arguments.input:
        about.input["normalisation"] = IMAGENET if arguments.input == "normalised" else None
    if arguments.classes:
        about.classes = read_classes(arguments.classes)
    if model.facts.modalities:
        about.plane = plane
    about.source = arguments.source or arguments.weights.name
    about.base_model = arguments.base_model
    about.licence, about.licence_link = arguments.licence, arguments.licence_link
    if arguments.licence_file:
        about.licence_text = arguments.licence_file.read_text(encoding="utf-8")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    arguments = parse_arguments(words)
    source, folder = arguments.weights, arguments.folder
    plane = plane_of(source, arguments.plane)
    mx.random.seed(0)  # for parameters that are not in the file
    model = converted(arguments)
    describe(model, arguments, plane)
    model.save_pretrained(folder)
    if arguments.push_to_hub:
        model.push_to_hub(arguments.push_to_hub)
    count = sum(array.size for array in dict(tree_flatten(model.parameters())).values())
    slices = f", {model.about.plane} slices" if model.about.plane else ""
    print(f"{folder}: {count:,} parameters{slices}")
    digest = hashlib.sha256(source.read_bytes()).hexdigest() if source.is_file() else ""
    if digest in REMARKS:
        print(REMARKS[digest])
    return 0
