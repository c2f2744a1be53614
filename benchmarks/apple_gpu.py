"""Analyses the Metal kernels as machine code of an Apple GPU: instructions, registers and estimated time.

    python benchmarks/apple_gpu.py                       print the tables of APPLE_GPU.md
    python benchmarks/apple_gpu.py --write               write the tables into the page
    python benchmarks/apple_gpu.py --rows "NCHW 8 2x2"   only rows that match this regular expression

Mesa's compiler for the GPUs of M1 and M2 compiles the source that MLX passes to Metal, and an interpreter
runs the machine code (``agx/``). Counts are the same on every machine. Cycles and ratios are estimates, which
the page explains. The compiler must be in $AGX_TOOLS or in ../shared/agx; ``agx/recipe`` builds it.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import prod
from multiprocessing import get_context
from pathlib import Path

import mlx.core as mx
import traffic
from agx import replay, toolchain

import mlx_unpool

import emulator  # isort: skip  (traffic adds its folder to the path)
import metal_host  # isort: skip

PAGE = Path(__file__).with_name("APPLE_GPU.md")
BEGIN, END = "<!-- table: python benchmarks/apple_gpu.py --write -->", "<!-- end of table -->"
# Bytes per cycle that memory moves for one SIMD unit, from published numbers. A core has 4 SIMD units:
# GB/s / (cores * 4 * GHz).
MACHINES = {
    "M1": 68.25 / (8 * 4 * 1.278),
    "M1 Max": 400 / (32 * 4 * 1.296),
    "M2 Max": 400 / (38 * 4 * 1.398),
    "M4 Max": 546 / (40 * 4 * 1.578),
}
DTYPES = ("f32", "f16")
FORMATS = ("window", "flat")
LAYOUTS = ("NHWC 64", "NHWC 3", "NCHW 8")
GLOBAL = "1-D 1024/1024"
GLOBAL_ADAPTIVE = "adaptive 1x1"
SAMPLES = 12  # SIMD groups that are run per launch; fewer for windows as large as the plane, which are slow
GLOBAL_SAMPLES = 2


@dataclass(frozen=True)
class Call:
    """The call of a row: a primitive with a layout, windows, an index format and a dtype."""

    layout: str
    windows: str
    index_format: str
    primitive: str
    dtype: str

    def __str__(self) -> str:
        return " ".join(vars(self).values())

    def make(self) -> Callable[[], object]:
        """A function that makes the call."""
        if self.windows in (GLOBAL, GLOBAL_ADAPTIVE):
            return _global_call(self)
        if self.windows in traffic.IRREGULAR:
            return traffic.irregular_call_of(self.primitive, self.windows, self.layout, self.dtype)
        return traffic.call_of(
            self.primitive, self.windows, self.layout, self.dtype, self.index_format
        )


@dataclass(frozen=True)
class Row:
    """The counts of one launch of a call. Instructions, cycles and bytes are per SIMD group."""

    call: Call
    kernel: str
    instructions: float
    cycles: float
    registers: int
    threads: int  # that one core can run at the same time
    spills: int
    code: int  # bytes
    loads: tuple[tuple[str, float], ...]  # (width, count)
    stores: tuple[tuple[str, float], ...]
    bytes: float  # size of the arrays of the launch, per SIMD group
    wrong: int  # bytes of outputs that differ from those of the emulated device

    def ratio(self, machine: str) -> float:
        """The estimated time of the instructions divided by the time of the bytes at peak bandwidth."""
        return self.cycles * MACHINES[machine] / self.bytes


def calls() -> list[Call]:
    """The calls of the first table, whose figures the tests limit."""
    regular = [
        Call(layout, window, index_format, primitive, dtype)
        for layout in LAYOUTS
        for window in traffic.WINDOWS
        for index_format in FORMATS
        for primitive in traffic.PRIMITIVES
        for dtype in DTYPES
    ]
    irregular = [
        Call(layout, windows, "flat", primitive, dtype)
        for layout in ("NHWC 64", "NCHW 8")
        for windows in ("adaptive 25x25",)
        for primitive in ("pool", "accumulate")
        for dtype in DTYPES
    ]
    return regular + irregular


def large_calls() -> list[Call]:
    """Calls with larger windows, whose loops the kernels do not unroll completely."""
    return [
        Call("NHWC 64", window, index_format, primitive, dtype)
        for window in traffic.LARGE_WINDOWS
        for index_format in FORMATS
        for primitive in traffic.PRIMITIVES
        for dtype in DTYPES
        # Mesa's compiler crashes on the unrolled version of this kernel.
        if (window, index_format, primitive) != ("5x5/3", "flat", "place")
    ]


def further_calls() -> list[Call]:
    """Calls that are not in the first table: fractional windows, and windows as large as the plane."""
    both = ("NHWC 64", "NCHW 8")
    return [
        *(
            Call(layout, "fractional 2x2, 40x40", "flat", primitive, dtype)
            for layout in both
            for primitive in ("pool", "accumulate")
            for dtype in DTYPES
        ),
        *(
            Call(layout, GLOBAL, index_format, primitive, dtype)
            for layout in both
            for index_format in FORMATS
            for primitive in ("pool", "place", "accumulate")
            for dtype in DTYPES
        ),
        *(
            Call(layout, GLOBAL_ADAPTIVE, "flat", primitive, dtype)
            for layout in both
            for primitive in ("pool", "accumulate")
            for dtype in DTYPES
        ),
    ]


def _global_call(call: Call) -> Callable[[], object]:
    """A call with windows as large as the plane: pool, unpool or the gradient of the pool."""
    data_format, channels = traffic.LAYOUTS[call.layout]
    size = (4096,) if call.windows == GLOBAL else (56, 56)
    shape = (1, *size, channels) if data_format == "channels_last" else (1, channels, *size)
    x = mx.random.normal(shape, key=mx.random.key(0)).astype(traffic.DTYPES[call.dtype])
    layout = {"data_format": data_format}

    def pool(x: mx.array) -> tuple[mx.array, mx.array]:
        if call.windows == GLOBAL_ADAPTIVE:
            return mlx_unpool.adaptive_max_pool2d(x, 1, return_indices=True, **layout)
        return mlx_unpool.max_pool1d(
            x, 1024, return_indices=True, index_format=call.index_format, **layout
        )

    values, indices = pool(x)  # runs on the CPU
    mx.eval(x, values, indices)
    return {
        "pool": lambda: pool(x),
        "place": lambda: mlx_unpool.max_unpool1d(values, indices, 1024, output_size=size, **layout),
        "accumulate": lambda: mx.vjp(lambda x: pool(x)[0], [x], [values])[1],
    }[call.primitive]


def _launches(chosen: Sequence[Call]) -> Iterator[tuple[Call, str, emulator.Kept]]:
    """The launches of calls: the call, the name of the row, and the arrays of the emulated device."""
    made = {call: call.make() for call in chosen}
    emulator.compile_all(list(made.values()))
    for call, function in made.items():
        device = emulator.Emulator()
        device.count = device.keep = True
        with device.installed():
            mx.eval(function())
        for kept in device.kept:
            kernel = kernel_of(kept.launch)
            # A kernel that several primitives use has rows for one of them only, such as `pool` for `pool`.
            if kernel == "outside_window" and call.primitive != "place":
                continue
            if kernel == "outside_winners":
                continue
            if kernel.startswith("pool") and call.primitive != "pool":
                continue
            yield call, call.primitive if kernel in ("place", "pick") else kernel, kept


def kernel_of(launch: metal_host.Launch) -> str:
    """The name of the kernel that a launch runs: pool, place, ..."""
    return launch.name.removeprefix("custom_kernel_unpool_").split("__")[0]


def _rows(chosen: Sequence[Call], passes: Sequence[str], samples: int) -> dict[str, list[Row]]:
    seen = list(_launches(chosen))
    tables: dict[str, list[Row]] = {}
    for name in passes:
        compiled = toolchain.Compiled([kept.launch for _, _, kept in seen], name)
        tables[name] = [_row(compiled, *one, samples) for one in seen]
    return tables


def _row(
    compiled: toolchain.Compiled, call: Call, kernel: str, kept: emulator.Kept, samples: int
) -> Row:
    launch, report = kept.launch, kept.report
    statistics = compiled.statistics(launch)
    replayed = replay.Replay(compiled, kept)
    whole = call.windows in (GLOBAL, GLOBAL_ADAPTIVE)
    groups = replayed.run(GLOBAL_SAMPLES if whole else samples)
    counts = {key: n / groups for key, n in replayed.machine.counts.items()}
    constant = {p["name"] for p in launch.parameters if "constant" in p["type"].split()}
    unique = sum(
        traffic_["unique_bytes"]
        for (name, _), traffic_ in report.traffic.items()
        if name not in constant
    )

    def widths(direction: str) -> tuple[tuple[str, float], ...]:
        found = [(key, n) for key, n in sorted(counts.items()) if key.startswith(f"{direction} ")]
        return tuple((key.removeprefix(f"{direction} "), n) for key, n in found)

    return Row(
        call=call,
        kernel=kernel,
        instructions=counts["issued"],
        cycles=max(counts["slots"], counts.get("integer cycles", 0)),
        registers=statistics["regs"] + 1,
        threads=statistics["threads"],
        spills=statistics["spills"] + statistics["fills"] + statistics["scratch"],
        code=statistics["bytes"],
        loads=widths("load"),
        stores=widths("store"),
        bytes=unique / len(replay.simd_groups(launch)),
        # Results of atomic operations depend on all threads, but only some of them run here.
        wrong=0 if launch.init_value is not None else replayed.wrong_bytes(partly=True),
    )


def measure(
    chosen: Sequence[Call],
    passes: Sequence[str] = ("llvm",),
    processes: int | None = None,
    samples: int = SAMPLES,
) -> dict[str, list[Row]]:
    """The rows of these calls in their order, for each value of ``passes``.

    ``passes``: how LLVM prepares the code, keys of ``toolchain.PASSES``.
    ``samples``: the number of SIMD groups that are run per launch.
    """
    processes = min(processes or os.cpu_count() or 1, len(chosen))
    if processes <= 1:
        return _rows(chosen, passes, samples)
    parts = [chosen[n::processes] for n in range(processes)]
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        tables = list(pool.map(_rows, parts, [passes] * processes, [samples] * processes))
    order = {call: n for n, call in enumerate(chosen)}
    return {
        name: sorted((row for table in tables for row in table[name]), key=lambda r: order[r.call])
        for name in passes
    }


def geometric_mean(ratios: Sequence[float]) -> float:
    """The geometric mean of ratios."""
    return prod(ratio ** (1 / len(ratios)) for ratio in ratios)


def summary(rows: Sequence[Row], machine: str = "M1 Max") -> dict[str, float]:
    """The figures of the first table."""
    ratios = [row.ratio(machine) for row in rows]
    return {
        "geometric mean": geometric_mean(ratios),
        "rows above 1": sum(ratio > 1 for ratio in ratios),
        "highest": max(ratios),
        "fewer than 1,024 threads": sum(row.threads < 1024 for row in rows),
        "code above 12 KB": sum(row.code > 12 * 1024 for row in rows),
        "spills": sum(row.spills > 0 for row in rows),
        "wrong": sum(row.wrong for row in rows),
    }


def _table(tables: dict[str, list[Row]]) -> Iterator[str]:
    yield (
        "| layout | windows | indices | kernel | type | instructions | cycles | registers | threads "
        "| code in KB | loads | stores | bytes | "
        + " | ".join(MACHINES)
        + " | M1 Max, loops kept |"
    )
    yield "|" + "---|" * (14 + len(MACHINES))
    for row, rolled in zip(tables["llvm"], tables["none"], strict=True):
        call = row.call
        moved = (
            " ".join(f"{n:.0f} x {w}" for w, n in way) or "-" for way in (row.loads, row.stores)
        )
        cells = [
            *(call.layout, call.windows, call.index_format, row.kernel, call.dtype),
            *(f"{row.instructions:.0f}", f"{row.cycles:.0f}", row.registers, row.threads),
            *(f"{row.code / 1024:.1f}", *moved, f"{row.bytes:.0f}"),
            *(f"{row.ratio(machine):.2f}" for machine in MACHINES),
            f"{rolled.ratio('M1 Max'):.2f}",
        ]
        yield "| " + " | ".join(map(str, cells)) + " |"


def _summaries(tables: dict[str, list[Row]]) -> Iterator[str]:
    counted = set(calls())
    found = {name: summary([r for r in rows if r.call in counted]) for name, rows in tables.items()}
    number = sum(row.call in counted for row in tables["llvm"])
    yield f"| {number} rows, M1 Max | unrolled (`llvm`) | loops kept (`none`) |"
    yield "|---|---|---|"
    for key in found["llvm"]:
        if key == "wrong":
            continue
        shown = (
            f"{s[key]:.2f}" if isinstance(s[key], float) else f"{s[key]}" for s in found.values()
        )
        yield f"| {key} | {' | '.join(shown)} |"


def main() -> None:
    """Prints the tables or writes them into the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--rows", default="", help="print only rows that match this regular expression"
    )
    parser.add_argument("--write", action="store_true", help="write all rows into APPLE_GPU.md")
    parser.add_argument(
        "--processes", type=int, help="number of processes (default: number of cores)"
    )
    options = parser.parse_args()
    if missing := toolchain.missing():
        sys.exit(missing)
    chosen = [
        call
        for call in calls() + large_calls() + further_calls()
        if re.search(options.rows, str(call))
    ]
    if not chosen or (options.write and options.rows):
        sys.exit("no row matches" if not chosen else "--write cannot be combined with --rows")
    tables = measure(chosen, ("llvm", "none"), options.processes)
    if wrong := [row for rows in tables.values() for row in rows if row.wrong]:
        sys.exit(
            "\n".join(
                f"{row.call} {row.kernel}: {row.wrong} bytes differ from the emulated device"
                for row in wrong
            )
        )
    lines = list(_table(tables))
    if any(call in set(calls()) for call in chosen):
        lines = [*_summaries(tables), "", *lines]
    if not options.write:
        print("\n".join(lines))
        return
    page = PAGE.read_text()
    before, after = page[: page.index(BEGIN)], page[page.index(END) :]
    PAGE.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{after}")


if __name__ == "__main__":
    main()
