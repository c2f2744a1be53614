"""Read the constants and the operators of TensorFlow Lite files."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from mlx_unpool.porting.messages import shortened

# NumPy's types by the names of TensorFlow Lite. It has none for others, such as STRING and INT4.
DTYPES = {
    "FLOAT16": "<f2", "FLOAT32": "<f4", "FLOAT64": "<f8", "BOOL": "?",
    "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8",
    "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8",
    "COMPLEX64": "<c8", "COMPLEX128": "<c16",
}  # fmt: skip
# Characters of all names: a small file can contain one once and use it many times.
LONGEST_NAMES = 10**7


def tflite_constants(contents: bytes) -> dict[str, Any]:
    """The constants and the operators in the contents of a file; see ``read_tflite``."""
    from tflite import Model

    if not Model.ModelBufferHasIdentifier(contents, 0):
        raise ValueError("it is not a TFLite file.")
    try:
        model = Model.GetRootAs(contents)
        graph, names = model.Subgraphs(0), Names()
        return {
            "state_dict": constants(model, graph, names),
            "operators": operators(model, graph, names),
        }
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

    kinds = names_of(TensorType)
    found = {}
    for number in range(graph.TensorsLength()):
        tensor = graph.Tensors(number)
        buffer = model.Buffers(tensor.Buffer())
        if not buffer.DataLength() and buffer.Offset() < 2:  # not a constant
            continue
        name, kind = names.decoded(tensor.Name()), kinds.get(tensor.Type(), "unknown")
        if problem := problem_with(tensor, kind, buffer):
            raise ValueError(f"{name[:99]!r} is {problem}, which is not supported")
        if name in found:
            raise ValueError(f"two constants have the name {name[:99]!r}, which is not supported")
        found[name] = buffer.DataAsNumpy().view(DTYPES[kind]).reshape(tensor.ShapeAsNumpy())
    return found


def problem_with(tensor: Any, kind: str, buffer: Any) -> str:
    """Why a constant cannot be an array, or ""."""
    if kind not in DTYPES:
        return f"of the type {kind}"
    if not buffer.DataLength():
        return "outside of the graph, as in files of more than 2 GB"
    return "" if tensor.Sparsity() is None else "sparse"


def operators(model: Any, graph: Any, names: Names) -> Counter[str]:
    """How often each operator occurs in a graph."""
    from tflite import BuiltinOperator

    builtin = names_of(BuiltinOperator)
    used = []
    for number in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(number)
        name = builtin[number_of(code)]
        used.append(names.decoded(code.CustomCode()) if name == "CUSTOM" else name)
    indices = (graph.Operators(number).OpcodeIndex() for number in range(graph.OperatorsLength()))
    return Counter(used[index] for index in indices)


def number_of(code: Any) -> int:
    """The number of an operator: the larger one of its two fields, as in TensorFlow.

    ``code.BuiltinCode()`` ignores numbers below 127 in the newer field, which some converters set
    alone.
    """
    from flatbuffers.number_types import Int32Flags

    table = code._tab
    offset = table.Offset(10)
    newer = table.Get(Int32Flags, offset + table.Pos) if offset else 0
    return max(newer, code.DeprecatedBuiltinCode())


def names_of(enumeration: Any) -> dict[int, str]:
    """The names of the values of an enumeration of TensorFlow Lite."""
    return {value: name for name, value in vars(enumeration).items() if isinstance(value, int)}
