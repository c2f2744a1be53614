"""Memory: caches are bounded and hold no arrays; no call leaks memory or copies arrays."""

import gc
import itertools
import sys
from contextlib import nullcontext
from pathlib import Path
from types import FrameType

import mlx.core as mx
import pytest
import transforms
from properties import peak_of

import mlx_unpool


def calls(channels: int) -> None:
    """One call of each kind for a shape that depends on ``channels``, without evaluation."""
    x = mx.zeros((1, 8, 7, channels))
    values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
    mlx_unpool.max_unpool2d(values, indices, 2, output_size=x.shape)
    mlx_unpool.adaptive_max_pool2d(x, 3)
    mlx_unpool.fractional_max_pool2d(x, 2, output_size=2, key=mx.random.key(0))


def test_memory_stays_flat_over_thousands_of_shapes():
    kept = []
    for channels in range(257, 1281):  # 4 shapes each; all integers above 256 are objects
        if channels in (768, 1280):
            gc.collect()
            kept.append(sys.getallocatedblocks())
        calls(channels)
    assert kept[1] - kept[0] < 512, kept  # what is kept for a shape is dozens of blocks


DEVICES = [mx.cpu, *([mx.gpu] if mx.is_available(mx.gpu) else [])]


@pytest.mark.parametrize(("here", "there"), list(itertools.product(DEVICES, DEVICES)))
def test_memory_is_allocated_on_demand_and_never_for_a_copy_between_streams(here, there):
    x = mx.random.normal((4, 128, 128, 32), stream=mx.cpu)  # 8 MB; pooled: values and indices 2 MB
    first, second = mx.new_stream(here), mx.new_stream(there)
    pool = lambda x: mlx_unpool.max_pool2d(x, 2, return_indices=True, stream=first)
    values, indices = pool(x)

    def graphs() -> list[mx.array]:
        return [mlx_unpool.max_unpool2d(values, indices, 2, stream=s) for s in (first, second)]

    mx.eval(x, values, indices, graphs())  # compiles kernels and fills caches
    lazy: list[mx.array] = []
    assert peak_of(lambda: lazy.extend([*pool(x), mx.grad(lambda x: pool(x)[0].sum())(x)])) < 2**16
    assert peak_of(lambda: lazy.extend(graphs())) < 2**16
    same, other = (peak_of(lambda full=full: mx.eval(full)) for full in lazy[-2:])
    assert same >= 2**23  # the result alone
    # With positions. A copy of values or indices would be more.
    assert max(same, other) <= 10.2 * 2**20


def test_no_array_is_kept():
    before = mx.get_active_memory()
    x = mx.random.normal((4, 64, 64, 33))
    values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
    full = mlx_unpool.max_unpool2d(values, indices, 2, output_size=x.shape)
    mx.eval(
        full, mlx_unpool.adaptive_max_pool2d(x, 3), mx.grad(lambda x: mlx_unpool.max_pool2d(x, 3, 2).sum())(x)
    )
    del x, values, indices, full
    assert mx.get_active_memory() - before < 2**12


@pytest.mark.parametrize("order", [(2, True), (True, 2), (2, 2.0), (2.0, 2)])
def test_numbers_that_compare_equal_are_told_apart(order):
    """(True, 2) == (1, 2) and 2 == 2.0, but only integers are legal, whichever was cached first."""
    x = mx.zeros((1, 8, 8, 1))
    for given in (given for value in order for given in (value, (value, value))):
        legal = repr(given) in ("2", "(2, 2)")
        with nullcontext() if legal else pytest.raises(TypeError, match="kernel_size"):
            assert mlx_unpool.max_pool2d(x, given).shape == (1, 4, 4, 1)


def test_a_second_call_uses_the_cache_of_the_first_one():
    x = mx.zeros((1, 8, 8, 4))
    pool = mlx_unpool.MaxPool2d(3, 2, 1, return_indices=True)
    unpool = mlx_unpool.MaxUnpool2d.from_pool(pool)
    values, indices = pool(x)
    seen: list[str] = []
    package = str(Path(mlx_unpool.__file__).parent)

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        own = name.startswith(package) and "_backends" not in name and "_geometry" not in name
        if event == "call" and own:
            seen.append(frame.f_code.co_name)

    for call, most in ((lambda: pool(x), 45), (lambda: unpool(values, indices, output_size=(8, 8)), 50)):
        call()
        seen.clear()
        sys.setprofile(note)
        try:
            call()
        finally:
            sys.setprofile(None)
        assert 0 < len(seen) <= most, seen  # checks of the arguments would be dozens more


@pytest.fixture
def collector_off():
    """Without garbage collection, as in many training loops; reference cycles then stay in memory."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


ROWS = [row for row in transforms.ROWS if row.endswith("2d")]


# MLX 0.32.2 itself keeps objects of every compiled function.
CELLS = [c for c in transforms.cells() if c[0] in ROWS and "compile" not in c[1]]


@pytest.mark.parametrize(("row", "column"), CELLS)
def test_a_call_leaves_no_cycle_behind(row, column, collector_off):
    case = transforms.ROWS[row][0]

    def call() -> None:
        with mlx_unpool.exporting():
            case.call(*case.inputs)
        transforms.COLUMNS[column](case, False)

    for _ in range(3):
        call()
    before = len(gc.get_objects())
    for _ in range(20):
        call()
    # A cycle is several objects per call.
    assert len(gc.get_objects()) - before < 30
