"""Resource servers: checkpoint routes (wire-protocol 2.17 to 2.19)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr

from quiesce.participants.dialects.gym_a.wire_common import CheckpointId, Count, Digest, FiniteNumber, LiveModel
from quiesce.participants.validation import Listed

__all__ = [
    "InventoryEntry",
    "ResourcesCommitReply",
    "ResourcesPrepareReply",
    "ResourcesRestoreReply",
    "ResourcesResumeReply",
    "ResourcesRetireReply",
    "ResourcesStatusQuery",
    "ResourcesStatusReply",
    "SessionStatus",
]


class InventoryEntry(LiveModel):
    """One session that was taken; only later servers list them."""

    rollout_id: Annotated[StrictStr, Field(min_length=1)]
    attempt_index: Count
    revision: Count


class ResourcesPrepareReply(LiveModel):
    """The state of every session was taken."""

    sessions: Count
    state: Literal["prepared"]
    inventory: Listed[InventoryEntry] | None = None


class ResourcesStatusQuery(BaseModel):
    """The query of resource status. Values arrive as text; unknown parameters are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    checkpoint_id: CheckpointId
    deadline_ts: FiniteNumber


class SessionStatus(LiveModel):
    """One session."""

    rollout_id: Annotated[StrictStr, Field(min_length=1)]
    attempt_index: Count
    revision: Count
    locked: StrictBool


class ResourcesStatusReply(LiveModel):
    """Status (2.18). ``tombstones`` is a count here."""

    checkpoint_id: StrictStr
    state: Literal["accepting", "paused"]
    admission_state: Literal["accepting", "paused"]
    sessions: Count
    per_session: Listed[SessionStatus]
    lock_entries: Count
    locked_sessions: Count
    tombstones: Count


class ResourcesCommitReply(LiveModel):
    """What the resource server exported."""

    sessions: Count
    manifest_digest: Digest


class ResourcesRestoreReply(LiveModel):
    """What the resource server restored, and from which save."""

    sessions: Count
    source_checkpoint_id: Annotated[StrictStr, Field(min_length=1)]


class ResourcesResumeReply(LiveModel):
    """The server takes mutations again."""

    state: Literal["accepting"]


class ResourcesRetireReply(LiveModel):
    """The session is fenced, freed and left out of the export."""

    retired: Literal[True]
    rollout_id: Annotated[StrictStr, Field(min_length=1)]
    attempt_index: Count
