"""Read the weights in TensorFlow Lite files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tflite import Model, TensorType

TYPES = {TensorType.FLOAT32: np.float32, TensorType.FLOAT16: np.float16}


def read_tflite(path: str | Path) -> dict[str, np.ndarray]:
    """The constants of the first graph in a TFLite file by name, in TensorFlow's layout.

    The arrays are views of the contents of the file. Nothing in it is executed.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is damaged, is not a TFLite file, or has weights of other types than float32 and
            float16. The message does not have the path.
    """
    contents = Path(path).read_bytes()
    if not Model.ModelBufferHasIdentifier(contents, 0):
        raise ValueError("it is not a TFLite file.")
    arrays, length = {}, 0
    try:
        model = Model.GetRootAs(contents)
        graph = model.Subgraphs(0)
        for number in range(graph.TensorsLength()):
            tensor = graph.Tensors(number)
            buffer = model.Buffers(tensor.Buffer())
            if not buffer.DataLength():  # not a constant
                continue
            name = tensor.Name().decode()
            length += len(name)
            if length > 10**7:  # a small file can contain a long name once, for many tensors
                raise ValueError("the names have more than 10 million characters")
            if tensor.Type() not in TYPES:
                raise ValueError(f"{name!r} is neither float32 nor float16, but of type {tensor.Type()}")
            arrays[name] = buffer.DataAsNumpy().view(TYPES[tensor.Type()]).reshape(tensor.ShapeAsNumpy())
    except Exception as error:  # damaged files raise many kinds of errors
        raise ValueError(f"it cannot be read as a TFLite file: {' '.join(str(error).split())}.") from None
    return arrays
