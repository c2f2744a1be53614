"""Checks of the format of error messages."""

from collections.abc import Callable
from typing import Any

import pytest


def fails(
    call: Callable[[], Any], error: type[Exception], owner: str, name: str, *parts: str
) -> None:
    """Check that ``call`` raises ``error`` with the caller, the argument, the value and ``parts``.

    A part with a ``$`` at its end is the end of the message.
    """
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is error
    assert message.startswith(f"[{owner}] '{name}' must")
    assert "but got" in message
    for part in parts:
        assert part in f"{message}$", message
