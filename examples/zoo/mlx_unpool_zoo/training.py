"""A training loop whose interrupted runs can be resumed with the same result."""

from __future__ import annotations

import dataclasses
import json
import math
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
from mlx.utils import tree_flatten, tree_unflatten

from .about import naming
from .files import load_arrays, save_arrays, write_file
from .progress import Progress

# The columns of a log. The last one is empty except at evaluations.
COLUMNS = ("step", "loss", "learning_rate", "validation_miou")


@dataclasses.dataclass
class Run:
    """How long a run is, and the files that it writes.

    Attributes:
        name: The name of the run in its output.
        steps: The total number of steps, including those before it was resumed.
        checkpoint: The file with everything that is needed to continue.
        log: A CSV file with a row of :data:`COLUMNS` per step, written with each checkpoint.
        settings: Values, for JSON, that a resumed run must have in common with the run that it
            continues. If they leave ``steps`` out, a finished run can continue with more steps.
        at_checkpoint: Called before each checkpoint with whether to evaluate the model and with the
            highest score so far. Returns a text to print and the validation score, or NaN.
        save_every: Steps between evaluations, each with a checkpoint. The last step has one, too.
        seed: Seed of MLX's random numbers (dropout), which are seeded again before each step.
        resume: Whether to continue from the checkpoint.
        rows: The log.
    """

    name: str
    steps: int
    checkpoint: Path
    log: Path
    settings: dict[str, Any]
    at_checkpoint: Callable[[bool, float], tuple[str, float]]
    save_every: int = 100
    seed: int = 0
    resume: bool = False
    rows: list[list[float]] = dataclasses.field(default_factory=list)

    def best_score(self) -> float:
        """The highest validation score in the log."""
        scores = [row[-1] for row in self.rows if not math.isnan(row[-1])]
        return max(scores, default=-math.inf)


def train(
    model: nn.Module,
    optimizer: optim.Optimizer,
    loss_of: Callable[..., mx.array],
    batches: Iterator[tuple[mx.array, ...]],
    run: Run,
) -> None:
    """Train a model, and save a checkpoint every ``run.save_every`` steps and at the end.

    After Ctrl-C the current step finishes, and a checkpoint is saved.

    Args:
        model: The model with its initial parameters.
        optimizer: An optimizer that has not been used yet. It counts the steps.
        loss_of: A function of the model and the arrays of a batch that returns the loss, a scalar.
        batches: The batches from the first step on, the same ones in every run.
        run: The length of the run, its settings and its files.

    Raises:
        KeyboardInterrupt: After Ctrl-C.
        ValueError: If there is no checkpoint to resume from, or it was saved with other settings or
            after more steps, or the loss or a parameter is not finite.
    """
    optimizer.init(model.trainable_parameters())
    if run.resume:
        resume(run, model, optimizer)
    done = len(run.rows)
    step = nn.value_and_grad(model, loss_of)
    model.train()
    progress = Progress(run.name, done, run.steps)
    with StopRequest() as stop, progress.bar:
        # The batches before the checkpoint are generated again and skipped.
        for batch in islice(batches, done, run.steps):
            mx.random.seed(1_000_003 * run.seed + done)
            loss, gradients = step(model, *batch)
            optimizer.update(model, gradients)
            mx.eval(loss, model.state, optimizer.state)
            done += 1
            progress.after_step(done, loss.item())
            if line := after_step(run, model, optimizer, loss.item(), stop.made):
                progress.say(line)
            if stop.made:
                break
    if stop.made:
        print(f"Stopped after {done} of {run.steps} steps. {how_to_resume()}", flush=True)
        raise KeyboardInterrupt


def after_step(
    run: Run, model: nn.Module, optimizer: optim.Optimizer, loss: float, stopped: bool
) -> str:
    """Add a row to the log, and evaluate and save if it is time. Return a line to print, or ""."""
    done = len(run.rows) + 1
    evaluates = done == run.steps or done % run.save_every == 0
    saves = evaluates or stopped
    check_finite(done, loss, state_of(model, optimizer) if saves else {})
    row = [done, loss, optimizer.learning_rate.item(), math.nan]
    if not saves:
        run.rows.append(row)
        return ""
    text, row[-1] = run.at_checkpoint(evaluates, run.best_score())
    run.rows.append(row)
    save_checkpoint(run.checkpoint, model, optimizer, run.settings, run.rows)
    write_log(run.log, run.rows)
    return f"step {done} of {run.steps}: loss {loss:.3f}{text}"


def check_finite(step: int, loss: float, state: dict[str, mx.array]) -> None:
    """Raise ValueError if the loss or an array of the state is infinite or NaN."""
    if math.isfinite(loss) and all(mx.isfinite(value).all().item() for value in state.values()):
        return
    raise ValueError(
        f"The loss or a parameter is not finite in step {step} (loss {loss}). Nothing was saved "
        "since the last checkpoint. A lower learning rate may help."
    )


def write_log(path: Path, rows: list[list[float]]) -> None:
    """Write the rows of a log; a score that was not computed is empty."""
    lines = [",".join(COLUMNS)]
    for row in rows:
        lines.append(",".join("" if math.isnan(value) else f"{value:.7g}" for value in row))
    write_file(path, "\n".join([*lines, ""]).encode())


def how_to_resume() -> str:
    """A sentence with the command that continues this program."""
    words = [word for word in sys.orig_argv if word not in ("--overwrite", "--resume")]
    return f"To continue:\n    {shlex.join([*words, '--resume'])}"


def adamw(learning_rate: float, steps: int) -> optim.Optimizer:
    """AdamW whose learning rate rises linearly over a tenth of the steps, then follows a cosine."""
    warm_up = max(1, steps // 10)
    schedule = optim.join_schedules(
        [
            optim.linear_schedule(learning_rate / warm_up, learning_rate, warm_up),
            optim.cosine_decay(learning_rate, max(1, steps - warm_up), end=1e-5),
        ],
        [warm_up],
    )
    # Without bias correction, Adam's first steps are three to seven times too large.
    return optim.AdamW(schedule, weight_decay=1e-4, bias_correction=True)


def weighted_cross_entropy(scores: mx.array, classes: mx.array, weights: mx.array) -> mx.array:
    """The weighted mean loss over positions, 0 if the weight of every position is 0."""
    total = mx.maximum(weights.sum(), 1e-6)
    return nn.losses.cross_entropy(scores, classes, weights, reduction="sum") / total


# Checkpoints.


def state_of(model: nn.Module, optimizer: optim.Optimizer) -> dict[str, mx.array]:
    """All arrays that are needed to continue a run, by name.

    They are sorted, so that the checkpoints of a resumed run are the same files.
    """
    tree = {"model": model.parameters(), "optimizer": optimizer.state}
    arrays = dict(tree_flatten(tree))
    return {name: arrays[name] for name in sorted(arrays)}


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: optim.Optimizer,
    settings: dict[str, Any],
    rows: list[list[float]],
) -> None:
    """Write everything that is needed to continue a run, with the rows of its log."""
    state = state_of(model, optimizer) | {"log": mx.array(rows, mx.float32)}
    save_arrays(path, state, {"settings": json.dumps(settings)})


def read_checkpoint(path: Path) -> tuple[dict[str, mx.array], dict[str, Any]]:
    """The arrays and the settings in a checkpoint.

    Raises:
        ValueError: If the file is missing, damaged or not a checkpoint.
    """
    if not path.exists():
        raise ValueError(f"There is nothing to resume: {path} does not exist.")
    with naming(path):
        state, metadata = load_arrays(path)
    if "settings" not in metadata:
        raise ValueError(f"{path} is not a checkpoint of a training run.")
    return state, json.loads(metadata["settings"])


def resume(run: Run, model: nn.Module, optimizer: optim.Optimizer) -> None:
    """Restore the model, its optimizer and the log of a run from its checkpoint."""
    state, saved = read_checkpoint(run.checkpoint)
    check_settings(run, saved)
    rows: Any = state.pop("log").tolist()
    if len(rows) > run.steps:
        raise ValueError(
            f"--steps must be at least {len(rows)}, the steps in {run.checkpoint}, but got "
            f"{run.steps}."
        )
    tree = tree_unflatten(list(state.items()))
    model.update(tree["model"])
    optimizer.state = tree["optimizer"]
    mx.eval(model.state, optimizer.state)
    run.rows = rows
    print(f"Resuming after step {len(rows)} of {run.steps}.", flush=True)


def check_settings(run: Run, saved: dict[str, Any]) -> None:
    """Raise ValueError if a run has other settings than the one that it continues."""
    differ = [name for name, value in run.settings.items() if saved.get(name) != value]
    if not differ:
        return
    listed = ", ".join(f"{name} {saved.get(name)}, now {run.settings[name]}" for name in differ)
    hint = ""
    if {"learning_rate", "crop", "side"}.intersection(differ):
        hint = ". To change it, start from its model: --model FOLDER --output NEW"
    raise ValueError(f"{run.checkpoint} was saved by a run with other settings: {listed}{hint}")


class StopRequest:
    """Record Ctrl-C, so that the current step can finish; a second Ctrl-C stops immediately."""

    def __enter__(self) -> StopRequest:
        self.made = False
        self._handler = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.made = True
        signal.signal(signal.SIGINT, self._handler)
