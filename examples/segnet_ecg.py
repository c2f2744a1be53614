"""Train a one-dimensional SegNet to find the waves of heartbeats in noisy electrocardiograms.

    python examples/segnet_ecg.py                     train, evaluate, draw (a few minutes on 2 CPU cores)
    python examples/segnet_ecg.py --decoder nearest   the same with nearest-neighbour upsampling
    python examples/segnet_ecg.py --smoke             a few steps, in seconds, to check that everything runs

The electrocardiogram comes with PyWavelets. It has three heartbeats: one for training, one for validation and
one for testing. Recordings are simulated from them: stretched and scaled, with drift and noise added. This
demonstrates the 1-D layers; a detector for patients would need data from many people. The program
writes the weights (safetensors), the metrics (JSON) and a figure into the folder --output.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

from support.command_line import run_program
from support.drawing import add_legend, save
from support.training import adamw, parse_options, save_weights, train

import matplotlib.pyplot as plt
import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pywt.data
from matplotlib.colors import to_rgba_array
from mlx_unpool_zoo.metrics import SCORES, segmentation_metrics
from mlx_unpool_zoo.segnet import DECODERS, SegNet

LEARNING_RATE = 0.01
CLASS_NAMES = ("between", "P wave", "QRS complex", "T wave")
COLOURS = ("none", "tab:blue", "tab:red", "tab:green")
# The samples of each beat, and of its P wave, QRS complex and T wave, found by inspection of the signal.
BEATS = {
    "train": (40, 350, (128, 160), (180, 208), (255, 330)),
    "validation": (368, 678, (455, 490), (505, 535), (585, 655)),
    "test": (698, 1008, (785, 817), (840, 868), (925, 985)),
}
SAMPLES = 1000  # samples per recording


def beat(split: str) -> tuple[np.ndarray, np.ndarray]:
    """The heartbeat of a split, its ends at 0 and its peak at about 1, and the class of each sample."""
    start, stop, *waves = BEATS[split]
    trace = pywt.data.ecg()[start:stop].astype(float)
    trace -= np.linspace(trace[0], trace[-1], len(trace))
    classes = np.zeros(len(trace), np.int32)
    for number, (first, last) in enumerate(waves, start=1):
        classes[first - start : last - start] = number
    return trace / trace.max(), classes


def recordings(split: str, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Recordings (count, SAMPLES) of a split's beat with varying rate and amplitude, and their classes."""
    trace, classes = beat(split)
    signals = np.zeros((count, SAMPLES), np.float32)
    truth = np.zeros((count, SAMPLES), np.int32)
    for signal, labels in zip(signals, truth):
        start = -int(random.integers(180))
        while start < SAMPLES:
            length = int(len(trace) * random.uniform(0.6, 1.4))
            at = np.linspace(0, len(trace) - 1, length)
            drawn = random.uniform(0.7, 1.3) * np.interp(at, np.arange(len(trace)), trace)
            inside = slice(max(start, 0), min(start + length, SAMPLES))
            part = slice(inside.start - start, inside.stop - start)
            signal[inside], labels[inside] = drawn[part], classes[at.round().astype(int)][part]
            start += length + int(random.integers(0, 120))
        wave = np.arange(SAMPLES) / SAMPLES * random.uniform(2, 12) + random.uniform(0, 6)
        signal += random.uniform(0, 0.3) * np.sin(wave) + random.normal(0, 0.08, SAMPLES)
    return signals, truth


def training_batches(count: int, seed: int) -> Iterator[tuple[mx.array, mx.array]]:
    """Endless batches of recordings; the same seed gives the same batches."""
    random = np.random.default_rng(seed)
    while True:
        signals, truth = recordings("train", count, random)
        yield mx.array(signals[..., None]), mx.array(truth)


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
    parser.add_argument("--decoder", choices=DECODERS, default="unpool", help="decoder (default: unpool)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and data (default: 0)")
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
        report[split] = segmentation_metrics(truth[:, None], predicted[:, None], CLASS_NAMES)
    print("\n200 recordings of the test beat")
    for name, value in report["test"]["iou"].items():
        print(f"{'IoU ' + name:18}{value:8.3f}")
    for key, name in SCORES.items():
        print(f"{name:18}{report['test'][key]:8.3f}")
    draw(signals[:3], truth[:3], predicted[:3], output / "ecg.png")
    (output / "metrics.json").write_text(json.dumps(report, indent=2) + "\n")
    checkpoint.unlink()
    names = ", ".join(sorted(path.name for path in output.iterdir()))
    print(f"\n{time.perf_counter() - started:.0f} s. Files in {output}/: {names}")
    return 0


if __name__ == "__main__":
    run_program(main)
