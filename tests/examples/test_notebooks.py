"""The notebooks run from top to bottom with the outputs stored in the repository."""

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import mlx_unpool

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    """The standard output of each code cell."""
    cells = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    return ["".join(o.text for o in outputs if o.get("name") == "stdout") for outputs in cells]


def pictures(notebook: nbformat.NotebookNode) -> int:
    """The number of pictures."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")  # from Jupyter
def test_a_notebook_runs_in_any_folder_with_the_stored_outputs(name, tmp_path, monkeypatch):
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
    # The same words, and nearly the same numbers: training differs a little between machines.
    for before, now in zip(printed(kept), printed(again), strict=True):
        assert re.sub(r"[\d.]+", "0", before) == re.sub(r"[\d.]+", "0", now)
        assert numbers(now) == pytest.approx(numbers(before), abs=0.15)


@pytest.mark.parametrize("name", ["segmentation_2d"])
def test_outside_of_a_clone_a_sentence_says_what_is_missing(name, tmp_path, monkeypatch):
    first = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells[1].source
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mlx_unpool, "__file__", str(tmp_path / "mlx_unpool" / "__init__.py"))
    with pytest.raises(FileNotFoundError, match="this notebook needs a clone of the repository"):
        exec(first)


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_described(name):
    for cell in nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells:
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", [])):
            assert len(cell.metadata.mystnb.image.alt) > 40
