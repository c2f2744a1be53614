"""Train small SegNets for a second each, with the training loop of the examples.

Tests run it as one process or as several. The first one writes checkpoint and losses; each prints a hash of
its state at the end.
"""

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_unpool_zoo.segnet import SegNet
from mlx_unpool_zoo.training import adamw, train, weighted_cross_entropy

parser = argparse.ArgumentParser()
parser.add_argument("--output", type=Path, required=True)
parser.add_argument("--runs", choices=("group", "batch"), nargs="+", required=True)
parser.add_argument("--resume", action="store_true")
arguments = parser.parse_args()

mx.set_default_device(mx.cpu)  # the result does not depend on the device of the test


def batches() -> Iterator[tuple[mx.array, mx.array]]:
    """Six pictures (24, 24) of noisy coloured blocks, and the classes of their pixels."""
    random = np.random.default_rng(0)
    while True:
        classes = random.integers(0, 3, (6, 6, 6)).repeat(4, axis=1).repeat(4, axis=2)
        noise = random.normal(0, 0.2, (*classes.shape, 3))
        yield mx.array((np.eye(3)[classes] + noise).astype(np.float32)), mx.array(classes)


def loss_of(model: SegNet, images: mx.array, classes: mx.array) -> mx.array:
    """The loss with weights whose sums are exact in any order."""
    weights = mx.where(classes == 0, 0.25, 1.0)
    return weighted_cross_entropy(model(images), classes, weights)


world = mx.distributed.init()
for run in arguments.runs:
    mx.random.seed(world.rank())  # all start from the weights of the first one
    model = SegNet(3, (4, 8, 8), (1, 1, 1), norm=run)
    path = arguments.output / f"{run}.safetensors"
    more = {"save_every": 10, "resume": arguments.resume}
    losses = train(model, adamw(0.03, steps=40), loss_of, batches(), 40, path, **more)
    state = b"".join(np.array(value).tobytes() for _, value in tree_flatten(model.parameters()))
    print(f"{run}: process {world.rank()} of {world.size()}", hashlib.sha256(state).hexdigest())
    if world.rank() == 0:
        (arguments.output / f"{run}.json").write_text(json.dumps(losses))
