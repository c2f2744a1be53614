"""What is kept between calls: bounded, and neither arrays nor streams."""

from __future__ import annotations

import functools
import gc
import importlib
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from types import FrameType

import mlx.core as mx
import pytest

import mlx_unpool
from mlx_unpool import _pooling

PLANS = [
    _pooling._max_pool_plan,
    _pooling._max_unpool_plan,
    _pooling._adaptive_plan,
    _pooling._fractional_plan,
]


def caches() -> list[functools._lru_cache_wrapper]:
    """Every cache of the package."""
    names = [m.name for m in pkgutil.walk_packages(mlx_unpool.__path__, "mlx_unpool.")]
    modules = [importlib.import_module(name) for name in names]
    found = [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, functools._lru_cache_wrapper)
    ]
    return list(dict.fromkeys(found))


def calls(channels: int) -> None:
    """One call of each kind on a shape of its own, as a graph alone."""
    x = mx.zeros((1, 8, 7, channels))
    values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
    mlx_unpool.max_unpool2d(values, indices, 2, output_size=x.shape)
    mlx_unpool.adaptive_max_pool2d(x, 3)
    mlx_unpool.fractional_max_pool2d(x, 2, output_size=2, key=mx.random.key(0))


def test_every_cache_has_a_bound():
    assert set(PLANS) <= set(caches())
    for cache in caches():
        most, path = cache.cache_info().maxsize, cache.__qualname__
        if cache.__wrapped__.__code__.co_argcount:
            assert most is not None or cache.__wrapped__.__module__ in (
                "mlx_unpool._kernels",  # as many as there are files
                "mlx_unpool._backends.gpu",  # as many as there are kernels
            ), path


def test_memory_stays_flat_over_ten_thousand_shapes():
    kept = {}
    for channels in range(1, 2 * _pooling._PLANS + 1):  # 4 shapes each
        if channels in (_pooling._PLANS + 100, 2 * _pooling._PLANS):
            gc.collect()
            kept[channels] = sys.getallocatedblocks()
        calls(channels)
    for channels in range(1, 3000):
        mlx_unpool.max_pool1d(mx.zeros((4, channels)), 2)
    assert _pooling._max_pool_plan.cache_info().currsize == _pooling._PLANS
    first, last = kept.values()
    assert last - first < 1000, (first, last)


def test_no_array_and_no_stream_is_kept():
    calls(40)
    plans = [o for o in gc.get_objects() if type(o) is _pooling.Plan]
    assert len(plans) >= 4
    seen: list[type] = []

    def look(value: object) -> None:
        seen.append(type(value))
        if is_dataclass(value) and not isinstance(value, type):
            for name in {f.name for f in fields(value)} | set(vars(value)):
                look(getattr(value, name))
        elif isinstance(value, list | tuple) and not all(isinstance(v, int) for v in value[:1]):
            for item in value[:100]:
                look(item)

    for plan in plans[:200]:
        look(plan)
    kept = (mx.array, mx.Stream, mx.ThreadLocalStream, mx.Device)
    assert not any(issubclass(kind, kept) for kind in seen)
    assert len(seen) > 100


@pytest.mark.parametrize("order", [(2, True), (True, 2), (2, 2.0), (2.0, 2)])
def test_numbers_that_compare_equal_are_told_apart(order):
    """(True, 2) == (1, 2) and 2 == 2.0: what was found for one must not be taken for the other."""
    x = mx.zeros((1, 8, 8, 1))
    for value in order:
        for given in (value, (value, value)):
            if type(value) is int:
                assert mlx_unpool.max_pool2d(x, given).shape == (1, 4, 4, 1)
            else:
                with pytest.raises(TypeError, match="kernel_size"):
                    mlx_unpool.max_pool2d(x, given)


def python_calls(call: Callable[[], object]) -> list[str]:
    """The functions of the package above backends and geometry that a call goes through."""
    seen: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if (
            event == "call"
            and "mlx_unpool" in file
            and "_backends/" not in file
            and "_geometry" not in file
        ):
            seen.append(frame.f_code.co_name)

    call()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def test_a_second_call_finds_what_the_first_one_worked_out():
    x = mx.zeros((1, 8, 8, 4))
    pool = mlx_unpool.MaxPool2d(3, 2, 1, return_indices=True)
    unpool = mlx_unpool.MaxUnpool2d.from_pool(pool)
    values, indices = pool(x)
    for call, most in (
        (lambda: pool(x), 14),
        (lambda: unpool(values, indices, output_size=(8, 8)), 20),
    ):
        names = python_calls(call)
        assert not {"of", "window_of", "integers", "_max_pool_plan"} & set(names)
        assert len(names) <= most, names
