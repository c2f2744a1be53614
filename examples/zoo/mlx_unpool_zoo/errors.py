"""Messages about weights and files that do not fit: long lists are cut, and the cause comes last."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 10  # entries of a list in a message


def cut(names: Sequence[str], separator: str = ", ") -> str:
    """The first ten names, and how many more there are."""
    shown = list(names[:LONGEST])
    if len(names) > LONGEST:
        shown.append(f"... and {len(names) - LONGEST:,} more")
    return separator.join(shown)


def mismatch(model: str, lines: Sequence[str], source: str = "the state dict") -> ValueError:
    """An error for weights that do not fit a model: a line for each difference, and then the cause."""
    count = "1 difference" if len(lines) == 1 else f"{len(lines):,} differences"
    return ValueError(
        f"{cut(lines, chr(10))}\n{model} cannot load {source}: {count}, listed above."
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
