"""Check mlx_unpool on this machine and print a report that can be pasted into an issue.

Compare every kernel with plain MLX operations on the CPU, also with inputs that begin one element
after the start of a buffer, and measure its throughput in GB/s.

Exit status: 0 if all kernels agree, 1 if one does not, 2 if there is no Metal or CUDA GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from . import _backends
from ._arguments import window_of
from ._geometry import Geometry, WindowGeometry
from ._report import device_name, print_versions, seconds_per_call
from .adaptive import adaptive_geometry

_GROUP = (2, 1, 24, 24, 64)  # (B, D, H, W, C)
# name: shape, window (kernel, stride, padding, dilation) or number of adaptive windows, and
# whether indices are flat
_CASES: dict[str, tuple[tuple[int, ...], Any, bool]] = {
    "2x2/2": (_GROUP, ((1, 2, 2),), False),
    "2x2/2 flat": (_GROUP, ((1, 2, 2),), True),
    "3x3/2": (_GROUP, ((1, 3, 3), (1, 2, 2), (0, 1, 1)), False),
    "3x3/2 flat": ((2, 1, 23, 19, 5), ((1, 3, 3), (1, 2, 2), (0, 1, 1)), True),
    "3x3/1": (_GROUP, ((1, 3, 3), 1, (0, 1, 1)), False),
    "3x3/1 flat": ((2, 1, 23, 19, 3), ((1, 3, 3), 1, (0, 1, 1)), True),
    "3x3/2, padding after": ((2, 1, 24, 20, 5), ((1, 3, 3), (1, 2, 2), (0, (0, 1), (0, 1))), False),
    "5x5/1": ((2, 1, 21, 27, 1), ((1, 5, 5), 1, (0, 2, 2)), False),
    "1x12/3": ((2, 1, 3, 60, 8), ((1, 1, 12), (1, 1, 3), (0, 0, 5)), False),
    "2x3x3/1, dilation 2": ((2, 4, 11, 9, 2), ((2, 3, 3), 1, (0, 2, 1), 2), True),
    "2x9x8/4": ((2, 3, 40, 33, 6), ((2, 9, 8), (1, 4, 4), (0, 4, 4)), False),
    "9x8/1, dilation 3": ((1, 1, 40, 33, 3), ((1, 9, 8), 1, (0, 9, 9), 3), True),
    "adaptive 7x7": ((2, 1, 23, 19, 5), 7, True),
    "adaptive 4x4": ((2, 1, 70, 35, 1), 4, True),
}
_DTYPES = (mx.float32, mx.float16, mx.bfloat16)
_ALL_DTYPES = ("2x2/2", "3x3/2 flat", "3x3/1")  # float32 only in the other cases
_TIMED, _BIG = ("2x2/2", "2x2/2 flat", "3x3/2", "3x3/1"), (8, 1, 112, 112, 64)
_SECONDS = 0.02  # per measurement
_VALUES = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-40, -1e-40, 1e-7, *range(-16, 16)]
_PRIMITIVES = ("pool", "pool_values", "scatter", "sum", "gather", "gather last")


def calls(
    shape: tuple[int, ...], window: Any, flat: bool, dtype: mx.Dtype, pooled_by: Any, first: int = 0
) -> list[tuple[Callable[[Any], tuple[mx.array, ...]], int]]:
    """For each primitive, a function that runs it on a backend, and its bytes of input and output.

    Inputs contain ties, NaN, infinities, subnormal numbers and zeros of both signs. Some flat
    indices are outside their windows. The inputs begin at element ``first`` of their buffers.
    """
    plane, keys = shape[1:4], mx.random.split(mx.random.key(0))
    x = mx.array(_VALUES).astype(dtype)[mx.random.randint(0, len(_VALUES), shape, key=keys[0])]
    index_dtype = mx.int32 if flat else mx.uint8
    g: Geometry
    if isinstance(window, int):
        g = adaptive_geometry(plane, (1, window, window))
        unpooled = Geometry(g.size, g.pooled)
    else:
        made = window_of("selftest", 3, *window)
        g = unpooled = WindowGeometry(plane, made.pooled_size(plane), made)
    values, indices = pooled_by.pool((x,), g, index_dtype)
    sums = mx.random.normal(values.shape, key=keys[1]).astype(dtype)
    moved = mx.array(indices)
    moved[..., 0] = indices[:, ::-1, ::-1, ::-1, 0]
    if first:
        x, values, indices, sums, moved = (
            _at(first, array) for array in (x, values, indices, sums, moved)
        )
    mx.eval(x, values, indices, sums, moved)
    size = x.nbytes + values.nbytes + indices.nbytes
    return [
        (lambda b: b.pool((x,), g, index_dtype), size),
        (lambda b: (b.pool_values((x,), g),), size - indices.nbytes),
        (lambda b: (b.scatter(values, moved, unpooled, "last"),), size),
        (lambda b: (b.scatter(sums, indices, g, "sum"),), size),
        (lambda b: (b.gather(x, indices, g, "sum"),), size),
        (lambda b: (b.gather(x, moved, unpooled, "last"),), size),
    ]


def _at(first: int, x: mx.array) -> mx.array:
    """A copy of ``x`` that begins at element ``first`` of its buffer."""
    return mx.concatenate([mx.zeros(first, x.dtype), x.reshape(-1)])[first:].reshape(x.shape)


def agrees(run: Callable[[Any], Any], backend: Any, stream: Any) -> bool:
    """Whether a backend and plain operations give the same numbers.

    The sign of zero and the bits of NaN are not compared, because ``mx.maximum`` differs on Apple's
    CPUs.
    """
    with mx.stream(mx.cpu):
        mx.eval(expected := run(_backends.get("ops")))
    with mx.stream(stream):
        mx.eval(got := run(backend))
    with mx.stream(mx.cpu):
        pairs = zip(got, expected, strict=True)
        return all(mx.array_equal(*pair, equal_nan=True) for pair in pairs)


def gigabytes_per_second(run: Callable[[], Any], size: int) -> float:
    """Throughput from the median time of calls that access ``size`` bytes."""
    return size / seconds_per_call(run, _SECONDS) / 1e9


def check_gpu(name: str) -> int:
    """Compare a GPU's kernels with plain operations, print the table, return the exit status."""
    backend, stream = _backends.get(name), mx.default_stream(mx.gpu)
    print(_row("window", "dtype", *_PRIMITIVES))
    failures = 0
    for label, case in _CASES.items():
        for dtype in _DTYPES if label in _ALL_DTYPES else _DTYPES[:1]:
            cells = agreement(case, dtype, backend, stream)
            failures += len(cells) - cells.count("yes")
            if label in _TIMED:
                with mx.stream(stream):
                    for n, (run, size) in enumerate(calls(_BIG, *case[1:], dtype, backend)):
                        cells[n] += f" {gigabytes_per_second(partial(run, backend), size):.0f}"
            print(_row(label, str(dtype).removeprefix("mlx.core."), *cells), flush=True)
    with mx.stream(stream):
        x = mx.random.normal(_BIG)
        rate = gigabytes_per_second(lambda: x + 1, 2 * x.nbytes)
    print(
        "\nWhether each primitive agrees, and its throughput in GB/s; "
        f"x + 1 in float32: {rate:.0f}."
    )
    print(
        "OFFSET: it agrees, except with inputs that begin one element after the start of a buffer."
    )
    print(f"{failures} DO NOT AGREE." if failures else "All agree.")
    return int(failures > 0)


def agreement(
    case: tuple[tuple[int, ...], Any, bool], dtype: mx.Dtype, backend: Any, stream: Any
) -> list[str]:
    """Whether each primitive agrees in a case: "yes", "NO" or "OFFSET" (see ``check_gpu``)."""
    cells = ["yes"] * len(_PRIMITIVES)
    for first, wrong in ((1, "OFFSET"), (0, "NO")):
        with mx.stream(mx.cpu):
            small = calls(*case, dtype, _backends.get("ops"), first)
        for n, (run, _) in enumerate(small):
            if not agrees(run, backend, stream):
                cells[n] = wrong
    return cells


def _row(label: str, dtype: str, *cells: str) -> str:
    columns = (cell.ljust(max(len(name), 8)) for name, cell in zip(_PRIMITIVES, cells))
    return "  ".join((label.ljust(19), dtype.ljust(8), *columns)).rstrip()


def report() -> int:
    """Print the results as a block of Markdown, and return the exit status."""
    print("```text")
    try:
        return check()
    finally:
        print("```", flush=True)


def check() -> int:
    """Print the versions and the results, and return the exit status."""
    name = next((n for n in ("metal", "cuda") if _backends.is_available(n)), None)
    if name is None:
        print_versions(device="CPU")
        print("No Metal or CUDA GPU is available, so no kernel was tested.")
        return 2
    print_versions(device=f"{device_name(mx.gpu)} ({name})")
    return check_gpu(name)


if __name__ == "__main__":
    raise SystemExit("Run it as a command: python -m mlx_unpool check")
