"""What the tests of the Metal kernels share."""

from __future__ import annotations

import sys

import metal_host
import pytest
from needs import needed


@pytest.fixture(scope="session")
def emulated_device() -> None:
    """The emulated device needs Linux and a C++ compiler, and CI on Linux has to have both."""
    if sys.platform != "linux":
        pytest.skip("the emulated Metal device runs on Linux alone")
    needed(metal_host.compiler_missing())


@pytest.fixture(autouse=True)
def emulation(request: pytest.FixtureRequest) -> None:
    """Every test needs the emulated device, except those on the real one."""
    if hasattr(request.node, "callspec") and request.node.callspec.params.get("name") == "metal":
        return
    request.getfixturevalue("emulated_device")
