"""RELEASE: proving that one participant accepts work again, whatever state it is in.

This is the rollback conversation, and the resume after a published cut is the same one. A 200 to resume ends it
unless an earlier call may still run over there (wire-protocol F14 to F17): such a call can close the server again
or leave an orphan fence, so the answer is confirmed by a reading once that call has ended.

Every wait is bounded by the release deadline; what is not proven by then is ``unproven`` and is named in doubt.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from quiesce.fsm.rows import Guard, IsTrue, Row, Table
from quiesce.fsm.vocabulary import DeadlineClass, Outcome, Verb

__all__ = ["ENDED_BY", "RELEASE", "RELEASE_ANSWERS", "SETTLED", "ReleaseEvent", "ReleaseState"]


class ReleaseState(StrEnum):
    """Where the conversation with one participant stands."""

    NOT_DUE = "not_due"
    RELEASING = "releasing"
    BACKING_OFF = "backing_off"
    INSPECTING = "inspecting"
    CLOSING = "closing"
    AWAITING_OUTSTANDING = "awaiting_outstanding"
    REREADING = "rereading"
    SETTLING = "settling"
    CONFIRMING = "confirming"
    RELEASED = "released"
    HELD_BY_OTHER = "held_by_other"
    OWES_RESTORE = "owes_restore"
    UNPROVEN = "unproven"


class ReleaseEvent(StrEnum):
    """What the participant answered, or what time did."""

    RELEASE_DUE = "release_due"
    OPENED = "opened"
    WRONG_PHASE = "wrong_phase"
    WORKERS_MISSING = "workers_missing"
    STALE_ID = "stale_id"
    CONFLICT = "conflict"
    OWES_RESTORE = "owes_restore"
    UNANSWERED = "unanswered"
    CLOSED = "closed"
    READ_OPEN = "read_open"
    READ_BUSY = "read_busy"
    READ_HELD = "read_held"
    READ_ORPHAN = "read_orphan"
    READ_OTHER = "read_other"
    BACKED_OFF = "backed_off"
    OUTSTANDING_ENDED = "outstanding_ended"
    NOTHING_OWED = "nothing_owed"
    EXPIRED = "expired"


_S = ReleaseState
_E = ReleaseEvent
_D = DeadlineClass

_GUARDS: Final = (
    Guard(
        "call_outstanding",
        IsTrue("call_outstanding"),
        "an earlier call may still run at the participant",
        "no earlier call can still run at the participant",
    ),
    Guard(
        "overlapped",
        IsTrue("overlapped"),
        "a resume was sent while an earlier call could run, which can have ended after it",
        "no resume was sent while an earlier call could run",
    ),
    Guard(
        "pause_runs",
        IsTrue("pause_runs"),
        "it is a policy in coordinator mode, at which a pause of ours may still run",
        "no pause of ours can run at a coordinator",
    ),
    Guard(
        "answer_awaited",
        IsTrue("answer_awaited"),
        "the last question of the conversation is not answered yet",
        "no answer is waited for",
    ),
    Guard(
        "heals_by_pausing",
        IsTrue("heals_by_pausing"),
        "it is a policy in coordinator mode, which refuses a resume from idle",
        "it is no policy in coordinator mode",
    ),
    Guard("heals_left", IsTrue("heals_left"), "the healing pause may be tried", "the healing pause was tried twice"),
    Guard("fresh_ids_left", IsTrue("fresh_ids_left"), "a fresh id may be used up", "no fresh id is left"),
)

_EFFECTS: Final = (
    "call_release",
    "call_inspect",
    "call_healing_close",
    "take_fresh_id",
    "count_heal",
    "arm_backoff",
    "disarm_backoff",
    "report_released",
    "report_unproven",
    "note_holder",
    "note_open_unfenced",
)


def _row(
    source: ReleaseState,
    event: ReleaseEvent,
    target: ReleaseState,
    reason: str,
    *effects: str,
    guards: tuple[str, ...] = (),
    ref: str = "",
) -> Row[ReleaseState, ReleaseEvent]:
    deadline = _D.NONE if target in SETTLED or target is _S.UNPROVEN else _D.RELEASE
    return Row(source, event, guards, target, effects, reason, deadline, source_ref=ref)


SETTLED: Final = frozenset({_S.RELEASED, _S.HELD_BY_OTHER})
"""States in which nothing is owed to the participant any more."""

_RUNS = ("call_outstanding",)
_NOTHING_RUNS = ("!call_outstanding",)
_FRESH = ("!call_outstanding", "fresh_ids_left")
_NO_FRESH = ("!call_outstanding", "!fresh_ids_left")


def _back_off(source: ReleaseState, event: ReleaseEvent, reason: str, ref: str = "") -> Row[ReleaseState, ReleaseEvent]:
    return _row(source, event, _S.BACKING_OFF, reason, "arm_backoff", ref=ref)


def _fresh_release(source: ReleaseState) -> tuple[Row[ReleaseState, ReleaseEvent], ...]:
    """An orphan fence: only a resume under an unused id opens it, and no other id goes out while a call may run."""
    return (
        _row(
            source,
            _E.READ_ORPHAN,
            _S.RELEASING,
            "an orphan fence: a resume under an unused id opens it and uses the id up",
            "take_fresh_id",
            "call_release",
            guards=_FRESH,
            ref="F16",
        ),
        _row(source, _E.READ_ORPHAN, _S.AWAITING_OUTSTANDING, "no other id before that call has ended", guards=_RUNS),
        _row(
            source,
            _E.READ_ORPHAN,
            _S.BACKING_OFF,
            "no fresh id is left: keep asking until the deadline",
            "arm_backoff",
            guards=_NO_FRESH,
        ),
    )


_MAY_ASK = ("!answer_awaited", "!pause_runs")
_PAUSE_RUNS = ("!answer_awaited", "pause_runs")

_RELEASING: Final = (
    _row(_S.NOT_DUE, _E.RELEASE_DUE, _S.RELEASING, "its turn in the order", "call_release", guards=("!pause_runs",)),
    _row(
        _S.NOT_DUE,
        _E.RELEASE_DUE,
        _S.AWAITING_OUTSTANDING,
        "a coordinator that pauses and resumes at once can end closed and held by nobody: wait for the pause",
        guards=("pause_runs",),
        ref="F18, F19",
    ),
    _row(
        _S.RELEASING,
        _E.OPENED,
        _S.RELEASED,
        "it accepts work",
        "report_released",
        guards=("!call_outstanding", "!overlapped"),
        ref="2.5",
    ),
    _row(
        _S.RELEASING,
        _E.OPENED,
        _S.CONFIRMING,
        "an earlier call may have ended after the resume that is answered here: read what it left",
        "call_inspect",
        guards=("!call_outstanding", "overlapped"),
        ref="F16",
    ),
    _row(
        _S.RELEASING,
        _E.OPENED,
        _S.SETTLING,
        "open now, but a call that still runs may close it again",
        guards=_RUNS,
        ref="F14, F15, F17",
    ),
    _row(
        _S.RELEASING,
        _E.WRONG_PHASE,
        _S.INSPECTING,
        "busy, idle or orphaned: a reading tells which",
        "call_inspect",
        ref="F13; resume_from_idle_coordinator",
    ),
    _back_off(
        _S.RELEASING,
        _E.WORKERS_MISSING,
        "open already, a worker is gone: resume again, never pause again",
        "F19",
    ),
    _row(
        _S.RELEASING,
        _E.CONFLICT,
        _S.HELD_BY_OTHER,
        "another's id holds it: touch nothing, report the holder",
        "note_holder",
        "report_released",
        guards=("!call_outstanding", "!overlapped"),
    ),
    _row(
        _S.RELEASING,
        _E.CONFLICT,
        _S.INSPECTING,
        "an earlier call may have closed it since the other let go: read who holds it now",
        "call_inspect",
        guards=("!call_outstanding", "overlapped"),
    ),
    _row(_S.RELEASING, _E.CONFLICT, _S.AWAITING_OUTSTANDING, "a call of ours may still close it", guards=_RUNS),
    _row(
        _S.RELEASING,
        _E.OWES_RESTORE,
        _S.OWES_RESTORE,
        "no call opens it: restore it or restart it",
        "report_unproven",
        guards=_NOTHING_RUNS,
        ref="F20",
    ),
    _row(
        _S.RELEASING,
        _E.OWES_RESTORE,
        _S.AWAITING_OUTSTANDING,
        "the restore that it owes may still run",
        guards=_RUNS,
        ref="F20",
    ),
    _row(_S.RELEASING, _E.STALE_ID, _S.INSPECTING, "its id was used up: read what holds it", "call_inspect"),
    _back_off(_S.RELEASING, _E.UNANSWERED, "no answer: the same resume again"),
    _row(_S.BACKING_OFF, _E.BACKED_OFF, _S.RELEASING, "again", "call_release", guards=_MAY_ASK),
    _row(
        _S.BACKING_OFF,
        _E.BACKED_OFF,
        _S.AWAITING_OUTSTANDING,
        "again, once the pause that may still run has ended",
        guards=_PAUSE_RUNS,
        ref="F18, F19",
    ),
    _row(
        _S.BACKING_OFF,
        _E.BACKED_OFF,
        _S.BACKING_OFF,
        "an answer from before the deadline is still to come, and must not be taken for a new one",
        "arm_backoff",
        guards=("answer_awaited",),
    ),
)

_READING: Final = (
    _row(
        _S.INSPECTING,
        _E.READ_OPEN,
        _S.CLOSING,
        "the IDLE resume: pause under the same id, then resume; it also fences a late pause",
        "count_heal",
        "call_healing_close",
        guards=("heals_by_pausing", "heals_left", "!call_outstanding"),
        ref="resume_from_idle_coordinator; 9 #1",
    ),
    _row(
        _S.INSPECTING,
        _E.READ_OPEN,
        _S.AWAITING_OUTSTANDING,
        "a call that still runs may close it",
        guards=("heals_by_pausing", "call_outstanding"),
    ),
    _row(
        _S.INSPECTING,
        _E.READ_OPEN,
        _S.RELEASED,
        "it reads idle, nothing of ours can run there: open, though its id could not be used up",
        "note_open_unfenced",
        "report_released",
        guards=("heals_by_pausing", "!heals_left", "!call_outstanding"),
        ref="F18",
    ),
    _row(
        _S.INSPECTING,
        _E.READ_OPEN,
        _S.BACKING_OFF,
        "it became idle meanwhile: resume again, which uses the id up",
        "arm_backoff",
        guards=("!heals_by_pausing",),
    ),
    _row(
        _S.INSPECTING,
        _E.READ_BUSY,
        _S.AWAITING_OUTSTANDING,
        "an operation still runs: wait for it, and ask meanwhile, since its answer may be lost",
        "arm_backoff",
        guards=_RUNS,
        ref="F13",
    ),
    _row(
        _S.INSPECTING,
        _E.READ_BUSY,
        _S.BACKING_OFF,
        "an operation still runs",
        "arm_backoff",
        guards=_NOTHING_RUNS,
        ref="F13",
    ),
    _back_off(_S.INSPECTING, _E.READ_HELD, "it holds our id and nothing runs: resume again"),
    _row(
        _S.INSPECTING,
        _E.READ_OTHER,
        _S.HELD_BY_OTHER,
        "another's id holds it: touch nothing, report the holder",
        "note_holder",
        "report_released",
        guards=_NOTHING_RUNS,
    ),
    _row(_S.INSPECTING, _E.READ_OTHER, _S.AWAITING_OUTSTANDING, "a call of ours may still close it", guards=_RUNS),
    _back_off(_S.INSPECTING, _E.UNANSWERED, "no answer: resume again"),
    *_fresh_release(_S.INSPECTING),
)

_HEALING: Final = (
    _row(_S.CLOSING, _E.CLOSED, _S.RELEASING, "closed under our id: now it can be resumed", "call_release"),
    _row(
        _S.CLOSING,
        _E.STALE_ID,
        _S.CLOSING,
        "that id is fenced already: heal once under a fresh one",
        "take_fresh_id",
        "call_healing_close",
        guards=_FRESH,
    ),
    _row(_S.CLOSING, _E.STALE_ID, _S.AWAITING_OUTSTANDING, "no other id before that call has ended", guards=_RUNS),
    _row(
        _S.CLOSING,
        _E.STALE_ID,
        _S.RELEASED,
        "every id of ours is used up there, so no call of ours can close it",
        "note_open_unfenced",
        "report_released",
        guards=_NO_FRESH,
    ),
    _back_off(_S.CLOSING, _E.WORKERS_MISSING, "the pause failed and reopened the workers by itself", "F18"),
    _back_off(_S.CLOSING, _E.WRONG_PHASE, "it is not idle any more: resume again"),
    _row(
        _S.CLOSING,
        _E.CONFLICT,
        _S.HELD_BY_OTHER,
        "another's id holds it: touch nothing, report the holder",
        "note_holder",
        "report_released",
        guards=_NOTHING_RUNS,
    ),
    _row(_S.CLOSING, _E.CONFLICT, _S.AWAITING_OUTSTANDING, "a call of ours may still close it", guards=_RUNS),
    _back_off(_S.CLOSING, _E.UNANSWERED, "no answer: the pause may have closed it, so resume again"),
)

_READINGS: Final = (_E.READ_OPEN, _E.READ_BUSY, _E.READ_HELD, _E.READ_ORPHAN, _E.READ_OTHER)

_OUTSTANDING: Final = (
    _row(_S.AWAITING_OUTSTANDING, _E.BACKED_OFF, _S.RELEASING, "it may have ended unheard", "call_release"),
    _row(
        _S.AWAITING_OUTSTANDING,
        _E.OUTSTANDING_ENDED,
        _S.RELEASING,
        "nothing of ours runs there any more",
        "disarm_backoff",
        "call_release",
    ),
    _row(
        _S.INSPECTING,
        _E.OUTSTANDING_ENDED,
        _S.REREADING,
        "the reading may be older than what that call left",
    ),
    *(
        _row(_S.REREADING, event, _S.INSPECTING, "now that nothing of ours runs: read again", "call_inspect")
        for event in _READINGS
    ),
    _back_off(_S.REREADING, _E.UNANSWERED, "no answer: resume again"),
    _row(_S.SETTLING, _E.OUTSTANDING_ENDED, _S.CONFIRMING, "it has ended: read what it left", "call_inspect"),
    _row(_S.CONFIRMING, _E.READ_OPEN, _S.RELEASED, "still open", "report_released"),
    _back_off(_S.CONFIRMING, _E.READ_BUSY, "the late call closed it again: resume again"),
    _back_off(_S.CONFIRMING, _E.READ_HELD, "the late call closed it again: resume again"),
    _row(
        _S.CONFIRMING,
        _E.READ_OTHER,
        _S.HELD_BY_OTHER,
        "another cut has begun since",
        "note_holder",
        "report_released",
    ),
    _back_off(_S.CONFIRMING, _E.UNANSWERED, "no answer: resume again"),
    *_fresh_release(_S.CONFIRMING),
)

_OPEN_CONVERSATION: Final = (
    _S.RELEASING,
    _S.BACKING_OFF,
    _S.INSPECTING,
    _S.REREADING,
    _S.CLOSING,
    _S.AWAITING_OUTSTANDING,
    _S.SETTLING,
    _S.CONFIRMING,
)

_ENDINGS: Final = (
    *(
        _row(state, _E.EXPIRED, _S.UNPROVEN, "not proven in time: named in doubt", "disarm_backoff", "report_unproven")
        for state in (_S.NOT_DUE, *_OPEN_CONVERSATION)
    ),
    *(
        _row(
            state,
            _E.NOTHING_OWED,
            _S.RELEASED,
            "it turned out that no call ever left",
            "disarm_backoff",
        )
        for state in _OPEN_CONVERSATION
    ),
    *(
        _row(state, _E.OUTSTANDING_ENDED, state, "one thing less to wait for")
        for state in (_S.RELEASING, _S.BACKING_OFF, _S.CLOSING, _S.CONFIRMING)
    ),
    _row(_S.UNPROVEN, _E.RELEASE_DUE, _S.RELEASING, "tried again", "call_release", guards=_MAY_ASK),
    _row(
        _S.UNPROVEN,
        _E.RELEASE_DUE,
        _S.AWAITING_OUTSTANDING,
        "tried again, once the pause that may still run has ended",
        guards=_PAUSE_RUNS,
        ref="F18, F19",
    ),
    _row(
        _S.UNPROVEN,
        _E.RELEASE_DUE,
        _S.BACKING_OFF,
        "tried again, once the answer to the last question is here",
        "arm_backoff",
        guards=("answer_awaited",),
    ),
    _row(
        _S.UNPROVEN,
        _E.OPENED,
        _S.RELEASED,
        "the answer came late and proves it after all",
        "report_released",
        guards=("!call_outstanding", "!overlapped"),
    ),
    _row(_S.OWES_RESTORE, _E.RELEASE_DUE, _S.RELEASING, "it may have been restored or restarted", "call_release"),
)

RELEASE: Final = Table(
    name="RELEASE",
    title="Reopening one participant: resume, abort, rollback and the IDLE resume",
    states=ReleaseState,
    events=ReleaseEvent,
    initial=_S.NOT_DUE,
    guards=_GUARDS,
    effects=_EFFECTS,
    rows=(*_RELEASING, *_READING, *_HEALING, *_OUTSTANDING, *_ENDINGS),
    final=SETTLED,
    resting=frozenset({_S.UNPROVEN, _S.OWES_RESTORE}),
    waiting=dict.fromkeys(_OPEN_CONVERSATION, _D.RELEASE),
)
"""The rollback conversation with one participant."""

RELEASE_ANSWERS: Final[Mapping[tuple[Verb, Outcome], ReleaseEvent]] = {
    (Verb.RELEASE, Outcome.RELEASED): _E.OPENED,
    (Verb.RELEASE, Outcome.WRONG_PHASE): _E.WRONG_PHASE,
    (Verb.RELEASE, Outcome.WORKERS_MISSING): _E.WORKERS_MISSING,
    (Verb.RELEASE, Outcome.STALE_ID): _E.STALE_ID,
    (Verb.RELEASE, Outcome.CONFLICT): _E.CONFLICT,
    (Verb.RELEASE, Outcome.OWES_RESTORE): _E.OWES_RESTORE,
    (Verb.CLOSE, Outcome.PAUSED): _E.CLOSED,
    (Verb.CLOSE, Outcome.DRAINING): _E.CLOSED,
    (Verb.CLOSE, Outcome.STALE_ID): _E.STALE_ID,
    (Verb.CLOSE, Outcome.WORKERS_MISSING): _E.WORKERS_MISSING,
    (Verb.CLOSE, Outcome.WRONG_PHASE): _E.WRONG_PHASE,
    (Verb.CLOSE, Outcome.CONFLICT): _E.CONFLICT,
    (Verb.INSPECT, Outcome.OPEN): _E.READ_OPEN,
    (Verb.INSPECT, Outcome.HELD_PREPARING): _E.READ_BUSY,
    (Verb.INSPECT, Outcome.HELD_BUSY): _E.READ_BUSY,
    (Verb.INSPECT, Outcome.HELD_PREPARED): _E.READ_HELD,
    (Verb.INSPECT, Outcome.HELD_COMMITTED): _E.READ_HELD,
    (Verb.INSPECT, Outcome.HELD_RESTORED): _E.READ_HELD,
    (Verb.INSPECT, Outcome.HELD_RESTORE_FAILED): _E.READ_HELD,
    (Verb.INSPECT, Outcome.HELD_BY_OTHER): _E.READ_OTHER,
    (Verb.INSPECT, Outcome.ORPHAN_FENCE): _E.READ_ORPHAN,
}
"""What an answer means while a participant is being reopened. What is absent is ``unanswered``: asked again until
the deadline, since no other answer proves anything."""

ENDED_BY: Final[Mapping[ReleaseEvent, frozenset[Verb]]] = {
    _E.OPENED: frozenset({Verb.EXPORT, Verb.IMPORT, Verb.RELEASE})
}
"""Calls that cannot run any more once an event has happened: no fence opens while it writes or reads a save (F13: it
refuses; 4.3: it waits), and the id that opened it is used up, so that none that comes late begins."""
