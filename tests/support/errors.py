"""What every error of this library must look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def fails(
    call: Callable[[], Any], error: type[Exception], owner: str, name: str, *parts: str
) -> None:
    """``call`` raises ``error``, which names caller, argument and what was given, and says ``parts``."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is error
    assert message.startswith(f"[{owner}] '{name}' must")
    assert "but got" in message
    for part in parts:
        assert part in message, message
