"""Read the files of ``torch.save`` of all versions: pickles, and the storages of the tensors in them."""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any

import numpy as np

from mlx_unpool.porting.messages import cut

from .pickles import LIMIT, Reader, Unreadable

HOW_TO_EXPORT = (
    "In an environment with the model's code, export its state dict: "
    "torch.save(model.state_dict(), 'weights.pth')."
)
MAGIC = 0x1950A86A20F9469CFC6C  # the first of the five pickles of a file before PyTorch 1.6
BIG_ENDIAN = "it is big-endian, which is not supported."


class Archive:
    """The entries of a zip file, without copies of the file's content.

    zipfile finds the entries, but refuses to read those of PyTorch's files that have no checksums.
    """

    def __init__(self, content: bytes) -> None:
        if content.count(b"PK\1\2") > LIMIT // 10:
            raise Unreadable(f"it has more than {LIMIT // 10:,} entries.")
        self.content = content
        self.entries = {info.filename: info for info in zipfile.ZipFile(io.BytesIO(content)).infolist()}
        self.unread = len(content)

    def place(self, name: str) -> tuple[int, int]:
        """Where the content of an entry starts and ends in the file."""
        entry = self.entries[name]
        if entry.compress_type or entry.file_size != entry.compress_size:
            raise Unreadable("it is compressed, which files of torch.save are not.")
        self.unread -= entry.file_size
        if self.unread < 0:
            raise Unreadable("it is damaged: its entries overlap.")
        # A name and an extra field are between the header of an entry, of 30 bytes, and its content.
        lengths = self.number(entry.header_offset + 26) + self.number(entry.header_offset + 28)
        start = entry.header_offset + 30 + lengths
        return start, start + entry.file_size

    def number(self, start: int) -> int:
        """A number of two bytes in the file."""
        return int.from_bytes(self.content[start : start + 2], "little")

    def read(self, name: str) -> bytes:
        """The content of an entry."""
        start, end = self.place(name)
        return self.content[start:end]


def read_zip(content: bytes) -> Any:
    """Read a file of ``torch.save`` since PyTorch 1.6: a zip file of a pickle and a storage in each entry."""
    archive = Archive(content)
    folder = folder_of(archive)
    if f"{folder}byteorder" in archive.entries and archive.read(f"{folder}byteorder") == b"big":
        raise Unreadable(BIG_ENDIAN)

    def storage_of(key: Any, dtype: np.dtype, count: int) -> np.ndarray:
        start, end = archive.place(f"{folder}data/{key}")
        return storage(content, start, end, dtype, count)

    return Reader(io.BytesIO(archive.read(f"{folder}data.pkl"))).load(storage_of)


def folder_of(archive: Archive) -> str:
    """The folder of PyTorch in a zip file, with a slash at the end."""
    names = list(archive.entries)
    pickled = [name for name in names if re.fullmatch("[^/]*/data.pkl", name)]
    if not pickled:
        if names and all(name.endswith(".npy") for name in names):
            raise Unreadable("it is an .npz file of NumPy. Pass dict(numpy.load(path)).")
        raise Unreadable(f"it is a zip file of {cut(names, 3)}. Unpack it first.")
    folder = pickled[0].removesuffix("data.pkl")
    if f"{folder}constants.pkl" in names:
        raise Unreadable(f"it is a TorchScript file. {HOW_TO_EXPORT}")
    return folder


def read_pickles(content: bytes) -> Any:
    """Read a file of ``torch.save`` before PyTorch 1.6: five pickles, then the storages; or one pickle."""
    file = io.BytesIO(content)
    reader = Reader(file)
    checkpoint = reader.load()
    if not isinstance(checkpoint, int):
        return checkpoint
    _, machine = reader.load(), reader.load()
    if checkpoint != MAGIC:
        raise Unreadable("it is a pickle of a number.")
    if machine.get("little_endian") is not True:
        raise Unreadable(BIG_ENDIAN)
    start = file.tell()
    kinds: dict[str | int, tuple[np.dtype, int]] = {}

    def note_kind(key: Any, dtype: np.dtype, count: int) -> None:
        kinds.setdefault(key, (dtype, count))

    reader.load(note_kind)  # without arrays, whose storages follow
    keys = reader.load()
    storages = read_storages(content, file.tell(), keys, kinds)
    file.seek(start)
    return reader.load(lambda key, dtype, count: storages[key])


def read_storages(content: bytes, position: int, keys: Any, kinds: Any) -> dict[str | int, np.ndarray]:
    """The storages with these keys: for each its number of elements, in eight bytes, and the elements."""
    storages = {}
    for key in keys:
        if not isinstance(key, str | int):  # others may take forever to hash
            raise Unreadable("it is damaged: a storage has no valid key.")
        dtype, count = kinds[key]
        if int.from_bytes(content[position : position + 8], "little") != count:
            raise Unreadable(f"it is damaged: the storage {key} has another size than its tensors say.")
        start = position + 8
        position = start + count * dtype.itemsize
        storages[key] = storage(content, start, position, dtype, count)
    return storages


def storage(content: bytes, start: int, end: int, dtype: np.dtype, count: int) -> np.ndarray:
    """The flat array of ``count`` elements in a part of the content of a file."""
    if end - start != count * dtype.itemsize or end > len(content):
        raise Unreadable(f"it is damaged: it ends within an array of {count:,} elements.")
    return np.frombuffer(content, dtype, count, start)
