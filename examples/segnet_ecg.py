"""Train a one-dimensional SegNet to find the waves of heartbeats in noisy electrocardiograms.

    python examples/segnet_ecg.py                     train, evaluate, draw (a few minutes on 2 CPU cores)
    python examples/segnet_ecg.py --decoder nearest   the same with nearest-neighbour upsampling
    python examples/segnet_ecg.py --smoke             a few steps, in seconds, to check that everything runs

The electrocardiogram comes with PyWavelets. It has three heartbeats: one for training, one for validation and
one for testing. Recordings are simulated from them: stretched and scaled, with drift and noise added. This
demonstrates the 1-D layers; a detector for patients would need data from many people. The program
writes the weights (safetensors), the metrics (JSON) and a picture into the folder --output.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from support.command_line import run_program
from support.drawing import add_legend, save
from support.ecg import CLASS_NAMES, COLOURS, SAMPLES, recordings, training_batches
from support.training import adamw, parse_options, save_weights, train

import matplotlib.pyplot as plt
import mlx.core as mx
import mlx.nn as nn
import numpy as np
from matplotlib.colors import to_rgba_array
from mlx_unpool_zoo.metrics import class_iou
from mlx_unpool_zoo.segnet import DECODERS, SegNet

LEARNING_RATE = 0.01


def loss_of(model: SegNet, signals: mx.array, classes: mx.array) -> mx.array:
    """The mean loss over samples."""
    return nn.losses.cross_entropy(model(signals), classes, reduction="mean")


def draw(signals: np.ndarray, truth: np.ndarray, predicted: np.ndarray, path: Path) -> None:
    """Draw one row per recording, with the true classes above the signal and the predicted ones below."""
    colours = to_rgba_array(COLOURS)
    size = 10, 2.2 * len(signals) + 0.6
    figure, axes = plt.subplots(len(signals), 1, figsize=size, layout="constrained")
    for axis, signal, *strips in zip(axes, signals, truth, predicted):
        axis.plot(signal, color="0.5", linewidth=0.8)
        low, high = signal.min() - 0.1, signal.max() + 0.1
        for classes, bottom in zip(strips, (high, low - 0.25)):
            area = (-0.5, SAMPLES - 0.5, bottom, bottom + 0.25)
            axis.imshow(colours[classes][None], extent=area, aspect="auto", interpolation="nearest")
        axis.text(-5, high + 0.12, "truth", ha="right", va="center")
        axis.text(-5, low - 0.12, "predicted", ha="right", va="center")
        axis.set(xlim=(0, SAMPLES), ylim=(low - 0.3, high + 0.3), yticks=[])
        axis.spines[:].set_visible(False)
        axis.set_xticks([])
    axes[-1].set_xlabel("1,000 samples, 360 per second")
    add_legend(figure, dict(zip(CLASS_NAMES[1:], COLOURS[1:])), columns=3)
    save(figure, path)


def main() -> int:
    """Run the program and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--decoder", choices=DECODERS, default="unpool", help="how to upsample")
    arguments = parse_options(parser, 900, 8, "demo/ecg")

    started = time.perf_counter()
    mx.random.seed(arguments.seed)
    model = SegNet(
        len(CLASS_NAMES),
        channels=(12, 16, 24, 32, 32),
        convolutions=(1, 1, 2, 2, 2),
        inputs=1,
        dims=1,
        decoder=arguments.decoder,
        coarse=False,
    )
    batches = training_batches(arguments.batch, arguments.seed)
    decoder, output, steps = arguments.decoder, arguments.output, arguments.steps
    checkpoint = output / f"checkpoint-{decoder}.safetensors"
    train(
        model,
        adamw(LEARNING_RATE, steps),
        loss_of,
        batches,
        steps,
        checkpoint,
        settings={name: getattr(arguments, name) for name in ("steps", "batch", "seed")},
        save_every=arguments.save_every,
        seed=arguments.seed,
        resume=arguments.resume,
        description=decoder,
    )
    if mx.distributed.init().rank() > 0:
        return 0
    save_weights(output / f"segnet-{decoder}.safetensors", model)
    model.eval()
    report = {name: getattr(arguments, name) for name in ("steps", "batch", "decoder")}
    for number, split in enumerate(("validation", "test")):
        signals, truth = recordings(split, 200, np.random.default_rng([1, number]))
        predicted = np.array(mx.argmax(model(mx.array(signals[..., None])), axis=-1))
        iou = class_iou(truth, predicted, len(CLASS_NAMES))
        report[split] = {
            "iou": dict(zip(CLASS_NAMES, iou.tolist(), strict=True)),
            "miou": float(iou.mean()),
            "accuracy": float((truth == predicted).mean()),
        }
    print("\n200 recordings of the test beat")
    for name, value in report["test"]["iou"].items():
        print(f"{'IoU ' + name:18}{value:8.3f}")
    print(f"{'mean IoU':18}{report['test']['miou']:8.3f}")
    draw(signals[:3], truth[:3], predicted[:3], output / "ecg.png")
    (output / "metrics.json").write_text(json.dumps(report, indent=2) + "\n")
    checkpoint.unlink()
    names = ", ".join(sorted(path.name for path in output.iterdir()))
    print(f"\n{time.perf_counter() - started:.0f} s. Files in {output}/: {names}")
    return 0


if __name__ == "__main__":
    run_program(main)
