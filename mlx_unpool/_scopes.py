"""Settings that apply inside a ``with`` block, in its thread or task only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# Whether calls are traced for an exported file; see ``exporting``.
is_exporting = ContextVar("exporting", default=False)


@contextmanager
def set_inside(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Set ``variable`` until the block ends."""
    before = variable.get()
    try:
        variable.set(value)  # inside ``try``: Ctrl-C can raise as soon as this call returns
        yield
    finally:
        variable.set(before)
