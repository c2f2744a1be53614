"""Write files atomically and check them when they are read."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import mlx.core as mx
from safetensors import SafetensorError, safe_open

from mlx_unpool.porting.messages import cut, shortened

CHECKSUM = "crc32"  # the metadata key of the checksum
# The types of arrays in safetensors files that MLX reads.
TYPES = {
    "BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "BF16", "F32", "C64",
}  # fmt: skip


# Reading.


def start_of(path: Path) -> bytes:
    """The first bytes of a file.

    Raises:
        OSError: If it cannot be opened.
        ValueError: If it is a folder, a pipe or a device. Reading a pipe could wait for ever.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise ValueError(f"it must be a file, but it is {kind}.")
    with path.open("rb") as file:
        return file.read(512)


def load_arrays(path: Path) -> tuple[dict[str, mx.array], dict[str, str]]:
    """Read the arrays and the metadata of a safetensors file; float64 becomes float32.

    Truncated and damaged files are refused. Changed values are detected only in files of
    ``save_arrays``, which have a checksum. Nothing in the file is executed.

    Raises:
        OSError: If the file cannot be opened.
        ValueError: If it is damaged, no safetensors file, or has arrays of a type that is not
            supported. The message does not have the path.
    """
    start_of(path)
    try:
        # MLX does not validate the header: a malicious one can cause a crash or an infinite loop.
        with safe_open(path, "numpy") as file:
            types = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
            if TYPES.issuperset(types.values()):
                found: Any = mx.load(str(path), format="safetensors", return_metadata=True)
            else:
                found = read_float64(file, types)
        mx.eval(found[0])
    except (SafetensorError, RuntimeError) as error:
        reason = shortened(str(error).splitlines()[0])
        raise ValueError(f"it cannot be read as a safetensors file: {reason}") from None
    arrays, metadata = found
    if metadata.get(CHECKSUM) not in (None, checksum(arrays, metadata)):
        raise ValueError("it is damaged: its checksum does not match its contents.")
    return arrays, metadata


def read_float64(file: Any, types: Mapping[str, str]) -> tuple[dict[str, mx.array], dict[str, str]]:
    """The arrays and the metadata of an opened file with types that MLX does not read."""
    unknown = {*types.values()} - TYPES - {"F64"}
    if unknown:
        raise ValueError(
            f"it has arrays of the type {cut(sorted(unknown))}, which is not supported: save as "
            "float32."
        )
    if "BF16" in types.values():  # which NumPy does not have
        raise ValueError(
            "it has arrays of F64 and BF16, which is not supported: save all as float32."
        )
    return {name: mx.array(file.get_tensor(name)) for name in types}, file.metadata() or {}


def checksum(arrays: Mapping[str, mx.array], metadata: Mapping[str, str]) -> str:
    """A CRC-32 of the names, types, shapes and values of arrays and of the metadata."""
    rest = {name: text for name, text in metadata.items() if name != CHECKSUM}
    result = zlib.crc32(json.dumps(rest, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        result = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), result)
        flat = mx.flatten(mx.contiguous(array, stream=mx.cpu), stream=mx.cpu)
        octets: Any = mx.view(flat, mx.uint8, stream=mx.cpu)
        result = zlib.crc32(memoryview(octets), result)
    return f"{result:08x}"


# Writing.


def save_arrays(
    path: Path, arrays: Mapping[str, mx.array], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file with a checksum in its metadata.

    First removes temporary files that killed processes left in the folder more than an hour ago.
    """
    contents = {**(metadata or {}), CHECKSUM: checksum(arrays, metadata or {})}
    for partial in path.parent.glob(f"partial-{'[0-9a-f]' * 16}-*"):
        with suppress(OSError):  # another process may remove it
            if time.time() - partial.lstat().st_mtime > 3600:
                partial.unlink()
    # An opened file, because MLX appends a suffix to a path without one.
    write_file(path, lambda file: mx.save_safetensors(file, dict(arrays), contents))


def write_file(path: Path, content: bytes | Callable[[Any], object]) -> None:
    """Write a file atomically: bytes, or what a function writes into the opened file.

    Raises:
        OSError: If the file cannot be written, for example on a full disk. It is then unchanged.
    """
    try:
        with replacing(path) as partial, partial.open("wb") as file:
            file.write(content) if isinstance(content, bytes) else content(file)
    except (RuntimeError, OSError) as error:  # MLX raises RuntimeError
        raise OSError(f"{path} cannot be written: {error}") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path and rename it to ``path`` when the block ends.

    A reader of ``path`` always finds a complete file, old or new. If there are several writers, the
    last one to finish wins. The contents are on the disk before the file is renamed. An existing
    file keeps its mode. A symbolic link is replaced, and the file to which it refers is unchanged.
    If the block raises (a full disk, Ctrl-C), ``path`` is unchanged, and the temporary file and the
    folders created for it are removed. Only a process that is killed leaves its ``partial-*`` file.
    """
    created = [folder for folder in path.absolute().parents if not folder.exists()]
    # Keeps the suffix, because writers choose the format by it; not too long for a file system.
    partial = path.with_name(f"partial-{secrets.token_hex(8)}-{path.name[-50:]}")
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is a folder, a pipe or a device")
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            partial.touch(0o600)  # private until it gets the mode of the existing file
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, partial)
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
            for folder in created:  # another writer may use them
                folder.rmdir()
        raise
    # Otherwise a power failure can restore the old file. Some file systems cannot do this.
    with suppress(OSError):
        opened = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
