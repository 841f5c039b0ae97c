"""TRANSACTION: the cut or restore as a whole, from idle to a state in which nobody is owed anything.

The milestones are idle, draining, paused, committed, resumed and aborted; what stands between them is where a
crash, a refusal or a deadline can strike. Two rules shape the table:

- Until ``publishing`` every failure and every abort leads to ``aborting``, which reopens whoever may be closed.
  From ``published`` on nothing undoes the cut; what remains is to resume.
- A restore has no undo on the wire. Its failure is held closed in ``restore_failed`` until it is retried with
  the same id or aborted by an explicit request; a cancellation is no such request. So is what a dead controller left of
  it, unless a durable record says that it was being released or aborted.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from quiesce.fsm.rows import Guard, IsTrue, Row, Table
from quiesce.fsm.vocabulary import DeadlineClass

__all__ = ["TRANSACTION", "TransactionEvent", "TransactionState"]


class TransactionState(StrEnum):
    """Where a transaction stands."""

    IDLE = "idle"
    PREFLIGHT = "preflight"
    DRAINING = "draining"
    PAUSED = "paused"
    COMMITTING = "committing"
    COMMITTED = "committed"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    PUBLISH_UNKNOWN = "publish_unknown"
    RESTORING = "restoring"
    RESTORED = "restored"
    RESTORE_FAILED = "restore_failed"
    RESUMING = "resuming"
    RESUMED = "resumed"
    ABORTING = "aborting"
    ABORTED = "aborted"
    IN_DOUBT_PUBLISHED = "in_doubt_published"
    IN_DOUBT_UNPUBLISHED = "in_doubt_unpublished"


class TransactionEvent(StrEnum):
    """What can happen to a transaction."""

    BEGIN = "begin"
    RECOVER = "recover"
    ALL_INSPECTED = "all_inspected"
    ALL_PAUSED = "all_paused"
    COMMIT_REQUESTED = "commit_requested"
    ALL_COMMITTED = "all_committed"
    PUBLISH_REQUESTED = "publish_requested"
    PUBLISH_SUCCEEDED = "publish_succeeded"
    PUBLISH_FAILED = "publish_failed"
    PUBLISH_UNCERTAIN = "publish_uncertain"
    PROBE_DUE = "probe_due"
    ALL_RESTORED = "all_restored"
    RELEASE_REQUESTED = "release_requested"
    ALL_RELEASED = "all_released"
    SOME_UNPROVEN = "some_unproven"
    PARTICIPANT_FAILED = "participant_failed"
    CONSULT_FAILED = "consult_failed"
    RECORD_FAILED = "record_failed"
    REACH_EXPIRED = "reach_expired"
    HOLD_EXPIRED = "hold_expired"
    ABORT_REQUESTED = "abort_requested"
    CANCELLED = "cancelled"
    RETRY_REQUESTED = "retry_requested"


_S = TransactionState
_E = TransactionEvent
_D = DeadlineClass

_GUARDS: Final = (
    Guard("is_restore", IsTrue("is_restore"), "this transaction restores", "this transaction takes a cut"),
    Guard(
        "snapshot_is_published",
        IsTrue("snapshot_is_published"),
        "the snapshot stands in its final place with its manifest",
        "no snapshot of this id is published",
    ),
    Guard(
        "release_is_recorded",
        IsTrue("release_is_recorded"),
        "a durable record says that this restore was being released",
        "no durable record says that this restore was being released",
    ),
    Guard(
        "abort_is_recorded",
        IsTrue("abort_is_recorded"),
        "a durable record says that an abort of this restore was asked for",
        "no durable record says that an abort of this restore was asked for",
    ),
    Guard(
        "somebody_touched",
        IsTrue("somebody_touched"),
        "somebody may have seen a call of this transaction",
        "nobody can have seen a call of this transaction",
    ),
)

_EFFECTS: Final = (
    "start_preflight",
    "start_prepare",
    "start_commit",
    "start_restore",
    "start_release",
    "arm_reach",
    "arm_hold",
    "arm_release",
    "arm_probe",
    "disarm_budgets",
    "record_decision",
    "publish",
    "probe_publication",
    "release_next",
    "note_failure",
    "note_late_abort",
    "finish",
)

_ABORT_EFFECTS: Final = ("note_failure", "disarm_budgets", "arm_release", "start_release")
_RECORDED_ABORT: Final = ("record_decision", *_ABORT_EFFECTS)
"""What opens a restore is durable before its first call leaves: whoever takes over must not hold, and import again,
what such a call may still open."""


def _row(
    source: TransactionState,
    event: TransactionEvent,
    target: TransactionState,
    reason: str,
    *effects: str,
    guards: tuple[str, ...] = (),
    deadline: DeadlineClass = DeadlineClass.NONE,
) -> Row[TransactionState, TransactionEvent]:
    return Row(source, event, guards, target, effects, reason, deadline)


def _aborts(
    source: TransactionState, *events: TransactionEvent, effects: tuple[str, ...] = _ABORT_EFFECTS
) -> tuple[Row[TransactionState, TransactionEvent], ...]:
    """Rows by which each of ``events`` turns ``source`` into aborting."""
    reasons = {
        _E.PARTICIPANT_FAILED: "one participant cannot be brought to the cut, so nobody is",
        _E.CONSULT_FAILED: "nobody owns the finished results, so they cannot be acknowledged",
        _E.RECORD_FAILED: "what cannot be recorded must not be done",
        _E.REACH_EXPIRED: "the budget for reaching the cut is spent",
        _E.HOLD_EXPIRED: "the budget for holding the cut is spent",
        _E.ABORT_REQUESTED: "an abort before publication reopens everybody",
        _E.CANCELLED: "a cancelled caller is an abort request",
        _E.PUBLISH_FAILED: "the rename did not happen, so the cut never did",
    }
    return tuple(_row(source, event, _S.ABORTING, reasons[event], *effects, deadline=_D.RELEASE) for event in events)


def _holds(
    source: TransactionState, *events: TransactionEvent, guards: tuple[str, ...] = ()
) -> tuple[Row[TransactionState, TransactionEvent], ...]:
    """Rows by which each of ``events`` ends a restore held closed."""
    return tuple(
        _row(
            source,
            event,
            _S.RESTORE_FAILED,
            "half a restore is never opened; retry with the same id or abort",
            "note_failure",
            "disarm_budgets",
            "finish",
            guards=guards,
        )
        for event in events
    )


_FORWARD: Final = (
    _row(
        _S.IDLE,
        _E.BEGIN,
        _S.PREFLIGHT,
        "read everyone's capabilities before anyone is paused",
        "arm_reach",
        "start_preflight",
        deadline=_D.REACH,
    ),
    _row(
        _S.PREFLIGHT,
        _E.ALL_INSPECTED,
        _S.DRAINING,
        "everyone is idle, unchanged and nobody else's",
        "start_prepare",
        guards=("!is_restore",),
        deadline=_D.REACH,
    ),
    _row(
        _S.PREFLIGHT,
        _E.ALL_INSPECTED,
        _S.RESTORING,
        "everyone is idle and unchanged: import, policies first",
        "start_restore",
        guards=("is_restore",),
        deadline=_D.REACH,
    ),
    _row(
        _S.DRAINING,
        _E.ALL_PAUSED,
        _S.PAUSED,
        "every participant stands at the cut",
        "disarm_budgets",
        "arm_hold",
        deadline=_D.HOLD,
    ),
    _row(
        _S.PAUSED,
        _E.COMMIT_REQUESTED,
        _S.COMMITTING,
        "phases are read again, then each exports",
        "start_commit",
        deadline=_D.HOLD,
    ),
    _row(
        _S.COMMITTING,
        _E.ALL_COMMITTED,
        _S.COMMITTED,
        "every export is here and verified",
        deadline=_D.HOLD,
    ),
    _row(
        _S.COMMITTED,
        _E.PUBLISH_REQUESTED,
        _S.PUBLISHING,
        "the decision is durable before the rename that takes it",
        "record_decision",
        "publish",
        deadline=_D.HOLD,
    ),
    _row(_S.PUBLISHING, _E.PUBLISH_SUCCEEDED, _S.PUBLISHED, "the rename happened: the cut is taken", "release_next"),
    _row(
        _S.PUBLISHED,
        _E.RELEASE_REQUESTED,
        _S.RESUMING,
        "publish comes before resume",
        "disarm_budgets",
        "arm_release",
        "start_release",
        deadline=_D.RELEASE,
    ),
    _row(_S.RESUMING, _E.ALL_RELEASED, _S.RESUMED, "everyone accepts work", "disarm_budgets", "finish"),
)

_RESTORE: Final = (
    _row(
        _S.RESTORING,
        _E.ALL_RESTORED,
        _S.RESTORED,
        "everyone holds the restored state and is still closed",
        "disarm_budgets",
        "arm_hold",
        deadline=_D.HOLD,
    ),
    _row(
        _S.RESTORED,
        _E.RELEASE_REQUESTED,
        _S.RESUMING,
        "the trainer has loaded its part; that it is released is durable before anybody is",
        "record_decision",
        "disarm_budgets",
        "arm_release",
        "start_release",
        deadline=_D.RELEASE,
    ),
    *_holds(_S.RESTORING, _E.PARTICIPANT_FAILED, _E.REACH_EXPIRED, _E.RECORD_FAILED, _E.CANCELLED),
    *_holds(_S.RESTORED, _E.PARTICIPANT_FAILED, _E.HOLD_EXPIRED, _E.RECORD_FAILED, _E.CANCELLED),
    *_aborts(_S.RESTORING, _E.ABORT_REQUESTED, effects=_RECORDED_ABORT),
    *_aborts(_S.RESTORED, _E.ABORT_REQUESTED, effects=_RECORDED_ABORT),
    *_aborts(_S.RESTORE_FAILED, _E.ABORT_REQUESTED, effects=_RECORDED_ABORT),
    _row(
        _S.RESTORE_FAILED,
        _E.RETRY_REQUESTED,
        _S.RESTORING,
        "the same id goes on where it failed",
        "arm_reach",
        "start_restore",
        deadline=_D.REACH,
    ),
    _row(_S.RESTORE_FAILED, _E.CANCELLED, _S.RESTORE_FAILED, "a cancellation does not open half a restore"),
)

_PUBLICATION: Final = (
    *_aborts(_S.PUBLISHING, _E.PUBLISH_FAILED),
    _row(
        _S.PUBLISHING,
        _E.PUBLISH_UNCERTAIN,
        _S.PUBLISH_UNKNOWN,
        "the rename's outcome cannot be read: resume everyone, keep every file, look again",
        "note_failure",
        "disarm_budgets",
        "arm_release",
        "arm_probe",
        "start_release",
        deadline=_D.RELEASE,
    ),
    *(
        _row(
            _S.PUBLISHING,
            event,
            _S.PUBLISHING,
            "kept until the rename's outcome is known",
            "note_late_abort",
            deadline=_D.HOLD,
        )
        for event in (_E.ABORT_REQUESTED, _E.CANCELLED, _E.HOLD_EXPIRED)
    ),
    _row(
        _S.PUBLISHING,
        _E.RECORD_FAILED,
        _S.PUBLISHING,
        "the rename decides, and if it was held back it says so itself",
        deadline=_D.HOLD,
    ),
    _row(
        _S.PUBLISH_UNKNOWN,
        _E.PROBE_DUE,
        _S.PUBLISH_UNKNOWN,
        "look again whether the snapshot stands",
        "probe_publication",
        deadline=_D.RELEASE,
    ),
    _row(
        _S.PUBLISH_UNKNOWN,
        _E.PUBLISH_UNCERTAIN,
        _S.PUBLISH_UNKNOWN,
        "still not to be read",
        "arm_probe",
        deadline=_D.RELEASE,
    ),
    _row(_S.PUBLISH_UNKNOWN, _E.PUBLISH_SUCCEEDED, _S.RESUMING, "it was published after all", deadline=_D.RELEASE),
    _row(_S.PUBLISH_UNKNOWN, _E.PUBLISH_FAILED, _S.ABORTING, "it was not published", deadline=_D.RELEASE),
    _row(
        _S.PUBLISH_UNKNOWN,
        _E.ALL_RELEASED,
        _S.PUBLISH_UNKNOWN,
        "everyone accepts work; only the snapshot's fate is open",
        "finish",
        deadline=_D.RELEASE,
    ),
    _row(
        _S.PUBLISH_UNKNOWN,
        _E.SOME_UNPROVEN,
        _S.PUBLISH_UNKNOWN,
        "somebody is owed a resume and the snapshot's fate is open",
        "finish",
        deadline=_D.RELEASE,
    ),
    *(
        _row(_S.PUBLISH_UNKNOWN, event, _S.PUBLISH_UNKNOWN, "the resume is finished first", "note_late_abort")
        for event in (_E.ABORT_REQUESTED, _E.CANCELLED)
    ),
    _row(
        _S.PUBLISH_UNKNOWN,
        _E.RETRY_REQUESTED,
        _S.PUBLISH_UNKNOWN,
        "look again, and try again whoever is owed a resume",
        "arm_release",
        "probe_publication",
        "start_release",
        deadline=_D.RELEASE,
    ),
)

_ENDINGS: Final = (
    _row(_S.ABORTING, _E.ALL_RELEASED, _S.ABORTED, "everyone accepts work again", "disarm_budgets", "finish"),
    _row(
        _S.ABORTING,
        _E.SOME_UNPROVEN,
        _S.IN_DOUBT_UNPUBLISHED,
        "somebody could not be proven open in time; nothing was published",
        "disarm_budgets",
        "finish",
    ),
    _row(
        _S.RESUMING,
        _E.SOME_UNPROVEN,
        _S.IN_DOUBT_PUBLISHED,
        "somebody could not be proven open in time; the snapshot stands",
        "disarm_budgets",
        "finish",
    ),
    _row(
        _S.IN_DOUBT_PUBLISHED,
        _E.RETRY_REQUESTED,
        _S.RESUMING,
        "try again whoever is owed a resume",
        "arm_release",
        "start_release",
        deadline=_D.RELEASE,
    ),
    _row(
        _S.IN_DOUBT_UNPUBLISHED,
        _E.RETRY_REQUESTED,
        _S.ABORTING,
        "try again whoever is owed a resume",
        "arm_release",
        "start_release",
        deadline=_D.RELEASE,
    ),
    *(
        _row(doubt, _E.ALL_RELEASED, ended, "a late answer left nobody in doubt", "finish")
        for doubt, ended in ((_S.IN_DOUBT_PUBLISHED, _S.RESUMED), (_S.IN_DOUBT_UNPUBLISHED, _S.ABORTED))
    ),
    *(
        _row(state, event, state, "it is being finished already", "note_late_abort", deadline=_D.RELEASE)
        for state in (_S.ABORTING, _S.RESUMING)
        for event in (_E.ABORT_REQUESTED, _E.CANCELLED)
    ),
    *(
        _row(state, _E.RECORD_FAILED, state, "reopening does not wait for a record", deadline=_D.RELEASE)
        for state in (_S.ABORTING, _S.RESUMING, _S.PUBLISH_UNKNOWN)
    ),
    _row(_S.PUBLISHED, _E.RECORD_FAILED, _S.PUBLISHED, "the rename decides, not the record of it"),
)


def _recoveries() -> tuple[Row[TransactionState, TransactionEvent], ...]:
    """What becomes of what another controller left: the folder decides of a cut, the durable records of a restore."""
    reopening = ("arm_release", "start_release")
    undecided = ("is_restore", "!release_is_recorded", "!abort_is_recorded")
    cases = (
        (_S.RESUMING, "the snapshot stands: finish the resume", reopening, ("!is_restore", "snapshot_is_published")),
        (
            _S.ABORTING,
            "no snapshot stands: reopen whoever may be closed",
            reopening,
            ("!is_restore", "!snapshot_is_published"),
        ),
        (_S.RESUMING, "it was being released: finish the resume", reopening, ("is_restore", "release_is_recorded")),
        (
            _S.ABORTING,
            "an abort was asked for: finish it",
            reopening,
            ("is_restore", "!release_is_recorded", "abort_is_recorded"),
        ),
        (
            _S.RESTORE_FAILED,
            "half a restore is never opened; retry with the same id or abort",
            ("finish",),
            (*undecided, "somebody_touched"),
        ),
        (_S.ABORTING, "nobody was called: there is nothing to hold", reopening, (*undecided, "!somebody_touched")),
    )
    return tuple(
        _row(
            _S.IDLE,
            _E.RECOVER,
            target,
            reason,
            *effects,
            guards=guards,
            deadline=_D.NONE if target is _S.RESTORE_FAILED else _D.RELEASE,
        )
        for target, reason, effects, guards in cases
    )


_BEFORE_AND_AFTER: Final = (
    _row(_S.IDLE, _E.ABORT_REQUESTED, _S.ABORTED, "nobody was called", "finish"),
    _row(_S.IDLE, _E.CANCELLED, _S.ABORTED, "nobody was called", "finish"),
    *_recoveries(),
    *_aborts(_S.PREFLIGHT, _E.PARTICIPANT_FAILED, _E.RECORD_FAILED, _E.REACH_EXPIRED, _E.ABORT_REQUESTED, _E.CANCELLED),
    *_aborts(
        _S.DRAINING,
        _E.PARTICIPANT_FAILED,
        _E.CONSULT_FAILED,
        _E.RECORD_FAILED,
        _E.REACH_EXPIRED,
        _E.ABORT_REQUESTED,
        _E.CANCELLED,
    ),
    *(
        row
        for state in (_S.PAUSED, _S.COMMITTING, _S.COMMITTED)
        for row in _aborts(
            state, _E.PARTICIPANT_FAILED, _E.RECORD_FAILED, _E.HOLD_EXPIRED, _E.ABORT_REQUESTED, _E.CANCELLED
        )
    ),
)

TRANSACTION: Final = Table(
    name="TRANSACTION",
    title="The transaction over all participants",
    states=TransactionState,
    events=TransactionEvent,
    initial=_S.IDLE,
    guards=_GUARDS,
    effects=_EFFECTS,
    rows=(*_FORWARD, *_RESTORE, *_PUBLICATION, *_ENDINGS, *_BEFORE_AND_AFTER),
    final=frozenset({_S.RESUMED, _S.ABORTED}),
    resting=frozenset({_S.RESTORE_FAILED, _S.PUBLISH_UNKNOWN, _S.IN_DOUBT_PUBLISHED, _S.IN_DOUBT_UNPUBLISHED}),
    waiting={
        _S.PREFLIGHT: _D.REACH,
        _S.DRAINING: _D.REACH,
        _S.RESTORING: _D.REACH,
        _S.PAUSED: _D.HOLD,
        _S.COMMITTING: _D.HOLD,
        _S.COMMITTED: _D.HOLD,
        _S.RESTORED: _D.HOLD,
        _S.PUBLISHING: _D.HOLD,
        _S.PUBLISH_UNKNOWN: _D.RELEASE,
        _S.RESUMING: _D.RELEASE,
        _S.ABORTING: _D.RELEASE,
    },
    # a restore and a recovery are no cut: they are aborted by rows of their own
    abort_event=_E.ABORT_REQUESTED,
    abortable_from=frozenset(
        {
            _S.IDLE,
            _S.PREFLIGHT,
            _S.DRAINING,
            _S.PAUSED,
            _S.COMMITTING,
            _S.COMMITTED,
            _S.RESTORING,
            _S.RESTORED,
            _S.RESTORE_FAILED,
            _S.PUBLISHING,
        }
    ),
)
"""The transaction's machine."""
