"""All functions under all transforms on Metal: emulated, and on the real device if there is one."""

import emulator
import metal_host
import mlx.core as mx
import pytest
from support import transforms
from support.kernel_cases import SegNet

import mlx_unpool
from mlx_unpool import _backends

CELLS = {
    "emulated": [cell for cell in transforms.cells() if cell[1] not in transforms.TRACED_ALONE]
}
CELLS["metal"] = transforms.cells()


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    emulator.compile_all(
        lambda case=case, column=column: transforms.COLUMNS[column](case, False)
        for row, column in CELLS["emulated"]
        for case in transforms.ROWS[row]
    )


NAMES = [name for name in emulator.DEVICES if name != "flushing"]


@pytest.mark.parametrize(
    ("name", "row", "column"), [(name, *cell) for name in NAMES for cell in CELLS[name]]
)
def test_a_cell_of_the_matrix(name, row, column):
    for case in transforms.ROWS[row]:
        expected = transforms.COLUMNS[column](case, True)
        got = emulator.evaluated(lambda case=case: transforms.COLUMNS[column](case, False), name)
        assert transforms.same(got, expected)


UNCOMPILED = {
    "compile, sizes": lambda case: transforms.compiled(case, True),
    "compile of grad": lambda case: mx.grad(transforms.weighted(case, False))(*case.inputs),
}


@pytest.mark.parametrize("column", transforms.TRACED_ALONE)
@pytest.mark.parametrize("row", transforms.ROWS)
def test_a_compiled_function_makes_the_same_launches(row, column):
    for case in transforms.ROWS[row]:
        traced, run = emulator.Emulator(record=True), emulator.Emulator()
        with traced.installed():
            transforms.COLUMNS[column](case, False)
        with run.installed():
            mx.eval(UNCOMPILED[column](case))
        assert run.reports
        # MLX traces once per size.
        assert {one.contents for one in traced.launches} == {one.contents for one in run.launches}


def test_an_exported_segnet_makes_the_same_launches_as_an_eager_one():
    model, x = SegNet().eval(), mx.random.normal((1, 11, 14, 2))
    with mlx_unpool.exporting(), _backends.use_backend("metal"):
        exported, events = metal_host.launches_of(model, x)
    device = emulator.Emulator()
    with device.installed(), mlx_unpool.exporting():
        got = model(x)
    assert mx.allclose(got, model(x), rtol=1e-4, atol=1e-5)
    assert exported
    assert sorted(one.contents for one in exported) == sorted(
        one.contents for one in device.launches
    )
    assert not any(event.get("name") == "CustomTransforms" for event in events)
