"""What command lines of programs share."""

from __future__ import annotations

import sys
from collections.abc import Callable


def run_program(main: Callable[[], int]) -> None:
    """Runs a program and ends the process with what it returns.

    Files that are missing or hold something else are one line on standard error, as is all that a program
    refuses; status 1. After Ctrl-C the status is 130.
    """
    try:
        status = main()
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
