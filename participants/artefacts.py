"""What a participant exported, proven: every file that its manifest names is there and is what it says.

The same check runs during the cut, in ``quiesce verify`` and before a restore. Sources: wire-protocol 6, 7.6, 7.11;
field cases F-44, F-46. The exact bytes for writing are in :mod:`quiesce.participants.artefact_writing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from quiesce.fsm.vocabulary import Role
from quiesce.participants.artefact_reading import ArtefactReader, Source, VerifiedFile
from quiesce.participants.artefact_records import (
    AgentManifest,
    BoundaryRecord,
    ContinuationRow,
    ModelManifest,
    ResourcesManifest,
    SessionRecord,
    StorageRow,
)
from quiesce.participants.artefact_writing import roots_digest, sorted_roots
from quiesce.participants.errors import SnapshotInvalid
from quiesce.participants.excerpts import escaped
from quiesce.participants.identity import AttemptId, captures
from quiesce.participants.layout import index_path, manifest_path, participant_folder, record_name
from quiesce.participants.replies import ArtefactReference, ExportReceipt

__all__ = ["ArtefactReader", "VerifiedExport", "VerifiedFile", "cross_check", "verify_export"]

AGENT_SCHEMA_MAX: Final = 1
MODEL_SCHEMA_MAX: Final = 2
RESOURCES_SCHEMA_MAX: Final = 1


@dataclass(frozen=True, slots=True)
class VerifiedExport:
    """A participant's export after verification.

    ``attempts``: an agent's boundaries or a resource server's sessions. ``roots``: an agent's continuation rows.
    ``storage_keys``: token-storage rows that a policy needs kept. ``source_attempts`` and ``tombstones``: what a policy
    will fence after a restore. ``roots_sha256``: over which roots a policy exported.
    """

    participant: str
    role: Role
    participant_name: str
    checkpoint_id: str
    receipt: ExportReceipt
    files: tuple[VerifiedFile, ...]
    attempts: tuple[AttemptId, ...] = ()
    roots: tuple[ContinuationRow, ...] = ()
    storage_keys: tuple[str, ...] = ()
    source_attempts: tuple[AttemptId, ...] = ()
    tombstones: tuple[AttemptId, ...] = ()
    roots_sha256: str = ""


@dataclass(frozen=True, slots=True)
class _Export:
    """What is being verified, and what its files should agree with."""

    source: Source
    role: Role
    participant_name: str
    checkpoint_id: str
    receipt: ExportReceipt
    manifest_path: str = field(init=False)
    folder: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "manifest_path", manifest_path(self.role, self.participant_name))
        object.__setattr__(self, "folder", participant_folder(self.role, self.participant_name))

    def in_folder(self, name: str) -> str:
        if "/" in name:
            raise self.source.refuse(self.manifest_path, f"names a file outside its own folder: {escaped(name)}")
        return f"{self.folder}/{name}"

    def require(self, what: str, expected: object, found: object) -> None:
        self.source.require(self.manifest_path, what, expected, found)

    def require_count(self, name: str, found: int) -> None:
        counted = self.receipt.counts.get(name)
        if counted is not None and counted != found:
            raise self.source.refuse(self.manifest_path, f"has {found} {name}, but the participant reported {counted}")

    def require_index(self, named: ArtefactReference) -> None:
        expected = index_path(self.role, self.participant_name)
        self.require("the path of its index", expected, named.relative_path)
        if self.receipt.index is not None and self.receipt.index != named:
            raise self.source.refuse(self.manifest_path, "names another index than the participant reported")


def verify_export(
    *,
    participant: str,
    role: Role,
    participant_name: str,
    checkpoint_id: str,
    receipt: ExportReceipt,
    reader: ArtefactReader,
) -> VerifiedExport:
    """Prove an export.

    ``participant`` is how errors name it; ``participant_name`` is its own name, which stands in the paths;
    ``checkpoint_id`` is the wire id of the save; ``receipt`` is what it reported, or what the snapshot recorded.

    Raises:
        SnapshotInvalid: a file is unsafe, missing, unreadable, of the wrong shape, digest, size or count, of another
            checkpoint or participant, or the index is not the set that the records give.
        InvalidIdentity: ``participant_name`` may not become a path.
    """
    verify = _VERIFY.get(role)
    if verify is None:
        raise SnapshotInvalid(subject=participant, file="its export", reason="an auxiliary model exports nothing")
    return verify(_Export(Source(participant, reader), role, participant_name, checkpoint_id, receipt))


def _verify_agent(export: _Export) -> VerifiedExport:
    source = export.source
    manifest, manifest_file = source.manifest(
        export.manifest_path, AgentManifest, AGENT_SCHEMA_MAX, export.receipt.manifest_digest
    )
    export.require("its checkpoint_id", export.checkpoint_id, manifest.checkpoint_id)
    export.require("its instance_name", export.participant_name or None, manifest.instance_name)
    export.require_index(manifest.continuation_index.neutral())
    records, files = _records(export, manifest.files, BoundaryRecord)
    export.require_count("records", len(records))
    roots, index_file = source.index(manifest.continuation_index.neutral(), ContinuationRow)
    _check_roots(source, index_file.path, records, roots)
    return VerifiedExport(
        participant=source.subject,
        role=export.role,
        participant_name=export.participant_name,
        checkpoint_id=manifest.checkpoint_id,
        receipt=export.receipt,
        files=(*files, index_file, manifest_file),
        attempts=tuple(sorted(record.attempt for record in records)),
        roots=roots,
    )


def _verify_resources(export: _Export) -> VerifiedExport:
    source = export.source
    manifest, manifest_file = source.manifest(
        export.manifest_path, ResourcesManifest, RESOURCES_SCHEMA_MAX, export.receipt.manifest_digest
    )
    export.require("its checkpoint_id", export.checkpoint_id, manifest.checkpoint_id)
    export.require("its server_name", export.participant_name, manifest.server_name)
    records, files = _records(export, manifest.files, SessionRecord)
    export.require_count("sessions", len(records))
    return VerifiedExport(
        participant=source.subject,
        role=export.role,
        participant_name=export.participant_name,
        checkpoint_id=manifest.checkpoint_id,
        receipt=export.receipt,
        files=(*files, manifest_file),
        attempts=tuple(sorted(record.attempt for record in records)),
    )


def _verify_policy(export: _Export) -> VerifiedExport:
    source = export.source
    manifest, manifest_file = source.manifest(
        export.manifest_path, ModelManifest, MODEL_SCHEMA_MAX, export.receipt.manifest_digest
    )
    export.require("its checkpoint_id", export.checkpoint_id, manifest.checkpoint_id)
    export.require("its server_name", export.participant_name or None, manifest.server_name)
    export.require_index(manifest.storage_reference_index.neutral())
    lineage_files = _lineage(export, manifest)
    export.require_count("excluded_inactive", manifest.excluded_inactive)
    export.require_count("excluded_tombstoned", len(manifest.tombstones))
    rows, index_file = source.index(manifest.storage_reference_index.neutral(), StorageRow)
    _check_storage_rows(source, index_file.path, manifest, rows)
    return VerifiedExport(
        participant=source.subject,
        role=export.role,
        participant_name=export.participant_name,
        checkpoint_id=manifest.checkpoint_id,
        receipt=export.receipt,
        files=(*lineage_files, index_file, manifest_file),
        storage_keys=tuple(row.key for row in rows),
        source_attempts=tuple(entry.attempt for entry in manifest.source_attempts),
        tombstones=tuple(entry.attempt for entry in manifest.tombstones),
        roots_sha256=manifest.continuation_roots_sha256,
    )


R = TypeVar("R", BoundaryRecord, SessionRecord)


def _records(
    export: _Export, digests: Mapping[str, str], model: type[R]
) -> tuple[tuple[R, ...], tuple[VerifiedFile, ...]]:
    records: list[R] = []
    files: list[VerifiedFile] = []
    for name, digest in sorted(digests.items()):
        path = export.in_folder(name)
        record, file = export.source.record(path, model, digest)
        # the name of a record is ambiguous to parse, so its identity is read from its content (wire-protocol 9 #32)
        export.source.require(path, "the name that its content gives", name, record_name(record.attempt))
        records.append(record)
        files.append(file)
    return tuple(records), tuple(files)


def _check_roots(
    source: Source, path: str, records: Iterable[BoundaryRecord], roots: tuple[ContinuationRow, ...]
) -> None:
    """The index must be the set that the records give: one row for each that has committed a call."""
    committed = {record.attempt: record for record in records if record.last_committed_model_call_id is not None}
    if roots != sorted_roots(roots):
        raise source.refuse(path, "its rows are not sorted by capture key and call id")
    for row in roots:
        record = committed.pop(row.attempt, None)
        if record is None:
            raise source.refuse(path, f"has a row twice or without a record: {escaped(str(row.attempt))}")
        source.require(
            path, f"the call id of {row.attempt}", record.last_committed_model_call_id, row.last_committed_model_call_id
        )
        if not captures(row.capture_key, row.attempt):
            raise source.refuse(path, f"capture key {escaped(row.capture_key)} does not belong to {row.attempt}")
        if row.resource_state_revisions is not None and row.resource_state_revisions != record.resource_state_revisions:
            raise source.refuse(path, f"the resource revisions of {row.attempt} differ from its record")
    if committed:
        raise source.refuse(path, f"lacks the row of {escaped(str(min(committed)))}")


def _lineage(export: _Export, manifest: ModelManifest) -> tuple[VerifiedFile, ...]:
    files: list[VerifiedFile] = []
    for key, entry in sorted(manifest.rollouts.items()):
        found = [export.source.lines(export.in_folder(name), digest) for name, digest in sorted(entry.files.items())]
        export.require(f"the number of bytes of {key}", entry.bytes, sum(file.size_bytes for _, file in found))
        export.require(f"the number of rows of {key}", entry.rows, sum(rows for rows, _ in found))
        files += [file for _, file in found]
    export.require_count("rollouts", len(manifest.rollouts))
    export.require_count("rows", sum(entry.rows for entry in manifest.rollouts.values()))
    return tuple(files)


def _check_storage_rows(source: Source, path: str, manifest: ModelManifest, rows: tuple[StorageRow, ...]) -> None:
    keys = [row.key for row in rows]
    if len(set(keys)) != len(keys):
        twice = next(key for key, count in Counter(keys).items() if count > 1)
        raise source.refuse(path, f"has key {escaped(twice)} twice")
    if keys != sorted(keys):
        raise source.refuse(path, "its rows are not sorted by key")
    for row in rows:
        if row.capture_key not in manifest.rollouts:
            raise source.refuse(path, f"refers to {escaped(row.capture_key)}, whose lineage was not exported")


_VERIFY: Final[Mapping[Role, Callable[[_Export], VerifiedExport]]] = {
    Role.AGENT: _verify_agent,
    Role.POLICY: _verify_policy,
    Role.RESOURCES: _verify_resources,
}


def cross_check(exports: Iterable[VerifiedExport]) -> tuple[str, ...]:
    """What only all exports of one deployment together show; returns the storage keys to keep, sorted.

    Raises:
        SnapshotInvalid: two policies claim one storage key (wire-protocol 7.11), or a policy exported for other
            roots than the agents' indexes name (7.6).
    """
    found = tuple(exports)
    policies = [export for export in found if export.role is Role.POLICY]
    owner: dict[str, VerifiedExport] = {}
    for export in policies:
        for key in export.storage_keys:
            other = owner.setdefault(key, export)
            if other is not export:
                raise SnapshotInvalid(
                    subject=export.participant,
                    file=index_path(export.role, export.participant_name) or "",
                    reason=f"storage key {escaped(key)} is also claimed by {other.participant}",
                )
    roots = [row for export in found for row in export.roots]
    for export in policies:
        if export.roots_sha256 not in _possible_roots_digests(roots):
            raise SnapshotInvalid(
                subject=export.participant,
                file=manifest_path(export.role, export.participant_name),
                reason=f"was exported for other continuation roots than the {len(roots)} of the agents",
            )
    return tuple(sorted(owner))


def _possible_roots_digests(roots: Iterable[ContinuationRow]) -> frozenset[str]:
    # whether a later server digests the revisions of a row is not known; both forms name the same roots
    rows = tuple(roots)
    bare = [row.model_copy(update={"resource_state_revisions": None}) for row in rows]
    return frozenset({roots_digest(rows), roots_digest(bare)})
