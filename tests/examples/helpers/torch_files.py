"""Write files as of ``torch.save``, without PyTorch."""

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from mlx_unpool_zoo.torch_files import MAGIC


def pickled(content: bytes) -> bytes:
    """A pickle of these opcodes."""
    return b"\x80\x02" + content + b"."


def text(value: str) -> bytes:
    """The opcode of a text."""
    return b"X" + len(value.encode()).to_bytes(4, "little") + value.encode()


def numbers(words: str) -> bytes:
    """Opcodes of the numbers in a text."""
    return b"".join(b"L%sL\n" % word.encode() for word in words.split())


def tensor(
    shape: str, strides: str, count: int = 4, key: str = "0", offset: int = 0, part: bytes = b""
) -> bytes:
    """Opcodes of a tensor of a storage of ``count`` numbers, or of a part, as in PyTorch 0.3."""
    kind = b"(U\x07storagectorch\nFloatStorage\n"
    storage = kind + text(key) + b"U\x03cpuL%dL\n%stQ" % (count, part)
    numbers = [
        b"".join(b"L%sL\n" % n.encode() for n in words.split()) for words in (shape, strides)
    ]
    sizes = b"(%st(%st" % tuple(numbers)
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K%c" % offset + sizes + b"tR"


def file_of(content: bytes, storages: dict[str, bytes], kind: str, order: str = "little") -> bytes:
    """A file as of ``torch.save``, in the zip format or the one before 1.6, with these storages."""
    if kind == "old":
        head = [MAGIC, 1001, {"little_endian": order == "little"}]
        parts = [pickle.dumps(part, 2) for part in head]
        parts += [pickled(content), pickle.dumps([*storages], 2)]
        for value in storages.values():
            parts += [(len(value) // 4).to_bytes(8, "little"), value]
        return b"".join(parts)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/data.pkl", pickled(content))
        archive.writestr("model/byteorder", order)
        for key, value in storages.items():
            archive.writestr(f"model/data/{key}", value)
    return file.getvalue()


def save_checkpoint(path: Path, checkpoint: dict[str, Any]) -> Path:
    """Write a checkpoint: a dict of arrays, which become float32, and of further dicts."""
    storages: dict[str, bytes] = {}

    def opcodes(value: Any) -> bytes:
        if isinstance(value, dict):
            return b"}(" + b"".join(text(key) + opcodes(item) for key, item in value.items()) + b"u"
        array, key = np.asarray(value, np.float32), str(len(storages))
        storages[key] = array.tobytes()
        strides = " ".join(str(step // 4) for step in np.empty(array.shape, np.float32).strides)
        return tensor(" ".join(map(str, array.shape)), strides, array.size, key)

    path.write_bytes(file_of(opcodes(checkpoint), storages, "zip"))
    return path
