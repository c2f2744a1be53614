"""Fixtures and hooks for all tests."""

from __future__ import annotations

import importlib.util
import os

import mlx.core as mx
import pytest

# As in MLX's tests: otherwise the GPU of an M5 rounds the inputs of float32 convolutions.
os.environ.setdefault("MLX_ENABLE_TF32", "0")

IN_CI = os.environ.get("CI") == "true"


@pytest.fixture(autouse=True)
def seed() -> None:
    """Seed MLX before each test, so that random numbers do not depend on other tests."""
    mx.random.seed(0)


def pytest_configure(config: pytest.Config) -> None:
    """Fail in CI if PyTorch is missing, instead of skipping tests."""
    if IN_CI and importlib.util.find_spec("torch") is None:
        raise pytest.UsageError("PyTorch, the parity oracle, must be installed in CI.")


def pytest_unconfigure() -> None:
    """Clear MLX's streams before the interpreter exits; MLX cannot be used in this thread afterwards."""
    mx.clear_streams()
