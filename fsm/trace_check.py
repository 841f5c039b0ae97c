"""Holding a recorded run against the tables: every step legal, every guard that can be known true, order kept.

A run is the sequence of its trace records, as the journal has them. The check needs nothing else, and finds a journal
that was edited, a runner that broke its contract, and a table that is not the one that ran. With the roles of the
participants it also holds each wave against PHASES.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from quiesce.fsm.members import FORWARD_STATES
from quiesce.fsm.rows import Row, Table
from quiesce.fsm.tables.participant import PARTICIPANT, ParticipantEvent, ParticipantState
from quiesce.fsm.tables.phases import PHASE_OF, DrainMode, Milestone, Wave, plan_for
from quiesce.fsm.tables.release import RELEASE, ReleaseEvent
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionState
from quiesce.fsm.trace import TraceRecord
from quiesce.fsm.vocabulary import Role

__all__ = ["TraceFault", "check_trace", "split_runs"]

_TABLES: Final[Mapping[str, Table[Any, Any]]] = {table.name: table for table in (TRANSACTION, PARTICIPANT, RELEASE)}
_CLOSED: Final = frozenset({ParticipantState.DRAINING.value, ParticipantState.PAUSED.value})
_BEGINNINGS: Final = frozenset({ParticipantEvent.CLOSE_DUE.value, ParticipantEvent.IMPORT_DUE.value})
"""Whoever has one of these takes part in the transaction."""
_MILESTONE_STATES: Final[Mapping[Milestone, frozenset[str]]] = {
    Milestone.CLOSED: _CLOSED,
    Milestone.PAUSED: frozenset({ParticipantState.PAUSED.value}),
    Milestone.COMMITTED: frozenset({ParticipantState.COMMITTED.value}),
    Milestone.RESTORED: frozenset({ParticipantState.RESTORED.value}),
}
"""Milestones that can be read off a participant's state. Confirmation and reopening are checked by their own steps."""


@dataclass(frozen=True, slots=True)
class TraceFault:
    """What is wrong with one record. ``number`` counts from 1, in the order of the run."""

    number: int
    record: TraceRecord
    reason: str

    def __str__(self) -> str:
        who = f" {self.record.subject}" if self.record.subject else ""
        return f"record {self.number} ({self.record.machine}{who}: {self.record.event}): {self.reason}"


@dataclass(slots=True)
class _Run:
    """Where every machine stands after the records so far."""

    roles: Mapping[str, Role]
    drain: DrainMode
    takes_part: frozenset[str]
    states: dict[tuple[str, str], str] = field(default_factory=dict)
    confirmed: set[str] = field(default_factory=set)
    decided: bool = False

    @property
    def transaction(self) -> TransactionState:
        return TransactionState(self.states.get((TRANSACTION.name, ""), TRANSACTION.initial.value))

    def state(self, machine: str, subject: str) -> str:
        return self.states.get((machine, subject), str(_TABLES[machine].initial.value))


def check_trace(
    records: Iterable[TraceRecord],
    *,
    roles: Mapping[str, Role] | None = None,
    drain: DrainMode = DrainMode.OVERLAPPED,
) -> tuple[TraceFault, ...]:
    """Every fault of a run, in order; empty for a run that the tables allow.

    ``roles`` maps subjects (``deployment/name``) to roles; without it the order of roles is not checked. A run that
    was recovered begins in the middle for its participants: their first record may then start in ``unknown``.
    """
    kept = tuple(records)
    takes_part = frozenset(record.subject for record in kept if record.event in _BEGINNINGS)
    run = _Run(roles or {}, drain, takes_part)
    faults: list[TraceFault] = []
    for number, record in enumerate(kept, start=1):
        faults += [TraceFault(number, record, reason) for reason in _faults(run, record)]
        _apply(run, record)
    return tuple(faults)


def split_runs(records: Iterable[TraceRecord]) -> tuple[tuple[TraceRecord, ...], ...]:
    """Records of several transactions, one after the other, as one run each; each starts where its transaction does."""
    runs: list[list[TraceRecord]] = []
    for record in records:
        starts = record.machine == TRANSACTION.name and record.source == TRANSACTION.initial.value
        if starts or not runs:
            runs.append([])
        runs[-1].append(record)
    return tuple(tuple(run) for run in runs)


def _faults(run: _Run, record: TraceRecord) -> Iterator[str]:
    table = _TABLES.get(record.machine)
    if table is None:
        yield f"there is no machine '{record.machine}'; known are {', '.join(_TABLES)}"
        return
    expected = run.state(record.machine, record.subject)
    if record.source != expected and not _is_taken_over(run, record):
        yield f"it starts in '{record.source}', but the machine stands in '{expected}'"
    row = _row_of(table, record)
    if row is None:
        yield "no row of the table is this step; the tables are not those that ran, or the record was edited"
        return
    yield from _guard_faults(run, table, row, record)
    yield from _order_faults(run, record)


def _is_taken_over(run: _Run, record: TraceRecord) -> bool:
    """Whether this is the first that a recovery says of a participant which an earlier controller had touched."""
    first = (record.machine, record.subject) not in run.states
    return record.machine == PARTICIPANT.name and first and record.source == ParticipantState.UNKNOWN.value


def _row_of(table: Table[Any, Any], record: TraceRecord) -> Row[Any, Any] | None:
    verdicts = dict(record.verdicts)
    for row in table.rows:
        found = (row.source.value, row.event.value, row.target.value, row.effects)
        if found == (record.source, record.event, record.target, tuple(record.effects)) and all(
            verdicts.get(name) is wanted for name, wanted in row.wants().items()
        ):
            return row
    return None


def _guard_faults(run: _Run, table: Table[Any, Any], row: Row[Any, Any], record: TraceRecord) -> Iterator[str]:
    verdicts = dict(record.verdicts)
    read = {guard.name for guard in table.pair_guards(row.source, row.event)}
    if set(verdicts) != read:
        yield f"it has the verdicts of {sorted(verdicts)}, but the table reads {sorted(read)}"
    known = {"going_forward": run.transaction in FORWARD_STATES, "decided": run.decided}
    for name, truth in known.items():
        if name in verdicts and verdicts[name] is not truth:
            yield f"guard '{name}' is recorded as {verdicts[name]}, but the run says {truth}"


def _order_faults(run: _Run, record: TraceRecord) -> Iterator[str]:
    phase = PHASE_OF.get(run.transaction)
    if record.machine == RELEASE.name and record.event == ReleaseEvent.RELEASE_DUE.value and phase is None:
        yield f"it is reopened while the transaction is '{run.transaction.value}', in which nobody is"
    if record.machine != PARTICIPANT.name or phase is None or not run.roles:
        return
    role = run.roles.get(record.subject)
    for wave in plan_for(phase, run.drain).waves:
        if wave.event.value == record.event and role in wave.roles:
            yield from _wave_faults(run, wave)


def _wave_faults(run: _Run, wave: Wave) -> Iterator[str]:
    for role, milestone in wave.waits_for:
        states = _MILESTONE_STATES.get(milestone)
        for subject, its_role in run.roles.items():
            if its_role is not role or subject not in run.takes_part:
                continue
            stands = run.state(PARTICIPANT.name, subject)
            if states is not None and stands not in states and _matters(milestone, stands):
                yield f"its wave waits for every {role.value} to be {milestone.value}, but {subject} is '{stands}'"
            if milestone is Milestone.CONFIRMED and subject not in run.confirmed:
                yield f"its wave waits for {subject} to be read again first"


def _matters(milestone: Milestone, stands: str) -> bool:
    """A policy that exports nothing stays paused through the commits of the others."""
    return not (milestone is Milestone.COMMITTED and stands == ParticipantState.PAUSED.value)


def _apply(run: _Run, record: TraceRecord) -> None:
    run.states[(record.machine, record.subject)] = record.target
    if record.machine == TRANSACTION.name:
        if record.source != record.target:
            run.confirmed.clear()
        if run.transaction in (TransactionState.PUBLISHED, TransactionState.RESUMING):
            run.decided = True
    elif record.event == ParticipantEvent.CONFIRMED.value:
        run.confirmed.add(record.subject)
