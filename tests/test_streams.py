"""Streams and threads: every call runs on its stream."""

import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
import pytest
from support import transforms

import mlx_unpool
from mlx_unpool import _backends

DEVICES = [device for device in (mx.cpu, mx.gpu) if mx.is_available(device)]
PRIMITIVES = ("pool", "pool_values", "scatter", "gather")


def in_threads(work: Callable[[int], None], count: int = 1) -> None:
    """Run ``work(number)`` in ``count`` threads at the same time; none may raise."""
    done = []

    def body(number: int) -> None:
        try:
            work(number)
            done.append(number)
        finally:
            mx.clear_streams()  # as MLX requires at the end of a thread

    threads = [threading.Thread(target=body, args=(number,)) for number in range(count)]
    for method in (threading.Thread.start, threading.Thread.join):
        for thread in threads:
            method(thread)
    assert len(done) == count


def there_and_back(x, stream=None) -> mx.array:
    pooled = mlx_unpool.max_pool2d(x, 2, return_indices=True, stream=stream)
    return mlx_unpool.max_unpool2d(*pooled, 2, output_size=x.shape, stream=stream)


@pytest.mark.parametrize("device", DEVICES)
def test_threads_do_not_disturb_each_other(device):
    @mx.value_and_grad
    def compute(x):
        return (there_and_back(x) ** 2).sum() + mlx_unpool.adaptive_max_pool2d(x, 5).sum()

    x = mx.random.normal((8, 2, 16, 16, 4), stream=mx.cpu)
    mx.eval(x, expected := [compute(each) for each in x])
    got: list = [None] * len(x)

    def work(number: int) -> None:
        stream = mx.new_stream(device)
        for _ in range(5):
            with mx.stream(stream):
                mx.eval(found := compute(x[number]))
                got[number] = found

    in_threads(work, len(x))
    for pair in zip(got, expected, strict=True):
        assert all(map(mx.array_equal, *pair))


Call = Callable[..., mx.array]  # takes arrays and ``stream=``


def calls(rank: int) -> dict[str, tuple[Call, list[mx.array]]]:
    """Every function and layer of a rank with ``stream=``, and its arrays."""
    rows = [name for name in transforms.ROWS if name.endswith(f"{rank}d")]
    cases = [
        (f"{name}, {n}", case) for name in rows for n, case in enumerate(transforms.ROWS[name])
    ]
    found = {name: (case.call, case.inputs) for name, case in cases}
    layer = lambda name: getattr(mlx_unpool, f"{name}{rank}d")
    x, window = mx.random.normal((2, *[6] * rank, 3)), transforms.WINDOW
    unpool = partial(layer("MaxUnpool")(*window), output_size=transforms.SIZES[rank])
    found[f"MaxPool{rank}d"] = layer("MaxPool")(*window), [x]
    found[f"MaxUnpool{rank}d"] = unpool, found[f"max_unpool{rank}d, 0"][1]
    found[f"AdaptiveMaxPool{rank}d"] = layer("AdaptiveMaxPool")(3), [x]  # windows of one shape
    if rank > 1:
        fractional = partial(layer("FractionalMaxPool")(2, output_size=4), key=mx.random.key(0))
        found[f"FractionalMaxPool{rank}d"] = fractional, [x]
    mx.eval([arrays for _, arrays in found.values()])
    return found


CALLS = {name: call for rank in (1, 2, 3) for name, call in calls(rank).items()}


@pytest.fixture
def seen(monkeypatch):
    """A list of the primitives that run, with their streams."""
    found: list[tuple[str, mx.Stream]] = []
    for backend, primitive in itertools.product(
        map(_backends.get, ("ops", "metal", "cuda")), PRIMITIVES
    ):
        run = getattr(backend, primitive)

        def watched(*arguments, run=run, primitive=primitive) -> Any:
            found.append((primitive, mx.default_stream(mx.default_device())))
            return run(*arguments)

        monkeypatch.setattr(backend, primitive, watched)
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CALLS)
def test_every_primitive_runs_on_the_requested_stream_or_the_current_default(name, device, seen):
    """In the call and in its derivatives."""
    call, (x, *indices) = CALLS[name]
    for stream in (mx.new_stream(DEVICES[-1]), None, None):
        default, function = mx.new_stream(device), partial(call, stream=stream)
        run = lambda x, f=function: f(x, *indices)
        gradient = mx.grad(lambda x, run=run: (run(x) ** 2).sum())
        seen.clear()
        with mx.stream(default):
            mx.eval(run(x), gradient(x), mx.grad(lambda x, g=gradient: (g(x) ** 2).sum())(x))
            mx.eval(mx.jvp(run, [x], [x]), mx.vmap(run)(mx.stack([x, x])))
        assert len({primitive for primitive, _ in seen}) >= 2  # of the call and its derivatives
        assert all(found == (stream or default) for _, found in seen), seen


@pytest.mark.parametrize("name", CALLS)
def test_everything_that_a_call_does_runs_on_the_requested_stream(name):
    """MLX refuses to evaluate an array here if another thread used its own stream for it."""
    (call, inputs), requested, made = CALLS[name], mx.new_stream(mx.cpu), []
    # Swapped in memory, so that the call needs a copy.
    swapped = [mx.swapaxes(mx.contiguous(mx.swapaxes(x, 0, 1)), 0, 1) for x in inputs]
    expected, twice = call(*inputs, stream=None), [mx.stack([x, x]) for x in inputs]
    mx.eval(swapped, expected, twice)

    def work(_: int) -> None:
        with mx.stream(mx.new_stream(mx.cpu)):
            # Without derivatives: those of MLX start with an operation on the default stream.
            here = [
                call(*swapped, stream=requested),
                mx.vmap(partial(call, stream=requested))(*twice),
                call(*(x[:0] for x in inputs), stream=requested),
            ]
            made.append((here, call(*inputs, stream=None)))

    in_threads(work)
    ((here, there),) = made
    mx.eval(here)
    assert mx.array_equal(here[0], expected)
    with pytest.raises(RuntimeError, match=r"no Stream|There is no"):
        mx.eval(there)


def test_streams_and_devices_of_every_kind_are_accepted():
    x = mx.random.normal((1, 8, 8, 4))
    expected = there_and_back(x)
    streams = mx.default_stream(mx.cpu), mx.new_thread_local_stream(mx.cpu)
    for stream in (mx.cpu, mx.Device(mx.cpu), *streams):
        call = lambda x, stream=stream: there_and_back(x, stream)
        assert mx.array_equal(call(x), expected)
        assert mx.grad(lambda x, call=call: call(x).sum())(x).sum().item() == 64
