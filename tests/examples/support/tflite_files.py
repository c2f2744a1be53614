"""Write weights as a TensorFlow Lite file."""

from collections.abc import Mapping
from pathlib import Path

import flatbuffers
import mlx_unpool_zoo as zoo
import numpy as np
import tflite
from mlx_unpool_zoo.hair import described, flat


def tensors_of(model: zoo.HairSegmenter) -> dict[str, np.ndarray]:
    """The parameters of a model with TensorFlow's names and layout."""
    layers, numbers, tensors = dict(model.named_modules()), dict[str, int](), {}
    for name, value in flat(model):
        layer, _, part = name.rpartition(".")
        kind, parts, _ = described(layers[layer])
        numbers[kind] = numbers.get(kind, -1) + (part == "weight")
        suffix = f"_{numbers[kind]}" * (numbers[kind] > 0)
        array = np.array(value)
        if kind == "p_re_lu":
            array = array[None, None]
        elif kind == "depthwise_conv2d" and part == "weight":
            array = array.transpose(3, 1, 2, 0)
        tensors[f"{kind}{suffix}/{next(k for k, v in parts.items() if v == part)}"] = array
    return tensors


def tflite_of(tensors: Mapping[str, np.ndarray], kind: int = tflite.TensorType.FLOAT32) -> bytes:
    """A TFLite file with these constants and without operators."""
    builder = flatbuffers.Builder()

    def table(name: str, **fields: int) -> int:
        getattr(tflite, f"{name}Start")(builder)
        for field, value in fields.items():
            getattr(tflite, f"{name}Add{field}")(builder, value)
        return getattr(tflite, f"{name}End")(builder)

    def vector(offsets: list[int]) -> int:
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return builder.EndVector()

    buffers, made = [table("Buffer")], []
    for number, (name, array) in enumerate(tensors.items(), start=1):
        data = builder.CreateNumpyVector(np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8))
        buffers.append(table("Buffer", Data=data))
        shape = builder.CreateNumpyVector(np.array(array.shape, np.int32))
        fields = {"Shape": shape, "Type": kind, "Buffer": number, "Name": builder.CreateString(name)}
        made.append(table("Tensor", **fields))
    graph = table("SubGraph", Tensors=vector(made))
    model = table("Model", Version=3, Subgraphs=vector([graph]), Buffers=vector(buffers))
    builder.Finish(model, file_identifier=b"TFL3")
    return bytes(builder.Output())


def write_tflite(path: Path, model: zoo.HairSegmenter) -> Path:
    path.write_bytes(tflite_of(tensors_of(model)))
    return path
