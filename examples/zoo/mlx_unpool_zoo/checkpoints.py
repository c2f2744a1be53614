"""Read files of weights without the frameworks that wrote them. No code in a file is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mlx_unpool.porting.messages import shortened

from .files import load_arrays, start_of
from .pickles import Unreadable
from .state_dicts import arrays_of, state_of
from .tensorflow_lite import tflite_constants
from .torch_files import read_pickles, read_zip

# What people take for a file of weights: how its content starts, and what to do.
STARTS = {
    b"version https://git-lfs": "a Git LFS pointer. Download the file itself, with git lfs pull.",
    b"<": "a web page. Download the file itself.",
    b"\x89HDF": "an HDF5 file, as Keras writes them: see 'Weights of Keras' in docs/porting.md.",
    b"\x1f\x8b": "compressed with gzip. Unpack it first.",
    b"{": "a JSON file. If it is the index of weights in several files, read these.",
    b"\x93NUMPY": "one array of NumPy. Pass a dict: {name: numpy.load(path)}.",
}
ONNX = "an ONNX file. Pass the arrays of its initializers: onnx.numpy_helper.to_array(initializer)."
TAR = (
    "a tar file. Unpack an archive; if PyTorch wrote it before 2017, save its content again with a "
    "newer version: torch.save(torch.load(old, weights_only=False), new)."
)


def read_state(path: str | Path, key: str | None = None) -> dict[str, np.ndarray]:
    """Read the state dict in a file of weights. Floating-point arrays become float32.

    Files may be those of ``torch.save``, of safetensors and of TensorFlow Lite, with any name. No
    code in them is run.

    Args:
        path: The file.
        key: The key of the state dict in a checkpoint, if it is none of the usual ones:
            ``state_dict``, ``model_state_dict``, ``model_state``, ``model``, ``network``, ``net``,
            ``params`` and ``weights``. "A/B" is the entry B of the entry A.

    Raises:
        OSError: If the file cannot be opened.
        ValueError: If it has no state dict, several, or arrays that are not supported; if it is
            damaged or something else. The message has the path and what to do.
    """
    try:
        return arrays_of(state_of(read_checkpoint(path), key))
    except ValueError as error:
        raise ValueError(f"{path}: {shortened(str(error), 1000)}") from None


def read_tflite(path: str | Path) -> dict[str, Any]:
    """Read the constants and the operators of the first graph in a file of TensorFlow Lite.

    Returns:
        ``state_dict``, the constants by name, in TensorFlow's layout, and ``operators``, how often
        each operator occurs, by its name in capitals or, if it is not one of TensorFlow Lite's own,
        by the name in the file. Quantized constants are the stored integers.

    Raises:
        OSError: If the file cannot be opened.
        ValueError: If it is damaged, no TFLite file, or a constant is no dense array of numbers.
    """
    try:
        start_of(Path(path))
        return tflite_constants(Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_checkpoint(path: str | Path) -> Any:
    """Read a file of weights. It needs the memory of the file.

    Sizes in the file are checked before anything is allocated for them.

    Returns:
        What ``torch.save`` saved: tensors are NumPy arrays, those of bfloat16 with the dtype
        ``BFLOAT16``, and objects of other classes are ``Foreign``. A dict of MLX arrays for
        safetensors; for TensorFlow Lite see ``read_tflite``.

    Raises:
        OSError: If the file cannot be opened.
        ValueError: If it is damaged or something else. The message is one line without the path.
    """
    path = Path(path)
    start = start_of(path)
    if start[8:9] == b"{":
        return load_arrays(path)[0]
    if start[4:8] == b"TFL3":
        return tflite_constants(path.read_bytes())
    refuse_other_formats(path, start)
    return read_torch(path, start.startswith(b"PK"))


def refuse_other_formats(path: Path, start: bytes) -> None:
    """Raise ValueError for a file of another format, which its name or its first bytes show."""
    if path.suffix == ".onnx":
        raise ValueError(f"it is {ONNX}")
    if start[257:262] == b"ustar":
        raise ValueError(f"it is {TAR}")
    text = start.lstrip(b"\xef\xbb\xbf\r\n\t ")
    for sign, advice in STARTS.items():
        if text.startswith(sign):
            raise ValueError(f"it is {advice}")


def read_torch(path: Path, is_zip: bool) -> Any:
    """Read a file of ``torch.save``."""
    try:
        return read_zip(path) if is_zip else read_pickles(path.read_bytes())
    except Unreadable as error:
        reason = shortened(" ".join(str(error).split()), 500)
    except Exception:  # damaged and malicious files raise many kinds of errors
        reason = "it is damaged, or not a file of PyTorch, safetensors or TensorFlow Lite."
    raise ValueError(f"it cannot be read as a checkpoint: {reason}")
