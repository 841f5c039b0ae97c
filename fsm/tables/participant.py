"""PARTICIPANT: what the controller knows of one participant, and which control call follows from each answer.

``unknown`` is entered *before* the first call leaves and is left by an answer: a participant is taken for
possibly paused from the moment at which it may have seen a call. Reopening is a conversation of its own, the
RELEASE table; here it only ends, in ``resumed`` or ``aborted``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from quiesce.fsm.rows import Guard, IsTrue, Row, Table
from quiesce.fsm.vocabulary import DeadlineClass, Outcome, Role, Verb

__all__ = ["ANSWERS", "MAY_RUN_ON", "PARTICIPANT", "RECORDED", "ParticipantEvent", "ParticipantState"]


class ParticipantState(StrEnum):
    """The controller's knowledge of one participant."""

    IDLE = "idle"
    UNKNOWN = "unknown"
    DRAINING = "draining"
    PAUSED = "paused"
    COMMITTED = "committed"
    RESTORED = "restored"
    RESUMED = "resumed"
    ABORTED = "aborted"


class ParticipantEvent(StrEnum):
    """What the controller does to a participant or learns of it."""

    INSPECT_DUE = "inspect_due"
    CONFIRMED = "confirmed"
    CLOSE_DUE = "close_due"
    STILL_DRAINING = "still_draining"
    INCOMPLETE = "incomplete"
    UNACKNOWLEDGED = "unacknowledged"
    RECEIPTS_READY = "receipts_ready"
    ACKNOWLEDGED = "acknowledged"
    POLL_DUE = "poll_due"
    STRAGGLING = "straggling"
    RETIRED = "retired"
    NOT_RETIRED = "not_retired"
    CUT_REACHED = "cut_reached"
    EXPORT_DUE = "export_due"
    EXPORTED = "exported"
    VERIFIED = "verified"
    IMPORT_DUE = "import_due"
    IMPORTED = "imported"
    UNANSWERED = "unanswered"
    CALL_AGAIN = "call_again"
    REFUSED = "refused"
    DENIED = "denied"
    RELEASED = "released"
    UNPROVEN = "unproven"


_S = ParticipantState
_E = ParticipantEvent
_D = DeadlineClass

_GUARDS: Final = (
    Guard(
        "going_forward",
        IsTrue("going_forward"),
        "the transaction still goes towards its cut",
        "the transaction no longer goes towards its cut",
    ),
    Guard("tries_left", IsTrue("tries_left"), "the call may be tried again", "the call was tried often enough"),
    Guard(
        "may_have_seen_a_call",
        IsTrue("may_have_seen_a_call"),
        "it may have seen a call of this transaction",
        "no call of this transaction can have reached it",
    ),
    Guard(
        "restarts_stragglers",
        IsTrue("restarts_stragglers"),
        "stragglers are restarted from their input",
        "stragglers are waited for",
    ),
    Guard("decided", IsTrue("decided"), "the cut or restore stands", "the transaction was undone"),
)

_EFFECTS: Final = (
    "call_inspect",
    "call_close",
    "call_await_cut",
    "call_export",
    "call_import",
    "call_acknowledge",
    "call_retire",
    "repeat_call",
    "consult",
    "verify",
    "confirm",
    "mark_verified",
    "arm_poll",
    "arm_retry",
    "arm_straggler",
    "name_stragglers",
    "fail_transaction",
)


def _row(
    source: ParticipantState,
    event: ParticipantEvent,
    target: ParticipantState,
    reason: str,
    *effects: str,
    guards: tuple[str, ...] = (),
    deadline: DeadlineClass = DeadlineClass.NONE,
) -> Row[ParticipantState, ParticipantEvent]:
    return Row(source, event, guards, target, effects, reason, deadline)


_FORWARD = ("going_forward",)
_NOT_FORWARD = ("!going_forward",)
_HELD: Final = (_S.UNKNOWN, _S.DRAINING, _S.PAUSED, _S.COMMITTED, _S.RESTORED)


def _inspection() -> tuple[Row[ParticipantState, ParticipantEvent], ...]:
    """Reading the capabilities, before anyone is paused and again before anyone commits."""
    return tuple(
        row
        for state, why in ((_S.IDLE, "it must be idle and unchanged"), (_S.PAUSED, "it must still stand at the cut"))
        for row in (
            _row(state, _E.INSPECT_DUE, state, why, "call_inspect", guards=_FORWARD),
            _row(state, _E.CONFIRMED, state, "it is as it must be", "confirm", guards=_FORWARD),
            _row(state, _E.CONFIRMED, state, "comes too late to matter", guards=_NOT_FORWARD),
        )
    )


def _draining() -> tuple[Row[ParticipantState, ParticipantEvent], ...]:
    """From the first close to the cut."""
    rows = [
        _row(
            _S.IDLE,
            _E.CLOSE_DUE,
            _S.UNKNOWN,
            "possibly paused from before the call leaves",
            "call_close",
            "arm_straggler",
            guards=_FORWARD,
            deadline=_D.REACH,
        ),
        _row(
            _S.DRAINING,
            _E.POLL_DUE,
            _S.DRAINING,
            "ask again",
            "call_await_cut",
            guards=_FORWARD,
            deadline=_D.REACH,
        ),
        _row(_S.DRAINING, _E.POLL_DUE, _S.DRAINING, "nobody asks any more", guards=_NOT_FORWARD),
        _row(
            _S.DRAINING,
            _E.RECEIPTS_READY,
            _S.DRAINING,
            "the results are durable at the trainer",
            "call_acknowledge",
            guards=_FORWARD,
            deadline=_D.REACH,
        ),
        _row(_S.DRAINING, _E.RECEIPTS_READY, _S.DRAINING, "the agent keeps its results", guards=_NOT_FORWARD),
        _row(
            _S.DRAINING,
            _E.ACKNOWLEDGED,
            _S.DRAINING,
            "ask again now that they are released",
            "call_await_cut",
            guards=_FORWARD,
            deadline=_D.REACH,
        ),
        _row(_S.DRAINING, _E.ACKNOWLEDGED, _S.DRAINING, "comes too late to matter", guards=_NOT_FORWARD),
    ]
    for source in (_S.UNKNOWN, _S.DRAINING):
        rows += _progress(source)
    return (*rows, *_stragglers())


def _progress(source: ParticipantState) -> tuple[Row[ParticipantState, ParticipantEvent], ...]:
    deadline = _D.REACH
    return (
        _row(
            source,
            _E.STILL_DRAINING,
            _S.DRAINING,
            "closed, with work in flight: wait for the drain",
            "call_await_cut",
            guards=_FORWARD,
            deadline=deadline,
        ),
        _row(source, _E.STILL_DRAINING, _S.DRAINING, "it is being reopened", guards=_NOT_FORWARD),
        _row(
            source,
            _E.INCOMPLETE,
            _S.DRAINING,
            "not parked yet: back off, ask again",
            "arm_poll",
            guards=_FORWARD,
            deadline=deadline,
        ),
        _row(source, _E.INCOMPLETE, _S.DRAINING, "it is being reopened", guards=_NOT_FORWARD),
        _row(
            source,
            _E.UNACKNOWLEDGED,
            _S.DRAINING,
            "finished results must be owned before the cut",
            "consult",
            guards=_FORWARD,
            deadline=deadline,
        ),
        _row(source, _E.UNACKNOWLEDGED, _S.DRAINING, "it is being reopened", guards=_NOT_FORWARD),
        _row(source, _E.CUT_REACHED, _S.PAUSED, "closed, nothing in flight, every worker acknowledged"),
    )


def _stragglers() -> tuple[Row[ParticipantState, ParticipantEvent], ...]:
    return (
        _row(
            _S.UNKNOWN,
            _E.STRAGGLING,
            _S.UNKNOWN,
            "it has not said yet what it waits for: look again later",
            "arm_straggler",
            guards=_FORWARD,
            deadline=_D.REACH,
        ),
        _row(_S.UNKNOWN, _E.STRAGGLING, _S.UNKNOWN, "it is being reopened", guards=_NOT_FORWARD),
        _row(
            _S.DRAINING,
            _E.STRAGGLING,
            _S.DRAINING,
            "an execution past its time is restarted from its input",
            "name_stragglers",
            "call_retire",
            guards=("going_forward", "restarts_stragglers"),
            deadline=_D.REACH,
        ),
        _row(
            _S.DRAINING,
            _E.STRAGGLING,
            _S.DRAINING,
            "an execution past its time is named and waited for",
            "name_stragglers",
            guards=("going_forward", "!restarts_stragglers"),
            deadline=_D.REACH,
        ),
        _row(_S.DRAINING, _E.STRAGGLING, _S.DRAINING, "it is being reopened", guards=_NOT_FORWARD),
        _row(
            _S.DRAINING,
            _E.RETIRED,
            _S.DRAINING,
            "what is retired no longer blocks, and another one may: look again later",
            "call_await_cut",
            "arm_straggler",
            guards=_FORWARD,
            deadline=_D.REACH,
        ),
        _row(_S.DRAINING, _E.RETIRED, _S.DRAINING, "comes too late to matter", guards=_NOT_FORWARD),
        _row(
            _S.DRAINING,
            _E.NOT_RETIRED,
            _S.DRAINING,
            "it still blocks: try again after a while, until the budget is spent",
            "arm_straggler",
            guards=_FORWARD,
            deadline=_D.REACH,
        ),
        _row(_S.DRAINING, _E.NOT_RETIRED, _S.DRAINING, "it is being reopened", guards=_NOT_FORWARD),
    )


def _exchange() -> tuple[Row[ParticipantState, ParticipantEvent], ...]:
    """Export and import."""
    return (
        _row(
            _S.PAUSED, _E.EXPORT_DUE, _S.PAUSED, "its turn to export", "call_export", guards=_FORWARD, deadline=_D.HOLD
        ),
        _row(
            _S.PAUSED,
            _E.EXPORTED,
            _S.COMMITTED,
            "exported; its files are checked while others export",
            "verify",
            guards=_FORWARD,
            deadline=_D.HOLD,
        ),
        _row(_S.PAUSED, _E.EXPORTED, _S.COMMITTED, "exported for nothing", guards=_NOT_FORWARD),
        _row(_S.COMMITTED, _E.VERIFIED, _S.COMMITTED, "its files are what it said", "mark_verified", guards=_FORWARD),
        _row(_S.COMMITTED, _E.VERIFIED, _S.COMMITTED, "comes too late to matter", guards=_NOT_FORWARD),
        *(
            _row(
                source,
                _E.IMPORT_DUE,
                _S.UNKNOWN,
                "possibly closed from before the call leaves",
                "call_import",
                guards=_FORWARD,
                deadline=_D.REACH,
            )
            for source in (_S.IDLE, _S.UNKNOWN)
        ),
        _row(_S.UNKNOWN, _E.IMPORTED, _S.RESTORED, "it holds the saved state and is closed"),
    )


def _trouble() -> tuple[Row[ParticipantState, ParticipantEvent], ...]:
    """No answer, or one that ends the way forward."""
    rows: list[Row[ParticipantState, ParticipantEvent]] = []
    for state in (_S.IDLE, *_HELD):
        rows += _unanswered(state)
        rows += [
            _row(state, _E.CALL_AGAIN, state, "try again", "repeat_call", guards=_FORWARD),
            _row(state, _E.CALL_AGAIN, state, "nobody asks any more", guards=_NOT_FORWARD),
            _row(state, _E.REFUSED, state, "it cannot be part of this cut", "fail_transaction", guards=_FORWARD),
            _row(state, _E.REFUSED, state, "nobody asks any more", guards=_NOT_FORWARD),
        ]
        if state is not _S.UNKNOWN:
            rows += [
                _row(state, _E.DENIED, state, "it cannot be part of this cut", "fail_transaction", guards=_FORWARD),
                _row(state, _E.DENIED, state, "nobody asks any more", guards=_NOT_FORWARD),
            ]
    return (*rows, *_first_call())


def _unanswered(state: ParticipantState) -> tuple[Row[ParticipantState, ParticipantEvent], ...]:
    """No answer, where a call of this transaction may have been seen."""
    seen = ("may_have_seen_a_call",) if state is _S.UNKNOWN else ()
    return (
        _row(
            state,
            _E.UNANSWERED,
            state,
            "the same call under the same id is safe to repeat",
            "arm_retry",
            guards=("going_forward", "tries_left", *seen),
        ),
        _row(
            state,
            _E.UNANSWERED,
            state,
            "lost for certain",
            "fail_transaction",
            guards=("going_forward", "!tries_left", *seen),
        ),
        _row(state, _E.UNANSWERED, state, "nobody waits for it any more", guards=("!going_forward", *seen)),
    )


def _first_call() -> tuple[Row[ParticipantState, ParticipantEvent], ...]:
    """What becomes of the first call decides whether anything is owed."""
    return (
        _row(
            _S.UNKNOWN,
            _E.UNANSWERED,
            _S.IDLE,
            "no call ever left: it is owed nothing unless one is repeated",
            "arm_retry",
            guards=("going_forward", "tries_left", "!may_have_seen_a_call"),
        ),
        _row(
            _S.UNKNOWN,
            _E.UNANSWERED,
            _S.IDLE,
            "it cannot be reached, and no call ever left",
            "fail_transaction",
            guards=("going_forward", "!tries_left", "!may_have_seen_a_call"),
        ),
        _row(
            _S.UNKNOWN,
            _E.UNANSWERED,
            _S.IDLE,
            "no call ever left: it is owed nothing",
            guards=("!going_forward", "!may_have_seen_a_call"),
        ),
        _row(
            _S.UNKNOWN,
            _E.DENIED,
            _S.IDLE,
            "refused before anything could happen: nothing is owed",
            "fail_transaction",
            guards=("going_forward", "!may_have_seen_a_call"),
        ),
        _row(
            _S.UNKNOWN,
            _E.DENIED,
            _S.UNKNOWN,
            "refused, but an earlier call may have closed it",
            "fail_transaction",
            guards=("going_forward", "may_have_seen_a_call"),
        ),
        _row(
            _S.UNKNOWN,
            _E.DENIED,
            _S.IDLE,
            "refused before anything could happen: nothing is owed",
            guards=("!going_forward", "!may_have_seen_a_call"),
        ),
        _row(
            _S.UNKNOWN,
            _E.DENIED,
            _S.UNKNOWN,
            "refused, but an earlier call may have closed it",
            guards=("!going_forward", "may_have_seen_a_call"),
        ),
    )


def _endings() -> tuple[Row[ParticipantState, ParticipantEvent], ...]:
    rows: list[Row[ParticipantState, ParticipantEvent]] = []
    for state in _HELD:
        rows += [
            _row(state, _E.RELEASED, _S.RESUMED, "it accepts work, and the cut stands", guards=("decided",)),
            _row(state, _E.RELEASED, _S.ABORTED, "it accepts work, as if nothing had happened", guards=("!decided",)),
            _row(state, _E.UNPROVEN, _S.UNKNOWN, "it is owed a resume that could not be proven"),
        ]
    return tuple(rows)


PARTICIPANT: Final = Table(
    name="PARTICIPANT",
    title="The controller's knowledge of one participant",
    states=ParticipantState,
    events=ParticipantEvent,
    initial=_S.IDLE,
    guards=_GUARDS,
    effects=_EFFECTS,
    rows=(*_inspection(), *_draining(), *_exchange(), *_trouble(), *_endings()),
    final=frozenset({_S.RESUMED, _S.ABORTED}),
    waiting={_S.UNKNOWN: _D.REACH, _S.DRAINING: _D.REACH, _S.PAUSED: _D.HOLD, _S.COMMITTED: _D.HOLD},
)
"""The machine of one participant, as the controller sees it."""

_SUCCESSES: Final[Mapping[Outcome, tuple[ParticipantEvent, frozenset[Verb]]]] = {
    Outcome.DRAINING: (_E.STILL_DRAINING, frozenset({Verb.CLOSE, Verb.AWAIT_CUT})),
    Outcome.PAUSED: (_E.CUT_REACHED, frozenset({Verb.CLOSE, Verb.AWAIT_CUT})),
    Outcome.INCOMPLETE: (_E.INCOMPLETE, frozenset({Verb.CLOSE, Verb.AWAIT_CUT})),
    Outcome.UNACKNOWLEDGED: (_E.UNACKNOWLEDGED, frozenset({Verb.CLOSE, Verb.AWAIT_CUT})),
    Outcome.ACKNOWLEDGED: (_E.ACKNOWLEDGED, frozenset({Verb.ACKNOWLEDGE})),
    Outcome.EXPORTED: (_E.EXPORTED, frozenset({Verb.EXPORT})),
    Outcome.IMPORTED: (_E.IMPORTED, frozenset({Verb.IMPORT})),
}
_FAILURES: Final[Mapping[Outcome, ParticipantEvent]] = {
    Outcome.NEVER_SENT: _E.UNANSWERED,
    Outcome.LOST: _E.UNANSWERED,
    Outcome.CONFLICT: _E.DENIED,
    Outcome.DEADLINE_EXCEEDED: _E.DENIED,
    Outcome.UNAUTHORIZED: _E.DENIED,
    Outcome.ROUTE_MISSING: _E.DENIED,
    Outcome.MALFORMED: _E.DENIED,
}

ANSWERS: Final[Mapping[tuple[Verb, Outcome], ParticipantEvent]] = {
    **{(verb, outcome): event for outcome, (event, verbs) in _SUCCESSES.items() for verb in verbs},
    **{(verb, outcome): event for outcome, event in _FAILURES.items() for verb in Verb},
}
"""What an answer to a call on the way forward means. What is absent, also a success that belongs to another call, is
``refused``. So is a used-up id: a call that waited learns by it that our resume went before, not that nothing happened.
What a reading of the capabilities means depends on the phase and stands in PHASES."""

_EVERY_ROLE: Final = frozenset(Role)
MAY_RUN_ON: Final[Mapping[Verb, frozenset[Role]]] = {
    Verb.CLOSE: _EVERY_ROLE,
    Verb.AWAIT_CUT: _EVERY_ROLE - {Role.POLICY},
    Verb.EXPORT: _EVERY_ROLE,
    Verb.IMPORT: _EVERY_ROLE,
}
"""Calls whose handler may run on, and act, after its client has gone (F17). A policy's AWAIT_CUT only reads."""

RECORDED: Final = frozenset({Outcome.DRAINING, Outcome.PAUSED, Outcome.EXPORTED, Outcome.IMPORTED})
"""Successes that a participant records: an earlier call of the same kind shared it or is answered by it (F2, F3), so
none of them runs on."""
