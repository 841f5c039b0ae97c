"""The overview says what PHASES says: who is closed, exported and reopened in which order."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from quiesce.diagrams import overview, overview_svg
from quiesce.fsm.tables.phases import DrainMode, PhasePlan, plan_for
from quiesce.fsm.vocabulary import Phase

_LABEL = re.compile(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]+)</text>')


def lanes() -> dict[str, list[str]]:
    """Each lane's name to what happens in it, from left to right."""
    rows: dict[str, list[tuple[float, str]]] = {}
    for x, y, words in _LABEL.findall(overview_svg()):
        rows.setdefault(y, []).append((float(x), words))
    ordered = [[words for _, words in sorted(row)] for row in rows.values()]
    return {row[0]: row[1:] for row in ordered if row[0] in {"policy", "agents", "tools", "judge"}}


def position(words: str, lane: str) -> float:
    """Where a label of a lane stands."""
    found = _LABEL.findall(overview_svg())
    y = next(y for _, y, name in found if name == lane)
    return next(float(x) for x, other, label in found if other == y and label == words)


def test_each_lane_goes_the_whole_way() -> None:
    """Everybody is closed, stands still, exports, is kept closed and opened again; the judge is never touched."""
    assert lanes() == {
        "policy": ["serves", "drains", "paused", "exports", "paused", "serves"],
        "agents": ["serves", "park", "paused", "export", "paused", "serves"],
        "tools": ["serves", "freeze", "paused", "export", "paused", "serves"],
        "judge": ["serves throughout"],
    }


def test_the_order_is_that_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents export before policies; where the table turns the order round, so does the picture."""
    assert position("export", "agents") < position("exports", "policy") < position("export", "tools")

    def turned(phase: Phase, drain: DrainMode) -> PhasePlan:
        plan = plan_for(phase, drain)
        return replace(plan, waves=tuple(reversed(plan.waves))) if phase is Phase.COMMIT else plan

    monkeypatch.setattr(overview, "plan_for", turned)
    assert position("export", "agents") > position("exports", "policy") > position("export", "tools")
