"""A training loop for one or several processes. An interrupted run can be resumed with the same result.

Each process computes the gradients of its part of each batch. All take the same step with the average, so all
have the same state after every step, and the first one saves it. Without a launcher there is one process.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import platform
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_map, tree_unflatten
from tqdm import tqdm

from .about import naming
from .files import load_arrays, save_arrays, write_file

LOG = ("step", "loss", "learning_rate", "validation_miou")  # the last is nan except at checkpoints


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
    evaluate_every: int | None = None,
    seed: int = 0,
    resume: bool = False,
    description: str = "training",
    log: Path | None = None,
    at_checkpoint: Callable[[bool, float], tuple[str, float]] = lambda *_: ("", math.nan),
) -> list[float]:
    """Train a model and save a checkpoint every ``save_every`` steps and at the end.

    Ctrl-C in any process stops all processes after the current step. The random numbers that a model draws in
    training (dropout) depend only on the seed, the step and the process.

    Args:
        model: The model with its initial parameters.
        optimizer: An optimizer that has not been used yet. It counts the steps.
        loss_of: A function of the model and the arrays of a batch that returns the loss, a scalar. Each
            process calls it with its part of the batch; the mean over the processes is minimised.
        batches: The whole batches from the first step on, the same ones in every process and in every run.
        steps: The total number of steps, including those before a resumed run.
        checkpoint: The file that the first process writes.
        settings: Values, for JSON, that a resumed run must have in common with the run that it continues. If
            they leave ``steps`` out, a run that has ended can continue with more steps.
        save_every: Steps between checkpoints, the most that a killed run loses.
        evaluate_every: Steps between evaluations, by default ``save_every``. The last step has one.
        seed: Seed of MLX's random numbers, which are seeded again before each step.
        resume: Whether to continue from ``checkpoint``.
        description: The name of the run in its output.
        log: A CSV file with a row of :data:`LOG` per step, which the first process writes at each checkpoint.
        at_checkpoint: Called by the first process before each checkpoint, with whether to evaluate the model
            and the highest score so far. Returns a text to print, and the validation score for the log.

    Returns:
        The losses of the steps of this call.

    Raises:
        KeyboardInterrupt: After Ctrl-C, with a checkpoint saved.
        ConnectionError: If another process has ended.
        ValueError: If there is no checkpoint to resume from, or it was saved with other settings or after
            more steps, a batch cannot be divided equally, or the loss or a parameter is not finite.
    """
    optimizer.init(model.trainable_parameters())
    run = Run(
        model, optimizer, steps, checkpoint, settings or {}, save_every, evaluate_every, at_checkpoint, log
    )
    if resume:
        run.resume()
    start_like_the_first_process(model, optimizer)
    done, stopped = optimizer.step.item(), False
    take_step = stepper(model, optimizer, loss_of, seed)
    model.train()
    losses: list[float] = []
    progress = Progress(description, done, steps)
    with StopRequest() as stop_request, progress.bar:
        # Batches before the checkpoint are generated again and skipped.
        for batch in islice(batches, done, steps):
            rate = optimizer.learning_rate.item()
            loss, stopped = take_step(batch, done, stop_request)
            done += 1
            losses.append(loss)
            progress.after_step(done, loss)
            progress.compare_rates(rate, optimizer.learning_rate.item())
            if message := run.after_step(done, loss, stopped):
                progress.say(message)
            if stopped:
                break
    if stopped:
        run.print_how_to_resume()
        raise KeyboardInterrupt
    return losses


@dataclasses.dataclass
class Run:
    """The log of a run and the files that the first process writes. The arguments are those of ``train``."""

    model: nn.Module
    optimizer: optim.Optimizer
    steps: int
    checkpoint: Path
    settings: dict
    save_every: int
    evaluate_every: int | None
    at_checkpoint: Callable[[bool, float], tuple[str, float]]
    log: Path | None
    rows: list[list[float]] = dataclasses.field(default_factory=list)  # of the log

    def __post_init__(self) -> None:
        self.is_first = mx.distributed.init().rank() == 0

    def resume(self) -> None:
        """Load the checkpoint, in the first process."""
        if not self.is_first:
            return
        self.rows = load_checkpoint(self.checkpoint, self.model, self.optimizer, self.settings)
        done = len(self.rows)
        if done > self.steps:
            raise ValueError(
                f"--steps must be at least {done}, the steps in {self.checkpoint}, but got {self.steps}."
            )
        print(f"Resuming after step {done} of {self.steps}.", flush=True)

    def after_step(self, done: int, loss: float, stopped: bool) -> str:
        """Add a row to the log, and evaluate and save the model if it is time. Return a line to print."""
        evaluates = done == self.steps or done % (self.evaluate_every or self.save_every) == 0
        saves = evaluates or stopped or done % self.save_every == 0
        check_finite(done, loss, state_of(self.model, self.optimizer) if saves else {})
        self.rows.append([done, loss, self.optimizer.learning_rate.item(), math.nan])
        if not saves or not self.is_first:
            return ""
        text, self.rows[-1][-1] = self.at_checkpoint(evaluates, self.best_score())
        save_checkpoint(self.checkpoint, self.model, self.optimizer, self.settings, self.rows)
        if self.log:
            write_log(self.log, self.rows)
        return f"step {done} of {self.steps}: loss {loss:.3f}{text}"

    def best_score(self) -> float:
        """The highest score in the log."""
        return max((row[-1] for row in self.rows if not math.isnan(row[-1])), default=-math.inf)

    def print_how_to_resume(self) -> None:
        """Print the command that continues this run, in the first process."""
        if self.is_first:
            print(f"Stopped after {len(self.rows)} of {self.steps} steps. {how_to_resume()}", flush=True)


def stepper(
    model: nn.Module, optimizer: optim.Optimizer, loss_of: Callable[..., mx.array], seed: int
) -> Callable[[tuple[mx.array, ...], int, StopRequest], tuple[float, bool]]:
    """A function that takes a step with this process's part of a batch.

    Its arguments are the batch, the number of steps before, and whether this process wants to stop, which
    can change during the step. It returns the mean loss over the processes, and whether any wants to stop.
    """
    world = mx.distributed.init()
    value_and_gradients = nn.value_and_grad(model, loss_of)

    def take_step(batch: tuple[mx.array, ...], done: int, request: StopRequest) -> tuple[float, bool]:
        mx.random.seed((1_000_003 * seed + done) * world.size() + world.rank())
        loss, gradients = value_and_gradients(model, *share_of(batch))
        statistics = running_statistics(model)
        values = [loss, mx.array(float(request.made)), gradients, *statistics.values()]
        loss, stop, gradients, *means = mean_over_processes(values)
        optimizer.update(model, gradients)
        model.load_weights([*zip(statistics, means)], strict=False)
        mx.eval(loss, stop, model.state, optimizer.state)
        return float(loss.item()), bool(stop.item())

    return take_step


class Progress:
    """A progress bar, and lines with the time: in all after five steps, and what is left every ten seconds if
    there is no terminal. Only the first process prints.
    """

    def __init__(self, name: str, done: int, total: int) -> None:
        self.first = mx.distributed.init().rank() == 0
        self.name, self.total = name, total
        if self.first:
            if mx.default_device() == mx.cpu:
                recommend_blas()
            print(f"{name}: {total} steps on the {mx.default_device().type.name.upper()}", flush=True)
        hidden = None if self.first else True
        self.bar = tqdm(total=total, initial=done, desc=name, unit="step", disable=hidden)
        self.started = self.last_line = self.last_step = time.perf_counter()
        self.seconds: list[float] = []  # of each step and what comes after it, such as an evaluation

    def after_step(self, done: int, loss: float) -> None:
        """Show the loss of a step, and how long the others take."""
        self.bar.update()
        self.bar.set_postfix(loss=f"{loss:.3f}")
        now = time.perf_counter()
        self.seconds.append(now - self.last_step)
        self.last_step = now
        # The first steps may compile kernels. They count as what they took, not for the steps that are left.
        per_step = median(self.seconds[-20:])
        left = per_step * (self.total - done)
        text = f"step {done} of {self.total}: loss {loss:.3f}, "
        if done < self.total and len(self.seconds) == 5:
            self.last_line = now
            self.say(f"{text}{per_step:.2f} s per step, about {duration(now - self.started + left)} in all")
        elif done < self.total and self.bar.disable and now - self.last_line > 10:
            self.last_line = now
            self.say(f"{text}about {duration(left)} left")

    def compare_rates(self, before: float, now: float) -> None:
        """Say that the learning rate rises, as it can in the first step of a resumed run."""
        if now > 3 * before:
            why = f"because its schedule is that of {self.total} steps"
            self.say(f"the learning rate rises from {before:.2g} to {now:.2g}, {why}.")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self.first:
            self.bar.write(f"{self.name}, {text}")
            sys.stdout.flush()


def cost_of(model: nn.Module, side: int, batch: int) -> tuple[float, float]:
    """Seconds and bytes of a training step, estimated from one image with half the side.

    The model, which gets new running statistics, has RGB images as inputs.
    """
    small = max(32, side // 2)
    ratio = batch * (side / small) ** 2
    step = nn.value_and_grad(model, lambda model, x: model(x).square().mean())
    for _ in range(2 if mx.default_device() == mx.gpu else 1):  # the first one compiles kernels
        mx.reset_peak_memory()
        started = time.perf_counter()
        mx.eval(step(model, mx.zeros((1, small, small, 3))))
        seconds = time.perf_counter() - started
    parameters = sum(value.nbytes for value in dict(tree_flatten(model.parameters())).values())
    # Weights and gradients, and later two averages of gradients; the rest grows with the pixels.
    inside = max(0, mx.get_peak_memory() - 2 * parameters)
    return seconds * ratio, inside * ratio + 4 * parameters


def duration(seconds: float) -> str:
    """A time for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"


@functools.cache  # prints once
def recommend_blas() -> None:
    """Print how to train faster if MLX's wheel brings the reference BLAS and no other BLAS is loaded."""
    maps, folder = Path("/proc/self/maps"), Path(mx.__file__).parents[1] / "mlx_cpu.libs"
    text = maps.read_text() if maps.exists() else ""
    loaded = re.findall(r"/.*/lib(?:blas|openblas|mkl|blis).*", text)
    if loaded and all(path.startswith(f"{folder}/") for path in loaded):
        library = f"/usr/lib/{platform.machine()}-linux-gnu/openblas-serial/libblas.so.3"
        print(f"OpenBLAS trains 2 to 3 times as fast: apt install libopenblas0-serial, LD_PRELOAD={library}")


def check_finite(step: int, loss: float, state: dict[str, mx.array]) -> None:
    """Raise ValueError if the loss or an array of the state is infinite or NaN."""
    if not math.isfinite(loss) or not all(mx.isfinite(value).all().item() for value in state.values()):
        raise ValueError(
            f"The loss or a parameter is not finite in step {step} (loss {loss}). Nothing was saved since "
            "the last checkpoint. A lower learning rate may help."
        )


def write_log(path: Path, rows: list[list[float]]) -> None:
    """Write the rows of a log; a score that was not computed is empty."""
    lines = [",".join(f"{v:.7g}".replace("nan", "") for v in row) for row in rows]
    write_file(path, "\n".join([",".join(LOG), *lines, ""]).encode())


def how_to_resume() -> str:
    """A sentence with the command that continues this program."""
    words = [word for word in sys.orig_argv if word not in ("--overwrite", "--resume")]
    command = shlex.join([*words, "--resume"])
    size = mx.distributed.init().size()
    launcher = f", by the same launcher in {size} processes" if size > 1 else ""
    return f"To continue{launcher}:\n    {command}"


def adamw(learning_rate: float, steps: int) -> optim.Optimizer:
    """AdamW with a linear warm-up over a tenth of the steps and a cosine decay of the learning rate."""
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


def mean_over_processes(tree: Any) -> Any:
    """The mean of each array of a tree over all processes, without derivatives."""
    # MLX's derivative of a sum over processes ignores the other processes, which would be wrong here.
    tree = tree_map(mx.stop_gradient, tree)
    if mx.distributed.init().size() == 1:
        return tree
    return exchanged(nn.average_gradients, tree)


def exchanged(operation: Callable[[Any], Any], tree: Any) -> Any:
    """The result of an operation that communicates with the other processes."""
    # Metal aborts GPU work that waits for 5 seconds, and another process may take longer. Therefore the GPU
    # never waits for a process: the arrays are evaluated first, and then exchanged on the CPU.
    mx.eval(tree)
    try:
        with mx.stream(mx.cpu):
            result = operation(tree)
            mx.eval(result)
    except RuntimeError as error:
        raise ConnectionError(f"Another process has ended: {error}. Start all again with --resume.") from None
    return result


def weighted_cross_entropy(scores: mx.array, classes: mx.array, weights: mx.array) -> mx.array:
    """The weighted mean loss over positions.

    It is normalised by the mean total weight per process, so that the losses and gradients of the processes
    average to those of the whole batch.
    """
    total = mx.maximum(mean_over_processes(weights.sum()), 1e-6)  # 0 if every position is ignored
    return nn.losses.cross_entropy(scores, classes, weights, reduction="sum") / total


def share_of(batch: tuple[mx.array, ...]) -> list[mx.array]:
    """The part of a batch for this process."""
    world = mx.distributed.init()
    whole = len(batch[0])
    if whole % world.size():
        raise ValueError(
            f"--batch must be divisible by the number of processes, {world.size()}, but got {whole}."
        )
    size = whole // world.size()
    return [array[world.rank() * size : (world.rank() + 1) * size] for array in batch]


def running_statistics(model: nn.Module) -> dict[str, mx.array]:
    """The running statistics of ``nn.BatchNorm`` by name, which differ between processes."""
    arrays = dict(tree_flatten(model.parameters()))
    return {name: value for name, value in arrays.items() if name.endswith(("running_mean", "running_var"))}


def state_of(model: nn.Module, optimizer: optim.Optimizer) -> dict[str, mx.array]:
    """All arrays that are needed to continue a run, by name."""
    return dict(tree_flatten({"model": model.parameters(), "optimizer": optimizer.state}))


def set_state(model: nn.Module, optimizer: optim.Optimizer, state: dict[str, mx.array]) -> None:
    """Set the state of a model and its optimizer to a result of :func:`state_of`."""
    tree = tree_unflatten(list(state.items()))
    model.update(tree["model"])
    optimizer.state = tree["optimizer"]
    mx.eval(model.state, optimizer.state)


def start_like_the_first_process(model: nn.Module, optimizer: optim.Optimizer) -> None:
    """Copy the state of the first process, which may have loaded a checkpoint, to all processes."""

    def of_the_first_process(state: dict[str, mx.array]) -> dict[str, mx.array]:
        # Sorted by name, because all processes must send arrays in the same order.
        return {name: mx.distributed.all_gather(state[name][None])[0] for name in sorted(state)}

    set_state(model, optimizer, exchanged(of_the_first_process, state_of(model, optimizer)))


def save_checkpoint(
    path: Path, model: nn.Module, optimizer: optim.Optimizer, settings: dict, rows: list[list[float]]
) -> None:
    """Write everything that is needed to continue a run, with the rows of its log."""
    state = state_of(model, optimizer) | {"log": mx.array(rows, mx.float32)}
    save_arrays(path, state, {"settings": json.dumps(settings)})


def load_checkpoint(
    path: Path, model: nn.Module, optimizer: optim.Optimizer, settings: dict
) -> list[list[float]]:
    """Restore the state of a model and its optimizer from a checkpoint, and return the rows of the log.

    Raises:
        ValueError: If the file is missing, damaged or not a checkpoint, or was saved with other settings.
    """
    if not path.exists():
        raise ValueError(f"There is nothing to resume: {path} does not exist.")
    with naming(path):
        state, metadata = load_arrays(path)
    if "settings" not in metadata:
        raise ValueError(f"{path} is not a checkpoint of a training run.")
    saved = json.loads(metadata["settings"])
    differ = sorted(name for name in saved | settings if saved.get(name) != settings.get(name))
    if differ:
        listed = ", ".join(f"{name} {saved.get(name)}, now {settings.get(name)}" for name in differ)
        hint = ""
        if {"learning_rate", "crop", "side"} & {*differ}:
            hint = ". To change it, start from its model: --model FOLDER --output NEW"
        raise ValueError(f"{path} was saved by a run with other settings: {listed}{hint}")
    rows: Any = state.pop("log").tolist()
    set_state(model, optimizer, state)
    return rows


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
