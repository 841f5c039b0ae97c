"""What a participant's answers are to the core: the explorer's stand-in for a dialect.

It reads a fence's step as generation A's dialect reads the reply that a server with this fence gives; a test holds the
two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quiesce.fsm.fence import FenceState, FenceStep
from quiesce.fsm.tables.fence import FenceEvent, FencePhase
from quiesce.fsm.vocabulary import Outcome, Role, Verb

__all__ = ["HELD_IN", "REFUSAL_OUTCOMES", "answer_outcome", "end_outcome", "event_of", "reading"]

REFUSAL_OUTCOMES: Final[Mapping[str, Outcome]] = {
    "stale_checkpoint": Outcome.STALE_ID,
    "checkpoint_conflict": Outcome.CONFLICT,
    "invalid_phase": Outcome.WRONG_PHASE,
    "missing_workers": Outcome.WORKERS_MISSING,
    "deadline_exceeded": Outcome.DEADLINE_EXCEEDED,
}
"""Codes that a controller tells apart; every other one is REFUSED."""

HELD_IN: Final[Mapping[FencePhase, Outcome]] = {
    FencePhase.IDLE: Outcome.HELD_BUSY,
    FencePhase.PREPARING: Outcome.HELD_PREPARING,
    FencePhase.PREPARED: Outcome.HELD_PREPARED,
    FencePhase.COMMITTING: Outcome.HELD_BUSY,
    FencePhase.COMMITTED_PAUSED: Outcome.HELD_COMMITTED,
    FencePhase.RESTORING: Outcome.HELD_BUSY,
    FencePhase.RESTORED_PAUSED: Outcome.HELD_RESTORED,
    FencePhase.RESTORE_FAILED_PAUSED: Outcome.HELD_RESTORE_FAILED,
}
"""What the capabilities of a participant say in each phase to whoever holds it."""

_EVENT_OF: Final[Mapping[Verb, FenceEvent]] = {
    Verb.CLOSE: FenceEvent.PREPARE,
    Verb.AWAIT_CUT: FenceEvent.PREPARE,
    Verb.EXPORT: FenceEvent.COMMIT,
    Verb.IMPORT: FenceEvent.RESTORE,
    Verb.RELEASE: FenceEvent.RESUME,
    Verb.RETIRE: FenceEvent.RETIRE,
}
_EVENT_OF_POLICY: Final[Mapping[Verb, FenceEvent]] = {
    Verb.AWAIT_CUT: FenceEvent.STATUS,
    Verb.RETIRE: FenceEvent.ABORT_INFLIGHT,
}

_SUCCESS: Final[Mapping[FenceEvent, Outcome]] = {
    FenceEvent.PREPARE: Outcome.PAUSED,
    FenceEvent.COMMIT: Outcome.EXPORTED,
    FenceEvent.RESTORE: Outcome.IMPORTED,
    FenceEvent.RESUME: Outcome.RELEASED,
    FenceEvent.ABORT_INFLIGHT: Outcome.RETIRED,
    FenceEvent.RETIRE: Outcome.RETIRED,
    FenceEvent.PREPARE_READY: Outcome.PAUSED,
    FenceEvent.PREPARE_DRAINING: Outcome.DRAINING,
    FenceEvent.PREPARE_INCOMPLETE: Outcome.INCOMPLETE,
    FenceEvent.COMMIT_DONE: Outcome.EXPORTED,
    FenceEvent.RESTORE_DONE: Outcome.IMPORTED,
    FenceEvent.RESUME_DONE: Outcome.RELEASED,
    FenceEvent.RESUME_FAILED: Outcome.WORKERS_MISSING,
}


def event_of(verb: Verb, role: Role) -> FenceEvent | None:
    """The call of the wire that a verb is to a role; None for what no fence decides (a reading, an acknowledgement)."""
    if role is Role.POLICY and verb in _EVENT_OF_POLICY:
        return _EVENT_OF_POLICY[verb]
    return _EVENT_OF.get(verb)


def reading(fence: FenceState, id_: object) -> Outcome:
    """What the capabilities of a participant say to whoever asks under this id."""
    if fence.active is None:
        return Outcome.OPEN if fence.phase is FencePhase.IDLE else Outcome.ORPHAN_FENCE
    return HELD_IN[fence.phase] if fence.active == id_ else Outcome.HELD_BY_OTHER


def answer_outcome(event: FenceEvent, id_: object, step: FenceStep, *, working: bool) -> Outcome:
    """What the answer to a call is that the fence decided at once; ``working``: something is in flight."""
    if step.refusal == "resources_checkpoint_error" and event is FenceEvent.RESUME:
        return Outcome.OWES_RESTORE
    if step.refusal is not None:
        return REFUSAL_OUTCOMES.get(step.refusal, Outcome.REFUSED)
    if step.answer == "answer_crash":
        return Outcome.CRASHED
    if event is FenceEvent.STATUS:
        # a status that says accepting, after we closed it, cannot be believed
        return Outcome.LIED if not step.state.closed else Outcome.DRAINING if working else Outcome.PAUSED
    draining = "record_draining_reply" in step.effects
    if event is FenceEvent.PREPARE and step.answer == "replay_reply":
        record = step.state.record(id_, FenceEvent.PREPARE)
        draining = record is not None and not record.ready
    return Outcome.DRAINING if draining else _SUCCESS[event]


def end_outcome(event: FenceEvent, role: Role, step: FenceStep, *, unowned: bool) -> Outcome:
    """What the answer to a call is whose operation has ended; ``unowned``: nothing but results holds the agent up."""
    if step.refusal is not None:
        return REFUSAL_OUTCOMES.get(step.refusal, Outcome.REFUSED)
    if event is FenceEvent.PREPARE_INCOMPLETE and unowned:
        return Outcome.UNACKNOWLEDGED
    if event is FenceEvent.PREPARE_FAILED and role is Role.POLICY:
        return Outcome.WORKERS_MISSING
    return _SUCCESS.get(event, Outcome.REFUSED)
