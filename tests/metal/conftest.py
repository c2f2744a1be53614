"""What the tests of the Metal kernels share."""

from __future__ import annotations

import os
import sys

import metal_host
import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The kernels compare as floats so far: wrong for subnormal numbers where the device flushes them."""
    for item in items:
        name = item.callspec.params.get("name") if hasattr(item, "callspec") else None
        if name == "flushing":
            item.add_marker(pytest.mark.xfail(strict=False, reason="kernels compare as floats"))


@pytest.fixture(autouse=True)
def emulation(request: pytest.FixtureRequest) -> None:
    """The emulated device needs Linux and a C++ compiler, and CI on Linux has to have both."""
    if hasattr(request.node, "callspec") and request.node.callspec.params.get("name") == "metal":
        return  # on the real device
    if sys.platform != "linux":
        pytest.skip("the emulated Metal device runs on Linux alone")
    if missing := metal_host.compiler_missing():
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
