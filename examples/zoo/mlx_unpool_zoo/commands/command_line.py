"""Parse the arguments of a program, run it, and report its errors in one line."""

import argparse
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import NoReturn

from ..messages import pip_install, pip_install_group

HINT = (
    "If a GPU kernel failed, set the environment variable MLX_UNPOOL_BACKEND=ops and run the "
    "program again, and please report it with the form at "
    "https://github.com/mlx-unpool/mlx-unpool/issues/new/choose"
)


class Parser(argparse.ArgumentParser):
    """Parses arguments, and says how to write a value that begins with a hyphen."""

    def error(self, message: str) -> NoReturn:
        if "expected one argument" in message:
            option = message.removeprefix("argument ").partition(":")[0]
            message += f". A value that begins with - needs =, such as {option}=-x"
        super().error(message)


def parser_of(program: str | None, description: str) -> argparse.ArgumentParser:
    """A parser of a program's arguments that keeps the lines of its description."""
    form = argparse.RawDescriptionHelpFormatter
    return Parser(program, description=description, formatter_class=form)


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around imports: if a package is missing, end the program with a line that names its extra."""
    with _or_exit(f"of the extra [{name}]: {pip_install(name)}"):
        yield


@contextmanager
def group(name: str) -> Iterator[None]:
    """As :func:`extra`, for a dependency group of the repository."""
    advice = f"In the clone, with pip 25.1 or later: {pip_install_group(name)}"
    with _or_exit(f"of the dependency group {name}. {advice}"):
        yield


@contextmanager
def _or_exit(advice: str) -> Iterator[None]:
    """If a package cannot be imported, end the program with a line that names it."""
    try:
        yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if not package or find_spec(package):
            raise
        sys.exit(f"Not installed: {package}, {advice}")


def run_program(main: Callable[[], int]) -> None:
    """Run a program, which needs the extra ``train``, and exit with the status that it returns.

    A ValueError or OSError, such as a missing file or a refused argument, is printed as one line on
    standard error, and the exit status is 1. After Ctrl-C the exit status is 130, and 143 after
    SIGTERM, which raises SystemExit, so that the program removes its partial files. A RuntimeError
    of MLX, such as that of a kernel which fails on a GPU, is also printed as one line, which says
    how to go on.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with extra("train"):
            status = main()
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        status = 1
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise
        first, _, _ = str(error).partition("\n")
        print(f"{first}. {HINT}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        status = 130
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.exit(status)
