"""Values that hold inside a ``with`` block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class _Block:
    """One ``with`` block: what it sets, and the block around it."""

    def __init__(self, value: Any, outer: _Block | None) -> None:
        self.value = value
        self.outer = outer
        self.is_over = False


class Setting:
    """A value with a default, which ``with`` blocks change for the thread (or task) that they are in.

    A block that is over counts no more, wherever it ended: in a generator that was closed by another thread,
    after a block that began later, or by a signal in the middle of anything.
    """

    def __init__(self, name: str, default: Any) -> None:
        self._default = default
        self._innermost: ContextVar[_Block | None] = ContextVar(name, default=None)

    def get(self) -> Any:
        """The value that holds here and now."""
        if self._innermost.get() is None:  # the usual case, fast
            return self._default
        block = self._block()
        return self._default if block is None else block.value

    @contextmanager
    def set_to(self, value: Any) -> Iterator[None]:
        """Sets another value inside."""
        block = _Block(value, self._block())
        try:
            self._innermost.set(block)
            yield
        finally:
            block.is_over = True
            self._innermost.set(self._block())

    def _block(self) -> _Block | None:
        """The innermost block that is not over."""
        block = self._innermost.get()
        while block is not None and block.is_over:
            block = block.outer
        return block
