"""Prints the versions, the devices and the selected backend."""

from __future__ import annotations

import sys

import mlx.core as mx

from . import _backends
from .selftest import device_name, print_versions


def main() -> int:
    """Print the report and return the exit status."""
    backend = _backends.where(None).backend
    name = next(n for n in _backends.BACKENDS if _backends.get(n) is backend)
    missing = "" if _backends.is_available(name) else ", not available on this machine"
    kinds = (kind for kind in (mx.cpu, mx.gpu) if mx.is_available(kind))
    devices = [f"{device_name(kind)} ({kind.name})" for kind in kinds]
    print_versions(
        devices=", ".join(devices), default=str(mx.default_device()), backend=f"{name}{missing}"
    )
    print("Check every kernel: python -m mlx_unpool.selftest")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ValueError as error:  # the environment variable has another value
        sys.exit(str(error))
