"""What the tests share."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import mlx.core as mx
import pytest

ROOT = Path(__file__).parent.parent
sys.path += [str(ROOT / "examples"), str(ROOT / "benchmarks")]  # programs that are tested, too

IN_CI = os.environ.get("CI") == "true"


@pytest.fixture(autouse=True)
def seed() -> None:
    """The same random numbers in every run, whatever ran before."""
    mx.random.seed(0)


def pytest_configure(config: pytest.Config) -> None:
    """Where tests must not be skipped, what they need must be there."""
    if IN_CI and importlib.util.find_spec("torch") is None:
        raise pytest.UsageError("PyTorch, the parity oracle, must be installed in CI.")
