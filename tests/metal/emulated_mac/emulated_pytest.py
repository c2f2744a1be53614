"""A plugin of pytest that leaves out the tests in ``skips.txt``. ``as_on_a_mac.py`` makes pytest load it."""

from pathlib import Path

import pytest

LIST = Path(__file__).with_name("skips.txt")
ROOT = LIST.parents[3]


def listed() -> set[str]:
    """The tests and files in the list."""
    return {line.strip() for line in LIST.read_text().splitlines() if line.startswith(" ")}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [
        item
        for item in items
        if {item.nodeid, item.nodeid.partition("[")[0], item.nodeid.partition("::")[0]} & listed()
    ]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
