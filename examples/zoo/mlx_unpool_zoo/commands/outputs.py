"""Check inputs and outputs before a run."""

import fcntl
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def check_inputs(paths: Sequence[Path]) -> None:
    """Raise ValueError if an input does not exist, before anything is downloaded or written."""
    if missing := [str(path) for path in paths if not path.exists()]:
        raise ValueError(f"There is no file {' and no file '.join(missing[:3])}.")


def check_range(ends: Sequence[float] | None) -> None:
    """Raise ValueError unless --range is absent or two finite numbers, the smaller one first."""
    if ends and not -math.inf < ends[0] < ends[1] < math.inf:
        raise ValueError(
            f"--range must be two finite numbers, the smaller one first, but got {ends}."
        )


def check_output_folder(option: str, path: Path) -> None:
    """Raise ValueError, naming the option, if a folder can neither be written to nor created."""
    _check_folder(option, "a folder", path, path)


def check_output_file(option: str, path: Path, suffixes: Sequence[str] = ()) -> None:
    """Raise ValueError if an option's file cannot be written or ends in none of ``suffixes``."""
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{option} must end in {' or '.join(suffixes)} but got {path}.")
    if path.is_dir():
        raise ValueError(f"{option} must be a file but got the folder {path}.")
    _check_folder(option, "in an existing folder", path, path.parent)


def _check_folder(option: str, kind: str, path: Path, folder: Path) -> None:
    """Check that a folder, or the nearest one above it that exists, can be written to."""
    found = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    if not found.is_dir():
        raise ValueError(f"{option} must be {kind} but got {path}: {found} is not a folder.")
    for each, mode in ((found, os.W_OK | os.X_OK), (path, os.W_OK)):
        if each.exists() and not os.access(each, mode):
            raise ValueError(f"{option} must be writable but got {path}: no permission for {each}.")


def refuse_inputs(inputs: Sequence[Path], outputs: Sequence[Path]) -> None:
    """Raise ValueError if an output would replace an input, perhaps by another link to it."""
    known = {(path.stat().st_dev, path.stat().st_ino) for path in inputs if path.exists()}
    for path in outputs:
        if path.exists() and (path.stat().st_dev, path.stat().st_ino) in known:
            raise ValueError(f"--output would replace the input {path}: choose another name.")


@contextmanager
def reserved(option: str, folder: Path) -> Iterator[None]:
    """Create a folder and lock it for one process.

    The lock ends with the process, even if it is killed.

    Raises:
        ValueError: If another process has locked the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ValueError(
            f"{option} must be another folder: another run writes to {folder}."
        ) from None
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(descriptor)
