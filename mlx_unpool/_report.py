"""What ``python -m mlx_unpool`` prints with each of its commands."""

from __future__ import annotations

import platform
import signal
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NoReturn

import mlx.core as mx

from . import __version__


def run_program(main: Callable[[], int | None]) -> NoReturn:
    """Run a program and exit. If a reader such as ``head`` closes its output, it ends without a traceback."""
    if hasattr(signal, "SIGPIPE"):  # not on Windows
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        sys.exit(main())
    finally:
        mx.clear_streams()  # otherwise MLX may crash when the interpreter exits


def print_versions(**more: str) -> None:
    """Print the versions and the system, then ``more``: one name and value per line."""
    lines = {"mlx_unpool": __version__, "mlx": version("mlx"), "Python": platform.python_version()}
    for name, value in (lines | {"system": platform.platform()} | more).items():
        print(f"{name:12}{value}")
    print(flush=True)


def device_name(device: Any) -> str:
    """The name and architecture of a device, such as the model of a chip."""
    info = mx.device_info(device)
    return f"{info.get('device_name', 'unknown device')} {info.get('architecture', '')}".rstrip()
