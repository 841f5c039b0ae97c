"""What the recorded servers' fences have in common, whichever role (see ``fence_gym_a``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from quiesce.fsm.tables.fence_calls import REPLAY, Habits
from quiesce.fsm.tables.fence_vocabulary import Branch, FenceEvent, FencePhase, FenceRow, decide, refuse
from quiesce.fsm.vocabulary import DeadlineClass

__all__ = [
    "ANSWER",
    "HABITS",
    "PREPARED_IS_BEHIND",
    "REPEATED_RESUME",
    "UNCHECKED",
    "UP_TO_PREPARED",
    "become_ready",
    "ends_everywhere",
    "marking_replay",
    "polled_status",
    "starts",
]

_P = FencePhase
HABITS: Final = Habits(compares_bodies=False, checks_deadlines=False)
UNCHECKED: Final = "expired_deadline.jsonl"
UP_TO_PREPARED: Final = (_P.IDLE, _P.PREPARING, _P.PREPARED)

ANSWER: Final = (Branch(None, ("answer_now",), "reads, or acts beside the fence"),)
REPEATED_RESUME: Final = Branch("id_finished", ("replay_reply",), "a lost resume can be repeated for ever", ref="F1")
PREPARED_IS_BEHIND: Final = refuse(
    "recorded_ready",
    "refuse_invalid_phase",
    "it cannot mark the fence prepared from here",
    "replay_same_id.jsonl: prepare_replayed",
)


def starts(*effects: str, target: FencePhase, reason: str, ref: str = UNCHECKED) -> Branch:
    """Hold the fence for the id and run the operation, whatever its deadline says."""
    deadline = DeadlineClass.REACH if target is _P.PREPARING else DeadlineClass.HOLD
    return Branch(None, (*effects, "set_active", "start_operation"), reason, target, ref, deadline)


def ends_everywhere(
    phases: Collection[FencePhase], branches: Mapping[FenceEvent, tuple[Branch, ...]]
) -> tuple[FenceRow, ...]:
    """The same end in every phase: it writes its own phase back."""
    return tuple(row for phase in phases for event, chain in branches.items() for row in decide(phase, event, chain))


def marking_replay(phase: FencePhase) -> tuple[Branch, ...]:
    """A repeated prepare marks the fence prepared again: this repairs F14, and fails where that is not possible."""
    if phase not in {_P.PREPARING, _P.PREPARED}:
        return (PREPARED_IS_BEHIND, REPLAY)
    again = Branch("recorded_current", ("replay_reply",), "replayed, and marked prepared again", _P.PREPARED, "F14")
    orphan = refuse("recorded_ready", "refuse_invalid_phase", "its id holds the fence no more", "F15")
    return (again, orphan, REPLAY)


def become_ready() -> tuple[Branch, ...]:
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


def polled_status() -> tuple[Branch, ...]:
    """A status while preparing: where nothing is in flight, it is what completes the cut."""
    ref = "commit_before_prepare.jsonl"
    polled = Branch("drained", ("answer_now",), "only a status call completes the cut", _P.PREPARED)
    return (polled.cites(ref), ANSWER[0].cites(ref))
