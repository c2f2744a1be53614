"""Every function through every transform: the matrix of ``transforms.py``, on the CPU."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest
import transforms

import mlx_unpool

PAGE = Path(__file__).parent.parent / "docs" / "transforms.md"


@pytest.mark.parametrize(("row", "column"), transforms.cells())
def test_a_cell_of_the_matrix(row, column):
    for case in transforms.ROWS[row]:
        got = transforms.COLUMNS[column](case, False)
        assert transforms.same(got, transforms.COLUMNS[column](case, True))


def test_every_public_function_has_a_row_or_a_reason():
    functions = {name for name in mlx_unpool.__all__ if name[0].islower()}
    contexts = {"checking", "exporting", "use_backend"}
    others = {"check_indices", "convert_indices", "replace_max_pools"}
    assert functions - set(transforms.ROWS) == others | contexts


def test_the_oracle_is_the_function():
    for row, cases in transforms.ROWS.items():
        for case in cases:
            assert mx.allclose(case.call(*case.inputs), case.oracle(*case.inputs)), row


def test_the_matrix_would_notice():
    """A function with another derivative fails every column that differentiates."""
    case = transforms.ROWS["max_pool2d"][0]
    wrong = transforms.Case(lambda x: case.call(x) * 1.001, case.inputs, case.matrix)
    for column in ("grad", "grad of grad", "vjp", "jvp", "compile", "value_and_grad"):
        compute = transforms.COLUMNS[column]
        assert not transforms.same(compute(wrong, False), compute(wrong, True)), column


def test_the_page_shows_the_matrix():
    assert PAGE.read_text() == transforms.page()


def test_checking_indices_inside_a_transform_is_refused_by_mlx():
    indices = mx.zeros((1, 2, 1), mx.int32)
    for transform in (mx.compile, mx.vmap):
        with pytest.raises(ValueError, match="eval"):
            transform(lambda i: mlx_unpool.check_indices(i, 4) or i)(indices)
