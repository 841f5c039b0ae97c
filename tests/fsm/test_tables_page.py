"""The page on declaring a table of one's own: its code runs and shows what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from quiesce.fsm.rows import Table

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


def test_the_code_of_the_page_runs_from_top_to_bottom() -> None:
    """Every code block of the page, in order and in one namespace, runs without an assertion failing."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    shared: dict[str, Any] = {"__name__": "page"}
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"docs/tables.md, block {number}", "exec"), shared)  # noqa: S102 - our own page
    assert isinstance(shared["TABLE"], Table)
    assert shared["found"].complete


@pytest.mark.parametrize("word", ["## Declare", "## Step", "## Draw", "## Search"])
def test_the_page_has_each_use(word: str) -> None:
    """Declaring, stepping, drawing and searching are each shown."""
    assert word in PAGE.read_text(encoding="utf-8")
