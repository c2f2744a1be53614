"""What the tests of the Metal kernels share."""

from __future__ import annotations

import sys

import metal_host
import pytest
from needs import needed


@pytest.fixture(autouse=True)
def emulation(request: pytest.FixtureRequest) -> None:
    """The emulated device needs Linux and a C++ compiler, and CI on Linux has to have both."""
    if hasattr(request.node, "callspec") and request.node.callspec.params.get("name") == "metal":
        return  # on the real device
    if sys.platform != "linux":
        pytest.skip("the emulated Metal device runs on Linux alone")
    needed(metal_host.compiler_missing())
