"""Live progress: everybody's state, since when, and what is waited for; on a terminal and nowhere else."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from quiesce.cli.progress import DrainView, shown
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import Blocker, DrainProgress, InflightCall

POLICY, AGENT = ParticipantKey("main", "policy"), ParticipantKey("main", "agent")
CALLS = tuple(InflightCall(f"r{number}", 0, "policy", 1.5 + number) for number in range(5))
DRAINING = DrainProgress("draining", inflight_total=5, inflight=CALLS)
PARKING = DrainProgress("preparing", running=1, blockers=(Blocker(AttemptId("r9", 0), "running", None, 8.0),))

States = dict[ParticipantKey, tuple[ParticipantState, DrainProgress | None]]


def text(view: DrainView) -> str:
    """The table as text."""
    console = Console(file=io.StringIO(), width=120)
    console.print(view.drawn())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_what_holds_up_the_cut_is_named() -> None:
    """Calls in flight and executions that run are counted, the first of them named with their age."""
    states: States = {POLICY: (ParticipantState.DRAINING, DRAINING), AGENT: (ParticipantState.UNKNOWN, PARKING)}
    found = text(DrainView("cut a", lambda: states, lambda: 0.0))
    assert "5 calls in flight (r0 1.5 s, r1 2.5 s, r2 3.5 s and 2 more)" in found
    assert "1 executions running (r9 8.0 s)" in found


def test_who_was_asked_and_has_not_answered_is_waited_for() -> None:
    """Before anything was heard of its drain, what is waited for is its answer."""
    states: States = {AGENT: (ParticipantState.UNKNOWN, None)}
    row = text(DrainView("cut a", lambda: states, lambda: 0.0)).splitlines()[-1].split()
    assert row[:2] == [str(AGENT), "asked"]
    assert row[-2:] == ["its", "answer"]


def test_a_state_is_timed_from_its_begin() -> None:
    """The seconds beside a state begin anew with the state."""
    now = [0.0]
    states: States = {POLICY: (ParticipantState.DRAINING, DRAINING)}
    view = DrainView("cut a", lambda: states, lambda: now[0])
    now[0] = 4.0
    assert "4.0 s" in text(view)
    states[POLICY] = (ParticipantState.PAUSED, None)
    assert "draining" not in text(view)
    now[0] = 4.5
    assert "0.5 s" in text(view)


def test_who_waits_for_nothing_shows_nothing() -> None:
    """What a paused participant said while it drained is over."""
    states: States = {POLICY: (ParticipantState.PAUSED, DRAINING)}
    assert "calls in flight" not in text(DrainView("cut a", lambda: states, lambda: 0.0))


@pytest.mark.parametrize("is_terminal", [True, False])
async def test_only_a_terminal_gets_progress(*, is_terminal: bool) -> None:
    """Elsewhere not one character is written."""
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=100)
    states: States = {POLICY: (ParticipantState.DRAINING, DRAINING)}
    async with shown(console, "cut a", lambda: states):
        pass
    assert isinstance(console.file, io.StringIO)
    assert ("cut a" in console.file.getvalue()) is is_terminal
