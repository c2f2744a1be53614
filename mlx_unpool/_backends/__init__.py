"""The three backends, and the selection of one per call: by its stream, unless one is forced."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import mlx.core as mx

from .. import _arguments as arguments
from .._geometry import Geometry
from .._scopes import is_exporting, set_inside
from .._types import BACKENDS, Arrays, BackendName, Pair, Rule
from . import cpu, gpu

VARIABLE = "MLX_UNPOOL_BACKEND"


class Backend(Protocol):
    """The primitives: the operations on arrays (B, D, H, W, C) that every backend implements.

    ``source`` is the input, followed by the bounds of the windows if these are random (see
    ``_bounds``). ``rule`` is what happens to several values with one index: the ``"last"`` one
    wins, or their ``"sum"``.
    """

    is_gpu: bool  # a CPU backend supports float64

    def pool(self, source: Arrays, g: Geometry, index_dtype: mx.Dtype) -> Pair:
        """Values and indices of every window."""

    def pool_values(self, source: Arrays, g: Geometry) -> mx.array:
        """The values alone of ``pool``. On the CPU, another zero or NaN may be chosen."""

    def indices_of(
        self, values: mx.array, source: Arrays, g: Geometry, index_dtype: mx.Dtype
    ) -> mx.array:
        """The indices alone of ``pool``, given the result of ``pool_values``."""

    def scatter(self, values: mx.array, indices: mx.array, g: Geometry, rule: Rule) -> mx.array:
        """Planes with values at their indices, zero elsewhere. A sum needs indices of a pool."""

    def gather(self, full: mx.array, indices: mx.array, g: Geometry, rule: Rule) -> mx.array:
        """The transpose of ``scatter``: elements of planes at the indices.

        Zero for an index outside the plane and, with the rule ``"last"``, for a value that did not
        win.
        """


class Target(NamedTuple):
    """Where a call and all its derivatives run."""

    stream: mx.Stream | mx.ThreadLocalStream
    backend: Backend


_BACKENDS: dict[str, Backend] = {"ops": cpu.Ops()}
_BACKENDS |= {name: gpu.KernelBackend(name) for name in ("metal", "cuda")}
forced = ContextVar("forced backend", default=os.environ.get(VARIABLE) or None)


def is_available(name: str) -> bool:
    """Whether this machine can run a backend."""
    return name == "ops" or getattr(mx, name).is_available()


def use_backend(name: BackendName) -> AbstractContextManager[None]:
    """Return a context manager inside which every call uses one backend.

    The default depends on the device of the stream: ``"metal"`` or ``"cuda"`` kernels on a GPU,
    ``"ops"`` (plain ``mlx.core`` operations) on the CPU. The environment variable
    ``MLX_UNPOOL_BACKEND`` forces a backend for the whole process. All backends are meant to give
    bit-identical results.

    It applies to the current thread and to ``asyncio`` tasks created inside, not to other threads.

    Args:
        name (str): ``"ops"``, ``"metal"`` or ``"cuda"``. ``"ops"`` always runs on the CPU, even if
            the stream of a call is on a GPU: use it if a kernel fails on your machine. Inside
            ``exporting``, functions can be exported for ``"metal"`` on any machine, but for
            ``"cuda"`` only with CUDA.

    Raises:
        RuntimeError: If this machine cannot run the backend, except ``"metal"`` inside
            ``exporting``. With the environment variable, each call raises it.

    Example:
        >>> with mlx_unpool.use_backend("ops"):
        ...     mlx_unpool.max_pool1d(mx.array([[1.0], [3.0]]), 2).item()
        3.0

    See also: ``exporting``, to export for another machine; the page Guarantees, for what has been
    tested.
    """
    name = arguments.choice("use_backend", "name", name, BACKENDS)
    check_available("use_backend", "name", name)
    return set_inside(forced, name)


def get(name: str) -> Any:
    """The backend called ``name``."""
    return _BACKENDS[name]


def target_of(stream: Any) -> Target:
    """The stream and the backend of a call on ``stream`` (None: the default stream)."""
    if stream is None:
        stream = mx.default_stream(mx.default_device())
    elif isinstance(stream, (mx.Device, mx.DeviceType)):
        stream = mx.default_stream(stream)
    on_gpu = is_gpu_stream(stream)
    name = forced_name()
    if name is not None:
        check_available("mlx_unpool", VARIABLE, name)
    else:
        name = usual_name(on_gpu)
    if name == "ops" and on_gpu:
        stream = mx.default_stream(mx.cpu)
    return Target(stream, _BACKENDS[name])


def forced_name() -> str | None:
    """The backend that ``use_backend`` or the environment variable selects, or None."""
    name = forced.get()
    return name if name is None else arguments.choice("mlx_unpool", VARIABLE, name, BACKENDS)


def usual_name(on_gpu: bool) -> str:
    """The backend of a stream if none is selected."""
    if not on_gpu:
        return "ops"
    return "metal" if is_available("metal") else "cuda"


def check_available(caller: str, argument: str, name: str) -> None:
    """Check that this machine can run a backend, or that it only exports functions for Metal."""
    if is_available(name):
        return
    hint = ""
    if name == "metal":
        if is_exporting.get():
            return
        hint = " To export functions for a Mac, enter exporting() first."
    needed = "be a backend that this machine can run"
    raise RuntimeError(arguments.message(caller, argument, needed, name) + hint)


def is_gpu_stream(stream: Any) -> bool:
    """Whether ``stream`` is on a GPU. The emulated GPU of the tests replaces this function."""
    return stream.device.type is mx.gpu  # == would call a method written in Python
