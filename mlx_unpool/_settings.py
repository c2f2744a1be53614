"""Values that hold inside a ``with`` block, for the thread or task that it is in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


@contextmanager
def set_inside(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Sets ``variable`` until the block ends."""
    before = variable.get()
    variable.set(value)
    try:
        yield
    finally:
        variable.set(before)
