"""The command that installs what is missing."""

from __future__ import annotations

import sys
from importlib.metadata import distributions


def pip_install(extra: str) -> str:
    """The command that installs an extra of mlx-unpool.

    On Linux it names the installed build of MLX as well, or that for a CPU, because builds replace
    each other's files.
    """
    if sys.platform == "linux":
        installed = {distribution.metadata["Name"] for distribution in distributions()}
        builds = [build for build in ("cuda13", "cuda12") if f"mlx-cuda-{build[-2:]}" in installed]
        extra = f"{extra},{(*builds, 'cpu')[0]}"
    return f'pip install "mlx-unpool[{extra}] @ git+https://github.com/mlx-unpool/mlx-unpool"'
