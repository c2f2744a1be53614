"""The memory traffic of the kernels, counted: the bars that they keep and the table of the page about it."""

from __future__ import annotations

from pathlib import Path

import emulator
import pytest
import traffic

PAGE = Path(traffic.__file__).with_name("TRAFFIC.md")

# Lines that a SIMD group touches, over unique bytes: layout, window, indices, primitives, bar.
BARS = [
    ("NHWC 64", "2x2/2", "window", ("pool", "place", "accumulate"), 1.15),
    ("NHWC 64", "2x2x2/2", "window", ("pool", "place", "accumulate"), 1.15),
    ("NHWC 64", "2x2/2", "flat", ("pool", "place", "accumulate"), 1.35),
    ("NHWC 64", "2x2x2/2", "flat", ("pool", "place", "accumulate"), 1.35),
    ("NHWC 64", "3x3/2", "window", ("place", "accumulate"), 2.0),
    ("NHWC 64", "3x3/2", "flat", ("place", "accumulate"), 2.0),
    ("NCHW 8", "2x2/2", "window", ("pool", "place"), 2.5),
]


@pytest.mark.parametrize(("layout", "window", "index_format", "primitives", "bar"), BARS)
def test_simd_groups_touch_few_lines_twice(layout, window, index_format, primitives, bar):
    for primitive in primitives:
        for dtype in traffic.DTYPES:
            call = traffic.call_of(primitive, window, layout, dtype, index_format)
            emulator.compile_all([call])
            assert traffic.measure(call).simd_group <= bar, (primitive, dtype)


def test_threadgroups_of_channels_first_planes_touch_few_lines_twice():
    for primitive in ("pool", "place"):
        for dtype in traffic.DTYPES:
            call = traffic.call_of(primitive, "2x2/2", "NCHW 8", dtype, "window")
            assert traffic.measure(call).threadgroup <= 1.15, (primitive, dtype)


def test_the_page_shows_what_is_counted():
    page = PAGE.read_text().splitlines()
    wanted = [row for row in traffic.rows() if row[0] == "NHWC 64" and row[3] in ("pool", "place")]
    for layout, window, index_format, primitive in wanted:
        cells = [layout, window, index_format, primitive]
        for dtype in traffic.DTYPES:
            figures = traffic.measure(
                traffic.call_of(primitive, window, layout, dtype, index_format)
            )
            cells.append(f"{figures.simd_group:.2f} / {figures.threadgroup:.2f}")
        assert f"| {' | '.join(cells)} |" in page
    for layout, windows, primitive in traffic.irregular_rows()[:6]:
        cells = [layout, windows, primitive]
        for dtype in traffic.DTYPES:
            figures = traffic.measure(traffic.irregular_call_of(primitive, windows, layout, dtype))
            cells.append(f"{figures.simd_group:.2f} / {figures.threadgroup:.2f}")
        assert f"| {' | '.join(cells)} |" in page
