"""Runs a launch of a kernel as machine code, on the arrays that the emulated device ran it on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "metal"))

import metal_host

from .machine import LANES, Machine, Thread
from .toolchain import Compiled

UNTOUCHED = 0xAB  # what outputs hold before anything is written


def simd_groups(launch: metal_host.Launch) -> list[list[Thread]]:
    """The threads of every SIMD group, threadgroup by threadgroup."""
    groups = []
    (wide, high, deep), (x, y, z) = launch.grid, launch.threadgroup
    for gz in range(0, deep, z):
        for gy in range(0, high, y):
            for gx in range(0, wide, x):
                threads = [
                    (tx, ty, tz)
                    for tz in range(gz, min(gz + z, deep))
                    for ty in range(gy, min(gy + y, high))
                    for tx in range(gx, min(gx + x, wide))
                ]
                groups += [threads[n : n + LANES] for n in range(0, len(threads), LANES)]
    return groups


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(array.tobytes(), np.uint8).copy()


class Replay:
    """One launch in the memory of the machine; ``run`` runs all of it or a part."""

    def __init__(
        self,
        compiled: Compiled,
        launch: metal_host.Launch,
        inputs: Sequence[np.ndarray],
        offsets: Sequence[int] | None = None,
    ) -> None:
        """``inputs`` and ``offsets`` as ``metal_host.input_buffers`` and ``input_offsets`` have them."""
        self.launch = launch
        self.outputs = []
        for shape, dtype in launch.outputs:
            output = np.zeros(int(np.prod(shape)), metal_host.NUMPY[dtype])
            output.view(np.uint8)[:] = UNTOUCHED
            if launch.init_value is not None:
                output[:] = launch.init_value
            self.outputs.append(_bytes(output))
        before = [*(offsets or [0] * len(inputs)), *([0] * len(self.outputs))]
        memory = [*map(_bytes, inputs), *self.outputs]
        self.machine = Machine(compiled.kernel(launch), memory, before)

    def run(self, most: int | None = None) -> int:
        """Runs every SIMD group, or ``most`` of them from end to end of the grid; says how many."""
        groups = simd_groups(self.launch)
        if most is not None:
            chosen = sorted({int(n) for n in np.linspace(0, len(groups) - 1, most + 2)[1:-1]})
            groups = [groups[n] for n in chosen]
        self.machine.run(groups)
        return len(groups)

    def wrong_bytes(self, expected: Sequence[np.ndarray], partly: bool = False) -> int:
        """How many bytes of the outputs are not as expected; ``partly``: of those that were written."""
        wrong = 0
        for output, array in zip(self.outputs, expected, strict=True):
            differs = output != _bytes(array)
            wrong += int((differs & (output != UNTOUCHED) if partly else differs).sum())
        return wrong
