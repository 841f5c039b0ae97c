"""Steps of single members inside one ``advance``: rows of PARTICIPANT and RELEASE and what their effects emit.

``Draft`` is the state while it is worked on. What a member's step means for the transaction is put into
``Draft.queue`` and taken from there by ``quiesce.fsm.advance``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, TypeVar

from quiesce.fsm import messages as m
from quiesce.fsm.engine import Engine
from quiesce.fsm.rows import Accepted, Facts, Table
from quiesce.fsm.tables.participant import MAY_RUN_ON, PARTICIPANT, ParticipantEvent, ParticipantState
from quiesce.fsm.tables.release import ENDED_BY, RELEASE, SETTLED, ReleaseEvent
from quiesce.fsm.tables.transaction import TransactionEvent, TransactionState
from quiesce.fsm.trace import trace_of
from quiesce.fsm.transaction import FRESH_IDS_MAX, HEALS_MAX, TRIES_MAX, Member, MemberSpec, State, is_owed
from quiesce.fsm.vocabulary import Outcome, Verb

__all__ = ["FORWARD_STATES", "Draft", "call_outstanding", "fire_member", "fire_release", "may_run_on"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)

FORWARD_STATES: Final = frozenset(
    {
        TransactionState.PREFLIGHT,
        TransactionState.DRAINING,
        TransactionState.PAUSED,
        TransactionState.COMMITTING,
        TransactionState.COMMITTED,
        TransactionState.RESTORING,
    }
)
"""States in which an answer may lead to the next call towards the cut."""


_DURABLE: Final = frozenset({"record_decision", "take_fresh_id"})
"""Effects whose step is durable before anything that follows from it: whoever recovers must know of it."""
_RESUME: Final = frozenset({Verb.RELEASE})
_EXCHANGES: Final = frozenset({Verb.EXPORT, Verb.IMPORT})


class Draft:
    """A state being worked on: members in a list, the records and commands so far, and what is still to happen."""

    def __init__(self, state: State, engine: Engine) -> None:
        self.plan = state.plan
        self.engine = engine
        self.transaction = state.transaction
        self.members = list(state.members)
        self.decided = state.decided
        self.rested = state.rested
        self.lagging = state.lagging
        self.waves = state.waves
        self.scan = state.scan
        self.left: Facts = {}
        """What a recovery was told of a restore that another controller left."""
        self.queue: list[tuple[TransactionEvent, m.Failed | None]] = []
        self.records: list[m.Record] = []
        self.commands: list[m.Command] = []

    @property
    def going_forward(self) -> bool:
        return self.transaction in FORWARD_STATES

    def edit(self, index: int, **changes: object) -> Member:
        """Exchange fields of one member and return it."""
        member = self.members[index] = self.members[index]._replace(**changes)  # type: ignore[arg-type]  # checked by _replace
        return member

    def step(self, table: Table[S, E], subject: str, state: S, event: E, facts: Facts) -> Accepted[S, E] | None:
        """Take a step and record it; None when the table refuses it, and then nothing happened."""
        result = self.engine.step(table, state, event, facts)
        if not isinstance(result, Accepted):
            return None
        self.record(table, subject, result, facts)
        return result

    def record(self, table: Table[S, E], subject: str, accepted: Accepted[S, E], facts: Facts) -> None:
        self.records.append(m.Record(trace_of(table, subject, accepted, facts), _is_barrier(accepted)))

    def call(self, index: int, leg: m.Leg, verb: Verb) -> None:
        """Emit a call of this member under the id that the leg uses."""
        member = self.members[index]
        id_index = member.id_index if leg is m.Leg.RELEASE else 0
        self.commands.append(m.Call(self.plan.members[index].key, leg, verb, id_index))

    def linger(self, index: int, verb: Verb) -> None:
        """A call without an answer may run on over there, until its deadline at the latest."""
        if self.members[index].lingering is None or verb is not Verb.RELEASE:
            self.edit(index, lingering=verb)
        self.edit(index, seen=True)
        self.commands.append(m.Arm(m.Timer.OUTSTANDING, self.plan.members[index].key))

    def frozen(self) -> tuple[State, tuple[m.Command, ...]]:
        """The new state, and the commands with all records in front of everything else."""
        state = State(
            self.plan,
            self.transaction,
            tuple(self.members),
            self.decided,
            self.rested,
            self.lagging,
            self.waves,
            self.scan,
        )
        return state, (*_with_one_barrier(self.records), *self.commands)


def _is_barrier(accepted: Accepted[S, E]) -> bool:
    """Durable before what follows: the first call to a participant, a decision, the first call under a fresh id."""
    row = accepted.row
    first_touch = row.source is ParticipantState.IDLE and row.target is ParticipantState.UNKNOWN
    return first_touch or not _DURABLE.isdisjoint(row.effects)


def _with_one_barrier(records: list[m.Record]) -> list[m.Record]:
    """One barrier at the last record serves the whole batch: a wave of a thousand costs one sync, not a thousand."""
    if not any(record.barrier for record in records):
        return records
    return [m.Record(record.trace, barrier=False) for record in records[:-1]] + [
        m.Record(records[-1].trace, barrier=True)
    ]


def call_outstanding(draft: Draft, index: int, *, beyond: frozenset[Verb] = frozenset()) -> bool:
    """Whether an earlier call of the forward leg, of none of the verbs ``beyond``, may still run at the participant."""
    member = draft.members[index]
    spec = draft.plan.members[index]
    return any(
        verb is not None and verb not in beyond and may_run_on(spec, verb)
        for verb in (member.lingering, member.pending)
    )


def may_run_on(spec: MemberSpec, verb: Verb) -> bool:
    """Whether a handler of this call may act after its client has gone. A coordinator's resume waits for workers."""
    return spec.role in MAY_RUN_ON.get(verb, ()) or (verb is Verb.RELEASE and spec.refuses_idle_resume)


def fire_member(draft: Draft, index: int, event: ParticipantEvent, outcome: Outcome | None = None) -> bool:
    """Take one PARTICIPANT step; False when the table refuses it."""
    member = draft.members[index]
    facts: Facts = {
        "going_forward": draft.going_forward,
        "tries_left": member.tries < TRIES_MAX,
        "may_have_seen_a_call": member.seen,
        "restarts_stragglers": draft.plan.restarts_stragglers,
        "decided": draft.decided,
    }
    accepted = draft.step(PARTICIPANT, str(draft.plan.members[index].key), member.state, event, facts)
    if accepted is None:
        return False
    draft.edit(index, state=accepted.target)
    for effect in accepted.row.effects:
        _MEMBER_EFFECTS[effect](draft, index, outcome)
    if accepted.target is ParticipantState.IDLE and member.state is ParticipantState.UNKNOWN:
        fire_release(draft, index, ReleaseEvent.NOTHING_OWED)
    return True


def _calls(verb: Verb) -> Callable[[Draft, int, Outcome | None], None]:
    def effect(draft: Draft, index: int, _outcome: Outcome | None) -> None:
        if draft.members[index].pending is None:
            draft.edit(index, pending=verb)
            draft.call(index, m.Leg.FORWARD, verb)

    return effect


def _repeat_call(draft: Draft, index: int, _outcome: Outcome | None) -> None:
    verb = draft.members[index].repeat
    if verb is not None and draft.members[index].pending is None:
        draft.edit(index, pending=verb)
        draft.call(index, m.Leg.FORWARD, verb)


def _call_retire(draft: Draft, index: int, _outcome: Outcome | None) -> None:
    if not draft.members[index].retiring:
        draft.edit(index, retiring=True)
        draft.call(index, m.Leg.STRAGGLER, Verb.RETIRE)


def _arm_retry(draft: Draft, index: int, _outcome: Outcome | None) -> None:
    draft.edit(index, tries=draft.members[index].tries + 1)
    draft.commands.append(m.Arm(m.Timer.RETRY, draft.plan.members[index].key))


def _arm_straggler(draft: Draft, index: int, _outcome: Outcome | None) -> None:
    if draft.plan.watches_stragglers:
        draft.commands.append(m.Arm(m.Timer.STRAGGLER, draft.plan.members[index].key))


def _confirm(draft: Draft, index: int, _outcome: Outcome | None) -> None:
    draft.edit(index, confirmed=True)


def _mark_verified(draft: Draft, index: int, _outcome: Outcome | None) -> None:
    draft.edit(index, verified=True)


def _name_stragglers(draft: Draft, index: int, _outcome: Outcome | None) -> None:
    draft.commands.append(m.Note("name_stragglers", draft.plan.members[index].key))


def _fail_transaction(draft: Draft, index: int, outcome: Outcome | None) -> None:
    cause = TransactionEvent.PARTICIPANT_FAILED
    draft.queue.append((cause, m.Failed(cause, draft.plan.members[index].key, outcome)))


def _emits(command: Callable[[Draft, int], m.Command]) -> Callable[[Draft, int, Outcome | None], None]:
    def effect(draft: Draft, index: int, _outcome: Outcome | None) -> None:
        draft.commands.append(command(draft, index))

    return effect


_MEMBER_EFFECTS: Final[Mapping[str, Callable[[Draft, int, Outcome | None], None]]] = {
    "call_inspect": _calls(Verb.INSPECT),
    "call_close": _calls(Verb.CLOSE),
    "call_await_cut": _calls(Verb.AWAIT_CUT),
    "call_export": _calls(Verb.EXPORT),
    "call_import": _calls(Verb.IMPORT),
    "call_acknowledge": _calls(Verb.ACKNOWLEDGE),
    "call_retire": _call_retire,
    "repeat_call": _repeat_call,
    "consult": _emits(lambda draft, index: m.Consult(draft.plan.members[index].key)),
    "verify": _emits(lambda draft, index: m.Verify(draft.plan.members[index].key)),
    "confirm": _confirm,
    "mark_verified": _mark_verified,
    "arm_poll": _emits(lambda draft, index: m.Arm(m.Timer.POLL, draft.plan.members[index].key)),
    "arm_retry": _arm_retry,
    "arm_straggler": _arm_straggler,
    "name_stragglers": _name_stragglers,
    "fail_transaction": _fail_transaction,
}


def fire_release(draft: Draft, index: int, event: ReleaseEvent) -> bool:
    """Take one RELEASE step; False when the table refuses it."""
    member = draft.members[index]
    spec = draft.plan.members[index]
    facts: Facts = {
        "call_outstanding": call_outstanding(draft, index, beyond=_ended_by(event, spec)),
        "overlapped": member.overlapped,
        "pause_runs": spec.refuses_idle_resume and call_outstanding(draft, index, beyond=_RESUME | _EXCHANGES),
        "answer_awaited": member.release_pending is not None,
        "heals_by_pausing": spec.refuses_idle_resume,
        "heals_left": member.heals < HEALS_MAX,
        "fresh_ids_left": member.id_index < FRESH_IDS_MAX,
    }
    accepted = draft.step(RELEASE, str(spec.key), member.release, event, facts)
    if accepted is None:
        return False
    draft.edit(index, release=accepted.target)
    if accepted.target in SETTLED:
        draft.edit(index, lingering=None)
        draft.commands.append(m.Disarm(m.Timer.OUTSTANDING, spec.key))
    for effect in accepted.row.effects:
        _RELEASE_EFFECTS[effect](draft, index)
    return True


def _ended_by(event: ReleaseEvent, spec: MemberSpec) -> frozenset[Verb]:
    """Calls that cannot run on after ``event``; nothing that a fence says ends what runs at another server (F23)."""
    ended = ENDED_BY.get(event, frozenset())
    return ended - _EXCHANGES if spec.exports_elsewhere else ended


def _release_calls(verb: Verb) -> Callable[[Draft, int], None]:
    def effect(draft: Draft, index: int) -> None:
        draft.edit(index, release_pending=verb)
        if verb is Verb.RELEASE and call_outstanding(draft, index, beyond=_RESUME):
            draft.edit(index, overlapped=True)
        draft.call(index, m.Leg.RELEASE, verb)

    return effect


def _take_fresh_id(draft: Draft, index: int) -> None:
    draft.edit(index, id_index=draft.members[index].id_index + 1)


def _count_heal(draft: Draft, index: int) -> None:
    draft.edit(index, heals=draft.members[index].heals + 1)


def _report_released(draft: Draft, index: int) -> None:
    if is_owed(draft.members[index]):
        fire_member(draft, index, ParticipantEvent.RELEASED)


def _report_unproven(draft: Draft, index: int) -> None:
    fire_member(draft, index, ParticipantEvent.UNPROVEN)


def _release_emits(command: Callable[[Draft, int], m.Command]) -> Callable[[Draft, int], None]:
    def effect(draft: Draft, index: int) -> None:
        draft.commands.append(command(draft, index))

    return effect


_RELEASE_EFFECTS: Final[Mapping[str, Callable[[Draft, int], None]]] = {
    "call_release": _release_calls(Verb.RELEASE),
    "call_inspect": _release_calls(Verb.INSPECT),
    "call_healing_close": _release_calls(Verb.CLOSE),
    "take_fresh_id": _take_fresh_id,
    "count_heal": _count_heal,
    "arm_backoff": _release_emits(lambda draft, index: m.Arm(m.Timer.BACKOFF, draft.plan.members[index].key)),
    "disarm_backoff": _release_emits(lambda draft, index: m.Disarm(m.Timer.BACKOFF, draft.plan.members[index].key)),
    "report_released": _report_released,
    "report_unproven": _report_unproven,
    "note_holder": _release_emits(lambda draft, index: m.Note("note_holder", draft.plan.members[index].key)),
    "note_open_unfenced": _release_emits(
        lambda draft, index: m.Note("note_open_unfenced", draft.plan.members[index].key)
    ),
}
