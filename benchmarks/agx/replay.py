"""Runs a launch of a kernel as machine code, with the same arrays as on the emulated device."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "metal"))

import metal_host
from emulator import Kept

from .machine import LANES, Machine, Thread
from .toolchain import Compiled

UNTOUCHED = 0xAB  # every byte of an output before it is written


def simd_groups(launch: metal_host.Launch) -> list[list[Thread]]:
    """The threads of every SIMD group, one threadgroup after the other."""
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
    """A launch in the memory of the machine. ``run`` runs all or some of its SIMD groups."""

    def __init__(self, compiled: Compiled, kept: Kept, shift: int | None = None) -> None:
        """``shift``: elements between full alignment and the inputs. None: the offset of each array."""
        launch = self.launch = kept.launch
        self.expected = [_bytes(metal_host.buffer_of(x)) for x in kept.outputs]
        self.outputs = []
        for shape, dtype in launch.outputs:
            output = np.zeros(int(np.prod(shape)), metal_host.NUMPY[dtype])
            output.view(np.uint8)[:] = UNTOUCHED
            if launch.init_value is not None:
                output[:] = launch.init_value
            self.outputs.append(_bytes(output))
        inputs = [_bytes(x) for x in metal_host.input_buffers(launch, kept.inputs)]
        offsets = metal_host.input_offsets(launch, kept.inputs, shift) + [0] * len(self.outputs)
        self.machine = Machine(compiled.kernel(launch), inputs + self.outputs, offsets)

    def run(self, most: int | None = None) -> int:
        """Runs all SIMD groups, or ``most`` of them spread over the grid. Returns their number."""
        groups = simd_groups(self.launch)
        if most is not None:
            chosen = sorted({int(n) for n in np.linspace(0, len(groups) - 1, most + 2)[1:-1]})
            groups = [groups[n] for n in chosen]
        self.machine.run(groups)
        return len(groups)

    def wrong_bytes(self, partly: bool = False) -> int:
        """Number of bytes that differ from the emulated device. ``partly``: among written bytes only."""
        wrong = 0
        for output, expected in zip(self.outputs, self.expected, strict=True):
            differs = output != expected
            wrong += int((differs & (output != UNTOUCHED) if partly else differs).sum())
        return wrong
