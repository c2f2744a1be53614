"""Trains a SegNet to find handwritten digits on photographs, and shows what unpooling is good for.

    python examples/segnet_digits.py                  train, evaluate, draw (3 to 4 minutes on 2 CPU cores)
    python examples/segnet_digits.py --compare        the same with nearest-neighbour upsampling beside it
    python examples/segnet_digits.py --smoke          everything once, in seconds, to see that it runs

Writes the weights (safetensors), the figures (JSON) and a picture into the folder --output. The figures and
the picture are made with a model that was read back from the weights file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from digit_scenes import CLASS_NAMES, Scenes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from metrics import figures
from mlx.utils import tree_flatten
from segnet import DECODERS, SegNet
from tqdm import tqdm

CLASSES = len(CLASS_NAMES)
BACKGROUND_WEIGHT = 0.2  # most pixels are background
COARSE_WEIGHT = 0.5  # of the auxiliary loss on the last pooling stage
# The best of 0.005, 0.01 and 0.02 for each decoder, on the validation scenes of seed 0.
LEARNING_RATES = {"unpool": 0.01, "nearest": 0.005}
SAVE_EVERY = 100  # steps


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="Ctrl-C stops the training; the weights so far are saved and used.",
    )
    parser.add_argument("--decoder", choices=DECODERS, default="unpool", help="how to go up again")
    parser.add_argument(
        "--compare", action="store_true", help="train both decoders and draw them side by side"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="one run for each seed")
    parser.add_argument("--steps", type=int, default=900, help="training steps (default: 900)")
    parser.add_argument("--batch", type=int, default=8, help="scenes a step (default: 8)")
    parser.add_argument(
        "--scenes", type=int, default=200, help="scenes to evaluate on (default: 200)"
    )
    parser.add_argument("--output", type=Path, default=Path("demo"), help="folder (default: demo)")
    parser.add_argument(
        "--smoke", action="store_true", help="a few steps only, to see that everything runs"
    )
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.steps, arguments.scenes = 6, 8
    if min(arguments.steps, arguments.batch, arguments.scenes) < 1:
        parser.error("--steps, --batch and --scenes must be 1 or more")
    return arguments


def normalised(images: np.ndarray) -> mx.array:
    """Images in 0 to 1 as the network takes them, around 0."""
    return mx.array((images - 0.45) * 4)


def cross_entropy(scores: mx.array, classes: mx.array) -> mx.array:
    """Weighted mean over pixels: the background counts less."""
    weights = mx.where(classes == 0, BACKGROUND_WEIGHT, 1.0)
    return nn.losses.cross_entropy(scores, classes, weights, reduction="sum") / weights.sum()


def loss_of(model: SegNet, images: mx.array, classes: mx.array) -> mx.array:
    """Loss on every pixel, plus that of the coarse scores against the classes in each cell."""
    scores, coarse = model.scores(images)
    count, height, width, _ = coarse.shape
    cell = classes.shape[1] // height
    coarse_classes = classes.reshape(count, height, cell, width, cell).max(axis=(2, 4))
    return cross_entropy(scores, classes) + COARSE_WEIGHT * cross_entropy(coarse, coarse_classes)


def train(decoder: str, seed: int, arguments: argparse.Namespace) -> Path:
    """Trains one network and returns the path of its weights."""
    mx.random.seed(seed)
    model = SegNet(CLASSES, decoder=decoder)
    weights = arguments.output / f"segnet-{decoder}-seed{seed}.safetensors"
    scenes = Scenes("train", size=32, digits=(1, 2), seed=seed)
    rate, warm_up = LEARNING_RATES[decoder], max(1, arguments.steps // 10)
    schedule = optim.join_schedules(
        [
            optim.linear_schedule(rate / warm_up, rate, warm_up),
            optim.cosine_decay(rate, max(1, arguments.steps - warm_up), end=1e-5),
        ],
        [warm_up],
    )
    # Without bias correction Adam's first steps are ten times too long for this schedule.
    optimizer = optim.AdamW(schedule, weight_decay=1e-4, bias_correction=True)
    step = nn.value_and_grad(model, loss_of)
    model.train()
    progress = tqdm(range(arguments.steps), desc=f"{decoder}, seed {seed}", unit="step")
    try:
        for number in progress:
            images, classes = scenes.batch(arguments.batch)
            loss, gradients = step(model, normalised(images), mx.array(classes))
            optimizer.update(model, gradients)
            mx.eval(loss, model.state, optimizer.state)
            progress.set_postfix(loss=f"{loss.item():.3f}")
            if number % SAVE_EVERY == SAVE_EVERY - 1:
                save(model, weights)
    except KeyboardInterrupt:
        progress.close()
        print(f"Stopped after {progress.n} of {arguments.steps} steps.", flush=True)
        save(model, weights)
        print(f"The weights so far are in {weights}.", flush=True)
        raise
    save(model, weights)
    return weights


def save(model: SegNet, path: Path) -> None:
    """Writes the weights in one go: whoever reads the file finds old weights or new, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name("partial-" + path.name)
    model.save_weights(str(partial))
    partial.replace(path)


def load(decoder: str, weights: Path) -> SegNet:
    """A trained network, ready to predict."""
    model = SegNet(CLASSES, decoder=decoder)
    model.load_weights(str(weights))
    model.eval()
    return model


def predict(model: SegNet, images: np.ndarray, batch: int = 25) -> np.ndarray:
    """The class of every pixel of images (N, H, W, 3)."""
    parts = []
    for start in range(0, len(images), batch):
        classes = mx.argmax(model(normalised(images[start : start + batch])), axis=-1)
        parts.append(np.array(classes))
    return np.concatenate(parts)


def evaluation_scenes(split: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The scenes that every network is measured on: larger and fuller than those of the training."""
    return Scenes(split, size=64, digits=(3, 6), seed=0).batch(count)


def print_table(results: dict[str, list[dict]]) -> None:
    """The test figures of each decoder, the mean over seeds."""

    def mean(decoder: str, *keys: str) -> float:
        values = []
        for run in results[decoder]:
            value = run["test"]
            for key in keys:
                value = value[key]
            values.append(value)
        return float(np.mean(values))

    rows = [(f"IoU {name}", ("iou", name)) for name in CLASS_NAMES]
    rows += [
        ("mean IoU", ("miou",)),
        ("boundary F-score", ("boundary_f_score",)),
        ("pixel accuracy", ("pixel_accuracy",)),
    ]
    seeds = len(next(iter(results.values())))
    print(f"\nTest scenes, {f'mean of {seeds} seeds' if seeds > 1 else '1 seed'}")
    print("".join([" " * 18, *(f"{decoder:>10}" for decoder in results)]))
    for name, keys in rows:
        print(f"{name:18}" + "".join(f"{mean(decoder, *keys):10.3f}" for decoder in results))
    for decoder, runs in results.items():
        if len(runs) > 1:
            each = ", ".join(f"{run['test']['miou']:.3f}" for run in runs)
            print(f"mean IoU of each seed, {decoder}: {each}")


def draw(
    models: dict[str, SegNet], images: np.ndarray, truth: np.ndarray, path: Path, count: int = 4
) -> None:
    """Scenes as rows: input, truth, each prediction, and where the indices of each stage point."""
    images, truth = images[:count], truth[:count]
    colours = ListedColormap(["#15151c", *plt.get_cmap("tab10").colors])
    columns = [("input", images), ("truth", truth)]
    columns += [(f"predicted: {name}", predict(model, images)) for name, model in models.items()]
    kept = next(iter(models.values())).kept_places(normalised(images))
    stages = [(f"kept by pool {n}", np.array(places)) for n, places in enumerate(kept, start=1)]

    figure, axes = plt.subplots(
        len(images),
        len(columns) + len(stages),
        figsize=(1.75 * (len(columns) + len(stages)), 1.75 * len(images) + 0.75),
        squeeze=False,
        layout="constrained",
    )
    for row, scene_axes in enumerate(axes):
        for axis, (title, pictures) in zip(scene_axes, [*columns, *stages], strict=True):
            options: dict = {"interpolation": "nearest"}
            if title.startswith("kept"):
                options |= {"cmap": "magma", "vmin": 0, "vmax": np.quantile(pictures, 0.995)}
            elif title != "input":
                options |= {"cmap": colours, "vmin": 0, "vmax": CLASSES - 1}
            axis.imshow(pictures[row], **options)
            axis.set_axis_off()
            if row == 0:
                axis.set_title(title, fontsize=11)
    legend = [Patch(color=colours(n), label=name) for n, name in enumerate(CLASS_NAMES)]
    figure.legend(handles=legend, loc="outside lower center", ncols=CLASSES, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> int:
    """Trains, evaluates and draws."""
    arguments = parse_arguments()
    started = time.perf_counter()
    decoders = DECODERS if arguments.compare else (arguments.decoder,)
    splits = {split: evaluation_scenes(split, arguments.scenes) for split in ("validation", "test")}
    results: dict[str, list[dict]] = {decoder: [] for decoder in decoders}
    models = {}
    for decoder in decoders:
        for seed in arguments.seeds:
            try:
                weights = train(decoder, seed, arguments)
            except KeyboardInterrupt:
                return 130
            model = load(decoder, weights)
            models.setdefault(decoder, model)
            run: dict = {"seed": seed, "weights": weights.name}
            for split, (images, truth) in splits.items():
                run[split] = figures(truth, predict(model, images), CLASS_NAMES)
            results[decoder].append(run)

    parameters = sum(v.size for _, v in tree_flatten(next(iter(models.values())).parameters()))
    print_table(results)
    report = {"steps": arguments.steps, "batch": arguments.batch, "parameters": parameters}
    (arguments.output / "figures.json").write_text(json.dumps(report | results, indent=2) + "\n")
    draw(models, *splits["test"], arguments.output / "segnet.png")
    names = ", ".join(sorted(path.name for path in arguments.output.iterdir()))
    print(f"\n{time.perf_counter() - started:.0f} s. In {arguments.output}/: {names}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
