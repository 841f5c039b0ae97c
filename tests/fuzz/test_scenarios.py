"""Found cases, kept: what the servers of each fence answer to a few steps is what the scenario files say.

``pytest tests/fuzz/test_scenarios.py --rewrite-scenarios`` writes them anew; the difference is then reviewed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.scenarios import SCENARIOS, read

from quiesce.fsm.tables.fence import FenceVariant

FILES = sorted(SCENARIOS.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_servers_answer_as_recorded(path: Path, request: pytest.FixtureRequest) -> None:
    """Every status, every body, every phase, every broken rule."""
    text = read(path).text()
    if request.config.getoption("--rewrite-scenarios"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_strict_server_keeps_every_rule(path: Path) -> None:
    """Nobody rewrites a fault of the kit into a recording without seeing this fail."""
    strict = path.read_text(encoding="utf-8").partition(f"== {FenceVariant.STRICT.value}\n")[2].partition("\n== ")[0]
    assert strict.splitlines()[-1] == "= keeps every rule"


def test_what_recorded_servers_break_is_known_by_name() -> None:
    """And a good part of the known deviations is shown by some scenario."""
    broken = [line for path in FILES for line in path.read_text(encoding="utf-8").splitlines() if "= breaks" in line]
    assert [line for line in broken if ", known as " not in line] == []
    assert len({line.partition("known as ")[2].partition(":")[0] for line in broken}) >= 10
