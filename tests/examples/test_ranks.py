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
import numpy as np
import pytest
from helpers.faults import ctrl_c_raises
from helpers.masks import write
from helpers.programs import environment, free_ports
from mlx_unpool_zoo import from_pretrained, training

SMALL = (Path(__file__).parent / "helpers" / "small_training.py",)
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


def train_small(folder: Path, count: int, *options: object) -> list[str]:
    """The output of ``count`` processes that train small networks to the end."""
    with started(SMALL, folder, count, *options) as run:
        return run.finish()


def final_states(said: list[str], run: str) -> list[str]:
    """The hash of the state that each process printed at the end of a run."""
    starts = [f"{run}: process {rank} of {len(said)} " for rank in range(len(said))]
    return [text.split(start)[1].split()[0] for text, start in zip(said, starts)]


def steps_in(checkpoint: Path) -> int:
    return mx.load(str(checkpoint))["optimizer.step"].item()


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The folder of two processes that shared the batches, and their output."""
    folder = tmp_path_factory.mktemp("pair")
    return folder, train_small(folder, 2, "--runs", "group", "batch")


def test_two_processes_have_the_losses_of_one_and_the_same_state(pair, tmp_path):
    folder, said = pair
    train_small(tmp_path, 1, "--runs", "group")
    files = (path / "machine-0" / "group.json" for path in (tmp_path, folder))
    one, two = (np.array(json.loads(file.read_text())) for file in files)
    assert len(one) == len(two) == 40
    assert one[-1] < one[0] - 0.25  # the network learns
    assert np.abs(one - two).max() < 1e-3
    checkpoint = mx.load(str(folder / "machine-0" / "batch.safetensors"))
    assert "model.decoder.0.layers.0.norm.running_mean" in checkpoint
    for run in ("group", "batch"):
        first, second = final_states(said, run)
        assert first == second
    assert not (folder / "machine-1").exists()
    assert "step 40 of 40: loss" in said[0]
    assert "step 40" not in said[1]


def test_two_processes_continue_exactly_after_ctrl_c_and_after_one_was_killed(pair, tmp_path):
    checkpoint, options = tmp_path / "machine-0" / "batch.safetensors", ["--runs", "batch"]
    with started(SMALL, tmp_path, 2, *options) as run:
        run.wait_until(lambda: "step 10 of 40" in run.said()[0])
        run.processes[1].send_signal(signal.SIGINT)
        for process in run.processes:
            process.wait(TIMEOUT)
        assert all(said.rstrip().endswith("KeyboardInterrupt") for said in run.said())
    stopped = steps_in(checkpoint)
    assert 10 <= stopped < 40

    # Only the first machine has a checkpoint.
    with started(SMALL, tmp_path, 2, *options, "--resume") as run:
        run.wait_until(lambda: steps_in(checkpoint) > stopped)
        run.processes[0].send_signal(signal.SIGKILL)
        assert run.processes[0].wait(TIMEOUT) == -signal.SIGKILL
        assert f"Resuming after step {stopped} of 40." in run.said()[0]
    assert steps_in(checkpoint) in (10, 20, 30)

    folder, expected = pair
    said = train_small(tmp_path, 2, *options, "--resume")
    assert final_states(said, "batch") == final_states(expected, "batch")
    assert checkpoint.read_bytes() == (folder / "machine-0" / "batch.safetensors").read_bytes()


def test_two_processes_train_on_pictures_and_if_one_is_killed_the_best_model_is_there(tmp_path):
    data = write(tmp_path, [np.eye(16, dtype=np.uint8)] * 5)
    options = "--data", data, "--model", "segnet", "--batch", 2, "--save-every", 1, "--steps", 10_000
    program, folder = ("-m", "mlx_unpool_zoo", "train"), tmp_path / "run"
    with started(program, folder, 2, *options) as run:
        run.wait_until(lambda: "the best so far" in run.said()[0])
        run.processes[0].kill()
        assert run.processes[1].wait(TIMEOUT) == 1
        *others, line = run.said()[1].splitlines()
    assert all(other.startswith("[ring] ") for other in others)  # from MLX
    assert re.fullmatch(r"Another process has ended: .*\. Start all again with --resume\.", line)
    assert from_pretrained(folder / "machine-0" / "segnet").about.classes
    assert not (folder / "machine-1").exists()


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
