"""Read the constants and the operators of TensorFlow Lite files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from mlx_unpool.porting.messages import shortened

# NumPy's types by the names of TensorFlow Lite. Others, such as STRING and INT4, are not arrays of numbers.
DTYPES = {"FLOAT16": "<f2", "FLOAT32": "<f4", "FLOAT64": "<f8", "BOOL": "?", "INT8": "i1", "UINT8": "u1"}
DTYPES |= {"INT16": "<i2", "UINT16": "<u2", "INT32": "<i4", "UINT32": "<u4", "INT64": "<i8", "UINT64": "<u8"}
LONGEST_NAMES = 10**7  # characters of all names: a small file can contain one once and use it many times


def read_tflite(path: str | Path) -> dict[str, Any]:
    """The first graph in a TFLite file as a checkpoint.

    Returns:
        ``state_dict``, the constants by name, in TensorFlow's layout (views of the contents of the file), and
        ``operators``, how often each operator occurs, by its name in capitals or, if it is not one of
        TensorFlow Lite's own, by the name in the file. Quantized constants are the stored integers.

    Raises:
        ValueError: If it is damaged or not a TFLite file, or if a constant is sparse or not of numbers.
    """
    from tflite import Model

    contents = Path(path).read_bytes()
    if not Model.ModelBufferHasIdentifier(contents, 0):
        raise ValueError("it is not a TFLite file.")
    try:
        model = Model.GetRootAs(contents)
        graph, names = model.Subgraphs(0), Names()
        return {"state_dict": constants(model, graph, names), "operators": operators(model, graph, names)}
    except Exception as error:  # damaged files raise many kinds of errors
        reason = shortened(" ".join(str(error).split()))
        raise ValueError(f"it cannot be read as a TFLite file: {reason}.") from None


class Names:
    """Decodes the names in a file."""

    def __init__(self) -> None:
        self.length = 0

    def decoded(self, name: bytes) -> str:
        """A name as text."""
        self.length += len(name)
        if self.length > LONGEST_NAMES:
            raise ValueError("the names have more than 10 million characters")
        return name.decode()


def constants(model: Any, graph: Any, names: Names) -> dict[str, np.ndarray]:
    """The tensors of a graph that have values, by name."""
    from tflite import TensorType

    type_names = {value: name for name, value in vars(TensorType).items() if isinstance(value, int)}
    found = {}
    for number in range(graph.TensorsLength()):
        tensor = graph.Tensors(number)
        buffer = model.Buffers(tensor.Buffer())
        if not buffer.DataLength():
            continue
        name, kind = names.decoded(tensor.Name()), type_names.get(tensor.Type(), "unknown")
        if kind not in DTYPES:
            raise ValueError(f"{name[:99]!r} is of the type {kind}, which is not supported")
        if tensor.Sparsity() is not None:
            raise ValueError(f"{name[:99]!r} is sparse, which is not supported")
        found[name] = buffer.DataAsNumpy().view(DTYPES[kind]).reshape(tensor.ShapeAsNumpy())
    return found


def number_of(code: Any) -> int:
    """The number of an operator: the larger one of its two fields, as in TensorFlow.

    ``code.BuiltinCode()`` ignores numbers below 127 in the newer field, which some converters set alone.
    """
    from flatbuffers.number_types import Int32Flags

    table = code._tab
    offset = table.Offset(10)
    newer = table.Get(Int32Flags, offset + table.Pos) if offset else 0
    return max(newer, code.DeprecatedBuiltinCode())


def operators(model: Any, graph: Any, names: Names) -> Counter[str]:
    """How often each operator occurs in a graph."""
    from tflite import BuiltinOperator

    builtin = {value: name for name, value in vars(BuiltinOperator).items() if isinstance(value, int)}
    used = []
    for number in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(number)
        name = builtin[number_of(code)]
        used.append(names.decoded(code.CustomCode()) if name == "CUSTOM" else name)
    return Counter(used[graph.Operators(number).OpcodeIndex()] for number in range(graph.OperatorsLength()))
