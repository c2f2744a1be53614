"""Trains a small SegNet for a second or two, with the loop, the loss and the scenes of the example.

Run by tests, alone or as one of several processes. Writes the weights and the losses into a folder.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import mlx.core as mx
import segnet_digits
from mlx.utils import tree_flatten
from segnet import SegNet
from training import save_arrays, train

mx.set_default_device(mx.cpu)  # what several processes agree on does not depend on the device
parser = argparse.ArgumentParser()
parser.add_argument("--output", type=Path, required=True)
parser.add_argument("--norm", default="group")
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--batch", type=int, default=6)
parser.add_argument("--seed", type=int, default=0, help="of the weights")
parser.add_argument("--save-every", type=int, default=10)
parser.add_argument("--resume", action="store_true")
parser.add_argument("--own-weights", action="store_true", help="a loss by the weights of a process")
arguments = parser.parse_args()
if arguments.own_weights:
    segnet_digits.mean_over_processes = lambda x: x

mx.random.seed(arguments.seed)
model = SegNet(11, (4, 8, 8), (1, 1, 1), norm=arguments.norm)
losses = train(
    model,
    segnet_digits.make_optimizer("unpool", arguments.steps),
    segnet_digits.loss_of,
    segnet_digits.training_batches(0, arguments.batch, size=24),
    arguments.steps,
    arguments.output / "checkpoint.safetensors",
    save_every=arguments.save_every,
    resume=arguments.resume,
)
world = mx.distributed.init()
print(f"process {world.rank()} of {world.size()} is done")
if world.rank() == 0:
    save_arrays(arguments.output / "weights.safetensors", dict(tree_flatten(model.parameters())))
    (arguments.output / "losses.json").write_text(json.dumps(losses))
else:  # for a test to compare, outside of the folder that such a process must leave alone
    save_arrays(
        arguments.output.with_name(arguments.output.name + "-state") / "weights.safetensors",
        dict(tree_flatten(model.parameters())),
    )
