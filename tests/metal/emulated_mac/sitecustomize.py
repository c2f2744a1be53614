"""Python imports this module when it starts: ``as_on_a_mac.py`` puts its folder on PYTHONPATH."""

import contextlib

import emulated_mac

with contextlib.suppress(ImportError):  # a Python without MLX starts as usual
    import mlx.core

    emulated_mac.replace_devices(mlx.core)

    from mlx_unpool import _backends

    emulated_mac.replace_hook(_backends)
