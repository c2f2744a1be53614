"""Print versions, devices and the selected backend; check a GPU's kernels; measure the speed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import mlx.core as mx

from . import _backends, benchmark, selftest
from ._report import device_name, print_versions, run_program


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status."""
    parser = argparse.ArgumentParser("python -m mlx_unpool", description=__doc__)
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands (default: info)"
    )
    form = argparse.RawDescriptionHelpFormatter
    commands.add_parser("info", help="print the versions, the devices and the selected backend")
    text = "compare every kernel of a GPU with plain operations"
    commands.add_parser("check", help=text, description=selftest.__doc__, formatter_class=form)
    text = "compare the speed with mlx.nn"
    add = commands.add_parser(
        "benchmark", help=text, description=benchmark.__doc__, formatter_class=form
    )
    add.add_argument(
        "--all", action="store_true", help="also check the kernels and measure a block of YOLO"
    )
    add.add_argument(
        "--seconds", type=float, default=0.1, help="seconds per measurement (default: 0.1)"
    )
    options = parser.parse_args(arguments)
    if options.command == "check":
        return selftest.report()
    if options.command == "benchmark":
        return benchmark.report(options.all, options.seconds)
    print_info()
    return 0


def print_info() -> None:
    """Print the versions, the devices and the selected backend."""
    stream = mx.default_stream(mx.default_device())
    name = _backends.forced_name() or _backends.usual_name(_backends.is_gpu_stream(stream))
    missing = "" if _backends.is_available(name) else ", not available on this machine"
    devices = [f"{device_name(d)} ({d.name})" for d in (mx.cpu, mx.gpu) if mx.is_available(d)]
    print_versions(
        devices=", ".join(devices), default=str(mx.default_device()), backend=name + missing
    )
    print("Check every kernel: python -m mlx_unpool check")


if __name__ == "__main__":
    try:
        run_program(main)
    except ValueError as error:  # MLX_UNPOOL_BACKEND is not the name of a backend
        sys.exit(str(error))
