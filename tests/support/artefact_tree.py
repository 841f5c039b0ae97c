"""Checkpoint directories in memory: a reader for the verification, and exports of made-up participants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from quiesce.fsm.vocabulary import Role
from quiesce.participants.artefact_records import BoundaryRecord, ContinuationRow, SessionRecord, StorageRow
from quiesce.participants.artefact_writing import (
    agent_manifest_file,
    continuation_row,
    index_file,
    lineage_entry,
    model_manifest_file,
    record_file,
    reference_to,
    resources_manifest_file,
    sha256_hex,
    sorted_roots,
)
from quiesce.participants.artefacts import VerifiedExport, verify_export
from quiesce.participants.identity import AttemptId
from quiesce.participants.layout import index_path, lineage_name, manifest_path, participant_folder, record_name
from quiesce.participants.replies import ExportReceipt
from quiesce.participants.strict_json import compact

CHECKPOINT = "step-40-0123abcd"


@dataclass
class MemoryReader:
    """Files by relative path; a value that is an error is raised."""

    files: dict[str, bytes | OSError] = field(default_factory=dict)

    def read_bytes(self, relative_path: str, bytes_max: int) -> bytes:
        """The content, or what stands in its place."""
        content = self.files.get(relative_path)
        if content is None:
            raise FileNotFoundError(relative_path)
        if isinstance(content, OSError):
            raise content
        return content[: bytes_max + 1]

    def text(self, relative_path: str) -> str:
        """The content of a file that is there, as text."""
        content = self.files[relative_path]
        assert isinstance(content, bytes)
        return content.decode()


@dataclass
class Exported:
    """One participant's export, as it lies in the directory, and what it reported."""

    reader: MemoryReader
    role: Role
    name: str
    receipt: ExportReceipt

    def verify(self, checkpoint_id: str = CHECKPOINT) -> VerifiedExport:
        """Prove it."""
        return verify_export(
            participant=f"main/{self.name}",
            role=self.role,
            participant_name=self.name,
            checkpoint_id=checkpoint_id,
            receipt=self.receipt,
            reader=self.reader,
        )

    @property
    def folder(self) -> str:
        return participant_folder(self.role, self.name)

    @property
    def manifest(self) -> str:
        return manifest_path(self.role, self.name)

    @property
    def index(self) -> str:
        path = index_path(self.role, self.name)
        assert path is not None
        return path

    def replace_manifest(self, content: bytes) -> None:
        """Another manifest, with a receipt that fits it."""
        self.reader.files[self.manifest] = content
        self.receipt = ExportReceipt(self.manifest, sha256_hex(content), self.receipt.index, self.receipt.counts)


def boundary(rollout_id: str, attempt: int = 0, call: str | None = "call-1", **changes: object) -> BoundaryRecord:
    """A boundary after the first turn."""
    fields = {"boundary_index": 1, "created_at": 1767225600.0} | changes
    return BoundaryRecord.model_validate(
        {"rollout_id": rollout_id, "attempt_index": attempt, "last_committed_model_call_id": call, **fields}
    )


def agent_export(
    name: str = "solver_agent",
    records: Sequence[BoundaryRecord] = (),
    reader: MemoryReader | None = None,
    rows: Sequence[ContinuationRow] | None = None,
) -> Exported:
    """An agent's export; ``rows`` replaces the index that the records give."""
    reader = reader or MemoryReader()
    folder = participant_folder(Role.AGENT, name)
    digests = {}
    for record in records:
        content = record_file(record)
        digests[record_name(record.attempt)] = sha256_hex(content)
        reader.files[f"{folder}/{record_name(record.attempt)}"] = content
    derived = sorted_roots(row for record in records if (row := continuation_row(record)))
    content = index_file(derived if rows is None else rows)
    path = index_path(Role.AGENT, name) or ""
    reader.files[path] = content
    index = reference_to(path, content)
    manifest = agent_manifest_file(CHECKPOINT, name, digests, index)
    reader.files[manifest_path(Role.AGENT, name)] = manifest
    receipt = ExportReceipt(manifest_path(Role.AGENT, name), sha256_hex(manifest), index, {"records": len(records)})
    return Exported(reader, Role.AGENT, name, receipt)


def policy_export(
    name: str = "policy_model",
    roots: Sequence[ContinuationRow] = (),
    keys: Mapping[str, Sequence[str]] | None = None,
    reader: MemoryReader | None = None,
    storage: Sequence[StorageRow] | None = None,
) -> Exported:
    """A policy's export; ``keys`` maps a capture key to its storage keys, ``storage`` replaces the whole index."""
    reader = reader or MemoryReader()
    folder = participant_folder(Role.POLICY, name)
    rollouts = {}
    rows: list[StorageRow] = []
    for root in roots:
        lineage = (compact({"model_call_id": root.last_committed_model_call_id}) + "\n").encode()
        file = lineage_name(AttemptId(root.capture_key, 0))
        reader.files[f"{folder}/{file}"] = lineage
        rollouts[root.capture_key] = lineage_entry(file, lineage)
        for key in (keys or {}).get(root.capture_key, [f"{name}/{root.capture_key}"]):
            call = root.last_committed_model_call_id
            rows.append(
                StorageRow(
                    capture_key=root.capture_key, boundary_model_call_id=call, kind="token_capture_staging", key=key
                )
            )
    content = index_file(sorted(rows, key=lambda row: row.key) if storage is None else storage)
    path = index_path(Role.POLICY, name) or ""
    reader.files[path] = content
    index = reference_to(path, content)
    manifest = model_manifest_file(
        checkpoint_id=CHECKPOINT,
        server_name=name,
        rollouts=rollouts,
        roots=roots,
        excluded_inactive=0,
        index=index,
        tombstones=(),
        source_attempts=[root.attempt for root in roots],
    )
    reader.files[manifest_path(Role.POLICY, name)] = manifest
    counts = {"rollouts": len(rollouts), "rows": len(rollouts), "excluded_tombstoned": 0, "excluded_inactive": 0}
    receipt = ExportReceipt(manifest_path(Role.POLICY, name), sha256_hex(manifest), index, counts)
    return Exported(reader, Role.POLICY, name, receipt)


def resources_export(
    name: str = "tools", attempts: Sequence[AttemptId] = (), reader: MemoryReader | None = None
) -> Exported:
    """A resource server's export of one session for each attempt."""
    reader = reader or MemoryReader()
    folder = participant_folder(Role.RESOURCES, name)
    digests = {}
    for attempt in attempts:
        record = SessionRecord(
            rollout_id=attempt.rollout_id,
            attempt_index=attempt.attempt_index,
            state_revision=3,
            state={"value": 2},
            created_at=1767225600.0,
        )
        content = record_file(record)
        digests[record_name(attempt)] = sha256_hex(content)
        reader.files[f"{folder}/{record_name(attempt)}"] = content
    manifest = resources_manifest_file(CHECKPOINT, name, digests)
    reader.files[manifest_path(Role.RESOURCES, name)] = manifest
    counts = {"sessions": len(attempts)}
    receipt = ExportReceipt(manifest_path(Role.RESOURCES, name), sha256_hex(manifest), None, counts)
    return Exported(reader, Role.RESOURCES, name, receipt)
