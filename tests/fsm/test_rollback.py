"""Reopening one participant, answer by answer: every row of the design's rollback table, and what is between them.

The names of the tests follow the table: what the participant answers to resume, and what is then done.
"""

from __future__ import annotations

import pytest
from support.scripted_fleet import SILENT, Fleet, agent, policy, resources

from quiesce.fsm import messages as m
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.release import ReleaseState
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.transaction import FRESH_IDS_MAX, HEALS_MAX
from quiesce.fsm.vocabulary import Outcome, Verb

S = TransactionState
R = ReleaseState
COORDINATOR = policy(refuses_idle_resume=True)


def reopening(*answers: Outcome | None, coordinator: bool = False) -> Fleet:
    """A paused cut over one policy that is being aborted; ``answers`` are those to its resumes."""
    fleet = Fleet(COORDINATOR if coordinator else policy()).to(S.PAUSED)
    return fleet.script("policy", Verb.RELEASE, *answers).ask(m.AbortRequested())


def conversation(fleet: Fleet) -> list[str]:
    """The calls made while reopening, ``#n`` for a fresh id."""
    return [call.removeprefix("policy ") for call in fleet.calls(leg=m.Leg.RELEASE)]


def outstanding(*answers: Outcome | None, coordinator: bool = False) -> Fleet:
    """As ``reopening``, but the policy's pause is not answered yet: it may still run over there."""
    fleet = Fleet(COORDINATOR if coordinator else policy()).script("policy", Verb.CLOSE, SILENT).begin().run()
    return fleet.script("policy", Verb.RELEASE, *answers).ask(m.AbortRequested())


# 200


def test_200_is_open() -> None:
    """A 200 to resume, with nothing of ours running there, ends the conversation."""
    fleet = reopening(Outcome.RELEASED).run()
    assert fleet.at is S.ABORTED
    assert conversation(fleet) == ["release"]


def test_200_while_a_call_may_still_run_is_read_again_when_it_has_ended() -> None:
    """An earlier call can close it again (F14 to F17): its answer is awaited, then the participant is read."""
    fleet = outstanding(Outcome.RELEASED).run()
    assert fleet.member("policy").release is R.SETTLING
    assert fleet.at is S.ABORTING
    fleet.answer("policy", Verb.CLOSE, Outcome.STALE_ID).run()
    assert conversation(fleet) == ["release", "inspect"]
    assert fleet.run().at is S.ABORTED


@pytest.mark.parametrize("reading", [Outcome.HELD_PREPARED, Outcome.HELD_PREPARING, Outcome.HELD_BUSY], ids=str)
def test_200_and_then_closed_again_by_the_late_call_is_resumed_again(reading: Outcome) -> None:
    """A late call that closed it again is undone by another resume."""
    fleet = outstanding(Outcome.RELEASED).script("policy", Verb.INSPECT, reading).run()
    fleet.answer("policy", Verb.CLOSE, Outcome.PAUSED).run()
    assert conversation(fleet) == ["release", "inspect", "release", "inspect"]
    assert fleet.at is S.ABORTED


def test_200_that_overtook_the_end_of_a_call_is_read_again() -> None:
    """A call that ended before the resume was answered may have ended after it was applied: read it again (F16)."""
    fleet = outstanding(SILENT).answer("policy", Verb.CLOSE, Outcome.STALE_ID)
    fleet.script("policy", Verb.INSPECT, Outcome.ORPHAN_FENCE).answer("policy", Verb.RELEASE, Outcome.RELEASED).run()
    assert conversation(fleet) == ["release", "inspect", "release #1", "inspect #1"]
    assert fleet.at is S.ABORTED


def test_200_to_a_repeated_resume_is_read_again_if_the_first_one_overlapped() -> None:
    """A repeated resume is answered from memory, which says nothing of what a call left meanwhile (F1, F16)."""
    fleet = outstanding(SILENT).answer("policy", Verb.CLOSE, Outcome.STALE_ID)
    fleet.answer("policy", Verb.RELEASE, Outcome.LOST).run()
    assert conversation(fleet) == ["release", "release", "inspect"]
    assert fleet.at is S.ABORTED


def test_200_to_whoever_takes_over_is_read_again() -> None:
    """The controller before may have sent a resume while a call of its own ran, and cannot be asked (F1, F16)."""
    fleet = Fleet(policy()).ask(m.Recover(published=False, touched=frozenset({policy().key})))
    fleet.script("policy", Verb.INSPECT, Outcome.ORPHAN_FENCE)
    fleet.fire(m.Timer.OUTSTANDING, "policy").answer("policy", Verb.RELEASE, Outcome.RELEASED).run()
    assert conversation(fleet) == ["release", "inspect", "release #1", "inspect #1"]
    assert fleet.at is S.ABORTED


def test_200_after_a_call_that_got_lost_waits_until_its_handler_cannot_run() -> None:
    """A lost call is outstanding until its deadline plus skew, which only the runner's timer knows."""
    fleet = outstanding(Outcome.RELEASED).answer("policy", Verb.CLOSE, Outcome.LOST).run()
    assert fleet.at is S.ABORTING
    fleet.fire(m.Timer.OUTSTANDING, "policy").run()
    assert conversation(fleet) == ["release", "inspect"]
    assert fleet.run().at is S.ABORTED


@pytest.mark.parametrize("elsewhere", [False, True])
def test_200_ends_an_export_only_where_the_same_fence_serves_it(elsewhere: bool) -> None:  # noqa: FBT001 - a table
    """No fence opens while it writes a save; but a coordinator's knows nothing of the server that exports for it."""
    fleet = Fleet(policy(refuses_idle_resume=elsewhere, exports_elsewhere=elsewhere)).to(S.PAUSED)
    fleet.script("policy", Verb.EXPORT, SILENT).ask(m.CommitRequested()).run()
    fleet.ask(m.AbortRequested()).run()
    assert fleet.at is (S.ABORTING if elsewhere else S.ABORTED)
    if elsewhere:
        assert fleet.member("policy").release is R.SETTLING
        fleet.answer("policy", Verb.EXPORT, Outcome.EXPORTED).run()
        assert conversation(fleet) == ["release", "inspect"]
        assert fleet.at is S.ABORTED


# 409 invalid_phase


def test_wrong_phase_and_idle_at_a_coordinator_is_healed_by_a_pause_under_the_same_id() -> None:
    """The IDLE resume: pause under the same id, then resume; the id is used up and fences a late pause."""
    fleet = reopening(Outcome.WRONG_PHASE, coordinator=True).run()
    assert conversation(fleet) == ["release", "inspect", "close", "release"]
    assert fleet.at is S.ABORTED


def test_the_idle_resume_is_healed_twice_at_most() -> None:
    """After two pauses that did not help, a reading that says idle is believed: open, though its id is not used up."""
    refusals = [Outcome.WRONG_PHASE] * (HEALS_MAX + 1)
    fleet = reopening(*refusals, coordinator=True).run()
    assert conversation(fleet) == [*(["release", "inspect", "close"] * HEALS_MAX), "release", "inspect"]
    assert fleet.at is S.ABORTED
    assert fleet.notes() == ["note_open_unfenced"]


def test_wrong_phase_and_idle_elsewhere_is_resumed_again() -> None:
    """Every other participant can be resumed from idle: it became idle meanwhile, and a resume uses the id up."""
    fleet = reopening(Outcome.WRONG_PHASE).run()
    assert conversation(fleet) == ["release", "inspect", "release"]
    assert fleet.calls(Verb.CLOSE, m.Leg.RELEASE) == []


@pytest.mark.parametrize("reading", [Outcome.HELD_BUSY, Outcome.HELD_PREPARING], ids=str)
def test_wrong_phase_and_busy_waits_for_the_outstanding_call(reading: Outcome) -> None:
    """Busy because of a call of ours: it is waited for and asked meanwhile, since its own answer may be lost."""
    fleet = outstanding(Outcome.WRONG_PHASE, Outcome.WRONG_PHASE).script("policy", Verb.INSPECT, reading, reading).run()
    assert conversation(fleet) == ["release", "inspect", "release", "inspect", "release"]
    assert fleet.member("policy").release is R.SETTLING
    fleet.answer("policy", Verb.CLOSE, Outcome.PAUSED).run()
    assert conversation(fleet)[5:] == ["inspect"]
    assert fleet.at is S.ABORTED


def test_a_reading_that_the_end_of_a_call_overtook_is_made_again() -> None:
    """A reading asked for while a call ran may be older than what that call left."""
    fleet = outstanding(Outcome.WRONG_PHASE).script("policy", Verb.INSPECT, SILENT).run()
    fleet.answer("policy", Verb.CLOSE, Outcome.PAUSED)
    assert fleet.member("policy").release is R.REREADING
    fleet.answer("policy", Verb.INSPECT, Outcome.OPEN).script("policy", Verb.INSPECT, Outcome.HELD_PREPARED).run()
    assert conversation(fleet) == ["release", "inspect", "inspect", "release", "inspect"]
    assert fleet.at is S.ABORTED


def test_wrong_phase_and_busy_with_nothing_of_ours_is_asked_again_after_a_while() -> None:
    """Busy without an outstanding call of ours: back off, resume again."""
    fleet = reopening(Outcome.WRONG_PHASE).script("policy", Verb.INSPECT, Outcome.HELD_BUSY).run()
    assert conversation(fleet) == ["release", "inspect", "release"]


@pytest.mark.parametrize(
    "reading",
    [Outcome.HELD_PREPARED, Outcome.HELD_COMMITTED, Outcome.HELD_RESTORED, Outcome.HELD_RESTORE_FAILED],
    ids=str,
)
def test_wrong_phase_and_held_by_our_id_is_resumed_again(reading: Outcome) -> None:
    """It holds our id and nothing runs: the refused resume met something that has ended since."""
    fleet = reopening(Outcome.WRONG_PHASE).script("policy", Verb.INSPECT, reading).run()
    assert conversation(fleet) == ["release", "inspect", "release"]


def test_wrong_phase_and_an_orphan_fence_is_resumed_under_a_fresh_id() -> None:
    """Phase preparing with no active id: a resume under an unused id opens it, and uses that id up (F16)."""
    fleet = reopening(Outcome.WRONG_PHASE).script("policy", Verb.INSPECT, Outcome.ORPHAN_FENCE).run()
    assert conversation(fleet) == ["release", "inspect", "release #1"]
    assert fleet.at is S.ABORTED


def test_an_orphan_fence_waits_for_the_outstanding_call_before_another_id_goes_out() -> None:
    """No other id goes to a participant where a call of ours may still run."""
    fleet = outstanding(Outcome.WRONG_PHASE).script("policy", Verb.INSPECT, Outcome.ORPHAN_FENCE).run()
    assert conversation(fleet) == ["release", "inspect"]
    fleet.answer("policy", Verb.CLOSE, Outcome.STALE_ID)
    fleet.script("policy", Verb.RELEASE, Outcome.WRONG_PHASE).script("policy", Verb.INSPECT, Outcome.ORPHAN_FENCE)
    fleet.run()
    assert conversation(fleet)[2:] == ["release", "inspect", "release #1", "inspect #1"]


def test_orphan_fences_use_up_no_more_fresh_ids_than_there_are() -> None:
    """When the fresh ids are used up it is asked again until the deadline, and then named."""
    orphans = FRESH_IDS_MAX + 1
    fleet = reopening(*[Outcome.WRONG_PHASE] * orphans, SILENT)
    fleet.script("policy", Verb.INSPECT, *[Outcome.ORPHAN_FENCE] * orphans).run()
    assert conversation(fleet)[-1] == f"release #{FRESH_IDS_MAX}"
    fleet.fire(m.Timer.RELEASE)
    assert fleet.at is S.IN_DOUBT_UNPUBLISHED


# 409 missing_workers, stale_checkpoint, checkpoint_conflict, resources_checkpoint_error


def test_missing_workers_is_resumed_again_and_never_paused_again() -> None:
    """Admission is open and a worker is gone: another pause would close the healthy ones (F18, F19)."""
    fleet = reopening(*[Outcome.WORKERS_MISSING] * 5, coordinator=True).run()
    assert conversation(fleet) == ["release"] * 6
    assert fleet.at is S.ABORTED


def test_a_stale_healing_pause_is_healed_under_a_fresh_id() -> None:
    """The id is fenced already: pause and resume under a fresh one."""
    fleet = reopening(Outcome.WRONG_PHASE, coordinator=True).script("policy", Verb.CLOSE, Outcome.STALE_ID).run()
    assert conversation(fleet) == ["release", "inspect", "close", "close #1", "release #1"]
    assert fleet.at is S.ABORTED


def test_a_coordinator_is_not_resumed_while_a_pause_of_ours_may_run() -> None:
    """A coordinator that pauses and resumes at once can end closed and held by nobody, which no reading shows."""
    fleet = outstanding(coordinator=True).run()
    assert conversation(fleet) == []
    fleet.answer("policy", Verb.CLOSE, Outcome.WORKERS_MISSING).run()
    assert conversation(fleet) == ["release"]
    assert fleet.at is S.ABORTED


def test_a_coordinator_is_not_paused_again_while_a_resume_of_ours_may_run() -> None:
    """A lost resume waits for the workers as well: it is repeated at once, but healed only when it has ended."""
    fleet = reopening(Outcome.LOST, Outcome.WRONG_PHASE, coordinator=True).run()
    assert conversation(fleet) == ["release", "release", "inspect"]
    fleet.fire(m.Timer.OUTSTANDING, "policy").run()
    assert fleet.at is S.ABORTED


def test_a_coordinators_lost_resume_is_over_when_the_next_one_opens() -> None:
    """Once a resume opened it the id is used up, so that a late one does nothing: no need to wait for it."""
    fleet = reopening(Outcome.LOST, coordinator=True).run()
    assert conversation(fleet) == ["release", "release"]
    assert fleet.at is S.ABORTED


def test_when_every_id_of_ours_is_stale_nothing_of_ours_can_close_it() -> None:
    """A participant that fences even the fresh ids is open as far as calls can make it so."""
    fleet = reopening(Outcome.WRONG_PHASE, coordinator=True)
    fleet.script("policy", Verb.CLOSE, *[Outcome.STALE_ID] * (FRESH_IDS_MAX + 1)).run()
    assert fleet.at is S.ABORTED
    assert fleet.notes() == ["note_open_unfenced"]


@pytest.mark.parametrize("where", ["resume", "reading", "healing pause"])
def test_a_conflict_touches_nothing_and_reports_the_holder(where: str) -> None:
    """Another's id holds it: nothing is owed, nothing is called, the holder is reported."""
    if where == "resume":
        fleet = reopening(Outcome.CONFLICT).run()
    elif where == "reading":
        fleet = reopening(Outcome.WRONG_PHASE).script("policy", Verb.INSPECT, Outcome.HELD_BY_OTHER).run()
    else:
        fleet = reopening(Outcome.WRONG_PHASE, coordinator=True).script("policy", Verb.CLOSE, Outcome.CONFLICT).run()
    assert fleet.member("policy").release is R.HELD_BY_OTHER
    assert fleet.at is S.ABORTED
    assert fleet.notes() == ["note_holder"]


def test_a_conflict_while_a_call_of_ours_runs_is_not_the_end() -> None:
    """While a call of ours may still close it, another's id there does not end our duty."""
    fleet = outstanding(Outcome.CONFLICT).run()
    assert fleet.at is S.ABORTING
    fleet.answer("policy", Verb.CLOSE, Outcome.PAUSED).run()
    assert conversation(fleet) == ["release", "release", "inspect"]


def test_a_conflict_that_the_end_of_a_call_overtook_is_looked_into() -> None:
    """Another's id may have let go before our late call closed it: who holds it now is read."""
    fleet = outstanding(SILENT).answer("policy", Verb.CLOSE, Outcome.PAUSED)
    fleet.script("policy", Verb.INSPECT, Outcome.HELD_PREPARED).answer("policy", Verb.RELEASE, Outcome.CONFLICT).run()
    assert conversation(fleet) == ["release", "inspect", "release", "inspect"]
    assert fleet.at is S.ABORTED


def test_a_restore_that_is_owed_may_still_run() -> None:
    """A server that refuses because it owes a restore is asked again when the import has ended."""
    fleet = Fleet(policy(), resources(), is_restore=True).script("resources", Verb.IMPORT, SILENT).begin().run()
    fleet.script("resources", Verb.RELEASE, Outcome.OWES_RESTORE).ask(m.AbortRequested()).run()
    assert fleet.member("resources").release is R.AWAITING_OUTSTANDING
    fleet.answer("resources", Verb.IMPORT, Outcome.IMPORTED).run()
    assert fleet.at is S.ABORTED


def test_a_participant_that_owes_a_restore_is_reported() -> None:
    """No call opens it: it is named in doubt, and tried again when asked, since it may have been restarted (F20)."""
    fleet = Fleet(policy(), resources()).to(S.PAUSED).script("resources", Verb.RELEASE, Outcome.OWES_RESTORE)
    fleet.ask(m.AbortRequested()).run()
    assert fleet.at is S.IN_DOUBT_UNPUBLISHED
    assert [key.name for key in fleet.state.in_doubt()] == ["resources"]
    assert fleet.ask(m.RetryRequested()).run().at is S.ABORTED


# nothing, for too long


@pytest.mark.parametrize("answer", [Outcome.LOST, Outcome.NEVER_SENT, Outcome.CRASHED, Outcome.LIED, Outcome.REFUSED])
def test_no_answer_that_proves_anything_is_asked_again(answer: Outcome) -> None:
    """What is no answer, or one that cannot be believed, is asked again after a while."""
    fleet = reopening(answer, answer).run()
    assert conversation(fleet) == ["release"] * 3
    assert fleet.at is S.ABORTED


@pytest.mark.parametrize("asked", [Verb.RELEASE, Verb.INSPECT, Verb.CLOSE], ids=str)
def test_nothing_for_too_long_is_in_doubt_by_name(asked: Verb) -> None:
    """Whatever was asked last, at the deadline the participant is named and nothing is waited for any more."""
    fleet = reopening(Outcome.WRONG_PHASE, coordinator=True) if asked is not Verb.RELEASE else reopening(SILENT)
    fleet.script("policy", asked, *([] if asked is Verb.RELEASE else [SILENT])).run()
    assert fleet.seen(m.Finished) == []
    assert fleet.fire(m.Timer.RELEASE).at is S.IN_DOUBT_UNPUBLISHED
    assert [key.name for key in fleet.state.in_doubt()] == ["policy"]
    assert fleet.member("policy").state is ParticipantState.UNKNOWN


def test_in_doubt_is_tried_again_under_the_same_id() -> None:
    """A retry begins the conversation anew; the participant that answers at last is settled."""
    fleet = reopening(SILENT).run().fire(m.Timer.RELEASE).answer("policy", Verb.RELEASE, Outcome.LOST)
    assert fleet.seen(m.Finished) == [m.Finished(S.IN_DOUBT_UNPUBLISHED)]
    assert fleet.ask(m.RetryRequested()).run().at is S.ABORTED
    assert conversation(fleet) == ["release", "release"]


def test_a_late_answer_that_proves_it_ends_the_doubt() -> None:
    """A resume that is answered after the deadline settles its participant, and with it the transaction."""
    fleet = reopening(SILENT).run().fire(m.Timer.RELEASE).answer("policy", Verb.RELEASE, Outcome.RELEASED)
    assert fleet.at is S.ABORTED
    assert fleet.seen(m.Finished) == [m.Finished(S.IN_DOUBT_UNPUBLISHED), m.Finished(S.ABORTED)]


def test_a_late_proof_that_nothing_left_ends_the_doubt() -> None:
    """When nobody is in doubt any more, the transaction does not stay in doubt about nobody."""
    fleet = outstanding(SILENT).fire(m.Timer.RELEASE)
    assert fleet.answer("policy", Verb.CLOSE, Outcome.NEVER_SENT).at is S.ABORTED


@pytest.mark.parametrize("asked", [Verb.RELEASE, Verb.INSPECT], ids=str)
def test_an_answer_from_before_the_deadline_is_not_taken_for_a_new_one(asked: Verb) -> None:
    """A retry asks nothing while an answer to the last question is still to come."""
    fleet = reopening(Outcome.WRONG_PHASE) if asked is Verb.INSPECT else reopening(SILENT)
    fleet.script("policy", asked, *([SILENT] if asked is Verb.INSPECT else [])).run().fire(m.Timer.RELEASE)
    before = conversation(fleet)
    fleet.ask(m.RetryRequested()).fire(m.Timer.BACKOFF, "policy")
    assert conversation(fleet) == before
    fleet.answer("policy", asked, Outcome.LOST).run()
    assert conversation(fleet) == [*before, "release"]
    assert fleet.at is S.ABORTED


def test_a_healing_pause_without_an_answer_may_still_close_it() -> None:
    """A lost healing pause is outstanding like any other: it is waited for before the next resume."""
    fleet = reopening(Outcome.WRONG_PHASE, coordinator=True).script("policy", Verb.CLOSE, Outcome.LOST).run()
    assert fleet.member("policy").release is R.AWAITING_OUTSTANDING
    fleet.fire(m.Timer.OUTSTANDING, "policy").run()
    assert conversation(fleet) == ["release", "inspect", "close", "release"]
    assert fleet.at is S.ABORTED


def test_a_healing_pause_that_the_deadline_overtook_may_still_close_it() -> None:
    """A retry after the deadline does not forget the pause that was never answered."""
    fleet = reopening(Outcome.WRONG_PHASE, coordinator=True).script("policy", Verb.CLOSE, SILENT).run()
    fleet.fire(m.Timer.RELEASE).answer("policy", Verb.CLOSE, Outcome.LOST)
    fleet.ask(m.RetryRequested()).run()
    assert fleet.member("policy").release is R.AWAITING_OUTSTANDING
    assert fleet.fire(m.Timer.OUTSTANDING, "policy").run().at is S.ABORTED


def test_it_turns_out_that_nothing_ever_left() -> None:
    """When the call in question turns out never to have left, nothing is owed and the conversation ends."""
    fleet = outstanding(SILENT).answer("policy", Verb.CLOSE, Outcome.NEVER_SENT)
    assert fleet.at is S.ABORTED
    assert fleet.member("policy").state is ParticipantState.IDLE


# order and independence


def test_what_agents_call_is_open_before_they_are() -> None:
    """Resources first, then policies, then agents; inside a wave all at once."""
    fleet = Fleet(policy("p1"), policy("p2"), agent(), resources()).to(S.PAUSED)
    for name in ("resources", "p1", "p2"):
        fleet.script(name, Verb.RELEASE, SILENT)
    fleet.ask(m.AbortRequested()).run()
    assert fleet.calls(Verb.RELEASE) == ["resources"]
    fleet.answer("resources", Verb.RELEASE, Outcome.RELEASED).run()
    assert fleet.calls(Verb.RELEASE) == ["resources", "p1", "p2"]
    fleet.answer("p1", Verb.RELEASE, Outcome.RELEASED).run()
    assert fleet.calls(Verb.RELEASE) == ["resources", "p1", "p2"]
    fleet.answer("p2", Verb.RELEASE, Outcome.RELEASED).run()
    assert fleet.calls(Verb.RELEASE) == ["resources", "p1", "p2", "agent"]
    assert fleet.at is S.ABORTED


def test_each_conversation_goes_its_own_way() -> None:
    """One participant's trouble does not enter another one's conversation."""
    fleet = Fleet(policy("p1"), policy("p2")).to(S.PAUSED).script("p1", Verb.RELEASE, Outcome.WRONG_PHASE)
    fleet.script("p2", Verb.RELEASE, Outcome.LOST).script("p1", Verb.INSPECT, Outcome.ORPHAN_FENCE)
    fleet.ask(m.AbortRequested()).run()
    assert sorted(fleet.calls(leg=m.Leg.RELEASE)) == [
        "p1 inspect",
        "p1 release",
        "p1 release #1",
        "p2 release",
        "p2 release",
    ]
    assert fleet.at is S.ABORTED
