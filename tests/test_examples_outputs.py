"""Programs refuse an output that they cannot write before they read, train or compute anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from programs import EXAMPLES, call, errors_of, run
from support import files
from support.brain_volumes import PLANES as BRAIN

# The name of each program's output, its other arguments and whether the output is a folder.
PROGRAMS = {
    "segnet_digits": ("--output", (), True),
    "segnet_brain": ("--output", (), True),
    "segnet_ecg": ("--output", (), True),
    "camvid_train": ("--output", (), True),
    "brain_segment": ("--output", ("no_scan.nii.gz",), True),
    "convert": ("folder", ("enet", "no_weights.pth"), True),
    "camvid_predict": ("--output", ("no_model", "no_picture.png"), False),
    "export": ("file", ("no_model", "--shape", "1"), False),
}
FOLDERS = [name for name, (*_, is_folder) in PROGRAMS.items() if is_folder]
FILES = [name for name in PROGRAMS if name not in FOLDERS]


def refused(program: str, output: Path) -> str:
    """The line that a program prints when it refuses its output."""
    option, words, _ = PROGRAMS[program]
    if option == "folder":
        command = [*words, output]
    elif option == "file":
        command = [words[0], output, *words[1:]]
    else:
        command = [*words, option, output]
    result = call(program, *command, status=1)
    (line,) = result.stderr.splitlines()
    assert result.stdout == ""
    assert line.startswith(f"{option} must ")
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


def test_the_folder_of_a_picture_must_exist(tmp_path):
    path = tmp_path / "none" / "name.png"
    assert "must be in an existing folder" in refused("camvid_predict", path)


def test_a_file_is_not_a_folder_for_an_exported_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    assert "must be in an existing folder" in refused("export", path / "name.mlxfn")
    assert "is not a folder" in refused("export", path / "inside" / "name.mlxfn")


@pytest.mark.parametrize("name", ["classes", "classes.txt", "classes.png.gz"])
def test_a_picture_needs_a_suffix_that_can_be_written(name, tmp_path):
    assert "must end in .png or .jpg or" in refused("camvid_predict", tmp_path / name)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_folder_without_permission(program, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    missing = tmp_path / "new" if program in FOLDERS else tmp_path
    assert f"no permission for {tmp_path}" in refused(program, missing / "name.png")
    assert not list(tmp_path.iterdir())


def test_a_file_without_permission(tmp_path, monkeypatch):
    path = tmp_path / "name.png"
    path.write_text("")
    monkeypatch.setattr(os, "access", lambda tested, _: tested != path)
    with pytest.raises(ValueError, match=f"--output must be writable but got {path}"):
        files.check_output_file("--output", path)


def test_outputs_that_can_be_written_pass(tmp_path):
    files.check_output_folder("--output", tmp_path / "new" / "folder")
    files.check_output_folder("--output", Path("relative"))
    files.check_output_file("--output", tmp_path / "name.PNG", [".png"])
    files.check_output_file("--output", Path("relative"))
    files.check_output_file("--output", tmp_path / "new" / "name", creates_folder=True)
    assert not list(tmp_path.iterdir())


ALL = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "first_steps.py")
HELP = {  # what some of them must mention
    "export.py": ("--shape",),
    "segnet_digits.py": ("--decoder", "--compare", "--smoke", "--seeds", "--output", "Ctrl-C"),
    "brain_segment.py": (
        "zenodo.org",
        *(f"convert.py fastsurfer_vinn aparc_vinn_{p.name}_v2.0.0.pkl" for p in BRAIN),
    ),
}


@pytest.mark.parametrize("program", ALL)
def test_every_program_has_help_in_any_folder(program, tmp_path):
    said = run(program, "--help", cwd=tmp_path).stdout
    assert len(said.splitlines()) > 5
    assert [word for word in HELP.get(program, ()) if word not in said] == []
    assert not list(tmp_path.iterdir())


def test_the_first_steps_print_their_results(tmp_path):
    result = run("first_steps.py", cwd=tmp_path)
    for said in ("[13, 15]", "[0, 6, 0, 8]", "gradient of the bias"):
        assert said in result.stdout


@pytest.mark.parametrize(
    "options",
    [
        ["camvid_predict.py", "missing", "picture.png"],
        ["camvid_train.py", "--smoke", "--start", "missing", "--output", "out"],
    ],
)
def test_missing_files_are_one_line(options, tmp_path):
    (line,) = errors_of(*options, cwd=tmp_path)
    assert "missing" in line
