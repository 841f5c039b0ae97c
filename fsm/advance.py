"""``advance``: one event into the transaction core; its new state and its commands out.

The contract of whoever runs it stands in ``quiesce.fsm.transaction``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from quiesce.fsm import messages as m
from quiesce.fsm.engine import Engine, require
from quiesce.fsm.errors import DefinitionError, IllegalTransition
from quiesce.fsm.members import Draft, call_outstanding, fire_member, fire_release, may_run_on
from quiesce.fsm.rows import Facts
from quiesce.fsm.tables.joint import JOINT, TRIED_AT_REST
from quiesce.fsm.tables.participant import ANSWERS, RECORDED, ParticipantEvent, ParticipantState
from quiesce.fsm.tables.phases import PHASE_OF, plan_for
from quiesce.fsm.tables.release import RELEASE_ANSWERS, ReleaseEvent
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionEvent, TransactionState
from quiesce.fsm.transaction import FRESH_IDS_MAX, Plan, State, is_owed
from quiesce.fsm.vocabulary import Outcome, Phase, Verb
from quiesce.fsm.waves import meets, send_due_waves, wave_count

__all__ = ["advance"]

ROUNDS_MAX: Final = 100
"""Rounds of steps that one event may lead to by itself; a cut over any number of participants needs a few."""


def advance(state: State, event: m.Event, engine: Engine) -> tuple[State, tuple[m.Command, ...]]:
    """The state after ``event`` and what is to be done, records first. Pure.

    Answers and timers that come too late change nothing and ask for nothing. A request that the tables forbid
    (commit before paused, resume from idle) raises and changes nothing.

    Raises:
        DefinitionError: the tables go in circles.
        IllegalTransition: the request has no row in this state, or a recovery is told what contradicts its plan.
        GuardRefused: it has one, and its guards are named.
    """
    draft = Draft(state, engine)
    _INTAKE[type(event)](draft, event)
    _run_to_rest(draft)
    return draft.frozen()


def _run_to_rest(draft: Draft) -> None:
    """Take every step that follows by itself: queued events, waves that are due, joint rules; to a fixed point."""
    for _ in range(ROUNDS_MAX):
        while draft.queue:
            event, why = draft.queue.pop(0)
            _fire(draft, event, why)
        send_due_waves(draft)
        if not draft.queue and not _joint_step(draft):
            return
    raise DefinitionError(f"the tables go in circles at '{draft.transaction.value}': a rule keeps what it waits for")


def _joint_step(draft: Draft) -> bool:
    if draft.rested and draft.transaction not in TRIED_AT_REST:
        return False
    for rule in JOINT:
        if rule.state is draft.transaction and meets(draft, rule.phase, rule.condition):
            draft.queue.append((rule.event, None))
            return True
    return False


def _fire(draft: Draft, event: TransactionEvent, why: m.Failed | None = None) -> bool:
    """Take one TRANSACTION step; False when the table refuses it."""
    accepted = draft.step(TRANSACTION, "", draft.transaction, event, _facts(draft))
    if accepted is None:
        return False
    if accepted.target is not draft.transaction:
        draft.rested = False
    draft.transaction = accepted.target
    if accepted.target in (TransactionState.PUBLISHED, TransactionState.RESUMING):
        draft.decided = True
    for effect in accepted.row.effects:
        _EFFECTS[effect](draft, event, why)
    return True


def _facts(draft: Draft) -> Facts:
    """What the guards of TRANSACTION read."""
    return {"is_restore": draft.plan.is_restore, "snapshot_is_published": draft.decided, **draft.left}


def _request(draft: Draft, event: TransactionEvent) -> None:
    """A step that somebody asked for: refused loudly."""
    require(draft.engine.step(TRANSACTION, draft.transaction, event, _facts(draft)))
    _fire(draft, event)


# what the effects of TRANSACTION emit


def _starts(draft: Draft, _event: TransactionEvent, _why: m.Failed | None) -> None:
    """A phase begins: nobody has seen a wave of it yet."""
    draft.rested = False
    draft.waves = 0
    for index in range(len(draft.members)):
        draft.edit(index, confirmed=False, tries=0, repeat=None)


def _starts_release(draft: Draft, event: TransactionEvent, why: m.Failed | None) -> None:
    _starts(draft, event, why)
    draft.lagging = 0
    for index, member in enumerate(draft.members):
        if member.pending is not None and not call_outstanding(draft, index):
            draft.edit(index, pending=None)


def _finish(draft: Draft, _event: TransactionEvent, _why: m.Failed | None) -> None:
    draft.rested = True
    draft.commands += [m.Disarm(m.Timer.WAVE), m.Finished(draft.transaction)]


def _note_failure(draft: Draft, event: TransactionEvent, why: m.Failed | None) -> None:
    draft.commands.append(why or m.Failed(event))


def _disarm_budgets(draft: Draft, _event: TransactionEvent, _why: m.Failed | None) -> None:
    draft.commands += [m.Disarm(timer) for timer in (m.Timer.REACH, m.Timer.HOLD, m.Timer.RELEASE)]


def _emits(command: m.Command) -> Callable[[Draft, TransactionEvent, m.Failed | None], None]:
    def effect(draft: Draft, _event: TransactionEvent, _why: m.Failed | None) -> None:
        draft.commands.append(command)

    return effect


def _release_next(draft: Draft, _event: TransactionEvent, _why: m.Failed | None) -> None:
    draft.queue.append((TransactionEvent.RELEASE_REQUESTED, None))


def _is_a_barrier(_draft: Draft, _event: TransactionEvent, _why: m.Failed | None) -> None:
    """The step's own record is the decision; it becomes the batch's barrier (members._is_barrier)."""


_EFFECTS: Final[Mapping[str, Callable[[Draft, TransactionEvent, m.Failed | None], None]]] = {
    "start_preflight": _starts,
    "start_prepare": _starts,
    "start_commit": _starts,
    "start_restore": _starts,
    "start_release": _starts_release,
    "arm_reach": _emits(m.Arm(m.Timer.REACH)),
    "arm_hold": _emits(m.Arm(m.Timer.HOLD)),
    "arm_release": _emits(m.Arm(m.Timer.RELEASE)),
    "arm_probe": _emits(m.Arm(m.Timer.PROBE)),
    "disarm_budgets": _disarm_budgets,
    "record_decision": _is_a_barrier,
    "publish": _emits(m.Publish()),
    "probe_publication": _emits(m.Probe()),
    "release_next": _release_next,
    "note_failure": _note_failure,
    "note_late_abort": _emits(m.Note("note_late_abort")),
    "finish": _finish,
}


# what comes in


def _on_recover(draft: Draft, event: m.Recover) -> None:
    if (fault := _fault_of(draft.plan, event)) is not None:
        state, asked = draft.transaction.value, TransactionEvent.RECOVER.value
        raise IllegalTransition(TRANSACTION.name, state, asked, f"{TRANSACTION.name}: '{asked}' is refused: {fault}")
    draft.decided = event.published or event.released
    draft.left = {
        "release_is_recorded": event.released,
        "abort_is_recorded": event.aborted,
        "somebody_touched": bool(event.touched),
    }
    fresh_ids = dict(event.fresh_ids)
    for index, spec in enumerate(draft.plan.members):
        if spec.key in event.touched:
            # the controller before us may have sent a resume while a call of its own ran: a 200 alone proves nothing
            last = fresh_ids.get(spec.key, 0)
            draft.edit(index, state=ParticipantState.UNKNOWN, overlapped=True, id_index=last)
            draft.linger(index, Verb.CLOSE)
    _request(draft, TransactionEvent.RECOVER)


def _fault_of(plan: Plan, event: m.Recover) -> str | None:
    """What in the account of what was left contradicts the plan or itself, and what to do."""
    unknown = sorted(str(key) for key in event.touched if key not in plan.index)
    faults = (
        (
            bool(unknown),
            f"{', '.join(unknown)} may be paused and is not in the plan; recover with the plan that it had",
        ),
        (plan.is_restore and event.published, "a restore publishes nothing; say whether it was released or aborted"),
        (
            not plan.is_restore and (event.released or event.aborted),
            "the folder alone decides of a cut; say whether it stands",
        ),
        (event.released and event.aborted, "no restore is released and aborted; its first such record decides"),
        (
            any(key not in event.touched or not 0 < last <= FRESH_IDS_MAX for key, last in event.fresh_ids),
            f"a fresh id, 1 to {FRESH_IDS_MAX}, is taken for whoever may be paused; name them among the touched",
        ),
    )
    return next((text for is_fault, text in faults if is_fault), None)


def _on_reply(draft: Draft, event: m.Replied) -> None:
    _answered(draft, event, event.outcome)


def _on_call_failed(draft: Draft, event: m.CallFailed) -> None:
    _answered(draft, event, Outcome.LOST if event.maybe_applied else Outcome.NEVER_SENT)


def _answered(draft: Draft, event: m.Replied | m.CallFailed, outcome: Outcome) -> None:
    index = draft.plan.index.get(event.key)
    if index is None:
        return
    member = draft.members[index]
    if event.leg is m.Leg.FORWARD and member.pending is event.verb:
        _forward_answer(draft, index, event.verb, outcome)
    elif event.leg is m.Leg.RELEASE and (member.release_pending, member.id_index) == (event.verb, event.id_index):
        draft.edit(index, release_pending=None)
        _note_lost(draft, index, event.verb, outcome)
        fire_release(draft, index, RELEASE_ANSWERS.get((event.verb, outcome), ReleaseEvent.UNANSWERED))
    elif event.leg is m.Leg.STRAGGLER and member.retiring:
        draft.edit(index, retiring=False)
        retired = outcome is Outcome.RETIRED
        fire_member(draft, index, ParticipantEvent.RETIRED if retired else ParticipantEvent.NOT_RETIRED, outcome)


def _note_lost(draft: Draft, index: int, verb: Verb, outcome: Outcome) -> None:
    """A call without an answer may run on over there until its deadline."""
    if outcome is Outcome.LOST and may_run_on(draft.plan.members[index], verb):
        draft.linger(index, verb)


def _forward_answer(draft: Draft, index: int, verb: Verb, outcome: Outcome) -> None:
    ran = call_outstanding(draft, index)
    meaning = _meaning(draft, verb, outcome)
    if meaning is ParticipantEvent.UNANSWERED:
        draft.edit(index, pending=None, repeat=verb)
    else:
        draft.edit(index, pending=None, repeat=None, tries=0)
    _note_lost(draft, index, verb, outcome)
    if outcome in RECORDED and draft.members[index].lingering is not None:
        draft.edit(index, lingering=None)
        draft.commands.append(m.Disarm(m.Timer.OUTSTANDING, draft.plan.members[index].key))
    if not fire_member(draft, index, meaning, outcome):
        fire_member(draft, index, ParticipantEvent.REFUSED, outcome)
    if outcome not in (Outcome.NEVER_SENT, Outcome.LOST) and is_owed(draft.members[index]):
        draft.edit(index, seen=True)
    if ran and not call_outstanding(draft, index):
        fire_release(draft, index, ReleaseEvent.OUTSTANDING_ENDED)


def _meaning(draft: Draft, verb: Verb, outcome: Outcome) -> ParticipantEvent:
    if verb is not Verb.INSPECT or outcome in (Outcome.NEVER_SENT, Outcome.LOST):
        return ANSWERS.get((verb, outcome), ParticipantEvent.REFUSED)
    phase = PHASE_OF.get(draft.transaction)
    waves = plan_for(phase, draft.plan.drain).waves if phase is not None else ()
    expected = any(wave.expects is outcome for wave in waves)
    return ParticipantEvent.CONFIRMED if expected else ParticipantEvent.REFUSED


def _on_receipts(draft: Draft, event: m.ReceiptsReady) -> None:
    fire_member(draft, draft.plan.index[event.key], ParticipantEvent.RECEIPTS_READY)


def _on_consult_failed(draft: Draft, event: m.ConsultFailed) -> None:
    cause = TransactionEvent.CONSULT_FAILED
    draft.queue.append((cause, m.Failed(cause, event.key)))


def _on_verification(draft: Draft, event: m.Verification) -> None:
    index = draft.plan.index[event.key]
    if event.accepted:
        fire_member(draft, index, ParticipantEvent.VERIFIED)
    else:
        fire_member(draft, index, ParticipantEvent.REFUSED, Outcome.LIED)


_PUBLICATIONS: Final = {
    m.Publication.PUBLISHED: TransactionEvent.PUBLISH_SUCCEEDED,
    m.Publication.NOT_PUBLISHED: TransactionEvent.PUBLISH_FAILED,
    m.Publication.UNKNOWN: TransactionEvent.PUBLISH_UNCERTAIN,
}


def _on_publication(draft: Draft, event: m.Publication) -> None:
    draft.queue.append((_PUBLICATIONS[event], None))


def _on_record_failed(draft: Draft, _event: m.RecordFailed) -> None:
    draft.queue.append((TransactionEvent.RECORD_FAILED, None))


def _requests(event: TransactionEvent) -> Callable[[Draft, Any], None]:
    def intake(draft: Draft, _event: object) -> None:
        _request(draft, event)

    return intake


# timers


def _on_timer(draft: Draft, event: m.TimerFired) -> None:
    if event.key is None:
        _TRANSACTION_TIMERS[event.timer](draft)
        return
    index = draft.plan.index.get(event.key)
    if index is not None:
        _MEMBER_TIMERS[event.timer](draft, index)


def _expire_releases(draft: Draft) -> None:
    """The budget for reopening is spent: nobody is called any more, also none whose turn has not come."""
    if PHASE_OF.get(draft.transaction) not in (Phase.RESUME, Phase.ABORT, Phase.ROLLBACK):
        return
    draft.waves = (1 << wave_count(draft)) - 1
    for index, member in enumerate(draft.members):
        if is_owed(member):
            fire_release(draft, index, ReleaseEvent.EXPIRED)


def _wave_lags(draft: Draft) -> None:
    """Nobody of the waves so far is waited for any more; the timer was started when the last one was sent."""
    if not draft.rested:
        draft.lagging = draft.waves.bit_count()


def _retry(draft: Draft, index: int) -> None:
    """A participant that no call ever reached is marked anew before the next one leaves."""
    due = {Verb.CLOSE: ParticipantEvent.CLOSE_DUE, Verb.IMPORT: ParticipantEvent.IMPORT_DUE}
    member = draft.members[index]
    event = ParticipantEvent.CALL_AGAIN
    if member.state is ParticipantState.IDLE and member.repeat is not None:
        event = due.get(member.repeat, event)
    fire_member(draft, index, event)


def _outstanding_over(draft: Draft, index: int) -> None:
    draft.edit(index, lingering=None)
    if not call_outstanding(draft, index):
        fire_release(draft, index, ReleaseEvent.OUTSTANDING_ENDED)


def _queues(event: TransactionEvent) -> Callable[[Draft], None]:
    return lambda draft: draft.queue.append((event, None))


_TRANSACTION_TIMERS: Final[Mapping[m.Timer, Callable[[Draft], None]]] = {
    m.Timer.REACH: _queues(TransactionEvent.REACH_EXPIRED),
    m.Timer.HOLD: _queues(TransactionEvent.HOLD_EXPIRED),
    m.Timer.PROBE: _queues(TransactionEvent.PROBE_DUE),
    m.Timer.RELEASE: _expire_releases,
    m.Timer.WAVE: _wave_lags,
}

_MEMBER_TIMERS: Final[Mapping[m.Timer, Callable[[Draft, int], object]]] = {
    m.Timer.RETRY: _retry,
    m.Timer.OUTSTANDING: _outstanding_over,
    m.Timer.POLL: lambda draft, index: fire_member(draft, index, ParticipantEvent.POLL_DUE),
    m.Timer.STRAGGLER: lambda draft, index: fire_member(draft, index, ParticipantEvent.STRAGGLING),
    m.Timer.BACKOFF: lambda draft, index: fire_release(draft, index, ReleaseEvent.BACKED_OFF),
}

_INTAKE: Final[Mapping[type[Any], Callable[[Draft, Any], None]]] = {
    m.Begin: _requests(TransactionEvent.BEGIN),
    m.Recover: _on_recover,
    m.CommitRequested: _requests(TransactionEvent.COMMIT_REQUESTED),
    m.PublishRequested: _requests(TransactionEvent.PUBLISH_REQUESTED),
    m.ReleaseRequested: _requests(TransactionEvent.RELEASE_REQUESTED),
    m.AbortRequested: _requests(TransactionEvent.ABORT_REQUESTED),
    m.Cancelled: _requests(TransactionEvent.CANCELLED),
    m.RetryRequested: _requests(TransactionEvent.RETRY_REQUESTED),
    m.Replied: _on_reply,
    m.CallFailed: _on_call_failed,
    m.ReceiptsReady: _on_receipts,
    m.ConsultFailed: _on_consult_failed,
    m.Verification: _on_verification,
    m.Publication: _on_publication,
    m.TimerFired: _on_timer,
    m.RecordFailed: _on_record_failed,
}
