"""The emulated device notices each kind of failure and mistakes in kernels.

Surplus threads do nothing.
"""

import dataclasses
from collections.abc import Callable

import emulator
import metal_host
import mlx.core as mx
import pytest

import mlx_unpool
from mlx_unpool._backends import kernel_source

# For each kind of failure, the body of a kernel with a thread n for each of 8 elements of x.
FAILURES = {
    "access out of bounds": "out[n] = x[n + 1];",
    "write to an input": "((device float*)x)[n] = 1.0f; out[n] = 1.0f;",
    "second write to one place": "out[n] = x[n]; out[n] = x[n];",
    "read of an output": "out[n] = x[n]; volatile float other = out[n ^ 1];",
    "undefined behaviour": "volatile int i = 1 << 30; i *= 2; out[n] = x[n];",
    "unwritten": "if (n > 0) out[n] = x[n];",
    "atomic and plain access to one place": (
        "atomic_fetch_or_explicit(out, 1u, memory_order_relaxed); if (n == 1) out[0].value = 2u;"
    ),
}


def small_kernel(body: str) -> None:
    atomic = "atomic" in body
    options = {"init_value": 0, "atomic": True} if atomic else {}
    emulator.run_source(
        body, {"x": mx.arange(8.0)}, {"out": mx.uint32 if atomic else mx.float32}, **options
    )


@pytest.mark.parametrize("shuffle", [None, 5])
@pytest.mark.parametrize("failure", FAILURES)
def test_each_kind_of_failure_is_reported(failure, shuffle):
    device = emulator.Emulator(must_be_clean=False, shuffle=shuffle)
    with device.installed():
        small_kernel("out[n] = x[n];")
        assert not device.problems()
        small_kernel(FAILURES[failure])
    assert failure in device.problems()


# ---- mistakes in the kernels

OVERLAPPING = (3, 2, 1)
X = mx.random.normal((2, 6, 7, 5), key=mx.random.key(0))
ZEROS = mx.zeros((1, 10, 9, 5))  # several threads per window
with mx.stream(mx.cpu):
    FLAT, WINDOW = (
        mlx_unpool.max_pool2d(X, *OVERLAPPING, return_indices=True, index_format=f)[1]
        for f in ("flat", "window")
    )
    NUMBERS = mx.arange(FLAT.size).reshape(FLAT.shape)
    VALUES = NUMBERS.astype(mx.float32) + 1  # so that each result shows which value it is
    # Some indices are outside their windows, others outside the plane.
    OUTSIDE = mx.where(NUMBERS % 3 == 0, 3, mx.where(NUMBERS % 5 == 0, 2**31 - 1, FLAT))
    mx.eval(VALUES, WINDOW, OUTSIDE)


def unpool(indices: mx.array, window: tuple = OVERLAPPING, values: mx.array = VALUES) -> mx.array:
    return mlx_unpool.max_unpool2d(values, indices, *window, output_size=(6, 7))


CALLS: dict[str, Callable[[], mx.array]] = {
    "pool": lambda: mlx_unpool.max_pool2d(X, *OVERLAPPING),
    "global ties": lambda: mlx_unpool.adaptive_max_pool2d(ZEROS, 1, return_indices=True)[1],
    "adaptive": lambda: mlx_unpool.adaptive_max_pool2d(X, (4, 3)),
    "adaptive vjp": lambda: mx.grad(lambda x: mlx_unpool.adaptive_max_pool2d(x, (4, 3)).sum())(X),
    "unpool window": lambda: unpool(WINDOW),
    "unpool outside": lambda: unpool(OUTSIDE),
    "unpool any": lambda: unpool(OUTSIDE, (None,)),
    "vjp outside": lambda: mx.vjp(lambda v: unpool(OUTSIDE, values=v), [VALUES], [X])[1][0],
}
# Planted mistakes: the file of a kernel, a call that runs it, a piece of its source
# and the replacement.
MISTAKES = [
    ("pool", "pool", "* OW + at.w) * C", "* OW + at.w / 2) * C"),
    ("pool_any", "global ties", "kh = h.first + N(nh)", "kh = h.first + N(nh) + 1"),
    ("pool_any", "adaptive", "image + OD + at.h", "image + at.h"),
    ("pool_chunks", "global ties", "index < best[v].index)", "index > best[v].index)"),
    (
        "scatter",
        "unpool window",
        "inside(od, oh, ow, OD, OH, OW)",
        "inside(od, oh, ow, OD, OH + 1, OW)",
    ),
    ("scatter", "unpool outside", "outside_window[", "false && outside_window["),
    ("scatter_regions", "adaptive vjp", "oh = h.first", "oh = h.first + 1"),
    ("gather", "vjp outside", "index[v] < (FLAT ? elements", "index[v] <= (FLAT ? N(2147483647)"),
    ("gather", "vjp outside", "outside_window[", "false && outside_window["),
    ("outside_window", "unpool outside", "& !in_window", "& in_window"),
    ("outside_winners", "unpool outside", "left - 1 - n", "count - left + n"),
    ("last_writer", "unpool any", "raise_to(winner + ", "raise_to(winner + 0 * "),
]


def planted(kernel: str, old: str, new: str) -> Callable[[str], str]:
    """An edit of the source of one kernel."""
    source = kernel_source.text(f"{kernel}.metal")
    return lambda text: text.replace(old, new) if text == source else text


@pytest.fixture(scope="module")
def compiled() -> None:
    """Compile the kernels of all calls and mistakes together."""
    launches = emulator.recorded(CALLS.values())
    for kernel, call, old, new in MISTAKES:
        launches += emulator.recorded([CALLS[call]], emulator.Emulator(planted(kernel, old, new)))
    metal_host.compile_launches(launches)


@pytest.mark.parametrize(("kernel", "call", "old", "new"), MISTAKES)
def test_a_planted_mistake_is_noticed(kernel, call, old, new, compiled):
    assert old in kernel_source.text(f"{kernel}.metal")
    results = []
    for edit in (lambda text: text, planted(kernel, old, new)):
        device = emulator.Emulator(edit, must_be_clean=False, shuffle=5)
        with device.installed():
            results.append(CALLS[call]())
        if len(results) == 1:
            assert not device.problems()
    assert device.problems() or not mx.array_equal(*results, equal_nan=True).item()


class RoundedUp(emulator.Emulator):
    """Rounds grids up to whole blocks, as CUDA does."""

    def run(self, launch, inputs):
        block = (32, 4, 2)
        grid = tuple(-(-g // t) * t for g, t in zip(launch.grid, block))
        assert grid != launch.grid
        return super().run(dataclasses.replace(launch, grid=grid, threadgroup=block), inputs)


@pytest.mark.parametrize("name_of_call", CALLS)
def test_threads_beyond_the_grid_do_nothing(name_of_call, compiled):
    expected = CALLS[name_of_call]()
    with RoundedUp().installed():
        assert mx.array_equal(CALLS[name_of_call](), expected)
