"""Write files atomically and check them when they are read."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_unpool_zoo.files import replacing as replacing
from mlx_unpool_zoo.files import write_arrays, write_together
from mlx_unpool_zoo.pytorch import load_safetensors

CHECKSUM = "crc32"  # the metadata key of the checksum


def check_output_folder(option: str, path: Path) -> None:
    """Raise ValueError, naming the option, if a folder can neither be written to nor created."""
    found = _existing(path)
    if not found.is_dir():
        raise ValueError(f"{option} must be a folder but got {path}: {found} is not a folder.")
    _check_access(option, path, found, os.W_OK | os.X_OK)


def check_output_file(
    option: str, path: Path, suffixes: Sequence[str] = (), creates_folder: bool = False
) -> None:
    """Raise ValueError, naming the option, if a file cannot be written or ends in none of ``suffixes``."""
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{option} must end in {' or '.join(suffixes)} but got {path}.")
    if path.is_dir():
        raise ValueError(f"{option} must be a file but got the folder {path}.")
    folder = _existing(path.parent) if creates_folder else path.parent
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


def save_arrays(path: Path, arrays: dict[str, mx.array], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file atomically, with a checksum in its metadata.

    Raises:
        OSError: If the file cannot be written. An existing file is then unchanged.
    """
    metadata = dict(metadata or {})
    metadata[CHECKSUM] = checksum(arrays, metadata)
    write_together({path: lambda partial: write_arrays(partial, arrays, metadata)})


def load_arrays(path: Path) -> tuple[dict[str, mx.array], dict[str, str]]:
    """Read the arrays and the metadata of a safetensors file.

    Truncated and damaged files are refused. Changed numbers are detected only in files from
    :func:`save_arrays`, which have a checksum. Nothing in the file is executed.

    Raises:
        OSError: If the file cannot be opened.
        ValueError: If it is damaged, or not a safetensors file.
    """
    try:
        arrays, metadata = load_safetensors(path)
    except ValueError as error:
        raise ValueError(f"{path}: {str(error).splitlines()[0]}") from None
    expected = metadata.pop(CHECKSUM, None)
    if expected not in (None, checksum(arrays, metadata)):
        raise ValueError(f"{path}: it is damaged: its checksum does not match its contents.")
    return arrays, metadata


def checksum(arrays: dict[str, mx.array], metadata: dict[str, str]) -> str:
    """A CRC-32 of the names, types, shapes and values of arrays and of the metadata, in hexadecimal."""
    result = zlib.crc32(json.dumps(metadata, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        result = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), result)
        flat = mx.flatten(mx.contiguous(array, stream=mx.cpu), stream=mx.cpu)
        octets: Any = mx.view(flat, mx.uint8, stream=mx.cpu)
        result = zlib.crc32(memoryview(octets), result)
    return f"{result:08x}"
