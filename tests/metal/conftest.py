"""Fixtures of the tests of the Metal kernels."""

import metal_host
import pytest


@pytest.fixture(scope="session")
def emulated_device() -> None:
    """Skip tests without Linux and a C++ compiler."""
    if not metal_host.RUNS_HERE:
        pytest.skip(f"the emulated GPU needs Linux and {metal_host.COMPILER}")


@pytest.fixture(autouse=True)
def emulation(request: pytest.FixtureRequest) -> None:
    """Every test needs the emulated device, except those on a real one."""
    if hasattr(request.node, "callspec") and request.node.callspec.params.get("name") == "metal":
        return
    request.getfixturevalue("emulated_device")
