"""Programs refuse an output that they cannot write before they read, train or compute anything."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.programs import EXAMPLES, call, environment
from mlx_unpool_zoo.__main__ import COMMANDS
from mlx_unpool_zoo.commands.command_line import run_program
from support.installation import check_installations

# The arguments of each program, with {} for its output.
FOLDERS = {"compare_decoders": "--output {}", "train": "--data none --output {}"}
FILES = {
    "predict": "no_model no_picture.png --output {}",
    "hair": "--output {}",
    "export": "no_model {} --shape 1",
}


def check_refused(program: str, output: Path, says: str) -> None:
    """Check the line that a program prints when it refuses its output."""
    result = call(program, *(FOLDERS | FILES)[program].format(output).split(), status=1)
    (line,) = result.stderr.splitlines()
    assert result.stdout == ""
    assert line.startswith(f"{'file' if program == 'export' else '--output'} must ")
    assert str(output) in line
    assert says in line


def test_outputs_that_cannot_be_written(tmp_path, monkeypatch):
    file, folder = tmp_path / "file", tmp_path / "folder.png"
    file.write_text("")
    folder.mkdir()
    for program in FOLDERS:
        check_refused(program, file, "must be a folder")
        check_refused(program, file / "inside", f"{file} is not a folder")
    for program in FILES:
        check_refused(program, folder, "must be a file")
        check_refused(program, file / "new" / "name.png", "must be in an existing folder")
        check_refused(program, file / "name.png", "is not a folder")
    for name in ("classes", "classes.png.gz"):
        check_refused("predict", tmp_path / name, "must end in .png or .jpg or")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    for program in ("train", "predict"):
        check_refused(program, tmp_path / "new" / "name.png", f"no permission for {tmp_path}")
    assert {*tmp_path.iterdir()} == {file, folder}


PROGRAMS = sorted(path.stem for path in EXAMPLES.glob("*.py") if "run_program" in path.read_text())

# A package that a program needs, and those that it works without.
PACKAGES = {
    "train": ("matplotlib", "sklearn scipy"),
    "predict": ("matplotlib", "sklearn scipy"),
    "hair": ("PIL", "sklearn scipy"),
    "convert": ("safetensors", "sklearn scipy matplotlib"),
    "compare_decoders": ("sklearn", ""),
    "export": ("safetensors", "sklearn scipy matplotlib"),
}
# Where the package is that a program needs, if not in the extra "train".
SOURCES = {"export": "extra [zoo]", "compare_decoders": "dependency group examples"}


@pytest.mark.parametrize("program", [*COMMANDS, *PROGRAMS])
def test_help_works_in_any_folder_and_without_a_package_a_line_says_what_to_install(
    program, tmp_path
):
    def run_without(packages: list[str]) -> subprocess.CompletedProcess:
        words = ["mlx_unpool_zoo", program] if program in COMMANDS else [program]
        code = f"import sys, runpy; sys.modules |= dict.fromkeys({packages})"
        code += f"; sys.argv = {[*words, '--help']}"
        code += f"; runpy.run_module({words[0]!r}, run_name='__main__', alter_sys=True)"
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, env=environment(), cwd=tmp_path, capture_output=True, text=True
        )

    needed, others = PACKAGES[program]
    result = run_without(others.split())
    assert (result.returncode, len(result.stdout.splitlines()) > 5) == (0, True)
    result = run_without([needed])
    assert (result.stdout, result.returncode) == ("", 1)
    (line,) = result.stderr.splitlines()
    source = SOURCES.get(program, "extra [train]")
    assert line.startswith(f"Not installed: {needed}, of the {source}")
    assert check_installations(line) == 1
    assert not [*tmp_path.iterdir()]


def test_a_wrong_command_lists_them_and_the_package_is_light(tmp_path):
    command = [sys.executable, "-m", "mlx_unpool_zoo", "trian"]
    said = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == 2
    assert [name for name in COMMANDS if f"{name}" not in said.stderr] == []
    code = (
        "import sys, mlx_unpool_zoo; "
        "sys.exit(', '.join({'matplotlib', 'tqdm'} & {*sys.modules}) or None)"
    )
    subprocess.run([sys.executable, "-c", code], env=environment(), cwd=tmp_path, check=True)


def test_a_failing_kernel_says_how_to_go_on(capsys):
    def failing() -> int:
        raise RuntimeError("[metal::Device] Unable to load kernel\nmore")

    with pytest.raises(SystemExit, match="1"):
        run_program(failing)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("[metal::Device] Unable to load kernel. If a GPU kernel failed, set ")
    assert re.search(r" MLX_UNPOOL_BACKEND=ops .*/issues/new/choose$", line)


def test_the_first_steps_print_their_results():
    command = [sys.executable, EXAMPLES / "first_steps.py"]
    said = subprocess.run(
        command, capture_output=True, text=True, env=environment(), check=True
    ).stdout
    words = "[13, 15]", "[0, 6, 0, 8]", "gradient of the bias"
    assert [word for word in words if word not in said] == []
