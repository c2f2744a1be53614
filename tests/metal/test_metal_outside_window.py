"""Flat indices from anywhere cost work in proportion to pooled values, forwards and backwards."""

from __future__ import annotations

import emulator
import metal_host
import mlx.core as mx
import numpy as np
import pytest

import mlx_unpool

KINDS = ("own", "spread", "one position", "one row", "wrong stride", "random")


def indices_of(kind: str, side: int) -> mx.array:
    """Flat indices of side x side pooled values, in a plane of twice that."""
    n = np.arange(side * side).reshape(side, side)
    row, column = np.divmod(n, side)
    made = {
        "own": 2 * row * 2 * side + 2 * column,
        "spread": (n * 4 + 2 * side) % (4 * side * side),
        "one position": np.full_like(n, 2 * side + 1),
        "one row": n % (2 * side),
        "wrong stride": row * 2 * side + column,
        "random": np.random.default_rng(0).integers(0, 4 * side * side, n.shape),
    }[kind]
    return mx.array(made[None, ..., None].astype(np.int32))


def bytes_touched(kind: str, side: int, backward: bool) -> int:
    indices = indices_of(kind, side)
    values = mx.random.normal(indices.shape, key=mx.random.key(0))
    full = mx.random.normal((1, 2 * side, 2 * side, 1), key=mx.random.key(1))
    device = emulator.Emulator()
    device.count = True
    with device.installed():

        def unpool(v: mx.array) -> mx.array:
            return mlx_unpool.max_unpool2d(v, indices, 2)

        mx.eval(mx.vjp(unpool, [values], [full])[1] if backward else unpool(values))
    reports = device.reports[-2:]  # of a backward pass, without the forward one
    return sum(t["bytes"] for report in reports for t in report.traffic.values())


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_work_grows_with_the_pooled_values(kind, backward):
    small, large = (bytes_touched(kind, side, backward) for side in (16, 32))
    assert large <= 6.5 * small
    assert large <= 40 * 4 * 32 * 32 * 4  # in all a few accesses for each output


# ---- who wins in a channel, found out by several threads: none waits for long chains of accesses

SIDE = 64  # pooled values along each axis, of a plane of 128 x 128 x 128 positions
MOST_STEPS, MOST_READS = 65536, 64
LOST = "set_bits(lost + (left - 1 - n) / 32, uint32_t(1) << uint((left - 1 - n) % 32));"


def volume_indices(kind: str) -> np.ndarray:
    n = np.arange(SIDE**3)
    return {
        "one position": np.full_like(n, 77777),
        "one row": n % (2 * SIDE),
        "every 2048th": n * 2048 % (8 * SIDE**3),
        "wrong stride": n,
        "random": np.random.default_rng(1).integers(0, 8 * SIDE**3, n.shape),
    }[kind].astype(np.int32)


@pytest.mark.parametrize("kind", ["one position", "one row", "every 2048th", "random"])
def test_no_thread_waits_for_a_long_chain(kind):
    """Accesses whose result a thread waits for, apart from the indices, which it loads independently."""
    device = emulator.Emulator(lambda text: text.replace(LOST, ""))  # nothing waits for these
    shape = (4, SIDE, SIDE, SIDE, 1)
    with device.installed(), device.recording():
        values = mx.broadcast_to(mx.array(0, mx.float16), shape)
        given = mx.broadcast_to(mx.array(0, mx.int32), shape)
        mlx_unpool.max_unpool3d(values, given, 2)
    (launch,) = [one for one in device.launches if "outside_winners" in one.name]
    assert LOST not in launch.text
    lanes = launch.grid[0]
    assert 1 < lanes <= MOST_READS
    numbers = np.array((2 * SIDE, 2 * SIDE, 2 * SIDE, 1, lanes), np.int32)
    arrays = [mx.array(volume_indices(kind)), mx.array([1] * 8, dtype=mx.uint32), mx.array(numbers)]
    buffers = metal_host.input_buffers(launch, arrays)
    with metal_host.Run(launch, buffers) as running:
        for lane in range(0, lanes, 7):
            report = running.walk([lane], track=False, count=True)
            assert not report.failures, report.first
            traffic = report.traffic
            reads = traffic["indices", "read"]["bytes"] / 4
            assert reads <= SIDE**3 + 16
            steps = traffic.get(("winner_bits", "write"), {"bytes": 0})["bytes"] / 4
            assert steps <= MOST_STEPS // 4, (
                lane,
                steps,
            )  # 128^3 pooled values have eight times as many
