"""The declared tables: that they say what the design says, and that every name in them is answered for."""

from __future__ import annotations

import pytest

from quiesce.fsm import advance as advance_module
from quiesce.fsm import members as members_module
from quiesce.fsm import waves as waves_module
from quiesce.fsm.rows import Accepted
from quiesce.fsm.tables import JOINT, PARTICIPANT, PHASES, RELEASE, TRANSACTION
from quiesce.fsm.tables.joint import TRIED_AT_REST, Condition
from quiesce.fsm.tables.participant import ANSWERS, MAY_RUN_ON, ParticipantEvent, ParticipantState
from quiesce.fsm.tables.phases import MILESTONE_PHASE, PHASE_OF, DrainMode, Milestone, plan_for
from quiesce.fsm.tables.release import RELEASE_ANSWERS, SETTLED, ReleaseEvent, ReleaseState
from quiesce.fsm.tables.transaction import TransactionEvent, TransactionState
from quiesce.fsm.vocabulary import DeadlineClass, Outcome, Phase, Role, Verb

S = TransactionState
E = TransactionEvent
BEFORE_PUBLISHING = (S.IDLE, S.PREFLIGHT, S.DRAINING, S.PAUSED, S.COMMITTING, S.COMMITTED)
NOTHING_IS_ASKED: dict[str, bool] = {"is_restore": False, "snapshot_is_published": False}


def _target(state: S, event: E, **facts: bool) -> S | None:
    result = TRANSACTION.step(state, event, NOTHING_IS_ASKED | facts)
    return result.target if isinstance(result, Accepted) else None


# TRANSACTION


def test_the_way_of_a_cut() -> None:
    """A cut passes the milestones in the order of the design."""
    way = [
        (E.BEGIN, S.PREFLIGHT),
        (E.ALL_INSPECTED, S.DRAINING),
        (E.ALL_PAUSED, S.PAUSED),
        (E.COMMIT_REQUESTED, S.COMMITTING),
        (E.ALL_COMMITTED, S.COMMITTED),
        (E.PUBLISH_REQUESTED, S.PUBLISHING),
        (E.PUBLISH_SUCCEEDED, S.PUBLISHED),
        (E.RELEASE_REQUESTED, S.RESUMING),
        (E.ALL_RELEASED, S.RESUMED),
    ]
    state = S.IDLE
    for event, target in way:
        assert _target(state, event) is target
        state = target


@pytest.mark.parametrize("event", [E.ABORT_REQUESTED, E.CANCELLED], ids=str)
@pytest.mark.parametrize("state", BEFORE_PUBLISHING, ids=str)
def test_an_abort_is_possible_everywhere_before_publishing(state: S, event: E) -> None:
    """Before publishing, an abort or a cancellation reopens everybody; in idle there is nobody to reopen."""
    assert _target(state, event) is (S.ABORTED if state is S.IDLE else S.ABORTING)


@pytest.mark.parametrize("event", [E.ABORT_REQUESTED, E.CANCELLED, E.HOLD_EXPIRED, E.RECORD_FAILED], ids=str)
def test_nothing_but_the_rename_decides_a_publishing_cut(event: E) -> None:
    """An abort, a spent budget and a failed record are kept until the rename's outcome is known."""
    assert _target(S.PUBLISHING, event) is S.PUBLISHING


def test_nothing_undoes_a_published_cut() -> None:
    """From published on, no event leads to aborting."""
    for state in (S.PUBLISHED, S.RESUMING, S.RESUMED, S.IN_DOUBT_PUBLISHED):
        assert not {row.target for row in TRANSACTION.rows if row.source is state} & {S.ABORTING, S.ABORTED}


def test_half_a_restore_is_opened_by_an_explicit_abort_alone() -> None:
    """A failed restore leads to a state that only a retry or an explicit abort leaves; a cancellation does not."""
    for state in (S.RESTORING, S.RESTORED):
        for event in (E.PARTICIPANT_FAILED, E.RECORD_FAILED, E.CANCELLED):
            assert _target(state, event, is_restore=True) is S.RESTORE_FAILED
    leaving = {(row.event, row.target) for row in TRANSACTION.rows if row.source is S.RESTORE_FAILED}
    assert leaving == {
        (E.RETRY_REQUESTED, S.RESTORING),
        (E.ABORT_REQUESTED, S.ABORTING),
        (E.CANCELLED, S.RESTORE_FAILED),
    }


def test_recovery_looks_at_the_folder() -> None:
    """A published snapshot is resumed, anything else is aborted: the rename decided, not the record of it."""
    assert _target(S.IDLE, E.RECOVER, snapshot_is_published=True) is S.RESUMING
    assert _target(S.IDLE, E.RECOVER, snapshot_is_published=False) is S.ABORTING


def test_who_is_in_doubt_stays_apart_by_whether_it_was_published() -> None:
    """In doubt after a published cut goes on to resumed, in doubt after an abort to aborted."""
    assert _target(S.RESUMING, E.SOME_UNPROVEN) is S.IN_DOUBT_PUBLISHED
    assert _target(S.ABORTING, E.SOME_UNPROVEN) is S.IN_DOUBT_UNPUBLISHED
    assert _target(S.IN_DOUBT_PUBLISHED, E.RETRY_REQUESTED) is S.RESUMING
    assert _target(S.IN_DOUBT_UNPUBLISHED, E.RETRY_REQUESTED) is S.ABORTING


@pytest.mark.parametrize(
    "state", sorted(set(S) - TRANSACTION.final - TRANSACTION.resting - {S.IDLE, S.PUBLISHED}), ids=str
)
def test_every_state_that_waits_has_a_budget_that_ends_it(state: S) -> None:
    """Each waiting state names its budget, and the budget's end is an event that the table knows there."""
    ends = {
        DeadlineClass.REACH: {E.REACH_EXPIRED},
        DeadlineClass.HOLD: {E.HOLD_EXPIRED},
        # the release budget ends each conversation by itself; what is left is then unproven
        DeadlineClass.RELEASE: {E.SOME_UNPROVEN},
    }[TRANSACTION.waiting[state]]
    assert {row.event for row in TRANSACTION.rows if row.source is state} >= ends


# PHASES and JOINT

WAVES = {
    Phase.PREFLIGHT: [{Role.POLICY, Role.AUXILIARY, Role.AGENT, Role.RESOURCES}],
    Phase.PREPARE: [{Role.POLICY}, {Role.AGENT}, {Role.RESOURCES}],
    Phase.COMMIT: [{Role.POLICY, Role.AGENT, Role.RESOURCES}, {Role.AGENT}, {Role.POLICY}, {Role.RESOURCES}],
    Phase.RESTORE: [{Role.POLICY}, {Role.AGENT}, {Role.RESOURCES}],
    Phase.RESUME: [{Role.RESOURCES}, {Role.POLICY}, {Role.AGENT}],
    Phase.ABORT: [{Role.RESOURCES}, {Role.POLICY}, {Role.AGENT}],
    Phase.ROLLBACK: [{Role.RESOURCES}, {Role.POLICY}, {Role.AGENT}],
}


@pytest.mark.parametrize("drain", DrainMode)
@pytest.mark.parametrize("phase", Phase, ids=str)
def test_the_order_of_waves_is_that_of_the_design(phase: Phase, drain: DrainMode) -> None:
    """Each phase's waves go to the roles of wire-protocol 1.5, in its order, in every drain mode."""
    plan = plan_for(phase, drain)
    assert [set(wave.roles) for wave in plan.waves] == WAVES[phase]
    assert all(wave.reason for wave in plan.waves)


@pytest.mark.parametrize("plan", PHASES, ids=lambda plan: f"{plan.phase}-{plan.drain}")
def test_a_wave_waits_for_roles_of_earlier_waves_alone(plan: object) -> None:
    """No wave waits for a role that gets its own call later: no phase can wait for itself."""
    waves = plan.waves  # type: ignore[attr-defined]  # a PhasePlan; pytest passes objects
    for number, wave in enumerate(waves):
        earlier = {role for before in waves[:number] for role in before.roles}
        assert {role for role, _ in wave.waits_for} <= earlier


def test_policies_first_touches_no_agent_before_every_policy_is_drained() -> None:
    """The drain modes differ in how far policies must have come before agents are asked to park."""
    overlapped, first = (plan_for(Phase.PREPARE, drain).waves[1].waits_for for drain in DrainMode)
    assert overlapped == ((Role.POLICY, Milestone.CLOSED),)
    assert first == ((Role.POLICY, Milestone.PAUSED),)


def test_joint_rules_cover_every_phase_that_runs() -> None:
    """Each state in which a phase runs has a rule that ends it, and every event of a rule is a row there."""
    assert {rule.state for rule in JOINT} == set(PHASE_OF) | TRIED_AT_REST
    for rule in JOINT:
        assert any(row.source is rule.state and row.event is rule.event for row in TRANSACTION.rows), rule


# every name in a table is answered for


def test_every_effect_is_performed_and_every_condition_evaluated() -> None:
    """Effects, conditions and milestones are names; each has exactly one place that turns it into commands."""
    assert set(TRANSACTION.effects) == set(advance_module._EFFECTS)
    assert set(PARTICIPANT.effects) == set(members_module._MEMBER_EFFECTS)
    assert set(RELEASE.effects) == set(members_module._RELEASE_EFFECTS)
    assert set(Condition) == set(waves_module._CONDITIONS)
    assert set(Milestone) == set(waves_module._MILESTONES) == set(MILESTONE_PHASE)


def test_an_answer_on_the_way_forward_means_an_event_that_the_table_knows() -> None:
    """What an outcome means is an event that is possible for a participant that was called."""
    called = {
        row.event for row in PARTICIPANT.rows if row.source in {ParticipantState.UNKNOWN, ParticipantState.PAUSED}
    }
    draining = {row.event for row in PARTICIPANT.rows if row.source is ParticipantState.DRAINING}
    assert set(ANSWERS.values()) <= called | draining
    assert not set(ANSWERS.values()) & {ParticipantEvent.REFUSED}


def test_a_success_belongs_to_its_call() -> None:
    """An exported answer to a pause is no success: it means that the participant does not do what was asked."""
    assert (Verb.CLOSE, Outcome.EXPORTED) not in ANSWERS
    assert (Verb.EXPORT, Outcome.PAUSED) not in ANSWERS
    assert (Verb.EXPORT, Outcome.EXPORTED) in ANSWERS


@pytest.mark.parametrize("outcome", Outcome, ids=str)
@pytest.mark.parametrize("verb", [Verb.CLOSE, Verb.IMPORT], ids=str)
def test_no_outcome_is_an_error_to_a_participant_that_was_called(verb: Verb, outcome: Outcome) -> None:
    """Whatever a participant answers to its first call, the table knows what follows."""
    facts = {"going_forward": True, "tries_left": True, "may_have_seen_a_call": False}
    event = ANSWERS.get((verb, outcome), ParticipantEvent.REFUSED)
    results = [PARTICIPANT.step(ParticipantState.UNKNOWN, found, facts) for found in (event, ParticipantEvent.REFUSED)]
    assert any(isinstance(result, Accepted) for result in results)


def test_release_answers_are_those_of_the_three_calls_of_the_conversation() -> None:
    """While reopening, only resume, pause and a reading are called, and each answer is possible where it arrives."""
    asked_in = {
        Verb.RELEASE: (ReleaseState.RELEASING,),
        Verb.CLOSE: (ReleaseState.CLOSING,),
        Verb.INSPECT: (ReleaseState.INSPECTING, ReleaseState.CONFIRMING),
    }
    assert {verb for verb, _ in RELEASE_ANSWERS} == set(asked_in)
    for (verb, _), event in (*RELEASE_ANSWERS.items(), *(((verb, None), ReleaseEvent.UNANSWERED) for verb in asked_in)):
        for state in asked_in[verb]:
            assert any(row.source is state and row.event is event for row in RELEASE.rows), f"{event} in {state}"


def test_every_open_conversation_can_expire() -> None:
    """Each state of a conversation that waits is ended by the release deadline, and is then named."""
    for state in RELEASE.waiting:
        result = RELEASE.step(state, ReleaseEvent.EXPIRED, {})
        assert isinstance(result, Accepted)
        assert result.target is ReleaseState.UNPROVEN
        assert "report_unproven" in result.row.effects


def test_another_id_is_never_sent_while_a_call_is_outstanding() -> None:
    """A row that takes a fresh id wants that no earlier call can still run."""
    fresh = [row for row in RELEASE.rows if "take_fresh_id" in row.effects]
    assert fresh
    assert all(row.wants().get("call_outstanding") is False for row in fresh)


def test_nobody_is_settled_while_a_call_is_outstanding() -> None:
    """A conversation ends only where no call of ours can run any more, or where none ever left."""
    ending = [row for row in RELEASE.rows if row.target in SETTLED and row.source not in SETTLED]
    assert len(ending) > 5
    for row in ending:
        proven = row.wants().get("call_outstanding") is False
        read_after = row.source is ReleaseState.CONFIRMING
        assert proven or read_after or row.event is ReleaseEvent.NOTHING_OWED, str(row)


def test_a_policys_status_call_changes_nothing_that_could_run_on() -> None:
    """Every call that a handler can run on for is known per role; a policy's status is a read (5.2)."""
    assert set(MAY_RUN_ON) == {Verb.CLOSE, Verb.AWAIT_CUT, Verb.EXPORT, Verb.IMPORT}
    assert Role.POLICY not in MAY_RUN_ON[Verb.AWAIT_CUT]
    assert all(Role.AGENT in roles for roles in MAY_RUN_ON.values())
