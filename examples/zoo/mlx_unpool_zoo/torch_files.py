"""Read the files of ``torch.save`` of all versions: pickles, and the storages of tensors."""

from __future__ import annotations

import functools
import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mlx_unpool.porting.messages import cut

from .pickles import Foreign, Named, Reader, Unreadable

HOW_TO_EXPORT = (
    "In an environment with the model's code, export its state dict: "
    "torch.save(model.state_dict(), 'weights.pth')."
)
MAGIC = 0x1950A86A20F9469CFC6C  # the first of the five pickles of a file before PyTorch 1.6
BFLOAT16 = np.dtype([("bfloat16", "<u2")])  # the bits of each number: NumPy has no such type
CODES = {
    "Double": "f8", "Float": "f4", "Half": "f2", "Long": "i8", "Int": "i4", "Short": "i2",
    "Char": "i1", "Byte": "u1", "Bool": "?", "ComplexDouble": "c16", "ComplexFloat": "c8",
}  # fmt: skip
DTYPES = {
    **{f"torch.{name}Storage": np.dtype(f"<{code}") for name, code in CODES.items()},
    "torch.BFloat16Storage": BFLOAT16,
    "torch.storage.UntypedStorage": np.dtype("u1"),
    **{f"torch.uint{bits}": np.dtype(f"<u{bits // 8}") for bits in (16, 32, 64)},
}


def not_supported(kind: str) -> str:
    """Why a tensor or an array of a kind is refused, and what to do."""
    if kind.startswith("numpy"):
        advice = "torch.from_numpy(array), or pass what pickle.load returns if you trust the file"
    else:
        advice = "a dense tensor: tensor.float(), tensor.dequantize() or tensor.to_dense()"
    return f"{cut([kind])}, which is not supported: save {advice}."


# Tensors.


class Storage(NamedTuple):
    """The elements of tensors."""

    flat: np.ndarray | None  # None before they are read
    first: int  # of those that a tensor can have


class Storages:
    """Returns the storage for a persistent identifier, or its type if that is not supported.

    ``array_of`` returns the array for the key, the dtype and the number of elements of a storage.
    """

    def __init__(self, array_of: Callable[[Any, np.dtype, int], np.ndarray | None]) -> None:
        self.array_of, self.arrays = array_of, dict[Any, Any]()
        self.unknown = list[str]()  # the types that are not supported

    def __call__(self, saved: tuple[Any, ...]) -> Any:
        if saved[0] == "module":  # the class of a whole model, with its source, before PyTorch 1.6
            return saved[1]
        name, kind, key, _, count, *part = saved
        if name != "storage" or type(key) not in (str, int) or not are_sizes(count):
            raise Unreadable("it is damaged: a tensor has no valid storage.")
        if kind.kind not in DTYPES:
            self.unknown.append(kind.kind)
            return kind
        dtype = DTYPES[kind.kind]
        if (key, dtype) not in self.arrays:
            self.arrays[key, dtype] = self.array_of(key, dtype, count)
        first = part[0][1] if part and part[0] else 0  # of a part, in a file before PyTorch 0.4
        return Storage(self.arrays[key, dtype], first)


def tensor(
    _: Reader, storage: Any, offset: Any, shape: Any, strides: Any,
    requires_grad: Any = None, hooks: Any = None, options: Any = None,
) -> Any:  # fmt: skip
    """A view of a storage with elements of one type."""
    check_options(options)
    if isinstance(storage, Named):
        return Foreign(f"a tensor of {storage.kind}")
    return view_of(storage, offset, shape, strides)


def tensor_of_type(
    _: Reader, storage: Any, offset: Any, shape: Any, strides: Any,
    requires_grad: Any, hooks: Any, dtype: Named, options: Any = None,
) -> Any:  # fmt: skip
    """A view of a storage of bytes, for the types that PyTorch added later."""
    check_options(options)
    if dtype.kind not in DTYPES:
        return Foreign(f"a tensor of {dtype.kind}")
    return view_of(storage, offset, shape, strides, DTYPES[dtype.kind])


def check_options(options: Any) -> None:
    """Raise an error if PyTorch would change the numbers of a storage when it reads a tensor."""
    changes = [name for name, value in (options or {}).items() if value]
    if changes:
        raise Unreadable(
            f"it has a tensor with the option {changes[0]!r} of PyTorch, which is not supported. "
            "Save tensor.resolve_conj().resolve_neg().clone() instead of each tensor."
        )


def view_of(
    storage: Storage, offset: Any, shape: Any, strides: Any, dtype: np.dtype | None = None
) -> Any:
    """A view of a storage. The offset and the strides are in elements."""
    if storage.flat is None:
        return None
    if not are_sizes(storage.first, offset, *shape, *strides) or len(shape) != len(strides):
        raise Unreadable("it is damaged: a tensor has no valid shape and strides.")
    flat, dtype = storage.flat, dtype or storage.flat.dtype
    if 0 in shape:
        return np.empty(shape, dtype)
    start = storage.first + offset
    last = start + sum((n - 1) * step for n, step in zip(shape, strides))
    size = dtype.itemsize
    if last >= flat.nbytes // size:
        end = f"beyond its storage of {flat.size:,} elements."
        raise Unreadable(f"it is damaged: a tensor {shape} reaches {end}")
    return np.ndarray(shape, dtype, flat, start * size, [step * size for step in strides])


def are_sizes(*numbers: Any) -> bool:
    """Whether all are integers, and none is negative."""
    return all(type(number) is int and number >= 0 for number in numbers)


# The functions that a file may call, with the arguments of all versions of PyTorch.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "torch.Size": lambda _, sizes: sizes,
    "torch.nn.parameter.Parameter": lambda _, data, requires_grad=True: data,
    "torch._utils._rebuild_parameter": lambda _, data, requires_grad, hooks: data,
    "torch._utils._rebuild_parameter_with_state": lambda _, data, requires_grad, hooks, state: data,
    "torch._utils._rebuild_tensor": tensor,
    "torch._utils._rebuild_tensor_v2": tensor,
    "torch._utils._rebuild_tensor_v3": tensor_of_type,
    "torch._tensor._rebuild_from_type_v2": lambda reader, function, kind, arguments, state: (
        reader.call(function, arguments)
    ),
}


# Files.


def read_zip(path: Path) -> Any:
    """Read a file of ``torch.save`` since PyTorch 1.6: a zip file of a pickle and the storages."""
    with zipfile.ZipFile(path) as archive:
        folder = folder_of(archive.namelist())
        check_entries(archive.infolist(), path.stat().st_size)
        read = functools.cache(archive.read)
        if f"{folder}byteorder" in archive.namelist():
            check_byte_order(read(f"{folder}byteorder") == b"little")

        def array_of(key: Any, dtype: np.dtype, count: int) -> np.ndarray:
            content = read(f"{folder}data/{key}")
            return array_at(content, 0, len(content), dtype, count)

        reader = Reader(io.BytesIO(read(f"{folder}data.pkl")), FUNCTIONS)
        return reader.load(Storages(array_of))


def folder_of(names: list[str]) -> str:
    """The folder of PyTorch in a zip file, with a slash at the end."""
    pickled = [name for name in names if re.fullmatch("[^/]*/data.pkl", name)]
    if not pickled:
        raise Unreadable(
            f"it is a zip file of {cut(names, 3)}. Unpack it, or pass dict(numpy.load(path)) "
            "of an .npz file."
        )
    folder = pickled[0].removesuffix("data.pkl")
    if f"{folder}constants.pkl" in names:
        raise Unreadable(f"it is a TorchScript file. {HOW_TO_EXPORT}")
    return folder


def check_entries(entries: list[zipfile.ZipInfo], size: int) -> None:
    """Raise an error if the entries of a zip file are compressed or longer than the file."""
    if any(entry.compress_type for entry in entries):
        raise Unreadable("it is compressed, which files of torch.save are not.")
    if sum(entry.file_size for entry in entries) > size:
        raise Unreadable("it is damaged: its entries overlap.")
    for entry in entries:
        if not entry.CRC:  # PyTorch can save without checksums
            entry.CRC = None  # type: ignore[assignment]


def check_byte_order(is_little: bool) -> None:
    """Raise an error if the numbers in a file are big-endian."""
    if not is_little:
        raise Unreadable("it is big-endian, which is not supported.")


def read_pickles(content: bytes) -> Any:
    """Read a file of ``torch.save`` before PyTorch 1.6: five pickles, then the storages."""
    file = io.BytesIO(content)
    reader = Reader(file, FUNCTIONS)
    checkpoint = reader.load()
    if not isinstance(checkpoint, int):
        return checkpoint
    _, machine = reader.load(), reader.load()
    if checkpoint != MAGIC:
        raise Unreadable("it is a pickle of a number.")
    check_byte_order(machine.get("little_endian") is True)
    start = file.tell()
    kinds = read_kinds(reader)
    storages = read_storages(content, file.tell(), kinds)
    file.seek(start)
    return reader.load(Storages(lambda key, dtype, count: storages[key]))


def read_kinds(reader: Reader) -> dict[str | int, tuple[np.dtype, int]]:
    """The dtype and the number of elements of each storage, in the order in the file."""
    kinds: dict[str | int, tuple[np.dtype, int]] = {}

    def note_kind(key: Any, dtype: np.dtype, count: int) -> None:
        kinds.setdefault(key, (dtype, count))

    storages = Storages(note_kind)  # without arrays, which follow
    reader.load(storages)
    if storages.unknown:  # where the next one starts is not known
        raise Unreadable(f"it has a tensor of {not_supported(storages.unknown[0])}")
    keys = reader.load()
    if not all(type(key) in (str, int) for key in keys):  # others may take forever to hash
        raise Unreadable("it is damaged: a storage has no valid key.")
    return {key: kinds[key] for key in keys}


def read_storages(content: bytes, position: int, kinds: Any) -> dict[str | int, np.ndarray]:
    """The storages: for each its number of elements, in eight bytes, and the elements."""
    storages = {}
    for key, (dtype, count) in kinds.items():
        if int.from_bytes(content[position : position + 8], "little") != count:
            raise Unreadable(
                f"it is damaged: the storage {key} has another size than its tensors say."
            )
        start = position + 8
        position = start + count * dtype.itemsize
        storages[key] = array_at(content, start, position, dtype, count)
    return storages


def array_at(content: bytes, start: int, end: int, dtype: np.dtype, count: int) -> np.ndarray:
    """The flat array of ``count`` elements in a part of the content of a file."""
    if end - start != count * dtype.itemsize or end > len(content):
        raise Unreadable(f"it is damaged: it ends within an array of {count:,} elements.")
    return np.frombuffer(content, dtype, count, start)
