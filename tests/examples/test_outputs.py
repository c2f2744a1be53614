"""Programs refuse an output that they cannot write before they read, train or compute anything."""

import os
import subprocess
import sys
from pathlib import Path

from support.brain_volumes import PLANES as BRAIN

import pytest
from programs import EXAMPLES, call, environment

# The arguments of each program, with {} for its output.
FOLDERS = {
    "segnet_digits": "--output {}",
    "train": "--output {}",
    "brain_segment": "no_scan.nii.gz --output {}",
}
FILES = {
    "predict": "no_model no_picture.png --output {}",
    "hair": "no_picture.png --output {}",
    "export": "no_model {} --shape 1",
}


def refused(program: str, output: Path) -> str:
    """The line that a program prints when it refuses its output."""
    words = (FOLDERS | FILES)[program].format(output).split()
    result = call(program, *words, status=1)
    (line,) = result.stderr.splitlines()
    assert result.stdout == ""
    assert line.startswith(f"{'file' if program == 'export' else '--output'} must ")
    assert str(output) in line
    return line


@pytest.mark.parametrize("program", FOLDERS)
def test_a_file_is_not_a_folder(program, tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    assert "must be a folder" in refused(program, path)
    assert f"{path} is not a folder" in refused(program, path / "inside")


@pytest.mark.parametrize("program", FILES)
def test_a_folder_is_not_a_file(program, tmp_path):
    path = tmp_path / "name.png"
    path.mkdir()
    assert "must be a file" in refused(program, path)


def test_a_folder_can_be_created_and_pictures_have_a_suffix(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    assert "must be in an existing folder" in refused("predict", path / "new" / "name.png")
    assert "must be in an existing folder" in refused("export", path / "name.mlxfn")
    assert "is not a folder" in refused("export", path / "inside" / "name.mlxfn")
    for name in ("classes", "classes.png.gz"):
        assert "must end in .png or .jpg or" in refused("predict", tmp_path / name)


@pytest.mark.parametrize("program", ["segnet_digits", "predict"])
def test_a_folder_without_permission(program, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    assert f"no permission for {tmp_path}" in refused(program, tmp_path / "new" / "name.png")
    assert not list(tmp_path.iterdir())


ALL = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "first_steps.py")
HELP = {  # what some of them must mention
    "export.py": ("--shape",),
    "segnet_digits.py": ("--decoder", "--compare", "--smoke", "--seeds", "--output", "Ctrl-C"),
    "brain_segment.py": (
        "zenodo.org",
        *(f"mlx_unpool_zoo.convert fastsurfer_vinn aparc_vinn_{p.name}_v2.0.0.pkl" for p in BRAIN),
    ),
}


@pytest.mark.parametrize("program", ALL)
def test_every_program_has_help_in_any_folder(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = call(program, "--help").stdout
    assert len(said.splitlines()) > 5
    assert [word for word in HELP.get(program, ()) if word not in said] == []
    assert not list(tmp_path.iterdir())


def test_the_first_steps_print_their_results():
    command = [sys.executable, EXAMPLES / "first_steps.py"]
    said = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True).stdout
    assert [word for word in ("[13, 15]", "[0, 6, 0, 8]", "gradient of the bias") if word not in said] == []
