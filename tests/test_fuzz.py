"""A call with one wrong argument raises a ValueError or TypeError.

Its message has the form of the library's messages. test_reference.py compares the values of the
same calls. Unpooling accepts exactly the sizes that the reference allows, as every kind of shape.
"""

import math
import re
from collections.abc import Callable
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support import reference
from support.arrays import generated_cases, irregular_cases
from support.properties import draws

import mlx_unpool

SEEDS = st.integers(0, 2**32 - 1)
# Illegal for every argument
NONSENSE = [
    *(-1, -(2**70), 2.0, 1.5, math.nan, "2", "", b"2", {}, {2}, object, ()),
    *([1, 2, 3, 4, 5, 6], (2, "2", 2), (2.0, 2), (True, 1), (None, -2)),
    *(mx.array(2), mx.array([2, 2]), np.float32(2), np.array([2, 2])),
]
NUMBERS = ("kernel_size", "stride", "padding", "dilation")
OF_UNPOOLING = (*NUMBERS, "output_size", "index_format", "data_format")


def is_refused(call: Callable[[], object]) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    # the library's own error, which names the function
    assert re.match(r"\[\w+\] .* must .* but got ", str(caught.value))


def call_of(name: str, rank: int, as_layer: bool, arrays: list[mx.array], options: dict) -> object:
    """Call a function or its layer."""
    if not as_layer:
        return getattr(mlx_unpool, f"{name}{rank}d")(*arrays, **options)
    at_call = {
        key: options.pop(key) for key in ("output_size",) if "unpool" in name and key in options
    }
    return getattr(mlx_unpool, f"{name.title().replace('_', '')}{rank}d")(**options)(
        *arrays, **at_call
    )


OF_FRACTIONAL = "kernel_size", "output_size", "return_indices", "data_format", "random_samples"
OF_CONVERSIONS = "source", "target", "output_size", *NUMBERS, "data_format", "target_data_format"
ARGUMENTS = {  # of pools and of conversions
    "max_pool": (*NUMBERS, "ceil_mode", "return_indices", "index_format", "data_format"),
    "adaptive_max_pool": ("output_size", "return_indices", "data_format"),
    "fractional_max_pool": OF_FRACTIONAL,
    "convert_indices": OF_CONVERSIONS,
}


PAIRS = [(function, name) for function, names in ARGUMENTS.items() for name in names]


@draws(350)
@given(SEEDS, st.sampled_from(PAIRS), st.sampled_from(NONSENSE))
@example(0, ("max_pool", "data_format"), np.array([2, 2]))  # == gives an array
@example(0, ("max_pool", "ceil_mode"), mx.array([2, 2]))
def test_pooling_and_conversions(seed, argument, value):
    function, name = argument
    (equal,), (adaptive, fractional) = generated_cases(1, seed), irregular_cases(2, seed)
    case = {"max_pool": equal, "fractional_max_pool": fractional}.get(function, adaptive)
    if case is equal:
        options = dict(zip(NUMBERS, (*case.parameters, case.pool.dilation)))
        options |= {"ceil_mode": case.pool.ceil_mode, "return_indices": seed % 2 == 0}
    else:
        options = {"output_size": case.cells} | (
            {"kernel_size": case.kernel} if case.kernel else {}
        )
    options |= case.data_format | {name: value}
    if function == "convert_indices":
        given = {"output_size": case.size, "source": "flat", "target": "window", "kernel_size": 2}
        indices = case.max_pool(case.x)[1]
        is_refused(
            lambda: mlx_unpool.convert_indices(indices, **given | case.data_format | {name: value})
        )
    else:
        for as_layer in (False, True)[: 2 - (name == "random_samples")]:
            is_refused(
                lambda a=as_layer: call_of(function, case.layout.rank, a, [case.x], dict(options))
            )


@draws(200)
@given(SEEDS, st.sampled_from(OF_UNPOOLING), st.sampled_from(NONSENSE), st.booleans())
@example(0, "data_format", np.array([2, 2]), False)
def test_unpooling(seed, name, value, as_layer):
    (case,) = generated_cases(1, seed)
    rank, layout = case.layout.rank, case.layout
    options = dict(zip(NUMBERS, (*case.parameters, case.pool.dilation))) | case.data_format
    values, indices = case.max_pool(case.x)
    arrays, given = [values, indices], options | {"output_size": case.size, name: value}
    is_refused(lambda: call_of("max_unpool", rank, as_layer, arrays, given))
    if name in NUMBERS and seed % 2:  # without a window none of its arguments may be given
        given = {"kernel_size": None, "output_size": case.size, **case.data_format, name: value}
        is_refused(lambda: call_of("max_unpool", rank, as_layer, arrays, given))
    pool = replace(case.pool, same=case.same)
    allowed = reference.allowed_output_sizes(pool, case.cells)
    size = tuple(r[seed % len(r)] for r in allowed)
    shape = layout.arrange(np.zeros((layout.planes, *size)), mx.int8).shape
    for given in (size, list(size), shape, *([size[0]] if len(set(size)) == 1 else [])):
        found = call_of("max_unpool", rank, as_layer, arrays, options | {"output_size": given})
        assert (found.shape, found.dtype) == (shape, case.dtype)
    for axis, r in enumerate(allowed):
        for length in (r.start - 1, r.stop):
            wrong = options | {"output_size": (*size[:axis], length, *size[axis + 1 :])}
            is_refused(lambda w=wrong: call_of("max_unpool", rank, as_layer, arrays, w))
    default = reference.default_unpooled_size(pool, case.cells)
    if default is None or min(default) < 1:
        is_refused(lambda: call_of("max_unpool", rank, as_layer, arrays, dict(options)))
    else:
        found = call_of("max_unpool", rank, as_layer, arrays, dict(options))
        assert found.shape == layout.arrange(np.zeros((layout.planes, *default)), mx.int8).shape
