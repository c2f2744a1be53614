"""Train networks on your images, label images, recolour hair, and convert published weights."""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from collections.abc import Sequence

from .commands.command_line import extra, run_program

COMMANDS = {  # the module, and what it does
    "train": ("train", "train a network on images and their masks"),
    "predict": ("predict", "label the pixels of images"),
    "hair": ("recolor", "recolour the hair in photographs"),
    "convert": ("convert", "convert the weights of the authors"),
}


def main(words: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status."""
    words = sys.argv[1:] if words is None else words
    parser = argparse.ArgumentParser("python -m mlx_unpool_zoo", description=__doc__)
    parser.epilog = "python -m mlx_unpool_zoo COMMAND --help lists the options of a command."
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", required=True
    )
    for name, (_, text) in COMMANDS.items():
        commands.add_parser(name, help=text, add_help=False)
    module = COMMANDS[parser.parse_args(words[:1]).command][0]
    with extra("train"):
        command = importlib.import_module(f".commands.{module}", __package__)
    return command.main(words[1:])


if __name__ == "__main__":
    # Without a line of code.
    warnings.showwarning = lambda message, *_: print(message, file=sys.stderr)
    run_program(main)
