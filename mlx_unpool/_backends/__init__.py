"""The three backends and the choice among them.

A backend is an object with the primitives ``pool``, ``place``, ``accumulate``, ``pick`` and
``pick_winners``, all on arrays of shape (B, D, H, W, C). The choice is made at call time, from the device
of the stream that the call runs on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import mlx.core as mx

from . import gpu, ops

NAMES = ("ops", "metal", "cuda")
_BACKENDS = {"ops": ops.Ops(), "metal": gpu.Kernels("metal"), "cuda": gpu.Kernels("cuda")}
_forced: ContextVar[str | None] = ContextVar("forced backend", default=None)


def is_available(name: str) -> bool:
    """Whether this machine can run a backend."""
    if name == "ops":
        return True
    return mx.metal.is_available() if name == "metal" else mx.cuda.is_available()


@contextmanager
def use(name: str) -> Iterator[None]:
    """Forces one backend on every call inside, whatever the device.

    Forcing a backend that this machine cannot run makes sense in one place, inside
    ``mx.export_function(callback, ...)``, which traces a graph without running it.
    """
    if name not in NAMES:
        raise ValueError(f"[use] 'name' must be one of {NAMES} but got {name!r}.")
    token = _forced.set(name)
    try:
        yield
    finally:
        _forced.reset(token)


def get(name: str) -> Any:
    """The backend of this name."""
    return _BACKENDS[name]


def forced() -> str | None:
    """The backend that :func:`use` forces, if it does."""
    return _forced.get()


def choose(stream: Any) -> Any:
    """The backend for a call on ``stream``."""
    on_gpu = "metal" if is_available("metal") else "cuda"
    by_device = on_gpu if stream.device.type == mx.gpu else "ops"
    return _BACKENDS[_forced.get() or by_device]
