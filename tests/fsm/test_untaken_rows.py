"""Which rows the searches never take is written down, so that a row that falls out of them is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.untaken_rows import untaken_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "proof.md"


@pytest.mark.source
@pytest.mark.timeout(600)
def test_the_proof_says_which_rows_no_search_takes() -> None:
    """The page on the proof holds the table of the rows that are taken by none (python -m support.untaken_rows)."""
    assert untaken_table() in PAGE.read_text(encoding="utf-8")
