"""Following a trace, and changing rows: what a replay is made of."""

from __future__ import annotations

import pytest
from support.planted_bugs import BUGS, searched, setups

from quiesce.fsm.engine import TableEngine
from quiesce.fsm.errors import DefinitionError
from quiesce.fsm.explore import Kind, explore
from quiesce.fsm.explore_changes import ChangedEngine, RowChange, tables_digest, tables_that_run
from quiesce.fsm.explore_follow import ActionImpossible, follow, shows
from quiesce.fsm.explore_model import System
from quiesce.fsm.machine import TransitionsEngine
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionEvent, TransactionState

FIRST = next(iter(setups().values()))


def test_a_witness_is_followed_to_what_it_shows() -> None:
    """Each witness of a search leads, action by action, to a state that has what it is a witness of, and not before."""
    model = System(FIRST)
    for verdict in explore(System(FIRST)).verdicts:
        if verdict.kind is Kind.SOMETIMES and verdict.trace:
            *before, last = follow(model, verdict.trace)
            assert shows(model, verdict.kind, verdict.name, last.state)
            assert not any(shows(model, verdict.kind, verdict.name, step.state) for step in before)


def test_every_action_has_a_name_of_its_own() -> None:
    """In each state of a search the actions differ by name, so that a trace of names is one way only."""
    model = System(FIRST)
    seen = set(model.initial())
    waiting = list(seen)
    while waiting:
        steps = model.steps(waiting.pop())
        assert len({action for action, _ in steps}) == len(set(steps))
        new = {target for _, target in steps} - seen
        seen |= new
        waiting += new


def test_an_action_that_is_not_possible_is_refused_by_number() -> None:
    """A trace that leaves the model's ways is refused with the action's number and what is possible instead."""
    with pytest.raises(ActionImpossible, match=r"action 2, 'asked to dance'.*possible are: .*arrives") as caught:
        follow(System(FIRST), ["asked to Begin", "asked to dance"])
    assert caught.value.number == 2


def test_a_state_without_a_way_out_is_told_from_one_with_it() -> None:
    """A deadlock shows in its last state only; what can be recovered from does not show as lost."""
    found = searched("back-off is not armed")
    deadlock = next(verdict for verdict in found.violations() if verdict.kind is Kind.NO_DEADLOCK)
    sound = System(setups()[BUGS["back-off is not armed"].where])
    state = follow(sound, deadlock.trace or ())[-1].state
    assert not shows(sound, Kind.NO_DEADLOCK, deadlock.name, state)
    assert shows(sound, Kind.RECOVERABLE, sound.recoverable, state) is False
    assert shows(sound, Kind.RECOVERABLE, sound.recoverable, state, states_max=3) is None


def test_a_changed_row_is_taken_on_either_engine_and_no_other() -> None:
    """The change holds for its row alone, on the tables and on `transitions`."""
    row = next(row for row in TRANSACTION.rows if row.event is TransactionEvent.COMMIT_REQUESTED)
    change = RowChange("TRANSACTION", str(row), "aborted", ("finish",))
    for inner in (TableEngine(), TransitionsEngine()):
        engine = ChangedEngine([change], inner)
        taken = engine.step(TRANSACTION, TransactionState.PAUSED, TransactionEvent.COMMIT_REQUESTED, {})
        assert getattr(taken, "target", None) is TransactionState.ABORTED
        begun = engine.step(TRANSACTION, TransactionState.IDLE, TransactionEvent.BEGIN, {})
        assert begun == TRANSACTION.step(TransactionState.IDLE, TransactionEvent.BEGIN, {})


@pytest.mark.parametrize(
    ("table", "row", "target", "effects", "reason"),
    [
        ("NOTHING", "idle --begin--> preflight", "idle", (), "no table 'NOTHING'"),
        ("TRANSACTION", "idle --begin--> idle", "idle", (), "no row 'idle --begin--> idle'"),
        ("TRANSACTION", "idle --begin--> preflight", "elsewhere", (), "no state 'elsewhere'"),
        ("TRANSACTION", "idle --begin--> preflight", "idle", ("dance",), r"no effect \['dance'\]"),
    ],
)
def test_a_change_of_what_is_not_there_is_refused(
    table: str, row: str, target: str, effects: tuple[str, ...], reason: str
) -> None:
    """A change names a table, a row, a state and effects that there are."""
    with pytest.raises(DefinitionError, match=reason):
        RowChange(table, row, target, effects)


def test_rows_can_be_named() -> None:
    """No two rows of a table have one name."""
    for name, table in tables_that_run().items():
        assert len({str(row) for row in table.rows}) == len(table.rows), name
    assert tables_digest() == tables_digest()
    assert len(tables_digest()) == 64
