"""Model servers: admission and checkpoint routes (wire-protocol 2.2 to 2.8).

``generation_cut_*`` fields of later servers are not modelled: they are ignored in replies, and never sent.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from quiesce.participants.capabilities import AdmissionState
from quiesce.participants.dialects.gym_a.wire_common import (
    ArtefactReference,
    Attempt,
    AttemptRequest,
    CheckpointId,
    CommitRequest,
    Count,
    Digest,
    FiniteNumber,
    LiveModel,
    RestoreRequest,
    WorkerCounts,
)
from quiesce.participants.validation import Listed

__all__ = [
    "AbortInflightReply",
    "AbortInflightRequest",
    "CoordinatedWorker",
    "CoordinatorStatus",
    "CoordinatorStatusQuery",
    "CoordinatorWorkers",
    "InflightEntry",
    "ModelCommitReply",
    "ModelCommitRequest",
    "ModelRestoreReply",
    "ModelRestoreRequest",
    "PauseReply",
    "ResumeReply",
    "SingleWorker",
    "SingleWorkerStatus",
    "StatusQuery",
]


class PauseReply(LiveModel):
    """Reply to pause. Absent ``workers`` count as no acknowledgement where there are several."""

    state: AdmissionState
    workers: WorkerCounts | None = None
    inflight_total: Count
    waiters_total: Count = 0
    response_inflight_total: Count | None = None
    generation_pending_total: Count | None = None


class StatusQuery(BaseModel):
    """The query of model status. Values arrive as text; unknown parameters are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    checkpoint_id: CheckpointId
    deadline_ts: FiniteNumber
    wait_state: Literal["paused"] | None = None
    timeout_s: Annotated[FiniteNumber, Field(ge=0)] = 0.0


class CoordinatorStatusQuery(BaseModel):
    """The same at a coordinator, which asks less: any other ``wait_state`` means no wait, the deadline is not read."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    checkpoint_id: CheckpointId
    wait_state: str | None = None
    timeout_s: FiniteNumber = 0.0


class SingleWorker(LiveModel):
    """One entry of ``per_worker`` of a single-worker server."""

    state: AdmissionState
    inflight: Count


class InflightEntry(LiveModel):
    """One call that is being served; what its caller did not send is null."""

    rollout_id: StrictStr | None = None
    attempt_index: Count | None = None
    plane: StrictStr | None = None
    age_seconds: Annotated[FiniteNumber, Field(ge=0)]


class SingleWorkerStatus(LiveModel):
    """Status of a single-worker server (2.3)."""

    checkpoint_id: StrictStr
    state: AdmissionState
    per_worker: dict[str, SingleWorker]
    inflight_total: Count
    waiters_total: Count = 0
    inflight: Listed[InflightEntry]
    tombstones: Listed[Attempt] = ()
    response_inflight_total: Count | None = None
    generation_pending_total: Count | None = None


class CoordinatorWorkers(WorkerCounts):
    """Worker counts of a coordinator. ``live`` of them are connected."""

    expected: Annotated[StrictInt, Field(ge=1)]
    live: Count


class CoordinatedWorker(LiveModel):
    """One entry of ``per_worker`` of a coordinator."""

    acked_seq: Count
    inflight: Count
    connected: StrictBool
    generation_pending: Count | None = None
    proof_error: StrictStr | None = None


class CoordinatorStatus(LiveModel):
    """Status of a coordinator (2.4): no ``checkpoint_id``, no list of calls.

    ``workers`` and ``missing_workers`` are required: a coordinator that cannot count cannot be believed.
    """

    state: AdmissionState
    workers: CoordinatorWorkers | None = None
    missing_workers: Count
    inflight_total: Count
    waiters_total: Count = 0
    per_worker: dict[str, CoordinatedWorker]
    response_inflight_total: Count | None = None
    generation_pending_total: Count | None = None


class ResumeReply(LiveModel):
    """Reply to resume: the id is finished."""

    state: AdmissionState
    workers: WorkerCounts | None = None
    released_waiters: Count = 0


class AbortInflightRequest(AttemptRequest):
    """Cancel and fence the calls of one attempt."""


class AbortInflightReply(LiveModel):
    """``aborted_inflight`` is absent in coordinator mode."""

    state: AdmissionState
    aborted_inflight: Count | None = None
    inflight_total: Count


class ModelCommitRequest(CommitRequest):
    """Commit of a policy: the agents' continuation indexes name what is exported."""

    continuation_indexes: Listed[ArtefactReference]


class ModelCommitReply(LiveModel):
    """What the policy exported (2.7)."""

    rollouts: Count
    rows: Count
    excluded_tombstoned: Count
    excluded_inactive: Count = 0
    manifest_digest: Digest
    storage_reference_index: ArtefactReference


class ModelRestoreRequest(RestoreRequest):
    """Restore of a policy."""


class ModelRestoreReply(LiveModel):
    """What the policy restored (2.8). ``checkpoint_id`` is that of the save that was loaded."""

    rollouts: Count
    rows: Count
    checkpoint_id: StrictStr | None
    tombstones: Listed[Attempt] = ()
    source_attempts: Listed[Attempt] = ()
    storage_reference_index: ArtefactReference
