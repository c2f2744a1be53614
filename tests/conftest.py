"""Fixtures and hooks for all tests."""

from __future__ import annotations

import os
import sys
from typing import Any

import mlx.core as mx
import pytest

# As in MLX's tests: otherwise the GPU of an M5 rounds the inputs of float32 convolutions.
os.environ.setdefault("MLX_ENABLE_TF32", "0")

# CI on Linux has everything that a test may need, so a skipped test is a failure there.
NOTHING_IS_SKIPPED = os.environ.get("CI") == "true" and sys.platform == "linux"
collect_ignore = ["test_site.py"] if sys.version_info < (3, 11) else []  # as Sphinx needs


@pytest.fixture(autouse=True)
def seed() -> None:
    """Seed MLX before each test, so that random numbers do not depend on other tests."""
    mx.random.seed(0)


def not_skipped(report: Any) -> Any:
    """A report that fails in CI if the test or the file was skipped."""
    if NOTHING_IS_SKIPPED and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"skipped in CI: {report.longrepr[-1]}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Any:
    return not_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Any:
    return not_skipped((yield))


def pytest_unconfigure() -> None:
    """Clear MLX's streams before the interpreter exits; MLX cannot be used in this thread afterwards."""
    mx.clear_streams()
