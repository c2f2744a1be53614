"""A Metal device made of CPU: ``mx.fast.metal_kernel`` that runs its text through ``metal_host``.

Under ``Emulator`` the whole library runs on its Metal backend, eagerly: layers, derivatives, training steps.
Every launch is watched; one that is not clean fails the test.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import metal_host
import mlx.core as mx
from metal_host import Launch

from mlx_unpool import _backends
from mlx_unpool._backends import gpu

_metal_kernel = mx.fast.metal_kernel
# What the library's calls can be run on here.
DEVICES = [
    *(["emulated"] if sys.platform == "linux" else []),
    *(["metal"] if mx.metal.is_available() else []),
]


@contextmanager
def device(name: str, shuffle: int | None = None) -> Iterator[None]:
    """Runs the library's calls on the CPU, on the real GPU or on the emulated one."""
    if name == "cpu":
        with mx.stream(mx.cpu), _backends.use_backend("ops"):
            yield
    elif name == "metal":
        with mx.stream(mx.gpu), _backends.use_backend("metal"):
            yield
    else:
        metal = Emulator()
        metal.shuffle = shuffle
        with metal.installed():
            yield


class Emulator:
    """Runs, or with ``record`` only notes, every launch.

    While MLX traces a function, its arrays have no numbers yet: such launches can only be noted. ``mx.vmap``
    calls the rule of a custom function later, with arrays that have; ``mx.compile`` does not.
    """

    def __init__(self, edit: Callable[[str], str] | None = None) -> None:
        self.edit = edit or (lambda text: text)
        self.record = False
        self.launches: list[Launch] = []
        self.reports: list[metal_host.Report] = []
        self.shuffle: int | None = None
        self.count = False
        self.must_be_clean = True

    @contextmanager
    def installed(self) -> Iterator[Emulator]:
        """In this context the library finds a Metal device and uses it."""
        is_available, previous = _backends.is_available, mx.fast.metal_kernel
        _backends.is_available = lambda name: name in ("ops", "metal")
        mx.fast.metal_kernel = self._make
        gpu._build.cache_clear()
        try:
            with _backends.use_backend("metal"):
                yield self
        finally:
            _backends.is_available, mx.fast.metal_kernel = is_available, previous
            gpu._build.cache_clear()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """In this context launches are noted and answered with zeros."""
        self.record = True
        try:
            yield
        finally:
            self.record = False

    def _make(self, *, source: str, **arguments: Any) -> Callable[..., list[mx.array]]:
        kernel = _metal_kernel(source=self.edit(source), **arguments)

        def call(*, inputs: list[mx.array], **options: Any) -> list[mx.array]:
            options["stream"] = mx.gpu

            def traced(*arrays: mx.array) -> list[mx.array]:
                return kernel(inputs=list(arrays), **options)

            examples = [mx.zeros(x.shape, x.dtype) for x in inputs]
            (launch,), _, _ = metal_host.launches_of(traced, *examples)
            launch = dataclasses.replace(launch, init_value=options.get("init_value"))
            self.launches.append(launch)
            if self.record or not _known(inputs):
                return [mx.zeros(shape, dtype) for shape, dtype in launch.outputs]
            outputs, report = metal_host.run(launch, inputs, shuffle=self.shuffle, count=self.count)
            self.reports.append(report)
            if self.must_be_clean:
                assert report.clean, f"{launch.name}: {report.first} unwritten: {report.unwritten}"
            return outputs

        return call


def _known(arrays: list[mx.array]) -> bool:
    """Whether these arrays have numbers."""
    try:
        mx.eval(arrays)
    except ValueError as error:
        if "during function transformations" in str(error):
            return False
        raise
    return True


def compile_all(
    calls: list[Callable[[], Any]], edit: Callable[[str], str] | None = None
) -> list[Launch]:
    """Compiles the kernels of all calls together, which takes a fraction of the time of one by one."""
    emulator = Emulator(edit)
    with emulator.installed(), emulator.recording():
        for call in calls:
            mx.eval(call())
    metal_host.compile_launches(emulator.launches)
    return emulator.launches
