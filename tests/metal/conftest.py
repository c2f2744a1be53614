"""What the tests of the Metal kernels share."""

from __future__ import annotations

import os

import metal_host
import pytest


@pytest.fixture(autouse=True)
def compiler() -> None:
    """Kernels are compiled as C++; without a compiler nothing can be said, which CI does not accept."""
    if missing := metal_host.compiler_missing():
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
