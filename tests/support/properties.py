"""Properties of every pooling and unpooling call.

They are checked for generated and random calls and for PyTorch's results. Cotangents are small
integers, so that sums are exact in every dtype and in any order.
"""

import os
from functools import partial

import mlx.core as mx
import numpy as np
from hypothesis import HealthCheck, Phase, settings

from support import reference
from support.arrays import Case, IrregularCase, Layout, copies_bits

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))  # of all tests; 0: the usual ones
USUAL = 1260  # the approximate sum of ``usual`` over all tests that use ``draws``
SMALL = np.random.default_rng(0).integers(-3, 4, 2**16).astype(np.float32)


def draws(usual: int, shrink: bool = True) -> settings:
    """Settings of a test that draws ``usual`` examples, the same in every run.

    With the environment variable FUZZ_EXAMPLES it draws new ones: its part of that number
    in all tests.
    """
    return settings(
        max_examples=max(1, EXAMPLES * usual // USUAL) if EXAMPLES else usual,
        derandomize=not EXAMPLES,
        deadline=None,
        print_blob=True,
        phases=[phase for phase in Phase if shrink or phase != Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


def peak_of(work) -> int:
    """Peak memory in bytes during ``work()``, above the memory before."""
    mx.synchronize()
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    work()
    mx.synchronize()
    return mx.get_peak_memory() - before


def cotangent(layout: Layout, size: tuple[int, ...]) -> np.ndarray:
    """A cotangent of small integers with the shape of an output."""
    return np.resize(SMALL, (layout.planes, *size))


def equal(got: np.ndarray, expected: np.ndarray, note: object) -> None:
    try:  # without err_msg, for which every call would print the arrays of its case
        np.testing.assert_array_equal(got, expected)
    except AssertionError as error:
        raise AssertionError(f"{note}\n{error}") from None


def check_pool(
    run, x, layout: Layout, size, expected, returns_indices=True, note=""
) -> mx.array | None:
    """Compare values, indices and the gradient of ``run(x)`` and return its indices.

    ``expected`` is values and flat indices, followed by window indices if ``run`` returns those.
    """
    values, flat, *offsets = expected
    found = list(run(x)) if returns_indices else [run(x)]
    wanted = [values, *[(offsets or [flat])[0]] * returns_indices]
    assert found[0].dtype == x.dtype
    if returns_indices:
        assert found[1].dtype in ((mx.uint8, mx.uint16) if offsets else (mx.int32,))
    if mx.issubdtype(x.dtype, mx.floating):
        grows = cotangent(layout, values.shape[1:])
        first = (lambda x: run(x)[0]) if returns_indices else run
        _, (gradient,) = mx.vjp(first, [x], [layout.arrange(grows, x.dtype)])
        assert gradient.dtype == x.dtype
        found.append(gradient)
        wanted.append(reference.max_pool_vjp(grows, flat, size))
    mx.eval(found)
    got = [layout.planes_of(y) for y in found]
    if returns_indices and offsets:  # a window without elements has an arbitrary offset
        got[1][flat < 0] = wanted[1][flat < 0]
    for pair in zip(got, wanted, strict=True):
        equal(*pair, note)
    if copies_bits(has_indices=returns_indices):
        equal(np.signbit(got[0]), np.signbit(values), note)
    return found[1] if returns_indices else None


def check_unpool(
    run, values: np.ndarray, dtype, layout: Layout, flat: np.ndarray, size, note=""
) -> None:
    """Compare the result and the gradient of ``run(values)``; ``flat`` has its flat indices."""
    x, wanted = layout.arrange(values, dtype), [reference.max_unpool(values, flat, size)]
    if not mx.issubdtype(dtype, mx.floating):
        found = [run(x)]
    else:
        grows = cotangent(layout, size)
        found = [y for ys in mx.vjp(run, [x], [layout.arrange(grows, dtype)]) for y in ys]
        wanted.append(reference.max_unpool_vjp(grows, flat, size))
    assert {y.dtype for y in found} == {dtype}
    mx.eval(found)
    got = [layout.planes_of(y) for y in found]
    for pair in zip(got, wanted, strict=True):
        equal(*pair, note)
    equal(np.signbit(got[0]), np.signbit(wanted[0]), note)


def check_case(case: Case | IrregularCase) -> None:
    """Compare pooling, with and without indices, and unpooling in every format of the case."""
    values, flat, *offsets = case.expected()
    given = case.x, case.layout, case.size
    alone = partial(case.max_pool, return_indices=False)
    check_pool(alone, *given, (values, flat), returns_indices=False, note=case)
    runs = [(case.max_pool, (values, flat))]
    if offsets:
        runs.append((partial(case.max_pool, index_format="window"), (values, flat, *offsets)))
    for run, expected in runs:
        indices = check_pool(run, *given, expected, note=case)
        unpool = lambda v, i=indices: case.max_unpool(v, i)
        check_unpool(unpool, values, case.dtype, case.layout, flat, case.size, case)
