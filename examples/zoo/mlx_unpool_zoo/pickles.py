"""Read pickles. No code in a file is run or imported.

``Reader`` carries out the opcodes itself, and calls only the functions that are passed to it. A
file cannot take much more memory or time than its length: opcodes are counted, and nothing that it
can nest is hashed.
"""

from __future__ import annotations

import functools
import inspect
import io
import pickletools
from collections.abc import Callable, Mapping
from typing import Any

signature_of = functools.cache(inspect.signature)
LIMIT = 2**20  # of the opcodes and the arguments of functions in a file


class Unreadable(ValueError):
    """What is wrong with a file, for the person who wants to read it."""


class Named:
    """A class or a function that a file names."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind


class Foreign(Named):
    """What a call in a file would have made: the name of its class or function, and its state."""

    __slots__ = ("state",)

    def __init__(self, kind: str, state: Any = None) -> None:
        super().__init__(kind)
        self.state = state


class Reader:
    """Reads the pickles in a file, one after the other.

    Args:
        file: The file.
        functions: What the file may call, by name. The first argument is always the reader.
    """

    def __init__(self, file: io.BytesIO, functions: Mapping[str, Callable[..., Any]]) -> None:
        self.file, self.functions, self.steps = file, FUNCTIONS | dict(functions), 0

    def load(self, persistent: Callable[[Any], Any] | None = None) -> Any:
        """The object in the next pickle.

        ``persistent`` returns the object for a persistent identifier, such as one of a storage.
        """
        self.persistent = persistent
        self.stack, self.marks, self.memo = list[Any](), list[int](), dict[int, Any]()
        for opcode, value, _ in pickletools.genops(self.file):
            self.count(1)
            if opcode.name in MADE:
                self.stack.append(MADE[opcode.name](self, value))
            elif opcode.name in DONE:
                DONE[opcode.name](self, value)
            else:
                raise Unreadable(
                    f"it has the opcode {opcode.name}, which torch.save does not write."
                )
        return self.stack.pop()

    def count(self, steps: int) -> None:
        """Raise an error if a file has too many opcodes. Arguments of functions count, too."""
        self.steps += steps
        if self.steps > LIMIT:
            raise Unreadable("it makes more than a million objects.")

    def pop(self, count: int) -> list[Any]:
        """Remove the last objects from the stack, and return them."""
        start = len(self.stack) - count
        objects = self.stack[start:]
        del self.stack[start:]
        return objects

    def pop_to_mark(self) -> list[Any]:
        """Remove the objects after the last mark from the stack, and return them."""
        return self.pop(len(self.stack) - self.marks.pop())

    def put(self, place: int) -> None:
        """Keep the object at the end of the stack, for later use."""
        self.memo[place] = self.stack[-1]

    def extend(self, items: list[Any]) -> None:
        """Add items to the list that is now at the end of the stack."""
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)

    def update(self, items: list[Any]) -> None:
        """Add keys and values to the dict that is now at the end of the stack."""
        if isinstance(self.stack[-1], dict):
            self.stack[-1].update(dict_of(items))

    def build(self, state: Any) -> None:
        """Set the state of the object at the end of the stack. Dicts and arrays have none."""
        if isinstance(self.stack[-1], Foreign):
            self.stack[-1].state = state

    def referred(self, identifier: Any) -> Any:
        """The object for a persistent identifier."""
        if self.persistent is None:
            raise Unreadable("it is damaged: it refers to a storage outside of its tensors.")
        return self.persistent(identifier)

    def named(self, *names: str) -> Named:
        """A class or a function with the name of its module and its own."""
        self.count(sum(map(len, names)) // 100)
        return Named(".".join(names))

    def call(self, function: Named, arguments: Any, keywords: Any = None) -> Any:
        """The result of a function, or a ``Foreign`` if it is not one of those that are called."""
        self.count(len(arguments))
        known = self.functions.get(function.kind)
        if known is None:
            return Foreign(function.kind)
        try:
            signature_of(known).bind(self, *arguments, **(keywords or {}))
        except TypeError:
            raise Unreadable(
                f"it passes arguments to {function.kind} that are not supported."
            ) from None
        return known(self, *arguments, **(keywords or {}))


def dict_of(items: list[Any]) -> dict[Any, Any]:
    """A dict of keys and values that follow each other.

    A file could nest other keys such that hashing them takes exponential time or overflows the
    stack. They become a ``Foreign`` with the name of their type.
    """
    keys = (key if is_simple(key) else Foreign(type(key).__name__) for key in items[::2])
    return dict(zip(keys, items[1::2]))


def is_simple(key: Any) -> bool:
    """Whether a key is hashed in a time that does not depend on the file."""
    if isinstance(key, int):
        return abs(key) < 2**60
    return isinstance(key, str | bytes | float | None)


def ordered_dict(reader: Reader, pairs: Any = ()) -> dict[Any, Any]:
    """A dict of pairs, as Python 2 pickles an ``OrderedDict``."""
    reader.count(2 * len(pairs))
    return dict_of([item for pair in pairs for item in pair])


def items_of(_: Reader, items: Any = ()) -> Any:
    """The items of a set. They are not hashed, which can take exponential time."""
    return items


# Functions of Python that every file may call.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "builtins.set": items_of,
    "__builtin__.set": items_of,
    "collections.OrderedDict": ordered_dict,
}
# The opcodes that add an object to the stack, and what they add ...
LITERALS = """INT BININT BININT1 BININT2 LONG LONG1 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING
    UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8"""
MADE: dict[str, Callable[[Reader, Any], Any]] = {
    **dict.fromkeys(LITERALS.split(), lambda _, value: value),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda reader, place: reader.memo[place]),
    "NONE": lambda *_: None,
    "NEWTRUE": lambda *_: True,
    "NEWFALSE": lambda *_: False,
    "EMPTY_TUPLE": lambda *_: (),
    "TUPLE": lambda reader, _: tuple(reader.pop_to_mark()),
    "TUPLE1": lambda reader, _: tuple(reader.pop(1)),
    "TUPLE2": lambda reader, _: tuple(reader.pop(2)),
    "TUPLE3": lambda reader, _: tuple(reader.pop(3)),
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_SET"), lambda *_: []),
    **dict.fromkeys(("LIST", "FROZENSET"), lambda reader, _: reader.pop_to_mark()),
    "EMPTY_DICT": lambda *_: {},
    "DICT": lambda reader, _: dict_of(reader.pop_to_mark()),
    "GLOBAL": lambda reader, names: reader.named(*names.split(" ")),
    "STACK_GLOBAL": lambda reader, _: reader.named(*reader.pop(2)),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), lambda reader, _: reader.call(*reader.pop(2))),
    "NEWOBJ_EX": lambda reader, _: reader.call(*reader.pop(3)),
    "OBJ": lambda reader, _: Foreign(reader.pop_to_mark()[0].kind),  # of Python 2
    "BINPERSID": lambda reader, _: reader.referred(*reader.pop(1)),
}
# ... and those that do something else.
DONE: dict[str, Callable[[Reader, Any], Any]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda *_: None),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), Reader.put),
    "MEMOIZE": lambda reader, _: reader.put(len(reader.memo)),
    "MARK": lambda reader, _: reader.marks.append(len(reader.stack)),
    "POP": lambda reader, _: reader.pop(1),
    "POP_MARK": lambda reader, _: reader.pop_to_mark(),
    "APPEND": lambda reader, _: reader.extend(reader.pop(1)),
    **dict.fromkeys(("APPENDS", "ADDITEMS"), lambda reader, _: reader.extend(reader.pop_to_mark())),
    "SETITEM": lambda reader, _: reader.update(reader.pop(2)),
    "SETITEMS": lambda reader, _: reader.update(reader.pop_to_mark()),
    "BUILD": lambda reader, _: reader.build(*reader.pop(1)),
}
