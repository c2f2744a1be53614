"""The matrix of functions and transforms on Metal: emulated, and on the real device where there is one."""

from __future__ import annotations

import emulator
import metal_host
import mlx.core as mx
import pytest
import transforms
from emulator import DEVICES, device


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Every kernel of the matrix, compiled together."""
    if "emulated" in DEVICES and not metal_host.compiler_missing():
        emulator.compile_all(
            [
                lambda case=case, column=column: transforms.COLUMNS[column](case, False)
                for row, column in transforms.cells()
                for case in transforms.ROWS[row]
                if column not in transforms.TRACED_ALONE
            ]
        )


def runs(name: str, column: str) -> bool:
    return name == "metal" or column not in transforms.TRACED_ALONE


@pytest.mark.parametrize(
    ("name", "row", "column"),
    [(name, *cell) for name in DEVICES for cell in transforms.cells() if runs(name, cell[1])],
)
def test_a_cell_of_the_matrix(name, row, column):
    for case in transforms.ROWS[row]:
        expected = transforms.COLUMNS[column](case, True)
        with device(name):
            got = transforms.COLUMNS[column](case, False)
            mx.eval(got)
        assert transforms.same(got, expected)


PLAIN = {
    "compile": lambda case: case.call(*case.inputs),
    "compile, sizes": lambda case: transforms.compiled_other_sizes(case, True),
    "compile of grad": lambda case: transforms.grad(case, False),
}


@pytest.mark.parametrize("column", transforms.TRACED_ALONE)
@pytest.mark.parametrize("row", transforms.ROWS)
def test_a_compiled_function_launches_what_the_plain_one_launches(row, column):
    for case in transforms.ROWS[row]:
        traced, plain = emulator.Emulator(), emulator.Emulator()
        with traced.installed(), traced.recording():
            transforms.COLUMNS[column](case, False)
        with plain.installed():
            mx.eval(PLAIN[column](case))
        assert plain.reports
        # MLX traces once for each size.
        assert {*map(contents, traced.launches)} == {*map(contents, plain.launches)}


def contents(launch: metal_host.Launch) -> tuple:
    return launch.text, launch.grid, launch.threadgroup, launch.inputs, launch.outputs
