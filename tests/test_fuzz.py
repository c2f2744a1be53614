"""Legal arguments give arrays of the expected shape and dtype, illegal ones a ValueError or a TypeError.

Most of the drawn arguments are legal, but each can be nonsense. ``legal_*`` decides, independently of the
library, which calls must succeed. Calls that failed in the past are ``@example``s. test_reference.py compares
the values that calls return.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import reference
from arrays import FLOATS, INTEGERS, Layout
from hypothesis import example, given
from hypothesis import strategies as st
from properties import draws

import mlx_unpool

DTYPES = FLOATS + INTEGERS
WORDS = {
    "data_format": ("channels_last", "channels_first"),
    "index_format": ("flat", "window"),
    "ceil_mode": (False, True),
    "return_indices": (False, True),
}


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
    """The arguments of a call, except the values of its arrays."""

    rank: int
    batch: int | None
    channels: int
    size: tuple[int, ...]  # of the planes of the input
    dtype: Any
    options: dict
    as_layer: bool = False

    def array(self, size: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
        """Planes of zeros in the layout of the call, or in any layout if its name is nonsense."""
        first = is_word(self.options["data_format"], "channels_first")
        data_format = "channels_first" if first else "channels_last"
        layout = Layout(self.rank, self.batch, self.channels, data_format)
        return layout.arrange(np.zeros((layout.planes, *size)), dtype)

    def run(self, name: str, *indices: mx.array, **at_call: Any) -> Any:
        """Call the function of this name, or its layer."""
        arrays, options = (self.array(self.size, self.dtype), *indices), dict(self.options)
        if not self.as_layer:
            return getattr(mlx_unpool, f"{name}{self.rank}d")(*arrays, **options, **at_call)
        if name == "max_unpool":
            at_call["output_size"] = options.pop("output_size")
        layer = name.title().replace("_", "")
        return getattr(mlx_unpool, f"{layer}{self.rank}d")(**options)(*arrays, **at_call)


@st.composite
def calls(draw, options) -> Call:
    """A call of any rank; ``options(rank, size)`` draws its other arguments."""
    rank = draw(st.sampled_from((1, 2, 3)))
    size = tuple(draw(st.integers(1, (12, 7, 3)[rank - 1])) for _ in range(rank))
    return Call(
        rank=rank,
        batch=draw(st.sampled_from([None, 1, 2])),
        channels=draw(st.integers(1, 3)),
        size=size,
        dtype=draw(st.sampled_from(DTYPES)),
        options={**draw(options(rank, size)), "data_format": draw(word("data_format"))},
        as_layer=draw(st.booleans()),
    )


def attempt(legal: bool, function: Callable[[], Any]) -> list[mx.array]:
    """The results of a legal call; none for an illegal one, which must raise the right error."""
    if legal:
        found = function()
        mx.eval(found)
        return list(found) if isinstance(found, tuple) else [found]
    with pytest.raises((ValueError, TypeError)) as caught:
        function()
    message = str(caught.value)
    assert message.startswith("[")  # the library's own error, which names the function
    assert "must" in message
    assert "but got" in message
    return []


def check(call: Call, size: tuple[int, ...] | None, name: str, *indices: mx.array, **at_call: Any) -> None:
    """Run a call. The planes of its results have this size; if it is None, the call is illegal."""
    found = attempt(size is not None, partial(call.run, name, *indices, **at_call))
    if found:
        dtypes = [call.dtype]
        if call.options.get("return_indices"):
            dtypes += [mx.uint8 if call.options.get("index_format") == "window" else mx.int32]
        shape = call.array(size, call.dtype).shape
        assert [(y.shape, y.dtype) for y in found] == [(shape, dtype) for dtype in dtypes]


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
    return Call(rank, None, 1, (1,) * rank, mx.float32, options)


@draws(200)
@given(calls(pool_options))
@example(failure(POOL, kernel_size=2, stride=1, padding=1, dilation=2))  # an empty window
@example(failure(POOL, kernel_size=2, data_format=np.array([2, 2])))  # == gives an array
@example(failure(POOL, kernel_size=1, ceil_mode=mx.array([2, 2])))
@example(failure(POOL, kernel_size=2, stride=1, padding=1, return_indices=False, index_format="window"))
def test_pooling(call):
    window = legal_window(call.rank, call.options) if legal_words(call.options) else None
    cells = window and reference.pooled_size(reference.resolved(window, call.size), call.size)
    check(call, cells if cells and min(cells) >= 1 else None, "max_pool")


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
    first = is_word(call.options["data_format"], "channels_first")
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


@draws(200)
@given(calls(unpool_options), st.sampled_from([*INTEGERS, mx.uint8, mx.int32, mx.int64]))
@example(failure(ANYWHERE, stride=mx.array([2, 2]), output_size=3), mx.int32)  # == gives an array
@example(failure(ANYWHERE, 3, output_size=[1, 2, 3, 4], data_format="channels_first"), mx.int8)
@example(failure(ANYWHERE, 2, output_size=(2, 1, 1, 3), data_format=np.array([2, 2])), mx.int8)
def test_unpooling(call, index_dtype):
    options = call.options
    is_window = index_dtype in (mx.uint8, mx.uint16)
    anywhere = options["kernel_size"] is None
    window = None if anywhere else legal_window(call.rank, options)
    nothing_given = repr({name: options[name] for name in ANYWHERE}) == repr(ANYWHERE)
    size = None if window is None and not anywhere else legal_unpooled_size(call, window)
    legal = legal_words(options) and not (anywhere and (is_window or not nothing_given))
    check(call, size if legal else None, "max_unpool", call.array(call.size, index_dtype))
