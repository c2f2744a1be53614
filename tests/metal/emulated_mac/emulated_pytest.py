"""A plugin of pytest that skips the tests in ``skips.txt``. ``as_on_a_mac.py`` makes pytest load it."""

from __future__ import annotations

from pathlib import Path

import pytest

LIST = Path(__file__).with_name("skips.txt")
ROOT = LIST.parents[3]


def listed() -> dict[str, str]:
    """The reason for each test or file in the list."""
    reasons: dict[str, str] = {}
    reason = ""
    for line in LIST.read_text().splitlines():
        if line.startswith(" "):
            reasons[line.strip()] = reason
        elif line and not line.startswith("#"):
            reason = line
    return reasons


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reasons = listed()
    for item in items:
        for name in (item.nodeid, item.nodeid.partition("[")[0], item.nodeid.partition("::")[0]):
            if name in reasons:
                item.add_marker(pytest.mark.skip(reason=reasons[name]))
