"""FENCE, variant ``gym_a_coordinator``: the recorded coordinator of several policy workers, with its deviations.

It has the admission routes alone (F23). Pause and resume wait for the workers' acknowledgement, so that both can end
late; a pause that fails reopens the workers by itself (F18), a resume that fails has opened them already (F19), and
resume is refused from idle, which is the known trap of a rollback (wire-protocol 9, 1). See ``fence_gym_a``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quiesce.fsm.rows import Table
from quiesce.fsm.tables.fence_calls import CONFLICT, JOIN, build_table, call_rows, unfenced_rows
from quiesce.fsm.tables.fence_recorded import (
    ANSWER,
    HABITS,
    REPEATED_RESUME,
    UNCHECKED,
    UP_TO_PREPARED,
    become_ready,
    ends_everywhere,
    marking_replay,
    polled_status,
    starts,
)
from quiesce.fsm.tables.fence_vocabulary import Branch, FenceEvent, FencePhase, FenceRow, decide, refuse
from quiesce.fsm.vocabulary import DeadlineClass, Role

__all__ = ["GYM_A_COORDINATOR"]

_E = FenceEvent
_P = FencePhase


def _coordinator_resume_rows() -> tuple[FenceRow, ...]:
    """Resume reopens the workers, then waits for their acknowledgement; idle is missing from its allowed phases."""
    opening = ("open_admission", "set_active", "remember_phase", "start_operation")
    start = Branch(None, opening, "the workers open; wait until they say so", ref="F19", deadline=DeadlineClass.RELEASE)
    idle = refuse(None, "refuse_invalid_phase", "a resume from idle is refused", "resume_from_idle_coordinator.jsonl")
    rows: list[FenceRow] = []
    for phase in UP_TO_PREPARED:
        own = idle if phase is _P.IDLE else start
        rows += decide(phase, _E.RESUME, (REPEATED_RESUME, CONFLICT, JOIN, own))
    done = Branch(
        None,
        ("finish_id", "clear_active", "drop_handler", "answer_outcome"),
        "every worker acknowledged; the id is used up",
        _P.IDLE,
        ref="coordinator_prepare_resume.jsonl",
    )
    was_prepared = Branch(
        "entered_prepared", ("drop_handler", "answer_outcome"), "workers missing; already open", _P.PREPARED, "F19"
    )
    was_preparing = Branch(
        None, ("drop_handler", "answer_outcome"), "workers missing; already open", _P.PREPARING, "F19"
    )
    return (
        *rows,
        *ends_everywhere(UP_TO_PREPARED, {_E.RESUME_DONE: (done,), _E.RESUME_FAILED: (was_prepared, was_preparing)}),
    )


def _coordinator_prepare_rows() -> tuple[FenceRow, ...]:
    close = starts("close_admission", target=_P.PREPARING, reason="the workers close; wait until they say so")
    short = refuse(
        "!members_connected",
        "refuse_missing_workers",
        "a missing worker is no drained one",
        "coordinator_missing_worker.jsonl",
    )
    draining = Branch(
        None,
        ("drop_handler", "record_draining_reply", "answer_outcome"),
        "every worker closed, calls in flight",
        _P.PREPARING,
        ref="F16, coordinator_prepare_resume.jsonl",
    )
    reopened = Branch(
        None,
        ("open_admission", "clear_active", "drop_handler", "answer_outcome"),
        "workers missing: it reopens them by itself",
        _P.IDLE,
        ref="F18, coordinator_worker_never_acknowledges.jsonl",
    )
    arrivals = call_rows(
        HABITS,
        _E.PREPARE,
        UP_TO_PREPARED,
        allowed={_P.IDLE: (short, close)},
        recorded=UP_TO_PREPARED,
        running=UP_TO_PREPARED,
        replay=marking_replay,
    )
    ends = {_E.PREPARE_READY: become_ready(), _E.PREPARE_DRAINING: (draining,), _E.PREPARE_FAILED: (reopened,)}
    return (*arrivals, *ends_everywhere(UP_TO_PREPARED, ends))


def _coordinator() -> Table[FencePhase, FenceEvent]:
    """The coordinator's control application has the admission routes alone (F23)."""
    abort = (Branch(None, ("record_reply", "answer_now"), "fenced and cut off", ref=UNCHECKED),)
    status = {_P.PREPARING: polled_status(), _P.PREPARED: ANSWER}
    rows = (
        *_coordinator_prepare_rows(),
        *unfenced_rows(_E.STATUS, UP_TO_PREPARED, status),
        *call_rows(
            HABITS,
            _E.ABORT_INFLIGHT,
            UP_TO_PREPARED,
            allowed={_P.PREPARING: abort, _P.PREPARED: abort},
            recorded=UP_TO_PREPARED,
        ),
        *_coordinator_resume_rows(),
    )
    return build_table("FENCE gym_a_coordinator policy", "A recorded coordinator of several policy workers", rows)


GYM_A_COORDINATOR: Final[Mapping[Role, Table[FencePhase, FenceEvent]]] = {Role.POLICY: _coordinator()}
"""The recorded coordinator: policies only."""
