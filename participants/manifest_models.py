"""The fields of a snapshot's ``MANIFEST.json``. Unknown fields are forbidden, types are exact (design 5).

Whatever belongs to a deployment carries its name, so that a snapshot may hold several. Paths of ``files`` and
``trainer`` are relative to the snapshot's folder; ``manifest_path`` and ``index`` to the deployment's folder in it.
"""

from __future__ import annotations

import json
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StrictInt, StrictStr, model_validator

from quiesce.fsm.vocabulary import Role
from quiesce.participants.capabilities import (
    AdmissionState,
    CheckpointMode,
    Component,
    ConcurrencyContract,
    Contract,
    Declaration,
    InstanceRole,
    WorkerMode,
)
from quiesce.participants.errors import InvalidIdentity
from quiesce.participants.identity import AttemptId, check_identity, check_label
from quiesce.participants.layout import unsafe_path_reason
from quiesce.participants.replies import ArtefactReference, ExportReceipt
from quiesce.participants.topology import Topology
from quiesce.participants.validation import Listed

__all__ = [
    "KIND",
    "METADATA_BYTES_MAX",
    "SCHEMA_VERSION",
    "ContractEntry",
    "DeploymentEntry",
    "FileEntry",
    "IndexEntry",
    "ParticipantEntry",
    "RestartingEntry",
    "RolloutEntry",
    "SnapshotManifest",
    "TopologyEntry",
    "TrainerFileEntry",
]

SCHEMA_VERSION: Final = 1
KIND: Final = "quiesce.snapshot"
METADATA_BYTES_MAX: Final = 64 * 1024


def _wire_id(value: str) -> str:
    return check_identity(value, field="checkpoint_id")


def _deployment(value: str) -> str:
    return check_identity(value, field="deployment")


def _safe_path(value: str) -> str:
    unsafe = unsafe_path_reason(value)
    if unsafe is not None:
        raise InvalidIdentity("path", unsafe)
    return value


def _bounded(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:  # half a surrogate pair could not be read back
        raise ValueError("metadata holds half a character") from None
    except RecursionError:
        raise ValueError("metadata is nested too deeply") from None
    if len(text) > METADATA_BYTES_MAX:
        raise ValueError(f"metadata has {len(text)} bytes as JSON; at most {METADATA_BYTES_MAX} are kept")
    return value


Count = Annotated[StrictInt, Field(ge=0)]
Digest = Annotated[StrictStr, Field(pattern=r"^[0-9a-f]{64}$")]
Text = Annotated[StrictStr, Field(min_length=1, max_length=4096)]
WireId = Annotated[StrictStr, AfterValidator(_wire_id)]
DeploymentName = Annotated[StrictStr, AfterValidator(_deployment)]
SafePath = Annotated[StrictStr, Field(max_length=4096), AfterValidator(_safe_path)]
Instant = Annotated[float, Field(allow_inf_nan=False, description="Unix seconds")]
One = Annotated[StrictInt, Field(ge=1, le=1)]
Metadata = Annotated[dict[str, JsonValue], AfterValidator(_bounded)]


class Kept(BaseModel):
    """What all parts share: nothing unknown, nothing coerced, nothing changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NamedServer(Kept):
    """Routing name, kind and own name of a participant."""

    server_name: Text
    component: Component
    participant_name: Text


class WorkersEntry(Kept):
    """Who answers, for how many workers."""

    mode: WorkerMode
    num_workers: Annotated[StrictInt, Field(ge=1)]


class ContractEntry(Kept):
    """One contract, as in the topology object of wire-protocol 7.3."""

    participant: NamedServer
    schema_version: One
    admission_states: Listed[AdmissionState]
    checkpoint_mode: CheckpointMode
    concurrency_contract: ConcurrencyContract
    multi_process: WorkersEntry
    instance_role: InstanceRole | None
    features: Listed[StrictStr]

    def contract(self) -> Contract:
        """The contract that was in force at the cut."""
        declaration = Declaration(
            component=self.participant.component,
            participant_name=self.participant.participant_name,
            schema_version=self.schema_version,
            admission_states=tuple(sorted(self.admission_states)),
            checkpoint_mode=self.checkpoint_mode,
            concurrency_contract=self.concurrency_contract,
            worker_mode=self.multi_process.mode,
            num_workers=self.multi_process.num_workers,
            instance_role=self.instance_role,
            features=tuple(sorted(self.features)),
        )
        return Contract(self.participant.server_name, declaration)


class TopologyEntry(Kept):
    """The topology object of wire-protocol 7.3."""

    schema_version: One
    participants: Listed[ContractEntry]

    def topology(self) -> Topology:
        """The topology that was in force at the cut."""
        return Topology.of(entry.contract() for entry in self.participants)


class DeploymentEntry(Kept):
    """One deployment. ``fingerprint`` must be that of ``topology``; ``storage_keys`` is sorted and unique."""

    topology: TopologyEntry
    fingerprint: Digest
    storage_keys: Listed[Text] = ()

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        found = self.topology.topology().fingerprint()
        if found != self.fingerprint:
            raise ValueError(f"the fingerprint is {self.fingerprint}, but that of the topology is {found}")
        if list(self.storage_keys) != sorted(set(self.storage_keys)):
            raise ValueError("storage_keys must be sorted and name each key once")
        return self


class IndexEntry(Kept):
    """A participant's index."""

    relative_path: SafePath
    sha256: Digest
    records: Count
    bytes: Count

    @classmethod
    def of(cls, reference: ArtefactReference) -> Self:
        return cls(
            relative_path=reference.relative_path,
            sha256=reference.sha256,
            records=reference.records,
            bytes=reference.size_bytes,
        )

    def reference(self) -> ArtefactReference:
        return ArtefactReference(self.relative_path, self.sha256, self.records, self.bytes)


class ParticipantEntry(Kept):
    """One participant that exported."""

    deployment: DeploymentName
    name: Text
    role: Role
    participant_name: Text
    dialect: Text
    manifest_path: SafePath
    manifest_digest: Digest
    counts: dict[str, Count]
    index: IndexEntry | None

    def receipt(self) -> ExportReceipt:
        """What it reported, for verification and for comparison after a restore."""
        index = self.index.reference() if self.index else None
        return ExportReceipt(self.manifest_path, self.manifest_digest, index, dict(self.counts))


class RolloutEntry(Kept):
    """A rollout that was live at the cut and goes on from a boundary of ``agent`` (its routing name)."""

    deployment: DeploymentName
    agent: Text
    rollout_id: Text
    attempt_index: Count

    @property
    def attempt(self) -> AttemptId:
        return AttemptId(self.rollout_id, self.attempt_index)


class RestartingEntry(Kept):
    """A rollout that was live at the cut and starts over from its input; ``agent`` is empty where it is unknown."""

    deployment: DeploymentName
    agent: StrictStr
    rollout_id: Text
    attempt_index: Count
    reason: StrictStr

    @property
    def attempt(self) -> AttemptId:
        return AttemptId(self.rollout_id, self.attempt_index)


class FileEntry(Kept):
    """A participant's file, proven when the snapshot was made."""

    path: SafePath
    bytes: Count
    sha256: Digest


class TrainerFileEntry(Kept):
    """A file that the trainer added; its digest is optional."""

    path: SafePath
    bytes: Count
    sha256: Digest | None


class SnapshotManifest(Kept):
    """``MANIFEST.json``: a folder without it is no snapshot."""

    kind: Literal["quiesce.snapshot"] = KIND
    schema_version: One = SCHEMA_VERSION
    checkpoint_id: WireId
    label: Annotated[StrictStr, AfterValidator(check_label)]
    created_at: Instant
    deployments: dict[DeploymentName, DeploymentEntry]
    participants: Listed[ParticipantEntry]
    rollouts: Listed[RolloutEntry]
    restarting: Listed[RestartingEntry]
    files: Listed[FileEntry]
    trainer: Listed[TrainerFileEntry]
    metadata: Metadata = Field(default_factory=dict)
