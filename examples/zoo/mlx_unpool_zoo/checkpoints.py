"""Read files of weights without the frameworks that wrote them. No code in a file is run or imported.

All functions raise a ValueError of one line if the content is damaged or is something else; only that of
``read_state`` has the path.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mlx_unpool.porting.messages import shortened

from .files import load_arrays
from .pickles import Unreadable
from .state_dicts import arrays_of, state_of
from .tensorflow_lite import read_tflite
from .torch_files import read_pickles, read_zip

# What people take for a file of weights: how its name ends or its content starts, and what to do.
ENDINGS = {
    ".onnx": "an ONNX file. Pass {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph."
    "initializer}.",
    ".caffemodel": "a file of Caffe. Pass its arrays by name, for example those of net.params in pycaffe.",
    ".json": "a JSON file. If it is the index of weights in several files, read these and merge the dicts.",
}
TORCH_7 = "a file of Lua Torch 7. Read it with the package torchfile, and pass a dict of its arrays."
STARTS = {
    b"\x93NUMPY": "one array of NumPy. Pass a dict: {name: numpy.load(path)}.",
    b"\3\0\0\0\1": TORCH_7,
    b"\4\0\0\0\1": TORCH_7,
    b"version https://git-lfs": "a Git LFS pointer. Download the file itself, for example with git lfs pull.",
    b"<": "a web page. Download the file itself.",
    b"\x89HDF": "an HDF5 file, as Keras writes them: see 'Weights of Keras' in docs/porting.md.",
    b"\x1f\x8b": "compressed with gzip. Unpack it first.",
}
TAR = (
    "a tar file. Unpack an archive; if PyTorch wrote it before 2017, save its content again with a newer "
    "version: torch.save(torch.load(old, weights_only=False), new)."
)


def read_state(path: str | Path) -> dict[str, np.ndarray]:
    """Read the state dict in a file of weights; floating-point arrays become float32."""
    try:
        return arrays_of(state_of(read_checkpoint(path)))
    except ValueError as error:
        raise ValueError(f"{path}: {shortened(str(error), 1000)}") from None


def read_checkpoint(path: str | Path) -> Any:
    """Read a file of weights, whatever its ending.

    It needs the memory of the file. Sizes in the file are checked before anything is allocated for them.

    Returns:
        What ``torch.save`` saved: tensors are NumPy arrays (views of the content of the file), those of
        bfloat16 with the dtype ``BFLOAT16``, and objects of other classes are ``Foreign``. A dict of MLX
        arrays for safetensors; for TensorFlow Lite see ``read_tflite``.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError("it is a folder, not a file.")
    if not path.is_file():
        raise ValueError("there is no such file.")
    with path.open("rb") as file:
        start = file.read(512)
    is_safetensors, is_tflite = start[8:9] == b"{", start[4:8] == b"TFL3"
    refuse_other_formats(path, b"" if is_safetensors else start)
    if is_safetensors or path.suffix == ".safetensors":
        return load_arrays(path)[0]
    if is_tflite or path.suffix == ".tflite":
        return read_tflite(path)
    return read_torch(path.read_bytes())


def refuse_other_formats(path: Path, start: bytes) -> None:
    """Raise ValueError for a file of another format, which its name or the start of its content shows."""
    for ending, advice in ENDINGS.items():
        if path.name.endswith(ending):
            raise ValueError(f"it is {advice}")
    if start[257:262] == b"ustar":
        raise ValueError(f"it is {TAR}")
    text = start.lstrip(b"\xef\xbb\xbf\r\n\t ")
    for sign, advice in STARTS.items():
        if text.startswith(sign):
            raise ValueError(f"it is {advice}")


def read_torch(content: bytes) -> Any:
    """Read the content of a file of ``torch.save`` or of ``pickle``."""
    try:
        return read_zip(content) if content.startswith(b"PK") else read_pickles(content)
    except Unreadable as error:
        reason = shortened(" ".join(str(error).split()), 500)
    except Exception:  # damaged and malicious files raise many kinds of errors
        reason = "it is damaged, or not a file of torch.save."
    raise ValueError(f"it cannot be read as a checkpoint: {reason}")
