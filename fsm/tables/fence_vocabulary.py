"""The words of FENCE: variants, phases, events, guards, effects, and the branches that its rows are made of.

A participant's fence is one machine a server. Its *state* is the phase that stands on the wire (wire-protocol 4.1);
the ids, the recorded replies and the handlers that still run are the automaton's memory (``quiesce.fsm.fence``), which
the guards read as facts. An *event* is the arrival of a control call, the end of one that ran, or comes from within.

How a call is decided is a chain of questions, the same in every variant: is the id finished, does another id hold the
fence, is this a repetition, is it still running, does the phase allow it, is the deadline past. A chain of branches
becomes rows whose guards exclude each other, so that each row can be read, drawn and checked by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from quiesce.fsm.rows import AllOf, Guard, IsTrue, Row
from quiesce.fsm.vocabulary import DeadlineClass

__all__ = [
    "ANSWERS",
    "ARRIVALS",
    "EFFECTS",
    "ENDS",
    "GUARDS",
    "REFUSALS",
    "Branch",
    "FenceEvent",
    "FencePhase",
    "FenceRow",
    "FenceVariant",
    "decide",
    "refuse",
]


class FenceVariant(StrEnum):
    """Whose fence it is: our kit's, or a recorded server's with its deviations."""

    STRICT = "strict"
    GYM_A_SINGLE = "gym_a_single"
    GYM_A_COORDINATOR = "gym_a_coordinator"


class FencePhase(StrEnum):
    """The phases of a participant as they stand on the wire (wire-protocol 4.1)."""

    IDLE = "idle"
    PREPARING = "preparing"
    PREPARED = "prepared"
    COMMITTING = "committing"
    COMMITTED_PAUSED = "committed_paused"
    RESTORING = "restoring"
    RESTORED_PAUSED = "restored_paused"
    RESTORE_FAILED_PAUSED = "restore_failed_paused"


class FenceEvent(StrEnum):
    """What can happen to a fence. ``prepare`` is ``pause`` on a policy server."""

    # a control call arrives
    PREPARE = "prepare"
    STATUS = "status"
    ABORT_INFLIGHT = "abort_inflight"
    COMMIT = "commit"
    RESTORE = "restore"
    RESUME = "resume"
    RETIRE = "retire"
    DISCARD = "discard"

    # an operation that ran has ended
    PREPARE_READY = "prepare_ready"
    PREPARE_DRAINING = "prepare_draining"
    """Every worker acknowledged the closed state, but calls are still in flight (coordinator only)."""
    PREPARE_INCOMPLETE = "prepare_incomplete"
    """The wait ended and the agent is not ready to commit."""
    PREPARE_FAILED = "prepare_failed"
    COMMIT_DONE = "commit_done"
    COMMIT_FAILED = "commit_failed"
    RESTORE_DONE = "restore_done"
    RESTORE_FAILED = "restore_failed"
    RESUME_DONE = "resume_done"
    RESUME_FAILED = "resume_failed"

    # from within
    DRAINED = "drained"
    """The last call in flight has ended while admission is closed."""
    GRACE_PASSED = "grace_passed"
    """Nobody repeated an incomplete prepare until its deadline plus the grace."""


ARRIVALS: Final = tuple(FenceEvent)[: tuple(FenceEvent).index(FenceEvent.PREPARE_READY)]
ENDS: Final = tuple(FenceEvent)[len(ARRIVALS) : tuple(FenceEvent).index(FenceEvent.DRAINED)]

FenceRow = Row[FencePhase, FenceEvent]


def _guard(name: str, meaning: str, otherwise: str) -> Guard:
    return Guard(name, IsTrue(name), meaning, otherwise)


GUARDS: Final = (
    _guard("id_finished", "the id was used up by a resume", "the id is not used up"),
    _guard("other_active", "another id is active", "no other id is active"),
    _guard("body_differs", "the same operation came with another body", "the body is new or the same as before"),
    _guard("recorded", "the operation's reply is recorded", "no reply is recorded"),
    _guard("recorded_ready", "the recorded reply says that the cut is reached", "the recorded reply says draining"),
    Guard(
        "recorded_current",
        AllOf((IsTrue("recorded_ready"), IsTrue("id_active"))),
        "the recorded reply says that the cut is reached, and its id is the active one",
        "no reply is recorded that can mark the fence prepared",
    ),
    _guard("running", "the same operation still runs", "the same operation does not run"),
    _guard("id_active", "the id is the active one", "the id is not the active one"),
    _guard("idle_handlers", "no operation of the active id runs", "an operation of the active id runs"),
    _guard("entered_prepared", "the operation began in prepared", "the operation did not begin in prepared"),
    _guard("deadline_passed", "the call's deadline is past", "the call's deadline is ahead"),
    _guard("drained", "nothing is in flight", "calls are in flight"),
    _guard("owes_restore", "the process expects a restore that has not been", "the process owes no restore"),
    _guard("members_connected", "exactly the expected workers are connected", "too few or too many workers"),
)

REFUSALS: Final = {
    "refuse_stale_checkpoint": "stale_checkpoint",
    "refuse_conflict": "checkpoint_conflict",
    "refuse_invalid_phase": "invalid_phase",
    "refuse_deadline_exceeded": "deadline_exceeded",
    "refuse_not_a_policy": "not_a_policy_instance",
    "refuse_not_quiescent": "ledger_not_quiescent",
    "refuse_owes_restore": "resources_checkpoint_error",
    "refuse_missing_workers": "missing_workers",
}
"""Effect that refuses, to the ``error.code`` on the wire."""

ANSWERS: Final = (
    "start_operation",
    "answer_now",
    "answer_crash",
    "replay_reply",
    "join_running",
    "wait_for_running",
    "answer_outcome",
    *REFUSALS,
)
"""Effects that say how the call is answered; every row of an arrival or an end has exactly one, as its last effect.

``start_operation``: run it; its end answers. ``answer_now``: do it without waiting and answer. ``answer_crash``: a bare
500. ``wait_for_running``: deliver the call again when the running operation has ended. ``answer_outcome``: what the
operation itself came to, be it a reply or a refusal. All others speak for themselves.
"""

EFFECTS: Final = (
    "close_admission",
    "open_admission",
    "set_active",
    "clear_active",
    "finish_id",
    "record_reply",
    "record_draining_reply",
    "drop_handler",
    "end_waiting_prepare",
    "remember_phase",
    *ANSWERS,
)
"""Every effect of the fence, in the order in which a row lists them.

``finish_id`` uses the id up for good and forgets its records. ``drop_handler``: this handler runs no more.
``end_waiting_prepare``: a prepare of this id that still waits is to end now; its end finds the id finished.
``remember_phase``: the operation that starts keeps the phase, since its failure writes it back.
"""


@dataclass(frozen=True, slots=True)
class Branch:
    """One question of a chain and what follows when its answer is yes; ``guard`` None is the last resort.

    ``!name`` asks for no. ``target`` None leaves the phase as it is.
    """

    guard: str | None
    effects: tuple[str, ...]
    reason: str
    target: FencePhase | None = None
    ref: str = ""
    deadline: DeadlineClass = DeadlineClass.NONE

    def cites(self, ref: str) -> Branch:
        """The same branch with the recording, section or F number that it comes from."""
        return replace(self, ref=ref)


def refuse(guard: str | None, effect: str, reason: str, ref: str = "") -> Branch:
    """A branch that refuses and changes nothing."""
    return Branch(guard, (effect,), reason, ref=ref)


def decide(source: FencePhase, event: FenceEvent, branches: Iterable[Branch]) -> tuple[FenceRow, ...]:
    """Rows of one pair: each branch holds when its own guard does and no guard before it did."""
    rows: list[FenceRow] = []
    passed: tuple[str, ...] = ()
    for branch in branches:
        own = () if branch.guard is None else (branch.guard,)
        rows.append(
            Row(
                source=source,
                event=event,
                guards=(*passed, *own),
                target=branch.target or source,
                effects=branch.effects,
                reason=branch.reason,
                deadline=branch.deadline,
                refusal=branch.effects[:1] != () and branch.effects[0] in REFUSALS,
                source_ref=branch.ref,
            )
        )
        passed = (*passed, *(name[1:] if name.startswith("!") else f"!{name}" for name in own))
    return tuple(rows)
