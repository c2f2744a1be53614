"""Fixtures and hooks for all tests."""

import os
import sys
from collections.abc import Generator
from typing import Any

import mlx.core as mx
import pytest

# As in MLX's tests: otherwise the GPU of an M5 rounds the inputs of float32 convolutions.
os.environ.setdefault("MLX_ENABLE_TF32", "0")
collect_ignore = ["test_site.py"] if sys.version_info < (3, 11) else []  # Sphinx needs 3.11


@pytest.fixture(autouse=True)
def seed() -> None:
    """Seed MLX before each test, so that random numbers do not depend on other tests."""
    mx.random.seed(0)


def fail_if_skipped(report: Any) -> Any:
    """Turn a skipped test or file into a failure in CI on Linux, which installs everything."""
    in_ci = os.environ.get("CI") == "true" and sys.platform == "linux"
    if in_ci and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"skipped in CI: {report.longrepr[-1]}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    return fail_if_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    return fail_if_skipped((yield))


def pytest_unconfigure() -> None:
    """Clear MLX's streams before the interpreter exits.

    MLX cannot be used in this thread afterwards.
    """
    mx.clear_streams()
