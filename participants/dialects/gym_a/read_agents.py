"""Prepare, status, acknowledgement and discard of an agent (wire-protocol 2.9, 2.10, 2.15, 2.16, 7.10)."""

from __future__ import annotations

from typing import cast

from pydantic import BaseModel

from quiesce.fsm.vocabulary import Outcome
from quiesce.participants.dialects.base import CallSpec, Reading
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.dialects.gym_a.unbelievable import Unbelievable, require_equal
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import (
    AcknowledgeReceipt,
    Blocker,
    CompletionReceipt,
    DiscardReceipt,
    DrainProgress,
)

__all__ = [
    "read_acknowledged",
    "read_acknowledged_one",
    "read_agent_prepare",
    "read_agent_progress",
    "read_discarded",
]

ENDED = frozenset({"completed", "retired"})


def read_agent_prepare(_spec: CallSpec, reply: BaseModel) -> Reading:
    """CLOSE and AWAIT_CUT of an agent: a 200 must be ready, by its word and by its counts."""
    prepare = cast("wire.AgentPrepareReply", reply)
    progress = _progress(prepare)
    if not prepare.ready_to_commit:
        raise Unbelievable("status 200 without ready_to_commit", payload=progress)
    if prepare.state != "preparing":
        raise Unbelievable("it is ready to commit, but its admission is open", payload=progress)
    open_work = progress.sentence()
    if open_work:
        raise Unbelievable(f"it says that it is ready to commit, but has {open_work}", payload=progress)
    return Reading(Outcome.PAUSED, progress)


def read_agent_progress(spec: CallSpec, reply: BaseModel) -> Reading:
    """Status of an agent. Even a ready one is only DRAINING here: its fence moves by a prepare alone."""
    status = cast("wire.AgentStatusReply", reply)
    require_equal("checkpoint_id", spec.checkpoint_id, status.checkpoint_id)
    return Reading(Outcome.DRAINING, _progress(status))


def _progress(prepare: wire.AgentPrepareReply) -> DrainProgress:
    _check_counts(prepare)
    completed = prepare.completed_unacknowledged_attempts
    return DrainProgress(
        state=prepare.state,
        running=prepare.running,
        parked=prepare.parked,
        blockers=tuple(_blocker(execution) for execution in prepare.blocking_attempts),
        executions=tuple(_blocker(execution) for execution in prepare.executions if execution.state not in ENDED),
        completions=tuple(_receipt(execution) for execution in completed if execution.completion_receipt),
        unreceipted=tuple(_attempt(execution) for execution in completed if not execution.completion_receipt),
        completed_unacknowledged=prepare.completed_unacknowledged,
        without_boundary=prepare.parked_without_boundary,
    )


def _check_counts(prepare: wire.AgentPrepareReply) -> None:
    require_equal("parked", prepare.parked_with_boundary + prepare.parked_without_boundary, prepare.parked)
    listed = len(prepare.completed_unacknowledged_attempts)
    if listed > prepare.completed_unacknowledged:
        raise Unbelievable(f"{listed} completed attempts are listed, but {prepare.completed_unacknowledged} counted")


def _attempt(execution: wire.ExecutionStatus) -> AttemptId:
    return AttemptId(execution.rollout_id, execution.attempt_index)


def _blocker(execution: wire.ExecutionStatus) -> Blocker:
    return Blocker(
        attempt=_attempt(execution),
        state=execution.state,
        boundary_index=execution.boundary_index,
        age_s=execution.age_seconds,
        without_boundary=execution.parked_boundary_state == "parked_without_boundary",
    )


def _receipt(execution: wire.ExecutionStatus) -> CompletionReceipt:
    receipt = cast("wire.LiveReceipt", execution.completion_receipt).neutral()
    require_equal("the attempt of a completion receipt", _attempt(execution), receipt.attempt)
    require_equal("the generation of a completion receipt", execution.generation, receipt.execution_generation)
    return receipt


def read_acknowledged(spec: CallSpec, reply: BaseModel) -> Reading:
    """ACKNOWLEDGE: the reply must echo exactly the receipts that were sent."""
    echoed = [receipt.neutral() for receipt in cast("wire.AcknowledgeCompletedReply", reply).acknowledged]
    missing = [receipt for receipt in spec.receipts if receipt not in echoed]
    foreign = [receipt for receipt in echoed if receipt not in spec.receipts]
    if missing or foreign or len(echoed) != len(spec.receipts):
        odd = (missing or foreign or echoed)[0]
        raise Unbelievable(
            f"{len(spec.receipts)} receipts were sent and {len(echoed)} are echoed; {len(missing)} are missing and "
            f"{len(foreign)} were not sent, the first is that of {str(odd.attempt)!a}"
        )
    return Reading(Outcome.ACKNOWLEDGED, AcknowledgeReceipt(spec.receipts))


def read_acknowledged_one(spec: CallSpec, _reply: BaseModel) -> Reading:
    """ACKNOWLEDGE by the older route, new or repeated: its model has checked that one of the two is true."""
    return Reading(Outcome.ACKNOWLEDGED, AcknowledgeReceipt(spec.receipts))


def read_discarded(spec: CallSpec, reply: BaseModel) -> Reading:
    """DISCARD of a restored continuation."""
    attempt = cast("AttemptId", spec.attempt)
    return Reading(Outcome.DISCARDED, DiscardReceipt(attempt, cast("wire.DiscardReply", reply).discarded))
