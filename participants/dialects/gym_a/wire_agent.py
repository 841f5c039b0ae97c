"""Agent servers: checkpoint routes (wire-protocol 2.9 to 2.16)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt, StrictStr

from quiesce.participants.dialects.gym_a.wire_common import (
    ArtefactReference,
    AttemptRequest,
    Count,
    Digest,
    FiniteNumber,
    LiveModel,
    LiveReceipt,
)
from quiesce.participants.validation import Listed

__all__ = [
    "AgentCommitReply",
    "AgentPrepareReply",
    "AgentRestoreReply",
    "AgentResumeReply",
    "AgentRetireReply",
    "AgentStatusReply",
    "DiscardReply",
    "DiscardRequest",
    "ExecutionStatus",
    "RetireRequest",
    "SelectedBoundary",
]


class ExecutionStatus(LiveModel):
    """One execution. ``state`` stays text: later servers have more states."""

    rollout_id: Annotated[StrictStr, Field(min_length=1)]
    attempt_index: Count
    generation: Annotated[StrictInt, Field(ge=1)]
    state: StrictStr
    parked_boundary_state: StrictStr | None
    boundary_index: Count | None
    age_seconds: Annotated[FiniteNumber, Field(ge=0)]
    turn_index: Count | None = None
    boundary_kind: StrictStr | None = None
    resource_state_revisions: dict[str, StrictInt] | None = None
    completion_receipt: LiveReceipt | None = None


class SelectedBoundary(LiveModel):
    """Which boundary of an execution a commit would export."""

    rollout_id: Annotated[StrictStr, Field(min_length=1)]
    attempt_index: Count
    boundary_index: Count
    turn_index: Count | None = None
    boundary_kind: StrictStr | None = None
    resource_state_revisions: dict[str, StrictInt] | None = None


class AgentPrepareReply(LiveModel):
    """Reply to prepare; status 200 comes only with ``ready_to_commit``."""

    state: Literal["accepting", "preparing"]
    ready_to_commit: StrictBool
    running: Count
    parked: Count
    parked_with_boundary: Count
    parked_without_boundary: Count
    completed_unacknowledged: Count
    acknowledged_completed: Count | None = None
    active: Count
    blocking_attempts: Listed[ExecutionStatus]
    completed_unacknowledged_attempts: Listed[ExecutionStatus]
    executions: Listed[ExecutionStatus]
    selected_boundaries: Listed[SelectedBoundary] = ()


class AgentStatusReply(AgentPrepareReply):
    """Status: the prepare reply with the id that was asked for."""

    checkpoint_id: StrictStr


class AgentCommitReply(LiveModel):
    """What the agent exported."""

    records: Count
    manifest_digest: Digest
    continuation_index: ArtefactReference


class AgentRestoreReply(LiveModel):
    """What the agent restored, and from which save."""

    records: Count
    source_checkpoint_id: Annotated[StrictStr, Field(min_length=1)]
    continuation_index: ArtefactReference


class AgentResumeReply(LiveModel):
    """``released`` parked executions go on."""

    state: Literal["accepting"]
    released: Count


class RetireRequest(AttemptRequest):
    """Retire one attempt at an agent or a resource server."""


class AgentRetireReply(LiveModel):
    """What became of the attempt (2.14)."""

    retired: StrictBool
    tombstoned: StrictBool
    completed_unacknowledged: StrictBool = False


class DiscardRequest(AttemptRequest):
    """Drop a restored continuation; the attempt is the replacement."""


class DiscardReply(LiveModel):
    """Whether there was one to drop."""

    discarded: StrictBool
