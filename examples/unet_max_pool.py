"""Train the same small U-Net with the max pooling of mlx.nn and with that of mlx_unpool.

    python examples/unet_max_pool.py            150 steps of each (about a minute on 2 CPU cores)
    python examples/unet_max_pool.py --smoke    a few steps, in seconds, to check that it runs

Both models start with the same weights and are trained alternately on the same pictures. The pictures are
noisy discs, and the network labels each pixel as disc or background. The program prints the losses, which
agree up to rounding, and the time per step. It writes no files.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import pairwise

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from support.command_line import run_program

import mlx_unpool


class UNet(nn.Module):
    """A U-Net in one, two or three dimensions, without normalisation."""

    def __init__(self, dims: int, inputs: int, classes: int, channels: tuple[int, ...]) -> None:
        super().__init__()
        convolution = getattr(nn, f"Conv{dims}d")

        def block(inputs: int, outputs: int) -> nn.Sequential:
            first = convolution(inputs, outputs, 3, padding=1)
            second = convolution(outputs, outputs, 3, padding=1)
            return nn.Sequential(first, nn.ReLU(), second, nn.ReLU())

        self.down = [block(i, o) for i, o in zip((inputs, *channels), channels)]
        self.up = [block(low + high, high) for high, low in pairwise(channels)]
        self.pool = getattr(nn, f"MaxPool{dims}d")(2)
        self.upsample = nn.Upsample(2)
        self.classifier = convolution(channels[0], classes, 1)

    def __call__(self, x: mx.array) -> mx.array:
        skipped = []
        for block in self.down[:-1]:
            skipped.append(block(x))
            x = self.pool(skipped[-1])
        x = self.down[-1](x)
        for block in reversed(self.up):
            x = block(mx.concatenate([skipped.pop(), self.upsample(x)], axis=-1))
        return self.classifier(x)


def loss_of(model: nn.Module, images: mx.array, classes: mx.array) -> mx.array:
    """The mean loss over pixels."""
    return nn.losses.cross_entropy(model(images), classes, reduction="mean")


def training_step(model: nn.Module) -> Callable[[mx.array, mx.array], float]:
    """A function that takes one training step and returns the loss before the step."""
    optimizer = optim.Adam(1e-3)
    gradient_of = nn.value_and_grad(model, loss_of)

    def step(images: mx.array, classes: mx.array) -> float:
        loss, gradients = gradient_of(model, images, classes)
        optimizer.update(model, gradients)
        mx.eval(loss, model.state, optimizer.state)
        return loss.item()

    return step


def discs(count: int, size: int) -> tuple[mx.array, mx.array]:
    """Noisy pictures of one bright disc each, and the class of every pixel."""
    rows, columns = mx.meshgrid(mx.arange(size), mx.arange(size), indexing="ij")
    centre = mx.random.uniform(0.2 * size, 0.8 * size, (2, count, 1, 1))
    radius = mx.random.uniform(0.1 * size, 0.3 * size, (count, 1, 1))
    inside = (rows - centre[0]).square() + (columns - centre[1]).square() < radius.square()
    images = 0.5 * inside + mx.random.normal(inside.shape, scale=0.5)
    return images[..., None], inside.astype(mx.int32)


def main() -> int:
    """Run the program and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument(
        "--smoke", action="store_true", help="a few small steps, to check that it runs"
    )
    arguments = parser.parse_args()
    steps, batch, size = (4, 2, 16) if arguments.smoke else (arguments.steps, 8, 32)

    steppers = {}
    for name in ("mlx.nn", "mlx_unpool"):
        mx.random.seed(0)
        model = UNet(2, 1, 2, (8, 16, 32))
        if name == "mlx_unpool":
            model = mlx_unpool.replace_max_pools(model)
        steppers[name] = training_step(model)
    seconds: dict[str, list[float]] = {name: [] for name in steppers}
    print("step   loss, mlx.nn   loss, mlx_unpool")
    for number in range(1, steps + 1):
        images, classes = discs(batch, size)
        mx.eval(images, classes)
        losses = []
        for name, step in steppers.items():
            start = time.perf_counter()
            losses.append(step(images, classes))
            seconds[name].append(time.perf_counter() - start)
        if number % max(steps // 10, 1) == 0:
            print(f"{number:4}   {losses[0]:12.5f}   {losses[1]:16.5f}", flush=True)
    theirs, ours = (1e3 * statistics.median(times) for times in seconds.values())
    print(f"Median time of a step: mlx.nn {theirs:.1f} ms, mlx_unpool {ours:.1f} ms.")
    return 0


if __name__ == "__main__":
    run_program(main)
