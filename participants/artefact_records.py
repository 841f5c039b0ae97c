"""The contents of a participant's artefacts: records, index rows and manifests (wire-protocol 6.2 to 6.5).

Fields stand in the order in which they are written. Types are exact; a larger schema number is refused. Fields that a
later server adds are ignored when we verify, since the digest covers them.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, StrictStr, model_validator

from quiesce.participants.identity import IDENTITY_PATTERN, AttemptId
from quiesce.participants.replies import ArtefactReference

__all__ = [
    "AgentManifest",
    "AttemptEntry",
    "BoundaryRecord",
    "ContinuationRow",
    "LineageEntry",
    "ModelManifest",
    "ReferenceEntry",
    "ResourcesManifest",
    "SessionRecord",
    "StorageRow",
]

Count = Annotated[StrictInt, Field(ge=0)]
Name = Annotated[StrictStr, Field(min_length=1, pattern=IDENTITY_PATTERN)]
Text = Annotated[StrictStr, Field(min_length=1)]
Digest = Annotated[StrictStr, Field(pattern=r"^[0-9a-fA-F]{64}$"), AfterValidator(str.lower)]
Instant = Annotated[float, Field(allow_inf_nan=False)]
One = Annotated[StrictInt, Field(ge=1, le=1)]
AtMostTwo = Annotated[StrictInt, Field(ge=1, le=2)]


class Saved(BaseModel):
    """What all of them share."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class AttemptEntry(Saved):
    """One attempt in a list of a manifest."""

    attempt_index: Count
    rollout_id: Name

    @property
    def attempt(self) -> AttemptId:
        return AttemptId(self.rollout_id, self.attempt_index)


class ReferenceEntry(Saved):
    """A reference to an index, inside a manifest."""

    bytes: Count
    records: Count
    relative_path: Text
    schema_version: One = 1
    sha256: Digest

    def neutral(self) -> ArtefactReference:
        return ArtefactReference(self.relative_path, self.sha256, self.records, self.bytes)


class BoundaryRecord(Saved):
    """Where one execution of an agent goes on. ``pending_model`` is there exactly when the kind says so."""

    schema_version: AtMostTwo = 2
    rollout_id: Name
    attempt_index: Count
    boundary_index: Count
    turn_index: Count | None = None
    boundary_kind: Literal["turn_complete", "pending_model"] = "turn_complete"
    pending_model: dict[str, object] | None = None
    output_items: list[object] = Field(default_factory=list)
    usage: object = None
    last_committed_model_call_id: Text | None = None
    resource_state_revisions: dict[str, StrictInt] = Field(default_factory=dict)
    agent_state: dict[str, object] = Field(default_factory=dict)
    created_at: Instant

    @property
    def attempt(self) -> AttemptId:
        return AttemptId(self.rollout_id, self.attempt_index)

    @property
    def turn(self) -> int:
        """The turn; a record that names none is at the turn of its boundary."""
        return self.boundary_index if self.turn_index is None else self.turn_index

    @model_validator(mode="after")
    def _pending_model_as_the_kind_says(self) -> Self:
        if (self.boundary_kind == "pending_model") != (self.pending_model is not None):
            raise ValueError("'pending_model' must be there exactly when 'boundary_kind' is 'pending_model'")
        return self


class ContinuationRow(Saved):
    """One root from which a rollout goes on: the last model call that its boundary has committed.

    ``resource_state_revisions`` is of later servers; None is left out when the row is written.
    """

    schema_version: One = 1
    rollout_id: Name
    attempt_index: Count
    capture_key: Name
    last_committed_model_call_id: Text
    resource_state_revisions: dict[str, StrictInt] | None = None

    @property
    def attempt(self) -> AttemptId:
        return AttemptId(self.rollout_id, self.attempt_index)


class AgentManifest(Saved):
    """``files`` maps a file name to its digest."""

    checkpoint_id: Name
    continuation_index: ReferenceEntry
    files: dict[str, Digest]
    instance_name: Text | None
    schema_version: One


class StorageRow(Saved):
    """One row of token storage that the trainer must keep. Only ``key`` means anything to us."""

    schema_version: One = 1
    capture_key: Name
    boundary_model_call_id: Text
    kind: Text
    key: Text


class LineageEntry(Saved):
    """The exported lineage of one capture key: files with digests, rows and bytes over all of them."""

    bytes: Count
    files: dict[str, Digest]
    rows: Count


class ModelManifest(Saved):
    """``rollouts`` maps a capture key to its lineage."""

    checkpoint_id: Name
    continuation_roots: Count
    continuation_roots_sha256: Digest
    excluded_inactive: Count = 0
    rollouts: dict[str, LineageEntry]
    schema_version: AtMostTwo
    server_name: Text | None
    source_attempts: list[AttemptEntry] = Field(default_factory=list)
    storage_reference_index: ReferenceEntry
    tombstones: list[AttemptEntry] = Field(default_factory=list)


class SessionRecord(Saved):
    """The state of one session of a resource server, as it was taken in prepare."""

    schema_version: One = 1
    rollout_id: Name
    attempt_index: Count
    state_revision: Count
    state: dict[str, object]
    created_at: Instant

    @property
    def attempt(self) -> AttemptId:
        return AttemptId(self.rollout_id, self.attempt_index)


class ResourcesManifest(Saved):
    """``files`` maps a file name to its digest."""

    checkpoint_id: Name
    files: dict[str, Digest]
    schema_version: One
    server_name: Text
