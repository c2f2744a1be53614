"""Takes weights that were published for PyTorch over to MLX, as a folder of the zoo.

    python examples/convert.py fastsurfer_vinn aparc_vinn_axial_v2.0.0.pkl fastsurfer-axial
    python examples/convert.py quicknat finetuned_alldata_coronal.pth.tar quicknat --licence MIT

The folder gets the weights, a configuration and a model card. Reads state dicts, checkpoints around them and
whole pickled models, of which no code is run (with PyTorch), and .safetensors files (without). A parameter
that is missing, left over or of another shape is named, and nothing is written.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import mlx_unpool_zoo as zoo
from mlx.utils import tree_flatten
from mlx_unpool_zoo.pytorch import read_state
from support.command_line import run_program


def argument(text: str) -> tuple[str, Any]:
    """An argument of a model: ``name=value``, the value as JSON or else as it is."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must be name=value but got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def main() -> int:
    """Reads, converts, writes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", choices=zoo.MODELS, help="which model the weights are for")
    parser.add_argument("weights", type=Path, help="checkpoint (.pth, .pkl, .safetensors, ...)")
    parser.add_argument("folder", type=Path, help="folder to write")
    parser.add_argument(
        "--config",
        type=argument,
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="arguments of the model that the shapes of the weights do not tell",
    )
    parser.add_argument("--classes", type=Path, help="colour table: number name red green blue")
    parser.add_argument("--source", default="", help="where the weights come from, for the card")
    parser.add_argument("--licence", default="unknown", help="of the weights, for the card")
    arguments = parser.parse_args()
    state = read_state(arguments.weights)
    model = zoo.from_pytorch(arguments.model, state, **dict(arguments.config))
    if arguments.classes:
        model.about.classes = zoo.read_classes(arguments.classes)
    model.about.source = arguments.source or arguments.weights.name
    model.about.licence = arguments.licence
    model.save_pretrained(arguments.folder)
    arrays = dict(tree_flatten(model.parameters()))
    numbers = sum(value.size for value in arrays.values())
    print(f"{arguments.folder}: {len(arrays)} arrays, {numbers:,} numbers")
    return 0


if __name__ == "__main__":
    run_program(main)
