"""Properties of every pooling and unpooling call, for generated and random calls and for PyTorch's results.

Cotangents are small integers, so that sums are exact in every dtype and in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import mlx.core as mx
import numpy as np
import reference
from arrays import FLOATS, Case, IrregularCase, Layout, copies_bits

SMALL = np.random.default_rng(0).integers(-3, 4, 2**16).astype(np.float32)


def cotangent(layout: Layout, size: tuple[int, ...]) -> np.ndarray:
    """A cotangent of small integers with the shape of an output."""
    return np.resize(SMALL, (layout.planes, *size))


def equal(got: np.ndarray, expected: np.ndarray, note: object) -> None:
    try:  # without err_msg, for which every call would print the arrays of its case
        np.testing.assert_array_equal(got, expected)
    except AssertionError as error:
        raise AssertionError(f"{note}\n{error}") from None


def check_pool(
    run: Callable,
    x: mx.array,
    layout: Layout,
    size: tuple[int, ...],
    expected: tuple[np.ndarray, ...],
    returns_indices: bool = True,
    note: object = "",
) -> mx.array | None:
    """Compare values, indices and the gradient of ``run(x)`` and return its indices.

    ``expected`` is values and flat indices, followed by window indices if ``run`` returns those.
    """
    values, flat, *offsets = expected
    result = run(x)
    got, indices = result if returns_indices else (result, None)
    assert got.dtype == x.dtype
    equal(layout.planes_of(got), values, note)
    if copies_bits():
        equal(np.signbit(layout.planes_of(got)), np.signbit(values), note)
    if indices is not None:
        assert indices.dtype in ((mx.uint8, mx.uint16) if offsets else (mx.int32,))
        has_element = (flat >= 0) if offsets else np.ones(flat.shape, bool)
        wanted = (offsets or [flat])[0]
        equal(layout.planes_of(indices)[has_element], wanted[has_element], note)
    if x.dtype in FLOATS:
        grows = cotangent(layout, values.shape[1:])
        first = (lambda x: run(x)[0]) if returns_indices else run
        _, (gradient,) = mx.vjp(first, [x], [layout.arrange(grows, x.dtype)])
        equal(layout.planes_of(gradient), reference.max_pool_vjp(grows, flat, size), note)
    return indices


def check_unpool(
    run: Callable,
    values: np.ndarray,
    dtype: mx.Dtype,
    layout: Layout,
    flat: np.ndarray,
    size: tuple[int, ...],
    note: object = "",
) -> None:
    """Compare the result and the gradient of ``run(values)``, whose indices correspond to ``flat``."""
    x = layout.arrange(values, dtype)
    if dtype not in FLOATS:
        full = run(x)
    else:
        grows = cotangent(layout, size)
        (full,), (gradient,) = mx.vjp(run, [x], [layout.arrange(grows, dtype)])
        equal(layout.planes_of(gradient), reference.max_unpool_vjp(grows, flat, size), note)
    assert full.dtype == dtype
    equal(layout.planes_of(full), reference.max_unpool(values, flat, size), note)


def check_case(case: Case | IrregularCase) -> None:
    """Compare pooling, with and without indices, and unpooling in every index format of the case."""
    values, flat, *offsets = case.expected()
    given = case.x, case.layout, case.size
    alone = partial(case.max_pool, return_indices=False)
    check_pool(alone, *given, (values, flat), returns_indices=False, note=case)
    runs = [(case.max_pool, (values, flat))]
    if offsets:
        runs.append((partial(case.max_pool, index_format="window"), (values, flat, *offsets)))
    for run, expected in runs:
        indices = check_pool(run, *given, expected, note=case)
        unpool = lambda v, i=indices: case.max_unpool(v, i)  # noqa: E731
        check_unpool(unpool, values, case.dtype, case.layout, flat, case.size, case)
