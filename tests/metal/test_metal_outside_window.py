"""Work grows linearly with the pooled values, forwards and backwards, wherever flat indices come from."""

import emulator
import metal_host
import mlx.core as mx
import numpy as np
import pytest
import reference
from arrays import Case, generated_cases
from kernel_cases import CHOSEN, huge

import mlx_unpool
from mlx_unpool import _backends
from mlx_unpool._arguments import window_of
from mlx_unpool._backends import gpu
from mlx_unpool._geometry import WindowGeometry, triple


def plane_indices(kind: str, side: int) -> np.ndarray:
    """Indices of side x side pooled values, in a plane of twice that."""
    n = np.arange(side * side).reshape(side, side)
    row, column = np.divmod(n, side)
    return {
        "own window": 2 * row * 2 * side + 2 * column,
        "spread": (n * 4 + 2 * side) % (4 * side * side),
        "one position": np.full_like(n, 2 * side + 1),
        "one row": n % (2 * side),
        "wrong stride": row * 2 * side + column,
        "random": np.random.default_rng(0).integers(0, 4 * side * side, n.shape),
    }[kind]


def bytes_accessed(kind: str, side: int, backward: bool) -> int:
    indices = mx.array(plane_indices(kind, side)[None, ..., None].astype(np.int32))
    values = mx.random.normal(indices.shape, key=mx.random.key(0))
    full = mx.random.normal((1, 2 * side, 2 * side, 1), key=mx.random.key(1))

    def unpool(v: mx.array) -> mx.array:
        return mlx_unpool.max_unpool2d(v, indices, 2)

    device = emulator.Emulator(count=True)
    with device.installed():
        mx.eval(mx.vjp(unpool, [values], [full])[1] if backward else unpool(values))
    reports = device.reports[-2:]  # of a backward pass, without the forward one
    return sum(t["bytes"] for report in reports for t in report.traffic.values())


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    "kind", ["own window", "spread", "one position", "one row", "wrong stride", "random"]
)
def test_work_grows_linearly_with_the_pooled_values(kind, backward):
    small, large = (bytes_accessed(kind, side, backward) for side in (16, 32))
    assert large <= 6.5 * small
    assert large <= 40 * 4 * 32 * 32 * 4  # a few accesses for each output


DILATED = [case for case in CHOSEN if max(case.pool.dilation) in (2, 3)]


def folded_geometry(case: Case) -> tuple[WindowGeometry, tuple[int, ...]]:
    """The geometry of a case, and the shape (B, OD, OH, OW, C) of its pooled values."""
    first, batch = case.layout.data_format == "channels_first", case.layout.batch or 1
    planes, channels = (case.layout.planes, 1) if first else (batch, case.layout.channels)
    window = window_of("", case.layout.rank, *case.parameters, case.pool.dilation)
    size, cells = triple(case.size), triple(case.cells)
    return WindowGeometry(size, cells, window.resolved(size)), (planes, *cells, channels)


def test_marks_are_the_channel_groups_with_an_index_outside_its_window():
    """In both directions: a missing mark gives wrong results, and a wrong one hides a missing one."""
    random = np.random.default_rng(0)
    cases = generated_cases(120, seed=5, dtypes=(mx.float32, mx.float16))
    for case in [*DILATED, *cases]:
        shape = (case.layout.planes, *case.cells)
        own, near = case.expected()[1], reference.near_windows(random, case.pool, case.size, shape)
        flat = np.where(random.random(shape) < 1 / np.prod(case.cells), near, own)
        elements = [
            set(reference.window_elements(case.pool, window, case.size)[1].tolist())
            for window in np.ndindex(case.cells)
        ]
        each = flat.reshape(case.layout.planes, -1).tolist()
        outside = np.array([any(n >= 0 and n not in e for n, e in zip(row, elements)) for row in each])
        indices, (g, folded) = case.layout.arrange(flat, mx.int32), folded_geometry(case)
        channels = folded[-1]
        lanes = gpu._channels_per_thread(channels)
        rows = outside.reshape(-1, channels)
        groups = [rows[:, n : n + lanes].any(axis=1) for n in range(0, channels, lanes)]
        with emulator.device("emulated"):
            kernels = _backends.get("metal")
            marks = kernels._outside_window(indices.reshape(folded), g, True)[0]
        np.testing.assert_array_equal(np.array(marks) != 0, np.stack(groups, axis=1), str(case))


# ---- outside_winners: no SIMD group makes many dependent accesses

SIDE = 64  # pooled values along each axis, of a plane of 128 x 128 x 128 positions
MOST_STEPS = 2**14
LOST = "set_bits(lost + (left - 1 - n) / 32, uint32_t(1) << uint((left - 1 - n) % 32));"


def volume_indices(kind: str) -> np.ndarray:
    n = np.arange(SIDE**3)
    return {
        "one position": np.full_like(n, 77777),
        "one row": n % (2 * SIDE),
        "every 2048th": n * 2048 % (8 * SIDE**3),
        "random": np.random.default_rng(1).integers(0, 8 * SIDE**3, n.shape),
    }[kind].astype(np.int32)


def launch_of(planes: int, side: int) -> metal_host.Launch:
    device = emulator.Emulator(lambda text: text.replace(LOST, ""), record=True)
    shape = (planes, side, side, side, 1)
    with device.installed():
        mlx_unpool.max_unpool3d(huge(shape, mx.float16), huge(shape, mx.int32), 2)
    (launch,) = [one for one in device.launches if "outside_winners" in one.name]
    assert LOST not in launch.text  # no thread waits for the result of these
    return launch


@pytest.mark.parametrize("kind", ["one position", "one row", "every 2048th", "random"])
def test_no_simd_group_waits_for_a_long_chain_of_accesses(kind):
    """Counts accesses whose result 32 threads wait for in turn. Indices are loaded independently."""
    launch = launch_of(4, SIDE)
    lanes = launch.grid[0]
    size = np.array((2 * SIDE, 2 * SIDE, 2 * SIDE, 1, lanes), np.int32)
    arrays = [mx.array(volume_indices(kind)), mx.array([1] * 8, dtype=mx.uint32), mx.array(size)]
    with metal_host.Run(launch, arrays) as running:
        for first in range(0, lanes, 128):
            report = running.walk(range(first, first + 32), track=False, count=True)
            assert not report.failures, report.first
            assert report.traffic["indices", "read"]["bytes"] / 4 <= 32 * (SIDE**3 + 16)
            writes = report.traffic.get(("winner_bits", "write"), {"bytes": 0})
            assert writes["bytes"] / 4 <= 1.1 * MOST_STEPS, first


@pytest.mark.parametrize(
    ("planes", "side", "most"),
    [(1, 16, 2**11), (1, 64, 2**13), (1, 256, 2**19), (4, SIDE, MOST_STEPS), (1024, 16, 2**12)],
)
def test_large_planes_have_more_threads(planes, side, most):
    """The pooled values of 32 threads, if regular or random indices are distributed evenly over threads."""
    threads = launch_of(planes, side).grid[0]
    assert side**3 * 32 / threads <= most
    assert threads * planes <= 2**15  # because each of them reads all indices of its plane
