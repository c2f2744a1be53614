"""The notebooks run from top to bottom, and show what they show in the repository."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent.parent / "examples" / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    """What each of its cells prints to standard output."""
    return [
        "".join(
            output.text
            for output in cell.outputs
            if output.output_type == "stream" and output.name == "stdout"
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
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
def test_a_notebook_runs_in_any_folder_and_shows_what_it_shows_here(name, tmp_path, monkeypatch):
    checkout = str(NOTEBOOKS.parent.parent)
    monkeypatch.setenv("PYTHONPATH", checkout, prepend=os.pathsep)
    kept = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    assert pictures(kept) >= 3
    again = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    for cell in again.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    NotebookClient(again, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert pictures(again) == pictures(kept)
    # The same words and numbers. A training may differ a little from machine to machine.
    for before, now in zip(printed(kept), printed(again), strict=True):
        assert re.sub(r"[\d.]+", "0", before) == re.sub(r"[\d.]+", "0", now)
        assert numbers(now) == pytest.approx(numbers(before), abs=0.15)


@pytest.mark.parametrize("name", NAMES)
def test_what_draws_is_hidden_and_pictures_are_described(name):
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            if any(f"def {word}" in cell.source for word in ("show", "draw_grid")):
                assert "hide-input" in cell.metadata.tags  # on the site
                assert cell.metadata.jupyter.source_hidden  # in JupyterLab
            if any("image/png" in output.get("data", {}) for output in cell.outputs):
                assert len(cell.metadata.mystnb.image.alt) > 40


def test_the_first_tour_shows_something_within_ten_lines_and_warns_of_the_trap():
    notebook = nbformat.read(NOTEBOOKS / "first_tour.ipynb", as_version=4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert sum(bool(line) for line in first.source.splitlines()) <= 10
    assert first.outputs
    assert any(cell.source.startswith("> [!WARNING]") for cell in notebook.cells)
