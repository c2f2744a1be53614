"""How wide the CUDA kernels' loads and stores are, seen in their machine code: one element at a time."""

from __future__ import annotations

import os
import sys

import cuda_loads
import cuda_text
import pytest


@pytest.fixture(scope="module")
def counts() -> list:
    missing = cuda_text.compiler_missing()
    if not missing and cuda_text.disassembler() is None:
        missing = "nvdisasm is not here (extra 'cuda-check')"
    if missing:
        if os.environ.get("CI") == "true" and sys.platform == "linux":
            pytest.fail(missing)
        pytest.skip(missing)
    return cuda_loads.counts()


def test_every_kernel_has_its_row(counts):
    kernels = {row[-1] for row, _ in counts}
    assert kernels >= {"pool", "place", "accumulate", "pick", "stray"}
    assert all(sum(found.values()) > 0 for _, found in counts)


def test_every_load_and_store_moves_one_element(counts):
    """A text that moves more fails here, and then ``benchmarks/CUDA.md`` has to say so."""
    for row, found in counts:
        index_format, dtype = row[2:4]
        # Shapes, flat indices and bitmaps have 4 bytes, window offsets one.
        sizes = {4, {"f32": 4, "f16": 2}[dtype], *([1] if index_format == "window" else [])}
        assert {int(name.split()[1]) for name in found} <= sizes, (row, found)


def test_a_thread_stores_each_of_its_elements_by_itself(counts):
    """So there are as many stores as a thread has pooled values: 16 bytes of channels for NHWC 64."""
    found = dict(counts)
    for dtype, size, number in (("f32", 4, 4), ("f16", 2, 8)):
        widths = found["NHWC 64", "2x2/2", "window", dtype, "pool"]
        assert widths[f"store {size}"] == number
        assert widths["store 1"] == number  # its indices
