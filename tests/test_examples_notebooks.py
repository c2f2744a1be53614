"""The notebooks run from top to bottom, and show what they show in the repository."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent.parent / "examples" / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    """What its cells print to standard output."""
    return [
        output.text
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stdout"
    ]


def pictures(notebook: nbformat.NotebookNode) -> int:
    """How many pictures it shows."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text)]


def test_all_notebooks_are_here():
    assert NAMES == ["first_tour", "segmentation_2d", "volumes_3d"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")  # of Jupyter's own
def test_a_notebook_runs_and_shows_what_it_shows_here(name):
    kept = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    assert pictures(kept) >= 3
    again = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    for cell in again.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    NotebookClient(again, timeout=600, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
    assert pictures(again) == pictures(kept)
    # The same words and numbers. A training may differ a little from machine to machine.
    for before, now in zip(printed(kept), printed(again), strict=True):
        assert re.sub(r"[\d.]+", "0", before) == re.sub(r"[\d.]+", "0", now)
        assert numbers(now) == pytest.approx(numbers(before), abs=0.15)
