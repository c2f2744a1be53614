"""Write weights as a TensorFlow Lite file."""

from collections import Counter
from collections.abc import Mapping, Sequence

import flatbuffers
import mlx.nn as nn
import mlx_unpool_zoo as zoo
import numpy as np
import tflite
from mlx.utils import tree_flatten


def constants_of(model: zoo.HairSegmenter) -> dict[str, np.ndarray]:
    """The parameters of a model with TensorFlow's names and layout."""
    layers, numbers, found = dict(model.named_modules()), Counter[str](), {}
    for name, value in tree_flatten(model.parameters()):
        path, _, part = name.rpartition(".")
        layer, array, last = (
            layers[path],
            np.array(value),
            {"weight": "Kernel", "bias": "Bias"}[part],
        )
        kind = "conv2d_transpose" if isinstance(layer, nn.ConvTranspose2d) else "conv2d"
        if isinstance(layer, nn.PReLU):
            kind, array, last = "p_re_lu", array[None, None], "Alpha"
        elif kind == "conv2d" and layer.groups > 1:
            kind = "depthwise_conv2d"
            if array.ndim == 4:
                array = array.transpose(3, 1, 2, 0)
        numbers[kind] += part == "weight"
        name = kind
        if numbers[kind] > 1:
            name += f"_{numbers[kind] - 1}"
        found[f"{name}/{last}"] = array
    return found


CUSTOM = {"DeprecatedBuiltinCode": tflite.BuiltinOperator.CUSTOM, "CustomCode": "Own"}
KINDS = {
    "f4": 0,
    "f2": 1,
    "i4": 2,
    "i8": 4,
    "b1": 6,
    "i1": 9,
    "f8": 10,
}  # a ``TensorType`` for each dtype


def tflite_of(
    constants: Mapping[str, np.ndarray],
    kind: int | None = None,
    codes: Sequence[Mapping] = ({}, CUSTOM),
    sparse: bool = False,
    offset: int = 0,
) -> bytes:
    """A TFLite file with these constants, and an operator for each code; they are not connected.

    ``kind``: a ``TensorType`` for all constants instead of their own. ``offset``: where constants
    are outside of the graph.
    """
    builder = flatbuffers.Builder()

    def table(name: str, **fields: int | list[int]) -> int:
        for field, value in fields.items():
            if isinstance(value, list):  # of tables
                builder.StartVector(4, len(value), 4)
                for offset in reversed(value):
                    builder.PrependUOffsetTRelative(offset)
                fields[field] = builder.EndVector()
        getattr(tflite, f"{name}Start")(builder)
        for field, value in fields.items():
            getattr(tflite, f"{name}Add{field}")(builder, value)
        return getattr(tflite, f"{name}End")(builder)

    buffers, tensors = [table("Buffer")], []
    for number, (name, array) in enumerate(constants.items(), start=1):
        data = builder.CreateNumpyVector(np.frombuffer(array.tobytes(), np.uint8))
        buffers.append(table("Buffer", Offset=offset) if offset else table("Buffer", Data=data))
        own = KINDS[array.dtype.str[1:]] if kind is None else kind
        fields = {"Shape": builder.CreateNumpyVector(np.array(array.shape, np.int32)), "Type": own}
        if sparse:
            fields["Sparsity"] = table("SparsityParameters")
        tensors.append(table("Tensor", Buffer=number, Name=builder.CreateString(name), **fields))
    tables = []
    for code in codes:
        text = {
            name: builder.CreateString(value)
            for name, value in code.items()
            if isinstance(value, str)
        }
        tables.append(table("OperatorCode", **{**code, **text}))
    used = [table("Operator", OpcodeIndex=number) for number in range(len(codes))]
    parts = {"Subgraphs": [table("SubGraph", Tensors=tensors, Operators=used)], "Buffers": buffers}
    builder.Finish(
        table("Model", Version=3, OperatorCodes=tables, **parts), file_identifier=b"TFL3"
    )
    return bytes(builder.Output())
