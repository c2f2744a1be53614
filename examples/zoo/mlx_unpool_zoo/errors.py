"""Error messages about weights and files. Long lists are truncated, and the cause comes last."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 10  # most entries of a list in a message
THE_STATE_DICT = "the state dict"


def cut(names: Sequence[str], separator: str = ", ") -> str:
    """The first ten names, and how many more there are."""
    shown = list(names[:LONGEST])
    if len(names) > LONGEST:
        shown.append(f"... and {len(names) - LONGEST:,} more")
    return separator.join(shown)


def mismatch(model: str, lines: Sequence[str], source: str = THE_STATE_DICT) -> ValueError:
    """An error for weights that do not fit a model: one line per difference, then the cause."""
    count = "1 difference" if len(lines) == 1 else f"{len(lines):,} differences"
    return ValueError(
        f"{cut(lines, chr(10))}\n{model} cannot load {source}: {count}, listed above."
    )


def of_file(error: ValueError, path: object) -> ValueError:
    """The same error with the name of the weights file."""
    text, cause = str(error), f" cannot load {THE_STATE_DICT}: "
    if cause in text:
        return ValueError(text.replace(cause, f" cannot load {path}: "))
    return ValueError(f"{path}: {text}")


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
