"""Read pickles of tensors and arrays. No code in a file is run or imported.

``Reader`` carries out the opcodes itself. Whatever a file names is a ``Foreign``, and the few functions that
rebuild tensors and arrays are replaced by those in ``CALLED``. A file cannot take much more memory or time
than its length: opcodes are counted, arrays are views of its bytes, and nothing that it can nest is hashed.
"""

from __future__ import annotations

import io
import pickletools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

BFLOAT16 = np.dtype([("bfloat16", "<u2")])  # the bits of each number: NumPy has no such type
TYPES = {"Double": "f8", "Float": "f4", "Half": "f2", "Long": "i8", "Int": "i4", "Short": "i2", "Char": "i1"}
TYPES |= {"Byte": "u1", "Bool": "?", "ComplexDouble": "c16", "ComplexFloat": "c8"}
DTYPES = {f"torch.{name}Storage": np.dtype(f"<{code}") for name, code in TYPES.items()}
DTYPES |= {f"torch.uint{bits}": np.dtype(f"<u{bits // 8}") for bits in (16, 32, 64)}  # in untyped storages
DTYPES |= {"torch.BFloat16Storage": BFLOAT16, "torch.storage.UntypedStorage": np.dtype("u1")}
LIMIT = 2**20  # of the opcodes and the arguments of functions in a file
AS_FLOAT32 = "Save it as float32: tensor.float(), or tensor.dequantize() if it is quantized."


class Unreadable(ValueError):
    """What is wrong with a file, for the person who wants to read it."""


class Foreign:
    """A class or a function that a file names, or an object of it: its name and its state.

    A tensor of a kind that is not supported is one, too.
    """

    __slots__ = ("kind", "place", "state")

    def __init__(self, kind: str, state: Any = None) -> None:
        self.kind, self.state, self.place = kind, state, -1  # ``place``: in the memo


class Storage(NamedTuple):
    """The elements of tensors."""

    flat: np.ndarray
    first: int  # of those that a tensor can have


class Reader:
    """Reads the pickles in a file, one after the other."""

    def __init__(self, file: io.BytesIO) -> None:
        self.file, self.steps = file, 0
        self.buffers = dict[int, tuple[Any, np.ndarray]]()  # of arrays of NumPy, by id

    def load(self, storage_of: Callable[..., Any] | None = None) -> Any:
        """The object in the next pickle.

        ``storage_of`` returns the array of a storage, for its key, dtype and number of elements.
        """
        self.storage_of, self.storages = storage_of, dict[Any, Any]()
        self.stack, self.marks, self.memo = list[Any](), list[int](), dict[int, Any]()
        for opcode, value, _ in pickletools.genops(self.file):
            self.count(1)
            if opcode.name in MADE:
                self.stack.append(MADE[opcode.name](self, value))
            else:
                DONE[opcode.name](self, value)
        return self.stack.pop()

    def count(self, steps: int) -> None:
        """Raise an error if a file has too many opcodes. Large arguments that are used again count, too."""
        self.steps += steps
        if self.steps > LIMIT:
            raise Unreadable("it makes more than a million objects.")

    def pop(self, count: int | None = None) -> list[Any]:
        """Remove the last objects from the stack; without a number, those after the last mark."""
        start = self.marks.pop() if count is None else len(self.stack) - count
        objects = self.stack[start:]
        del self.stack[start:]
        return objects

    def put(self, place: int) -> None:
        self.memo[place] = top = self.stack[-1]
        if isinstance(top, Foreign):
            top.place = place

    def extend(self, items: list[Any]) -> None:
        """Add items to the list that is now at the end of the stack."""
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)

    def update(self, items: list[Any]) -> None:
        """Add keys and values to the dict that is now at the end of the stack."""
        if isinstance(self.stack[-1], dict):
            self.stack[-1].update(dict_of(items))

    def named(self, *names: str) -> Foreign:
        self.count(sum(map(len, names)) // 100)
        return Foreign(".".join(names))

    def call(self, function: Foreign, arguments: Any) -> Any:
        self.count(len(arguments))
        known = CALLED.get(function.kind)
        return known(self, *arguments) if known else Foreign(function.kind)

    def build(self, state: Any) -> None:
        """Set the state of an object. Those of other classes have none, such as the versions in a dict."""
        made = self.stack[-1]
        if not isinstance(made, Foreign):
            return
        built = None
        if rebuild := REBUILT.get(made.kind):
            self.count(len(state))
            built = rebuild(self, made.state, *state)
        if built is None:
            made.state = state
        else:
            self.stack[-1] = self.memo[made.place] = built

    def storage(self, saved: tuple[Any, ...]) -> Any:
        """The storage, or the class of a whole model, that a persistent identifier stands for."""
        self.count(len(saved))
        if saved[0] == "module":  # before PyTorch 1.6, with its source
            return saved[1]
        name, kind, key, _, count, *view = saved
        is_valid = name == "storage" and type(key) in (str, int) and are_sizes(count)
        if not is_valid or not self.storage_of:
            raise Unreadable("it is damaged: a tensor has no valid storage.")
        dtype = storage_type(kind)
        if (key, dtype) not in self.storages:
            self.storages[key, dtype] = self.storage_of(key, dtype, count)
        first = view[0][1] if view and view[0] else 0  # of a part, in a file before PyTorch 0.4
        return Storage(self.storages[key, dtype], first)

    def array(self, shape: Any, dtype: Any, is_fortran: Any, data: Any) -> np.ndarray | None:
        """An array of NumPy, as a view of its bytes; of objects and text, None."""
        if not isinstance(dtype, np.dtype):
            return None
        if id(data) not in self.buffers:  # before protocol 3, bytes are text
            encoded = data.encode("latin-1") if isinstance(data, str) else data
            self.buffers[id(data)] = data, np.frombuffer(encoded, np.uint8)
        flat = self.buffers[id(data)][1]
        return flat.view(dtype).reshape(shape, order="F" if is_fortran else "C")


def number_type(code: str, order: Any) -> np.dtype | None:
    """The dtype of a pickled ``numpy.dtype``; of objects and text, None."""
    is_number = re.fullmatch("[fiuc][0-9]{1,2}|b1", code)
    return np.dtype(code).newbyteorder(">" if order == ">" else "<") if is_number else None


def storage_type(kind: Any) -> np.dtype:
    """The type of the elements of a storage, for the class that the file names."""
    name = getattr(kind, "kind", "")
    if name not in DTYPES:
        raise Unreadable(f"it has a tensor with a {name[:99]}, which is not supported. {AS_FLOAT32}")
    return DTYPES[name]


def tensor(
    _: Reader, storage: Any, offset: Any, shape: Any, strides: Any,
    requires_grad: Any = None, hooks: Any = None, options: Any = None,
) -> Any:  # fmt: skip
    """A view of a storage with elements of one type."""
    check_options(options)
    return view_of(storage, offset, shape, strides)


def tensor_of_type(
    _: Reader, storage: Any, offset: Any, shape: Any, strides: Any,
    requires_grad: Any, hooks: Any, kind: Any, options: Any = None,
) -> Any:  # fmt: skip
    """A view of a storage of bytes, for the types that PyTorch added later."""
    check_options(options)
    if kind.kind not in DTYPES:
        return Foreign(f"a tensor of {kind.kind}")
    return view_of(storage, offset, shape, strides, DTYPES[kind.kind])


def check_options(options: Any) -> None:
    """Raise an error if PyTorch would change the numbers of a storage when it reads a tensor."""
    changes = [name for name, value in (options or {}).items() if value]
    if changes:
        raise Unreadable(
            f"it has a tensor with the option {changes[0]!r} of PyTorch, which is not supported. Save "
            "tensor.resolve_conj().resolve_neg().clone() instead of each tensor."
        )


def view_of(storage: Any, offset: Any, shape: Any, strides: Any, dtype: np.dtype | None = None) -> Any:
    """A view of a storage. The offset and the strides are in elements."""
    if not isinstance(storage, Storage) or storage.flat is None:
        return Foreign("torch.Tensor")
    if not are_sizes(storage.first, offset, *shape, *strides) or len(shape) != len(strides):
        raise Unreadable("it is damaged: a tensor has no valid shape and strides.")
    flat, dtype = storage.flat, dtype or storage.flat.dtype
    if 0 in shape:
        return np.empty(shape, dtype)
    start = storage.first + offset
    last = start + sum((n - 1) * step for n, step in zip(shape, strides))
    if last >= flat.nbytes // dtype.itemsize:
        end = f"beyond its storage of {flat.size:,} elements."
        raise Unreadable(f"it is damaged: a tensor {shape} reaches {end}")
    size = dtype.itemsize
    return np.ndarray(shape, dtype, flat, start * size, [step * size for step in strides])


def are_sizes(*numbers: Any) -> bool:
    """Whether all are integers, and none is negative."""
    return all(type(number) is int and number >= 0 for number in numbers)


def dict_of(items: list[Any]) -> dict[Any, Any]:
    """A dict of keys and values that follow each other.

    A file could nest other keys until hashing them takes forever or overflows the stack. They become a
    ``Foreign`` with the name of their type.
    """

    def is_simple(key: Any) -> bool:
        return isinstance(key, str | bytes | float | None) or (isinstance(key, int) and abs(key) < 2**60)

    keys = (key if is_simple(key) else Foreign(type(key).__name__) for key in items[::2])
    return dict(zip(keys, items[1::2]))


def ordered_dict(reader: Reader, pairs: Any = ()) -> dict[Any, Any]:
    """A dict of pairs, as Python 2 pickles an ``OrderedDict``."""
    reader.count(2 * len(pairs))
    return dict_of([item for key, value in pairs for item in (key, value)])


# Functions that return their first argument here. A set is the list of its items, which are not hashed, and
# bytes are text before protocol 3.
FIRST = """builtins.set __builtin__.set _codecs.encode torch.Size torch.nn.parameter.Parameter
    torch._utils._rebuild_parameter torch._utils._rebuild_parameter_with_state"""
# All functions that a file may call.
CALLED: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(FIRST.split(), lambda _, first=(), *options: first),
    "collections.OrderedDict": ordered_dict,
    "torch._utils._rebuild_tensor": tensor,
    "torch._utils._rebuild_tensor_v2": tensor,
    "torch._utils._rebuild_tensor_v3": tensor_of_type,
    "torch._tensor._rebuild_from_type_v2": lambda reader, call, _, given, *rest: reader.call(call, given),
    "__builtin__.bytes": lambda _: b"",
    "numpy.dtype": lambda _, code, *options: Foreign("numpy.dtype", code),
}
# Objects that their state replaces.
REBUILT: dict[str, Callable[..., Any]] = {
    "numpy.dtype": lambda _, code, version, order, *rest: number_type(code, order)
}
for core in ("numpy.core", "numpy._core"):
    CALLED[f"{core}.multiarray.scalar"] = lambda reader, dtype, data: reader.array((), dtype, False, data)
    CALLED[f"{core}.numeric._frombuffer"] = lambda reader, data, dtype, shape, order: reader.array(
        shape, dtype, order == "F", data
    )
    REBUILT[f"{core}.multiarray._reconstruct"] = lambda reader, _, version, *state: reader.array(*state)

# The opcodes that add an object to the stack, and what they add ...
LITERALS = """INT BININT BININT1 BININT2 LONG LONG1 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE
    BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8"""
MADE: dict[str, Callable[[Reader, Any], Any]] = {
    **dict.fromkeys(LITERALS.split(), lambda _, value: value),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda reader, place: reader.memo[place]),
    "NONE": lambda *_: None,
    "NEWTRUE": lambda *_: True,
    "NEWFALSE": lambda *_: False,
    "EMPTY_TUPLE": lambda *_: (),
    "TUPLE": lambda reader, _: tuple(reader.pop()),
    "TUPLE1": lambda reader, _: tuple(reader.pop(1)),
    "TUPLE2": lambda reader, _: tuple(reader.pop(2)),
    "TUPLE3": lambda reader, _: tuple(reader.pop(3)),
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_SET"), lambda *_: []),
    **dict.fromkeys(("LIST", "FROZENSET"), lambda reader, _: reader.pop()),
    "EMPTY_DICT": lambda *_: {},
    "DICT": lambda reader, _: dict_of(reader.pop()),
    "GLOBAL": lambda reader, names: reader.named(*names.split(" ")),
    "STACK_GLOBAL": lambda reader, _: reader.named(*reader.pop(2)),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), lambda reader, _: reader.call(*reader.pop(2))),
    "NEWOBJ_EX": lambda reader, _: reader.call(*reader.pop(3)[:2]),
    "OBJ": lambda reader, _: Foreign(reader.pop()[0].kind),  # of Python 2
    "BINPERSID": lambda reader, _: reader.storage(*reader.pop(1)),
}
# ... and those that do something else. Others are never written by pickle or by PyTorch.
DONE: dict[str, Callable[[Reader, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda *_: None),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), Reader.put),
    "MEMOIZE": lambda reader, _: reader.put(len(reader.memo)),
    "MARK": lambda reader, _: reader.marks.append(len(reader.stack)),
    "POP": lambda reader, _: reader.pop(1).clear(),
    "POP_MARK": lambda reader, _: reader.pop().clear(),
    "APPEND": lambda reader, _: reader.extend(reader.pop(1)),
    **dict.fromkeys(("APPENDS", "ADDITEMS"), lambda reader, _: reader.extend(reader.pop())),
    "SETITEM": lambda reader, _: reader.update(reader.pop(2)),
    "SETITEMS": lambda reader, _: reader.update(reader.pop()),
    "BUILD": lambda reader, _: reader.build(*reader.pop(1)),
}
