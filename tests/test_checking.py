"""Checked mode and check_indices: indices that unpooling would drop or write to a wrong place."""

import re

import mlx.core as mx
import numpy as np
import pytest
from support.errors import fails

from mlx_unpool import MaxUnpool2d, check_indices, checking, max_pool2d, max_unpool2d

X = mx.arange(20.0).reshape(1, 4, 5, 1)  # pools to 2 x 2, as 4 x 4 does
OTHER_SIZE = max_pool2d(X, 2, return_indices=True)

VALUES, OFFSETS = max_pool2d(X, 2, return_indices=True, index_format="window")
OTHER_WINDOW = max_pool2d(mx.random.normal((1, 9, 9, 2)), 3, 2, return_indices=True)
LATE = max_pool2d(
    mx.arange(36.0).reshape(1, 6, 6, 1), 3, return_indices=True, index_format="window"
)
GRADIENT = mx.grad(lambda v: max_unpool2d(v, OTHER_SIZE[1], 2).sum())
CAST = "offsets in the window", "pass index_format='flat'", "from 0 to 3", "got 6 at (0, 0, 0, 0)"
REFUSED = [  # a call, and parts of its message
    (lambda: max_unpool2d(*OTHER_SIZE, 2),
     "6 at (0, 0, 0, 0)", "'output_size'", "W 4 to 5 have this"),
    (lambda: MaxUnpool2d(2)(*OTHER_SIZE), "6 at (0, 0, 0, 0)", "'output_size'", "4 to 5"),
    (lambda: max_unpool2d(*OTHER_SIZE, 2, index_format="flat"),
     "6 at (0, 0, 0, 0)", "in their own window"),
    (lambda: max_unpool2d(*OTHER_SIZE, 2, index_format="window"),
     "from 0 to 3", "6 at (0, 0, 0, 0)"),
    (lambda: GRADIENT(OTHER_SIZE[0]), "6 at (0, 0, 0, 0)"),
    (lambda: max_unpool2d(*OTHER_WINDOW, 2, output_size=(8, 8)), "kernel_size"),
    (lambda: max_unpool2d(*LATE, 2), "0 to 3", "got 8 at", "kernel_size"),
    (lambda: max_unpool2d(VALUES, OTHER_SIZE[1].astype(mx.uint8), 2), *CAST),
    (lambda: max_unpool2d(*OTHER_SIZE, None, output_size=(4, 4)), "0 to 15", "16 at (0, 1, 0, 0)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "parts"), [(call, parts) for call, *parts in REFUSED])
def test_wrong_indices_are_refused_with_the_solution(call, parts):
    caller = "MaxUnpool2d" if call is REFUSED[1][0] else "max_unpool2d"
    with checking():
        fails(call, ValueError, caller, "indices", *parts)


def test_right_indices_are_accepted_and_inside_transformations_nothing_is_checked():
    values, indices = OTHER_SIZE
    unpool = lambda v, i: max_unpool2d(v, i, 2)
    with checking():
        expected = max_unpool2d(*OTHER_SIZE, 2, output_size=X.shape)
        assert mx.array_equal(unpool(VALUES, OFFSETS), expected[:, :, :4])
        max_unpool2d(*OTHER_SIZE, None, output_size=(4, 5))
        assert mx.compile(unpool)(values, indices).shape == (1, 4, 4, 1)
        assert mx.vmap(unpool)(values[None], indices[None]).shape == (1, 1, 4, 4, 1)


def test_check_indices_accepts_full_shapes_and_windows():
    _, indices = OTHER_SIZE
    sequence = mx.array([[1], [3]])  # without a batch
    nothing = mx.zeros((0, 3, 4, 1), mx.int32), (6, 8), (0, 6, 8, 1)
    for given, *sizes in ((indices, (4, 5), (1, 4, 5, 1)), (sequence, (5, 1), (5,)), nothing):
        for size in sizes:
            assert check_indices(given, size) is None
            assert check_indices(given, size, 2) is None
            assert check_indices(given.astype(mx.uint8), size, 2, index_format="flat") is None
    call = lambda: check_indices(indices, (5, 4), 2)
    hint = "'output_size', and the pool's kernel_size, stride, padding and dilation "
    hint += "(kernel_size=None for an "
    fails(call, ValueError, "check_indices", "indices", "in their own window", hint)
    call = lambda: check_indices(indices, (2, 4, 5, 1))
    fails(call, ValueError, "check_indices", "output_size", "(1, 2, 2, 1)", "(2, 4, 5, 1)")


INVALID = [-1, 48, 2**32 + 5, -(2**32) + 5, -(2**31), 2**31 - 1, -(2**63), 2**63 - 1, 2**64 - 1]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint32", "uint64"])
def test_the_first_invalid_index_is_named_with_its_place_and_the_range(dtype):
    limits = np.iinfo(dtype)
    for number in (n for n in INVALID if limits.min <= n <= limits.max):
        array = np.zeros((1, 3, 4, 2), dtype)
        array[0, 2, 1, 1] = array[0, 2, 3, 0] = np.array(number, dtype)
        expected = (
            f"[check_indices] 'indices' must be from 0 to 47 but got {number} at (0, 2, 1, 1)."
        )
        with pytest.raises(ValueError, match=re.escape(expected)):
            check_indices(mx.array(array), (6, 8))


def test_a_message_gives_the_sizes_without_a_search():
    """A stride of 5e7 allows 1e8 sizes, so the message must not try them one by one.

    No size is below 1.
    """
    for size, window, sizes in (
        ((5,), (2, 5 * 10**7), "W 2 to 50000001"),
        ((1,), (2, 2, 1), "W 1 to 1"),
    ):
        with pytest.raises(ValueError, match=f"Inputs with {sizes} have this pooled size"):
            check_indices(mx.array([[[70000000]]]), size, *window)
