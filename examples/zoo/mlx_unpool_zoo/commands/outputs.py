"""Check inputs and outputs before a run."""

import fcntl
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def check_inputs(paths: Sequence[Path]) -> None:
    """Raise ValueError if there is no such file or folder, before anything is downloaded or written."""
    if missing := [str(path) for path in paths if not path.exists()]:
        raise ValueError(f"There is no file {' and no file '.join(missing[:3])}.")


def check_range(ends: Sequence[float] | None) -> None:
    """Raise ValueError if --range is given, but not two finite numbers of which the first is smaller."""
    if ends and not -math.inf < ends[0] < ends[1] < math.inf:
        raise ValueError(f"--range must be two finite numbers, the smaller one first, but got {ends}.")


def check_output_folder(option: str, path: Path) -> None:
    """Raise ValueError, naming the option, if a folder can neither be written to nor created."""
    found = _existing(path)
    if not found.is_dir():
        raise ValueError(f"{option} must be a folder but got {path}: {found} is not a folder.")
    _check_access(option, path, found, os.W_OK | os.X_OK)


def check_output_file(option: str, path: Path, suffixes: Sequence[str] = ()) -> None:
    """Raise ValueError, naming the option, if a file cannot be written or ends in none of ``suffixes``."""
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{option} must end in {' or '.join(suffixes)} but got {path}.")
    if path.is_dir():
        raise ValueError(f"{option} must be a file but got the folder {path}.")
    folder = _existing(path.parent)
    if not folder.is_dir():
        raise ValueError(f"{option} must be in an existing folder but got {path}: {folder} is not a folder.")
    _check_access(option, path, folder, os.W_OK | os.X_OK)
    if path.exists():
        _check_access(option, path, path, os.W_OK)


def _existing(path: Path) -> Path:
    """``path`` or the nearest folder above it that exists."""
    return next(folder for folder in (path, *path.parents) if os.path.lexists(folder))


def _check_access(option: str, path: Path, existing: Path, mode: int) -> None:
    if not os.access(existing, mode):
        raise ValueError(f"{option} must be writable but got {path}: no permission for {existing}.")


@contextmanager
def reserved(option: str, folder: Path) -> Iterator[None]:
    """Create a folder and lock it for one process. The lock ends with the process, even if it is killed.

    Raises:
        ValueError: If another process has locked the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ValueError(f"{option} must be another folder: another run writes to {folder}.") from None
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(descriptor)
