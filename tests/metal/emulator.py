"""A Metal device made of CPU: ``mx.fast.metal_kernel`` that runs its text through ``metal_host``.

Under ``Emulator`` the whole library runs on its Metal backend, eagerly: layers, derivatives, training steps.
Every launch is watched; one that is not clean fails the test.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import metal_host
import mlx.core as mx
import numpy as np
from metal_host import Launch

from mlx_unpool import _backends
from mlx_unpool._backends import gpu

_metal_kernel = mx.fast.metal_kernel
# What the library's calls can be run on here.
DEVICES = [
    *(["emulated"] if sys.platform == "linux" else []),
    *(["metal"] if mx.metal.is_available() else []),
]
# As "emulated", but 32-bit subnormal numbers count as zero, as they do on Apple's GPUs.
FLUSHING = ["flushing"] if sys.platform == "linux" else []


@contextmanager
def device(name: str, shuffle: int | None = None, shift: int | None = None) -> Iterator[None]:
    """Runs the library's calls on the CPU, on the real GPU or on an emulated one.

    There, threads may run in an order drawn with the seed ``shuffle``, and inputs begin ``shift`` elements
    behind full alignment.
    """
    if name == "cpu":
        with mx.stream(mx.cpu), _backends.use_backend("ops"):
            yield
    elif name == "metal":
        with mx.stream(mx.gpu), _backends.use_backend("metal"):
            yield
    else:
        metal = Emulator()
        metal.shuffle, metal.shift = shuffle, shift
        metal.flush = name == "flushing"
        with metal.installed():
            yield


class Kept(NamedTuple):
    """A launch that was run, with what it read and what it left."""

    launch: Launch
    inputs: list[mx.array]
    outputs: list[mx.array]
    report: metal_host.Report


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
        self.flush = False  # whether 32-bit subnormal numbers count as zero
        self.shift: int | None = None  # how many elements behind full alignment inputs begin
        self.must_be_clean = True
        self.keep = False  # whether arrays are kept, in ``kept``
        self.kept: list[Kept] = []

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
            launch = launch_of(kernel, inputs, options)
            self.launches.append(launch)
            if self.record or not known(inputs):
                return [mx.zeros(shape, dtype) for shape, dtype in launch.outputs]
            return self.run(launch, inputs)

        return call

    def run(self, launch: Launch, inputs: list[mx.array]) -> list[mx.array]:
        outputs, report = metal_host.run(
            launch,
            inputs,
            shuffle=self.shuffle,
            count=self.count,
            flush=self.flush,
            shift=self.shift,
        )
        self.reports.append(report)
        if self.keep:
            self.kept.append(Kept(launch, inputs, outputs, report))
        if self.must_be_clean:
            assert report.clean, f"{launch.name}: {report.first} unwritten: {report.unwritten}"
        return outputs


def launch_of(kernel: Any, inputs: list[mx.array], options: dict[str, Any]) -> Launch:
    """The launch that a kernel of ``mx.fast.metal_kernel`` makes for these inputs."""

    def traced(*arrays: mx.array) -> list[mx.array]:
        return kernel(inputs=list(arrays), **{**options, "stream": mx.gpu})

    examples = [mx.zeros(x.shape, x.dtype) for x in inputs]
    (launch,), _, _ = metal_host.launches_of(traced, *examples)
    return dataclasses.replace(launch, init_value=options.get("init_value"))


def known(arrays: list[mx.array]) -> bool:
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


@dataclasses.dataclass
class Findings:
    """What :func:`check` found out about the kernels of one call."""

    problems: list[str]
    traffic: list[str]
    machine_code: list[str]

    def __str__(self) -> str:
        parts = [*(self.problems or ["no problem found"]), *self.traffic, *self.machine_code]
        return "\n".join(parts)


def check(call: Callable[[], Any]) -> Findings:
    """Runs a call that makes and launches kernels of ``mx.fast.metal_kernel``, and says what is wrong.

    The call is made several times: threads in natural and in shuffled order, inputs that begin anywhere in
    memory, subnormal numbers taken for zero. Each time every access is watched (bounds, conflicts of threads,
    what was never written), and results must not differ. ``traffic`` has the 128-byte lines that SIMD groups
    touch over the bytes that there are; ``machine_code`` what an Apple GPU would run, if its compiler is.
    """
    runs = {
        "in natural order": {},
        "in shuffled order": {"shuffle": 1},
        "with inputs that begin anywhere": {"shift": 1},
        "with subnormal numbers as zero": {"flush": True},
    }
    problems: list[str] = []
    kept: list[Kept] = []
    results: list[np.ndarray] | None = None
    for how, options in runs.items():
        metal = Emulator()
        metal.must_be_clean = False
        metal.keep = True
        metal.count = not options
        for name, value in options.items():
            setattr(metal, name, value)
        with metal.installed():
            mx.eval(call())
        for one in metal.kept:
            said = [*one.report.first]
            said += [f"{n} bytes unwritten: {name}" for name, n in one.report.unwritten.items()]
            problems += [f"{one.launch.name}, {how}: {line}" for line in said]
        outputs = [metal_host.buffer_of(x) for one in metal.kept for x in one.outputs]
        if results is None:
            results, kept = outputs, metal.kept
        elif [x.tobytes() for x in results] != [x.tobytes() for x in outputs]:
            problems.append(f"another result {how}")
    machine_code = (
        ["no machine code is run before that is mended"] if problems else _machine_code(kept)
    )
    return Findings(problems, [_traffic(one) for one in kept], machine_code)


def _traffic(kept: Kept) -> str:
    each = [
        f"{name} {direction} {t['simd_lines'] * 128 / t['unique_bytes']:.2f}"
        for (name, direction), t in kept.report.traffic.items()
    ]
    return f"{kept.launch.name}, bytes of lines over bytes: {', '.join(each)}"


def _machine_code(kept: list[Kept]) -> list[str]:
    from agx import replay, toolchain

    if missing := toolchain.missing():
        return [missing]
    try:
        compiled = toolchain.Compiled([one.launch for one in kept])
    except NotImplementedError as error:
        return [f"no machine code: {error} is not known here"]
    lines = []
    for one in kept:
        replayed = replay.Replay(compiled, one)
        groups = replayed.run()
        issued = replayed.machine.counts["issued"] / groups
        s, wrong = compiled.statistics(one.launch), replayed.wrong_bytes()
        lines.append(
            f"{one.launch.name}, machine code: {issued:.0f} instructions a SIMD group, "
            f"{s['regs'] + 1} registers, {s['threads']} threads in flight, {wrong} bytes differ"
        )
    return lines
