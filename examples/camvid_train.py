"""Train an ENet or a SegNet (VGG-16, five stages) on street scenes in the layout of CamVid.

    python examples/camvid_train.py                   drawn streets, an ENet (a few minutes on 2 CPU cores)
    python examples/camvid_train.py --model segnet    the same streets, a SegNet with 1/8 of the channels
    python examples/camvid_train.py --data CamVid --start start --epochs 200 --learning-rate 1e-3
    mlx.launch -n 2 --backend ring -- python examples/camvid_train.py    divide each batch between 2 processes

Without --data the program draws street scenes and trains on them. It writes the model (a folder of the zoo),
the results (JSON) and a picture into the folder --output. With --resume an interrupted run continues and ends
with the same result. A run that was killed loses less than one epoch.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import mlx.core as mx
import mlx.nn as nn
import mlx_unpool_zoo as zoo
import numpy as np
from mlx.utils import tree_flatten
from support import segmenter as segmenters
from support.camvid import CLASS_NAMES, UNLABELLED, CamVid
from support.command_line import run_program
from support.drawing import class_legend, frame, save, show_classes
from support.files import check_output_folder
from support.metrics import class_iou
from support.street_scenes import write_streets
from support.training import adamw, add_options, train, weighted_cross_entropy


def parse_arguments() -> argparse.Namespace:
    """Parse and check the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, help="folder of CamVid (default: drawn streets)")
    parser.add_argument("--model", choices=("segnet", "enet"), default="enet")
    parser.add_argument(
        "--width", type=float, default=0.125, help="factor for SegNet's channels (default: 1/8)"
    )
    parser.add_argument(
        "--start", type=Path, help="folder of a model to start from, instead of --model"
    )
    parser.add_argument(
        "--epochs", type=int, default=16, help="passes over the training data (default: 16)"
    )
    parser.add_argument(
        "--learning-rate",
        type=float,
        default=0.01,
        help="peak learning rate of AdamW (default: 0.01)",
    )
    add_options(parser, 4, "demo/streets")
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.epochs = 1
    if min(arguments.epochs, arguments.batch) < 1 or not 0 < arguments.width <= 1:
        parser.error("--epochs and --batch must be 1 or more, --width above 0 and up to 1")
    check_output_folder("--output", arguments.output)
    return arguments


def training_batches(
    data: CamVid, count: int, model: zoo.Model, seed: int
) -> Iterator[tuple[mx.array, mx.array]]:
    """Endless batches: every picture once per epoch, in random order, half of them mirrored.

    Pictures are cropped to a size that the network supports.
    """
    random = np.random.default_rng(seed)
    while True:
        order = random.permutation(len(data))
        for chosen in np.split(order, range(count, len(order), count))[: len(order) // count]:
            parts = []
            for number in chosen:
                picture, classes = data[number]
                multiple = model.about.input["multiple_of"]
                height, width = (n // multiple * multiple for n in classes.shape)
                step = random.choice((1, -1))
                parts.append([a[:height, :width][:, ::step] for a in (picture, classes)])
            pictures, classes = (np.stack(part) for part in zip(*parts, strict=True))
            yield model.preprocess(pictures), mx.array(classes.astype(np.int32))


def class_weights(data: CamVid) -> np.ndarray:
    """The loss weight of each class: ``1 / ln(1.02 + frequency)`` as in the ENet paper, 0 for unlabelled."""
    weights = 1 / np.log(1.02 + data.class_shares())
    weights[UNLABELLED] = 0
    return weights


def metrics_of(model: zoo.Model, data: CamVid) -> dict:
    """Intersection over union of each class, its mean, and the pixel accuracy, over labelled pixels."""
    truth, predicted = [], []
    for number in range(len(data)):
        picture, classes = data[number]
        labelled = classes != UNLABELLED
        truth.append(classes[labelled])
        predicted.append(model.predict(picture)[labelled])
    all_truth, all_predicted = np.concatenate(truth), np.concatenate(predicted)
    iou = class_iou(all_truth, all_predicted, UNLABELLED)
    return {
        "iou": {name: None if np.isnan(v) else float(v) for name, v in zip(CLASS_NAMES, iou)},
        "miou": float(np.nanmean(iou)),
        "pixel_accuracy": float((all_truth == all_predicted).mean()),
    }


def draw(model: zoo.Model, data: CamVid, path: Path, count: int = 4) -> None:
    """Draw one row per picture: input, truth, prediction."""
    count = min(count, len(data))
    figure, axes = plt.subplots(
        count, 3, figsize=(11, 2.8 * count + 0.8), squeeze=False, layout="constrained"
    )
    for number, row in enumerate(axes):
        picture, classes = data[number]
        row[0].imshow(picture)
        show_classes(row[1], classes, model.about.classes)
        show_classes(row[2], model.predict(picture), model.about.classes)
        for axis, title in zip(row, ("input", "truth", f"predicted: {model.model_type}")):
            frame(axis)
            if number == 0:
                axis.set_title(title)
    class_legend(figure, model.about.classes)
    save(figure, path)


def main() -> int:
    """Run the program and return the exit status."""
    arguments = parse_arguments()
    started = time.perf_counter()
    folder = arguments.data
    if not folder:
        folder = arguments.output / "data"
        if arguments.smoke:
            write_streets(folder, {"train": 4, "val": 2, "test": 2}, size=(70, 53))
        else:
            write_streets(folder)
    splits = {split: CamVid(folder, split) for split in ("train", "val", "test")}
    mx.random.seed(arguments.seed)
    model = (
        segmenters.load(arguments.start)
        if arguments.start
        else segmenters.for_camvid(arguments.model, arguments.width)
    )
    weights = mx.array(class_weights(splits["train"]).astype(np.float32))

    def loss_of(model: nn.Module, inputs: mx.array, classes: mx.array) -> mx.array:
        return weighted_cross_entropy(model(inputs), classes, weights[classes])

    epoch = len(splits["train"]) // arguments.batch
    if epoch == 0:
        raise ValueError(
            f"--batch must be at most the number of training pictures, {len(splits['train'])}, but got "
            f"{arguments.batch}."
        )
    steps = epoch * arguments.epochs
    checkpoint = arguments.output / f"checkpoint-{model.model_type}.safetensors"
    try:
        train(
            model,
            adamw(arguments.learning_rate, steps),
            loss_of,
            training_batches(splits["train"], arguments.batch, model, arguments.seed),
            steps,
            checkpoint,
            settings={
                name: getattr(arguments, name)
                for name in ("epochs", "batch", "seed", "width", "learning_rate")
            },
            save_every=epoch,
            seed=arguments.seed,
            resume=arguments.resume,
            description=model.model_type,
        )
    except KeyboardInterrupt:
        return 130
    if mx.distributed.init().rank() > 0:
        return 0
    model.about.source = f"trained by camvid_train.py on {folder.name}"
    model.save_pretrained(arguments.output / model.model_type)
    report: dict[str, Any] = {split: metrics_of(model, splits[split]) for split in ("val", "test")}
    test = report["test"]
    rows = {f"IoU {name}": value for name, value in test["iou"].items() if value is not None}
    rows |= {"mean IoU": test["miou"], "pixel accuracy": test["pixel_accuracy"]}
    print("\n".join(f"{name:18}{value:8.3f}" for name, value in rows.items()))
    parameters = sum(v.size for v in dict(tree_flatten(model.trainable_parameters())).values())
    report |= {"model": model.model_type, "parameters": parameters, "steps": steps}
    (arguments.output / f"{model.model_type}.json").write_text(json.dumps(report, indent=2) + "\n")
    draw(model, splits["test"], arguments.output / f"{model.model_type}.png")
    checkpoint.unlink()
    names = ", ".join(sorted(path.name for path in arguments.output.iterdir()))
    print(f"{time.perf_counter() - started:.0f} s. Files in {arguments.output}/: {names}")
    return 0


if __name__ == "__main__":
    run_program(main)
