"""Compare what pytest skipped with the list for this system, tests/skips/<system>.txt.

python .ci/skips.py REPORT.xml VERSION: exit with an error if the tests that were skipped, or their reasons,
    differ from the list. REPORT.xml is pytest's --junit-xml and VERSION the Python that ran it, such as 3.10.
python .ci/skips.py: print the listed tests as arguments for pytest.

If all cases of a parametrised test were skipped for the same reason, the list has its name without a case. A
module that was skipped as a whole is listed as a file.
"""

from __future__ import annotations

import ast
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIST = ROOT / "tests" / "skips" / f"{sys.platform}.txt"
Skip = tuple[str, str]  # a reason and a test


def skipped(report: Path) -> set[Skip]:
    """What pytest skipped."""
    found: dict[str, dict[str, str | None]] = {}  # test: case: reason, or None if it ran
    for case in ElementTree.parse(report).iter("testcase"):
        skip, name = case.find("skipped"), case.get("name", "")
        reason = None if skip is None else skip.get("message", "")
        module = case.get("classname") or name
        test = module.replace(".", "/") + ".py"
        if reason == "collection skipped":  # the text is a tuple: file, line, reason
            reason = ast.literal_eval(skip.text)[2].removeprefix("Skipped: ")
        else:
            test += f"::{name.partition('[')[0]}"
        found.setdefault(test, {})[name] = reason
    skips = set()
    for test, cases in found.items():
        if len(set(cases.values())) > 1:
            file = test.partition("::")[0]
            cases_skipped = {f"{file}::{name}": reason for name, reason in cases.items()}
        else:
            cases_skipped = {test: next(iter(cases.values()))}
        skips |= {(reason, test) for test, reason in cases_skipped.items() if reason is not None}
    return skips


def listed(version: str) -> tuple[set[Skip], set[Skip]]:
    """What the list says is skipped on this version of Python: always, and sometimes."""
    always, sometimes = set(), set()
    minor = int(version.split(".")[1])
    for line in LIST.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            found = re.fullmatch(r"(?:Python (<|>=) 3\.(\d+): |(Sometimes): )?(.*)", line)
            sign, bound, maybe, reason = found.groups()
            applies = sign is None or (minor < int(bound)) == (sign == "<")
        elif applies:
            (sometimes if maybe else always).add((reason, line.strip()))
    return always, sometimes


def main(arguments: list[str]) -> str | int:
    if not arguments:
        lines = LIST.read_text().splitlines() if LIST.exists() else []
        tests = [line.strip().partition("[")[0] for line in lines if line.startswith(" ")]
        print(*dict.fromkeys(tests))
        return 0
    report, version = arguments
    found = skipped(Path(report))
    if not LIST.exists():
        print(*(f"{reason}: {test}" for reason, test in sorted(found)), sep="\n")
        print(f"There is no list of what is skipped on {sys.platform} yet; this was skipped.")
        return 0
    always, sometimes = listed(version)
    wrong = [
        f"skipped, but not listed: {test} ({reason})"
        for reason, test in sorted(found - always - sometimes)
    ]
    wrong += [
        f"listed, but not skipped: {test} ({reason})" for reason, test in sorted(always - found)
    ]
    if not wrong:
        print(
            f"Python {version}: the tests that were skipped are those in {LIST.relative_to(ROOT)}."
        )
    return "\n".join([*wrong, f"See {LIST.relative_to(ROOT)}."]) if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
