"""Training in several processes gives the result of one, and continues exactly after a stop."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest
from helpers.faults import ctrl_c_raises
from helpers.masks import BLOCKS, write
from helpers.programs import environment, free_ports
from mlx.utils import tree_map
from mlx_unpool_zoo import from_pretrained, training

TIMEOUT = 150  # seconds


@dataclass
class Run:
    """Processes that were started together, and the files of their output."""

    processes: list[subprocess.Popen]
    logs: list[Path]

    def said(self) -> list[str]:
        return [log.read_text() for log in self.logs]

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Wait for a condition; an error if a process fails first, or after TIMEOUT."""
        deadline = time.monotonic() + TIMEOUT
        while not reached():
            assert not any(process.poll() for process in self.processes), self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.01)

    def finish(self) -> list[str]:
        """The output of the processes, which must all succeed."""
        self.wait_until(lambda: all(process.poll() == 0 for process in self.processes))
        return self.said()


@contextlib.contextmanager
def started(program: Sequence[object], folder: Path, count: int, *options: object) -> Iterator[Run]:
    """Connected processes of a program; the first writes into machine-0, the second into machine-1."""
    run, variables = Run([], []), environment()
    streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
    folder.mkdir(exist_ok=True)
    if count > 1:
        (folder / "hosts.json").write_text(json.dumps([[f"127.0.0.1:{port}"] for port in free_ports(count)]))
        variables["MLX_HOSTFILE"] = str(folder / "hosts.json")
    try:
        for rank in range(count):
            if rank:
                time.sleep(0.6)  # a process that finds no listener would wait longer than that
            machine = folder / f"machine-{rank}"
            command = [sys.executable, *program, "--output", machine, *options]
            run.logs.append(machine.with_suffix(".log"))
            with run.logs[-1].open("w") as log:
                env = variables | {"MLX_RANK": str(rank)}
                run.processes.append(subprocess.Popen([*map(str, command)], env=env, stdout=log, **streams))
        yield run
    finally:
        for process in run.processes:
            process.kill()
            process.wait()


def steps_in(checkpoint: Path) -> int:
    return mx.load(str(checkpoint))["optimizer.step"].item()


@pytest.fixture
def program(tmp_path) -> list:
    """Train a small SegNet on six pictures."""
    data = write(tmp_path / "data", [np.roll(BLOCKS, n) for n in range(6)])
    options = "--model", "segnet", "--batch", 2, "--steps", 40, "--save-every", 10
    return ["-m", "mlx_unpool_zoo", "train", "--data", data, *options]


def finished(program: list, folder: Path, count: int, *options: object) -> list[str]:
    """The output of ``count`` processes that train to the end."""
    with started(program, folder, count, *options) as run:
        return run.finish()


def test_two_processes_have_the_losses_of_one(program, tmp_path):
    losses = {}
    for count in (1, 2):
        said = finished([*program, "--norm", "group"], tmp_path / str(count), count)
        log = np.genfromtxt(tmp_path / str(count) / "machine-0" / "log.csv", delimiter=",", names=True)
        losses[count] = log["loss"]
    assert losses[1][-1] < losses[1][0] - 0.25  # the network learns
    assert np.abs(losses[1] - losses[2]).max() < 1e-3
    assert not (tmp_path / "2" / "machine-1").exists()
    assert "step 40 of 40: loss" in said[0]
    assert said[1] == ""


def test_two_processes_continue_exactly_after_ctrl_c_and_after_one_was_killed(program, tmp_path):
    folder = tmp_path / "broken"
    checkpoint = folder / "machine-0" / "checkpoint.safetensors"
    with started(program, folder, 2) as run:
        run.wait_until(lambda: "step 10 of 40" in run.said()[0])
        run.processes[1].send_signal(signal.SIGINT)
        assert [process.wait(TIMEOUT) for process in run.processes] == [130, 130]
    stopped = steps_in(checkpoint)
    assert 10 <= stopped < 40

    # Only the first machine has a checkpoint.
    with started(program, folder, 2, "--resume") as run:
        run.wait_until(lambda: steps_in(checkpoint) > stopped)
        run.processes[0].send_signal(signal.SIGKILL)
        assert run.processes[1].wait(TIMEOUT) == 1
        assert f"Resuming after step {stopped} of 40." in run.said()[0]
        *others, line = run.said()[1].splitlines()
    assert all(other.startswith("[ring] ") for other in others)  # from MLX
    assert re.fullmatch(r"Another process has ended: .*\. Start all again with --resume\.", line)
    assert from_pretrained(folder / "machine-0" / "segnet").about.classes
    assert steps_in(checkpoint) in (20, 30)

    finished(program, folder, 2, "--resume")
    finished(program, tmp_path / "whole", 2)
    whole = tmp_path / "whole" / "machine-0" / checkpoint.name
    assert checkpoint.read_bytes() == whole.read_bytes()


def test_running_statistics_are_averaged_over_processes(tmp_path, monkeypatch):
    model, batches = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm(1)), iter([(mx.ones((3, 2)),)])
    loss = lambda model, x: model(x).sum()
    monkeypatch.setattr(training, "mean_over_processes", lambda tree: tree_map(mx.zeros_like, tree))
    training.train(model, optim.SGD(0.1), loss, batches, 1, tmp_path / "checkpoint")
    norm = model.layers[1]
    assert (norm.running_mean.item(), norm.running_var.item()) == (0, 0)


def test_a_batch_that_cannot_be_divided_is_refused(monkeypatch):
    world = SimpleNamespace(rank=lambda: 0, size=lambda: 4)
    monkeypatch.setattr(mx.distributed, "init", lambda: world)
    with pytest.raises(ValueError, match="divisible by the number of processes, 4, but got 6"):
        training.share_of((mx.zeros(6),))


def test_a_second_ctrl_c_does_not_wait():
    with ctrl_c_raises(), training.StopRequest() as request:
        signal.raise_signal(signal.SIGINT)
        assert request.made
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
