"""Faults that programs must survive: a full disk, a signal while they write, damaged bytes."""

import contextlib
import os
import random
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.programs import call


@contextlib.contextmanager
def disk_of(size: int) -> Iterator[None]:
    """No file can be longer than ``size`` bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def contents(folder: Path) -> dict[Path, bytes]:
    """The files below a folder, hidden and partial ones too."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def damaged(content: bytes, count: int, first: int = 0, seed: int = 0) -> Iterator[bytes]:
    """Copies of a file with a bit flipped from position ``first`` on, and truncated ones."""
    draw = random.Random(seed)
    for _ in range(count):
        changed = bytearray(content)
        changed[draw.randrange(first, len(content))] ^= 1 << draw.randrange(8)
        yield bytes(changed)
    yield from (content[:-4], content[: len(content) // 2], b"something else", b"")


@contextlib.contextmanager
def ctrl_c_raises() -> Iterator[None]:
    """Also where tests run with Ctrl-C ignored, for example in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def raised_while_writing(stop: signal.Signals) -> Iterator[None]:
    """A signal arrives when the first file has its content and not yet its name."""
    with ctrl_c_raises(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: signal.raise_signal(stop))
        yield


def check_faults(program: str, words: Callable[[Path], list], inputs: Path, tmp_path: Path) -> None:
    """Run a program with each fault: every input and every earlier result stays as it was.

    Args:
        program: The program.
        words: Its arguments for an output folder. Each file that it writes has more than 50 bytes.
        inputs: The folder of its inputs.
        tmp_path: A new folder.
    """
    before, new, old = contents(inputs), tmp_path / "new" / "a", tmp_path / "old"
    call(program, *words(old))
    results = contents(old)
    assert results
    assert not any(path.name.startswith("partial") for path in results)
    for folder in (new, old):
        with disk_of(50):
            lines = call(program, *words(folder), status=1).stderr.splitlines()
        assert len(lines) <= 2
        assert "File too large" in lines[-1] or "cannot be written" in lines[-1], lines
        for stop in (signal.SIGTERM, signal.SIGINT):
            with raised_while_writing(stop):
                call(program, *words(folder), status=128 + stop)
        assert contents(old) == results
        assert not new.parent.exists()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert contents(inputs) == before
    shutil.rmtree(old)
