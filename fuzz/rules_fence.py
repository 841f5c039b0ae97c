"""The rules that the strict FENCE tables are made of. Every row of every strict table belongs to exactly one of them.

Where two rules match a row, the first one in this order has it.
"""

from __future__ import annotations

from typing import Final

from quiesce.fsm.tables.fence import ARRIVALS, ENDS, FenceEvent, FencePhase
from quiesce.fsm.vocabulary import Role
from quiesce.fuzz.rules import Need, Rule, gym_a, on

__all__ = ["FENCE_RULES"]

_E = FenceEvent
_P = FencePhase
_POLICY: Final = frozenset({Role.POLICY})
_AGENT: Final = frozenset({Role.AGENT})
_RESOURCES: Final = frozenset({Role.RESOURCES})
_WAITING: Final = _AGENT | _RESOURCES
_BUT_RESUME: Final = tuple(event for event in ARRIVALS if event is not _E.RESUME)
_BY_TRAFFIC: Final = frozenset({Need.TRAFFIC})
_BY_EXPORT: Final = frozenset({Need.DIRECTORY})
_BY_RESTORE: Final = frozenset({Need.RESTORE, Need.DIRECTORY})


FENCE_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "fence.auxiliary",
        "An auxiliary model refuses every call that would change its state, and serves on.",
        "1.1, 2.3",
        roles=frozenset({Role.AUXILIARY}),
        rows=(on(answer="refuse_not_a_policy"), on(_E.STATUS, answer="refuse_invalid_phase")),
    ),
    Rule(
        "fence.late-end",
        "An operation that ends after its id was used up answers stale_checkpoint and touches nobody's fence.",
        "4.2, F14, F15, F16",
        roles=_WAITING,
        known=gym_a("late-end-overwrites", "a late end overwrites the fence of whoever holds it by then (F14 to F16)"),
        needs=_BY_TRAFFIC,
        rows=(on(*ENDS, answer="refuse_stale_checkpoint"),),
    ),
    Rule(
        "fence.used-up-id",
        "A used-up id never acts again: everything but its resume is refused with stale_checkpoint.",
        "4.2 F1, F12",
        rows=(on(*_BUT_RESUME, *ENDS, answer="refuse_stale_checkpoint"),),
    ),
    Rule(
        "fence.repeated-resume",
        "A resume can be repeated for ever: the same reply comes again and nothing changes.",
        "4.2 F1, 9 #18",
        rows=(on(_E.RESUME, answer="replay_reply"),),
    ),
    Rule(
        "fence.other-id",
        "While an id holds the fence, calls of every other id are refused with checkpoint_conflict and change nothing.",
        "4.2 F4",
        rows=(on(answer="refuse_conflict", guard="other_active"),),
    ),
    Rule(
        "fence.other-body",
        "A repetition that asks for something else is a checkpoint_conflict, not the old reply.",
        "4.2 F2, 9 #20",
        known=gym_a("body-not-compared", "a repetition gets the first reply, whatever its body asks for (F2)"),
        needs=_BY_EXPORT,
        rows=(on(answer="refuse_conflict", guard="body_differs"),),
    ),
    Rule(
        "fence.replay",
        "A repetition of a call that succeeded gets the first reply again, word for word, and acts no second time.",
        "4.2 F2, 9 #19",
        rows=(on(*_BUT_RESUME, answer="replay_reply"),),
    ),
    Rule(
        "fence.joined",
        "A repetition of a call that still runs waits for its outcome and shares it.",
        "4.2 F3",
        rows=(on(answer="join_running"),),
    ),
    Rule(
        "fence.past-deadline",
        "A prepare, commit or restore that comes after its deadline is refused with deadline_exceeded, closes nothing.",
        "4.7, 9 #25",
        known=gym_a("deadline-ignored", "work begins although its deadline has passed"),
        rows=(on(answer="refuse_deadline_exceeded"),),
    ),
    Rule(
        "fence.commit-before-cut",
        "A commit is refused until the cut is complete: admission closed, nothing in flight.",
        "2.7, 4.3, F6",
        rows=(
            on(_E.COMMIT, answer="refuse_invalid_phase", sources=(_P.IDLE, _P.PREPARING)),
            on(_E.COMMIT, answer="refuse_not_quiescent"),
        ),
    ),
    Rule(
        "fence.wrong-phase",
        "A call that the present phase does not allow is refused with invalid_phase and changes nothing.",
        "4.2 F6, 4.3 to 4.6",
        rows=(on(answer="refuse_invalid_phase"),),
    ),
    Rule(
        "fence.owes-restore",
        "A process that owes a restore can neither be prepared nor opened before it is restored.",
        "4.6, 9 #11, F20",
        roles=_RESOURCES,
        known=gym_a("prepared-while-owing", "it can be prepared while it owes a restore, and not resumed (F20)"),
        needs=_BY_RESTORE,
        rows=(on(answer="refuse_owes_restore"),),
    ),
    Rule(
        "fence.resume-from-idle",
        "A resume from idle succeeds and uses its id up, so that a late prepare of it finds it finished.",
        "4.3, 9 #1, 9 #49",
        known=gym_a("resume-from-idle-refused", "a coordinator refuses a resume from idle (9 #1)"),
        rows=(on(_E.RESUME, answer="answer_now", sources=(_P.IDLE,)),),
    ),
    Rule(
        "fence.resume-ends-prepare",
        "A resume succeeds while a prepare waits, and ends it at once.",
        "4.5, 4.6, F13, 9 #24",
        roles=_WAITING,
        known=gym_a("prepare-outlives-resume", "a resume leaves the prepare running, or is refused then (F13)"),
        needs=_BY_TRAFFIC,
        rows=(on(_E.RESUME, answer="answer_now", effect="end_waiting_prepare"),),
    ),
    Rule(
        "fence.resume-waits",
        "A resume that comes while a commit or restore runs waits for its end and then succeeds.",
        "4.2 F5, F13, 9 #21",
        known=gym_a("resume-refused-while-writing", "a resume is refused while a commit or restore runs (F13)"),
        needs=_BY_EXPORT,
        rows=(on(_E.RESUME, answer="wait_for_running"),),
    ),
    Rule(
        "fence.resume-opens",
        "A resume of the id that holds the fence opens admission, uses the id up and makes the participant idle.",
        "2.5, 2.13, 2.19, 4.3 to 4.6",
        rows=(on(_E.RESUME, answer="answer_now"),),
    ),
    Rule(
        "fence.pause",
        "A pause closes admission at once, holds the id, and says draining or paused as it is.",
        "2.2, 4.3",
        roles=_POLICY,
        rows=(on(_E.PREPARE, answer="answer_now"),),
    ),
    Rule(
        "fence.prepare",
        "A prepare closes admission, waits for the cut, and then succeeds.",
        "2.9, 2.17, 4.5, 4.6",
        roles=_WAITING,
        rows=(on(_E.PREPARE, answer="start_operation"), on(_E.PREPARE_READY, answer="answer_outcome")),
    ),
    Rule(
        "fence.incomplete-prepare",
        "An incomplete prepare keeps its id and its closed admission, so that it can be polled.",
        "4.5, 9 #7, 9 #8",
        roles=_AGENT,
        known=gym_a("incomplete-prepare-forgotten", "an incomplete prepare frees the id and stays closed (9 #7)"),
        needs=_BY_TRAFFIC,
        rows=(
            on(_E.PREPARE_INCOMPLETE, answer="answer_outcome"),
            on(_E.PREPARE_FAILED, answer="answer_outcome"),
        ),
    ),
    Rule(
        "fence.failed-prepare",
        "What a failed prepare closed it reopens, and its id is free.",
        "4.6, 9 #10",
        roles=_RESOURCES,
        needs=_BY_TRAFFIC,
        rows=(on(_E.PREPARE_FAILED, answer="answer_outcome"),),
    ),
    Rule(
        "fence.drain",
        "The end of the drain completes the cut by itself; no status call is needed.",
        "4.3, 9 #6",
        roles=_POLICY,
        known=gym_a("drain-needs-status", "only a status call completes the cut (9 #6)"),
        needs=_BY_TRAFFIC,
        rows=(on(_E.DRAINED),),
    ),
    Rule(
        "fence.grace",
        "An incomplete prepare that nobody repeats is given up some time after its deadline: it reopens by itself.",
        "4.5, 9 #7",
        roles=_AGENT,
        needs=frozenset({Need.TRAFFIC, Need.GRACE}),
        rows=(on(_E.GRACE_PASSED),),
    ),
    Rule(
        "fence.commit",
        "A commit of a complete cut exports it; the participant stays closed.",
        "2.7, 2.11, 2.19",
        needs=_BY_EXPORT,
        rows=(on(_E.COMMIT, answer="start_operation"), on(_E.COMMIT_DONE, answer="answer_outcome")),
    ),
    Rule(
        "fence.failed-commit",
        "A failed commit leaves the cut as it was, so that it can be tried again.",
        "4.2 F9, 9 #15",
        needs=_BY_EXPORT,
        rows=(on(_E.COMMIT_FAILED, answer="answer_outcome"),),
    ),
    Rule(
        "fence.restore",
        "A restore closes admission, installs the save, and stays closed.",
        "2.8, 2.12, 2.19, 4.3 to 4.6",
        needs=_BY_RESTORE,
        rows=(on(_E.RESTORE, answer="start_operation"), on(_E.RESTORE_DONE, answer="answer_outcome")),
    ),
    Rule(
        "fence.failed-restore",
        "A failed restore leaves a policy closed with its id kept; other participants are open and idle again.",
        "4.3, 4.5, 4.6, 9 #13, F21",
        needs=_BY_RESTORE,
        rows=(on(_E.RESTORE_FAILED, answer="answer_outcome"),),
    ),
    Rule(
        "fence.abort-inflight",
        "An abort_inflight fences its attempt and cuts off its calls, and changes no phase.",
        "2.6",
        roles=_POLICY,
        rows=(on(_E.ABORT_INFLIGHT, answer="answer_now"),),
    ),
    Rule(
        "fence.status",
        "A status is answered in every phase that allows it, and changes nothing.",
        "2.3, 2.10, 2.18",
        rows=(on(_E.STATUS, answer="answer_now"),),
    ),
    Rule(
        "fence.retire",
        "A retire acts beside the fence: it fences its attempt and changes no phase.",
        "2.14, 2.19",
        roles=_WAITING,
        rows=(on(_E.RETIRE, answer="answer_now"),),
    ),
    Rule(
        "fence.discard",
        "A discard between restore and resume drops a restored continuation, and changes no phase.",
        "2.16",
        roles=_AGENT,
        needs=_BY_RESTORE,
        rows=(on(_E.DISCARD, answer="answer_now"),),
    ),
)
"""In the order in which they claim rows."""
