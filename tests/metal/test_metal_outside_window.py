"""Work grows linearly with the pooled values, forwards and backwards.

This is true wherever flat indices come from.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import emulator
import metal_host
import mlx.core as mx
import numpy as np
import pytest
from support import reference
from support.kernel_cases import CASES

import mlx_unpool

# Indices of `count` pooled values in a plane of rows of `width` positions, as functions
# of their numbers n.
KINDS: dict[str, Callable[[np.ndarray, int, int], np.ndarray]] = {
    "own window": lambda n, count, width: 2 * (n // (width // 2)) * width + 2 * (n % (width // 2)),
    "one position": lambda n, count, width: np.full_like(n, count + 1),
    "one row": lambda n, count, width: n % width,
    "wrong stride": lambda n, count, width: n // (width // 2) * width + n % (width // 2),
    "consecutive": lambda n, count, width: n,
    "every fourth": lambda n, count, width: n * 4,
    "far apart": lambda n, count, width: n * 2048 % (4 * count) + n * 2048 // (4 * count),
    "random": lambda n, count, width: np.random.default_rng(0).integers(0, 4 * count, n.shape),
}


def bytes_accessed(kind: str, side: int, backward: bool) -> int:
    positions = KINDS[kind](np.arange(side * side), side * side, 2 * side)
    indices = mx.array(positions.reshape(1, side, side, 1).astype(np.int32))
    values = mx.random.normal(indices.shape, key=mx.random.key(0))
    full = mx.random.normal((1, 2 * side, 2 * side, 1), key=mx.random.key(1))
    unpool = lambda v: mlx_unpool.max_unpool2d(v, indices, 2)
    device = emulator.counted(
        lambda: mx.vjp(unpool, [values], [full])[1] if backward else unpool(values)
    )
    return sum(t["bytes"] for report in device.reports for t in report.traffic.values())


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_work_grows_linearly_with_the_pooled_values(kind, backward):
    small, large = (bytes_accessed(kind, side, backward) for side in (16, 32))
    assert large <= 6.5 * small
    # a few accesses for each output of each pass
    assert large <= (1 + backward) * 40 * 4 * 32 * 32 * 4


@dataclass
class Kept(emulator.Emulator):
    """Keeps the outputs of the kernels that find indices outside their windows.

    These are the outputs that are initialised with zeros.
    """

    def run(self, launch: metal_host.Launch, inputs: list[mx.array]) -> list[mx.array]:
        outputs = super().run(launch, inputs)
        if launch.init_value == 0:
            self.kept.append(np.array(outputs[0]))
        return outputs

    kept: list[np.ndarray] = field(default_factory=list)


def test_marks_are_the_channel_groups_with_an_index_outside_its_window():
    """In both directions: a missing mark gives wrong results, and a wrong one takes time."""
    random, marked = np.random.default_rng(0), set()
    for case in CASES:
        shape = (case.layout.planes, *case.cells)
        own, near = case.expected()[1], reference.near_windows(random, case.pool, case.size, shape)
        places, share = np.prod(case.size), 1 / np.prod(case.cells)
        flat = np.where(random.random(shape) < share, near, own)
        after = random.choice((places, 2**31 - 1), shape)  # outside the plane: ignored
        flat = np.where(random.random(shape) < share, after, flat)
        outside = np.zeros(len(flat), bool)
        for n, window in zip(flat.reshape(len(flat), -1).T, np.ndindex(case.cells), strict=True):
            elements = reference.window_elements(case.pool, window, case.size)[1]
            outside |= (n >= 0) & (n < places) & ~np.isin(n, elements)
        values = case.layout.arrange(own.astype(np.float32), case.dtype)
        device = Kept()
        with device.installed():
            case.max_unpool(values, case.layout.arrange(flat, mx.int32))
        if len(device.kept) < 2:
            continue  # windows for which another kernel finds the last values
        marks = device.kept[0] != 0  # (batch, channel groups)
        assert (marks == outside.reshape(*marks.shape, -1).any(axis=-1)).all(), str(case)
        marked |= set(marks.ravel().tolist())
    assert marked == {False, True}


# ---- no SIMD group makes many dependent accesses


@dataclass
class Chains(emulator.Emulator):
    """Counts the words that each SIMD group updates one after the other; the results are zeros."""

    def run(self, launch: metal_host.Launch, inputs: list[mx.array]) -> list[mx.array]:
        if "outside_winners" in launch.name:
            with metal_host.Run(dataclasses.replace(launch, optimised=True), inputs) as running:
                for first in range(0, launch.threads, 32):
                    report = running.walk(range(first, first + 32), track=False, count=True)
                    counted = report.traffic.get(("winner_bits", "write"), {"bytes": 0})
                    self.chains.append(counted["bytes"] // 4)
        elif launch.init_value is not None:
            return super().run(launch, inputs)
        return [mx.zeros(shape, dtype) for shape, dtype in launch.outputs]

    chains: list[int] = field(default_factory=list)


SIDE = 32  # pooled values along each axis of a volume


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "own window"])
def test_no_simd_group_waits_for_a_long_chain_of_accesses(kind):
    """At most an update for each value, divided evenly if the values have different positions."""
    indices = KINDS[kind](np.arange(SIDE**3), SIDE**3, 2 * SIDE).reshape(1, SIDE, SIDE, SIDE, 1)
    device = Chains()
    with device.installed():
        mlx_unpool.max_unpool3d(mx.zeros(indices.shape, mx.float16), mx.array(indices, mx.int32), 2)
    assert len(device.chains) >= 4
    assert 0 < sum(device.chains) <= 1.2 * SIDE**3
    if kind not in ("one position", "one row"):
        assert max(device.chains) <= 1.2 * SIDE**3 / len(device.chains)
