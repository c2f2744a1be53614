"""Read files of weights without the frameworks that wrote them. No code in a file is run or imported.

All functions raise a ValueError of one line if the content is damaged or is something else; only that of
``read_state`` has the path.
"""

from __future__ import annotations

import contextlib
import io
import re
import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mlx_unpool.porting.arrays import numpy_array
from mlx_unpool.porting.messages import cut, warn

from .files import load_arrays
from .pickles import BFLOAT16, LIMIT, Foreign, Reader, Unreadable

# Keys under which checkpoints store the state dict.
KEYS = ("state_dict", "model_state", "model_state_dict", "model", "network")
HOW_TO_EXPORT = (
    "In an environment with the model's code, export its state dict: "
    "torch.save(model.state_dict(), 'weights.pth')."
)
MAGIC = 0x1950A86A20F9469CFC6C  # the first of the five pickles of a file before PyTorch 1.6
# What people take for a file of weights: how its name ends or its content starts, and what to do.
OTHERS: dict[str | bytes, str] = {
    ".onnx": "an ONNX file. Pass {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph."
    "initializer}.",
    ".caffemodel": "a file of Caffe. Pass its arrays by name, for example those of net.params in pycaffe.",
    ".json": "a JSON file. If it is the index of weights in several files, read these and merge the dicts.",
    b"\x93NUMPY": "one array of NumPy. Pass a dict: {name: numpy.load(path)}.",
    **dict.fromkeys(
        (b"\3\0\0\0\1", b"\4\0\0\0\1"),
        "a file of Lua Torch 7. Read it with the package torchfile, and pass a dict of its arrays.",
    ),
    b"version https://git-lfs": "a Git LFS pointer. Download the file itself, for example with git lfs pull.",
    b"<": "a web page. Download the file itself.",
    b"\x89HDF": "an HDF5 file, as Keras writes them: see 'Weights of Keras' in docs/porting.md.",
    b"\x1f\x8b": "compressed with gzip. Unpack it first.",
    b"ustar": "a tar file. Unpack an archive; if PyTorch wrote it before 2017, save its content again with "
    "a newer version: torch.save(torch.load(old, weights_only=False), new).",
}


def read_state(path: str | Path) -> dict[str, np.ndarray]:
    """Read the state dict in a file of weights; floating-point arrays become float32."""
    try:
        return arrays_of(state_of(read_checkpoint(path)))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_checkpoint(path: str | Path) -> Any:
    """Read a file of weights, whatever its ending.

    It needs the memory of the file. Sizes in the file are checked before anything is allocated for them.

    Returns:
        What ``torch.save`` saved: tensors are NumPy arrays (views of the content of the file), those of
        bfloat16 with the dtype ``BFLOAT16``, and objects of other classes are ``Foreign``. A dict of MLX
        arrays for safetensors; for TensorFlow Lite see ``read_tflite``.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError("it is a folder, not a file." if path.is_dir() else "there is no such file.")
    with path.open("rb") as file:
        start = file.read(512)
    text = start.lstrip(b"\xef\xbb\xbf\r\n\t ")
    is_safetensors, is_tflite = start[8:9] == b"{", start[4:8] == b"TFL3"
    for sign, advice in OTHERS.items():
        starts = isinstance(sign, bytes) and (text.startswith(sign) or start[257:262] == sign)
        if path.name.endswith(sign) if isinstance(sign, str) else starts and not is_safetensors:
            raise ValueError(f"it is {advice}")
    if is_safetensors or path.suffix == ".safetensors":
        return load_arrays(path)[0]
    if is_tflite or path.suffix == ".tflite":
        return read_tflite(path)
    content = path.read_bytes()
    try:
        return read_zip(content) if start.startswith(b"PK") else read_pickles(content)
    except Unreadable as error:
        reason = " ".join(str(error)[:500].split())
    except Exception:  # damaged and malicious files raise many kinds of errors
        reason = "it is damaged, or not a file of torch.save."
    raise ValueError(f"it cannot be read as a checkpoint: {reason}")


def read_zip(content: bytes) -> Any:
    """Read a file of ``torch.save`` since PyTorch 1.6: a zip file of a pickle and a storage in each entry."""
    if content.count(b"PK\1\2") > LIMIT // 10:
        raise Unreadable(f"it has more than {LIMIT // 10:,} entries.")
    entries = {info.filename: info for info in zipfile.ZipFile(io.BytesIO(content)).infolist()}
    folder = next((n.removesuffix("data.pkl") for n in entries if re.fullmatch("[^/]*/data.pkl", n)), None)
    if folder is None:
        if entries and all(name.endswith(".npy") for name in entries):
            raise Unreadable("it is an .npz file of NumPy. Pass dict(numpy.load(path)).")
        raise Unreadable(f"it is a zip file of {cut([*entries], 3)}. Unpack it first.")
    if f"{folder}constants.pkl" in entries:
        raise Unreadable(f"it is a TorchScript file. {HOW_TO_EXPORT}")
    left = len(content)

    def place(name: str) -> tuple[int, int]:  # zipfile refuses files of PyTorch that have no checksums
        nonlocal left
        info = entries[folder + name]
        if info.compress_type or info.file_size != info.compress_size:
            raise Unreadable("it is compressed, which files of torch.save are not.")
        left -= info.file_size
        if left < 0:
            raise Unreadable("it is damaged: its entries overlap.")
        names = content[info.header_offset + 26 : info.header_offset + 30]
        start = info.header_offset + 30 + sum(int.from_bytes(n, "little") for n in (names[:2], names[2:]))
        return start, start + info.file_size

    if f"{folder}byteorder" in entries and content[slice(*place("byteorder"))] == b"big":
        raise Unreadable("it is big-endian, which is not supported.")
    reader = Reader(io.BytesIO(content[slice(*place("data.pkl"))]))
    return reader.load(lambda key, *kind: storage(content, *place(f"data/{key}"), *kind))


def read_pickles(content: bytes) -> Any:
    """Read a file of ``torch.save`` before PyTorch 1.6: five pickles, then the storages; or one pickle."""
    file = io.BytesIO(content)
    reader, kinds = Reader(file), dict[str | int, tuple[np.dtype, int]]()
    checkpoint = reader.load()
    if not isinstance(checkpoint, int):
        return checkpoint
    _, machine = reader.load(), reader.load()
    if checkpoint != MAGIC:
        raise Unreadable("it is a pickle of a number.")
    if machine.get("little_endian") is not True:
        raise Unreadable("it is big-endian, which is not supported.")
    start = file.tell()
    reader.load(lambda key, *kind: kinds.setdefault(key, kind) and None)  # the sizes, without arrays
    keys, position, storages = reader.load(), file.tell(), {}
    for key in keys:
        if not isinstance(key, str | int):  # others may take forever to hash
            raise Unreadable("it is damaged: a storage has no valid key.")
        dtype, count = kinds[key]
        if int.from_bytes(content[position : position + 8], "little") != count:
            raise Unreadable(f"it is damaged: the storage {key} has another size than its tensors say.")
        data, position = position + 8, position + 8 + count * dtype.itemsize
        storages[key] = storage(content, data, position, dtype, count)
    file.seek(start)
    return reader.load(lambda key, *kind: storages[key])


def storage(content: bytes, start: int, end: int, dtype: np.dtype, count: int) -> np.ndarray:
    """The flat array of ``count`` elements in a part of the content of a file."""
    if end - start != count * dtype.itemsize or end > len(content):
        raise Unreadable(f"it is damaged: it ends within an array of {count:,} elements.")
    return np.frombuffer(content, dtype, count, start)


def state_of(checkpoint: Any) -> dict[str, Any]:
    """The arrays of the state dict in a checkpoint.

    A checkpoint is a state dict, a whole model, or a dict that contains either: under ``state_dict``,
    ``model_state``, ``model_state_dict``, ``model`` or ``network``, or under any other key if there is only
    one. Entries that are not arrays, such as ``_extra_state``, are ignored with a warning, which also names
    other state dicts beside a usual key.
    """
    state, ignored = split_state(checkpoint)
    if ignored:
        warn(f"Ignored entries that are not arrays: {cut(ignored)}.")
    return state


def split_state(checkpoint: Any) -> tuple[dict[str, Any], list[str]]:
    """The arrays of the state dict in a checkpoint, and the names of its other entries."""
    for key in path_of(checkpoint):
        checkpoint = checkpoint[key]
    if isinstance(checkpoint, Foreign):
        checkpoint = state_of_foreign(checkpoint)
    elif is_model(checkpoint):
        checkpoint = checkpoint.state_dict()
    if not isinstance(checkpoint, Mapping):
        raise ValueError(f"not a state dict but {described(checkpoint)}. {HOW_TO_EXPORT}")
    arrays = {name: value for name, value in checkpoint.items() if hasattr(value, "shape")}
    state = {name: value for name, value in arrays.items() if isinstance(name, str)}
    if not state:
        kinds = [f"{named(name)!r} is {described(checkpoint[name])}" for name in list(checkpoint)[:3]]
        raise ValueError(
            f"a state dict must contain arrays, but {', '.join(kinds) or 'it is empty'}. No code in a file "
            f"is run to create arrays. {HOW_TO_EXPORT}"
        )
    return state, [named(name) for name in checkpoint if name not in arrays]


def path_of(checkpoint: Any) -> tuple[str, ...]:
    """The keys that lead to the state dict in a checkpoint: the usual ones, or the only ones."""
    counts = states_in(checkpoint, {})
    ranks = {path: [KEYS.index(key) if key in KEYS else len(KEYS) for key in path] for path in counts}
    first = min(ranks.values(), default=[])
    best = [path for path, rank in ranks.items() if rank == first]
    if len(best) > 1:
        listed = cut([f"{'/'.join(path)!r} ({counts[path]} arrays)" for path in best])
        raise ValueError(
            f"the checkpoint has several dictionaries of arrays: {listed}. Choose one: --key NAME of the "
            "converter, or read_checkpoint(path)[NAME]."
        )
    if others := [repr("/".join(path)) for path in counts if path not in best and len(path) <= len(first)]:
        hint = "to use another one, see --key of the converter, or pass checkpoint[KEY]"
        used = "/".join(best[0])
        warn(f"Used {used!r} of the checkpoint, not {cut(others)}; {hint}.")
    if counts or not isinstance(checkpoint, Mapping):
        return best[0] if counts else ()
    return tuple(key for key in KEYS if isinstance(checkpoint.get(key), Mapping | Foreign))[:1]


def states_in(value: Any, seen: dict[int, int], depth: int = 4) -> dict[tuple[str, ...], int]:
    """The models and dictionaries of arrays in a checkpoint: their numbers of arrays, by the keys to them.

    Arrays beside others are a state dict themselves, unless a usual key or more arrays are below them.
    Only floating-point arrays are counted, because checkpoints also have the states of random generators.
    Those of optimizers are in dicts whose keys are numbers. Every dict is searched once.
    """
    if is_model(value) or not isinstance(value, Mapping):
        return {(): 1} if is_model(value) else {}
    items: dict[str, Any] = {}
    if id(value) not in seen:
        items = {key: item for key, item in value.items() if isinstance(key, str)}
        floats = [item for item in items.values() if "float" in str(getattr(item, "dtype", ""))]
        seen[id(value)] = sum(len(item.shape) > 0 for item in floats)
    own, below = seen[id(value)], items if depth else {}
    inner = {(k, *path): n for k, v in below.items() for path, n in states_in(v, seen, depth - 1).items()}
    if not any(path[0] in KEYS for path in inner):
        inner = {path: count for path, count in inner.items() if count > own}
    return inner or ({(): own} if own else {})


def is_model(value: Any) -> bool:
    """Whether a value is a model, of a class that is available or not."""
    if isinstance(value, Foreign):
        return isinstance(value.state, dict) and "_parameters" in value.state
    return callable(getattr(value, "state_dict", None))


def config_of(checkpoint: Any) -> dict[str, Any]:
    """The configuration of the model in a checkpoint (a dict or YAML), with names in lower case."""
    config = checkpoint.get("config") if isinstance(checkpoint, Mapping) else None
    if isinstance(config, str) and len(config) < 10**5 and "<<" not in config:  # as FastSurfer saves it;
        # without merges, because a few that each refer twice to another take forever
        import yaml

        with contextlib.suppress(yaml.YAMLError, RecursionError):
            config = yaml.safe_load(config)
    if isinstance(config, Mapping):
        config = config.get("MODEL", config)
    return {str(n).lower(): v for n, v in config.items()} if isinstance(config, Mapping) else {}


def state_of_foreign(model: Foreign) -> dict[str, Any]:
    """The state dict of a pickled model whose class is not available."""
    state: dict[str, Any] = {}
    rest: list[tuple[str, Any]] = [("", model)]
    length, kinds = 0, ("_parameters", "_buffers", "_modules")
    while rest:
        prefix, module = rest.pop()
        parts = getattr(module, "state", None)
        if not (isinstance(parts, dict) and all(isinstance(parts.get(kind), dict) for kind in kinds)):
            raise ValueError(f"not a model but {described(module)}. {HOW_TO_EXPORT}")
        left_out = parts.get("_non_persistent_buffers_set")
        left_out = {n for n in left_out if isinstance(n, str)} if isinstance(left_out, set | list) else set()
        own = parts["_parameters"] | {n: v for n, v in parts["_buffers"].items() if n not in left_out}
        # A module may be in several others, but in a small file one can be twice in the next one, on and on.
        length += sum(len(prefix) + len(str(name)) + 1 for name in (*own, *parts["_modules"], *left_out))
        if length > 10**7:
            raise ValueError(
                "the names in a model must have at most 10 million characters, but these have more, or a "
                f"module contains itself. {HOW_TO_EXPORT}"
            )
        state |= {f"{prefix}{name}": value for name, value in own.items() if value is not None}
        children = [(f"{prefix}{name}.", child) for name, child in parts["_modules"].items()]
        rest += [child for child in reversed(children) if child[1] is not None]
    return state


def named(key: Any) -> str:
    """A key of a checkpoint as text. Those of other types can be nested too deeply for it."""
    return key if isinstance(key, str) else str(key) if isinstance(key, int) else described(key)


def described(value: Any) -> str:
    """A description of the type of a value."""
    if isinstance(value, Foreign):
        return value.kind
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def arrays_of(state: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Tensors and arrays of any framework as NumPy arrays; floating-point ones become float32.

    Views of the same few elements that would fill the memory, as a file could contain them, are refused.
    """
    arrays, storages, left = {}, set[int](), 10**6
    for name, value in state.items():
        if isinstance(value, np.ndarray) and isinstance(value.base, np.ndarray):  # a view
            left -= value.size
            if id(value.base) not in storages:
                left += 4 * value.base.nbytes
            storages.add(id(value.base))
        if left < 0:
            raise ValueError(f"{name} {value.shape} is expanded from a few stored elements.")
        if isinstance(value, np.ndarray) and value.dtype == BFLOAT16:
            value = (value["bfloat16"].astype(np.uint32) << 16).view(np.float32)
        arrays[name] = numpy_array(name, value)
    return arrays


def read_tflite(path: str | Path) -> dict[str, Any]:
    """The first graph in a TFLite file as a checkpoint, with weights of float32 and float16.

    Returns:
        ``state_dict``, the constants by name, in TensorFlow's layout (views of the contents of the file), and
        ``operators``, how often each operator occurs, by its name in capitals or, if it is not one of
        TensorFlow Lite's own, by the name in the file.
    """
    from tflite import BuiltinOperator, Model, TensorType

    types = {TensorType.FLOAT32: np.float32, TensorType.FLOAT16: np.float16}
    builtin = {value: name for name, value in vars(BuiltinOperator).items() if isinstance(value, int)}
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
            if tensor.Type() not in types:
                raise ValueError(f"{name[:99]!r} is neither float32 nor float16, but of type {tensor.Type()}")
            arrays[name] = buffer.DataAsNumpy().view(types[tensor.Type()]).reshape(tensor.ShapeAsNumpy())
        codes = [model.OperatorCodes(n) for n in range(model.OperatorCodesLength())]
        kinds = [builtin[code.BuiltinCode()] for code in codes]
        names = [text(code.CustomCode()) if kind == "CUSTOM" else kind for code, kind in zip(codes, kinds)]
        operators = Counter(names[graph.Operators(n).OpcodeIndex()] for n in range(graph.OperatorsLength()))
    except Exception as error:  # damaged files raise many kinds of errors
        raise ValueError(f"it cannot be read as a TFLite file: {' '.join(str(error).split())}.") from None
    return {"state_dict": arrays, "operators": operators}
