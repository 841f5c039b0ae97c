"""The decision point at the core: publishing, not knowing whether it was published, and taking over from the dead."""

from __future__ import annotations

import pytest
from support.scripted_fleet import SILENT, Fleet, policy
from support.situations import SITUATIONS, cut, restore

from quiesce.fsm import messages as m
from quiesce.fsm.errors import IllegalTransition
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.transaction import TransactionEvent, TransactionState
from quiesce.fsm.vocabulary import Outcome, ParticipantKey, Verb

S = TransactionState
EVERYONE = frozenset(ParticipantKey("main", name) for name in ("policy", "agent", "resources"))


def publishing() -> Fleet:
    """A cut whose rename has been asked for."""
    return cut().to(S.COMMITTED).ask(m.PublishRequested())


def test_the_decision_is_durable_before_the_rename() -> None:
    """The batch that asks for the rename begins with a barrier record of the decision."""
    fleet = cut().to(S.COMMITTED)
    start = len(fleet.log)
    fleet.ask(m.PublishRequested())
    record, publish = fleet.log[start:]
    assert isinstance(record, m.Record)
    assert record.barrier
    assert "record_decision" in record.trace.effects
    assert publish == m.Publish()


def test_a_published_cut_is_resumed_at_once() -> None:
    """As soon as the rename happened everyone is released; no request is needed."""
    fleet = publishing().ask(m.Publication.PUBLISHED)
    assert fleet.at is S.RESUMING
    assert fleet.state.decided
    assert fleet.run().at is S.RESUMED


def test_a_rename_that_did_not_happen_undoes_the_cut() -> None:
    """Not published: everyone is reopened as if nothing had happened."""
    fleet = publishing().ask(m.Publication.NOT_PUBLISHED).run()
    assert fleet.at is S.ABORTED
    assert {member.state for member in fleet.state.members} == {ParticipantState.ABORTED}


@pytest.mark.parametrize("event", [m.AbortRequested(), m.Cancelled(), m.RecordFailed()], ids=repr)
@pytest.mark.parametrize("publication", m.Publication)
def test_nothing_is_both_published_and_aborted(event: m.Event, publication: m.Publication) -> None:
    """What comes while the rename is under way is kept; the rename's outcome alone says how the cut ends."""
    fleet = publishing().ask(event)
    assert fleet.at is S.PUBLISHING
    assert fleet.calls(Verb.RELEASE) == []
    fleet.ask(publication)
    assert (
        fleet.at
        is {
            m.Publication.PUBLISHED: S.RESUMING,
            m.Publication.NOT_PUBLISHED: S.ABORTING,
            m.Publication.UNKNOWN: S.PUBLISH_UNKNOWN,
        }[publication]
    )


def test_a_failed_decision_record_undoes_the_cut() -> None:
    """A rename that was held back because its decision could not be recorded is reported as not published."""
    fleet = publishing().ask(m.RecordFailed()).ask(m.Publication.NOT_PUBLISHED).run()
    assert fleet.at is S.ABORTED


def test_a_spent_hold_budget_waits_for_the_rename() -> None:
    """Once the rename is asked for, the hold budget ends nothing."""
    fleet = publishing().fire(m.Timer.HOLD)
    assert fleet.at is S.PUBLISHING
    assert fleet.notes() == ["note_late_abort"]


def test_an_abort_after_publication_finishes_the_resume() -> None:
    """After published there is nothing to abort: the request is noted and everyone is resumed."""
    fleet = publishing().ask(m.Publication.PUBLISHED).ask(m.AbortRequested()).run()
    assert fleet.at is S.RESUMED
    assert fleet.notes() == ["note_late_abort"]


# not knowing


def test_when_the_outcome_cannot_be_read_everyone_is_resumed_first() -> None:
    """publish_unknown: nobody stays paused for a file system, every file is kept, and it is looked at again."""
    fleet = publishing().ask(m.Publication.UNKNOWN).run()
    assert fleet.at is S.PUBLISH_UNKNOWN
    assert fleet.state.in_doubt() == ()
    assert fleet.calls(Verb.RELEASE) == ["resources", "policy", "agent"]
    assert (m.Timer.PROBE, None) in fleet.armed
    assert fleet.seen(m.Finished) == [m.Finished(S.PUBLISH_UNKNOWN)]


@pytest.mark.parametrize(
    ("found", "end"), [(m.Publication.PUBLISHED, S.RESUMED), (m.Publication.NOT_PUBLISHED, S.ABORTED)], ids=str
)
@pytest.mark.parametrize("released_first", [True, False], ids=["released first", "probed first"])
def test_the_probe_decides(found: m.Publication, end: TransactionState, *, released_first: bool) -> None:
    """Whatever the probe finds is how the cut ends, whether everyone was resumed by then or not."""
    fleet = publishing().ask(m.Publication.UNKNOWN)
    fleet.publications.append(found)
    if released_first:
        fleet.run()
    else:
        fleet.script("resources", Verb.RELEASE, SILENT)
    fleet.fire(m.Timer.PROBE).run()
    if not released_first:
        assert fleet.at is (S.RESUMING if end is S.RESUMED else S.ABORTING)
        fleet.answer("resources", Verb.RELEASE, Outcome.RELEASED).run()
    assert fleet.at is end
    assert fleet.calls(Verb.RELEASE) == ["resources", "policy", "agent"], "nobody is resumed twice"


def test_it_is_probed_until_it_can_be_read() -> None:
    """A probe that cannot tell is repeated after a while."""
    fleet = publishing().ask(m.Publication.UNKNOWN).run()
    fleet.publications.extend([m.Publication.UNKNOWN, m.Publication.PUBLISHED])
    fleet.fire(m.Timer.PROBE).run()
    assert fleet.at is S.PUBLISH_UNKNOWN
    assert fleet.fire(m.Timer.PROBE).run().at is S.RESUMED
    assert len(fleet.seen(m.Probe)) == 2


def test_somebody_unproven_while_the_snapshot_is_unknown_is_named_at_the_end() -> None:
    """Two open questions are kept apart: who is owed a resume, and whether the snapshot stands."""
    fleet = publishing().script("agent", Verb.RELEASE, SILENT).ask(m.Publication.UNKNOWN).run()
    fleet.fire(m.Timer.RELEASE)
    assert fleet.at is S.PUBLISH_UNKNOWN
    assert [key.name for key in fleet.state.in_doubt()] == ["agent"]
    assert fleet.fire(m.Timer.PROBE).run().at is S.IN_DOUBT_PUBLISHED
    assert [key.name for key in fleet.state.in_doubt()] == ["agent"]


def test_a_retry_looks_again_and_tries_again() -> None:
    """Retrying in publish_unknown probes, and resumes whoever is still owed it."""
    fleet = publishing().script("agent", Verb.RELEASE, SILENT).ask(m.Publication.UNKNOWN).run()
    fleet.fire(m.Timer.RELEASE).answer("agent", Verb.RELEASE, Outcome.LOST)
    assert fleet.ask(m.RetryRequested()).run().at is S.RESUMED
    assert fleet.state.in_doubt() == ()


@pytest.mark.parametrize("event", [m.AbortRequested(), m.Cancelled()], ids=repr)
def test_an_abort_while_the_outcome_is_unknown_is_noted(event: m.Event) -> None:
    """Nothing is aborted that may be published."""
    fleet = publishing().ask(m.Publication.UNKNOWN).ask(event).run()
    assert fleet.at is S.PUBLISH_UNKNOWN
    assert fleet.notes() == ["note_late_abort"]


def test_a_second_answer_of_the_store_changes_nothing() -> None:
    """A probe that ends after another one has decided is too late."""
    fleet = publishing().ask(m.Publication.UNKNOWN).ask(m.Publication.PUBLISHED)
    assert fleet.ask(m.Publication.NOT_PUBLISHED).at is S.RESUMING


# recovery


@pytest.mark.parametrize(("published", "end"), [(True, S.RESUMED), (False, S.ABORTED)], ids=["published", "not"])
def test_recovery_finishes_what_was_begun(*, published: bool, end: TransactionState) -> None:
    """The folder decides; whoever may have seen a call is reopened, and only they."""
    touched = frozenset(key for key in EVERYONE if key.name != "resources")
    fleet = cut().ask(m.Recover(published, touched)).run()
    for name in ("policy", "agent"):
        fleet.fire(m.Timer.OUTSTANDING, name)
    assert fleet.run().at is end
    assert fleet.calls(Verb.RELEASE) == ["policy", "agent"]


def test_recovery_waits_for_calls_of_the_dead() -> None:
    """Calls of the dead controller may still run: an opened participant is read again when they no longer can."""
    fleet = cut().ask(m.Recover(published=False, touched=EVERYONE)).run()
    assert fleet.calls(Verb.RELEASE) == ["resources"]
    for name in ("resources", "policy", "agent"):
        fleet.fire(m.Timer.OUTSTANDING, name).run()
        assert f"{name} inspect" in fleet.calls()
    assert fleet.at is S.ABORTED


def test_recovery_goes_on_under_the_last_fresh_id() -> None:
    """What the dead closed under a fresh id is no stranger's: it is resumed under that id, then under the next."""
    touched = frozenset({policy().key})
    fleet = cut().ask(m.Recover(published=False, touched=touched, fresh_ids=frozenset({(policy().key, 1)}))).run()
    fleet.script("policy", Verb.INSPECT, Outcome.ORPHAN_FENCE)
    fleet.fire(m.Timer.OUTSTANDING, "policy").run()
    assert fleet.calls(leg=m.Leg.RELEASE) == [
        "policy release #1",
        "policy inspect #1",
        "policy release #2",
        "policy inspect #2",
    ]
    assert fleet.at is S.ABORTED


def test_a_fresh_id_is_durable_before_its_first_call() -> None:
    """Whoever recovers knows every id under which a participant may be closed."""
    fleet = Fleet(policy()).to(S.PAUSED).script("policy", Verb.RELEASE, Outcome.WRONG_PHASE)
    fleet.script("policy", Verb.INSPECT, Outcome.ORPHAN_FENCE).ask(m.AbortRequested()).run()
    taken = [command for command in fleet.log if isinstance(command, m.Record) and command.barrier][-1]
    assert "take_fresh_id" in taken.trace.effects
    assert fleet.calls(leg=m.Leg.RELEASE)[-1] == "policy release #1"


def test_recovery_of_nothing_is_over_at_once() -> None:
    """A transaction that had called nobody is aborted without a call."""
    fleet = cut().ask(m.Recover(published=False, touched=frozenset())).run()
    assert fleet.at is S.ABORTED
    assert fleet.calls() == []


def test_recovery_is_for_a_transaction_that_has_not_begun_here() -> None:
    """Recovering into a running transaction is refused and changes nothing."""
    fleet = cut().to(S.PAUSED)
    before = fleet.state
    with pytest.raises(IllegalTransition):
        fleet.ask(m.Recover(published=True, touched=EVERYONE))
    assert fleet.state is before


# in doubt


@pytest.mark.parametrize("state", [S.IN_DOUBT_PUBLISHED, S.IN_DOUBT_UNPUBLISHED], ids=str)
def test_whoever_is_not_proven_open_in_time_is_named_and_tried_again(state: TransactionState) -> None:
    """In doubt names its participants, rests, and a retry resumes exactly them."""
    fleet = SITUATIONS[state](None)
    assert {key.name for key in fleet.state.in_doubt()} == {"policy", "agent", "resources"}
    assert fleet.calls(Verb.RELEASE) == ["resources"], "when the budget is spent nobody else is called"
    fleet.answer("resources", Verb.RELEASE, Outcome.LOST).ask(m.RetryRequested()).run()
    assert fleet.at is (S.RESUMED if state is S.IN_DOUBT_PUBLISHED else S.ABORTED)
    assert fleet.state.in_doubt() == ()


def test_one_lost_participant_does_not_keep_the_others_closed() -> None:
    """When a wave's patience is over the next one is released; only the lost one is in doubt."""
    fleet = cut().to(S.PAUSED).script("resources", Verb.RELEASE, SILENT).ask(m.AbortRequested()).run()
    assert fleet.calls(Verb.RELEASE) == ["resources"]
    fleet.fire(m.Timer.WAVE).run()
    assert fleet.calls(Verb.RELEASE) == ["resources", "policy", "agent"]
    fleet.fire(m.Timer.RELEASE)
    assert fleet.at is S.IN_DOUBT_UNPUBLISHED
    assert [key.name for key in fleet.state.in_doubt()] == ["resources"]


def test_each_wave_has_its_own_patience() -> None:
    """Patience begins when a wave is sent: the agents wait once for a lost policy, not once for each wave before it."""
    fleet = cut().to(S.PAUSED).script("policy", Verb.RELEASE, SILENT).ask(m.AbortRequested())
    assert fleet.log.count(m.Arm(m.Timer.WAVE)) == 1
    fleet.run()
    assert fleet.log.count(m.Arm(m.Timer.WAVE)) == 2
    assert fleet.calls(Verb.RELEASE) == ["resources", "policy"]
    fleet.fire(m.Timer.WAVE).run()
    assert fleet.calls(Verb.RELEASE) == ["resources", "policy", "agent"]
    assert fleet.state.in_doubt() == (ParticipantKey("main", "policy"),)


def test_failures_while_reopening_are_not_told_twice() -> None:
    """Only the first cause of an abort is reported; what else fails while everyone is reopened follows from it."""
    fleet = cut().to(S.PAUSED).ask(m.AbortRequested()).ask(m.RecordFailed()).ask(m.Cancelled()).run()
    failed = [command for command in fleet.log if isinstance(command, m.Failed)]
    assert [each.cause for each in failed] == [TransactionEvent.ABORT_REQUESTED]


def test_a_restore_publishes_nothing_and_is_decided_by_its_release() -> None:
    """A restore that is released counts as standing: its participants are resumed, not aborted."""
    fleet = restore().to(S.RESUMED)
    assert fleet.state.decided
    assert fleet.seen(m.Publish) == []


@pytest.mark.parametrize(
    ("left", "says"),
    [
        (m.Recover(published=True, touched=EVERYONE | {policy("stranger").key}), "main/stranger.*not in the plan"),
        (m.Recover(published=False, touched=EVERYONE, released=True), "the folder alone decides"),
        (m.Recover(published=True, touched=EVERYONE, aborted=True), "the folder alone decides"),
        (
            m.Recover(published=True, touched=frozenset(), fresh_ids=frozenset({(policy().key, 1)})),
            "name them among the touched",
        ),
        (m.Recover(published=True, touched=EVERYONE, fresh_ids=frozenset({(policy().key, 3)})), "1 to 2"),
    ],
    ids=["stranger", "released", "aborted", "fresh id of nobody", "no fresh id"],
)
def test_a_recovery_that_contradicts_its_plan_is_refused(left: m.Recover, says: str) -> None:
    """A participant that may be paused is not forgotten in silence: the recovery is refused and nothing changes."""
    fleet = cut()
    before = fleet.state
    with pytest.raises(IllegalTransition, match=says):
        fleet.ask(left)
    assert fleet.state is before
    assert fleet.log == []
