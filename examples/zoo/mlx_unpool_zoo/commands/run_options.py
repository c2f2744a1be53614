"""The options of the programs that train."""

import argparse
import math
from argparse import Namespace
from pathlib import Path

import mlx.core as mx

from .outputs import check_output_folder


def add_run_options(
    parser: argparse.ArgumentParser,
    *,
    steps: int,
    batch: int,
    learning_rate: float | None,
    output: Path,
    save_every: int = 100,
) -> None:
    """Add the options of every program that trains, with some of their defaults."""
    parser.epilog = "Ctrl-C stops after the current step; --resume continues from there."
    add = parser.add_argument
    add("--steps", type=int, default=steps, help=f"training steps (default: {steps})")
    add("--batch", type=int, default=batch, help=f"images per step (default: {batch})")
    rate = learning_rate or "one for each decoder"
    add(
        "--learning-rate",
        type=float,
        default=learning_rate,
        help=f"peak learning rate (default: {rate})",
    )
    every = f"steps between checkpoints, and evaluations (default: {save_every})"
    add("--save-every", type=int, default=save_every, help=every)
    add("--output", type=Path, default=output, help=f"output folder (default: {output})")
    add("--resume", action="store_true", help="continue a run, or an error if there is none")
    add(
        "--overwrite",
        action="store_true",
        help="replace earlier results in --output (without --resume)",
    )
    add("--smoke", action="store_true", help="a few steps only, to check that everything runs")


def check_run_options(parser: argparse.ArgumentParser, arguments: Namespace, smoke: int) -> None:
    """Check the options of :func:`add_run_options`; --smoke means this many steps."""
    if arguments.smoke:
        arguments.steps = smoke
    if min(arguments.steps, arguments.batch, arguments.save_every) < 1:
        parser.error("--steps, --batch and --save-every must be 1 or more")
    if arguments.learning_rate is not None and not 0 < arguments.learning_rate < math.inf:
        parser.error("--learning-rate must be positive and finite")
    check_output_folder("--output", arguments.output)


def check_one_process() -> None:
    """Raise ValueError if MLX's launcher started several processes."""
    count = mx.distributed.init().size()
    if count > 1:
        raise ValueError(f"Training runs in one process, but mlx.launch started {count}.")
