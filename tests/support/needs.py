"""Skip tests whose requirements are missing."""

from __future__ import annotations

import os
import sys

import pytest


def needed(missing: str | None) -> None:
    """Skip a test that lacks what ``missing`` describes; fail instead in CI on Linux, which must have it.

    Pytest sets up fixtures with a broader scope first. If a fixture of scope "module" needs the same thing,
    call this function in a fixture of at least that scope, which the other one requests.
    """
    if missing and os.environ.get("CI") == "true" and sys.platform == "linux":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
