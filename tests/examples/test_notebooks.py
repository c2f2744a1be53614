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


def pictures(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The cells with a picture, one for each picture."""
    cells = [(cell, output) for cell in notebook.cells for output in cell.get("outputs", [])]
    return [cell for cell, output in cells if "image/png" in output.get("data", {})]


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text)]


def words(text: str) -> str:
    """The words of an output, without lines about steps and what depends on a prediction."""
    lines = [line for line in text.splitlines() if not re.search(r"step|\d%|OpenBLAS| -$", line)]
    return re.sub(r"[\d.]+", "0", "\n".join(lines))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")  # from Jupyter
def test_a_notebook_runs_in_any_folder_with_the_stored_outputs(name, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOKS.parent.parent), prepend=os.pathsep)
    kept, again = (nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4) for _ in range(2))
    assert len(pictures(kept)) >= 3
    assert all(len(cell.metadata.mystnb.image.alt) > 40 for cell in pictures(kept))
    cells = [cell for cell in again.cells if cell.cell_type == "code"]
    settings = [n for n, cell in enumerate(cells) if "parameters" in cell.metadata.get("tags", [])]
    for number, cell in enumerate(cells):
        cell.outputs = []
        if number in settings:
            cell.source += "\nSTEPS = 5"
    NotebookClient(again, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert len(pictures(again)) == len(pictures(kept))
    # The same words, and before a training with fewer steps nearly the same numbers.
    for number, (before, now) in enumerate(zip(printed(kept), printed(again), strict=True)):
        assert words(before) == words(now)
        if number < min(settings, default=len(cells)):
            assert numbers(now) == pytest.approx(numbers(before), abs=0.15)


def test_outside_of_a_clone_a_sentence_says_what_is_missing(tmp_path, monkeypatch):
    first = nbformat.read(NOTEBOOKS / "segmentation_2d.ipynb", as_version=4).cells[1].source
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mlx_unpool, "__file__", str(tmp_path / "mlx_unpool" / "__init__.py"))
    with pytest.raises(FileNotFoundError, match="this notebook needs a clone of the repository"):
        exec(first)
