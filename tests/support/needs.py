"""What tests need beside Python packages."""

from __future__ import annotations

import os
import sys

import pytest


def needed(missing: str | None) -> None:
    """Skips a test for want of what ``missing`` names; in CI on Linux, which has to have it, it fails."""
    if missing and os.environ.get("CI") == "true" and sys.platform == "linux":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
