"""Streams and threads: one array, used wherever it is wanted, without a copy. On a machine with a GPU these
tests go there and back as well."""

from __future__ import annotations

import itertools
import threading

import mlx.core as mx
import pytest

import mlx_unpool
from mlx_unpool import MaxPool2d, MaxUnpool2d

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
    """Bytes at the peak of evaluating the result of ``function``, beside what was there before."""
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
    mx.eval(unpool(values, indices, stream=there))  # kernels are compiled, tables are made
    moved = peak_of(lambda: unpool(values, indices, stream=there))
    native_values, native_indices = pool(x, stream=there)
    mx.eval(native_values, native_indices)
    native = peak_of(lambda: unpool(native_values, native_indices, stream=there))
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
        return (unpool(values, indices, stream=stream) ** 2).sum() + adaptive.sum()

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
            y = unpool(values, indices)
            mx.eval(y)
            results.append(y)

    thread = threading.Thread(target=work)
    mx.eval(values, indices)
    thread.start()
    thread.join()
    assert mx.array_equal(results[0], unpool(*pool(x)))


def test_forcing_a_backend_holds_in_one_thread_alone():
    from mlx_unpool import _backends

    seen = []
    with _backends.use_backend("metal"):
        thread = threading.Thread(target=lambda: seen.append(_backends.forced()))
        thread.start()
        thread.join()
        assert _backends.forced() == "metal"
    assert seen == [None]
