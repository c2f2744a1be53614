"""Takes weights for street scenes over from PyTorch to MLX, with the classes of CamVid.

    python examples/camvid_convert.py enet best_model.pth enet --input raw
    python examples/camvid_convert.py vgg16 vgg16_bn.pth start

``enet``: a checkpoint of ntkhoa95/ENet_PyTorch, to predict with. ``vgg16``: torchvision's ``vgg16_bn``, for
the encoder of a SegNet, to train from; the decoder starts at random. Writes a folder of the zoo. A
parameter that is missing, left over or of another shape is named, and nothing is written. Other models:
convert.py.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import mlx.core as mx
from mlx_unpool_zoo.pytorch import from_pytorch, read_state
from mlx_unpool_zoo.segnet import vgg16_names
from support.command_line import run_program
from support.segmenter import INPUTS, for_camvid


def convert(kind: str, source: Path, target: Path, inputs: str = "normalised") -> None:
    """Writes the folder of a PyTorch checkpoint; see the head of this file."""
    state = read_state(source)
    mx.random.seed(0)
    model = for_camvid("enet" if kind == "enet" else "segnet", inputs=inputs).model
    names = model.pytorch_names
    if kind == "vgg16":
        names = vgg16_names
        # The fully connected layers behind the last pooling are not part of SegNet.
        state = {name: v for name, v in state.items() if not name.startswith("classifier.")}
    weights = from_pytorch(state, model, names)
    model.load_weights(list(weights.items()), strict=False)
    model.about.source = source.name
    model.save_pretrained(target)
    print(f"{target}: {len(weights)} arrays of {source.name}")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", choices=("enet", "vgg16"))
    parser.add_argument(
        "source", type=Path, help="checkpoint (.pth needs PyTorch, .safetensors not)"
    )
    parser.add_argument("target", type=Path, help="folder to write")
    parser.add_argument(
        "--input",
        choices=INPUTS,
        default="normalised",
        help="what it was trained on: pictures normalised as for ImageNet (default), or 0 to 255",
    )
    arguments = parser.parse_args()
    convert(arguments.model, arguments.source, arguments.target, arguments.input)
    return 0


if __name__ == "__main__":
    run_program(main)
