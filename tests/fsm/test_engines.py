"""The two engines choose the same row, for everything that can be asked of them; and neither can be misused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from itertools import product
from typing import Any

import pytest
from transitions import MachineError

from quiesce.fsm.engine import TableEngine, require
from quiesce.fsm.errors import DefinitionError, GuardRefused, IllegalTransition
from quiesce.fsm.machine import HardenedMachine, TransitionsEngine
from quiesce.fsm.rows import Accepted, Facts, Guard, IsTrue, Refused, Row, Table
from quiesce.fsm.tables import PARTICIPANT, RELEASE, TRANSACTION, ParticipantState, ReleaseState, TransactionState
from quiesce.fsm.tables.fence import FENCE
from quiesce.fsm.tables.participant import ParticipantEvent
from quiesce.fsm.tables.release import ReleaseEvent
from quiesce.fsm.tables.transaction import TransactionEvent

AnyTable = Table[Any, Any]
TABLES: tuple[AnyTable, ...] = (TRANSACTION, PARTICIPANT, RELEASE, *FENCE.values())
EACH_TABLE = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)


def pairs(table: AnyTable) -> Iterator[tuple[Enum, Enum]]:
    """Every state that the machine has with every event of its vocabulary."""
    events: type[Enum] = table.events
    yield from product(table.used_states(), events)


def assignments(guards: tuple[Guard, ...]) -> Iterator[dict[str, object]]:
    """Every truth of every fact that the guards read."""
    facts = tuple(dict.fromkeys(name for guard in guards for name in guard.reads()))
    for values in product((False, True), repeat=len(facts)):
        yield dict(zip(facts, values, strict=True))


def with_free_guards(table: AnyTable) -> AnyTable:
    """The same rows, each guard a fact of its own: verdicts that the real facts can never give become possible."""
    return replace(table, guards=tuple(replace(guard, test=IsTrue(guard.name)) for guard in table.guards))


# lock-step


@EACH_TABLE
def test_both_engines_choose_the_same_row_for_all_facts(table: AnyTable) -> None:
    """For every state, event and truth of the facts that its guards read: the same row, or the same refusal."""
    walker, live = TableEngine(), TransitionsEngine()
    accepted = 0
    for state, event in pairs(table):
        for facts in assignments(table.pair_guards(state, event)):
            result = walker.step(table, state, event, facts)
            assert live.step(table, state, event, facts) == result
            accepted += isinstance(result, Accepted)
    assert accepted >= len(table.rows)


@EACH_TABLE
def test_both_engines_choose_the_same_row_for_every_verdict(table: AnyTable) -> None:
    """The same for every verdict of the guards, also those that contradict each other; each row is chosen by some."""
    free = with_free_guards(table)
    machine = HardenedMachine(free)
    chosen: set[Row[Any, Any]] = set()
    for state, event in pairs(free):
        guards = free.pair_guards(state, event)
        for mask in range(1 << len(guards)):
            facts = {guard.name: bool(mask >> bit & 1) for bit, guard in enumerate(guards)}
            result = free.step(state, event, facts)
            assert result is free.result_for(state, event, mask)
            row = result.row if isinstance(result, Accepted) else None
            assert machine.fire(state, event, facts) is row
            chosen |= {row} if row else set()
    assert chosen == set(table.rows)


@EACH_TABLE
def test_the_pair_is_in_the_table_or_refused(table: AnyTable) -> None:
    """The cross product: each (state, event) takes a row of its own, or is refused by both engines with one reason."""
    for state, event in pairs(table):
        rows = {row for row in table.rows if (row.source, row.event) == (state, event)}
        for engine in (TableEngine(), TransitionsEngine()):
            for facts in assignments(table.pair_guards(state, event)):
                _taken_or_refused(engine.step(table, state, event, facts), rows, state, event)


def _taken_or_refused(result: Accepted[Any, Any] | Refused, rows: set[Row[Any, Any]], state: Enum, event: Enum) -> None:
    if isinstance(result, Accepted):
        assert result.row in rows
        assert require(result) is result
        return
    assert (result.state, result.event) == (state.value, event.value)
    assert result.reason
    with pytest.raises(GuardRefused if rows else IllegalTransition) as raised:
        require(result)
    assert str(raised.value) == result.reason
    assert isinstance(raised.value, GuardRefused) is bool(rows)


NEVER_FROM_IDLE: list[tuple[AnyTable, Enum, Enum]] = [
    *(
        (TRANSACTION, TransactionState.IDLE, event)
        for event in (
            TransactionEvent.RELEASE_REQUESTED,
            TransactionEvent.COMMIT_REQUESTED,
            TransactionEvent.PUBLISH_REQUESTED,
            TransactionEvent.RETRY_REQUESTED,
            TransactionEvent.PUBLISH_SUCCEEDED,
            TransactionEvent.ALL_RELEASED,
        )
    ),
    (PARTICIPANT, ParticipantState.IDLE, ParticipantEvent.EXPORT_DUE),
    (PARTICIPANT, ParticipantState.IDLE, ParticipantEvent.RELEASED),
    (PARTICIPANT, ParticipantState.RESUMED, ParticipantEvent.CLOSE_DUE),
    (PARTICIPANT, ParticipantState.ABORTED, ParticipantEvent.RELEASED),
    (RELEASE, ReleaseState.NOT_DUE, ReleaseEvent.OPENED),
    (RELEASE, ReleaseState.RELEASED, ReleaseEvent.RELEASE_DUE),
    (RELEASE, ReleaseState.HELD_BY_OTHER, ReleaseEvent.RELEASE_DUE),
]


@pytest.mark.parametrize(("table", "state", "event"), NEVER_FROM_IDLE, ids=lambda value: value.name)
def test_what_is_never_due_there_has_no_row(table: AnyTable, state: Enum, event: Enum) -> None:
    """Resume, commit and publish from idle, and their like for a participant, are illegal whatever the facts."""
    for engine in (TableEngine(), TransitionsEngine()):
        with pytest.raises(IllegalTransition):
            require(engine.step(table, state, event, _everything_true(table)))


def _everything_true(table: AnyTable) -> Facts:
    return {name: True for guard in table.guards for name in guard.reads()}


# the live engine cannot be misused


@EACH_TABLE
def test_the_live_machine_has_the_tables_events_and_no_other(table: AnyTable) -> None:
    """No automatic transition, no model whose state could be assigned, no queue, nothing ignored."""
    machine = HardenedMachine(table)._machine
    assert set(machine.events) == {row.event.value for row in table.rows}
    assert set(machine.states) == {state.value for state in table.used_states()}
    assert machine.models == []
    assert machine.has_queue is False
    assert machine.ignore_invalid_triggers is False
    with pytest.raises((AttributeError, MachineError)):
        machine.trigger("to_" + table.initial.value)


def test_a_step_leaves_no_trace_in_the_live_machine() -> None:
    """A machine is shared by all participants: taking and refusing steps changes nothing in it."""
    machine = HardenedMachine(RELEASE)
    before = (len(machine._machine.models), machine._machine.initial, sorted(machine._machine.events))
    assert machine.fire(ReleaseState.NOT_DUE, ReleaseEvent.RELEASE_DUE, {}) is not None
    assert machine.fire(ReleaseState.NOT_DUE, ReleaseEvent.OPENED, {}) is None
    assert machine.fire(ReleaseState.RELEASING, ReleaseEvent.OPENED, {"call_outstanding": False}) is not None
    assert before == (len(machine._machine.models), machine._machine.initial, sorted(machine._machine.events))


def test_one_machine_serves_a_table() -> None:
    """The engine builds a machine at a table's first use and uses it ever after."""
    engine = TransitionsEngine()
    assert engine.machine(RELEASE) is engine.machine(RELEASE)
    assert engine.machine(RELEASE) is not engine.machine(PARTICIPANT)


def test_a_state_that_the_machine_lacks_is_refused_loudly() -> None:
    """A state of the vocabulary that this variant leaves out is no state of the machine; it is not swallowed."""
    table = next(table for table in FENCE.values() if table.unused_states)
    unused = next(iter(table.unused_states))
    event = table.rows[0].event
    with pytest.raises(ValueError, match=unused.value):
        HardenedMachine(table).fire(unused, event, {})


class _Raises(IsTrue):
    """A guard's test that is broken."""

    def holds(self, _facts: Facts) -> bool:
        raise ZeroDivisionError


def test_a_guard_that_raises_is_not_swallowed() -> None:
    """An error inside a guard reaches the caller from both engines; it is no refusal."""
    broken = replace(
        RELEASE,
        guards=tuple(replace(guard, test=_Raises("a_fact")) for guard in RELEASE.guards),
    )
    for engine in (TableEngine(), TransitionsEngine()):
        with pytest.raises(ZeroDivisionError):
            engine.step(broken, ReleaseState.RELEASING, ReleaseEvent.OPENED, {})


class _Fickle:
    """Facts that change between two looks: what a table promises is void for them."""

    def __init__(self) -> None:
        self.looks = 0

    def get(self, _name: str, _default: object = None) -> object:
        self.looks += 1
        return self.looks > 1


def test_engines_that_disagree_are_a_defect_and_said_to_be() -> None:
    """Should the engines ever disagree, the live one raises instead of choosing."""
    fickle: Any = _Fickle()
    table = Table(
        name="FICKLE",
        title="One guarded row",
        states=ReleaseState,
        events=ReleaseEvent,
        initial=ReleaseState.NOT_DUE,
        guards=(Guard("due", IsTrue("due"), "it is due", "it is not due"),),
        effects=(),
        rows=(
            Row(ReleaseState.NOT_DUE, ReleaseEvent.RELEASE_DUE, ("due",), ReleaseState.RELEASED, (), "when it is due"),
        ),
        final=frozenset({ReleaseState.RELEASED}),
        unused_states=frozenset(ReleaseState) - {ReleaseState.NOT_DUE, ReleaseState.RELEASED},
    )
    with pytest.raises(DefinitionError, match="the engines disagree on FICKLE"):
        TransitionsEngine().step(table, ReleaseState.NOT_DUE, ReleaseEvent.RELEASE_DUE, fickle)
