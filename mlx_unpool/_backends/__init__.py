"""The three backends and the choice among them.

The choice is made at call time, from the device of the stream that the call runs on, unless one is forced.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import mlx.core as mx

from .._geometry import Geometry, RegionGeometry, WindowGeometry
from .._settings import set_inside
from . import cpu, gpu

VARIABLE = "MLX_UNPOOL_BACKEND"


class Backend(Protocol):
    """The primitives, on arrays of shape (B, D, H, W, C)."""

    # A backend on the CPU has float64 and a limit of 2^31 elements. It has one more method,
    # pool_values(x, bounds, g, index_dtype), and keeps no indices for the gradient of a pool without indices.
    on_gpu: bool

    def pool(
        self, x: mx.array, g: WindowGeometry, index_dtype: mx.Dtype
    ) -> tuple[mx.array, mx.array]:
        """Values and indices of every window."""

    def pool_regions(
        self, x: mx.array, bounds: mx.array, g: RegionGeometry, index_dtype: mx.Dtype
    ) -> tuple[mx.array, mx.array]:
        """Values and flat indices of windows that lie where ``bounds``, (B, n, 2, 1 or C), says."""

    def place(self, values: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        """Pooled values at their positions, zero elsewhere, the last one of several."""

    def accumulate(self, values: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        """Pooled values at their positions, zero elsewhere, the sum of several. The indices are a pool's."""

    def pick(self, full: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        """The full array at the recorded positions, zero where there is none. The indices are a pool's."""

    def pick_winners(self, full: mx.array, indices: mx.array, g: Geometry) -> mx.array:
        """As ``pick`` for any indices, and zero for a value whose position a later one names as well."""


_BACKENDS: dict[str, Backend] = {
    "ops": cpu.Ops(),
    "metal": gpu.Kernels("metal"),
    "cuda": gpu.Kernels("cuda"),
}
NAMES = tuple(_BACKENDS)
_forced = ContextVar("forced backend", default=os.environ.get(VARIABLE) or None)


class Where(NamedTuple):
    """Where a call runs: the same for its derivatives, whenever they are taken."""

    stream: mx.Stream | mx.ThreadLocalStream
    backend: Backend


def is_available(name: str) -> bool:
    """Whether this machine can run a backend."""
    if name == "ops":
        return True
    return mx.metal.is_available() if name == "metal" else mx.cuda.is_available()


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Forces one backend on every call inside, in this thread.

    Without it the device of a call's stream decides: ``"metal"`` or ``"cuda"`` on a GPU, ``"ops"``, plain
    ``mlx.core`` operations, on a CPU. The environment variable ``MLX_UNPOOL_BACKEND`` forces one for a
    whole process. Results are the same bits on each.

    Args:
        name (str): ``"ops"``, ``"metal"`` or ``"cuda"``. ``"ops"`` runs on the CPU even where a call's
            stream is on a GPU, in the same unified memory: the way out if a kernel fails on some machine.
            A backend that this machine cannot run can be traced for export inside
            :func:`mlx_unpool.exporting`, not evaluated.

    Raises:
        ValueError: If there is no backend of this name.

    Example:

        >>> import mlx.core as mx
        >>> import mlx_unpool
        >>> with mlx_unpool.use_backend("ops"):
        ...     mlx_unpool.max_pool1d(mx.array([[1.0], [3.0]]), 2).item()
        3.0
    """
    if name not in NAMES:
        raise ValueError(f"[use_backend] 'name' must be {_allowed()} but got {name!r}.")
    with set_inside(_forced, name):
        yield


def get(name: str) -> Any:
    """The backend of this name."""
    return _BACKENDS[name]


def where(stream: Any) -> Where:
    """The place for a call on ``stream``, or on the default stream if that is None."""
    if stream is None:
        stream = mx.default_stream(mx.default_device())
    elif isinstance(stream, (mx.Device, mx.DeviceType)):
        stream = mx.default_stream(stream)
    gpu_stream = on_gpu(stream)
    name = _forced.get()
    if name is None:
        name = "ops" if not gpu_stream else "metal" if is_available("metal") else "cuda"
    elif name not in _BACKENDS:
        raise ValueError(f"[mlx_unpool] '{VARIABLE}' must be {_allowed()} but got {name!r}.")
    if name == "ops" and gpu_stream:
        stream = mx.default_stream(mx.cpu)
    return Where(stream, _BACKENDS[name])


def on_gpu(stream: Any) -> bool:
    """Whether a stream belongs to a GPU. An emulated GPU replaces this function: docs/testing_metal.md."""
    return stream.device.type == mx.gpu


def _allowed() -> str:
    return " or ".join(f"'{name}'" for name in NAMES)
