"""Run a program and report its errors."""

from __future__ import annotations

import sys
from collections.abc import Callable


def run_program(main: Callable[[], int]) -> None:
    """Run a program and exit with the status that it returns.

    A ValueError or OSError, such as a missing file or a refused argument, is printed as one line on standard
    error, and the exit status is 1. After Ctrl-C the exit status is 130.
    """
    try:
        status = main()
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
