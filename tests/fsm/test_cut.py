"""Cuts as whole scenarios at the core: the way forward, its troubles, and what each failure leads to."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.scripted_fleet import DRAIN_ONLY, SILENT, Fleet, agent, auxiliary, policy, resources
from support.situations import cut

from quiesce.fsm import messages as m
from quiesce.fsm.machine import TransitionsEngine
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.phases import DrainMode
from quiesce.fsm.tables.transaction import TransactionEvent, TransactionState
from quiesce.fsm.transaction import TRIES_MAX, MemberSpec
from quiesce.fsm.vocabulary import Outcome, ParticipantKey, Phase, Verb

S = TransactionState
EVERYONE = ["policy", "agent", "resources"]
REOPENED = ["resources", "policy", "agent"]


def failures(fleet: Fleet) -> list[tuple[TransactionEvent, str | None, Outcome | None]]:
    """What the caller is told went wrong: cause, who, outcome."""
    failed = [command for command in fleet.log if isinstance(command, m.Failed)]
    return [(each.cause, each.key and each.key.name, each.outcome) for each in failed]


def assert_undone(fleet: Fleet, *, touched: list[str]) -> None:
    """Aborted, nobody owed, nothing published, and exactly those reopened who may have seen a call."""
    assert fleet.at is S.ABORTED
    assert fleet.state.in_doubt() == ()
    assert fleet.seen(m.Publish) == []
    assert [name for name in fleet.calls(Verb.RELEASE) if "#" not in name] == touched


# the whole way


@pytest.mark.parametrize("drain", DrainMode)
def test_a_full_cut_calls_in_the_order_of_the_phases(drain: DrainMode) -> None:
    """Every call of a cut without trouble, in order: read, close, read again, export, reopen."""
    fleet = Fleet(policy(), agent(), resources(), drain=drain).to(S.RESUMED)
    assert fleet.calls() == [
        *(f"{name} inspect" for name in EVERYONE),
        *(f"{name} close" for name in EVERYONE),
        *(f"{name} inspect" for name in EVERYONE),
        "agent export",
        "policy export",
        "resources export",
        *(f"{name} release" for name in REOPENED),
    ]
    assert {member.state for member in fleet.state.members} == {ParticipantState.RESUMED}
    assert fleet.armed == set()
    assert fleet.seen(m.Finished) == [m.Finished(S.RESUMED)]


def test_both_engines_run_the_same_cut() -> None:
    """The core on `transitions` emits the very commands that it emits on the table."""
    walked, live = cut(), cut(TransitionsEngine())
    for fleet in (walked, live):
        fleet.script("policy", Verb.CLOSE, Outcome.DRAINING).script("agent", Verb.CLOSE, Outcome.LOST)
        fleet.script("resources", Verb.RELEASE, Outcome.WRONG_PHASE, Outcome.LOST)
        fleet.to(S.COMMITTED).ask(m.PublishRequested()).run()
    assert walked.at is S.RESUMED
    assert walked.log == live.log
    assert walked.state == live.state


def test_the_first_call_to_each_is_behind_a_durable_record() -> None:
    """A participant is recorded as possibly paused before its first call leaves, a barrier between the two."""
    fleet = cut().begin()
    barriers = [record for record in fleet.log if isinstance(record, m.Record) and record.barrier]
    assert barriers == [], "reading the capabilities pauses nobody"
    fleet.run(until=S.DRAINING)
    close = fleet.log.index(m.Call(ParticipantKey("main", "policy"), m.Leg.FORWARD, Verb.CLOSE, 0))
    before = [command for command in fleet.log[:close] if isinstance(command, m.Record)]
    assert before[-1].barrier
    marked = [record.trace for record in before if record.trace.machine == "PARTICIPANT"]
    assert (marked[-1].subject, marked[-1].source, marked[-1].target) == ("main/policy", "idle", "unknown")


def test_agents_park_while_policies_drain() -> None:
    """Overlapped: agents are asked as soon as every policy is closed; resources wait for policies and agents."""
    fleet = cut().script("policy", Verb.CLOSE, Outcome.DRAINING).script("policy", Verb.AWAIT_CUT, SILENT)
    fleet.script("agent", Verb.CLOSE, SILENT).begin().run()
    assert fleet.calls(Verb.CLOSE) == ["policy", "agent"]
    fleet.answer("agent", Verb.CLOSE, Outcome.PAUSED)
    assert fleet.calls(Verb.CLOSE) == EVERYONE, "a draining policy is closed: agents parked, resources may freeze"


def test_policies_first_leaves_agents_alone_until_every_policy_is_drained() -> None:
    """policies_first: no agent is touched while a policy has calls in flight, and then none is owed anything."""
    fleet = Fleet(policy(), agent(), resources(), drain=DrainMode.POLICIES_FIRST)
    fleet.script("policy", Verb.CLOSE, Outcome.DRAINING).script("policy", Verb.AWAIT_CUT, SILENT).begin().run()
    assert fleet.calls(Verb.CLOSE) == ["policy"]
    fleet.fire(m.Timer.REACH).run()
    assert_undone(fleet, touched=["policy"])


def test_all_policies_close_in_one_wave() -> None:
    """Inside a wave every call is concurrent: no policy waits for another one's answer."""
    fleet = Fleet(policy("p1"), policy("p2"), agent(), resources())
    fleet.script("p1", Verb.CLOSE, SILENT).script("p2", Verb.CLOSE, SILENT).begin().run()
    assert fleet.calls(Verb.CLOSE) == ["p1", "p2"]
    fleet.answer("p2", Verb.CLOSE, Outcome.PAUSED).run()
    assert fleet.calls(Verb.CLOSE) == ["p1", "p2"], "agents wait for every policy"
    fleet.answer("p1", Verb.CLOSE, Outcome.DRAINING)
    assert fleet.calls(Verb.CLOSE) == ["p1", "p2", "agent"]


def test_a_draining_policy_is_asked_until_it_is_drained() -> None:
    """A policy becomes prepared only through a status call, so one follows every answer that says draining."""
    fleet = cut().script("policy", Verb.CLOSE, Outcome.DRAINING)
    fleet.script("policy", Verb.AWAIT_CUT, Outcome.DRAINING, Outcome.DRAINING).to(S.PAUSED)
    assert fleet.calls(Verb.AWAIT_CUT) == ["policy"] * 3


def test_an_incomplete_agent_is_asked_again_after_a_while() -> None:
    """agent_prepare_incomplete is never final: back off, ask again."""
    fleet = cut().script("agent", Verb.CLOSE, Outcome.INCOMPLETE)
    fleet.script("agent", Verb.AWAIT_CUT, Outcome.INCOMPLETE).to(S.PAUSED)
    assert fleet.calls(Verb.AWAIT_CUT) == ["agent", "agent"]
    polls = [command for command in fleet.log if isinstance(command, m.Arm) and command.timer is m.Timer.POLL]
    assert len(polls) == 2


def test_finished_results_are_owned_before_the_agent_is_asked_again() -> None:
    """Unacknowledged results go to the trainer; only what it owns durably is acknowledged."""
    fleet = cut().script("agent", Verb.CLOSE, Outcome.UNACKNOWLEDGED).to(S.PAUSED)
    order = [call for call in fleet.calls() if call.startswith("agent")]
    assert order == ["agent inspect", "agent close", "agent acknowledge", "agent await_cut"]
    assert fleet.seen(m.Consult) == [m.Consult(ParticipantKey("main", "agent"))]
    consult = fleet.log.index(fleet.seen(m.Consult)[0])
    acknowledge = fleet.log.index(m.Call(ParticipantKey("main", "agent"), m.Leg.FORWARD, Verb.ACKNOWLEDGE, 0))
    assert consult < acknowledge


def test_results_that_nobody_owns_abort_the_cut() -> None:
    """A trainer that fails to own the results aborts the cut, and the agent keeps them."""
    fleet = cut().script("agent", Verb.CLOSE, Outcome.UNACKNOWLEDGED)
    fleet.consultations.append(False)
    fleet.begin().run()
    assert failures(fleet) == [(TransactionEvent.CONSULT_FAILED, "agent", None)]
    assert fleet.calls(Verb.ACKNOWLEDGE) == []
    assert_undone(fleet, touched=["policy", "agent"])


def test_receipts_that_come_too_late_acknowledge_nothing() -> None:
    """An answer of the trainer after the abort began is not passed on."""
    fleet = cut().script("agent", Verb.CLOSE, Outcome.UNACKNOWLEDGED).script("agent", Verb.RELEASE, SILENT)
    fleet.begin().run(until=S.DRAINING)
    while not fleet.seen(m.Consult):
        fleet._one_step()
    fleet.ask(m.AbortRequested()).run()
    assert fleet.calls(Verb.ACKNOWLEDGE) == []


# who takes part


def test_a_drain_only_policy_exports_nothing_and_is_still_read_at_the_cut() -> None:
    """A policy without export is closed, drained, read again right before the exports, and reopened."""
    fleet = Fleet(policy(phases=DRAIN_ONLY), agent(), resources()).to(S.RESUMED)
    own = [call for call in fleet.calls() if call.startswith("policy")]
    assert own == ["policy inspect", "policy close", "policy inspect", "policy release"]
    assert fleet.calls(Verb.EXPORT) == ["agent", "resources"]


def test_a_drain_only_policy_that_is_not_at_the_cut_stops_the_exports() -> None:
    """Nobody exports when a policy that exports nothing no longer stands at the cut."""
    fleet = Fleet(policy(phases=DRAIN_ONLY), agent(), resources()).to(S.PAUSED)
    fleet.script("policy", Verb.INSPECT, Outcome.OPEN).ask(m.CommitRequested()).run()
    assert fleet.calls(Verb.EXPORT) == []
    assert_undone(fleet, touched=REOPENED)


def test_a_cut_without_agents() -> None:
    """A wave that waits for a role that nobody has does not wait."""
    fleet = Fleet(policy(), resources()).to(S.RESUMED)
    assert fleet.calls(Verb.CLOSE) == ["policy", "resources"]
    assert fleet.calls(Verb.RELEASE) == ["resources", "policy"]


def test_a_cut_over_policies_that_export_nothing() -> None:
    """A fleet that only drains is cut as well: read again, published without files of its own."""
    fleet = Fleet(policy(phases=DRAIN_ONLY), auxiliary()).to(S.RESUMED)
    assert fleet.calls(Verb.EXPORT) == []
    assert len(fleet.seen(m.Publish)) == 1


def test_who_is_not_to_be_paused_is_not() -> None:
    """An agent that takes no part in prepare is read in preflight and left alone."""
    bystander = agent("bystander")
    spec = type(bystander)(bystander.key, bystander.role, frozenset({Phase.PREFLIGHT}))
    fleet = Fleet(policy(), spec, resources()).to(S.RESUMED)
    assert [call for call in fleet.calls() if call.startswith("bystander")] == ["bystander inspect"]


# failures on the way, state by state


PREFLIGHT_READINGS = sorted(set(Outcome) - {Outcome.OPEN, Outcome.LOST, Outcome.NEVER_SENT})


@pytest.mark.parametrize("outcome", PREFLIGHT_READINGS, ids=str)
def test_preflight_pauses_nobody_unless_everybody_is_open(outcome: Outcome) -> None:
    """Any reading but open ends the cut before anyone was paused."""
    fleet = cut().script("agent", Verb.INSPECT, outcome).begin().run()
    assert failures(fleet) == [(TransactionEvent.PARTICIPANT_FAILED, "agent", outcome)]
    assert_undone(fleet, touched=[])
    assert fleet.calls(Verb.CLOSE) == []


CLOSE_REFUSALS = (
    Outcome.CONFLICT,
    Outcome.DEADLINE_EXCEEDED,
    Outcome.UNAUTHORIZED,
    Outcome.ROUTE_MISSING,
    Outcome.MALFORMED,
)


@pytest.mark.parametrize("outcome", CLOSE_REFUSALS, ids=str)
def test_a_close_that_is_refused_before_anything_happens_owes_nothing(outcome: Outcome) -> None:
    """A participant that refused its first call outright was not closed by it and is not resumed."""
    fleet = cut().script("agent", Verb.CLOSE, outcome).begin().run()
    assert failures(fleet) == [(TransactionEvent.PARTICIPANT_FAILED, "agent", outcome)]
    assert_undone(fleet, touched=["policy"])


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome.REFUSED,
        Outcome.WRONG_PHASE,
        Outcome.STALE_ID,
        Outcome.WORKERS_MISSING,
        Outcome.CRASHED,
        Outcome.LIED,
        Outcome.CHANGED,
    ],
    ids=str,
)
def test_a_close_that_failed_somehow_is_undone_at_that_participant_too(outcome: Outcome) -> None:
    """Where a failed close may have closed all the same, its participant is resumed as well."""
    fleet = cut().script("agent", Verb.CLOSE, outcome).begin().run()
    assert failures(fleet) == [(TransactionEvent.PARTICIPANT_FAILED, "agent", outcome)]
    assert_undone(fleet, touched=["policy", "agent"])


def test_a_refusal_does_not_free_who_may_have_been_closed_by_an_earlier_call() -> None:
    """After a lost close, a conflict proves nothing: the earlier call may have been applied, so it is resumed."""
    fleet = cut().script("agent", Verb.CLOSE, Outcome.LOST, Outcome.CONFLICT).begin().run()
    assert fleet.at is S.ABORTING
    fleet.fire(m.Timer.OUTSTANDING, "agent").run()
    assert_undone(fleet, touched=["policy", "agent"])


def test_a_recorded_success_shows_that_no_earlier_call_of_its_kind_runs_on() -> None:
    """An export whose first reply was lost and whose repetition succeeded is not waited for once more (F2, F3)."""
    fleet = cut().script("agent", Verb.EXPORT, Outcome.LOST).to(S.COMMITTED).ask(m.PublishRequested()).run()
    assert fleet.at is S.RESUMED
    assert fleet.armed == set()


def test_an_export_that_nobody_answered_does_not_hold_up_the_resume_that_was() -> None:
    """No fence opens while it writes, and the id is used up: a 200 to resume ends the wait for a lost export."""
    fleet = cut().script("agent", Verb.EXPORT, *[Outcome.LOST] * 3).to(S.PAUSED).ask(m.CommitRequested()).run()
    assert fleet.at is S.ABORTED
    assert fleet.armed == set()


@pytest.mark.parametrize("outcome", [Outcome.OPEN, Outcome.HELD_PREPARING, Outcome.HELD_BY_OTHER, Outcome.CHANGED])
def test_who_no_longer_stands_at_the_cut_stops_the_exports(outcome: Outcome) -> None:
    """Phases are read again right before the exports; any reading but prepared aborts before anyone exports."""
    fleet = cut().to(S.PAUSED).script("agent", Verb.INSPECT, outcome).ask(m.CommitRequested()).run()
    assert fleet.calls(Verb.EXPORT) == []
    assert_undone(fleet, touched=REOPENED)


@pytest.mark.parametrize("name", EVERYONE)
def test_a_failed_export_aborts(name: str) -> None:
    """One failed export undoes the cut for everybody; nothing is published."""
    fleet = cut().script(name, Verb.EXPORT, Outcome.REFUSED).to(S.PAUSED).ask(m.CommitRequested()).run()
    assert failures(fleet) == [(TransactionEvent.PARTICIPANT_FAILED, name, Outcome.REFUSED)]
    assert_undone(fleet, touched=REOPENED)


def test_exports_wait_for_each_other_by_role() -> None:
    """Agents' indexes are an input of the policies' export; resources come last."""
    fleet = cut().script("agent", Verb.EXPORT, SILENT).script("policy", Verb.EXPORT, SILENT)
    fleet.to(S.PAUSED).ask(m.CommitRequested()).run()
    assert fleet.calls(Verb.EXPORT) == ["agent"]
    fleet.answer("agent", Verb.EXPORT, Outcome.EXPORTED).run()
    assert fleet.calls(Verb.EXPORT) == ["agent", "policy"]
    fleet.answer("policy", Verb.EXPORT, Outcome.EXPORTED).run()
    assert fleet.calls(Verb.EXPORT) == ["agent", "policy", "resources"]


def test_verification_overlaps_the_others_exports_and_is_waited_for_at_the_end() -> None:
    """An export is checked when it arrives; the cut is committed when the last check is in."""
    fleet = cut().to(S.PAUSED).ask(m.CommitRequested())
    while len(fleet.calls(Verb.EXPORT)) < 3 or fleet.open_calls:
        call = fleet.open_calls[0]
        fleet.answer(call.key.name, call.verb, fleet.healthy(call))
    assert fleet.at is S.COMMITTING
    assert len(fleet.errands) == 3
    assert fleet.run().at is S.COMMITTED


def test_an_export_that_does_not_hold_what_it_said_aborts() -> None:
    """An export that fails its verification is a lie, and nothing is published."""
    fleet = cut().to(S.PAUSED)
    fleet.verifications.extend([True, False])
    fleet.ask(m.CommitRequested()).run()
    assert failures(fleet) == [(TransactionEvent.PARTICIPANT_FAILED, "policy", Outcome.LIED)]
    assert_undone(fleet, touched=REOPENED)


@pytest.mark.parametrize("request_", [m.AbortRequested(), m.Cancelled()], ids=lambda event: type(event).__name__)
@pytest.mark.parametrize(
    ("state", "touched"),
    [
        (S.PREFLIGHT, []),
        (S.DRAINING, ["policy"]),
        (S.PAUSED, REOPENED),
        (S.COMMITTING, REOPENED),
        (S.COMMITTED, REOPENED),
    ],
    ids=str,
)
def test_an_abort_reopens_exactly_those_who_may_have_seen_a_call(
    state: TransactionState, touched: list[str], request_: m.Event
) -> None:
    """In every state before publishing an abort, or the caller's cancellation, reopens all that were touched."""
    fleet = cut()
    if state is S.COMMITTING:
        fleet.to(S.PAUSED).ask(m.CommitRequested())
    else:
        fleet.to(state)
    fleet.ask(request_).run()
    assert_undone(fleet, touched=touched)


@pytest.mark.parametrize(
    ("state", "timer", "cause"),
    [
        (S.PREFLIGHT, m.Timer.REACH, TransactionEvent.REACH_EXPIRED),
        (S.DRAINING, m.Timer.REACH, TransactionEvent.REACH_EXPIRED),
        (S.PAUSED, m.Timer.HOLD, TransactionEvent.HOLD_EXPIRED),
        (S.COMMITTED, m.Timer.HOLD, TransactionEvent.HOLD_EXPIRED),
    ],
    ids=str,
)
def test_a_spent_budget_aborts(state: TransactionState, timer: m.Timer, cause: TransactionEvent) -> None:
    """The time to reach the cut and the time to hold it are two budgets; either one's end undoes the cut."""
    fleet = cut().to(state).fire(timer).run()
    assert failures(fleet) == [(cause, None, None)]
    assert fleet.at is S.ABORTED


def test_the_reach_budget_ends_at_the_cut() -> None:
    """At the cut the reach budget is stopped and the hold budget starts."""
    fleet = cut().to(S.PAUSED)
    assert fleet.armed == {(m.Timer.HOLD, None)}


@pytest.mark.parametrize("state", [S.PREFLIGHT, S.DRAINING, S.PAUSED, S.COMMITTED], ids=str)
def test_what_cannot_be_recorded_is_not_done(state: TransactionState) -> None:
    """A record that cannot be made durable undoes the cut in every state before publishing."""
    fleet = cut().to(state).ask(m.RecordFailed()).run()
    assert failures(fleet)[0] == (TransactionEvent.RECORD_FAILED, None, None)
    assert fleet.at is S.ABORTED


def test_a_barrier_that_fails_leaves_nobody_owed() -> None:
    """Calls behind a failed barrier were never made: their participants are owed nothing (contract 3)."""
    fleet = cut().run().begin()
    while fleet.at is S.PREFLIGHT:
        call = fleet.open_calls[0]
        fleet.answer(call.key.name, call.verb, Outcome.OPEN)
    fleet.ask(m.RecordFailed())
    fleet.answer("policy", Verb.CLOSE, Outcome.NEVER_SENT).run()
    assert fleet.at is S.ABORTED
    assert fleet.member("policy").state is ParticipantState.IDLE


# lost calls


@pytest.mark.parametrize("verb", [Verb.INSPECT, Verb.CLOSE, Verb.EXPORT], ids=str)
@pytest.mark.parametrize("name", EVERYONE)
def test_a_lost_call_is_repeated_under_the_same_id(name: str, verb: Verb) -> None:
    """A call without an answer is made again, as often as is allowed, and the cut goes on."""
    fleet = cut().script(name, verb, *[Outcome.LOST] * TRIES_MAX).to(S.COMMITTED)
    healthy = 2 if verb is Verb.INSPECT else 1
    assert fleet.calls(verb).count(name) == healthy + TRIES_MAX


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.NEVER_SENT], ids=str)
@pytest.mark.parametrize("verb", [Verb.INSPECT, Verb.CLOSE], ids=str)
def test_a_participant_that_never_answers_fails_the_cut(verb: Verb, outcome: Outcome) -> None:
    """After the last try the participant is given up, the cut is undone, and the caller learns how it was lost."""
    fleet = cut().script("policy", verb, *[outcome] * (TRIES_MAX + 1)).begin().run()
    assert failures(fleet) == [(TransactionEvent.PARTICIPANT_FAILED, "policy", outcome)]
    assert fleet.calls(verb).count("policy") == TRIES_MAX + 1


def test_answers_in_between_renew_the_tries() -> None:
    """Tries are counted between answers: a participant that answers now and then is not given up."""
    losses = [Outcome.LOST, Outcome.LOST, Outcome.DRAINING] * 3
    fleet = cut().script("policy", Verb.CLOSE, Outcome.DRAINING).script("policy", Verb.AWAIT_CUT, *losses)
    assert fleet.to(S.PAUSED).at is S.PAUSED


def test_who_was_never_reached_is_owed_nothing() -> None:
    """A close of which it is certain that it never left leaves the participant idle; an abort then passes it by."""
    fleet = cut().script("policy", Verb.CLOSE, Outcome.NEVER_SENT).begin()
    fleet.run(until=S.DRAINING)
    fleet.answer("policy", Verb.CLOSE, Outcome.NEVER_SENT)
    assert fleet.member("policy").state is ParticipantState.IDLE
    assert_undone(fleet.ask(m.AbortRequested()).run(), touched=[])


def test_who_was_never_reached_is_marked_anew_before_the_next_try() -> None:
    """The second try of a close that never left is behind a durable record like the first."""
    fleet = cut().script("policy", Verb.CLOSE, Outcome.NEVER_SENT).to(S.PAUSED)
    marks = [
        record.trace
        for record in fleet.log
        if isinstance(record, m.Record) and (record.trace.subject, record.trace.target) == ("main/policy", "unknown")
    ]
    assert len(marks) == 2


# stragglers


def straggling(*, restarts: bool) -> Fleet:
    """A cut whose agent has an execution that does not come to a boundary."""
    fleet = Fleet(policy(), agent(), resources(), watches_stragglers=True, restarts_stragglers=restarts)
    fleet.script("agent", Verb.CLOSE, Outcome.INCOMPLETE).script("agent", Verb.AWAIT_CUT, SILENT)
    return fleet.begin().run()


def test_a_straggler_is_named_and_waited_for() -> None:
    """Policy wait: the straggler is named once, nothing is retired, the cut goes on when it parks."""
    fleet = straggling(restarts=False).fire(m.Timer.STRAGGLER, "agent").run()
    assert fleet.notes() == ["name_stragglers"]
    assert fleet.calls(Verb.RETIRE) == []
    fleet.answer("agent", Verb.AWAIT_CUT, Outcome.PAUSED).run()
    assert fleet.at is S.PAUSED


def test_a_straggler_is_restarted_beside_the_poll() -> None:
    """Policy restart: it is retired on a leg of its own, while the agent is being asked."""
    fleet = straggling(restarts=True).fire(m.Timer.STRAGGLER, "agent")
    assert fleet.calls(Verb.RETIRE, m.Leg.STRAGGLER) == ["agent"]
    fleet.answer("agent", Verb.RETIRE, Outcome.RETIRED)
    assert fleet.at is S.DRAINING
    assert fleet.answer("agent", Verb.AWAIT_CUT, Outcome.PAUSED).run().at is S.PAUSED


def test_a_second_straggler_of_an_agent_is_restarted_too() -> None:
    """Behind the one that was retired another one may run: the watch goes on, each is named and retired."""
    fleet = straggling(restarts=True).script("agent", Verb.AWAIT_CUT, SILENT)
    for _ in range(2):
        fleet.fire(m.Timer.STRAGGLER, "agent").answer("agent", Verb.RETIRE, Outcome.RETIRED)
    assert fleet.notes() == ["name_stragglers"] * 2
    assert fleet.calls(Verb.RETIRE) == ["agent", "agent"]
    assert fleet.answer("agent", Verb.AWAIT_CUT, Outcome.PAUSED).run().at is S.PAUSED


@pytest.mark.parametrize("answer", [Outcome.LOST, Outcome.REFUSED, Outcome.CRASHED, Outcome.CONFLICT], ids=str)
def test_a_straggler_that_is_not_retired_is_tried_again(answer: Outcome) -> None:
    """A retire that fails ends nothing: it is tried again after a while, until the reach budget is spent."""
    fleet = straggling(restarts=True).fire(m.Timer.STRAGGLER, "agent").answer("agent", Verb.RETIRE, answer)
    assert failures(fleet) == []
    fleet.fire(m.Timer.STRAGGLER, "agent")
    assert fleet.calls(Verb.RETIRE) == ["agent", "agent"]


def test_a_retire_that_ends_after_the_agent_is_ready_is_harmless() -> None:
    """A late answer to a retire, good or bad, does not disturb an agent that stands at the cut."""
    for answer in (Outcome.RETIRED, Outcome.LOST, Outcome.CONFLICT):
        fleet = straggling(restarts=True).script("agent", Verb.RETIRE, SILENT).fire(m.Timer.STRAGGLER, "agent")
        fleet.answer("agent", Verb.AWAIT_CUT, Outcome.PAUSED).run()
        assert fleet.at is S.PAUSED
        before = fleet.state.members
        fleet.answer("agent", Verb.RETIRE, answer).run()
        assert fleet.at is S.PAUSED
        assert [member.state for member in fleet.state.members] == [member.state for member in before]


def test_stragglers_are_looked_for_again_when_the_first_answer_is_late() -> None:
    """A straggler timer that fires before the first answer does not end the watch."""
    fleet = Fleet(policy(), agent(), resources(), watches_stragglers=True).script("agent", Verb.CLOSE, SILENT)
    fleet.begin().run().fire(m.Timer.STRAGGLER, "agent")
    assert fleet.notes() == []
    fleet.answer("agent", Verb.CLOSE, Outcome.INCOMPLETE).fire(m.Timer.STRAGGLER, "agent")
    assert fleet.notes() == ["name_stragglers"]


# late answers


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - {Outcome.LOST}), ids=str)
@pytest.mark.parametrize("name", ["policy", "agent"])
def test_an_answer_after_the_abort_began_asks_for_nothing_forward(name: str, outcome: Outcome) -> None:
    """A late answer on the way forward never leads to another call on it, and fails nothing a second time."""
    fleet = cut().script(name, Verb.CLOSE, SILENT).begin().run().ask(m.AbortRequested())
    forward = len(fleet.calls(leg=m.Leg.FORWARD))
    fleet.answer(name, Verb.CLOSE, outcome).run()
    assert len(fleet.calls(leg=m.Leg.FORWARD)) == forward
    assert fleet.at is S.ABORTED
    assert failures(fleet) == [(TransactionEvent.ABORT_REQUESTED, None, None)]


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - {Outcome.LOST, Outcome.NEVER_SENT}), ids=str)
def test_an_answer_that_makes_no_sense_fails_the_cut_and_nothing_else(outcome: Outcome) -> None:
    """Whatever a participant answers to a close, the cut goes on or is undone; it is never an error of ours."""
    fleet = cut().script("agent", Verb.CLOSE, outcome).begin().run()
    assert fleet.at in {S.PAUSED, S.ABORTED}
    assert bool(failures(fleet)) is (fleet.at is S.ABORTED)


@pytest.mark.parametrize(
    "event",
    [
        m.Publication.PUBLISHED,
        m.Publication.NOT_PUBLISHED,
        m.Publication.UNKNOWN,
        m.RecordFailed(),
        m.ReceiptsReady(ParticipantKey("main", "agent")),
        m.ConsultFailed(ParticipantKey("main", "agent")),
        m.Verification(ParticipantKey("main", "agent"), accepted=True),
        m.Verification(ParticipantKey("main", "agent"), accepted=False),
    ],
    ids=str,
)
@pytest.mark.parametrize("end", [S.ABORTED, S.RESUMED], ids=str)
def test_what_arrives_after_the_end_changes_nothing(event: m.Event, end: TransactionState) -> None:
    """Late answers of the trainer, the store and the journal leave an ended transaction as it is."""
    fleet = cut().to(S.PAUSED)
    fleet = fleet.ask(m.AbortRequested()).run() if end is S.ABORTED else fleet.to(S.RESUMED)
    before, commands = fleet.state, len(fleet.log)
    fleet.ask(event)
    assert fleet.state == before
    assert len(fleet.log) == commands


class _CountedPhases(frozenset[Phase]):
    """Phases that count how often the product looks whether one is among them; the checker of the fleet looks too."""

    looks = 0

    def __contains__(self, phase: object) -> bool:
        _CountedPhases.looks += sys._getframe(1).f_globals["__name__"].startswith("quiesce.")
        return super().__contains__(phase)


@pytest.mark.parametrize("kind", [policy, agent, resources])
def test_waiting_for_many_looks_at_each_of_them_a_few_times(
    kind: Callable[[str], MemberSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waves and joint rules are asked at every answer: what they look at must not grow with the square of the fleet."""
    looks: list[float] = []
    for size in (20, 80):
        monkeypatch.setattr(_CountedPhases, "looks", 0)
        members = (replace(spec, phases=_CountedPhases(spec.phases)) for spec in (kind(f"m{n}") for n in range(size)))
        fleet = Fleet(*members).to(S.COMMITTED).ask(m.PublishRequested()).run()
        assert fleet.at is S.RESUMED
        looks.append(_CountedPhases.looks / size)
    assert looks[1] < 1.1 * looks[0]
