"""Check mlx_unpool on this machine and print a report that can be pasted into an issue.

Compare every kernel bit for bit with plain MLX operations on the CPU and measure its throughput in GB/s.

Exit status: 0 if all kernels agree, 1 if one does not, 2 if there is no Metal or CUDA GPU.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any, NamedTuple

import mlx.core as mx

from . import __version__, _backends
from ._geometry import AdaptiveGeometry, Geometry, Triple, Window, WindowGeometry, adaptive_geometry
from ._layout import bounds_array
from ._requests import window_of
from ._types import flat_dtype

_WINDOWS = {"2x2/2": (2, 2, 0), "3x3/2": (3, 2, 1), "3x3/1": (3, 1, 1)}
_DTYPES = (mx.float32, mx.float16, mx.bfloat16)
# (B, D, H, W, C). Results are compared for _SMALL (odd sizes and multiples of 8), speed is measured for _BIG.
_SMALL = ((2, 1, 23, 19, 5), (2, 1, 24, 24, 64))
_BIG = (8, 1, 112, 112, 64)
_REPEATS = 20


class Call(NamedTuple):
    """One call of a primitive, ready to run on any backend."""

    name: str
    run: Callable[[Any], tuple[mx.array, ...]]
    inputs: tuple[mx.array, ...]


def calls(
    shape: tuple[int, ...], dtype: mx.Dtype, window: Window, flat: bool, pooled_by: Any
) -> Iterator[Call]:
    """Calls of every primitive on random arrays. The backend ``pooled_by`` computes the indices."""
    size: Triple = shape[1:4]
    g = WindowGeometry(size, window.pooled_size(size), window)
    index_dtype = flat_dtype(size) if flat else mx.uint8
    key = mx.random.key(0)
    x = mx.random.normal(shape, key=key).astype(dtype)
    values, indices = pooled_by.pool(x, g, index_dtype)
    mx.eval(x, values, indices)
    yield Call("pool", lambda b: b.pool(x, g, index_dtype), (x,))
    yield Call("place", lambda b: (b.place(values, indices, g),), (values, indices))
    yield Call("accumulate", lambda b: (b.accumulate(values, indices, g),), (values, indices))
    yield Call("pick", lambda b: (b.pick(x, indices, g),), (values, indices))
    yield Call("pick_winners", lambda b: (b.pick_winners(x, indices, g),), (values, indices))
    if flat:
        h = Geometry(g.size, g.pooled)
        yield Call("place (no window)", lambda b: (b.place(values, indices, h),), (values, indices))


def adaptive_calls(shape: tuple[int, ...], dtype: mx.Dtype, pooled_by: Any) -> Iterator[Call]:
    """Calls of the primitives for windows of different sizes: adaptive pooling to two thirds of the size."""
    size: Triple = shape[1:4]
    g = adaptive_geometry(size, tuple(-(-2 * n // 3) for n in size))
    assert isinstance(g, AdaptiveGeometry)
    x = mx.random.normal(shape, key=mx.random.key(0)).astype(dtype)
    ends = bounds_array(g.bounds_table, g.ends, g.pooled)[None, ..., None]
    bounds = mx.broadcast_to(ends, (shape[0], *ends.shape[1:]))
    values, indices = pooled_by.pool_regions(x, bounds, g, mx.int32)
    mx.eval(x, bounds, values, indices)
    yield Call("pool", lambda b: b.pool_regions(x, bounds, g, mx.int32), (x,))
    yield Call("accumulate", lambda b: (b.accumulate(values, indices, g),), (values, indices))


def agrees(call: Call, backend: Any, stream: Any) -> bool:
    """Whether a backend and plain operations give bit-identical results."""
    with mx.stream(mx.cpu):
        expected = call.run(_backends.get("ops"))
        mx.eval(expected)
    with mx.stream(stream):
        got = call.run(backend)
        mx.eval(got)
    with mx.stream(mx.cpu):
        bits = ((a.view(mx.uint8), b.view(mx.uint8)) for a, b in zip(got, expected, strict=True))
        return all(mx.array_equal(*pair).item() for pair in bits)


def gigabytes_per_second(call: Call, backend: Any) -> float:
    """Bytes of inputs and outputs per second, from the median time of a run."""
    outputs = call.run(backend)
    mx.eval(outputs)
    seconds = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        outputs = call.run(backend)
        mx.eval(outputs)
        seconds.append(time.perf_counter() - start)
    size = sum(x.nbytes for x in call.inputs) + sum(y.nbytes for y in outputs)
    return size / statistics.median(seconds) / 1e9


def check_gpu(name: str) -> int:
    """Compare the kernels of a GPU with plain operations, print the table and return the exit status."""
    ops, backend, stream = _backends.get("ops"), _backends.get(name), mx.default_stream(mx.gpu)
    print(_row("primitive", "window", "indices", "dtype", "agrees", "GB/s"))
    failures = 0
    kinds = [*itertools.product(_WINDOWS, (False, True)), ("adaptive", True)]
    for (label, flat), dtype in itertools.product(kinds, _DTYPES):
        if label == "adaptive":
            make = functools.partial(adaptive_calls, dtype=dtype)
        else:
            window = window_of("selftest", 2, *_WINDOWS[label], 1)
            make = functools.partial(calls, dtype=dtype, window=window, flat=flat)
        with mx.stream(mx.cpu):
            small = [list(make(shape, pooled_by=ops)) for shape in _SMALL]
        with mx.stream(stream):
            big = list(make(_BIG, pooled_by=backend))
        for *parity, speed in zip(*small, big, strict=True):
            good = all(agrees(call, backend, stream) for call in parity)
            failures += not good
            with mx.stream(stream):
                rate = gigabytes_per_second(speed, backend)
            indices, answer = "flat" if flat else "window", "yes" if good else "NO"
            print(
                _row(speed.name, label, indices, _short(dtype), answer, f"{rate:.0f}"), flush=True
            )
    with mx.stream(stream):
        x = mx.random.normal(_BIG)
        rate = gigabytes_per_second(Call("x + 1", lambda _: (x + 1,), (x,)), backend)
    print(_row("x + 1, reference", "", "", "float32", "", f"{rate:.0f}"))
    print(f"\n{f'{failures} DO NOT AGREE.' if failures else 'All agree.'}")
    return int(failures > 0)


def _row(*cells: str) -> str:
    widths = (17, 8, 7, 8, 6, 5)
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def print_versions(**more: str) -> None:
    """Print the versions and the system, then ``more``: one name and value per line."""
    lines = {"mlx_unpool": __version__, "mlx": version("mlx"), "Python": platform.python_version()}
    for name, value in (lines | {"system": platform.platform()} | more).items():
        print(f"{name:12}{value}")
    print(flush=True)


def device_name(device: Any) -> str:
    """The name and architecture of a device, such as the model of a chip."""
    info = mx.device_info(device)
    return f"{info.get('device_name', 'unknown device')} {info.get('architecture', '')}".rstrip()


def main(arguments: list[str] | None = None) -> int:
    """Print the report and return the exit status."""
    summary, details, status = (__doc__ or "").strip().split("\n\n")
    argparse.ArgumentParser(
        prog="python -m mlx_unpool.selftest",
        description=summary + "\n\n" + details,
        epilog=status,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args(arguments)
    print("```text")  # a Markdown code block
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


def _short(dtype: mx.Dtype) -> str:
    return str(dtype).removeprefix("mlx.core.")


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        mx.clear_streams()  # otherwise MLX may crash when the interpreter exits
