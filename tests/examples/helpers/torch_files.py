"""Write files as ``torch.save`` does, without PyTorch."""

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
from mlx_unpool_zoo.checkpoints import MAGIC
from mlx_unpool_zoo.pickles import BFLOAT16, DTYPES

STORAGES = {dtype: name for name, dtype in DTYPES.items() if name.endswith("Storage")}


class Name:
    """A function or a class that is pickled by its name and need not exist."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> None:
        """``pickle`` requires something that can be called."""


class Module:
    """An object of a class of the authors, with its state."""

    def __init__(self, path: str, parameters: dict[str, Any], **modules: Any) -> None:
        self.path = path
        self.state = {"training": False, "_parameters": parameters, "_buffers": {}, "_modules": modules}


class Pickler(pickle._Pickler):
    """Pickles arrays as tensors and a ``Module`` as an object; as of PyTorch 0.3 if ``old``."""

    def __init__(self, file: Any, old: bool) -> None:
        super().__init__(file, 2)
        self.old, self.storages, self.classes = old, {}, set()

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.base is None:  # a storage
            key = str(id(value)) if self.old else str(len(self.storages))
            key = self.storages.setdefault(id(value), (key, value))[0]
            saved = ("storage", Name(STORAGES[value.dtype]), key, "cuda:0", value.size)
            return (*saved, (f"{key} part", 1, value.size - 1)) if self.old else saved
        is_class = isinstance(value, Name) and value.path.startswith("authors.")
        if self.old and is_class and value.path not in self.classes:
            self.classes.add(value.path)
            return ("module", value, "authors.py", "class Net: ...")
        return None

    def save(self, value: Any, save_persistent_id: bool = True) -> Any:
        saved = self.persistent_id(value) if save_persistent_id else None
        if saved is not None:
            return self.save_pers(saved)
        if isinstance(value, Name):
            return self.write(b"c%s\n%s\n" % tuple(part.encode() for part in value.path.rsplit(".", 1)))
        if isinstance(value, Module):
            return self.save_reduce(Name("torch._utils._new"), (Name(value.path),), value.state)
        if isinstance(value, np.ndarray):
            flat, size = value.base, value.itemsize
            offset = (value.__array_interface__["data"][0] - flat.__array_interface__["data"][0]) // size
            view = (flat, offset - self.old, value.shape, tuple(step // size for step in value.strides))
            if self.old:
                return self.save_reduce(Name("torch._utils._rebuild_tensor"), view, obj=value)
            rebuild = Name("torch._utils._rebuild_tensor_v2")
            return self.save_reduce(rebuild, (*view, False, OrderedDict()), obj=value)
        return super().save(value, save_persistent_id=False)


def write_torch(path: Path, content: Any, kind: str, order: str = "little") -> Path:
    """Write a file of the ``kind`` "zip", "zip without checksums", "old" (before 1.6) or "0.3".

    Arrays must be views of flat ones and, for "0.3", not have the first element of these.
    """
    pickled = io.BytesIO()
    pickler = Pickler(pickled, kind == "0.3")
    pickler.dump(content)
    storages = dict(pickler.storages.values())
    if kind.startswith("zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("model/data.pkl", pickled.getvalue())
            archive.writestr("model/byteorder", order)
            for key, array in storages.items():
                archive.writestr(f"model/data/{key}", array.tobytes())
            checksums = [info.CRC for info in archive.infolist()]
        if kind != "zip":
            for checksum in checksums:
                path.write_bytes(path.read_bytes().replace(struct.pack("<I", checksum), bytes(4)))
        return path
    head = [MAGIC, 1001, {"protocol_version": 1001, "little_endian": order == "little", "type_sizes": {}}]
    pickles = [*(pickle.dumps(part, 2) for part in head), pickled.getvalue(), pickle.dumps([*storages], 2)]
    data = [struct.pack("<q", array.size) + array.tobytes() for array in storages.values()]
    path.write_bytes(b"".join(pickles + data))
    return path


def flat_array(count: int, dtype: Any = np.float32) -> np.ndarray:
    """A new flat array of 0, 1, 2, ...; ``BFLOAT16``, too."""
    numbers = np.arange(count, dtype=np.float32)
    if dtype == BFLOAT16:
        return np.array((numbers.view(np.uint32) >> 16).astype("<u2").view(BFLOAT16))
    return numbers.astype(dtype)
