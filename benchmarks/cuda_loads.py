"""Counts the loads and stores of the CUDA kernels by width, in machine code for an A100. No GPU is needed.

    python benchmarks/cuda_loads.py            print the table of CUDA.md
    python benchmarks/cuda_loads.py --write    write the table into the page

NVIDIA's compiler and disassembler are installed from PyPI (extra ``cuda-check``). Each instruction of the
machine code counts once, also in a loop. Instructions for arrays that are not aligned are included.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "cuda"))

import cuda_text

import mlx_unpool

PAGE = Path(__file__).with_name("CUDA.md")
BEGIN, END = "<!-- table: python benchmarks/cuda_loads.py --write -->", "<!-- end of table -->"
ARCHITECTURE = "sm_80"
LAYOUTS = {
    "NHWC 64": ((1, 56, 56, 64), "channels_last"),
    "NHWC 3": ((1, 56, 56, 3), "channels_last"),
    "NCHW": ((1, 8, 56, 56), "channels_first"),
}
WINDOWS = {"2x2/2": (2, 2, 0), "3x3/2": (3, 2, 1)}
DTYPES = {"f32": mx.float32, "f16": mx.float16}
Row = tuple[str, str, str, str, str]  # (layout, window, index format, dtype, kernel)


def launches() -> Iterator[tuple[Row, cuda_text.Launch]]:
    """The launches of pooling, unpooling and their derivatives, one per kernel."""
    for layout, window, index_format, dtype in itertools.product(
        LAYOUTS, WINDOWS, ("window", "flat"), DTYPES
    ):
        shape, data_format = LAYOUTS[layout]
        size = shape[1:3] if data_format == "channels_last" else shape[2:]
        parameters, options = WINDOWS[window], {"data_format": data_format}
        x = mx.zeros(shape, DTYPES[dtype])

        def pool(x, parameters=parameters, options=options, index_format=index_format):
            return mlx_unpool.max_pool2d(
                x, *parameters, return_indices=True, index_format=index_format, **options
            )

        def unpool(values, indices, parameters=parameters, options=options, size=size):
            return mlx_unpool.max_unpool2d(
                values, indices, *parameters, output_size=size, **options
            )

        recorder = cuda_text.Emulator(record=True)
        with recorder.installed():
            values, indices = pool(x)
            unpool(values, indices)
            mx.vjp(lambda x, pool=pool: pool(x)[0], [x], [values])
            mx.vjp(lambda v, i=indices, unpool=unpool: unpool(v, i), [values], [x])
        seen = set()
        for launch in recorder.launches:
            if launch.function not in seen:
                seen.add(launch.function)
                name = "accumulate" if dict(launch.template).get("SUM") else launch.body
                yield (layout, window, index_format, dtype, name), launch


def counts() -> list[tuple[Row, Counter[str]]]:
    """The numbers of loads and stores of each kernel, by width in bytes."""
    rows, found = zip(*launches())
    return list(zip(rows, cuda_text.memory_instructions(list(found), ARCHITECTURE)))


def table() -> Iterator[str]:
    """The lines of the table."""
    yield (
        "| layout | window | indices | type | kernel "
        "| loads: 16 bytes | 8 | 4 | 2 | 1 | stores: 16 | 8 | 4 | 2 | 1 |"
    )
    yield "|" + "---|" * 15
    for row, found in counts():
        cells = [found[f"{way} {size}"] for way in ("load", "store") for size in (16, 8, 4, 2, 1)]
        yield f"| {' | '.join(row)} | {' | '.join(str(n or '') for n in cells)} |"


def main() -> None:
    """Prints the table or writes it into the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the result into CUDA.md")
    options = parser.parse_args()
    if cuda_text.compiler() is None or cuda_text.disassembler() is None:
        sys.exit(
            "NVIDIA's compiler or disassembler is missing: pip install 'mlx-unpool[cuda-check]'"
        )
    lines = "\n".join(table())
    if not options.write:
        print(lines)
        return
    page = PAGE.read_text()
    before, after = page[: page.index(BEGIN)], page[page.index(END) :]
    PAGE.write_text(f"{before}{BEGIN}\n\n{lines}\n\n{after}")


if __name__ == "__main__":
    main()
