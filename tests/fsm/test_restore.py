"""Restores as whole scenarios at the core: the way forward, held closed on failure, retried or aborted."""

from __future__ import annotations

import pytest
from support.scripted_fleet import SILENT, Fleet, agent, auxiliary, policy, resources
from support.situations import restore

from quiesce.fsm import messages as m
from quiesce.fsm.errors import IllegalTransition
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.transaction import TransactionEvent, TransactionState
from quiesce.fsm.transaction import TRIES_MAX
from quiesce.fsm.vocabulary import Outcome, Verb

S = TransactionState
P = ParticipantState


def states(fleet: Fleet) -> dict[str, ParticipantState]:
    """What the core knows of each participant."""
    return {spec.key.name: member.state for spec, member in zip(fleet.plan.members, fleet.state.members, strict=True)}


def test_a_full_restore_calls_in_the_order_of_the_phases() -> None:
    """Read everyone, import policies first, hold closed until asked, reopen what agents call before the agents."""
    fleet = restore().to(S.RESTORED)
    assert fleet.calls() == [
        "policy inspect",
        "agent inspect",
        "resources inspect",
        "policy import",
        "agent import",
        "resources import",
    ]
    assert set(states(fleet).values()) == {P.RESTORED}
    assert fleet.armed == {(m.Timer.HOLD, None)}
    fleet.ask(m.ReleaseRequested()).run()
    assert fleet.at is S.RESUMED
    assert fleet.calls(Verb.RELEASE) == ["resources", "policy", "agent"]
    assert set(states(fleet).values()) == {P.RESUMED}
    assert fleet.seen(m.Publish) == []


def test_policies_are_closed_before_anything_is_restored_that_could_proceed() -> None:
    """No agent imports before every policy has, and no resource server before every agent."""
    fleet = Fleet(policy("p1"), policy("p2"), agent(), auxiliary(), resources(), is_restore=True)
    fleet.script("p2", Verb.IMPORT, SILENT).script("agent", Verb.IMPORT, SILENT).begin().run()
    assert fleet.calls(Verb.IMPORT) == ["p1", "p2"]
    fleet.answer("p2", Verb.IMPORT, Outcome.IMPORTED).run()
    assert fleet.calls(Verb.IMPORT) == ["p1", "p2", "agent"]
    fleet.answer("agent", Verb.IMPORT, Outcome.IMPORTED).run()
    assert fleet.at is S.RESTORED


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.CRASHED, Outcome.LIED, Outcome.STALE_ID], ids=str)
@pytest.mark.parametrize("name", ["policy", "agent", "resources"])
def test_a_failed_restore_is_held_closed(name: str, outcome: Outcome) -> None:
    """If any participant fails, nothing is resumed: the transaction rests and says who failed how."""
    fleet = restore().script(name, Verb.IMPORT, outcome).begin().run()
    assert fleet.at is S.RESTORE_FAILED
    assert fleet.calls(Verb.RELEASE) == []
    failed = [command for command in fleet.log if isinstance(command, m.Failed)]
    assert [(each.cause, each.key and each.key.name, each.outcome) for each in failed] == [
        (TransactionEvent.PARTICIPANT_FAILED, name, outcome)
    ]
    assert fleet.seen(m.Finished) == [m.Finished(S.RESTORE_FAILED)]


def test_what_happened_to_each_can_be_told_apart() -> None:
    """A failed restore tells restored-closed, failed and untouched participants apart."""
    fleet = restore().script("agent", Verb.IMPORT, Outcome.REFUSED).begin().run()
    assert states(fleet) == {"policy": P.RESTORED, "agent": P.UNKNOWN, "resources": P.IDLE}


def test_a_retry_goes_on_where_it_failed() -> None:
    """Retrying under the same id imports only who is not restored yet."""
    fleet = restore().script("agent", Verb.IMPORT, Outcome.REFUSED).begin().run()
    fleet.ask(m.RetryRequested()).run()
    assert fleet.at is S.RESTORED
    assert fleet.calls(Verb.IMPORT) == ["policy", "agent", "agent", "resources"]


def test_a_retry_waits_for_the_answer_of_the_call_that_still_runs() -> None:
    """A retry makes no second import at a participant whose first one is not answered."""
    fleet = Fleet(policy("p1"), policy("p2"), is_restore=True)
    fleet.script("p1", Verb.IMPORT, SILENT).script("p2", Verb.IMPORT, Outcome.REFUSED).begin().run()
    assert fleet.at is S.RESTORE_FAILED
    fleet.ask(m.RetryRequested())
    assert fleet.calls(Verb.IMPORT) == ["p1", "p2", "p2"]
    assert fleet.answer("p1", Verb.IMPORT, Outcome.IMPORTED).run().at is S.RESTORED


def test_an_answer_that_arrives_while_held_is_kept() -> None:
    """A participant that ends its import after another one failed counts as restored at the retry."""
    fleet = Fleet(policy("p1"), policy("p2"), is_restore=True)
    fleet.script("p1", Verb.IMPORT, SILENT).script("p2", Verb.IMPORT, Outcome.REFUSED).begin().run()
    fleet.answer("p1", Verb.IMPORT, Outcome.IMPORTED)
    fleet.ask(m.RetryRequested()).run()
    assert fleet.calls(Verb.IMPORT) == ["p1", "p2", "p2"]
    assert fleet.at is S.RESTORED


def test_a_failed_restore_can_fail_again_and_be_retried_again() -> None:
    """Held closed is a state to rest in, as often as it takes."""
    fleet = restore().script("policy", Verb.IMPORT, *[Outcome.REFUSED] * 3).begin().run()
    for _ in range(2):
        fleet.ask(m.RetryRequested()).run()
        assert fleet.at is S.RESTORE_FAILED
    fleet.ask(m.RetryRequested()).run()
    assert fleet.at is S.RESTORED
    assert fleet.seen(m.Finished) == [m.Finished(S.RESTORE_FAILED)] * 3


def test_an_explicit_abort_reopens_half_a_restore() -> None:
    """An abort reopens whoever may be closed, in the order of reopening, and leaves the untouched alone."""
    fleet = restore().script("agent", Verb.IMPORT, Outcome.REFUSED).begin().run()
    fleet.ask(m.AbortRequested()).run()
    assert fleet.at is S.ABORTED
    assert fleet.calls(Verb.RELEASE) == ["policy", "agent"]
    assert states(fleet) == {"policy": P.ABORTED, "agent": P.ABORTED, "resources": P.IDLE}


@pytest.mark.parametrize("state", [S.RESTORING, S.RESTORED], ids=str)
def test_a_cancellation_does_not_open_half_a_restore(state: TransactionState) -> None:
    """A caller that goes away leaves a restore held closed; nothing restored proceeds by accident."""
    fleet = restore()
    if state is S.RESTORING:
        fleet.script("agent", Verb.IMPORT, SILENT).begin().run()
    else:
        fleet.to(state)
    fleet.ask(m.Cancelled()).run()
    assert fleet.at is S.RESTORE_FAILED
    assert fleet.calls(Verb.RELEASE) == []
    fleet.ask(m.Cancelled())
    assert fleet.at is S.RESTORE_FAILED


@pytest.mark.parametrize("state", [S.RESTORING, S.RESTORED], ids=str)
def test_an_explicit_abort_of_a_running_restore_reopens(state: TransactionState) -> None:
    """Who asks for an abort by name gets one, also while the restore runs."""
    fleet = restore()
    if state is S.RESTORING:
        fleet.script("policy", Verb.IMPORT, SILENT).begin().run().ask(m.AbortRequested())
        fleet.answer("policy", Verb.IMPORT, Outcome.IMPORTED).run()
    else:
        fleet.to(state).ask(m.AbortRequested()).run()
    assert fleet.at is S.ABORTED


@pytest.mark.parametrize(
    ("state", "timer"), [(S.RESTORING, m.Timer.REACH), (S.RESTORED, m.Timer.HOLD)], ids=["reach", "hold"]
)
def test_a_spent_budget_holds_a_restore_closed(state: TransactionState, timer: m.Timer) -> None:
    """The budgets end a restore as any failure does: closed."""
    fleet = restore().script("resources", Verb.IMPORT, *([SILENT] if state is S.RESTORING else []))
    fleet.begin().run().fire(timer).run()
    assert fleet.at is S.RESTORE_FAILED


def test_a_lost_import_is_repeated_and_then_given_up() -> None:
    """An import without an answer is safe to repeat under its id; after the last try the restore is held."""
    fleet = restore().script("policy", Verb.IMPORT, *[Outcome.LOST] * TRIES_MAX).to(S.RESTORED)
    assert fleet.calls(Verb.IMPORT).count("policy") == TRIES_MAX + 1
    fleet = restore().script("policy", Verb.IMPORT, *[Outcome.LOST] * (TRIES_MAX + 1)).begin().run()
    assert fleet.at is S.RESTORE_FAILED


def test_an_import_that_never_left_is_marked_anew_at_the_retry() -> None:
    """A participant that no import reached is untouched, and is recorded again before the next one leaves."""
    never = [Outcome.NEVER_SENT] * (TRIES_MAX + 1)
    fleet = restore().script("policy", Verb.IMPORT, *never).begin().run()
    assert states(fleet)["policy"] is P.IDLE
    fleet.ask(m.RetryRequested()).run()
    assert fleet.at is S.RESTORED


def test_a_failed_preflight_of_a_restore_touches_nobody() -> None:
    """Before anything was imported there is nothing to hold: the restore is simply undone."""
    fleet = restore().script("resources", Verb.INSPECT, Outcome.HELD_BY_OTHER).begin().run()
    assert fleet.at is S.ABORTED
    assert fleet.calls(Verb.IMPORT) == fleet.calls(Verb.RELEASE) == []


def test_a_process_that_still_owes_a_restore_is_named() -> None:
    """A resource server that still owes a restore cannot be opened by calls: it is in doubt by name (F20)."""
    fleet = restore().script("resources", Verb.IMPORT, Outcome.REFUSED)
    fleet.script("resources", Verb.RELEASE, Outcome.OWES_RESTORE).begin().run().ask(m.AbortRequested()).run()
    assert fleet.at is S.IN_DOUBT_UNPUBLISHED
    assert [key.name for key in fleet.state.in_doubt()] == ["resources"]
    assert fleet.calls(Verb.RELEASE) == ["resources", "policy", "agent"], "one that cannot be opened holds up nobody"


def test_a_restore_is_released_only_when_it_is_asked_for() -> None:
    """While the restore runs or is held, a request to release is refused."""
    for fleet in (
        restore().script("policy", Verb.IMPORT, SILENT).begin().run(),
        restore().script("policy", Verb.IMPORT, Outcome.REFUSED).begin().run(),
    ):
        before = fleet.state
        with pytest.raises(IllegalTransition):
            fleet.ask(m.ReleaseRequested())
        assert fleet.state is before


# recovery

EVERYONE = frozenset(spec.key for spec in restore().plan.members)
POLICY = frozenset({policy().key})


def test_a_recovered_restore_is_held_closed() -> None:
    """What a dead controller left of a restore is neither opened nor called: it rests until it is told what to do."""
    fleet = restore().ask(m.Recover(published=False, touched=POLICY)).run()
    assert fleet.at is S.RESTORE_FAILED
    assert fleet.calls() == []
    assert states(fleet) == {"policy": P.UNKNOWN, "agent": P.IDLE, "resources": P.IDLE}
    assert fleet.seen(m.Finished) == [m.Finished(S.RESTORE_FAILED)]
    assert fleet.ask(m.Cancelled()).at is S.RESTORE_FAILED


def test_a_recovered_restore_is_retried_under_the_same_id() -> None:
    """A retry imports everybody again, also who may have been restored: the same call is answered the same."""
    fleet = restore().ask(m.Recover(published=False, touched=POLICY)).ask(m.RetryRequested()).run()
    assert fleet.at is S.RESTORED
    assert fleet.calls(Verb.IMPORT) == ["policy", "agent", "resources"]
    assert fleet.ask(m.ReleaseRequested()).run().at is S.RESUMED


def test_a_recovered_restore_is_aborted_by_request() -> None:
    """An explicit abort opens whoever may have been touched, reads what late calls left, and calls nobody else."""
    fleet = restore().ask(m.Recover(published=False, touched=POLICY)).ask(m.AbortRequested()).run()
    assert fleet.at is S.ABORTING
    assert fleet.fire(m.Timer.OUTSTANDING, "policy").run().at is S.ABORTED
    assert fleet.calls() == ["policy release", "policy inspect"]


@pytest.mark.parametrize(
    ("left", "end"),
    [
        (m.Recover(published=False, touched=EVERYONE, released=True), S.RESUMED),
        (m.Recover(published=False, touched=EVERYONE, aborted=True), S.ABORTED),
    ],
    ids=["released", "aborted"],
)
def test_a_restore_that_was_being_opened_goes_on_being_opened(left: m.Recover, end: TransactionState) -> None:
    """Released or aborted for the record, it is not held again: some may accept work already."""
    fleet = restore().ask(left).run()
    for name in ("resources", "policy", "agent"):
        fleet.fire(m.Timer.OUTSTANDING, name).run()
    assert fleet.at is end
    assert fleet.calls(Verb.RELEASE) == ["resources", "policy", "agent"]
    assert fleet.calls(Verb.IMPORT) == []


def test_a_recovered_restore_that_touched_nobody_is_over() -> None:
    """Nothing was imported, so there is nothing to hold."""
    fleet = restore().ask(m.Recover(published=False, touched=frozenset())).run()
    assert fleet.at is S.ABORTED
    assert fleet.calls() == []


@pytest.mark.parametrize("event", [m.ReleaseRequested(), m.AbortRequested()], ids=["released", "aborted"])
def test_what_opens_a_restore_is_durable_before_anybody_is_called(event: m.Event) -> None:
    """Whoever takes over must not hold, and import again, what a call of the dead may still open."""
    fleet = restore().to(S.RESTORED)
    before = len(fleet.log)
    fleet.ask(event)
    kinds = [
        command.barrier if isinstance(command, m.Record) else type(command)
        for command in fleet.log[before:]
        if isinstance(command, m.Record | m.Call)
    ]
    assert kinds[kinds.index(m.Call) - 1] is True


@pytest.mark.parametrize(
    ("left", "says"),
    [
        (m.Recover(published=True, touched=EVERYONE), "a restore publishes nothing"),
        (m.Recover(published=False, touched=EVERYONE, released=True, aborted=True), "released and aborted"),
        (m.Recover(published=False, touched=frozenset({policy("stranger").key})), "main/stranger.*not in the plan"),
    ],
    ids=["published", "both", "stranger"],
)
def test_a_recovery_that_contradicts_its_plan_is_refused(left: m.Recover, says: str) -> None:
    """Nobody is called on a wrong account of what was left, and nothing changes."""
    fleet = restore()
    before = fleet.state
    with pytest.raises(IllegalTransition, match=says):
        fleet.ask(left)
    assert fleet.state is before
    assert fleet.log == []
