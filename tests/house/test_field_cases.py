"""Every field case is shown by a test that names it, or the table says why not: docs/field-cases.md is kept true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
TABLE = TESTS.parent / "docs" / "field-cases.md"
CASES = [f"F-{number:02}" for number in range(1, 51)]
ROW = re.compile(r"\| (F-\d\d) \| ([^|]+) \| ([^|]+) \|")
NAMED = re.compile(r"`([\w/]+\.py)`")
REASON = re.compile(r"(?:not there yet|cannot occur): \w.+")
pytestmark = pytest.mark.source


def rows() -> dict[str, str]:
    """What the table says of each case."""
    return {row[1]: row[3] for row in ROW.finditer(TABLE.read_text(encoding="utf-8"))}


def test_the_table_has_every_case_once() -> None:
    """In order, and no other."""
    assert [row[1] for row in ROW.finditer(TABLE.read_text(encoding="utf-8"))] == CASES


@pytest.mark.parametrize("case", CASES)
def test_a_case_is_shown_or_says_why_not(case: str) -> None:
    """Each file that the table names for it names the case; without one there is a reason."""
    said = rows()[case]
    files = NAMED.findall(said)
    assert files or REASON.fullmatch(said)
    for name in files:
        assert re.search(rf"\b{case}\b", (TESTS / name).read_text(encoding="utf-8")), f"{name} does not name {case}"


def test_a_case_that_is_said_not_to_be_shown_is_named_by_no_test() -> None:
    """Else the table is behind."""
    texts = [path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")]
    unshown = [case for case, said in rows().items() if not NAMED.findall(said)]
    assert not [case for case in unshown for text in texts if re.search(rf"\b{case}\b", text)]
