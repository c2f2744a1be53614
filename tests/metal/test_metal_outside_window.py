"""Flat indices from anywhere cost work in proportion to pooled values, forwards and backwards."""

from __future__ import annotations

import emulator
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
