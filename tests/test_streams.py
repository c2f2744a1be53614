"""Streams and threads: arrays are used on any of them without a copy, on a GPU too, if there is one."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
import pytest

import mlx_unpool
from mlx_unpool import MaxPool2d, MaxUnpool2d, _backends

GPU = mx.metal.is_available() or mx.cuda.is_available()
DEVICES = [mx.cpu, *([mx.gpu] if GPU else [])]
PAIRS = list(itertools.product(DEVICES, DEVICES))
FORMATS = ("flat", "window")
MEGABYTE = 2**20


def layers(index_format: str, kernel_size=2, stride=2, padding=0):
    pool = MaxPool2d(kernel_size, stride, padding, return_indices=True, index_format=index_format)
    return pool, MaxUnpool2d.from_pool(pool)


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize("index_format", FORMATS)
def test_what_one_stream_pools_another_unpools(first, second, index_format):
    x = mx.random.normal((2, 15, 17, 8), stream=mx.cpu)
    here, there = mx.new_stream(first), mx.new_stream(second)
    for window in ((2, 2, 0), (3, 2, 1)):
        both = layers(index_format, *window)
        with mx.stream(mx.cpu):
            expected = value_and_gradient(x, *both)
            mx.eval(expected)
        got = value_and_gradient(x, *both, pool_on=here, unpool_on=there)
        mx.eval(got)
        with mx.stream(mx.cpu):
            assert all(mx.array_equal(a, b) for a, b in zip(got, expected, strict=True))


def value_and_gradient(x, pool, unpool, pool_on=None, unpool_on=None) -> list[mx.array]:
    """One lazy graph over both streams, forwards and backwards."""

    def there_and_back(x):
        values, indices = pool(x, stream=pool_on)
        return unpool(values, indices, output_size=x.shape, stream=unpool_on)

    return [there_and_back(x), mx.grad(lambda x: (there_and_back(x) ** 2).sum())(x)]


def peak_of(function) -> int:
    """The peak memory of evaluating the result of ``function``, without the memory before, in bytes."""
    result = function()
    mx.synchronize()
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    mx.eval(result)
    mx.synchronize()
    return mx.get_peak_memory() - before


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize("index_format", FORMATS)
def test_arrays_go_from_stream_to_stream_without_a_copy(first, second, index_format):
    pool, unpool = layers(index_format)
    x = mx.random.normal((4, 128, 128, 32), stream=mx.cpu)  # 8 MB; pooled 2 MB, indices .5 or 2 MB
    here, there = mx.new_stream(first), mx.new_stream(second)
    values, indices = pool(x, stream=here)
    mx.eval(x, values, indices)
    mx.eval(unpool(values, indices, x.shape, stream=there))  # kernels are compiled, tables are made
    moved = peak_of(lambda: unpool(values, indices, x.shape, stream=there))
    native_values, native_indices = pool(x, stream=there)
    mx.eval(native_values, native_indices)
    native = peak_of(lambda: unpool(native_values, native_indices, x.shape, stream=there))
    assert native >= 8 * MEGABYTE  # the result alone
    assert moved <= native + MEGABYTE // 4  # a copy of values or indices would be more


@pytest.mark.parametrize("device", DEVICES)
def test_threads_do_not_disturb_each_other(device):
    x = mx.random.normal((8, 2, 16, 16, 4), stream=mx.cpu)
    mx.eval(x)
    pool, unpool = layers("flat")

    def there_and_back(x, stream=None):
        values, indices = pool(x, stream=stream)
        adaptive = mlx_unpool.adaptive_max_pool2d(x, 5, stream=stream)
        return (unpool(values, indices, x.shape, stream=stream) ** 2).sum() + adaptive.sum()

    expected = [mx.value_and_grad(there_and_back)(each) for each in x]
    mx.eval(expected)
    got: list = [None] * len(x)
    errors = []

    def work(number):
        try:
            stream = mx.new_stream(device)
            for _ in range(5):
                with mx.stream(stream):
                    got[number] = mx.value_and_grad(there_and_back)(x[number])
                    mx.eval(got[number])
        except Exception as error:
            errors.append(error)
        finally:
            mx.clear_streams()  # as MLX requires at the end of a thread

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(x))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for (value, gradient), (value_, gradient_) in zip(got, expected, strict=True):
        assert value.item() == value_.item()
        assert mx.array_equal(gradient, gradient_)


def test_a_thread_takes_over_what_another_one_has_begun():
    pool, unpool = layers("flat")
    x = mx.random.normal((2, 8, 8, 4))
    values, indices = pool(x)  # lazy: not computed yet
    mx.eval(x)
    results = []

    def work():
        with mx.stream(mx.new_stream(mx.cpu)):
            y = unpool(values, indices, x.shape)
            mx.eval(y)
            results.append(y)
        mx.clear_streams()

    thread = threading.Thread(target=work)
    mx.eval(values, indices)
    thread.start()
    thread.join()
    assert mx.array_equal(results[0], unpool(*pool(x), x.shape))


Call = Callable[..., mx.array]  # of an array and ``stream=``


def calls(rank: int) -> dict[str, tuple[Call, mx.array]]:
    """Every function and layer of a rank that has ``stream=``, and an array for it."""
    function = lambda name: getattr(mlx_unpool, f"{name}{rank}d")  # noqa: E731
    x = mx.random.normal((2, *[6] * rank, 3))
    window, size = (3, 2, 1), {"output_size": (6,) * rank}
    values, flat = function("max_pool")(x, *window, return_indices=True)
    options = {"return_indices": True, "index_format": "window"}
    offsets = function("max_pool")(x, *window, **options)[1]
    mx.eval(x, values, flat, offsets)
    pools = {
        "max_pool": partial(function("max_pool"), kernel_size=3, stride=2, padding=1),
        "MaxPool": function("MaxPool")(*window),
        "adaptive_max_pool": partial(function("adaptive_max_pool"), output_size=4),
        "adaptive_max_pool, one shape": partial(function("adaptive_max_pool"), output_size=3),
        "AdaptiveMaxPool": function("AdaptiveMaxPool")(4),
    }
    if rank > 1:
        fractional = partial(function("fractional_max_pool"), kernel_size=2, output_size=4)
        samples, key = mx.random.uniform(shape=(2, 3, rank)), mx.random.key(0)
        layer = function("FractionalMaxPool")(2, output_size=4)
        pools |= {
            "fractional_max_pool": partial(fractional, key=key),
            "fractional_max_pool, samples": partial(fractional, random_samples=samples),
            "FractionalMaxPool": partial(layer, key=key),
        }
    unpool, layer = function("max_unpool"), function("MaxUnpool")(*window)
    unpools = {
        "max_unpool, flat": lambda v, stream: unpool(v, flat, *window, **size, stream=stream),
        "max_unpool, window": lambda v, stream: unpool(v, offsets, *window, **size, stream=stream),
        "max_unpool, no window": lambda v, stream: unpool(v, flat, None, **size, stream=stream),
        "MaxUnpool": lambda v, stream: layer(v, flat, **size, stream=stream),
    }
    found = {name: (call, x) for name, call in pools.items()}
    found |= {name: (call, values) for name, call in unpools.items()}
    return {f"{name} {rank}-D": call for name, call in found.items()}


CALLS = {name: call for rank in (1, 2, 3) for name, call in calls(rank).items()}


def derivatives(call: Call, x: mx.array, stream: mx.Stream | None) -> list[mx.array]:
    """The results of a call and of its derivatives, first and second, on ``stream``."""

    def total(x):
        return (call(x, stream=stream) ** 2).sum()

    function = lambda x: call(x, stream=stream)  # noqa: E731
    return [
        function(x),
        mx.grad(total)(x),
        mx.grad(lambda x: (mx.grad(total)(x) ** 2).sum())(x),
        mx.jvp(function, [x], [x])[1][0],
        mx.vmap(function)(mx.stack([x, x]))[0],
    ]


@pytest.fixture
def watch(monkeypatch):
    """``watch(stream)`` records which primitive runs on which stream."""

    def start(stream: mx.Stream) -> list[tuple[str, mx.Stream]]:
        seen: list[tuple[str, mx.Stream]] = []
        backend = type(_backends.where(stream).backend)
        for primitive in ("pool", "pool_regions", "place", "accumulate", "pick", "pick_winners"):
            run = getattr(backend, primitive)

            def watched(*arguments, run=run, primitive=primitive) -> Any:
                seen.append((primitive, mx.default_stream(mx.default_device())))
                return run(*arguments)

            monkeypatch.setattr(backend, primitive, watched)
        return seen

    return start


@pytest.mark.parametrize("name", CALLS)
def test_every_primitive_runs_on_the_requested_stream(name, watch):
    call, x = CALLS[name]
    requested = mx.new_stream(DEVICES[-1])
    seen = watch(requested)
    with mx.stream(mx.new_stream(DEVICES[0])):  # not the requested stream
        mx.eval(derivatives(call, x, requested))
    ran = {primitive for primitive, _ in seen}
    if "unpool" in name.lower():
        assert {"place", "pick_winners"} <= ran
    else:
        assert {"accumulate", "pick"} <= ran
        assert ran & {"pool", "pool_regions"}
    assert all(stream == requested for _, stream in seen), seen


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CALLS)
def test_without_a_stream_the_default_one_is_taken(name, device, watch):
    """Each call uses the default stream at the time of the call, not at the time of the import."""
    call, x = CALLS[name]
    before = mx.default_device(), mx.default_stream(device)
    try:
        mx.set_default_device(device)
        seen = watch(before[1])
        for stream in (mx.new_stream(device), mx.new_stream(device), before[1]):
            mx.set_default_stream(stream)
            seen.clear()
            mx.eval(derivatives(call, x, None))
            assert seen
            assert all(found == stream for _, found in seen), seen
    finally:
        mx.set_default_stream(before[1])
        mx.set_default_device(before[0])


@pytest.mark.parametrize("name", CALLS)
def test_everything_that_a_call_does_runs_on_the_requested_stream(name):
    """MLX cannot evaluate an array here that another thread made on its own stream."""
    call, x = CALLS[name]
    requested, made = mx.new_stream(mx.cpu), []
    strided = mx.contiguous(mx.swapaxes(x, 0, 1)).swapaxes(0, 1)  # reshaping it makes a copy
    expected, twice = call(x, stream=None), mx.stack([x, x])
    mx.eval(strided, expected, twice)

    def work():
        with mx.stream(mx.new_stream(mx.cpu)):
            # (Derivatives are left out: MLX's own begin with an operation on the default stream.)
            here = [
                call(strided, stream=requested),
                mx.vmap(partial(call, stream=requested))(twice),
            ]
            if "unpool" not in name.lower() and "samples" not in name:
                here.append(call(x[:0], stream=requested))
            made.append((here, call(x, stream=None)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    ((here, there),) = made
    mx.eval(here)
    assert mx.array_equal(here[0], expected)
    with pytest.raises(RuntimeError, match=r"no Stream|There is no"):
        mx.eval(there)


def test_streams_and_devices_of_every_kind_are_accepted():
    x = mx.random.normal((1, 8, 8, 4))
    pool, unpool = layers("flat")
    expected = pool(x)
    streams = (mx.cpu, mx.Device(mx.cpu), mx.default_stream(mx.cpu), mx.new_stream(mx.cpu))
    for stream in (*streams, mx.new_thread_local_stream(mx.cpu), None):
        found = pool(x, stream=stream)
        assert all(mx.array_equal(a, b) for a, b in zip(found, expected, strict=True))
        assert mx.array_equal(unpool(*found, x.shape, stream=stream), unpool(*expected, x.shape))
        total = lambda x, s=stream: unpool(*pool(x, stream=s), x.shape, stream=s).sum()  # noqa: E731
        assert mx.grad(total)(x).sum().item() == 64
