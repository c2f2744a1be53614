"""Train a volumetric SegNet to find grey and white matter in a brain, on the CPU in minutes.

    python examples/segnet_brain.py                   train, evaluate, draw (a few minutes on 2 CPU cores)
    python examples/segnet_brain.py --decoder nearest the same with nearest-neighbour upsampling
    python examples/segnet_brain.py --smoke           a few steps, in seconds, to check that everything runs

The brain is the MNI152 template that comes with nilearn: an average of the brains of 152 people,
with the probability of grey and of white matter at each position. Two coronal slabs are excluded
from training, for validation and for testing. The program writes the weights (safetensors), the
metrics (JSON) and a picture into the folder --output.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import support.installed  # noqa: F401

# isort: split
import matplotlib.pyplot as plt
import mlx.core as mx
import mlx.nn as nn
import numpy as np
from matplotlib.colors import ListedColormap
from mlx_unpool_zoo.segnet import DECODERS, SegNet
from support.brain_scans import CLASS_NAMES, brain, dice_of_scans, scans_of, training_batches, two_thresholds
from support.command_line import run_program
from support.drawing import add_legend, frame, save
from support.training import parse_options, train_and_save

LEARNING_RATE = 0.01
COARSE_WEIGHT = 0.3  # of the auxiliary loss on the last pooling stage


def loss_of(model: SegNet, volumes: mx.array, classes: mx.array) -> mx.array:
    """The mean loss over voxels, plus the loss of the coarse scores at the middle voxel of each window."""
    scores, coarse = model.scores(volumes)
    x, y, z = coarse.shape[1:4]
    # After two poolings a window is 4 voxels wide.
    middles = classes[:, 2::4, 2::4, 2::4][:, :x, :y, :z]
    return nn.losses.cross_entropy(scores, classes, reduction="mean") + (
        COARSE_WEIGHT * nn.losses.cross_entropy(coarse, middles, reduction="mean")
    )


def predict(model: SegNet, volume: np.ndarray) -> np.ndarray:
    """The class of every voxel of a volume of any size."""
    return np.array(mx.argmax(model(mx.array(volume[None, ..., None])), axis=-1))[0]


def draw(slab: np.ndarray, truth: np.ndarray, predicted: np.ndarray, path: Path) -> None:
    """Draw one row per coronal slice: input, truth, prediction."""
    colours = ListedColormap(["#15151c", "#e07b39", "#f3e9dc"])
    slices = np.linspace(2, slab.shape[1] - 3, 3).astype(int)
    figure, axes = plt.subplots(len(slices), 3, figsize=(9, 8.6), layout="constrained")
    for row, number in zip(axes, slices):
        for axis, volume in zip(row, (slab, truth, predicted)):
            options: dict = {"cmap": "gray"}
            if volume is not slab:
                options = {"cmap": colours, "vmin": 0, "vmax": 2}
            axis.imshow(volume[:, number].T, origin="lower", interpolation="nearest", **options)
            frame(axis)
    for axis, title in zip(axes[0], ("scan (noise, uneven light)", "truth", "predicted")):
        axis.set_title(title)
    add_legend(figure, {name: colours(n) for n, name in enumerate(CLASS_NAMES)}, columns=3)
    save(figure, path)


def main() -> int:
    """Run the program and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--decoder", choices=DECODERS, default="unpool", help="how to upsample")
    parser.add_argument("--scans", type=int, default=20, help="simulated scans to test on")
    arguments = parse_options(parser, 800, 4, "demo/brain")
    if arguments.smoke:
        arguments.scans = 2
    if arguments.scans < 2:
        parser.error("--scans must be 2 or more")  # for a standard deviation

    started = time.perf_counter()
    bright, classes = brain()
    mx.random.seed(arguments.seed)
    model = SegNet(
        len(CLASS_NAMES),
        channels=(8, 16),
        convolutions=(1, 2),
        decoder_kernel=3,
        inputs=1,
        dims=3,
        decoder=arguments.decoder,
    )
    batches = training_batches(bright, classes, arguments.batch, arguments.seed)
    checkpoint = train_and_save(model, arguments, LEARNING_RATE, loss_of, batches)
    if checkpoint is None:
        return 0
    report = {name: getattr(arguments, name) for name in ("steps", "batch", "decoder")}
    thresholds = None
    for split, count in (("validation", min(5, arguments.scans)), ("test", arguments.scans)):
        scans, truth = scans_of(split, bright, classes, count)
        predicted = np.stack([predict(model, scan) for scan in scans])
        thresholds = thresholds or two_thresholds(scans, np.broadcast_to(truth, scans.shape))
        report[split] = {
            "network": dice_of_scans(truth, predicted),
            "two thresholds": dice_of_scans(truth, np.digitize(scans, thresholds)),
        }
    print(f"\nDice on the test slab, mean and standard deviation over {len(scans)} scans")
    print(f"{'':14}{'network':>17}{'two thresholds':>17}")
    for name in CLASS_NAMES[1:]:
        both = [report["test"][kind][name] for kind in ("network", "two thresholds")]
        columns = [f"{values['mean']:.3f} ± {values['sd']:.3f}" for values in both]
        print(f"{name:14}" + "".join(f"{column:>17}" for column in columns))
    draw(scans[0], truth, predicted[0], arguments.output / "brain.png")
    (arguments.output / "metrics.json").write_text(json.dumps(report, indent=2) + "\n")
    checkpoint.unlink()
    names = ", ".join(sorted(path.name for path in arguments.output.iterdir()))
    print(f"\n{time.perf_counter() - started:.0f} s. Files in {arguments.output}/: {names}")
    return 0


if __name__ == "__main__":
    run_program(main)
