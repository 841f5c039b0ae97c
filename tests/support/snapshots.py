"""Snapshots on a real disk: staged folders filled as participants and a trainer would fill them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from support.artefact_tree import CHECKPOINT, Exported, agent_export, boundary, policy_export, resources_export
from support.declarations import healthy

from quiesce.controller.snapshots import SnapshotStore
from quiesce.controller.staging import Staged
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.artefact_writing import continuation_row
from quiesce.participants.artefacts import cross_check
from quiesce.participants.identity import AttemptId
from quiesce.participants.manifest import deployment_folder
from quiesce.participants.manifest_models import (
    DeploymentEntry,
    FileEntry,
    IndexEntry,
    ParticipantEntry,
    SnapshotManifest,
    TopologyEntry,
    TrainerFileEntry,
)
from quiesce.participants.topology import Topology

__all__ = ["CHECKPOINT", "FullCut", "entry_of", "trainer_only", "tree_of"]

RECORDS = [boundary("job7.r1"), boundary("job7.r3")]


def tree_of(folder: Path) -> dict[str, bytes | str]:
    """Every path below a folder: contents of files, targets of links, and directories as such."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = "directory" if path.is_dir() else path.read_bytes()
    return found


def trainer_only(store: SnapshotStore, wire_id: str, *, label: str, created_at: float) -> Path:
    """Publish a snapshot that holds one trainer's file alone; returns its folder."""
    staged = store.stage(wire_id, [])
    (staged.trainer / "step").write_text(wire_id)
    manifest = SnapshotManifest(
        checkpoint_id=wire_id,
        label=label,
        created_at=created_at,
        deployments={},
        participants=(),
        rollouts=(),
        restarting=(),
        files=(),
        trainer=store.trainer_files(staged),
    )
    store.publish(staged, manifest)
    return store.layout.snapshot(wire_id)


@dataclass
class FullCut:
    """A cut over a policy, an agent and a resource server, which have exported into a staged folder."""

    store: SnapshotStore
    staged: Staged
    exports: tuple[Exported, ...]
    created_at: float = 1_800_000_000.0

    @classmethod
    def staged_in(cls, store: SnapshotStore) -> FullCut:
        """Stage and export."""
        roots = [row for record in RECORDS if (row := continuation_row(record))]
        exports = (
            agent_export(records=RECORDS),
            policy_export(roots=roots),
            resources_export(attempts=[AttemptId("job7.r1", 0)]),
        )
        cut = cls(store, store.stage(CHECKPOINT, ["main"]), exports)
        for export in exports:
            for name, content in export.reader.files.items():
                assert isinstance(content, bytes)
                path = cut.staged.deployment("main") / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        (cut.staged.trainer / "optimizer").mkdir()
        (cut.staged.trainer / "optimizer" / "state.bin").write_bytes(b"state of the optimizer")
        return cut

    def export(self, name: str) -> Exported:
        """The export of one participant."""
        return next(export for export in self.exports if export.name == name)

    def path(self, export: Exported, name: str) -> Path:
        """A file in a participant's folder."""
        return self.staged.deployment("main") / export.folder / name

    def verify(self, export: Exported) -> tuple[FileEntry, ...]:
        """Prove one export through the store; its files as they go into the manifest."""
        found = self.store.verify_export(
            self.staged,
            ParticipantKey("main", export.name),
            role=export.role,
            participant_name=export.name,
            receipt=export.receipt,
        )
        folder = deployment_folder("main")
        return tuple(
            FileEntry(path=f"{folder}/{file.path}", bytes=file.size_bytes, sha256=file.sha256) for file in found.files
        )

    def manifest(self) -> SnapshotManifest:
        """Verify everything and put the manifest together."""
        files = tuple(file for export in self.exports for file in self.verify(export))
        topology = Topology.of(participant.contract for participant in healthy())
        deployment = DeploymentEntry(
            topology=TopologyEntry.model_validate_json(json.dumps(topology.as_object())),
            fingerprint=topology.fingerprint(),
            storage_keys=cross_check(export.verify() for export in self.exports),
        )
        trainer: tuple[TrainerFileEntry, ...] = self.store.trainer_files(self.staged)
        return SnapshotManifest(
            checkpoint_id=CHECKPOINT,
            label="step-40",
            created_at=self.created_at,
            deployments={"main": deployment},
            participants=tuple(entry_of(export) for export in self.exports),
            rollouts=(),
            restarting=(),
            files=files,
            trainer=trainer,
        )

    def publish(self) -> Path:
        """Verify and publish; returns the published folder."""
        self.store.publish(self.staged, self.manifest())
        return self.store.layout.snapshot(CHECKPOINT)


def entry_of(export: Exported) -> ParticipantEntry:
    """What a manifest says of an export."""
    receipt = export.receipt
    return ParticipantEntry(
        deployment="main",
        name=export.name,
        role=export.role,
        participant_name=export.name,
        dialect="gym_a",
        manifest_path=receipt.manifest_path,
        manifest_digest=receipt.manifest_digest,
        counts=dict(receipt.counts),
        index=IndexEntry.of(receipt.index) if receipt.index else None,
    )
