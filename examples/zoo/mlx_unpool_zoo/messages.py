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
        extra = f"{extra},{installed_build()}"
    return f'pip install "mlx-unpool[{extra}] @ git+https://github.com/mlx-unpool/mlx-unpool"'


def pip_install_group(group: str) -> str:
    """The command that installs a clone and one of its dependency groups, with pip 25.1 or later.

    It names the clone, because the groups contain mlx-unpool, which pip would otherwise download.
    """
    return f'pip install --editable ".[{installed_build()}]" --group {group}'


def installed_build() -> str:
    """The extra of the installed build of MLX: cuda13, cuda12 or, on a Mac as well, cpu."""
    installed = {distribution.metadata["Name"] for distribution in distributions()}
    for build in ("cuda13", "cuda12"):
        if f"mlx-cuda-{build[-2:]}" in installed:
            return build
    return "cpu"
