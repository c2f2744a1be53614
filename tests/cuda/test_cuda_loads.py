"""The machine code of the CUDA kernels loads and stores up to 16 bytes at once.

It contains every access twice: by words, and element by element for arrays that are not aligned.
"""

from __future__ import annotations

from collections import Counter

import cuda_loads
import cuda_text
import pytest
from needs import needed

SIZES = {"f32": 4, "f16": 2}
# The loads and stores of 16 bytes of values and outputs per thread, with 64 channels and 2 x 2 windows
WORDS = {"pool": (4, 1), "place": (1, 4), "accumulate": (1, 4), "pick": (0, 1)}
every_kernel_and_dtype = pytest.mark.parametrize(
    ("kernel", "dtype"), [(kernel, dtype) for kernel in WORDS for dtype in SIZES]
)


@pytest.fixture(scope="module")
def counts() -> dict[cuda_loads.Row, Counter[str]]:
    missing = cuda_text.compiler_missing()
    if not missing and cuda_text.disassembler() is None:
        missing = "nvdisasm is not here (extra 'cuda-check')"
    needed(missing)
    return dict(cuda_loads.counts())


def test_every_kernel_has_its_row(counts):
    assert {row[-1] for row in counts} >= {*WORDS, "outside_window"}
    assert all(sum(found.values()) > 0 for found in counts.values())


def test_what_a_thread_has_stays_in_registers(counts):
    assert [row for row, found in counts.items() if found["local"]] == []


@every_kernel_and_dtype
def test_values_move_16_bytes_at_once(kernel, dtype, counts):
    found = counts["NHWC 64", "2x2/2", "window", dtype, kernel]
    assert (found["load 16"], found["store 16"]) == WORDS[kernel]


@every_kernel_and_dtype
def test_window_offsets_of_all_channels_move_at_once(kernel, dtype, counts):
    found = counts["NHWC 64", "2x2/2", "window", dtype, kernel]
    lanes, way = 16 // SIZES[dtype], "store" if kernel == "pool" else "load"
    if dtype == "f16":
        assert found[f"{way} 8"] == 1
    else:  # as wide as a value and as a size
        values = {"pool": 4, "pick": 4}.get(kernel, 4 + 3)
        assert found[f"{way} 4"] == values + 1
    assert found[f"{way} 1"] == lanes


@every_kernel_and_dtype
def test_flat_indices_move_16_bytes_at_once(kernel, dtype, counts):
    """An index has 4 bytes, so those of 8 channels are two words."""
    way = "store" if kernel == "pool" else "load"
    window, flat = (counts["NHWC 64", "2x2/2", f, dtype, kernel] for f in ("window", "flat"))
    assert flat[f"{way} 16"] - window[f"{way} 16"] == 4 // SIZES[dtype]


@every_kernel_and_dtype
def test_arrays_that_are_not_aligned_move_element_by_element(kernel, dtype, counts):
    found = counts["NHWC 64", "2x2/2", "window", dtype, kernel]
    for way, number in zip(("load", "store"), WORDS[kernel], strict=True):
        assert found[f"{way} {SIZES[dtype]}"] >= number * 16 // SIZES[dtype]


def test_rows_of_one_channel_move_in_words_as_well(counts):
    """A thread's columns are neighbours if windows do not overlap and rows consist of whole words."""
    found = counts["NCHW", "2x2/2", "window", "f32", "pool"]
    assert (found["load 16"], found["store 16"]) == (4, 1)
    overlapping = counts["NCHW", "3x3/2", "window", "f32", "pool"]
    assert overlapping["load 16"] == overlapping["load 8"] == 0


def test_three_channels_of_float32_are_no_word(counts):
    for (layout, _, _, dtype, _), found in counts.items():
        if (layout, dtype) == ("NHWC 3", "f32"):
            assert {int(name.split()[1]) for name in found} <= {4, 1}
