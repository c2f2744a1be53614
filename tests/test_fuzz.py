"""Any legal arguments give the reference's answer, any illegal ones a ValueError or a TypeError.

What is drawn is mostly legal, but any argument may be nonsense; ``legal_*`` says, independently of the
library, which calls must succeed. ``make fuzz`` draws 20,000 calls, ``make test`` a few hundred, the same in
every run. A call that has failed once is kept as an ``@example``.
"""

from __future__ import annotations

import os
import random
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import reference
from arrays import FLOATS, INTEGERS, Layout, planes
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from properties import check_pool, check_unpool

import mlx_unpool

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))  # 0: a few, and always the same
DTYPES = FLOATS + INTEGERS
FORMATS = ("flat", "window", "tensorflow", "tensorflow_batch", "onnx", "onnx_column_major")


PARTS = {"pool": 0.3, "unpool": 0.3, "adaptive": 0.12, "fractional": 0.12, "formats": 0.16}
assert sum(PARTS.values()) == 1


def fuzz(topic: str):
    """Settings of a test that draws its part of all examples."""
    return settings(
        max_examples=round(PARTS[topic] * (EXAMPLES or 600)),
        derandomize=not EXAMPLES,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


# ---- what may be drawn for an argument

NONSENSE = st.sampled_from(
    [
        *(0, -1, -(2**70), True, False, 2.0, 1.5, float("nan"), "2", "", b"2", {}, {2}, object),
        *((), (2,), [1, 2, 3, 4], (2, "2", 2), (2.0, 2), (True, 1), (None, 2)),
        *(mx.array(2), mx.array([2, 2]), np.float32(2), np.array([2, 2])),
    ]
)


def or_nonsense(strategy: st.SearchStrategy) -> st.SearchStrategy:
    """Mostly what is legal."""
    return st.integers(0, 24).flatmap(lambda n: NONSENSE if n == 0 else strategy)


def numbers(rank: int, low: int, high: int) -> st.SearchStrategy:
    """An integer, or one for each axis, as a tuple, a list or NumPy's."""
    one = st.integers(low, high)
    several = st.lists(one, min_size=rank, max_size=rank)
    return or_nonsense(st.one_of(one, several.map(tuple), several, one.map(np.int64)))


def per_axis(value: Any, rank: int, least: int) -> tuple[int, ...] | None:
    """What an argument says for each axis, None if it is not legal."""
    given = value if isinstance(value, (tuple, list)) else [value] * rank
    integers = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in given)
    if not integers or len(given) != rank or any(n < least for n in given):
        return None
    return tuple(map(int, given))


def legal_window(rank: int, options: dict) -> reference.Pool | None:
    """The window of a call, None if it is not legal."""
    kernel = per_axis(options["kernel_size"], rank, 1)
    stride = kernel if options["stride"] is None else per_axis(options["stride"], rank, 1)
    padding = per_axis(options["padding"], rank, 0)
    dilation = per_axis(options["dilation"], rank, 1)
    if None in (kernel, stride, padding, dilation):
        return None
    if any(2 * p > d * (k - 1) + 1 for k, p, d in zip(kernel, padding, dilation)):
        return None
    ceil_mode = options.get("ceil_mode", False)
    if not isinstance(ceil_mode, bool):
        return None
    return reference.Pool(kernel, stride, padding, dilation, ceil_mode)


@dataclass(frozen=True)
class Call:
    """Arguments that can be written down: arrays are made from a seed."""

    rank: int
    batch: int | None
    channels: int
    size: tuple[int, ...]
    dtype: Any
    seed: int
    options: dict
    as_layer: bool = False

    @property
    def layout(self) -> Layout:
        """How the array lies; where the name of the layout is nonsense, it lies somehow."""
        first = a_name(self.options["data_format"], "channels_first")
        data_format = "channels_first" if first else "channels_last"
        return Layout(self.rank, self.batch, self.channels, data_format)

    def planes(self) -> np.ndarray:
        return planes(
            self.layout,
            self.size,
            self.dtype,
            random.Random(self.seed),
            np.random.default_rng(self.seed),
        )

    @property
    def x(self) -> mx.array:
        return self.layout.arrange(self.planes(), self.dtype)

    def run(self, name: str, *arrays: mx.array, at_call: dict | None = None) -> Any:
        """A pooling or unpooling of these arrays, by the layer or by the function of this name."""
        at_call = at_call or {}
        if not self.as_layer:
            return getattr(mlx_unpool, f"{name}{self.rank}d")(*arrays, **self.options, **at_call)
        options = dict(self.options)
        if name == "max_unpool":
            at_call["output_size"] = options.pop("output_size")
        layer = name.title().replace("_", "")
        return getattr(mlx_unpool, f"{layer}{self.rank}d")(**options)(*arrays, **at_call)


LAYOUTS = or_nonsense(st.sampled_from(["channels_last", "channels_first"]))


@st.composite
def calls(draw, options, ranks=(1, 2, 3)) -> Call:
    """A call of a function over some axes; ``options(rank, size)`` draws its other arguments."""
    rank = draw(st.sampled_from(ranks))
    size = tuple(draw(st.integers(1, (12, 7, 3)[rank - 1])) for _ in range(rank))
    return Call(
        rank=rank,
        batch=draw(st.sampled_from([None, 1, 2])),
        channels=draw(st.integers(1, 3)),
        size=size,
        dtype=draw(st.sampled_from(DTYPES)),
        seed=draw(st.integers(0, 2**16)),
        options={**draw(options(rank, size)), "data_format": draw(LAYOUTS)},
        as_layer=draw(st.booleans()),
    )


def attempt(legal: bool, function) -> Any:
    """The result of a legal call, None of an illegal one, which must raise the right error."""
    if legal:
        return function()
    with pytest.raises((ValueError, TypeError)) as caught:
        function()
    message = str(caught.value)
    assert message.startswith("[")  # the library's own, which names its caller
    assert "must" in message
    assert "but got" in message
    return None


def a_name(value: Any, *names: str) -> bool:
    return isinstance(value, str) and value in names


# ---- pooling


def window_options(rank: int, size: tuple[int, ...]) -> st.SearchStrategy:
    return st.fixed_dictionaries(
        {
            "kernel_size": numbers(rank, 1, 4),
            "stride": st.one_of(st.none(), numbers(rank, 1, 4)),
            "padding": st.one_of(st.just(0), numbers(rank, 0, 2)),
            "dilation": st.one_of(st.just(1), numbers(rank, 1, 3)),
        }
    )


def pool_options(rank: int, size: tuple[int, ...]) -> st.SearchStrategy:
    rest = {
        "ceil_mode": or_nonsense(st.booleans()),
        "return_indices": or_nonsense(st.just(True)),
        "index_format": or_nonsense(st.sampled_from(["flat", "window"])),
    }
    return st.tuples(window_options(rank, size), st.fixed_dictionaries(rest)).map(
        lambda both: both[0] | both[1]
    )


def failure(**options: Any) -> Call:
    """A call of ``max_pool1d`` that has failed once."""
    usual = {"kernel_size": 2, "stride": None, "padding": 0, "dilation": 1}
    usual |= {"ceil_mode": False, "return_indices": True, "index_format": "flat"}
    usual |= {"data_format": "channels_last"}
    return Call(1, None, 1, (1,), mx.float32, 0, usual | options)


@fuzz("pool")
@given(calls(pool_options))
@example(failure(padding=1, dilation=2, stride=1))  # empty between two places outside
@example(failure(data_format=np.array([2, 2])))  # compared with names, number by number
def test_pooling(call):
    options = call.options
    window = legal_window(call.rank, options)
    legal = (
        window is not None
        and isinstance(options["return_indices"], bool)
        and a_name(options["index_format"], "flat", "window")
        and a_name(options["data_format"], "channels_last", "channels_first")
        and min(reference.pooled_size(window, call.size)) >= 1
    )
    if attempt(legal, lambda: call.run("max_pool", call.x)) is not None:
        count = 2 if options["index_format"] == "flat" else 3
        expected = reference.max_pool(call.planes(), window)[:count]
        check_call(call, "max_pool", expected)


def check_call(call: Call, name: str, expected: tuple[np.ndarray, ...], **at_call: Any) -> None:
    """Compares a pool's results and gradient."""
    run = lambda x: call.run(name, x, at_call=dict(at_call))  # noqa: E731
    returns_indices = call.options["return_indices"]
    check_pool(run, call.x, call.layout, call.size, expected, returns_indices, call)


# ---- unpooling: the size of a call is that of the pooled arrays


def unpool_options(rank: int, cells: tuple[int, ...]) -> st.SearchStrategy:
    def with_size(options: dict) -> st.SearchStrategy:
        window = legal_window(rank, options)
        around = [range(1, 9)] * rank
        if window:
            around = reference.allowed_output_sizes(window, cells)
            around = [axis if len(axis) else range(1, 2) for axis in around]
        inside = st.tuples(
            *(st.integers(axis.start, min(axis.stop, axis.start + 8)) for axis in around)
        )
        shapes = [inside.map(list), inside.map(min), inside.map(lambda n: (2, *n, 3))]
        shapes += [inside.map(lambda n: (*n, 3)), inside.map(lambda n: (3, *n))]
        return or_nonsense(st.one_of(st.none(), inside, *shapes)).map(
            lambda size: options | {"output_size": size}
        )

    anywhere = {"kernel_size": None, "stride": None, "padding": 0, "dilation": 1}
    windows = st.one_of(*[window_options(rank, cells)] * 3, st.just(anywhere))
    return windows.flatmap(with_size)


def spatial_of_full_shape(call: Call, shape: tuple[int, ...], exact: bool) -> tuple | None:
    """The spatial part of a full shape, with or without batch; its other axes count if ``exact``."""
    first = call.options["data_format"] == "channels_first"
    spatial = shape[-call.rank :] if first else shape[-call.rank - 1 : -1]
    image = (call.channels, *spatial) if first else (*spatial, call.channels)
    full = [image] if call.batch is None else [image, (call.batch, *image)]
    if exact:
        return spatial if shape in full else None
    return spatial if len(shape) in map(len, full) else None


def legal_unpooled_size(call: Call, window: reference.Pool | None) -> tuple[int, ...] | None:
    """The size of the plane to unpool into, None if it is not legal."""
    given = call.options["output_size"]
    allowed = [range(1, 10**6)] * call.rank
    if window is not None:
        allowed = reference.allowed_output_sizes(window, call.size)
    if given is None:
        if window is None:
            return None
        given = reference.default_unpooled_size(window, call.size)
    one = not isinstance(given, (tuple, list))
    size = per_axis(given, call.rank if one else len(given), 1)
    if size is not None and len(size) > call.rank:
        size = spatial_of_full_shape(call, size, exact=window is None)
    if size is None or len(size) != call.rank:
        return None
    return size if all(n in axis for n, axis in zip(size, allowed)) else None


@fuzz("unpool")
@given(
    calls(unpool_options),
    st.sampled_from([*INTEGERS, mx.uint8, mx.int32, mx.int64]),
)
@example(
    Call(
        *(1, None, 1, (1,), mx.float32, 0),
        {
            **{"kernel_size": None, "stride": mx.array([2, 2]), "padding": 0, "dilation": 1},
            **{"output_size": 3, "data_format": "channels_last"},
        },
    ),
    mx.int32,
)  # compared with the default, number by number
@example(
    Call(
        *(3, None, 1, (1, 1, 1), mx.float32, 0),
        {
            **{"kernel_size": None, "stride": None, "padding": 0, "dilation": 1},
            **{"output_size": [1, 2, 3, 4], "data_format": "channels_first"},
        },
    ),
    mx.int8,
)  # a full shape by chance
def test_unpooling(call, index_dtype):
    options, layout = call.options, call.layout
    is_window = index_dtype in (mx.uint8, mx.uint16)
    anywhere = options["kernel_size"] is None
    window = None if anywhere else legal_window(call.rank, options)
    left_alone = [options[name] for name in ("stride", "padding", "dilation")]
    nothing_given = repr(left_alone) == repr([None, 0, 1])
    size = None if window is None and not anywhere else legal_unpooled_size(call, window)
    legal = (
        size is not None
        and not (anywhere and (is_window or not nothing_given))
        and a_name(options["data_format"], "channels_last", "channels_first")
    )
    random_ = np.random.default_rng(call.seed)
    limits = mx.iinfo(index_dtype)
    values = call.planes()
    high = (prod(window.kernel) if window else 9) + 2 if is_window else prod(size or (9,)) + 3
    numbers_ = random_.integers(max(limits.min, -3), min(limits.max, high), values.shape)
    numbers_[random_.random(values.shape) < 0.05] = max(limits.min, -(2**62))
    numbers_[random_.random(values.shape) < 0.05] = min(limits.max, 2**62)
    indices = layout.arrange(numbers_, index_dtype)
    run = lambda x: call.run("max_unpool", x, indices)  # noqa: E731
    if attempt(legal, lambda: run(call.x)) is not None:
        flat = numbers_
        if is_window:
            flat = reference.flat_of_window(numbers_, window, size, call.size)
        check_unpool(run, values, call.dtype, layout, flat, size, call)


# ---- adaptive and fractional pooling


def adaptive_options(rank: int, size: tuple[int, ...]) -> st.SearchStrategy:
    each = st.tuples(*(st.one_of(st.none(), st.integers(1, n + 2)) for n in size))
    one = st.integers(1, max(size) + 1)
    return st.fixed_dictionaries(
        {
            "output_size": or_nonsense(st.one_of(one, each, each.map(list))),
            "return_indices": or_nonsense(st.just(True)),
        }
    )


def legal_irregular(options: dict) -> bool:
    return isinstance(options["return_indices"], bool) and a_name(
        options["data_format"], "channels_last", "channels_first"
    )


@fuzz("adaptive")
@given(calls(adaptive_options))
def test_adaptive_pooling(call):
    options = call.options
    given = options["output_size"]
    if isinstance(given, (tuple, list)) and len(given) == call.rank:
        given = [n if wanted is None else wanted for n, wanted in zip(call.size, given)]
    cells = per_axis(given, call.rank, 1)
    legal = cells is not None and legal_irregular(options)
    if attempt(legal, lambda: call.run("adaptive_max_pool", call.x)) is not None:
        bounds = [reference.adaptive_bounds(call.size, cells)]
        check_call(call, "adaptive_max_pool", reference.max_pool_between(call.planes(), bounds))


def fractional_options(rank: int, size: tuple[int, ...]) -> st.SearchStrategy:
    each = st.tuples(*(st.integers(1, n) for n in size))
    ratio = st.floats(0, 1, exclude_min=True, exclude_max=True)
    ratios = st.one_of(ratio, st.tuples(*[ratio] * rank))
    asked = st.one_of(
        st.tuples(or_nonsense(each), st.none()),
        st.tuples(st.none(), or_nonsense(ratios)),
        st.tuples(*[st.sampled_from([None, 0.5, 2])] * 2),
    )
    return st.tuples(numbers(rank, 1, 3), asked, or_nonsense(st.just(True))).map(
        lambda drawn: {
            "kernel_size": drawn[0],
            "output_size": drawn[1][0],
            "output_ratio": drawn[1][1],
            "return_indices": drawn[2],
        }
    )


def legal_fractional_size(call: Call) -> tuple[int, ...] | None:
    kernel = per_axis(call.options["kernel_size"], call.rank, 1)
    size, ratio = call.options["output_size"], call.options["output_ratio"]
    if kernel is None or (size is None) == (ratio is None):
        return None
    if ratio is None:
        cells = per_axis(size, call.rank, 1)
    else:
        ratios = ratio if isinstance(ratio, (tuple, list)) else [ratio] * call.rank
        real = all(isinstance(r, (float, int, np.floating)) for r in ratios)
        if not real or len(ratios) != call.rank or not all(0 < r < 1 for r in ratios):
            return None
        cells = tuple(int(n * r) for n, r in zip(call.size, ratios))
    if cells is None:
        return None
    fits = all(1 <= n <= length - k + 1 for n, k, length in zip(cells, kernel, call.size))
    return cells if fits else None


@fuzz("fractional")
@given(calls(fractional_options, ranks=(2, 3)))
def test_fractional_pooling(call):
    layout, cells = call.layout, legal_fractional_size(call)
    shape = (layout.batch or 1, layout.channels, call.rank)
    samples = np.random.default_rng(call.seed).random(shape, dtype=np.float32)
    given = {"random_samples": mx.array(samples)}
    legal = cells is not None and legal_irregular(call.options)
    run = lambda: call.run("fractional_max_pool", call.x, at_call=dict(given))  # noqa: E731
    if attempt(legal, run) is not None:
        kernel = per_axis(call.options["kernel_size"], call.rank, 1)
        each = samples.reshape(-1, call.rank)
        bounds = [reference.fractional_bounds(call.size, cells, kernel, u) for u in each]
        expected = reference.max_pool_between(call.planes(), bounds)
        check_call(call, "fractional_max_pool", expected, **given)


# ---- index formats and the check


@fuzz("formats")
@given(
    calls(unpool_options),
    st.sampled_from(INTEGERS),
    or_nonsense(st.sampled_from(FORMATS)),
    or_nonsense(st.sampled_from(FORMATS)),
)
def test_conversion_and_check(call, index_dtype, source, target):
    """Numbers that have a meaning come back from a conversion and pass the check; others do not."""
    options, layout = call.options, call.layout
    is_window = index_dtype in (mx.uint8, mx.uint16)
    window = legal_window(call.rank, options)
    size = tuple(n + 2 for n in call.size)
    needs_window = a_name(source, "window") or a_name(target, "window")
    legal = (
        a_name(source, *FORMATS)
        and a_name(target, *FORMATS)
        and is_window == a_name(source, "window")
        and (window is not None or not needs_window)
        and a_name(options["data_format"], "channels_last", "channels_first")
    )
    random_ = np.random.default_rng(call.seed)
    limits = mx.iinfo(index_dtype)
    shape = (layout.planes, *call.size)
    high = prod(size) * layout.planes + 3 if not is_window else 12
    drawn = random_.integers(max(limits.min, -3), min(limits.max, high), shape)
    indices = layout.arrange(drawn, index_dtype)
    arguments = [options[name] for name in ("kernel_size", "stride", "padding")]
    rest = {"dilation": options["dilation"], "data_format": options["data_format"]}

    def convert(indices, source, target):
        return mlx_unpool.convert_indices(indices, source, target, size, *arguments, **rest)

    there = attempt(legal, lambda: convert(indices, source, target))
    if not legal:
        return
    assert there.shape == indices.shape
    flat = layout.planes_of(convert(indices, source, "flat"))
    if source == "window":
        np.testing.assert_array_equal(
            flat, reference.flat_of_window(drawn, window, size, call.size)
        )
    if source == "flat":
        np.testing.assert_array_equal(
            flat, np.where((drawn >= 0) & (drawn < prod(size)), drawn, -1)
        )
    back = layout.planes_of(convert(there, target, "flat"))
    lost = (back == -1) & (flat != -1)
    np.testing.assert_array_equal(back[~lost], flat[~lost])
    if target != "window":
        assert not lost.any()
    elif window is not None:
        for cell in np.ndindex(*call.size):
            at = (slice(None), *cell)
            for _, position in reference.window_elements(window, cell, size):
                named = flat[at] == np.ravel_multi_index(position, size)
                assert not lost[at][named].any()

    all_there = bool((flat >= 0).all())
    if source in ("flat", "window"):
        given = arguments if source == "window" else []
        check_options = rest if source == "window" else {"data_format": options["data_format"]}
        expected = nullcontext() if all_there else pytest.raises(ValueError, match="must be in")
        with expected:
            mlx_unpool.check_indices(indices, size, *given, **check_options)
