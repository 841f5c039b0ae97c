"""FENCE, variant ``gym_a_single``: the recorded single-worker servers, with their deviations.

A call is admitted or refused by the phase that holds at that moment, whatever still runs; an operation that ends late
writes its phase back, whoever holds the fence by then (F13 to F16). Bodies are not compared (F2) and deadlines not
checked (``expired_deadline.jsonl``). Each row that differs from ``strict`` names its recording or its F number.

What no recording shows is decided for the worse, so that a controller proven against it does not depend on luck: a
recorded prepare that is repeated while its id is not the active one is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from quiesce.fsm.rows import Table
from quiesce.fsm.tables.fence_calls import CONFLICT, REPLAY, build_table, call_rows, unfenced_rows
from quiesce.fsm.tables.fence_recorded import (
    ANSWER,
    HABITS,
    PREPARED_IS_BEHIND,
    REPEATED_RESUME,
    UNCHECKED,
    UP_TO_PREPARED,
    become_ready,
    ends_everywhere,
    marking_replay,
    polled_status,
    starts,
)
from quiesce.fsm.tables.fence_strict import auxiliary
from quiesce.fsm.tables.fence_vocabulary import Branch, FenceEvent, FencePhase, FenceRow, decide, refuse
from quiesce.fsm.vocabulary import DeadlineClass, Role

__all__ = ["GYM_A_SINGLE"]

_E = FenceEvent
_P = FencePhase

_ALL: Final = tuple(FencePhase)
_WITHOUT_FAILED_RESTORE: Final = tuple(phase for phase in FencePhase if phase is not _P.RESTORE_FAILED_PAUSED)
_NOT_IDLE: Final = tuple(phase for phase in FencePhase if phase is not _P.IDLE)
_AFTER_PREPARE: Final = frozenset({_P.PREPARED, _P.COMMITTING, _P.COMMITTED_PAUSED})


# resume ------------------------------------------------------------------------------------------------------------

_BUSY: Final = refuse(None, "refuse_invalid_phase", "refused at once while an operation runs", "F13")
_REOPEN: Final = Branch(
    None,
    ("open_admission", "finish_id", "clear_active", "answer_now"),
    "everybody accepts work again, whatever still runs",
    _P.IDLE,
    ref="F13",
)


def _resume_rows(
    phases: Collection[FencePhase], busy: Collection[FencePhase], first: tuple[Branch, ...] = ()
) -> tuple[FenceRow, ...]:
    rows: list[FenceRow] = []
    for phase in phases:
        own = (_BUSY,) if phase in busy else (*first, _REOPEN)
        rows += decide(phase, _E.RESUME, (REPEATED_RESUME, CONFLICT, *own))
    return tuple(rows)


# commit and restore ------------------------------------------------------------------------------------------------


def _commit_rows(
    phases: Collection[FencePhase],
    *,
    running: Collection[FencePhase],
    recorded: Collection[FencePhase],
    first: tuple[Branch, ...] = (),
) -> tuple[FenceRow, ...]:
    """``running`` are the phases in which its handler may still run, and so those in which it may end."""
    start = starts(target=_P.COMMITTING, reason="the cut is reached: export it")
    done = Branch(
        None,
        ("drop_handler", "record_reply", "answer_outcome"),
        "exported; it writes its phase back",
        _P.COMMITTED_PAUSED,
        ref="F14",
    )
    failed = Branch(None, ("drop_handler", "answer_outcome"), "back to where it began", _P.PREPARED, ref="F14")
    arrivals = call_rows(
        HABITS, _E.COMMIT, phases, allowed={_P.PREPARED: (*first, start)}, recorded=recorded, running=running
    )
    return (*arrivals, *ends_everywhere(running, {_E.COMMIT_DONE: (done,), _E.COMMIT_FAILED: (failed,)}))


def _restore_rows(
    phases: Collection[FencePhase],
    *,
    allowed: Mapping[FencePhase, tuple[Branch, ...]],
    running: Collection[FencePhase],
    recorded: Collection[FencePhase],
    ends: Mapping[FenceEvent, tuple[Branch, ...]],
) -> tuple[FenceRow, ...]:
    arrivals = call_rows(HABITS, _E.RESTORE, phases, allowed=allowed, recorded=recorded, running=running)
    return (*arrivals, *ends_everywhere(running, ends))


_OPEN_RESTORE: Final = starts(target=_P.RESTORING, reason="admission is not touched yet", ref="F21")
_OPEN_RESTORE_ENDS: Final = {
    _E.RESTORE_DONE: (
        Branch(
            None,
            ("close_admission", "drop_handler", "record_reply", "answer_outcome"),
            "installed; it writes its phase back",
            _P.RESTORED_PAUSED,
            ref="F14, F21",
        ),
    ),
    _E.RESTORE_FAILED: (
        Branch(None, ("clear_active", "drop_handler", "answer_outcome"), "nothing was closed", _P.IDLE, ref="F15, F21"),
    ),
}


# prepare -----------------------------------------------------------------------------------------------------------


def _waiting_prepare_rows(
    phases: Collection[FencePhase],
    *,
    running: Collection[FencePhase],
    recorded: Collection[FencePhase],
    marks: bool,
    ends: Mapping[FenceEvent, tuple[Branch, ...]],
) -> tuple[FenceRow, ...]:
    start = starts("close_admission", target=_P.PREPARING, reason="closed; wait for the cut")
    arrivals = call_rows(
        HABITS,
        _E.PREPARE,
        phases,
        allowed={_P.IDLE: (start,)},
        recorded=recorded,
        running=running,
        replay=marking_replay if marks else lambda _phase: (REPLAY,),
    )
    return (*arrivals, *ends_everywhere(running, ends))


_UNREADY: Final = Branch(
    None,
    ("clear_active", "drop_handler", "answer_outcome"),
    "the fence is free, admission stays closed",
    _P.IDLE,
    ref="F15, prepare_agent_deadline_incomplete.jsonl",
)
_UNFROZEN: Final = Branch(
    None,
    ("clear_active", "drop_handler", "answer_outcome"),
    "the fence is free, admission stays closed",
    _P.IDLE,
    ref="resources_resume_during_prepare.jsonl",
)


# the single-worker tables ------------------------------------------------------------------------------------------


def _policy_rows() -> tuple[FenceRow, ...]:
    """The single-worker policy closes and answers at once, so no prepare of it ever ends late."""
    close = ("close_admission", "set_active")
    drained = Branch("drained", (*close, "record_reply", "answer_now"), "closed, nothing in flight", _P.PREPARED)
    draining = Branch(
        None,
        (*close, "record_draining_reply", "answer_now"),
        "closed, calls in flight",
        _P.PREPARING,
        UNCHECKED,
        DeadlineClass.REACH,
    )
    abort = (Branch(None, ("record_reply", "answer_now"), "fenced and cut off", ref=UNCHECKED),)
    return (
        *call_rows(
            HABITS,
            _E.PREPARE,
            _ALL,
            allowed={_P.IDLE: (drained.cites(UNCHECKED), draining)},
            recorded=_AFTER_PREPARE | {_P.PREPARING},
            replay=lambda phase: (REPLAY,) if phase in UP_TO_PREPARED else (PREPARED_IS_BEHIND, REPLAY),
        ),
        *unfenced_rows(_E.STATUS, _ALL, {phase: _policy_status(phase) for phase in _NOT_IDLE}),
        *call_rows(
            HABITS,
            _E.ABORT_INFLIGHT,
            _ALL,
            allowed={_P.PREPARING: abort, _P.PREPARED: abort},
            recorded=_AFTER_PREPARE | {_P.PREPARING},
        ),
    )


def _policy_status(phase: FencePhase) -> tuple[Branch, ...]:
    if phase is _P.PREPARING:
        return polled_status()
    if phase is _P.RESTORED_PAUSED:
        crash = Branch(None, ("answer_crash",), "status fails once restored")
        return (crash.cites("status_after_commit_and_restore.jsonl: status_restored"),)
    return ANSWER


def _policy() -> Table[FencePhase, FenceEvent]:
    not_quiescent = refuse(
        "!drained", "refuse_not_quiescent", "a call in flight would be missing in the export", UNCHECKED
    )
    restore = starts("close_admission", target=_P.RESTORING, reason="nothing is admitted while state is installed")
    done = Branch(
        None, ("drop_handler", "record_reply", "answer_outcome"), "installed, still closed", _P.RESTORED_PAUSED
    )
    held = Branch(
        None, ("drop_handler", "answer_outcome"), "closed, the id is kept and may try again", _P.RESTORE_FAILED_PAUSED
    )
    rows = (
        *_policy_rows(),
        *_commit_rows(_ALL, running={_P.COMMITTING}, recorded={_P.COMMITTED_PAUSED}, first=(not_quiescent,)),
        *_restore_rows(
            _ALL,
            allowed={_P.IDLE: (restore,), _P.RESTORE_FAILED_PAUSED: (restore,)},
            running={_P.RESTORING},
            recorded={_P.RESTORED_PAUSED},
            ends={
                _E.RESTORE_DONE: (done.cites("F14"),),
                _E.RESTORE_FAILED: (held.cites("restore_tampered.jsonl: capabilities_after"),),
            },
        ),
        *_resume_rows(_ALL, busy=(_P.COMMITTING, _P.RESTORING)),
    )
    return build_table("FENCE gym_a_single policy", "A recorded single-worker policy server", rows)


def _agent() -> Table[FencePhase, FenceEvent]:
    """Every operation of an agent may end late, in any phase: resume does not wait for a prepare that runs (F13)."""
    phases = _WITHOUT_FAILED_RESTORE
    rows = (
        *_waiting_prepare_rows(
            phases,
            running=phases,
            recorded=phases,
            marks=True,
            ends={
                _E.PREPARE_READY: become_ready(),
                _E.PREPARE_INCOMPLETE: (_UNREADY,),
                _E.PREPARE_FAILED: (_UNREADY.cites("F15"),),
            },
        ),
        *unfenced_rows(_E.STATUS, phases, dict.fromkeys(phases, ANSWER)),
        *_commit_rows(phases, running=phases, recorded=phases),
        *_restore_rows(
            phases, allowed={_P.IDLE: (_OPEN_RESTORE,)}, running=phases, recorded=phases, ends=_OPEN_RESTORE_ENDS
        ),
        *_resume_rows(phases, busy=(_P.COMMITTING, _P.RESTORING)),
        *unfenced_rows(_E.RETIRE, phases, dict.fromkeys(UP_TO_PREPARED, ANSWER)),
        *unfenced_rows(_E.DISCARD, phases, {_P.RESTORED_PAUSED: ANSWER}),
    )
    return build_table("FENCE gym_a_single agent", "A recorded agent server", rows)


def _resources() -> Table[FencePhase, FenceEvent]:
    """Resume is refused while anything runs, so nothing ends late here."""
    phases = _WITHOUT_FAILED_RESTORE
    ready = Branch(None, ("drop_handler", "record_reply", "answer_outcome"), "every session is held", _P.PREPARED)
    owing = refuse(
        "owes_restore", "refuse_owes_restore", "only a restore may open it", "restore_tampered.jsonl: resume_without"
    )
    rows = (
        *_waiting_prepare_rows(
            phases,
            running={_P.PREPARING},
            recorded=_AFTER_PREPARE,
            marks=False,
            ends={_E.PREPARE_READY: (ready.cites("F14"),), _E.PREPARE_FAILED: (_UNFROZEN,)},
        ),
        *unfenced_rows(_E.STATUS, phases, dict.fromkeys(_NOT_IDLE, ANSWER)),
        *_commit_rows(phases, running={_P.COMMITTING}, recorded={_P.COMMITTED_PAUSED}),
        *_restore_rows(
            phases,
            allowed={_P.IDLE: (_OPEN_RESTORE,)},
            running={_P.RESTORING},
            recorded={_P.RESTORED_PAUSED},
            ends=_OPEN_RESTORE_ENDS,
        ),
        *_resume_rows(phases, busy=(_P.PREPARING, _P.COMMITTING, _P.RESTORING), first=(owing,)),
        *unfenced_rows(_E.RETIRE, phases, dict.fromkeys((_P.PREPARING, _P.PREPARED), ANSWER)),
    )
    return build_table("FENCE gym_a_single resources", "A recorded resource server", rows)


GYM_A_SINGLE: Final[Mapping[Role, Table[FencePhase, FenceEvent]]] = {
    Role.POLICY: _policy(),
    Role.AUXILIARY: auxiliary("gym_a_single"),
    Role.AGENT: _agent(),
    Role.RESOURCES: _resources(),
}
"""The recorded single-worker servers, by role."""
