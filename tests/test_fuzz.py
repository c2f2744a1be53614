"""Legal arguments give the results of the reference, illegal ones a ValueError or a TypeError.

Most of the drawn arguments are legal, but each can be nonsense. ``legal_*`` decides, independently of the
library, which calls must succeed. ``make fuzz`` draws 20,000 new calls; ``make test`` a few hundred and
``.ci/run`` 5,000, the same in every run. Calls that failed in the past are ``@example``s.
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
from properties import check_pool, check_unpool, equal

import mlx_unpool

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))  # 0: a few, the same in every run
DTYPES = FLOATS + INTEGERS
FORMATS = ("flat", "window", "tensorflow", "tensorflow_batch", "onnx", "onnx_column_major")
WORDS = {
    "data_format": ("channels_last", "channels_first"),
    "index_format": ("flat", "window"),
    "ceil_mode": (False, True),
    "return_indices": (False, True),
}


def fuzz(part: float):
    """Settings for a test that draws this part of all examples."""
    return settings(
        max_examples=round(part * (EXAMPLES or 600)),
        derandomize=not EXAMPLES,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


# ---- values of arguments

NONSENSE = st.sampled_from(
    [
        *(0, -1, -(2**70), True, False, 2.0, 1.5, float("nan"), "2", "", b"2", {}, {2}, object),
        *((), (2,), [1, 2, 3, 4], (2, "2", 2), (2.0, 2), (True, 1), (None, 2)),
        *(mx.array(2), mx.array([2, 2]), np.float32(2), np.array([2, 2])),
    ]
)


def or_nonsense(strategy: st.SearchStrategy) -> st.SearchStrategy:
    """Mostly legal values."""
    return st.integers(0, 24).flatmap(lambda n: NONSENSE if n == 0 else strategy)


def word(name: str) -> st.SearchStrategy:
    return or_nonsense(st.sampled_from(WORDS[name]))


def numbers(rank: int, low: int, high: int) -> st.SearchStrategy:
    """One integer or NumPy integer for all axes, or a tuple or list with one per axis."""
    one = st.integers(low, high)
    several = st.lists(one, min_size=rank, max_size=rank)
    return or_nonsense(st.one_of(one, several.map(tuple), several, one.map(np.int64)))


def per_axis(value: Any, rank: int, least: int) -> tuple[int, ...] | None:
    """The value of an argument for each axis; None if it is not legal."""
    given = value if isinstance(value, (tuple, list)) else [value] * rank
    integers = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in given)
    if not integers or len(given) != rank or any(n < least for n in given):
        return None
    return tuple(map(int, given))


def is_word(value: Any, *words: str | bool) -> bool:
    return isinstance(value, (str, bool)) and value in words


def legal_words(options: dict) -> bool:
    """Whether the flags and names among the options are legal."""
    return all(is_word(options[name], *WORDS[name]) for name in WORDS.keys() & options.keys())


def pads_per_axis(value: Any, rank: int) -> tuple[tuple[int, ...], ...] | None:
    """A legal padding as one pair per axis, zeros for "same"; None for any other."""
    if isinstance(value, str):
        return ((0, 0),) * rank if value in ("same", "valid") else None
    given = value if isinstance(value, (tuple, list)) else [value] * rank
    pairs = [per_axis(n if isinstance(n, (tuple, list)) else [n, n], 2, 0) for n in given]
    return tuple(pairs) if len(pairs) == rank and None not in pairs else None


def legal_window(rank: int, options: dict) -> reference.Pool | None:
    """The window of a call; None if it is not legal."""
    kernel = per_axis(options["kernel_size"], rank, 1)
    stride = kernel if options["stride"] is None else per_axis(options["stride"], rank, 1)
    padding = pads_per_axis(options["padding"], rank)
    dilation = per_axis(options["dilation"], rank, 1)
    if None in (kernel, stride, padding, dilation):
        return None
    if any(max(p) > d * (k - 1) for k, p, d in zip(kernel, padding, dilation)):
        return None
    same = isinstance(options["padding"], str) and options["padding"] == "same"
    ceil_mode = options.get("ceil_mode", False)
    return reference.Pool(kernel, stride, padding, dilation, ceil_mode, same)


@dataclass(frozen=True)
class Call:
    """Arguments of a call, with a seed instead of arrays."""

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
        """The layout of the array; any one if its name is nonsense."""
        first = is_word(self.options["data_format"], "channels_first")
        data_format = "channels_first" if first else "channels_last"
        return Layout(self.rank, self.batch, self.channels, data_format)

    def planes(self) -> np.ndarray:
        generators = random.Random(self.seed), np.random.default_rng(self.seed)
        return planes(self.layout, self.size, self.dtype, *generators)

    @property
    def x(self) -> mx.array:
        return self.layout.arrange(self.planes(), self.dtype)

    def run(self, name: str, *arrays: mx.array, at_call: dict | None = None) -> Any:
        """Call the function of this name, or its layer, with these arrays."""
        at_call = at_call or {}
        if not self.as_layer:
            return getattr(mlx_unpool, f"{name}{self.rank}d")(*arrays, **self.options, **at_call)
        options = dict(self.options)
        if name == "max_unpool":
            at_call["output_size"] = options.pop("output_size")
        layer = name.title().replace("_", "")
        return getattr(mlx_unpool, f"{layer}{self.rank}d")(**options)(*arrays, **at_call)


@st.composite
def calls(draw, options, ranks=(1, 2, 3)) -> Call:
    """A call of any rank; ``options(rank, size)`` draws its other arguments."""
    rank = draw(st.sampled_from(ranks))
    size = tuple(draw(st.integers(1, (12, 7, 3)[rank - 1])) for _ in range(rank))
    return Call(
        rank=rank,
        batch=draw(st.sampled_from([None, 1, 2])),
        channels=draw(st.integers(1, 3)),
        size=size,
        dtype=draw(st.sampled_from(DTYPES)),
        seed=draw(st.integers(0, 2**16)),
        options={**draw(options(rank, size)), "data_format": draw(word("data_format"))},
        as_layer=draw(st.booleans()),
    )


def attempt(legal: bool, function) -> Any:
    """The result of a legal call; None for an illegal one, which must raise the right error."""
    if legal:
        return function()
    with pytest.raises((ValueError, TypeError)) as caught:
        function()
    message = str(caught.value)
    assert message.startswith("[")  # the library's own error, which names the function
    assert "must" in message
    assert "but got" in message
    return None


# ---- pooling


def window_options(rank: int, size: tuple[int, ...], **more: st.SearchStrategy):
    pairs = st.tuples(*[st.one_of(st.integers(0, 2), numbers(2, 0, 3))] * rank)
    return st.fixed_dictionaries(
        {
            "kernel_size": numbers(rank, 1, 4),
            "stride": st.one_of(st.none(), numbers(rank, 1, 4)),
            "padding": st.one_of(
                st.just(0), numbers(rank, 0, 2), pairs, st.sampled_from(["same", "same", "valid"])
            ),
            "dilation": st.one_of(st.just(1), numbers(rank, 1, 3)),
            **more,
        }
    )


def pool_options(rank: int, size: tuple[int, ...]) -> st.SearchStrategy:
    words = {name: word(name) for name in ("ceil_mode", "index_format")}
    return window_options(rank, size, **words, return_indices=or_nonsense(st.just(True)))


ANYWHERE = {"kernel_size": None, "stride": None, "padding": 0, "dilation": 1}
POOL = ANYWHERE | {"ceil_mode": False, "return_indices": True, "index_format": "flat"}


def failure(defaults: dict, rank: int = 1, **options: Any) -> Call:
    """A call that failed in the past."""
    options = {"data_format": "channels_last", **defaults, **options}
    return Call(rank, None, 1, (1,) * rank, mx.float32, 0, options)


@fuzz(0.3)
@given(calls(pool_options))
@example(failure(POOL, kernel_size=2, stride=1, padding=1, dilation=2))  # an empty window
@example(failure(POOL, kernel_size=2, data_format=np.array([2, 2])))  # == gives an array
@example(failure(POOL, kernel_size=2, stride=1, padding=1, return_indices=False, index_format="window"))
def test_pooling(call):
    window = legal_window(call.rank, call.options)
    window = window and reference.resolved(window, call.size)
    legal = window is not None and legal_words(call.options)
    legal = legal and min(reference.pooled_size(window, call.size)) >= 1
    if attempt(legal, lambda: call.run("max_pool", call.x)) is not None:
        count = 2 if call.options["index_format"] == "flat" else 3
        check_call(call, "max_pool", reference.max_pool(call.planes(), window)[:count])


def check_call(call: Call, name: str, expected: tuple[np.ndarray, ...], **at_call: Any) -> None:
    """Compare the results and the gradient of a pool."""
    run = lambda x: call.run(name, x, at_call=dict(at_call))  # noqa: E731
    returns_indices = call.options["return_indices"]
    check_pool(run, call.x, call.layout, call.size, expected, returns_indices, call)


# ---- unpooling; ``size`` of a call is that of the pooled arrays


def unpool_options(rank: int, cells: tuple[int, ...]) -> st.SearchStrategy:
    def with_size(options: dict) -> st.SearchStrategy:
        window = legal_window(rank, options)
        allowed = reference.allowed_output_sizes(window, cells) if window else [range(1, 9)] * rank
        lengths = (st.integers(r.start, max(r.start, min(r.stop, r.start + 8))) for r in allowed)
        inside = st.tuples(*lengths)
        shapes = [inside.map(list), inside.map(min), inside.map(lambda n: (2, *n, 3))]
        shapes += [inside.map(lambda n: (*n, 3)), inside.map(lambda n: (3, *n))]
        sizes = or_nonsense(st.one_of(st.none(), inside, *shapes))
        return sizes.map(lambda size: options | {"output_size": size})

    windows = st.one_of(*[window_options(rank, cells)] * 3, st.just(ANYWHERE))
    return windows.flatmap(with_size)


def spatial_of_full_shape(call: Call, shape: tuple[int, ...], exact: bool) -> tuple | None:
    """The spatial part of a full shape; if ``exact``, its other axes must equal those of the array."""
    first = call.layout.data_format == "channels_first"
    spatial = shape[-call.rank :] if first else shape[-call.rank - 1 : -1]
    image = (call.channels, *spatial) if first else (*spatial, call.channels)
    full = [image] if call.batch is None else [image, (call.batch, *image)]
    return spatial if (shape in full if exact else len(shape) in map(len, full)) else None


def legal_unpooled_size(call: Call, window: reference.Pool | None) -> tuple[int, ...] | None:
    """The size of the unpooled plane; None if it is not legal."""
    given = call.options["output_size"]
    allowed = [range(1, 10**6)] * call.rank
    if window is not None:
        allowed = reference.allowed_output_sizes(window, call.size)
        given = reference.default_unpooled_size(window, call.size) if given is None else given
    size = per_axis(given, len(given) if isinstance(given, (tuple, list)) else call.rank, 1)
    if size is not None and len(size) > call.rank:
        size = spatial_of_full_shape(call, size, exact=window is None)
    if size is None or len(size) != call.rank:
        return None
    return size if all(n in axis for n, axis in zip(size, allowed)) else None


@fuzz(0.3)
@given(calls(unpool_options), st.sampled_from([*INTEGERS, mx.uint8, mx.int32, mx.int64]))
@example(failure(ANYWHERE, stride=mx.array([2, 2]), output_size=3), mx.int32)  # == gives an array
@example(failure(ANYWHERE, 3, output_size=[1, 2, 3, 4], data_format="channels_first"), mx.int8)
@example(failure(ANYWHERE, 2, output_size=(2, 1, 1, 3), data_format=np.array([2, 2])), mx.int8)
def test_unpooling(call, index_dtype):
    options, layout = call.options, call.layout
    is_window = index_dtype in (mx.uint8, mx.uint16)
    anywhere = options["kernel_size"] is None
    window = None if anywhere else legal_window(call.rank, options)
    nothing_given = repr({name: options[name] for name in ANYWHERE}) == repr(ANYWHERE)
    size = None if window is None and not anywhere else legal_unpooled_size(call, window)
    legal = size is not None and legal_words(options)
    legal = legal and not (anywhere and (is_window or not nothing_given))
    window = reference.resolved(window, size) if window and size else window
    random_ = np.random.default_rng(call.seed)
    limits = mx.iinfo(index_dtype)
    values = call.planes()
    high = (prod(window.kernel) if window else 9) + 2 if is_window else prod(size or (9,)) + 3
    numbers_ = random_.integers(max(limits.min, -3), min(limits.max, high), values.shape)
    if legal and window and not is_window and call.seed % 2:
        near = reference.near_windows(random_, window, size, values.shape)
        numbers_ = np.minimum(near, min(limits.max, 2**62))
        if call.seed % 4 == 1:  # few, as one index outside its window can hide that a kernel misses another
            numbers_[random_.random(values.shape) > 1 / prod(call.size)] = max(limits.min, -1)
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
    sizes = or_nonsense(st.one_of(one, each, each.map(list)))
    returns = or_nonsense(st.just(True))
    return st.fixed_dictionaries({"output_size": sizes, "return_indices": returns})


@fuzz(0.12)
@given(calls(adaptive_options))
def test_adaptive_pooling(call):
    options = call.options
    given = options["output_size"]
    if isinstance(given, (tuple, list)) and len(given) == call.rank:
        given = [n if wanted is None else wanted for n, wanted in zip(call.size, given)]
    cells = per_axis(given, call.rank, 1)
    legal = cells is not None and legal_words(options)
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
    names = "kernel_size", "return_indices", "output_size", "output_ratio"
    drawn = st.tuples(numbers(rank, 1, 3), or_nonsense(st.just(True)), asked)
    return drawn.map(lambda drawn: dict(zip(names, (*drawn[:2], *drawn[2]))))


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
    fits = cells and all(1 <= n <= size - k + 1 for n, k, size in zip(cells, kernel, call.size))
    return cells if fits else None


@fuzz(0.12)
@given(calls(fractional_options, ranks=(2, 3)))
def test_fractional_pooling(call):
    cells, shape = legal_fractional_size(call), (call.batch or 1, call.channels, call.rank)
    samples = np.random.default_rng(call.seed).random(shape, dtype=np.float32)
    given = {"random_samples": mx.array(samples)}
    legal = cells is not None and legal_words(call.options)
    run = lambda: call.run("fractional_max_pool", call.x, at_call=dict(given))  # noqa: E731
    if attempt(legal, run) is not None:
        sizes = call.size, cells, per_axis(call.options["kernel_size"], call.rank, 1)
        bounds = [reference.fractional_bounds(*sizes, u) for u in samples.reshape(-1, call.rank)]
        expected = reference.max_pool_between(call.planes(), bounds)
        check_call(call, "fractional_max_pool", expected, **given)


# ---- index formats and the check


@fuzz(0.16)
@given(calls(unpool_options), st.sampled_from(INTEGERS), *[or_nonsense(st.sampled_from(FORMATS))] * 2)
def test_conversion_and_check(call, index_dtype, source, target):
    """Valid indices survive a conversion and pass the check; others do not."""
    options, layout = call.options, call.layout
    is_window = index_dtype in (mx.uint8, mx.uint16)
    window, size = legal_window(call.rank, options), tuple(n + 2 for n in call.size)
    window = window and reference.resolved(window, size)
    needs_window = is_word(source, "window") or is_word(target, "window")
    legal = is_word(source, *FORMATS) and is_word(target, *FORMATS) and legal_words(options)
    legal = legal and is_window == (source == "window")
    legal = legal and (window is not None or not needs_window)
    limits = mx.iinfo(index_dtype)
    high = 12 if is_window else prod(size) * layout.planes + 3
    low, shape = max(limits.min, -3), (layout.planes, *call.size)
    drawn = np.random.default_rng(call.seed).integers(low, min(limits.max, high), shape)
    indices = layout.arrange(drawn, index_dtype)
    layouts = {"data_format": options["data_format"]}
    given = {name: options[name] for name in ANYWHERE} | layouts
    convert = lambda *formats: mlx_unpool.convert_indices(*formats, size, **given)  # noqa: E731
    there = attempt(legal, lambda: convert(indices, source, target))
    if not legal:
        return
    assert there.shape == indices.shape
    flat = layout.planes_of(convert(indices, source, "flat"))
    if source == "window":
        equal(flat, reference.flat_of_window(drawn, window, size, call.size), call)
    if source == "flat":
        equal(flat, np.where((drawn >= 0) & (drawn < prod(size)), drawn, -1), call)
    back = layout.planes_of(convert(there, target, "flat"))
    lost = (back == -1) & (flat != -1)
    equal(back[~lost], flat[~lost], call)
    for cell in np.ndindex(*call.size) if target == "window" else ():
        at = (slice(None), *cell)
        _, positions = reference.window_elements(window, cell, size)
        assert not lost[at][np.isin(flat[at], positions)].any()
    assert target == "window" or not lost.any()
    if source in ("flat", "window"):
        refused = pytest.raises(ValueError, match="must be from")
        with refused if (flat < 0).any() else nullcontext():
            mlx_unpool.check_indices(indices, size, **(given if source == "window" else layouts))
