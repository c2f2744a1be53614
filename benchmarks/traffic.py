"""Counts the 128-byte lines of memory that the Metal kernels access, relative to the minimum.

    python benchmarks/traffic.py            print the tables of TRAFFIC.md
    python benchmarks/traffic.py --write    write the tables into the page

The source that MLX passes to Metal runs on the CPU, and every access is counted (see tests/metal). The counts
are the same on every machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import mlx.core as mx

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "metal"))

import emulator
import metal_host

import mlx_unpool

DTYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}
WINDOWS = {  # name: (rank, kernel_size, stride, padding)
    "2x2/2": (2, 2, 2, 0),
    "3x3/2": (2, 3, 2, 1),
    "3x3/1": (2, 3, 1, 1),
    "2x2x2/2": (3, 2, 2, 0),
}
LARGE_WINDOWS = {  # up to 64 elements
    "5x5/1": (2, 5, 1, 2),
    "5x5/3": (2, 5, 3, 2),
    "7x7/2": (2, 7, 2, 3),
    "8x8/1": (2, 8, 1, 4),
    "3x3x3/1": (3, 3, 1, 1),
    "4x4x4/1": (3, 4, 1, 2),
}
LAYOUTS = {  # name: (data_format, channels)
    "NHWC 64": ("channels_last", 64),
    "NHWC 3": ("channels_last", 3),
    "NHWC 1": ("channels_last", 1),
    "NCHW 8": ("channels_first", 8),
}
PRIMITIVES = ("pool", "place", "accumulate", "pick", "pick_winners")
IRREGULAR = {"adaptive 25x25": 25, "adaptive 40x40": 40, "fractional 2x2, 40x40": 40}
# Arrays that one kernel passes to the next. Those of large windows, which no row has, are not listed.
INTERMEDIATE = ("outside_window", "winner_bits", "winner")
PAGE = Path(__file__).with_name("TRAFFIC.md")
END = "<!-- end of table -->"
BEGIN = {
    "regular": "<!-- table: python benchmarks/traffic.py --write -->",
    "irregular": "<!-- table of unequal windows: python benchmarks/traffic.py --write -->",
}
LINE = 128


class Figures(NamedTuple):
    """Bytes of the accessed lines divided by the size of the inputs and outputs of a call."""

    simd_group: float  # a line counts once for each SIMD group of 32 threads that accesses it
    threadgroup: float  # a line counts once for each threadgroup, as with a perfect cache
    flags: float  # the part of simd_group that belongs to intermediate arrays


def measure(call: Callable[[], object]) -> Figures:
    """The figures of one call, with all of its kernels."""
    device = emulator.Emulator(count=True)
    with device.installed():
        call()
    return figures(device.launches, device.reports)


def figures(launches: list[metal_host.Launch], reports: list[metal_host.Report]) -> Figures:
    """The sum over the launches of one call.

    Shapes and arrays of fewer than 8 elements are in Metal's constant memory and are not counted. An input
    that two kernels read counts twice as accessed and once in the size. Intermediate arrays count as accessed
    only.
    """
    simd = group = flags = 0
    unique: dict[tuple[str, str], int] = {}
    for launch, report in zip(launches, reports, strict=True):
        constant = {p["name"] for p in launch.parameters if "constant" in p["type"].split()}
        for (name, direction), traffic in report.traffic.items():
            if name in constant:
                continue
            simd += traffic["simd_lines"] * LINE
            group += traffic["group_lines"] * LINE
            if name in INTERMEDIATE:
                flags += traffic["simd_lines"] * LINE
            else:
                key = (name, direction)
                unique[key] = max(unique.get(key, 0), traffic["unique_bytes"])
    total = sum(unique.values())
    return Figures(simd / total, group / total, flags / total)


def call_of(
    primitive: str, window: str, layout: str, dtype: str, index_format: str
) -> Callable[[], object]:
    """A call of the public API or of a derivative, on planes of 56x56 (3-D: 8x28x28)."""
    rank, *parameters = {**WINDOWS, **LARGE_WINDOWS}[window]
    data_format, channels = LAYOUTS[layout]
    size = (56, 56) if rank == 2 else (8, 28, 28)
    shape = (1, *size, channels) if data_format == "channels_last" else (1, channels, *size)
    pool_function = getattr(mlx_unpool, f"max_pool{rank}d")
    unpool_function = getattr(mlx_unpool, f"max_unpool{rank}d")
    x = mx.random.normal(shape, key=mx.random.key(0)).astype(DTYPES[dtype])

    def pool(x: mx.array) -> tuple[mx.array, mx.array]:
        return pool_function(
            x, *parameters, return_indices=True, index_format=index_format, data_format=data_format
        )

    def unpool(values: mx.array, indices: mx.array) -> mx.array:
        return unpool_function(
            values, indices, *parameters, output_size=size, data_format=data_format
        )

    from mlx_unpool import _backends, _layout
    from mlx_unpool._geometry import WindowGeometry
    from mlx_unpool._requests import window_of

    values, indices = pool(x)  # runs on the CPU
    mx.eval(x, values, indices)
    folding = _layout.Layout.of("", "", x.shape, rank, data_format == "channels_first")
    full, pooled, positions = folding.fold(x), folding.fold(values), folding.fold(indices)
    g = WindowGeometry(full.shape[1:4], pooled.shape[1:4], window_of("", rank, *parameters))
    metal = _backends.get("metal")
    return {
        "pool": lambda: pool(x),
        "place": lambda: unpool(values, indices),
        "accumulate": lambda: metal.accumulate(pooled, positions, g),
        "pick": lambda: metal.pick(full, positions, g),
        "pick_winners": lambda: metal.pick_winners(full, positions, g),
    }[primitive]


def irregular_call_of(
    primitive: str, windows: str, layout: str, dtype: str
) -> Callable[[], object]:
    """A call of adaptive or fractional pooling on planes of 56x56, or of its derivative."""
    from mlx_unpool import _backends, _geometry, _layout

    data_format, channels = LAYOUTS[layout]
    shape = (1, 56, 56, channels) if data_format == "channels_last" else (1, channels, 56, 56)
    x = mx.random.normal(shape, key=mx.random.key(0)).astype(DTYPES[dtype])
    count = IRREGULAR[windows]
    size, cells = (1, 56, 56), (1, count, count)
    options = {"return_indices": True, "data_format": data_format}

    def pool() -> tuple[mx.array, mx.array]:
        if windows.startswith("adaptive"):
            return mlx_unpool.adaptive_max_pool2d(x, count, **options)
        return mlx_unpool.fractional_max_pool2d(
            x, 2, output_size=count, key=mx.random.key(1), **options
        )

    if primitive == "pool":
        return pool
    values, indices = pool()  # runs on the CPU
    mx.eval(x, values, indices)
    folding = _layout.Layout.of("", "", x.shape, 2, data_format == "channels_first")
    if windows.startswith("adaptive"):
        g: _geometry.Geometry = _geometry.adaptive_geometry(size, cells)
    else:
        g = _geometry.fractional_geometry(size, cells, (1, 2, 2))
    metal = _backends.get("metal")
    return lambda: metal.accumulate(folding.fold(values), folding.fold(indices), g)


def irregular_rows() -> list[tuple[str, str, str]]:
    """The (layout, windows, primitive) of each row of the second table."""
    return [
        (layout, windows, primitive)
        for layout in ("NHWC 64", "NCHW 8")
        for windows in IRREGULAR
        for primitive in ("pool", "accumulate")
    ]


def rows() -> list[tuple[str, str, str, str]]:
    """The (layout, window, index format, primitive) of each row of the first table."""
    return [
        (layout, window, index_format, primitive)
        for layout in LAYOUTS
        for window in (WINDOWS if layout == "NHWC 64" else ("2x2/2", "3x3/2"))
        for index_format in ("window", "flat")
        for primitive in PRIMITIVES
    ]


def tables() -> dict[str, list[str]]:
    """The lines of both tables."""
    emulator.compile_all(
        [call_of(p, w, layout, d, i) for layout, w, i, p in rows() for d in DTYPES]
        + [irregular_call_of(p, w, layout, d) for layout, w, p in irregular_rows() for d in DTYPES]
    )

    def line(names: tuple[str, ...], calls: list[Callable[[], object]]) -> str:
        cells = [f"{f.simd_group:.2f} / {f.threadgroup:.2f}" for f in map(measure, calls)]
        return f"| {' | '.join((*names, *cells))} |"

    return {
        "regular": [
            f"| layout | window | indices | primitive | {' | '.join(DTYPES)} |",
            "|---|---|---|---|" + "---|" * len(DTYPES),
            *(
                line(row, [call_of(row[3], row[1], row[0], d, row[2]) for d in DTYPES])
                for row in rows()
            ),
        ],
        "irregular": [
            f"| layout | windows | primitive | {' | '.join(DTYPES)} |",
            "|---|---|---|" + "---|" * len(DTYPES),
            *(
                line(row, [irregular_call_of(row[2], row[1], row[0], d) for d in DTYPES])
                for row in irregular_rows()
            ),
        ],
    }


def main() -> None:
    """Prints the tables or writes them into the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the result into TRAFFIC.md")
    options = parser.parse_args()
    made = tables()
    if not options.write:
        print("\n\n".join("\n".join(lines) for lines in made.values()))
        return
    page = PAGE.read_text()
    for name, lines in made.items():
        start = page.index(BEGIN[name])
        rest = page[page.index(END, start) :]
        page = page[:start] + "\n\n".join([BEGIN[name], "\n".join(lines), rest])
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
