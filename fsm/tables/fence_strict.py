"""FENCE, variant ``strict``: the fence of our own kit. Wire-compatible with generation A, without its traps.

What it does otherwise than the recorded servers:

- Resume works from idle in every role and uses the id up, so that a late prepare of it finds it finished.
- Resume ends a prepare that waits (it then answers ``stale_checkpoint``) and waits for a commit or restore that runs.
- A failed prepare or restore reopens what it closed. Only an incomplete agent prepare keeps its id and its closed
  admission, since it is polled; nobody polling until its deadline plus a grace reopens it and uses the id up.
- The drain itself moves the fence to prepared; no status call is needed.
- A repetition that asks for something else is a conflict, not the old reply. No work begins after its deadline.
- An operation that ends late never touches another id's fence.
- A process that owes a restore cannot be prepared, since it could not be resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quiesce.fsm.rows import Table
from quiesce.fsm.tables.fence_calls import CONFLICT, REPLAY, Habits, build_table, call_rows, unfenced_rows
from quiesce.fsm.tables.fence_vocabulary import (
    Branch,
    FenceEvent,
    FencePhase,
    FenceRow,
    decide,
    refuse,
)
from quiesce.fsm.vocabulary import DeadlineClass, Role

__all__ = ["STRICT", "auxiliary"]

_E = FenceEvent
_P = FencePhase
_HABITS: Final = Habits(compares_bodies=True, checks_deadlines=True)

_ALL: Final = tuple(FencePhase)
_WITHOUT_FAILED_RESTORE: Final = tuple(phase for phase in FencePhase if phase is not _P.RESTORE_FAILED_PAUSED)
_NOT_IDLE: Final = tuple(phase for phase in FencePhase if phase is not _P.IDLE)
_AFTER_PREPARE: Final = frozenset({_P.PREPARED, _P.COMMITTING, _P.COMMITTED_PAUSED})

_ANSWER: Final = (Branch(None, ("answer_now",), "reads, or acts beside the fence"),)
_LATE: Final = Branch(
    None, ("drop_handler", "refuse_stale_checkpoint"), "a late end touches nobody's fence; its id is used up", ref="F14"
)
_REOPEN: Final = ("open_admission", "finish_id", "clear_active", "answer_now")


def _start(*effects: str, target: FencePhase, reason: str, deadline: DeadlineClass) -> Branch:
    return Branch(None, (*effects, "start_operation"), reason, target, ref="F7", deadline=deadline)


# resume: the same in every role ------------------------------------------------------------------------------------


def _resume_rows(role: Role, phases: tuple[FencePhase, ...]) -> tuple[FenceRow, ...]:
    rows: list[FenceRow] = []
    for phase in phases:
        rows += decide(phase, _E.RESUME, (_REPEATED_RESUME, CONFLICT, *_resume(role, phase)))
    return tuple(rows)


_REPEATED_RESUME: Final = Branch("id_finished", ("replay_reply",), "a lost resume can be repeated for ever", ref="F1")


def _resume(role: Role, phase: FencePhase) -> tuple[Branch, ...]:
    if phase in {_P.COMMITTING, _P.RESTORING}:
        return (Branch(None, ("wait_for_running",), "what is being written is finished first", ref="F5"),)
    if phase is _P.PREPARING:
        effects = ("end_waiting_prepare", *_REOPEN)
        return (Branch(None, effects, "a resume ends the prepare that waits", _P.IDLE, ref="9 #24"),)
    if phase is not _P.IDLE:
        return (Branch(None, _REOPEN, "everybody accepts work again", _P.IDLE),)
    from_idle = Branch(None, _REOPEN, "a resume from idle succeeds and fences a late prepare", ref="9 #1, 9 #49")
    if role is Role.RESOURCES:
        return (refuse("owes_restore", "refuse_owes_restore", "only a restore may open it", "F20"), from_idle)
    return (from_idle,)


# commit and restore ------------------------------------------------------------------------------------------------


def _commit_rows(role: Role, phases: tuple[FencePhase, ...]) -> tuple[FenceRow, ...]:
    start = _start(target=_P.COMMITTING, reason="the cut is reached: export it", deadline=DeadlineClass.HOLD)
    only_drained: tuple[Branch, ...] = (start,)
    if role is Role.POLICY:
        only_drained = (
            refuse("!drained", "refuse_not_quiescent", "a call in flight would be missing in the export", "2.7"),
            start,
        )
    arrivals = call_rows(
        _HABITS,
        _E.COMMIT,
        phases,
        allowed={_P.PREPARED: only_drained},
        recorded={_P.COMMITTED_PAUSED},
        running={_P.COMMITTING},
    )
    done = Branch(
        "id_active", ("drop_handler", "record_reply", "answer_outcome"), "exported, still closed", _P.COMMITTED_PAUSED
    )
    failed = Branch("id_active", ("drop_handler", "answer_outcome"), "it may be tried again", _P.PREPARED, ref="F9")
    return (
        *arrivals,
        *decide(_P.COMMITTING, _E.COMMIT_DONE, (done, _LATE)),
        *decide(_P.COMMITTING, _E.COMMIT_FAILED, (failed, _LATE)),
    )


def _restore_rows(role: Role, phases: tuple[FencePhase, ...]) -> tuple[FenceRow, ...]:
    start = _start(
        "close_admission",
        "set_active",
        target=_P.RESTORING,
        reason="nothing is admitted while state is installed",
        deadline=DeadlineClass.HOLD,
    )
    again = {_P.RESTORE_FAILED_PAUSED: (start,)} if role is Role.POLICY else {}
    arrivals = call_rows(
        _HABITS,
        _E.RESTORE,
        phases,
        allowed={_P.IDLE: (start,), **again},
        recorded={_P.RESTORED_PAUSED},
        running={_P.RESTORING},
    )
    done = Branch(
        "id_active", ("drop_handler", "record_reply", "answer_outcome"), "installed, still closed", _P.RESTORED_PAUSED
    )
    return (
        *arrivals,
        *decide(_P.RESTORING, _E.RESTORE_DONE, (done, _LATE)),
        *decide(_P.RESTORING, _E.RESTORE_FAILED, _restore_failed(role)),
    )


def _restore_failed(role: Role) -> tuple[Branch, ...]:
    drop, answer = "drop_handler", "answer_outcome"
    if role is Role.POLICY:
        held = "the policy stays closed and keeps its id, so that no restored work proceeds"
        return (Branch("id_active", (drop, answer), held, _P.RESTORE_FAILED_PAUSED, ref="9 #13"), _LATE)
    reopened = Branch(
        "id_active", ("open_admission", "clear_active", drop, answer), "nothing was installed", _P.IDLE, ref="F21"
    )
    if role is Role.AGENT:
        return (reopened, _LATE)
    still_owing = Branch(
        "owes_restore", ("clear_active", drop, answer), "still closed: it owes a restore", _P.IDLE, ref="9 #11"
    )
    return (_LATE_FIRST, still_owing, Branch(None, reopened.effects, reopened.reason, _P.IDLE, ref="F21"))


_LATE_FIRST: Final = Branch("!id_active", _LATE.effects, _LATE.reason, ref=_LATE.ref)


# prepare -----------------------------------------------------------------------------------------------------------


def _prepare_replay(role: Role) -> Mapping[FencePhase, tuple[Branch, ...]]:
    """A prepare that is repeated after the commit began is refused, except by resource servers (as recorded)."""
    if role is Role.RESOURCES:
        return dict.fromkeys(_ALL, (REPLAY,))
    too_late = refuse(
        "recorded_ready", "refuse_invalid_phase", "prepared is behind it", "replay_same_id.jsonl: prepare_replayed"
    )
    return {phase: (too_late, REPLAY) if phase in _COMMIT_BEGAN else (REPLAY,) for phase in _ALL}


_COMMIT_BEGAN: Final = frozenset({_P.COMMITTING, _P.COMMITTED_PAUSED})


def _pause_rows() -> tuple[FenceRow, ...]:
    """The policy's prepare closes and answers at once; the drain goes on by itself."""
    close = ("close_admission", "set_active")
    drained = Branch("drained", (*close, "record_reply", "answer_now"), "closed, nothing in flight", _P.PREPARED)
    draining = Branch(
        None,
        (*close, "record_draining_reply", "answer_now"),
        "closed, calls in flight",
        _P.PREPARING,
        deadline=DeadlineClass.REACH,
    )
    moved = Branch(None, (), "the drain itself completes the cut", _P.PREPARED, ref="9 #6")
    return (
        *call_rows(
            _HABITS,
            _E.PREPARE,
            _ALL,
            allowed={_P.IDLE: (drained, draining)},
            recorded=_AFTER_PREPARE | {_P.PREPARING},
            replay=_prepare_replay(Role.POLICY).__getitem__,
        ),
        *decide(_P.PREPARING, _E.DRAINED, (moved,)),
    )


def _waiting_prepare_rows(role: Role) -> tuple[FenceRow, ...]:
    """An agent's or resource server's prepare runs until it is ready, fails, or is ended by a resume."""
    start = _start(
        "close_admission",
        "set_active",
        target=_P.PREPARING,
        reason="closed; wait for the cut",
        deadline=DeadlineClass.REACH,
    )
    owing = refuse("owes_restore", "refuse_owes_restore", "it could not be resumed", "F20")
    allowed = {_P.IDLE: (owing, start) if role is Role.RESOURCES else (start,)}
    if role is Role.AGENT:
        allowed[_P.PREPARING] = (start,)
    arrivals = call_rows(
        _HABITS,
        _E.PREPARE,
        _WITHOUT_FAILED_RESTORE,
        allowed=allowed,
        recorded=_AFTER_PREPARE,
        running={_P.PREPARING},
        replay=_prepare_replay(role).__getitem__,
    )
    rows = [*arrivals, *_prepare_end_rows(role)]
    if role is Role.AGENT:
        expired = Branch(
            "idle_handlers", ("open_admission", "finish_id", "clear_active"), "nobody polls any more", _P.IDLE, "9 #7"
        )
        rows += decide(_P.PREPARING, _E.GRACE_PASSED, (expired, Branch(None, (), "it is being polled again")))
    return tuple(rows)


def _prepare_end_rows(role: Role) -> tuple[FenceRow, ...]:
    ready = Branch("id_active", ("drop_handler", "record_reply", "answer_outcome"), "the cut is reached", _P.PREPARED)
    incomplete = Branch("id_active", ("drop_handler", "answer_outcome"), "polled: id and closure stay", ref="9 #7, #8")
    failed = Branch(
        "id_active",
        ("open_admission", "clear_active", "drop_handler", "answer_outcome"),
        "what a failed prepare closed, it reopens",
        _P.IDLE,
        ref="9 #10",
    )
    ends = {_E.PREPARE_READY: ready, _E.PREPARE_FAILED: failed}
    if role is Role.AGENT:
        ends[_E.PREPARE_INCOMPLETE] = incomplete
    rows: list[FenceRow] = []
    for phase in _WITHOUT_FAILED_RESTORE:
        for event, own in ends.items():
            rows += decide(phase, event, (own, _LATE) if phase is _P.PREPARING else (_LATE_FIRST,))
    return tuple(rows)


# the tables --------------------------------------------------------------------------------------------------------


def _policy() -> Table[FencePhase, FenceEvent]:
    abort = (
        Branch(None, ("record_reply", "answer_now"), "the attempt is fenced and its calls are cut off", ref="2.6"),
    )
    rows = (
        *_pause_rows(),
        *unfenced_rows(_E.STATUS, _ALL, dict.fromkeys(_NOT_IDLE, _ANSWER)),
        *call_rows(
            _HABITS,
            _E.ABORT_INFLIGHT,
            _ALL,
            allowed={_P.PREPARING: abort, _P.PREPARED: abort},
            recorded=_AFTER_PREPARE | {_P.PREPARING},
        ),
        *_commit_rows(Role.POLICY, _ALL),
        *_restore_rows(Role.POLICY, _ALL),
        *_resume_rows(Role.POLICY, _ALL),
    )
    return build_table("FENCE strict policy", "The kit's policy server", rows)


def _agent() -> Table[FencePhase, FenceEvent]:
    phases = _WITHOUT_FAILED_RESTORE
    rows = (
        *_waiting_prepare_rows(Role.AGENT),
        *unfenced_rows(_E.STATUS, phases, dict.fromkeys(phases, _ANSWER)),
        *_commit_rows(Role.AGENT, phases),
        *_restore_rows(Role.AGENT, phases),
        *_resume_rows(Role.AGENT, phases),
        *unfenced_rows(_E.RETIRE, phases, dict.fromkeys((_P.IDLE, _P.PREPARING, _P.PREPARED), _ANSWER)),
        *unfenced_rows(_E.DISCARD, phases, {_P.RESTORED_PAUSED: _ANSWER}),
    )
    return build_table("FENCE strict agent", "The kit's agent server", rows)


def _resources() -> Table[FencePhase, FenceEvent]:
    phases = _WITHOUT_FAILED_RESTORE
    rows = (
        *_waiting_prepare_rows(Role.RESOURCES),
        *unfenced_rows(_E.STATUS, phases, dict.fromkeys(_NOT_IDLE, _ANSWER)),
        *_commit_rows(Role.RESOURCES, phases),
        *_restore_rows(Role.RESOURCES, phases),
        *_resume_rows(Role.RESOURCES, phases),
        *unfenced_rows(_E.RETIRE, phases, dict.fromkeys((_P.PREPARING, _P.PREPARED), _ANSWER)),
    )
    return build_table("FENCE strict resources", "The kit's resource server", rows)


def auxiliary(variant: str) -> Table[FencePhase, FenceEvent]:
    """An auxiliary model (judge, reward model) takes no part: it keeps serving, and refuses (1.1, 2.3)."""
    refused = refuse(None, "refuse_not_a_policy", "only policies are paused", "capabilities_auxiliary.jsonl")
    state_changing = (_E.PREPARE, _E.ABORT_INFLIGHT, _E.COMMIT, _E.RESTORE, _E.RESUME)
    idle = refuse(None, "refuse_invalid_phase", "it is always idle", "capabilities_auxiliary.jsonl: status")
    rows = [row for event in state_changing for row in decide(_P.IDLE, event, (refused,))]
    rows += decide(_P.IDLE, _E.STATUS, (idle,))
    return build_table(f"FENCE {variant} auxiliary", "An auxiliary model", tuple(rows), final=frozenset({_P.IDLE}))


STRICT: Final[Mapping[Role, Table[FencePhase, FenceEvent]]] = {
    Role.POLICY: _policy(),
    Role.AUXILIARY: auxiliary("strict"),
    Role.AGENT: _agent(),
    Role.RESOURCES: _resources(),
}
"""The kit's fence for each role."""
