"""Where alignment allows it, CUDA kernels move 16 bytes at a time: seen in their machine code."""

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


@pytest.mark.xfail(strict=False, reason="kernels load and store element by element")
def test_sixteen_bytes_at_a_time_for_channels_of_whole_lanes(counts):
    narrow = []
    for (layout, window, index_format, dtype, kernel), found in counts:
        if layout != "NHWC 64" or kernel not in ("pool", "place", "accumulate"):
            continue
        # Every kernel that reads values reads them so, and every one writes its output so.
        if not found["load 16"] or not found["store 16"]:
            narrow.append((window, index_format, dtype, kernel, dict(found)))
    assert not narrow
