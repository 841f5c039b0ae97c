"""The annotations of Quiesce's own machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from quiesce.diagrams.annotations import Annotations, Landmark, PathKind, annotations_from
from quiesce.fsm.rows import Table
from quiesce.fsm.tables.fence import FENCE, MODEL_SERVER, FenceEvent, FencePhase
from quiesce.fsm.tables.participant import PARTICIPANT, ParticipantEvent, ParticipantState
from quiesce.fsm.tables.phases import PHASE_OF
from quiesce.fsm.tables.release import RELEASE, ReleaseEvent, ReleaseState
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionEvent, TransactionState
from quiesce.fsm.vocabulary import Phase

__all__ = ["IDLE_RESUME", "annotations_of"]

IDLE_RESUME: Final = "the IDLE resume"
"""Landmark of RELEASE: a policy in coordinator mode refuses a resume from idle, so it is paused first."""

_REOPENING: Final = frozenset({Phase.RESUME, Phase.ABORT, Phase.ROLLBACK})
_HAPPY, _FAILURE, _RECOVERY = PathKind.HAPPY, PathKind.FAILURE, PathKind.RECOVERY


def _transaction() -> Annotations[TransactionState, TransactionEvent]:
    state, event = TransactionState, TransactionEvent
    happy = (
        event.BEGIN,
        event.ALL_INSPECTED,
        event.ALL_PAUSED,
        event.COMMIT_REQUESTED,
        event.ALL_COMMITTED,
        event.PUBLISH_REQUESTED,
        event.PUBLISH_SUCCEEDED,
        event.ALL_RESTORED,
        event.RELEASE_REQUESTED,
        event.ALL_RELEASED,
    )
    failing = (
        event.PUBLISH_FAILED,
        event.PUBLISH_UNCERTAIN,
        event.SOME_UNPROVEN,
        event.PARTICIPANT_FAILED,
        event.CONSULT_FAILED,
        event.RECORD_FAILED,
        event.REACH_EXPIRED,
        event.HOLD_EXPIRED,
        event.ABORT_REQUESTED,
        event.CANCELLED,
    )
    undoing = (
        (state.ABORTING, event.ALL_RELEASED, state.ABORTED),
        (state.PUBLISH_UNKNOWN, event.PUBLISH_SUCCEEDED, state.RESUMING),
        (state.PUBLISH_UNKNOWN, event.PUBLISH_FAILED, state.ABORTING),
        (state.PUBLISH_UNKNOWN, event.ALL_RELEASED, state.PUBLISH_UNKNOWN),
        (state.IN_DOUBT_PUBLISHED, event.ALL_RELEASED, state.RESUMED),
        (state.IN_DOUBT_UNPUBLISHED, event.ALL_RELEASED, state.ABORTED),
    )
    return Annotations(
        steps=dict.fromkeys(undoing, _RECOVERY),
        events={
            **dict.fromkeys(happy, _HAPPY),
            **dict.fromkeys(failing, _FAILURE),
            **dict.fromkeys((event.RECOVER, event.PROBE_DUE, event.RETRY_REQUESTED), _RECOVERY),
        },
        inner={
            running: (f"runs release for everyone; {IDLE_RESUME} there:", *_idle_resume())
            for running, phase in PHASE_OF.items()
            if phase in _REOPENING
        },
    )


def _idle_resume() -> Iterator[str]:
    """The steps of the landmark, each as what is answered and what is called then."""
    landmark = next(one for one in _release().landmarks if one.name == IDLE_RESUME)
    for number, step in enumerate(landmark.steps, start=1):
        effects = [row.effects for row in RELEASE.rows if (row.source, row.event, row.target) == step]
        calls = dict.fromkeys(effect for row in effects for effect in row if effect.startswith("call_"))
        yield f"{number}. {step[1].value} / {', '.join(calls)}"


def _participant() -> Annotations[ParticipantState, ParticipantEvent]:
    event = ParticipantEvent
    happy = (
        event.INSPECT_DUE,
        event.CONFIRMED,
        event.CLOSE_DUE,
        event.STILL_DRAINING,
        event.CUT_REACHED,
        event.EXPORT_DUE,
        event.EXPORTED,
        event.VERIFIED,
        event.IMPORT_DUE,
        event.IMPORTED,
        event.RELEASED,
    )
    failing = (event.UNANSWERED, event.REFUSED, event.DENIED, event.UNPROVEN, event.STRAGGLING, event.NOT_RETIRED)
    late = (ParticipantState.UNKNOWN, ParticipantState.DRAINING)
    return Annotations(
        steps={(source, event.RELEASED, ParticipantState.RESUMED): _RECOVERY for source in late},
        targets={ParticipantState.ABORTED: _RECOVERY},
        events={
            **dict.fromkeys(happy, _HAPPY),
            **dict.fromkeys(failing, _FAILURE),
            **dict.fromkeys((event.CALL_AGAIN, event.RETIRED), _RECOVERY),
        },
    )


def _release() -> Annotations[ReleaseState, ReleaseEvent]:
    state, event = ReleaseState, ReleaseEvent
    happy = (
        (state.NOT_DUE, event.RELEASE_DUE, state.RELEASING),
        (state.SETTLING, event.OUTSTANDING_ENDED, state.CONFIRMING),
        (state.CONFIRMING, event.READ_OPEN, state.RELEASED),
    )
    lost = (state.UNPROVEN, state.HELD_BY_OTHER, state.OWES_RESTORE)
    healing = (
        event.RELEASE_DUE,
        event.WRONG_PHASE,
        event.WORKERS_MISSING,
        event.STALE_ID,
        event.CONFLICT,
        event.OWES_RESTORE,
        event.UNANSWERED,
        event.CLOSED,
        event.READ_BUSY,
        event.READ_HELD,
        event.READ_ORPHAN,
        event.READ_OPEN,
        event.READ_OTHER,
        event.BACKED_OFF,
        event.OUTSTANDING_ENDED,
    )
    return Annotations(
        steps={**dict.fromkeys(happy, _HAPPY), (state.UNPROVEN, event.OPENED, state.RELEASED): _RECOVERY},
        targets=dict.fromkeys(lost, _FAILURE),
        events={event.OPENED: _HAPPY, **dict.fromkeys(healing, _RECOVERY)},
        landmarks=(
            Landmark(
                IDLE_RESUME,
                (
                    (state.RELEASING, event.WRONG_PHASE, state.INSPECTING),
                    (state.INSPECTING, event.READ_OPEN, state.CLOSING),
                    (state.CLOSING, event.CLOSED, state.RELEASING),
                ),
            ),
            Landmark("an orphan fence", ((state.INSPECTING, event.READ_ORPHAN, state.RELEASING),)),
        ),
    )


_FENCE_HAPPY: Final = frozenset(
    {
        FenceEvent.PREPARE,
        FenceEvent.STATUS,
        FenceEvent.DRAINED,
        FenceEvent.PREPARE_READY,
        FenceEvent.PREPARE_DRAINING,
        FenceEvent.COMMIT,
        FenceEvent.COMMIT_DONE,
        FenceEvent.RESTORE,
        FenceEvent.RESTORE_DONE,
        FenceEvent.RESUME,
        FenceEvent.RESUME_DONE,
    }
)
_FENCE_FAILING: Final = frozenset(
    {
        FenceEvent.PREPARE_INCOMPLETE,
        FenceEvent.PREPARE_FAILED,
        FenceEvent.COMMIT_FAILED,
        FenceEvent.RESTORE_FAILED,
        FenceEvent.RESUME_FAILED,
    }
)


_WHILE: Final[Mapping[FenceEvent, frozenset[FencePhase]]] = {
    FenceEvent.PREPARE_READY: frozenset({FencePhase.PREPARING}),
    FenceEvent.PREPARE_DRAINING: frozenset({FencePhase.PREPARING}),
    FenceEvent.COMMIT_DONE: frozenset({FencePhase.COMMITTING}),
    FenceEvent.RESTORE_DONE: frozenset({FencePhase.RESTORING}),
    FenceEvent.RESUME_DONE: frozenset({FencePhase.PREPARING, FencePhase.PREPARED}),
}
"""The phases in which an operation ends as it is meant to; from any other it ends late (wire-protocol F13 to F16)."""


def _fence(table: Table[FencePhase, FenceEvent]) -> Annotations[FencePhase, FenceEvent]:
    """A fence has the events of its role and variant alone."""
    paths = {
        **dict.fromkeys(_FENCE_HAPPY, _HAPPY),
        **dict.fromkeys(_FENCE_FAILING, _FAILURE),
        FenceEvent.GRACE_PASSED: _RECOVERY,
    }
    used = {row.event for row in table.rows}
    late = [row for row in table.rows if row.event in _WHILE and row.source not in _WHILE[row.event]]
    return Annotations(
        steps={(row.source, row.event, row.target): _FAILURE for row in late},
        events={event: path for event, path in paths.items() if event in used},
    )


# Any: the machines are over different states and events
_OURS: Final[Mapping[str, Annotations[Any, Any]]] = {
    TRANSACTION.name: _transaction(),
    PARTICIPANT.name: _participant(),
    RELEASE.name: _release(),
    **{table.name: _fence(table) for table in (*FENCE.values(), MODEL_SERVER)},
}


def annotations_of(table: Table[Any, Any]) -> Annotations[Any, Any]:
    """The annotations of one of our machines, and what the table itself says for any other."""
    return _OURS[table.name] if table.name in _OURS else annotations_from(table)
