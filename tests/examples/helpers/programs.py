"""Run example programs with the packages of this checkout, and detect code that a file runs."""

import contextlib
import importlib
import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlx_unpool_zoo.__main__ import COMMANDS
from mlx_unpool_zoo.__main__ import main as run_command
from mlx_unpool_zoo.commands.command_line import run_program

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"


def environment() -> dict[str, str]:
    """Environment variables with which Python imports both packages from this checkout."""
    before = os.environ.get("PYTHONPATH")
    folders = [str(ROOT), str(EXAMPLES / "zoo"), str(EXAMPLES), *([before] if before else [])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(folders)}


def call(program: str, *options: object, status: int = 0) -> SimpleNamespace:
    """Run a command or an example program in this process.

    Another process would spend seconds on imports.
    """
    out, errors = io.StringIO(), io.StringIO()
    name = program.removesuffix(".py")
    words = [name, *map(str, options)]
    main = run_command if name in COMMANDS else importlib.import_module(name).main
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
    ):
        patch.setattr(sys, "argv", ["", *words] if name in COMMANDS else words)
        with pytest.raises(SystemExit) as end:
            run_program(main)
    assert end.value.code == status, errors.getvalue()
    return SimpleNamespace(stdout=out.getvalue(), stderr=errors.getvalue())


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)
