"""A run: a network trained on images, the best model of all checkpoints, its metrics and a figure.

The folder of a run contains the folder of the model, called after its type, and the files below.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from .batches import SPLITS, Pictures
from .drawing import draw_rows
from .files import write_file
from .metrics import SCORES
from .model import Model, from_pretrained
from .saving import WEIGHTS
from .training import Run, adamw, train, weighted_cross_entropy

CHECKPOINT, LOG, METRICS = "checkpoint.safetensors", "log.csv", "metrics.json"
# In the order in which they are removed: a run with metrics is finished.
RUN_FILES = (METRICS, CHECKPOINT, LOG)
COARSE_WEIGHT = 0.5  # of the loss of the coarse scores


def trained(
    model: Model,
    splits: Mapping[str, Pictures],
    folder: Path,
    settings: Mapping[str, Any],
    *,
    steps: int,
    save_every: int,
    resume: bool,
    name: str = "",
) -> tuple[Model, dict[str, Any]]:
    """Train a model, and write its best version, the metrics and the log into a folder.

    Args:
        model: The model to train.
        splits: The images for training and validation and, if there are any, for a test.
        folder: The folder of the run.
        settings: A result of :func:`settings_of`, with ``batch``, ``crop``, ``learning_rate`` and
            ``seed``.
        steps: Training steps, including those of the run that this one resumes.
        save_every: Steps between checkpoints.
        resume: Whether to continue from the checkpoint in the folder.
        name: The name of the run in its output. Default: the type of the model.

    Returns:
        The best model, and its metrics for validation and test.
    """
    data = splits["train"]
    best = Best(model, splits["validation"], folder / model.model_type)
    run = Run(
        name=name or model.model_type,
        steps=steps,
        checkpoint=folder / CHECKPOINT,
        log=folder / LOG,
        settings=dict(settings),
        at_checkpoint=best.at_checkpoint,
        save_every=save_every,
        seed=settings["seed"],
        resume=resume,
    )
    batches = data.batches(model, settings["batch"], settings["seed"], settings["crop"])
    train(model, adamw(settings["learning_rate"], steps), loss_of, batches, run)
    model = from_pretrained(best.folder)
    report = {"validation": best.metrics}
    for split in SPLITS[1:]:
        if split in splits and not report.get(split):
            report[split] = splits[split].metrics_of(model)
    write_metrics(folder / METRICS, settings, splits, report)
    return model, report


def settings_of(options: Mapping[str, Any], splits: Mapping[str, Pictures]) -> dict[str, Any]:
    """What a resumed run must have in common with its predecessor: options, classes and images."""
    classes = splits["train"].classes
    return {
        **options,
        "classes": [entry["name"] for entry in classes],
        "labels": [entry.get("label") for entry in classes],
        "data": splits["train"].summary(),
        "validation": splits["validation"].summary(),
    }


def loss_of(model: Model, inputs: mx.array, classes: mx.array, weights: mx.array) -> mx.array:
    """The weighted mean loss over pixels, and that of coarse scores, if the model has them.

    A coarse score is for a window of pixels. Its class is the highest one in the window.
    """
    if "coarse_classifier" not in model:
        return weighted_cross_entropy(model(inputs), classes, weights)
    scores, coarse = model.scores(inputs)
    count, height, width, _ = coarse.shape
    side = 2 ** len(model.encoder)

    def highest(values: mx.array) -> mx.array:
        values = values[:, : height * side, : width * side]
        return values.reshape(count, height, side, width, side).max(axis=(2, 4))

    counted = mx.where(weights > 0, classes, 0)
    coarse_loss = weighted_cross_entropy(coarse, highest(counted), highest(weights))
    return weighted_cross_entropy(scores, classes, weights) + COARSE_WEIGHT * coarse_loss


class Best:
    """Keeps the model with the highest validation mean IoU of a run in a folder.

    ``metrics`` are those of this model on the validation images. They are empty if the process
    before a resumed run has computed them.
    """

    def __init__(self, model: Model, data: Pictures, folder: Path) -> None:
        self.model, self.data, self.folder = model, data, folder
        self.metrics: dict[str, Any] = {}

    def at_checkpoint(self, evaluates: bool, best: float) -> tuple[str, float]:
        """Save the model if it is better, or the first; see :class:`.training.Run`."""
        exists = (self.folder / WEIGHTS).exists()
        if not evaluates:
            return self.without_evaluation(exists and best > -math.inf), math.nan
        found = self.data.metrics_of(self.model)
        if found["miou"] is None:  # then the folder has the last model
            self.model.save_pretrained(self.folder)
            return ", validation mean IoU -", math.nan
        score = float(np.float32(found["miou"]))  # as in the log
        if exists and score <= best:
            return f", validation mean IoU {score:.3f}", score
        self.model.save_pretrained(self.folder)
        self.metrics = found
        return f", validation mean IoU {score:.3f}, the best so far", score

    def without_evaluation(self, has_best: bool) -> str:
        """Save the model if there is no better one in the folder."""
        if has_best:
            return f". {self.folder}/ has the best model."
        self.model.save_pretrained(self.folder)
        return f". {self.folder}/ has this model."


def remove_files(folder: Path) -> None:
    """Remove the files of a run, except its model, which the next one replaces."""
    for name in RUN_FILES:
        (folder / name).unlink(missing_ok=True)


def write_metrics(
    path: Path,
    settings: Mapping[str, Any],
    splits: Mapping[str, Pictures],
    report: Mapping[str, Any],
) -> None:
    """Write the metrics of a finished run, its settings, and what was read of each split."""
    content: dict[str, Any] = {"settings": settings}
    content["read"] = {name: data.record.report() for name, data in splits.items() if data.record}
    if splits["train"].pairs:
        content["train"] = splits["train"].counted()
    write_json(path, content | dict(report))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file in one step."""
    write_file(path, json.dumps(content, indent=2).encode())


def print_report(report: Mapping[str, Any]) -> None:
    """Print the metrics of each split, or of each decoder, in a column."""
    print_row("", report)
    names = dict.fromkeys(name for found in report.values() for name in found["iou"])
    for name in names:
        print_row(f"IoU {name}", [shown(found["iou"].get(name)) for found in report.values()])
    for key, name in SCORES.items():
        print_row(name, [shown(found[key]) for found in report.values()])


def print_row(name: str, values: Any) -> None:
    """Print a row of a table."""
    print(f"{name:22}" + "".join(f"{value:>12}" for value in values))


def shown(score: float | None) -> str:
    """A score, or "-" if there is none."""
    return "-" if score is None or math.isnan(score) else f"{score:.3f}"


def draw_predictions(models: Mapping[str, Model], data: Pictures, path: Path) -> None:
    """Draw the first images with their masks and the classes that each model predicts."""
    shown_images = [image for image, _ in data.pairs[:4]]
    columns = {"image": shown_images, "mask": [mask for _, mask in data.pairs[:4]]}
    for title, model in models.items():
        columns[title] = [model.predict(image) for image in shown_images]
    draw_rows(columns, data.classes, path)
