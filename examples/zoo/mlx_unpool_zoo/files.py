"""Write files atomically."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import mlx.core as mx


def write_together(contents: Mapping[Path, str | Callable[[Path], object]]) -> None:
    """Write files, each a text or a function that gets a temporary path; rename all at the end.

    Raises:
        OSError: If a file cannot be written, for example because the disk is full. No file has then changed.
    """
    with ExitStack() as stack:
        for path, content in contents.items():
            partial = stack.enter_context(replacing(path))
            try:
                if isinstance(content, str):
                    partial.write_text(content, encoding="utf-8")
                else:
                    content(partial)
                synchronise(partial)  # here, so that the renames follow each other closely
            except (RuntimeError, OSError) as error:  # MLX raises RuntimeError
                raise OSError(f"{path} cannot be written: {error}") from None


def write_arrays(path: Path, arrays: Mapping[str, mx.array], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file. ``mx.save_safetensors`` appends a suffix to a path without one."""
    with path.open("wb") as file:
        opened: Any = file
        mx.save_safetensors(opened, dict(arrays), dict(metadata))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path and rename it to ``path`` when the block ends.

    A reader of ``path`` always finds a complete file, old or new. If there are several writers, the last one
    to finish wins. File and folder are synchronised to the disk. If the block raises (a full disk, Ctrl-C),
    ``path`` is unchanged, and the temporary file and the folders created for it are removed. Only a process
    that is killed leaves its ``partial-*`` file.
    """
    if ".." in path.parts:
        # Resolved by the operating system, so the folder before ".." must exist.
        path = path.parent.resolve(strict=True) / path.name
    path = Path(os.path.realpath(path))  # keeps symbolic links
    created = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    # Keeps the suffix, because writers choose the format by it.
    partial = path.with_name(f"partial-{secrets.token_hex(8)}-{path.name}")
    try:
        yield partial
        synchronise(partial)
        partial.replace(path)
        synchronise(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        with suppress(OSError):  # another writer may use them
            for folder in created:
                folder.rmdir()
        raise


def synchronise(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
