"""Read the weights in TensorFlow Lite files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from tflite import BuiltinOperator, Model, TensorType

TYPES = {TensorType.FLOAT32: np.float32, TensorType.FLOAT16: np.float16}
NAMES = {value: name for name, value in vars(BuiltinOperator).items() if isinstance(value, int)}


def read_tflite(path: str | Path) -> dict[str, Any]:
    """The first graph in a TFLite file as a checkpoint. Nothing in the file is executed.

    Returns:
        ``state_dict``, the constants by name, in TensorFlow's layout (views of the contents of the file), and
        ``operators``, how often each operator occurs, by its name in capitals or, if it is not one of
        TensorFlow Lite's own, by the name in the file.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is damaged, is not a TFLite file, or has weights of other types than float32 and
            float16. The message does not have the path.
    """
    contents = Path(path).read_bytes()
    if not Model.ModelBufferHasIdentifier(contents, 0):
        raise ValueError("it is not a TFLite file.")
    arrays, length = {}, 0

    def text(encoded: bytes) -> str:
        nonlocal length
        length += len(encoded)
        if length > 10**7:  # a small file can contain a long name once, and refer to it many times
            raise ValueError("the names have more than 10 million characters")
        return encoded.decode()

    try:
        model = Model.GetRootAs(contents)
        graph = model.Subgraphs(0)
        for number in range(graph.TensorsLength()):
            tensor = graph.Tensors(number)
            buffer = model.Buffers(tensor.Buffer())
            if not buffer.DataLength():  # not a constant
                continue
            name = text(tensor.Name())
            if tensor.Type() not in TYPES:
                raise ValueError(f"{name[:99]!r} is neither float32 nor float16, but of type {tensor.Type()}")
            arrays[name] = buffer.DataAsNumpy().view(TYPES[tensor.Type()]).reshape(tensor.ShapeAsNumpy())
        codes = [model.OperatorCodes(n) for n in range(model.OperatorCodesLength())]
        kinds = [NAMES[code.BuiltinCode()] for code in codes]
        names = [text(code.CustomCode()) if kind == "CUSTOM" else kind for code, kind in zip(codes, kinds)]
        operators = Counter(names[graph.Operators(n).OpcodeIndex()] for n in range(graph.OperatorsLength()))
    except Exception as error:  # damaged files raise many kinds of errors
        raise ValueError(f"it cannot be read as a TFLite file: {' '.join(str(error).split())}.") from None
    return {"state_dict": arrays, "operators": operators}
