"""Requests at the core: in every state, what is asked for is a row of the table or is refused and nothing changed."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from itertools import product
from typing import TypeVar

import pytest
from support.scripted_fleet import Fleet, agent, auxiliary, policy, resources
from support.situations import SITUATIONS, TRANSIENT, cut, restore

from quiesce.fsm import messages as m
from quiesce.fsm.advance import advance
from quiesce.fsm.engine import Engine, TableEngine
from quiesce.fsm.errors import DefinitionError, GuardRefused, IllegalTransition
from quiesce.fsm.machine import TransitionsEngine
from quiesce.fsm.rows import Accepted, Facts, Refused, Table
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionEvent, TransactionState
from quiesce.fsm.transaction import PARTICIPANTS_MAX, MemberSpec, Plan, initial_state
from quiesce.fsm.vocabulary import Outcome, ParticipantKey, Phase, Role, Verb

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

REQUESTS: dict[TransactionEvent, m.Event] = {
    TransactionEvent.BEGIN: m.Begin(),
    TransactionEvent.RECOVER: m.Recover(published=False, touched=frozenset()),
    TransactionEvent.COMMIT_REQUESTED: m.CommitRequested(),
    TransactionEvent.PUBLISH_REQUESTED: m.PublishRequested(),
    TransactionEvent.RELEASE_REQUESTED: m.ReleaseRequested(),
    TransactionEvent.ABORT_REQUESTED: m.AbortRequested(),
    TransactionEvent.CANCELLED: m.Cancelled(),
    TransactionEvent.RETRY_REQUESTED: m.RetryRequested(),
}
ENGINES = pytest.mark.parametrize("engine", [TableEngine(), TransitionsEngine()], ids=["table", "transitions"])
P = ParticipantKey("main", "policy")

# whatever the runner posts when it is no longer, or not yet, waited for
UNASKED: tuple[m.Event, ...] = (
    *(
        m.Replied(P, leg, verb, number, outcome)
        for leg, verb, number, outcome in (
            (m.Leg.FORWARD, Verb.RELEASE, 0, Outcome.RELEASED),
            (m.Leg.FORWARD, Verb.RENEW, 0, Outcome.RENEWED),
            (m.Leg.RELEASE, Verb.RELEASE, 2, Outcome.RELEASED),
            (m.Leg.RELEASE, Verb.EXPORT, 0, Outcome.EXPORTED),
            (m.Leg.STRAGGLER, Verb.RETIRE, 0, Outcome.RETIRED),
        )
    ),
    m.CallFailed(P, m.Leg.RELEASE, Verb.CLOSE, 1, maybe_applied=True),
    m.Replied(ParticipantKey("main", "nobody"), m.Leg.FORWARD, Verb.CLOSE, 0, Outcome.PAUSED),
)


def test_every_state_has_a_situation() -> None:
    """The tests below begin in every state of the table, except those that are passed within one step."""
    assert set(SITUATIONS) | TRANSIENT == set(TransactionState)
    assert not set(SITUATIONS) & TRANSIENT
    for state, situation in SITUATIONS.items():
        assert situation(None).at is state


@ENGINES
@pytest.mark.parametrize("state", SITUATIONS, ids=str)
def test_a_request_is_a_row_or_is_refused_and_nothing_changed(state: TransactionState, engine: Engine) -> None:
    """Every request in every state: the row's target follows, or IllegalTransition and the very same state."""
    for event, request in REQUESTS.items():
        fleet = SITUATIONS[state](engine)
        before = fleet.state
        facts = {"is_restore": before.plan.is_restore, "snapshot_is_published": before.decided}
        expected = TRANSACTION.step(state, event, facts)
        if isinstance(expected, Accepted):
            fleet.ask(request)
            assert _passed_through(fleet, expected.target), f"{event} in {state}"
            continue
        log = list(fleet.log)
        with pytest.raises(IllegalTransition) as refused:
            fleet.ask(request)
        assert fleet.state is before
        assert fleet.log == log
        assert (refused.value.machine, refused.value.state, refused.value.event) == ("TRANSACTION", state, event)
        assert not isinstance(refused.value, GuardRefused)


def _passed_through(fleet: Fleet, target: TransactionState) -> bool:
    taken = [record.trace for record in fleet.log if isinstance(record, m.Record)]
    return any(trace.machine == "TRANSACTION" and trace.target == target for trace in taken)


@ENGINES
@pytest.mark.parametrize("request_", [m.ReleaseRequested(), m.CommitRequested(), m.PublishRequested()], ids=repr)
def test_resume_commit_and_publish_from_idle_are_illegal(request_: m.Event, engine: Engine) -> None:
    """The IDLE resume and its like: a transaction that has not begun has nothing to resume, commit or publish."""
    for fleet in (cut(engine), restore(engine)):
        before = fleet.state
        with pytest.raises(IllegalTransition, match="not possible in 'idle'"):
            fleet.ask(request_)
        assert fleet.state is before
        assert fleet.log == []


@pytest.mark.parametrize("request_", [m.ReleaseRequested(), m.PublishRequested()], ids=repr)
def test_resume_and_publish_of_a_paused_cut_are_illegal(request_: m.Event) -> None:
    """Nothing is published before the exports, and a cut is left only by publishing or aborting."""
    fleet = cut().to(TransactionState.PAUSED)
    with pytest.raises(IllegalTransition, match="possible there: abort_requested"):
        fleet.ask(request_)
    assert fleet.at is TransactionState.PAUSED


@pytest.mark.parametrize("request_", [m.CommitRequested(), m.PublishRequested()], ids=repr)
def test_a_restore_is_never_committed_nor_published(request_: m.Event) -> None:
    """A restored transaction can be released or aborted, not exported."""
    fleet = restore().to(TransactionState.RESTORED)
    with pytest.raises(IllegalTransition):
        fleet.ask(request_)
    assert fleet.at is TransactionState.RESTORED


@pytest.mark.parametrize("state", SITUATIONS, ids=str)
def test_what_nobody_waits_for_changes_nothing(state: TransactionState) -> None:
    """Replies to calls that were not made, under other ids or from strangers: no command, the same state."""
    for event in UNASKED:
        fleet = SITUATIONS[state](None)
        after, commands = advance(fleet.state, event, TableEngine())
        assert after == fleet.state, f"{event} in {state}"
        assert commands == ()


@pytest.mark.parametrize("state", SITUATIONS, ids=str)
def test_late_timers_break_nothing(state: TransactionState) -> None:
    """Any timer may fire late in any state: never an error, and a final state stays as it is."""
    for timer, name in product(m.Timer, (None, "policy", "agent", "resources")):
        if (name is None) is not (timer in {m.Timer.REACH, m.Timer.HOLD, m.Timer.RELEASE, m.Timer.WAVE, m.Timer.PROBE}):
            continue
        fleet = SITUATIONS[state](None)
        before = fleet.state
        fleet.ask(m.TimerFired(timer, None if name is None else ParticipantKey("main", name)))
        if state in TRANSACTION.final:
            assert fleet.state == before


def test_a_timer_of_a_stranger_changes_nothing() -> None:
    """A timer of a participant that the plan does not know is ignored."""
    fleet = cut().begin()
    after, commands = advance(fleet.state, m.TimerFired(m.Timer.POLL, ParticipantKey("main", "nobody")), TableEngine())
    assert (after, commands) == (fleet.state, ())


class _Circling(TableEngine):
    """An engine with a bug: what ends a transaction leaves it where it was."""

    def step(self, table: Table[S, E], state: S, event: E, facts: Facts) -> Accepted[S, E] | Refused:
        """As the table says, except that an ended reopening is not ended."""
        result = super().step(table, state, event, facts)
        if isinstance(result, Accepted) and result.row.event is TransactionEvent.ALL_RELEASED:
            return Accepted(replace(result.row, target=result.row.source, effects=()))
        return result


def test_tables_that_go_in_circles_are_said_to() -> None:
    """A rule that keeps what it waits for is an error with the state's name, not an endless loop."""
    fleet = cut(_Circling()).to(TransactionState.PAUSED).ask(m.AbortRequested())
    with pytest.raises(DefinitionError, match="go in circles at 'aborting'"):
        fleet.run()


# plans


def test_a_plan_over_nobody_is_refused() -> None:
    """A transaction needs at least one participant."""
    with pytest.raises(DefinitionError, match="discover some first"):
        Plan(())


def test_a_plan_that_names_somebody_twice_is_refused() -> None:
    """Two members with one key are refused by name."""
    with pytest.raises(DefinitionError, match="main/policy"):
        Plan((policy(), policy()))


def test_a_plan_has_a_limit() -> None:
    """More participants than can be kept track of are refused, with the limit."""
    crowd = tuple(
        MemberSpec(ParticipantKey("main", f"agent-{n}"), Role.AGENT, frozenset(Phase))
        for n in range(PARTICIPANTS_MAX + 1)
    )
    with pytest.raises(DefinitionError, match=f"at most {PARTICIPANTS_MAX}"):
        Plan(crowd)


def test_states_are_values() -> None:
    """Two runs that saw the same events have equal, equally hashed states: the explorer can tell what it has seen."""
    one, other = (cut().to(TransactionState.PAUSED).state for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != initial_state(one.plan)
    assert one.with_member(0, one.members[0]) == one


def test_auxiliary_models_are_looked_at_and_left_alone() -> None:
    """A judge is read in preflight and never called again."""
    fleet = Fleet(policy(), auxiliary(), agent(), resources()).to(TransactionState.RESUMED)
    assert [call for call in fleet.calls() if call.startswith("judge")] == ["judge inspect"]
