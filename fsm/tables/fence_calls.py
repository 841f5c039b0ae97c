"""How every fence decides the arrival of a call: the chain that all variants and roles share (wire-protocol 4.2).

    id finished?  ->  another id active?  ->  same call with another body?  ->  recorded?  ->  still running?
    ->  does the phase allow it?  ->  deadline past?  ->  the operation's own questions

A variant leaves questions out (``Habits``); a role says in which phases an operation may start and how. The relative
order of replay and conflict cannot be told from outside on the recorded servers (wire-protocol 10): here the conflict
comes first, so that no id is ever answered for while another holds the fence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from quiesce.fsm.errors import DefinitionError
from quiesce.fsm.rows import Table
from quiesce.fsm.tables.fence_vocabulary import (
    EFFECTS,
    GUARDS,
    Branch,
    FenceEvent,
    FencePhase,
    FenceRow,
    decide,
    refuse,
)
from quiesce.fsm.vocabulary import DeadlineClass

__all__ = ["CONFLICT", "JOIN", "REPLAY", "STALE", "WRONG_PHASE", "Habits", "build_table", "call_rows", "unfenced_rows"]

STALE: Final = refuse("id_finished", "refuse_stale_checkpoint", "a used-up id never acts again", "F1")
CONFLICT: Final = refuse("other_active", "refuse_conflict", "another id holds the fence", "F4")
REPLAY: Final = Branch("recorded", ("replay_reply",), "a repetition gets the first reply, word for word", ref="F2")
JOIN: Final = Branch("running", ("join_running",), "a repetition waits for the running one's outcome", ref="F3")
WRONG_PHASE: Final = refuse(None, "refuse_invalid_phase", "this phase does not allow it", "F6")

_OTHER_BODY: Final = refuse("body_differs", "refuse_conflict", "a repetition must ask for the same", "9 #20")
_EXPIRED: Final = refuse("deadline_passed", "refuse_deadline_exceeded", "no work begins after its deadline", "9 #25")

WAITING: Final = {
    FencePhase.PREPARING: DeadlineClass.REACH,
    FencePhase.COMMITTING: DeadlineClass.HOLD,
    FencePhase.RESTORING: DeadlineClass.HOLD,
}
"""Phases in which an operation may run. The paused ones have no deadline in generation A: there is no lease (9 #16)."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What a variant asks before it starts an operation."""

    compares_bodies: bool
    checks_deadlines: bool


Replays = Callable[[FencePhase], tuple[Branch, ...]]


def _plain_replay(_phase: FencePhase) -> tuple[Branch, ...]:
    return (REPLAY,)


def call_rows(
    habits: Habits,
    event: FenceEvent,
    phases: Iterable[FencePhase],
    *,
    allowed: Mapping[FencePhase, tuple[Branch, ...]],
    recorded: Collection[FencePhase] = (),
    running: Collection[FencePhase] = (),
    replay: Replays = _plain_replay,
) -> tuple[FenceRow, ...]:
    """Rows for the arrival of a fenced operation in every phase.

    ``allowed``: where it may start, and the branches that say how. ``recorded`` and ``running``: phases in which its
    reply can be recorded, or its handler can still run; ``replay`` decides a repetition that is recorded.
    """
    rows: list[FenceRow] = []
    for phase in phases:
        chain = [STALE, CONFLICT]
        if habits.compares_bodies and (phase in recorded or phase in running):
            chain.append(_OTHER_BODY)
        if phase in recorded:
            chain += replay(phase)
        if phase in running:
            chain.append(JOIN)
        if phase not in allowed:
            chain.append(WRONG_PHASE)
        else:
            chain += [_EXPIRED] if habits.checks_deadlines else []
            chain += allowed[phase]
        rows += decide(phase, event, chain)
    return tuple(rows)


def unfenced_rows(
    event: FenceEvent, phases: Iterable[FencePhase], allowed: Mapping[FencePhase, tuple[Branch, ...]]
) -> tuple[FenceRow, ...]:
    """Rows for a read or a side operation: not recorded, not joined, no deadline; only id and phase count."""
    rows: list[FenceRow] = []
    for phase in phases:
        rows += decide(phase, event, (STALE, CONFLICT, *allowed.get(phase, (WRONG_PHASE,))))
    return tuple(rows)


def build_table(
    name: str, title: str, rows: tuple[FenceRow, ...], *, final: frozenset[FencePhase] = frozenset()
) -> Table[FencePhase, FenceEvent]:
    """A checked table with the part of the vocabulary that its rows use."""
    read = {guard for row in rows for guard in row.wants()}
    caused = {effect for row in rows for effect in row.effects}
    if unknown := read - {guard.name for guard in GUARDS}:
        raise DefinitionError(f"table {name}: unknown guards {sorted(unknown)}; declare them in GUARDS")
    visited = {row.source for row in rows} | {row.target for row in rows}
    return Table(
        name=name,
        title=title,
        states=FencePhase,
        events=FenceEvent,
        initial=FencePhase.IDLE,
        guards=tuple(guard for guard in GUARDS if guard.name in read),
        effects=tuple(effect for effect in EFFECTS if effect in caused),
        rows=rows,
        final=final,
        waiting={phase: deadline for phase, deadline in WAITING.items() if phase in visited},
        unused_states=frozenset(FencePhase) - visited,
    )
