"""Trains a volumetric SegNet to find grey and white matter in a brain, on the CPU in minutes.

    python examples/segnet_brain.py                   train, evaluate, draw (about 2 minutes on 2 CPU cores)
    python examples/segnet_brain.py --decoder nearest the same with nearest-neighbour upsampling
    python examples/segnet_brain.py --smoke           everything once, in seconds, to see that it runs

The brain is the MNI152 template that comes with nilearn: an average of 152 people, with how likely each place
is grey or white matter. Coronal slabs of it are left out of the training, to choose by and to test on. Writes
the weights (safetensors), the figures (JSON) and a picture into the folder --output.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import mlx.core as mx
import mlx.nn as nn
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from mlx.utils import tree_flatten
from nilearn import datasets
from segnet import DECODERS, SegNet
from training import adamw, save_arrays, train

CLASS_NAMES = ("other", "grey matter", "white matter")
# Coronal slices of 2 mm. The template is left-right symmetric: halves of it would not be independent.
SLABS = {"validation": (20, 32), "test": (54, 70)}
GAP = 2  # slices between a slab and the training
PATCH = (32, 16, 32)
LEARNING_RATE = 0.01
COARSE_WEIGHT = 0.3  # of the auxiliary loss on the last pooling stage


def brain() -> tuple[np.ndarray, np.ndarray]:
    """The template at 2 mm: how bright each place is, 0 to 1, and its class; (99, 117, 95) each."""
    bright, grey, white = (
        load(resolution=2).get_fdata()
        for load in (
            datasets.load_mni152_template,
            datasets.load_mni152_gm_template,
            datasets.load_mni152_wm_template,
        )
    )
    classes = np.argmax(np.stack([1 - grey - white, grey, white]), axis=0)
    return bright.astype(np.float32), classes.astype(np.int32)


def scanned(bright: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """As a scanner might see it, around 0: another gain, uneven sensitivity, noise."""
    slopes = np.meshgrid(*(np.linspace(-1, 1, size) for size in bright.shape), indexing="ij")
    terms = [*slopes, *(slopes[i] * slopes[i - 1] for i in range(3))]
    field = sum(a * term for a, term in zip(random.uniform(-1, 1, 6), terms))
    gain = random.uniform(0.85, 1.15) * np.exp(0.08 * field)
    return ((bright * gain + random.normal(0, 0.03, bright.shape) - 0.5) * 4).astype(np.float32)


def training_batches(
    bright: np.ndarray, classes: np.ndarray, count: int, seed: int
) -> Iterator[tuple[mx.array, mx.array]]:
    """Endless batches of patches that keep away from the slabs; half of them mirrored left to right."""
    random = np.random.default_rng(seed)
    forbidden = np.zeros(classes.shape[1], bool)
    for first, last in SLABS.values():
        forbidden[first - GAP : last + GAP] = True
    while True:
        patches = []
        while len(patches) < count:
            corner = [random.integers(0, n - size + 1) for n, size in zip(classes.shape, PATCH)]
            area = tuple(slice(start, start + size) for start, size in zip(corner, PATCH))
            if forbidden[area[1]].any() or (classes[area] > 0).mean() < 0.2:
                continue
            step = random.choice((1, -1))
            patches.append((scanned(bright[area], random)[::step], classes[area][::step]))
        volumes, truths = (np.stack(part) for part in zip(*patches, strict=True))
        yield mx.array(volumes[..., None]), mx.array(truths)


def loss_of(model: SegNet, volumes: mx.array, classes: mx.array) -> mx.array:
    """Mean loss over voxels, plus that of the coarse scores against the voxel in the middle of each cell."""
    scores, coarse = model.scores(volumes)
    cell = classes.shape[1] // coarse.shape[1]
    middles = classes[:, cell // 2 :: cell, cell // 2 :: cell, cell // 2 :: cell]
    return nn.losses.cross_entropy(scores, classes, reduction="mean") + (
        COARSE_WEIGHT * nn.losses.cross_entropy(coarse, middles, reduction="mean")
    )


def dice(truth: np.ndarray, prediction: np.ndarray) -> dict[str, float]:
    """Twice the common volume over the sum of both, of grey and of white matter (Dice, 1945)."""
    found = {}
    for number, name in enumerate(CLASS_NAMES[1:], start=1):
        true, said = truth == number, prediction == number
        found[name] = float(2 * (true & said).sum() / (true.sum() + said.sum()))
    return found


def two_thresholds(volume: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """The brightnesses that part other, grey and white of this very volume best, on a grid: what is easy."""
    grid = np.linspace(-1, 2, 25)
    pairs = [(low, high) for low in grid for high in grid if low < high]
    return max(pairs, key=lambda pair: sum(dice(truth, np.digitize(volume, pair)).values()))


def draw(slab: np.ndarray, truth: np.ndarray, predicted: np.ndarray, path: Path) -> None:
    """Coronal slices as rows: what the network sees, the truth, what it says."""
    colours = ListedColormap(["#15151c", "#e07b39", "#f3e9dc"])
    slices = np.linspace(2, slab.shape[1] - 3, 3).astype(int)
    figure, axes = plt.subplots(len(slices), 3, figsize=(9, 8.6), layout="constrained")
    for row, number in zip(axes, slices):
        for axis, volume in zip(row, (slab, truth, predicted)):
            options: dict = {"cmap": "gray"}
            if volume is not slab:
                options = {"cmap": colours, "vmin": 0, "vmax": 2}
            axis.imshow(volume[:, number].T, origin="lower", interpolation="nearest", **options)
            axis.set_axis_off()
    for axis, title in zip(axes[0], ("scan (noise, uneven light)", "truth", "predicted")):
        axis.set_title(title)
    legend = [Patch(color=colours(n), label=name) for n, name in enumerate(CLASS_NAMES)]
    figure.legend(handles=legend, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> int:
    """Trains, evaluates and draws."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="Ctrl-C stops the training after a step; --resume goes on from there.",
    )
    parser.add_argument("--decoder", choices=DECODERS, default="unpool", help="how to go up again")
    parser.add_argument("--steps", type=int, default=250, help="training steps (default: 250)")
    parser.add_argument("--batch", type=int, default=4, help="patches a step (default: 4)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run")
    parser.add_argument("--output", type=Path, default=Path("demo/brain"), help="folder")
    parser.add_argument("--smoke", action="store_true", help="a few steps, to see that it runs")
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.steps = 3
    if min(arguments.steps, arguments.batch) < 1:
        parser.error("--steps and --batch must be 1 or more")

    started = time.perf_counter()
    first = mx.distributed.init().rank() == 0
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
    checkpoint = arguments.output / f"checkpoint-{arguments.decoder}.safetensors"
    try:
        train(
            model,
            adamw(LEARNING_RATE, arguments.steps),
            loss_of,
            training_batches(bright, classes, arguments.batch, arguments.seed),
            arguments.steps,
            checkpoint,
            settings={name: getattr(arguments, name) for name in ("steps", "batch", "seed")},
            save_every=50,
            seed=arguments.seed,
            resume=arguments.resume,
            description=arguments.decoder,
        )
    except KeyboardInterrupt:
        if first:
            print(f"Stopped. {checkpoint} has all so far; --resume continues.", flush=True)
        return 130
    if not first:
        return 0

    parameters = dict(tree_flatten(model.parameters()))
    save_arrays(arguments.output / f"segnet-{arguments.decoder}.safetensors", parameters)
    model.eval()
    report: dict = {
        "steps": arguments.steps,
        "batch": arguments.batch,
        "decoder": arguments.decoder,
    }
    for number, (name, (start, stop)) in enumerate(SLABS.items()):
        truth = classes[:, start:stop]
        slab = scanned(bright[:, start:stop], np.random.default_rng([1, number]))
        predicted = np.array(mx.argmax(model(mx.array(slab[None, ..., None])), axis=-1))[0]
        easy = np.digitize(slab, two_thresholds(slab, truth))
        report[name] = {"network": dice(truth, predicted), "two thresholds": dice(truth, easy)}
    print(f"\nDice on the test slab{'network':>15}{'two thresholds':>17}")
    for name in CLASS_NAMES[1:]:
        values = [report["test"][kind][name] for kind in ("network", "two thresholds")]
        print(f"{name:21}{values[0]:15.3f}{values[1]:17.3f}")
    draw(slab, truth, predicted, arguments.output / "brain.png")
    (arguments.output / "figures.json").write_text(json.dumps(report, indent=2) + "\n")
    checkpoint.unlink()
    names = ", ".join(sorted(path.name for path in arguments.output.iterdir()))
    print(f"\n{time.perf_counter() - started:.0f} s. In {arguments.output}/: {names}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
