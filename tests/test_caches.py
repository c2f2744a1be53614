"""Memory: caches are bounded and hold no arrays; no call leaks memory or copies arrays."""

import gc
import itertools
import sys

import mlx.core as mx
import pytest
from support import transforms
from support.properties import peak_of

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
    # 4 shapes each; Python 3.15 allocates no integers below 1025
    for channels in range(1025, 2049):
        if channels in (1536, 2048):
            gc.collect()
            kept.append(sys.getallocatedblocks())
        calls(channels)
    assert kept[1] - kept[0] < 512, kept  # what is kept for a shape is dozens of blocks


DEVICES = [device for device in (mx.cpu, mx.gpu) if mx.is_available(device)]


@pytest.mark.parametrize(("here", "there"), list(itertools.product(DEVICES, DEVICES)))
def test_memory_is_allocated_on_demand_and_never_for_a_copy_between_streams(here, there):
    x = mx.random.normal((4, 128, 128, 32), stream=mx.cpu)  # 8 MB; pooled: values and indices 2 MB
    first, second = mx.new_stream(here), mx.new_stream(there)
    pool = lambda x: mlx_unpool.max_pool2d(x, 2, return_indices=True, stream=first)
    values, indices = pool(x)

    graphs = lambda: [
        mlx_unpool.max_unpool2d(values, indices, 2, stream=s) for s in (first, second)
    ]
    mx.eval(x, values, indices, graphs())  # compiles kernels and fills caches
    lazy: list[mx.array] = []
    assert peak_of(lambda: lazy.extend([*pool(x), mx.grad(lambda x: pool(x)[0].sum())(x)])) < 2**16
    assert peak_of(lambda: lazy.extend(graphs())) < 2**16
    same, other = (peak_of(lambda full=full: mx.eval(full)) for full in lazy[-2:])
    assert same >= 2**23  # the result alone
    # With positions. A copy of values or indices would be more.
    assert max(same, other) <= 10.2 * 2**20


def test_the_sizes_and_windows_of_a_shape_are_computed_once():
    """Count calls of Python functions: unlike times, they do not depend on machine or load."""

    def count(channels: int) -> int:
        found: list[str] = []
        sys.setprofile(lambda frame, event, argument: found.append(event))
        try:
            calls(channels)
        finally:
            sys.setprofile(None)
        return found.count("call")

    count(1)
    new, known = count(3001), count(3001)
    assert known < 0.7 * new
    assert count(3001) == known


@pytest.fixture
def collector_off():
    """Without garbage collection, as in many training loops: reference cycles stay in memory."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# MLX 0.32.2 itself keeps objects of every compiled function.
CELLS = [(row, c) for row, c in transforms.cells() if row.endswith("2d") and "compile" not in c]


@pytest.mark.parametrize(("row", "column"), CELLS)
def test_a_call_leaves_no_cycle_behind(row, column, collector_off):
    case = transforms.ROWS[row][0]

    for number in range(23):
        if number == 3:
            before = len(gc.get_objects())
        with mlx_unpool.exporting():
            case.call(*case.inputs)
        transforms.COLUMNS[column](case, False)
    # A cycle is several objects per call.
    assert len(gc.get_objects()) - before < 30


class EqualToAll(str):
    """A string that equals every other one."""

    __slots__ = ()

    def __eq__(self, other):
        return True

    def __hash__(self):
        return hash("flat")


STRINGS = {"index_format": "window", "data_format": "channels_last", "padding": "valid"}


@pytest.mark.parametrize(("name", "value"), STRINGS.items())
def test_a_string_that_equals_others_is_used_as_its_text(name, value):
    """It may not be kept for the others either."""
    call = lambda **options: mlx_unpool.max_pool1d(
        mx.zeros((1, 8, 1)), 5, return_indices=True, **options
    )
    forms = lambda arrays: [(x.shape, x.dtype) for x in arrays]
    usual = forms(call())
    assert forms(call(**{name: EqualToAll(value)})) == forms(call(**{name: value}))
    with pytest.raises(ValueError, match=f"'{name}' must be"):
        call(**{name: EqualToAll("another")})
    assert forms(call()) == usual


class ReadOnce:
    """An integer whose value can be read once."""

    def __init__(self, value):
        self.values = iter([value])

    def __index__(self):
        return next(self.values)


X = mx.zeros((1, 8, 1))
READ_ONCE = {  # calls with an integer, and the shape of the result
    "kernel_size": (lambda n: mlx_unpool.max_pool3d(X[None, None], n, 1, 1), (1, 2, 2, 9, 1)),
    "stride": (lambda n: mlx_unpool.max_pool1d(X, 3, n), (1, 3, 1)),
    "padding": (lambda n: mlx_unpool.max_pool1d(X, 3, 1, n), (1, 10, 1)),
    "dilation": (lambda n: mlx_unpool.max_pool1d(X, 3, 1, dilation=n), (1, 4, 1)),
    "output_size": (lambda n: mlx_unpool.adaptive_max_pool1d(X, n), (1, 2, 1)),
    "output_size in a tuple": (lambda n: mlx_unpool.adaptive_max_pool1d(X, (n,)), (1, 2, 1)),
    "output_size of unpooling": (
        lambda n: mlx_unpool.max_unpool1d(
            X[:, :1], mx.zeros((1, 1, 1), mx.int32), 2, output_size=n
        ),
        (1, 2, 1),
    ),
}


@pytest.mark.parametrize(("call", "shape"), READ_ONCE.values(), ids=READ_ONCE)
def test_the_value_of_an_integer_is_read_once(call, shape):
    assert call(ReadOnce(2)).shape == shape
