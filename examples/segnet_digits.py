"""Train a SegNet to find handwritten digits on photographs, with unpooling and with another decoder.

    python examples/segnet_digits.py                  train both, evaluate, draw (a minute or two on a CPU)
    python examples/segnet_digits.py --compare        train all four decoders
    python examples/segnet_digits.py --smoke          a few steps, in seconds, to check that everything runs
    python examples/segnet_digits.py --resume         continue an interrupted run, with the same result
    mlx.launch -n 2 --backend ring -- python examples/segnet_digits.py   divide each batch between 2 processes

The program writes the weights (safetensors), the metrics (JSON) and a figure into the folder --output: the
figure for the first time when the first network is trained, and again after each other network.
For the metrics and the figure it loads the weights from the file again. If there are several
processes, only the first one writes. The checkpoint of each run is removed at the end.
"""

import argparse
import json
import time
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from pathlib import Path

from common.command_line import run_program
from common.digit_scenes import CLASS_NAMES, Scenes
from common.drawing import add_legend, frame, save
from common.files import save_arrays
from common.training import adamw, parse_options, train, weighted_cross_entropy

import matplotlib.pyplot as plt
import mlx.core as mx
import numpy as np
from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from mlx.utils import tree_flatten
from mlx_unpool_zoo.metrics import SCORES, segmentation_metrics
from mlx_unpool_zoo.segnet import DECODERS, NORMS, SegNet

CLASSES = len(CLASS_NAMES)
BACKGROUND_WEIGHT = 0.2  # most pixels are background
SECONDS_PER_STEP = 0.12  # roughly, on a CPU
COARSE_WEIGHT = 0.5  # weight of the auxiliary loss on the last pooling stage
SHOWN = ("unpool", "nearest")  # the decoders of a run without options
# The best of 0.005, 0.01 and 0.02 for each decoder, on the validation scenes of seed 0.
LEARNING_RATES = {"unpool": 0.01, "nearest": 0.005, "bilinear": 0.005, "skip": 0.02}


def parse_arguments() -> argparse.Namespace:
    """Parse and check the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--decoder", choices=DECODERS, help="train only this decoder")
    add("--compare", action="store_true", help="train all four decoders")
    add("--seeds", type=int, nargs="+", default=[0], help="one run per seed")
    add("--norm", choices=NORMS, default="batch", help="normalise over a batch (default) or each image")
    add("--scenes", type=int, default=100, help="scenes to evaluate on (default: 100)")
    arguments = parse_options(parser, 300, 8, "demo", smoke=6)
    if arguments.smoke:
        arguments.scenes = 5
    if arguments.scenes < 1:
        parser.error("--scenes must be 1 or more")
    return arguments


def normalised(images: np.ndarray) -> mx.array:
    """Images from 0 to 1 as the input of the network, centred on 0."""
    return mx.array((images - 0.45) * 4)


def cross_entropy(scores: mx.array, classes: mx.array) -> mx.array:
    """The weighted mean loss over pixels; the background has a smaller weight."""
    weights = mx.where(classes == 0, BACKGROUND_WEIGHT, 1.0)
    return weighted_cross_entropy(scores, classes, weights)


def loss_of(model: SegNet, images: mx.array, classes: mx.array) -> mx.array:
    """The loss of all pixels, plus the loss of the coarse scores for the highest class in each window."""
    scores, coarse = model.scores(images)
    count, height, width, _ = coarse.shape
    block = classes.shape[1] // height
    coarse_classes = classes.reshape(count, height, block, width, block).max(axis=(2, 4))
    return cross_entropy(scores, classes) + COARSE_WEIGHT * cross_entropy(coarse, coarse_classes)


def training_batches(seed: int, count: int, size: int = 32) -> Iterator[tuple[mx.array, mx.array]]:
    """Endless batches of images and classes; the same seed gives the same batches."""
    scenes = Scenes("train", size, digits=(1, 2), seed=seed)
    while True:
        images, classes = scenes.batch(count)
        yield normalised(images), mx.array(classes)


def path_of(kind: str, decoder: str, seed: int, output: Path) -> Path:
    """The path of the weights (``"segnet"``) or of the ``"checkpoint"`` of a run."""
    return output / f"{kind}-{decoder}-seed{seed}.safetensors"


def announce(decoders: tuple[str, ...], arguments: argparse.Namespace) -> None:
    """Print what will be trained, on which data, and roughly how long it takes."""
    runs = len(decoders) * len(arguments.seeds)
    seconds = max(10, round(runs * SECONDS_PER_STEP * arguments.steps, -1))
    print(
        f"Training a SegNet to label every pixel of an image as a digit (0, 1, 4 or 7) or background.\n"
        f"  data      handwritten digits on photographs, 32 x 32 pixels (tests: 64 x 64), from scikit-learn\n"
        f"  decoder   {', '.join(decoders)}\n"
        f"  training  {arguments.steps} steps of {arguments.batch} scenes"
        f"{f', {runs} times' if runs > 1 else ''}: about {seconds:.0f} s on a CPU\n"
        f"  output    {arguments.output}/\n"
        "Ctrl-C stops after the current step and saves a checkpoint.",
        flush=True,
    )


def train_segnet(decoder: str, seed: int, arguments: argparse.Namespace) -> None:
    """Train one network and write its weights."""
    mx.random.seed(seed)
    model = SegNet(CLASSES, decoder=decoder, decoder_kernel=3, norm=arguments.norm)
    optimizer = adamw(LEARNING_RATES[decoder], arguments.steps)
    weights = path_of("segnet", decoder, seed, arguments.output)
    checkpoint = path_of("checkpoint", decoder, seed, arguments.output)
    first = mx.distributed.init().rank() == 0
    resume = arguments.resume and (checkpoint.exists() or not first)
    if first and resume != arguments.resume:
        print(f"{checkpoint} does not exist: this run starts from scratch.", flush=True)
    try:
        train(
            model,
            optimizer,
            loss_of,
            training_batches(seed, arguments.batch),
            arguments.steps,
            checkpoint,
            settings={name: getattr(arguments, name) for name in ("steps", "batch", "norm")},
            save_every=arguments.save_every,
            resume=resume,
            description=f"{decoder}, seed {seed}",
        )
    except KeyboardInterrupt:
        if first:
            save_arrays(weights, dict(tree_flatten(model.parameters())))
            print(f"The weights so far are in {weights}.", flush=True)
        raise
    if first:
        save_arrays(weights, dict(tree_flatten(model.parameters())))


def load(decoder: str, weights: Path, norm: str = "batch") -> SegNet:
    """A trained network, ready to predict."""
    model = SegNet(CLASSES, decoder=decoder, decoder_kernel=3, norm=norm)
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
    """The scenes for evaluation: larger and with more digits than the training scenes."""
    return Scenes(split, size=64, digits=(3, 6), seed=0).batch(count)


def print_table(results: dict[str, list[dict]]) -> None:
    """Print the test results of each decoder, averaged over the seeds."""

    def mean(decoder: str, *keys: str) -> float:
        return float(np.mean([reduce(getitem, keys, run["test"]) for run in results[decoder]]))

    rows: list[tuple[str, tuple[str, ...]]] = [(f"IoU {name}", ("iou", name)) for name in CLASS_NAMES]
    rows += [(name, (key,)) for key, name in SCORES.items()]
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
    """Draw one row per scene: input, truth, each prediction, and the values at the indices of each stage."""
    images, truth = images[:count], truth[:count]
    colours = ListedColormap(["#15151c", *map(colormaps["tab10"], range(CLASSES - 1))])
    columns = [("input", images), ("truth", truth)]
    columns += [(f"predicted: {name}", predict(model, images)) for name, model in models.items()]
    kept = next(iter(models.values())).kept_positions(normalised(images))
    stages = [(f"kept by pool {n}", np.array(positions)) for n, positions in enumerate(kept, start=1)]

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
            frame(axis)
            if row == 0:
                axis.set_title(title, fontsize=11)
    add_legend(figure, {name: colours(n) for n, name in enumerate(CLASS_NAMES)}, columns=CLASSES)
    save(figure, path, dpi=110)


def main() -> int:
    """Run the program and return the exit status."""
    arguments = parse_arguments()
    started = time.perf_counter()
    decoders = DECODERS if arguments.compare else SHOWN
    if arguments.decoder:
        decoders = (arguments.decoder,)
    first = mx.distributed.init().rank() == 0
    if first:
        announce(decoders, arguments)
    runs = [(decoder, seed) for seed in arguments.seeds for decoder in decoders]
    if (
        first
        and arguments.resume
        and not any(path_of("checkpoint", *r, arguments.output).exists() for r in runs)
    ):
        raise ValueError(f"There is nothing to resume: {arguments.output} has no checkpoint of these runs.")
    splits = {split: evaluation_scenes(split, arguments.scenes) for split in ("validation", "test")}
    results: dict[str, list[dict]] = {decoder: [] for decoder in decoders}
    models: dict[str, SegNet] = {}
    for decoder, seed in runs:
        train_segnet(decoder, seed, arguments)
        if not first:
            continue
        weights = path_of("segnet", decoder, seed, arguments.output)
        model = load(decoder, weights, arguments.norm)
        run: dict = {"seed": seed, "weights": weights.name}
        for split, (images, truth) in splits.items():
            run[split] = segmentation_metrics(truth, predict(model, images), CLASS_NAMES)
        results[decoder].append(run)
        if decoder not in models:
            models[decoder] = model
            draw(models, *splits["test"], arguments.output / "segnet.png")
            print(f"The figure is in {arguments.output / 'segnet.png'}.", flush=True)
    if not first:
        return 0

    parameters = {
        name: sum(v.size for v in dict(tree_flatten(model.trainable_parameters())).values())
        for name, model in models.items()
    }
    print_table(results)
    report = {"steps": arguments.steps, "batch": arguments.batch, "parameters": parameters}
    (arguments.output / "metrics.json").write_text(json.dumps(report | results, indent=2) + "\n")
    for decoder, seed in runs:
        path_of("checkpoint", decoder, seed, arguments.output).unlink()
    written = [path_of("segnet", *run, arguments.output) for run in runs]
    written += [arguments.output / "metrics.json", arguments.output / "segnet.png"]
    print(f"\nDone in {time.perf_counter() - started:.0f} s.")
    print("Wrote " + ", ".join(map(str, written)))
    return 0


if __name__ == "__main__":
    run_program(main)
