"""``emulator.check`` finds what is wrong with anybody's kernel, as docs/testing_metal.md says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import emulator
import mlx.core as mx
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing_metal.md"


def example() -> dict[str, Any]:
    """What the page's second block of Python defines."""
    _, definition = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(definition, names)
    return names


def test_the_race_of_the_page_is_caught_as_the_page_says():
    reversed_sum = example()["reversed_sum"]
    found = emulator.check(lambda: reversed_sum(mx.arange(64, dtype=mx.float32)))
    (said,) = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for line in said.splitlines():
        assert line == "..." or line in str(found).splitlines(), str(found)


def test_the_five_lines_of_the_page_run():
    five, _ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with pytest.raises(AssertionError):
        exec(five, {"mx": mx, **example()})


def kernel(source: str, x: mx.array, shape: tuple[int, ...] = (64,), **options: Any) -> mx.array:
    made = mx.fast.metal_kernel(
        name="mine", input_names=["x"], output_names=["out"], source=source, **options
    )
    return made(
        inputs=[x],
        grid=(64, 1, 1),
        threadgroup=(32, 1, 1),
        output_shapes=[shape],
        output_dtypes=[x.dtype],
    )[0]


POSITION = "uint n = thread_position_in_grid.x;"
X = mx.arange(64, dtype=mx.float32)


def test_a_sound_kernel_has_no_problem_and_its_costs_are_counted():
    found = emulator.check(lambda: kernel(f"{POSITION} out[n] = x[n] + 1.0f;", X))
    assert not found.problems
    (traffic,) = found.traffic
    assert "x read 1.00, out write 1.00" in traffic
    (machine_code,) = found.machine_code
    assert "0 bytes differ" in machine_code or "no compiler" in machine_code


@pytest.mark.parametrize(
    ("source", "options", "expected"),
    [
        ("out[n] = x[n + 1];", {}, "access out of bounds: thread 63, x, byte 256"),
        ("if (n != 3) out[n] = x[n];", {}, "4 bytes unwritten: out"),
        ("out[n / 2] = x[n];", {"shape": (32,)}, "second write to one place"),
        ("out[n] = x[n]; out[63 - n] = x[n];", {}, "another result in shuffled order"),
        ("out[n] = float(int(n) << int(n + 20));", {}, "undefined behaviour"),
        ("out[n] = *(const device int64_t*)(x + n / 2 * 2) > 0;", {}, "undefined behaviour"),
        ("out[n] = x[n] * 1e-30f * 1e-15f > 0.0f;", {}, "another result with subnormal numbers"),
        ("out[n] = x_strides[0] + x_ndim + thread_index_in_simdgroup;", {}, None),
    ],
)
def test_mistakes_are_named(source, options, expected):
    found = emulator.check(lambda: kernel(f"{POSITION} {source}", X, **options))
    if expected is None:
        assert not found.problems
    else:
        assert any(expected in problem for problem in found.problems), str(found)
