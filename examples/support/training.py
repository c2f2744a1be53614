"""A training loop for one process or several, on one machine or several, that continues exactly after a stop.

Every process works on its share of each batch; then all take the same step, with gradients averaged over the
processes. So all hold the same state after every step, and what the first process saves is what all have.
Without a launcher there is one process, and averages over processes change nothing.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_map, tree_unflatten
from mlx_unpool_zoo.files import check_output_folder, load_arrays, save_arrays
from tqdm import tqdm


def train(
    model: nn.Module,
    optimizer: optim.Optimizer,
    loss_of: Callable[..., mx.array],
    batches: Iterator[tuple[mx.array, ...]],
    steps: int,
    checkpoint: Path,
    *,
    settings: dict | None = None,
    save_every: int = 100,
    seed: int = 0,
    resume: bool = False,
    description: str = "",
) -> list[float]:
    """Trains a model and leaves a checkpoint every ``save_every`` steps and at the end.

    Ctrl-C, in whichever process, stops all after the step at hand. The random numbers that a model draws
    while it trains (dropout) depend on the seed, the step and the process alone.

    Args:
        model: The model, with parameters as they are before the first step.
        optimizer: An optimizer that has not been used yet. It counts the steps.
        loss_of: Gives the loss (a scalar) from the model and the arrays of a batch. Of several processes each
            calls it with its own share; the loss to minimise is the mean of what they get.
        batches: The whole batches from the first step on, the same ones in every process and in every run.
        steps: The number of steps from the start, whenever they are taken.
        checkpoint: The file that the first process writes.
        settings: What a continued run must have in common with the one that left the checkpoint, for JSON.
        save_every: Steps from one checkpoint to the next; no more than these can be lost.
        seed: Seed of MLX's random numbers, which is set anew before each step.
        resume: Whether to continue from ``checkpoint``, if it is there.
        description: The name of the run on its progress bar.

    Returns:
        The loss at each step that was taken now.

    Raises:
        KeyboardInterrupt: After Ctrl-C, with a checkpoint saved.
        ValueError: If the checkpoint was saved with other settings, or a batch cannot be shared equally.
    """
    settings = settings or {}
    world = mx.distributed.init()
    first = world.rank() == 0
    optimizer.init(model.trainable_parameters())
    if resume and first and checkpoint.exists():
        load_checkpoint(checkpoint, model, optimizer, settings)
    start_like_the_first_process(model, optimizer)
    done = optimizer.step.item()
    value_and_gradients = nn.value_and_grad(model, loss_of)
    model.train()
    losses = []
    with (
        StopRequest() as stop_request,
        tqdm(
            total=steps, initial=done, desc=description, unit="step", disable=not first
        ) as progress,
    ):
        # Batches from before the checkpoint are drawn again and dropped.
        for batch in islice(batches, done, steps):
            mx.random.seed((1_000_003 * seed + done) * world.size() + world.rank())
            loss, gradients = value_and_gradients(model, *share_of(batch))
            stop = mx.array(float(stop_request.made))
            names, statistics = running_statistics(model)
            loss, stop, gradients, *statistics = mean_over_processes(
                [loss, stop, gradients, *statistics]
            )
            optimizer.update(model, gradients)
            model.load_weights(list(zip(names, statistics, strict=True)), strict=False)
            mx.eval(loss, stop, model.state, optimizer.state)

            losses.append(loss.item())
            progress.update()
            progress.set_postfix(loss=f"{losses[-1]:.3f}")
            done += 1
            stopped = stop.item() > 0
            if first and (done % save_every == 0 or done == steps or stopped):
                save_checkpoint(checkpoint, model, optimizer, settings)
            if stopped:
                progress.close()
                if first:
                    print(f"Stopped after {done} of {steps} steps. {how_to_resume()}", flush=True)
                raise KeyboardInterrupt
    return losses


def how_to_resume() -> str:
    """A sentence with the whole command that continues this program."""
    options = [] if "--resume" in sys.orig_argv else ["--resume"]
    command = shlex.join([*sys.orig_argv, *options])
    size = mx.distributed.init().size()
    launcher = f", by the same launcher in {size} processes" if size > 1 else ""
    return f"To continue{launcher}:\n    {command}"


def add_options(parser: argparse.ArgumentParser, batch: int, output: str) -> None:
    """The options that training programs have in common, with their defaults."""
    parser.epilog = "Ctrl-C stops the training after a step; --resume goes on from there."
    parser.add_argument(
        "--batch",
        type=int,
        default=batch,
        help=f"a step, of all processes together (default: {batch})",
    )
    parser.add_argument("--seed", type=int, default=0, help="of weights and data (default: 0)")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run")
    parser.add_argument("--output", type=Path, default=Path(output), help=f"default: {output}")
    parser.add_argument("--smoke", action="store_true", help="very little, to see that it runs")


def parse_options(
    parser: argparse.ArgumentParser, steps: int, batch: int, output: str
) -> argparse.Namespace:
    """The command line of a program that counts steps: those options, and how many."""
    parser.add_argument(
        "--steps", type=int, default=steps, help=f"training steps (default: {steps})"
    )
    add_options(parser, batch, output)
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.steps = 3
    if min(arguments.steps, arguments.batch) < 1:
        parser.error("--steps and --batch must be 1 or more")
    check_output_folder("--output", arguments.output)
    return arguments


def adamw(learning_rate: float, steps: int) -> optim.Optimizer:
    """AdamW, whose learning rate rises for a tenth of the steps and then falls as a cosine."""
    warm_up = max(1, steps // 10)
    schedule = optim.join_schedules(
        [
            optim.linear_schedule(learning_rate / warm_up, learning_rate, warm_up),
            optim.cosine_decay(learning_rate, max(1, steps - warm_up), end=1e-5),
        ],
        [warm_up],
    )
    # Without bias correction Adam's first steps are ten times too long for this schedule.
    return optim.AdamW(schedule, weight_decay=1e-4, bias_correction=True)


def mean_over_processes(tree: Any) -> Any:
    """The mean of every array of a tree over all processes, constants for gradients."""
    # MLX differentiates a sum over processes as if this process were alone, which would be wrong.
    tree = tree_map(mx.stop_gradient, tree)
    if mx.distributed.init().size() == 1:
        return tree
    # Metal ends GPU work that waits for 5 seconds, and another process may take longer. So nothing on the GPU
    # waits for one: the arrays are computed first, the CPU averages, and only then work goes on.
    mx.eval(tree)
    with mx.stream(mx.cpu):
        means = nn.average_gradients(tree)
        mx.eval(means)
    return means


def weighted_cross_entropy(scores: mx.array, classes: mx.array, weights: mx.array) -> mx.array:
    """The mean loss over positions, each with its weight.

    The weights add up over the positions of all processes, so that the mean of the losses of the processes,
    and of their gradients, is that of the whole batch.
    """
    total = mean_over_processes(weights.sum())
    return nn.losses.cross_entropy(scores, classes, weights, reduction="sum") / total


def share_of(batch: tuple[mx.array, ...]) -> list[mx.array]:
    """The part of a whole batch that this process works on."""
    world = mx.distributed.init()
    whole = len(batch[0])
    if whole % world.size():
        raise ValueError(f"{world.size()} processes cannot share a batch of {whole} equally.")
    size = whole // world.size()
    return [array[world.rank() * size : (world.rank() + 1) * size] for array in batch]


def running_statistics(model: nn.Module) -> tuple[list[str], list[mx.array]]:
    """Names and values of what ``nn.BatchNorm`` keeps for predictions: each process saw its own share."""
    kept = ("running_mean", "running_var")
    arrays = dict(tree_flatten(model.parameters()))
    names = [name for name in arrays if name.endswith(kept)]
    return names, [arrays[name] for name in names]


def state_of(model: nn.Module, optimizer: optim.Optimizer) -> dict[str, mx.array]:
    """All arrays that a run needs to continue, by name."""
    return dict(tree_flatten({"model": model.parameters(), "optimizer": optimizer.state}))


def set_state(model: nn.Module, optimizer: optim.Optimizer, state: dict[str, mx.array]) -> None:
    """Puts a model and its optimizer where others were when :func:`state_of` looked at them."""
    tree = tree_unflatten(list(state.items()))
    model.update(tree["model"])
    optimizer.state = tree["optimizer"]
    mx.eval(model.state, optimizer.state)


def start_like_the_first_process(model: nn.Module, optimizer: optim.Optimizer) -> None:
    """Copies the state of the first process to all: theirs may differ, and only it has a checkpoint."""
    state = state_of(model, optimizer)
    mx.eval(state)
    with mx.stream(mx.cpu):
        # In the order of names: all must send the same array at once, and a loaded state has another order.
        state = {name: mx.distributed.all_gather(state[name][None])[0] for name in sorted(state)}
        mx.eval(state)
    set_state(model, optimizer, state)


def save_checkpoint(
    path: Path, model: nn.Module, optimizer: optim.Optimizer, settings: dict
) -> None:
    """Writes all that a run needs to continue."""
    save_arrays(path, state_of(model, optimizer), {"settings": json.dumps(settings)})


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: optim.Optimizer, settings: dict
) -> None:
    """Puts a model and its optimizer where they were when the checkpoint was saved.

    Raises:
        ValueError: If it is damaged or no checkpoint, or was saved with other settings.
    """
    state, metadata = load_arrays(path)
    if "settings" not in metadata:
        raise ValueError(f"{path} is no checkpoint of a training.")
    saved = json.loads(metadata["settings"])
    differ = sorted(name for name in saved | settings if saved.get(name) != settings.get(name))
    if differ:
        raise ValueError(
            f"{path} was saved by a run with other settings: "
            + ", ".join(f"{name} {saved.get(name)}, now {settings.get(name)}" for name in differ)
        )
    set_state(model, optimizer, state)


def save_weights(path: Path, model: nn.Module, metadata: dict[str, str] | None = None) -> None:
    """Writes the parameters of a model in one go."""
    save_arrays(path, dict(tree_flatten(model.parameters())), metadata)


class StopRequest:
    """Notes Ctrl-C, so that a step is finished before all stops; a second Ctrl-C stops at once."""

    def __enter__(self) -> StopRequest:
        self.made = False
        self._handler = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.made = True
        signal.signal(signal.SIGINT, self._handler)
