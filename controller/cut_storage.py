"""The snapshot of one running transaction: being put together for a cut, or being read for a restore."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue, ValidationError

from quiesce.controller.discovery import DiscoveredParticipant
from quiesce.controller.epoch import Tenure
from quiesce.controller.errors import StorageFailed
from quiesce.controller.ledger import Ledger
from quiesce.controller.root_layout import DEPLOYMENTS, SNAPSHOT_MANIFEST
from quiesce.controller.snapshots import SnapshotStore
from quiesce.controller.staging import Staged
from quiesce.fsm.messages import Publication
from quiesce.fsm.vocabulary import ParticipantKey, Phase, Role
from quiesce.participants.artefacts import VerifiedExport, cross_check
from quiesce.participants.errors import SnapshotInvalid
from quiesce.participants.identity import check_identity
from quiesce.participants.manifest import deployment_folder
from quiesce.participants.manifest_models import (
    DeploymentEntry,
    FileEntry,
    IndexEntry,
    ParticipantEntry,
    RestartingEntry,
    RolloutEntry,
    SnapshotManifest,
    TopologyEntry,
)
from quiesce.participants.replies import ExportReceipt
from quiesce.participants.topology import Topology
from quiesce.participants.validation import first_problems

__all__ = ["CutStorage", "RestoreStorage"]


@dataclass(slots=True)
class CutStorage:
    """Where a cut's snapshot is put together. Implements SnapshotPort; its methods do file work."""

    store: SnapshotStore
    staged: Staged
    label: str
    created_at: float
    fleet: Mapping[ParticipantKey, DiscoveredParticipant]
    topologies: Mapping[str, Topology]
    ledger: Ledger
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    tenure: Tenure | None = None
    _manifest: SnapshotManifest | None = None

    @property
    def final_directory(self) -> Path:
        """Where the snapshot stands once it is published."""
        return self.store.layout.snapshot(self.staged.wire_id)

    @property
    def manifest(self) -> SnapshotManifest:
        """The manifest that was published.

        Raises:
            SnapshotInvalid: nothing was published.
        """
        if self._manifest is None:
            raise SnapshotInvalid(subject="manifest", file="MANIFEST.json", reason="was not written")
        return self._manifest

    def deployment_directory(self, deployment: str) -> str:
        return str(self.staged.deployment(deployment))

    def verify(self, key: ParticipantKey, receipt: ExportReceipt) -> VerifiedExport:
        target = self.fleet[key]
        return self.store.verify_export(
            self.staged,
            key,
            role=target.role,
            participant_name=target.contract.participant_name,
            receipt=receipt,
        )

    def publish(self) -> None:
        if self.tenure is not None:
            self.tenure.check()
        # a second try after an uncertain rename must offer the same manifest
        if self._manifest is None:
            try:
                self._manifest = self._compose()
            except ValidationError as error:
                raise SnapshotInvalid(
                    subject="manifest", file=SNAPSHOT_MANIFEST, reason=first_problems(error)
                ) from None
        for note in self.store.publish(self.staged, self._manifest):
            self.ledger.note(note)

    def discard(self) -> None:
        """Remove what was staged; what is published is not touched.

        Raises:
            Superseded: another controller has the root, and removes it itself.
            StorageFailed: it could not be removed.
        """
        if self.tenure is not None:
            self.tenure.check()
        self.store.discard(self.staged.wire_id)

    def published(self) -> Publication:
        found = self.store.published(self.staged.wire_id)
        if found is not Publication.PUBLISHED or self._manifest is None:
            return found
        try:
            self.publish()  # it stands; what is repeated is making its name durable
        except StorageFailed:
            return Publication.UNKNOWN
        return Publication.PUBLISHED

    def _compose(self) -> SnapshotManifest:
        trainer = self.store.trainer_files(self.staged)
        exports = {key: entry.verified for key, entry in self.ledger.entries.items() if entry.verified is not None}
        self._check_complete(exports)
        return SnapshotManifest(
            checkpoint_id=self.staged.wire_id,
            label=self.label,
            created_at=self.created_at,
            deployments={name: self._deployment(name, exports) for name in self.topologies},
            participants=tuple(self._participant(key, export) for key, export in exports.items()),
            rollouts=tuple(rollout for key, export in exports.items() for rollout in _rollouts(key, export)),
            restarting=self._restarting(exports),
            files=tuple(
                FileEntry(
                    path=f"{deployment_folder(key.deployment)}/{file.path}", bytes=file.size_bytes, sha256=file.sha256
                )
                for key, export in exports.items()
                for file in export.files
            ),
            trainer=trainer,
            metadata=dict(self.metadata),
        )

    def _check_complete(self, exports: Mapping[ParticipantKey, VerifiedExport]) -> None:
        """The same fact is checked at two places: the core let nobody through whose export was not verified."""
        for key, target in self.fleet.items():
            if Phase.COMMIT in target.phases and key not in exports:
                raise SnapshotInvalid(subject=str(key), file="manifest.json", reason="its export was never verified")

    def _deployment(self, name: str, exports: Mapping[ParticipantKey, VerifiedExport]) -> DeploymentEntry:
        topology = self.topologies[name]
        mine = [export for key, export in exports.items() if key.deployment == name]
        return DeploymentEntry(
            topology=TopologyEntry.model_validate_json(json.dumps(topology.as_object())),
            fingerprint=topology.fingerprint(),
            storage_keys=cross_check(mine),
        )

    def _participant(self, key: ParticipantKey, export: VerifiedExport) -> ParticipantEntry:
        target = self.fleet[key]
        index = export.receipt.index
        return ParticipantEntry(
            deployment=key.deployment,
            name=key.name,
            role=target.role,
            participant_name=target.contract.participant_name,
            dialect=target.dialect.name,
            manifest_path=export.receipt.manifest_path,
            manifest_digest=export.receipt.manifest_digest,
            counts=dict(export.receipt.counts),
            index=IndexEntry.of(index) if index is not None else None,
        )

    def _restarting(self, exports: Mapping[ParticipantKey, VerifiedExport]) -> tuple[RestartingEntry, ...]:
        """Attempts that an agent said were live at the cut and that it did not export: named, never dropped."""
        entries: list[RestartingEntry] = []
        for key, entry in self.ledger.entries.items():
            export = exports.get(key)
            exported = set(export.attempts) if export is not None else set()
            live = {blocker.attempt for blocker in entry.progress.executions} if entry.progress is not None else set()
            restarted = set(entry.restarted)
            for attempt in sorted((live | restarted) - exported):
                reason = "retired as a straggler" if attempt in restarted else "live at the cut, not exported"
                entries.append(
                    RestartingEntry(
                        deployment=key.deployment,
                        agent=key.name,
                        rollout_id=attempt.rollout_id,
                        attempt_index=attempt.attempt_index,
                        reason=reason,
                    )
                )
        return tuple(entries)


def _rollouts(key: ParticipantKey, export: VerifiedExport) -> tuple[RolloutEntry, ...]:
    if export.role is not Role.AGENT:
        return ()
    return tuple(
        RolloutEntry(
            deployment=key.deployment,
            agent=key.name,
            rollout_id=attempt.rollout_id,
            attempt_index=attempt.attempt_index,
        )
        for attempt in export.attempts
    )


@dataclass(frozen=True, slots=True)
class RestoreStorage:
    """A published snapshot that is being restored. Implements SnapshotPort; it publishes nothing."""

    directory: Path
    manifest: SnapshotManifest

    @property
    def final_directory(self) -> Path:
        """The snapshot's folder."""
        return self.directory

    def deployment_directory(self, deployment: str) -> str:
        return str(self.directory / DEPLOYMENTS / check_identity(deployment, field="deployment"))

    def verify(self, key: ParticipantKey, receipt: ExportReceipt) -> VerifiedExport:
        raise SnapshotInvalid(subject=str(key), file=receipt.manifest_path, reason="a restore exports nothing")

    def publish(self) -> None:
        raise SnapshotInvalid(subject="manifest", file="MANIFEST.json", reason="a restore publishes nothing")

    def published(self) -> Publication:
        return Publication.PUBLISHED
