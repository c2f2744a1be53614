"""Train small SegNets for a second each, with the loop, the loss and the scenes of the example.

Tests run it as one process or as several. The first one writes checkpoint and losses; each prints a hash of
its state at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import segnet_digits
from mlx.utils import tree_flatten
from mlx_unpool_zoo.segnet import SegNet
from support.training import adamw, train

parser = argparse.ArgumentParser()
parser.add_argument("--output", type=Path, required=True)
parser.add_argument("--runs", choices=("group", "batch"), nargs="+", required=True)
parser.add_argument("--resume", action="store_true")
arguments = parser.parse_args()

mx.set_default_device(mx.cpu)  # the result does not depend on the device of the test
segnet_digits.BACKGROUND_WEIGHT = 0.25  # sums of such weights are exact in any order
world = mx.distributed.init()
for run in arguments.runs:
    mx.random.seed(world.rank())  # all start from the weights of the first one
    model = SegNet(11, (4, 8, 8), (1, 1, 1), norm=run)
    losses = train(
        model,
        adamw(0.01, steps=40),
        segnet_digits.loss_of,
        segnet_digits.training_batches(0, count=6, size=24),
        40,
        arguments.output / f"{run}.safetensors",
        save_every=10,
        resume=arguments.resume,
    )
    state = b"".join(np.array(value).tobytes() for _, value in tree_flatten(model.parameters()))
    print(f"{run}: process {world.rank()} of {world.size()}", hashlib.sha256(state).hexdigest())
    if world.rank() == 0:
        (arguments.output / f"{run}.json").write_text(json.dumps(losses))
