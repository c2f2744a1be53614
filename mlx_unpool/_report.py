"""What the commands of ``python -m mlx_unpool`` share: their versions, devices and times."""

from __future__ import annotations

import platform
import signal
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

import mlx.core as mx

from . import __version__

Times = list[float]  # elapsed time and CPU time of all threads, in seconds


def run_program(main: Callable[[], int | None]) -> NoReturn:
    """Run a program and exit.

    If a reader such as ``head`` closes its output, it ends without a traceback.
    """
    if hasattr(signal, "SIGPIPE"):  # not on Windows
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        sys.exit(main())
    finally:
        mx.clear_streams()  # otherwise MLX may crash when the interpreter exits


def print_versions(**more: str) -> None:
    """Print the versions and the system, then ``more``: one name and value per line."""
    from importlib.metadata import version  # slow to import

    lines = {"mlx_unpool": __version__, "mlx": version("mlx"), "Python": platform.python_version()}
    for name, value in (lines | {"system": platform.platform()} | more).items():
        print(f"{name:12}{value}")
    print(flush=True)


def device_name(device: Any) -> str:
    """The name and architecture of a device, such as the model of a chip."""
    info = mx.device_info(device)
    return f"{info.get('device_name', 'unknown device')} {info.get('architecture', '')}".rstrip()


def times_of(
    run: Callable[[], Any], seconds: float, least: int = 1, ahead: bool = False
) -> list[Times]:
    """The times of at least ``least`` calls, or of as many as fit into ``seconds``.

    ``ahead``: whether a call is built and queued while the one before it is running.
    """
    times: list[Times] = []
    queued = run() if ahead else None
    mx.async_eval(queued)
    start, cpu_start = time.perf_counter(), time.process_time()
    end = start + seconds
    while len(times) < least or start < end:
        called = run()
        if ahead:
            mx.async_eval(called)
            called, queued = queued, called
        mx.eval(called)
        now, cpu_now = time.perf_counter(), time.process_time()
        times.append([now - start, cpu_now - cpu_start])
        start, cpu_start = now, cpu_now
    mx.eval(queued)
    return times


def seconds_per_call(run: Callable[[], Any], seconds: float) -> float:
    """Median elapsed time per call, with the next call queued, so that a GPU never waits."""
    return medians(times_of(run, seconds, ahead=True))[0]


def medians(times: list[Times]) -> Times:
    """The median of the elapsed times, and that of the CPU times."""
    return [statistics.median(kind) for kind in zip(*times)]
