"""A Metal device emulated on the CPU.

Its ``mx.fast.metal_kernel`` runs the source through ``metal_host``. Inside
``Emulator().installed()`` the whole library uses its Metal backend, eagerly. Every memory access is
checked, and a launch with a failure raises an AssertionError.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import metal_host
import mlx.core as mx
import numpy as np
from metal_host import Launch

from mlx_unpool import _backends
from mlx_unpool._backends import gpu

_metal_kernel = mx.fast.metal_kernel
# "flushing" is "emulated" with 32-bit subnormal numbers flushed to zero, as on Apple's GPUs.
DEVICES = [
    *(["emulated", "flushing"] if sys.platform == "linux" else []),
    *(["metal"] if mx.metal.is_available() else []),
]


@contextmanager
def device(name: str, **options: Any) -> Iterator[None]:
    """Run the library's calls on the CPU ("cpu") or on one of ``DEVICES``.

    ``options`` are those of an :class:`Emulator`.
    """
    if name in ("cpu", "metal"):
        backend, target = ("ops", mx.cpu) if name == "cpu" else ("metal", mx.gpu)
        with mx.stream(target), _backends.use_backend(backend):
            yield
    else:
        with Emulator(flush=name == "flushing", **options).installed():
            yield


def evaluated(call: Callable[[], Any], name: str, **options: Any) -> Any:
    """The results of a call on one device, after evaluation."""
    with device(name, **options):
        results = call()
        mx.eval(results)
    return results


@contextmanager
def installed(backend: str, make_kernel: Callable[..., Any]) -> Iterator[None]:
    """Make the library use a GPU backend whose kernels come from ``make_kernel``."""
    function = f"{backend}_kernel"  # of mx.fast
    is_available, previous = _backends.is_available, getattr(mx.fast, function)
    _backends.is_available = lambda name: name in ("ops", backend)
    setattr(mx.fast, function, make_kernel)
    gpu._build.cache_clear()
    try:
        with _backends.use_backend(backend):
            yield
    finally:
        _backends.is_available = is_available
        setattr(mx.fast, function, previous)
        gpu._build.cache_clear()


@dataclass
class Emulator:
    """Runs every launch, or only records it.

    While MLX traces a function, its arrays have no values, so such launches are recorded only.
    ``mx.vmap`` calls the rule of a custom function later, with values; ``mx.compile`` does not.
    """

    edit: Callable[[str], str] = lambda source: source  # of each kernel's source
    shuffle: int | None = None  # the seed of the order of threads; None for the natural order
    shift: int | None = None  # how many elements after a fully aligned address inputs begin
    flush: bool = False  # whether 32-bit subnormal numbers are flushed to zero
    count: bool = False  # whether memory traffic is counted
    must_be_clean: bool = True  # whether a launch with a failure raises an error
    record: bool = False  # whether launches are recorded and return zeros
    launches: list[Launch] = field(default_factory=list)
    reports: list[metal_host.Report] = field(default_factory=list)
    backend = "metal"

    @contextmanager
    def installed(self) -> Iterator[Emulator]:
        """A context in which the library finds this device and uses it."""
        with installed(self.backend, self._make):
            yield self

    def _make(self, *, source: str, **arguments: Any) -> Callable[..., list[mx.array]]:
        kernel = _metal_kernel(source=self.edit(source), **arguments)
        return lambda inputs, **options: self.answer(launch_of(kernel, inputs, options), inputs)

    def answer(self, launch: Launch, inputs: list[mx.array]) -> list[mx.array]:
        """Record a launch and run it if possible."""
        launch = dataclasses.replace(launch, optimised=self.count)
        self.launches.append(launch)
        if self.record or not known(inputs):
            return [mx.zeros(shape, dtype) for shape, dtype in launch.outputs]
        return self.run(launch, inputs)

    def run(self, launch: Launch, inputs: list[mx.array]) -> list[mx.array]:
        """Run a launch and return its outputs."""
        order = None
        if self.shuffle is not None:
            order = np.random.default_rng(self.shuffle).permutation(launch.threads)
        with metal_host.Run(launch, inputs, self.shift) as running:
            report = running.walk(order, count=self.count, flush=self.flush)
            outputs = running.outputs()
        self.reports.append(report)
        if self.must_be_clean:
            assert report.clean, f"{launch.name}: {report.first} unwritten: {report.unwritten}"
        return outputs

    @property
    def dispatches(self) -> int:
        """The number of kernels that MLX runs: launches, and fills of initialised outputs."""
        return sum(1 if n.init_value is None else 1 + len(n.outputs) for n in self.launches)

    def traffic(self) -> Iterator[tuple[tuple[str, str], dict[str, int]]]:
        """What each launch read from or wrote to each buffer that is not in constant memory."""
        for launch, report in zip(self.launches, self.reports, strict=True):
            yield from (
                each for each in report.traffic.items() if each[0][0] not in launch.constants
            )

    def problems(self) -> set[str]:
        """The kinds of failures of all launches."""
        found = {line.split(":")[0] for report in self.reports for line in report.first}
        return found | {"unwritten" for report in self.reports if report.unwritten}


def counted(call: Callable[[], Any]) -> Emulator:
    """A device that has run a call and counted its traffic."""
    device = Emulator(count=True)
    with device.installed():
        mx.eval(call())
    return device


def launch_of(kernel: Any, inputs: list[mx.array], options: dict[str, Any]) -> Launch:
    """The launch that a kernel of ``mx.fast.metal_kernel`` makes for these inputs."""

    def traced(*arrays: mx.array) -> list[mx.array]:
        return kernel(inputs=list(arrays), **{**options, "stream": mx.gpu})

    # Broadcast, so that an array of any size takes no memory.
    examples = [mx.broadcast_to(mx.array(0, x.dtype), x.shape) for x in inputs]
    (launch,), _ = metal_host.launches_of(traced, *examples)
    return dataclasses.replace(launch, init_value=options.get("init_value"))


def run_source(
    source: str, inputs: dict[str, mx.array], outputs: dict[str, mx.Dtype], **more: Any
) -> list[mx.array]:
    """The outputs of a small kernel with one thread ``n`` per element of its first input."""
    size = next(iter(inputs.values())).size
    kernel = mx.fast.metal_kernel(
        name="small",
        input_names=list(inputs),
        output_names=list(outputs),
        source=f"    uint n = thread_position_in_grid.x;\n    {source}",
        header=more.pop("header", ""),
        atomic_outputs=more.pop("atomic", False),
    )
    shapes, dtypes = [(size,)] * len(outputs), list(outputs.values())
    options = {"grid": (size, 1, 1), "output_shapes": shapes, "output_dtypes": dtypes, **more}
    return kernel(inputs=list(inputs.values()), threadgroup=(min(size, 32), 1, 1), **options)


def known(arrays: list[mx.array]) -> bool:
    """Whether these arrays have values."""
    try:
        mx.eval(arrays)
    except ValueError as error:
        if "during function transformations" in str(error):
            return False
        raise
    return True


def compile_all(calls: Iterable[Callable[[], Any]], device: Emulator | None = None) -> list[Launch]:
    """Compile the kernels of all calls together: a fraction of the time of one by one."""
    if not metal_host.RUNS_HERE:
        return []  # tests on a real device run without
    launches = recorded(calls, device)
    metal_host.compile_launches(launches)
    return launches


def recorded(calls: Iterable[Callable[[], Any]], device: Emulator | None = None) -> list[Launch]:
    """The launches of all calls, which do not run."""
    device = device or Emulator()
    device.record = True
    with device.installed():
        for call in calls:
            mx.eval(call())
    return device.launches
