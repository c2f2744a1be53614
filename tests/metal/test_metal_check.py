"""``emulator.check`` finds mistakes in any kernel, as docs/testing_metal.md describes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import emulator
import mlx.core as mx
import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "testing_metal.md").read_text()
FIVE_LINES, DEFINITION = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_race_of_the_page_is_reported_as_the_page_shows():
    names: dict[str, Any] = {}
    exec(DEFINITION, names)
    found = emulator.check(lambda: names["reversed_sum"](mx.arange(64, dtype=mx.float32)))
    (said,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert {*said.splitlines()} <= {"...", *str(found).splitlines()}
    with pytest.raises(AssertionError):
        exec(FIVE_LINES, names)


X = mx.arange(65, dtype=mx.float32)


def kernel(source: str, shape: tuple[int, ...] = (64,), x: mx.array = X[:64]) -> mx.array:
    made = mx.fast.metal_kernel(
        name="mine",
        input_names=["x"],
        output_names=["out"],
        source=f"uint n = thread_position_in_grid.x; {source}",
    )
    return made(
        inputs=[x],
        grid=(64, 1, 1),
        threadgroup=(32, 1, 1),
        output_shapes=[shape],
        output_dtypes=[mx.float32],
    )[0]


@pytest.mark.parametrize(
    ("source", "traffic", "machine_code"),
    [
        ("out[n] = x[n] + 1.0f;", "x read 1.00, out write 1.00", "0 bytes differ"),
        ("out[n] = x_strides[0] + x_ndim + thread_index_in_simdgroup;", "out write", "supported"),
    ],
)
def test_a_correct_kernel_has_no_problem_and_its_costs_are_counted(source, traffic, machine_code):
    found = emulator.check(lambda: kernel(source))
    assert not found.problems
    assert traffic in str(found.traffic)
    assert machine_code in str(found.machine_code) or "no compiler" in str(found.machine_code)


@pytest.mark.parametrize(
    ("source", "shape", "expected"),
    [
        ("out[n] = x[n + 1];", (64,), "access out of bounds: thread 63, x, byte 256"),
        ("if (n != 3) out[n] = x[n];", (64,), "4 bytes unwritten: out"),
        ("out[n / 2] = x[n];", (32,), "second write to one place"),
        ("out[n] = x[n]; out[63 - n] = x[n];", (64,), "another result in shuffled order"),
        ("out[n] = float(int(n) << int(n + 20));", (64,), "undefined behaviour"),
        ("out[n] = *(const device long*)(x + n / 2 * 2) > 0;", (64,), "undefined behaviour"),
        ("out[n] = x[n] * 1e-30f * 1e-15f > 0.0f;", (64,), "another result with subnormal"),
    ],
)
def test_mistakes_are_reported(source, shape, expected):
    found = emulator.check(lambda: kernel(source, shape))
    assert any(expected in problem for problem in found.problems), str(found)


@pytest.mark.parametrize("first", [0, 1])
def test_a_load_that_needs_more_alignment_than_an_element_is_reported(first):
    mx.eval(X)
    four = "struct alignas(16) Four { float v[4]; }; out[n] = ((const device Four*)x)[n % 16].v[3];"
    found = emulator.check(lambda: kernel(four, x=X[first : first + 64]))
    reported = any("in natural order: undefined" in problem for problem in found.problems)
    assert reported == (first == 1)
