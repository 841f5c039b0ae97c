"""FENCE, variants ``gym_a_single`` and ``gym_a_coordinator``: the recorded servers, with their deviations.

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
from quiesce.fsm.tables.fence_calls import (
    CONFLICT,
    JOIN,
    REPLAY,
    Habits,
    build_table,
    call_rows,
    unfenced_rows,
)
from quiesce.fsm.tables.fence_strict import auxiliary
from quiesce.fsm.tables.fence_vocabulary import Branch, FenceEvent, FencePhase, FenceRow, decide, refuse
from quiesce.fsm.vocabulary import DeadlineClass, Role

__all__ = ["GYM_A_COORDINATOR", "GYM_A_SINGLE"]

_E = FenceEvent
_P = FencePhase
_HABITS: Final = Habits(compares_bodies=False, checks_deadlines=False)
_UNCHECKED: Final = "expired_deadline.jsonl"

_ALL: Final = tuple(FencePhase)
_WITHOUT_FAILED_RESTORE: Final = tuple(phase for phase in FencePhase if phase is not _P.RESTORE_FAILED_PAUSED)
_NOT_IDLE: Final = tuple(phase for phase in FencePhase if phase is not _P.IDLE)
_UP_TO_PREPARED: Final = (_P.IDLE, _P.PREPARING, _P.PREPARED)
_AFTER_PREPARE: Final = frozenset({_P.PREPARED, _P.COMMITTING, _P.COMMITTED_PAUSED})

_ANSWER: Final = (Branch(None, ("answer_now",), "reads, or acts beside the fence"),)
_TOO_LATE: Final = "replay_same_id.jsonl: prepare_replayed"


def _start(*effects: str, target: FencePhase, reason: str, ref: str = _UNCHECKED) -> Branch:
    deadline = DeadlineClass.REACH if target is _P.PREPARING else DeadlineClass.HOLD
    return Branch(None, (*effects, "set_active", "start_operation"), reason, target, ref, deadline)


def _ends(phases: Collection[FencePhase], branches: Mapping[FenceEvent, tuple[Branch, ...]]) -> tuple[FenceRow, ...]:
    """The same end in every phase: it writes its own phase back."""
    return tuple(row for phase in phases for event, chain in branches.items() for row in decide(phase, event, chain))


# resume ------------------------------------------------------------------------------------------------------------

_REPEATED_RESUME: Final = Branch("id_finished", ("replay_reply",), "a lost resume can be repeated for ever", ref="F1")
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
        rows += decide(phase, _E.RESUME, (_REPEATED_RESUME, CONFLICT, *own))
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
    start = _start(target=_P.COMMITTING, reason="the cut is reached: export it")
    done = Branch(
        None,
        ("drop_handler", "record_reply", "answer_outcome"),
        "exported; it writes its phase back",
        _P.COMMITTED_PAUSED,
        ref="F14",
    )
    failed = Branch(None, ("drop_handler", "answer_outcome"), "back to where it began", _P.PREPARED, ref="F14")
    arrivals = call_rows(
        _HABITS, _E.COMMIT, phases, allowed={_P.PREPARED: (*first, start)}, recorded=recorded, running=running
    )
    return (*arrivals, *_ends(running, {_E.COMMIT_DONE: (done,), _E.COMMIT_FAILED: (failed,)}))


def _restore_rows(
    phases: Collection[FencePhase],
    *,
    allowed: Mapping[FencePhase, tuple[Branch, ...]],
    running: Collection[FencePhase],
    recorded: Collection[FencePhase],
    ends: Mapping[FenceEvent, tuple[Branch, ...]],
) -> tuple[FenceRow, ...]:
    arrivals = call_rows(_HABITS, _E.RESTORE, phases, allowed=allowed, recorded=recorded, running=running)
    return (*arrivals, *_ends(running, ends))


_OPEN_RESTORE: Final = _start(target=_P.RESTORING, reason="admission is not touched yet", ref="F21")
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

_PREPARED_IS_BEHIND: Final = refuse(
    "recorded_ready", "refuse_invalid_phase", "it cannot mark the fence prepared from here", _TOO_LATE
)


def _marking_replay(phase: FencePhase) -> tuple[Branch, ...]:
    """A repeated prepare marks the fence prepared again: this repairs F14, and fails where that is not possible."""
    if phase not in {_P.PREPARING, _P.PREPARED}:
        return (_PREPARED_IS_BEHIND, REPLAY)
    again = Branch("recorded_current", ("replay_reply",), "replayed, and marked prepared again", _P.PREPARED, "F14")
    orphan = refuse("recorded_ready", "refuse_invalid_phase", "its id holds the fence no more", "F15")
    return (again, orphan, REPLAY)


def _late_ready() -> tuple[Branch, ...]:
    """A prepare that became ready: it marks the fence prepared only while its id is the active one."""
    ready = Branch("id_active", ("drop_handler", "record_reply", "answer_outcome"), "the cut is reached", _P.PREPARED)
    stale = Branch(
        "id_finished",
        ("drop_handler", "refuse_stale_checkpoint"),
        "a late end writes preparing over whatever holds the fence",
        _P.PREPARING,
        ref="F14, F16",
    )
    lost = Branch(
        None,
        ("drop_handler", "record_reply", "refuse_invalid_phase"),
        "ready, but another late end has taken the fence from it",
        _P.PREPARING,
        ref="F15, F16",
    )
    return (ready.cites("F14"), stale, lost)


def _waiting_prepare_rows(
    phases: Collection[FencePhase],
    *,
    running: Collection[FencePhase],
    recorded: Collection[FencePhase],
    marks: bool,
    ends: Mapping[FenceEvent, tuple[Branch, ...]],
) -> tuple[FenceRow, ...]:
    start = _start("close_admission", target=_P.PREPARING, reason="closed; wait for the cut")
    arrivals = call_rows(
        _HABITS,
        _E.PREPARE,
        phases,
        allowed={_P.IDLE: (start,)},
        recorded=recorded,
        running=running,
        replay=_marking_replay if marks else lambda _phase: (REPLAY,),
    )
    return (*arrivals, *_ends(running, ends))


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
        _UNCHECKED,
        DeadlineClass.REACH,
    )
    abort = (Branch(None, ("record_reply", "answer_now"), "fenced and cut off", ref=_UNCHECKED),)
    return (
        *call_rows(
            _HABITS,
            _E.PREPARE,
            _ALL,
            allowed={_P.IDLE: (drained.cites(_UNCHECKED), draining)},
            recorded=_AFTER_PREPARE | {_P.PREPARING},
            replay=lambda phase: (REPLAY,) if phase in _UP_TO_PREPARED else (_PREPARED_IS_BEHIND, REPLAY),
        ),
        *unfenced_rows(_E.STATUS, _ALL, {phase: _policy_status(phase) for phase in _NOT_IDLE}),
        *call_rows(
            _HABITS,
            _E.ABORT_INFLIGHT,
            _ALL,
            allowed={_P.PREPARING: abort, _P.PREPARED: abort},
            recorded=_AFTER_PREPARE | {_P.PREPARING},
        ),
    )


def _policy_status(phase: FencePhase) -> tuple[Branch, ...]:
    if phase is _P.PREPARING:
        ref = "commit_before_prepare.jsonl"
        polled = Branch("drained", ("answer_now",), "only a status call completes the cut", _P.PREPARED)
        return (polled.cites(ref), _ANSWER[0].cites(ref))
    if phase is _P.RESTORED_PAUSED:
        crash = Branch(None, ("answer_crash",), "status fails once restored")
        return (crash.cites("status_after_commit_and_restore.jsonl: status_restored"),)
    return _ANSWER


def _policy() -> Table[FencePhase, FenceEvent]:
    not_quiescent = refuse(
        "!drained", "refuse_not_quiescent", "a call in flight would be missing in the export", _UNCHECKED
    )
    restore = _start("close_admission", target=_P.RESTORING, reason="nothing is admitted while state is installed")
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
                _E.PREPARE_READY: _late_ready(),
                _E.PREPARE_INCOMPLETE: (_UNREADY,),
                _E.PREPARE_FAILED: (_UNREADY.cites("F15"),),
            },
        ),
        *unfenced_rows(_E.STATUS, phases, dict.fromkeys(phases, _ANSWER)),
        *_commit_rows(phases, running=phases, recorded=phases),
        *_restore_rows(
            phases, allowed={_P.IDLE: (_OPEN_RESTORE,)}, running=phases, recorded=phases, ends=_OPEN_RESTORE_ENDS
        ),
        *_resume_rows(phases, busy=(_P.COMMITTING, _P.RESTORING)),
        *unfenced_rows(_E.RETIRE, phases, dict.fromkeys(_UP_TO_PREPARED, _ANSWER)),
        *unfenced_rows(_E.DISCARD, phases, {_P.RESTORED_PAUSED: _ANSWER}),
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
        *unfenced_rows(_E.STATUS, phases, dict.fromkeys(_NOT_IDLE, _ANSWER)),
        *_commit_rows(phases, running={_P.COMMITTING}, recorded={_P.COMMITTED_PAUSED}),
        *_restore_rows(
            phases,
            allowed={_P.IDLE: (_OPEN_RESTORE,)},
            running={_P.RESTORING},
            recorded={_P.RESTORED_PAUSED},
            ends=_OPEN_RESTORE_ENDS,
        ),
        *_resume_rows(phases, busy=(_P.PREPARING, _P.COMMITTING, _P.RESTORING), first=(owing,)),
        *unfenced_rows(_E.RETIRE, phases, dict.fromkeys((_P.PREPARING, _P.PREPARED), _ANSWER)),
    )
    return build_table("FENCE gym_a_single resources", "A recorded resource server", rows)


# the coordinator's table -------------------------------------------------------------------------------------------


def _coordinator_resume_rows() -> tuple[FenceRow, ...]:
    """Resume reopens the workers, then waits for their acknowledgement; idle is missing from its allowed phases."""
    opening = ("open_admission", "set_active", "remember_phase", "start_operation")
    start = Branch(None, opening, "the workers open; wait until they say so", ref="F19", deadline=DeadlineClass.RELEASE)
    idle = refuse(None, "refuse_invalid_phase", "a resume from idle is refused", "resume_from_idle_coordinator.jsonl")
    rows: list[FenceRow] = []
    for phase in _UP_TO_PREPARED:
        own = idle if phase is _P.IDLE else start
        rows += decide(phase, _E.RESUME, (_REPEATED_RESUME, CONFLICT, JOIN, own))
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
    return (*rows, *_ends(_UP_TO_PREPARED, {_E.RESUME_DONE: (done,), _E.RESUME_FAILED: (was_prepared, was_preparing)}))


def _coordinator_prepare_rows() -> tuple[FenceRow, ...]:
    close = _start("close_admission", target=_P.PREPARING, reason="the workers close; wait until they say so")
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
        _HABITS,
        _E.PREPARE,
        _UP_TO_PREPARED,
        allowed={_P.IDLE: (short, close)},
        recorded=_UP_TO_PREPARED,
        running=_UP_TO_PREPARED,
        replay=_marking_replay,
    )
    ends = {_E.PREPARE_READY: _late_ready(), _E.PREPARE_DRAINING: (draining,), _E.PREPARE_FAILED: (reopened,)}
    return (*arrivals, *_ends(_UP_TO_PREPARED, ends))


def _coordinator() -> Table[FencePhase, FenceEvent]:
    """The coordinator's control application has the admission routes alone (F23)."""
    abort = (Branch(None, ("record_reply", "answer_now"), "fenced and cut off", ref=_UNCHECKED),)
    status = {_P.PREPARING: _policy_status(_P.PREPARING), _P.PREPARED: _ANSWER}
    rows = (
        *_coordinator_prepare_rows(),
        *unfenced_rows(_E.STATUS, _UP_TO_PREPARED, status),
        *call_rows(
            _HABITS,
            _E.ABORT_INFLIGHT,
            _UP_TO_PREPARED,
            allowed={_P.PREPARING: abort, _P.PREPARED: abort},
            recorded=_UP_TO_PREPARED,
        ),
        *_coordinator_resume_rows(),
    )
    return build_table("FENCE gym_a_coordinator policy", "A recorded coordinator of several policy workers", rows)


GYM_A_SINGLE: Final[Mapping[Role, Table[FencePhase, FenceEvent]]] = {
    Role.POLICY: _policy(),
    Role.AUXILIARY: auxiliary("gym_a_single"),
    Role.AGENT: _agent(),
    Role.RESOURCES: _resources(),
}
"""The recorded single-worker servers, by role."""

GYM_A_COORDINATOR: Final[Mapping[Role, Table[FencePhase, FenceEvent]]] = {Role.POLICY: _coordinator()}
"""The recorded coordinator: policies only."""
