"""Takes the weights of a PyTorch model over to MLX.

    python examples/camvid_convert.py enet best_model.pth enet.safetensors --input raw
    python examples/camvid_convert.py vgg16 vgg16_bn.pth start.safetensors

``enet``: a checkpoint of ntkhoa95/ENet_PyTorch, to predict with. ``vgg16``: torchvision's ``vgg16_bn``, for
the encoder of a SegNet, to train from; the decoder starts at random. A parameter that is missing, left over
or of another shape is named, and nothing is written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import mlx.core as mx
from common.camvid_models import INPUTS, Segmenter
from zoo.enet import pytorch_names
from zoo.pytorch_weights import from_pytorch, read_state
from zoo.segnet import vgg16_names


def convert(kind: str, source: Path, target: Path, inputs: str = "normalised") -> None:
    """Writes the weights file of a PyTorch checkpoint; see the head of this file."""
    state = read_state(source)
    if kind == "enet":
        segmenter, names = Segmenter("enet", inputs=inputs), pytorch_names
    else:
        mx.random.seed(0)
        segmenter, names = Segmenter("segnet", inputs=inputs), vgg16_names
        # The fully connected layers behind the last pooling are not part of SegNet.
        state = {name: v for name, v in state.items() if not name.startswith("classifier.")}
    weights = from_pytorch(state, segmenter.model, names)
    segmenter.model.load_weights(list(weights.items()), strict=False)
    segmenter.save(target)
    print(f"{target}: {len(weights)} arrays of {source.name}")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", choices=("enet", "vgg16"))
    parser.add_argument(
        "source", type=Path, help="checkpoint (.pth needs PyTorch, .safetensors not)"
    )
    parser.add_argument("target", type=Path, help="weights file to write (.safetensors)")
    parser.add_argument(
        "--input",
        choices=tuple(INPUTS),
        default="normalised",
        help="what it was trained on: pictures normalised as for ImageNet (default), or 0 to 255",
    )
    arguments = parser.parse_args()
    try:
        convert(arguments.model, arguments.source, arguments.target, arguments.input)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
