"""Print the versions, the devices and the selected backend."""

import sys

import mlx.core as mx

from . import _backends
from .selftest import device_name, print_versions, run_program


def main() -> None:
    """Print the report."""
    backend = _backends.target_of(None).backend
    name = next(name for name in _backends.BACKENDS if _backends.get(name) is backend)
    missing = "" if _backends.is_available(name) else ", not available on this machine"
    kinds = (kind for kind in (mx.cpu, mx.gpu) if mx.is_available(kind))
    devices = ", ".join(f"{device_name(kind)} ({kind.name})" for kind in kinds)
    print_versions(devices=devices, default=str(mx.default_device()), backend=name + missing)
    print("Check every kernel: python -m mlx_unpool.selftest")


if __name__ == "__main__":
    try:
        run_program(main)
    except ValueError as error:  # MLX_UNPOOL_BACKEND is not the name of a backend
        sys.exit(str(error))
