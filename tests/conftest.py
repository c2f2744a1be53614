"""What the tests share."""

from __future__ import annotations

import importlib.util
import os

import mlx.core as mx
import pytest

# As in MLX's own tests: otherwise the GPU of an M5 rounds the inputs of float32 convolutions.
os.environ.setdefault("MLX_ENABLE_TF32", "0")

IN_CI = os.environ.get("CI") == "true"


@pytest.fixture(autouse=True)
def seed() -> None:
    """The same random numbers in every run, whatever ran before."""
    mx.random.seed(0)


def pytest_configure(config: pytest.Config) -> None:
    """Where tests must not be skipped, what they need must be there."""
    if IN_CI and importlib.util.find_spec("torch") is None:
        raise pytest.UsageError("PyTorch, the parity oracle, must be installed in CI.")


def pytest_unconfigure() -> None:
    """MLX's streams must end before the interpreter does; nothing can use MLX in this thread afterwards."""
    mx.clear_streams()
