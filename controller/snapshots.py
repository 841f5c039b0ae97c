"""The snapshots under one checkpoint root: staged, verified, published whole or not at all, found again.

Every method does file work and returns when it is done; on an event loop call it through ``asyncio.to_thread``.
There is no state besides the files, so any number of these may look at one root.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from quiesce.controller import catalog, publishing, retention, staging, verification
from quiesce.controller.catalog import Snapshot, SnapshotEntry
from quiesce.controller.files import FileSystem, LocalFiles
from quiesce.controller.retention import Guard, Pruned
from quiesce.controller.root_layout import RootLayout
from quiesce.controller.staging import Staged
from quiesce.controller.sweeping import needed_by_restores
from quiesce.controller.trainer_files import collect_trainer_files
from quiesce.controller.verification import RECHECK_PAUSES_S, SnapshotVerification, prove_export
from quiesce.fsm.messages import Publication
from quiesce.fsm.vocabulary import ParticipantKey, Role
from quiesce.participants.artefacts import VerifiedExport
from quiesce.participants.errors import SnapshotInvalid
from quiesce.participants.manifest_models import SnapshotManifest, TrainerFileEntry
from quiesce.participants.replies import ExportReceipt

__all__ = ["SnapshotStore"]

INSTANT_STEP_S: Final = 0.001


class SnapshotStore:
    """The store of one root.

    Args:
        root: the directory; it need not exist yet.
        files: the file port.
        hash_trainer_files: whether digests of the trainer's own files are recorded.
        recheck_pauses_s: how often, and after which waits in seconds, a refused export is read again.
        sleep: how to wait in a thread.
    """

    def __init__(
        self,
        root: Path,
        *,
        files: FileSystem | None = None,
        hash_trainer_files: bool = False,
        recheck_pauses_s: Sequence[float] = RECHECK_PAUSES_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.layout = RootLayout(root)
        self._files: FileSystem = files or LocalFiles()
        self._hashed = hash_trainer_files
        self._recheck_pauses_s = tuple(recheck_pauses_s)
        self._sleep = sleep

    def __repr__(self) -> str:
        return f"SnapshotStore({str(self.layout.root)!r})"

    def prepare(self) -> None:
        """Make the root's folders where they are missing (see staging.prepare_root)."""
        staging.prepare_root(self._files, self.layout)

    def stage(self, wire_id: str, deployments: Collection[str]) -> Staged:
        """Make the empty folders of a new snapshot (see staging.stage)."""
        return staging.stage(self._files, self.layout, wire_id, deployments)

    def verify_export(
        self,
        staged: Staged,
        key: ParticipantKey,
        *,
        role: Role,
        participant_name: str,
        receipt: ExportReceipt,
    ) -> VerifiedExport:
        """Prove one participant's export in a staged snapshot (see verification.prove_export)."""
        return prove_export(
            self._files,
            staged,
            key,
            role=role,
            participant_name=participant_name,
            receipt=receipt,
            recheck_pauses_s=self._recheck_pauses_s,
            sleep=self._sleep,
        )

    def trainer_files(self, staged: Staged) -> tuple[TrainerFileEntry, ...]:
        """The trainer's files as they go into the manifest (see trainer_files.collect_trainer_files)."""
        return collect_trainer_files(self._files, staged, hashed=self._hashed)

    def publish(self, staged: Staged, manifest: SnapshotManifest) -> tuple[str, ...]:
        """Publish a staged snapshot; returns notes (see publishing.publish)."""
        return publishing.publish(self._files, self.layout, staged, manifest)

    def published(self, wire_id: str) -> Publication:
        """Whether an id is published (see publishing.published)."""
        return publishing.published(self._files, self.layout, wire_id)

    def discard(self, wire_id: str) -> None:
        """Remove what was staged for an id (see staging.discard)."""
        staging.discard(self._files, self.layout, wire_id)

    def list(self) -> tuple[SnapshotEntry, ...]:
        """Every snapshot, and whatever else stands among them (see catalog.list_snapshots)."""
        return catalog.list_snapshots(self._files, self.layout)

    def instant_of_cut(self, now_ts: float) -> float:
        """When a cut that begins now is said to have been taken: now, but always after the last one.

        ``latest`` means the snapshot with the latest instant, so a clock that was set back must not make a new one an
        older one. Unix seconds.
        """
        return max(now_ts, catalog.last_instant(self._files, self.layout) + INSTANT_STEP_S)

    def prune(
        self, *, keep: int | None, guard: Guard, protected: Collection[str] = (), dry_run: bool = False
    ) -> Pruned:
        """Keep the newest valid snapshots, remove the older ones, sweep left-overs (see retention.prune).

        What a restore needs that has not ended, or that may not have, stays besides, and is named.
        """
        needed = needed_by_restores(self._files, self.layout)
        stays = needed.snapshots if needed.is_known else [entry.wire_id for entry in self.list()]
        protected = {*protected, *stays}
        pruned = retention.prune(self._files, self.layout, keep=keep, guard=guard, protected=protected, dry_run=dry_run)
        pruned.failed.update(needed.restores)
        pruned.ignored.update(needed.ignored)
        return pruned

    def sweep(self, *, guard: Guard, protected: Collection[str] = ()) -> Pruned:
        """Remove what nobody needs and let every snapshot be (see retention.sweep)."""
        return retention.sweep(self._files, self.layout, guard=guard, protected=protected)

    def resolve(self, name: str) -> Snapshot:
        """The valid snapshot that ``latest``, a wire id or a label means (see catalog.resolve)."""
        return catalog.resolve(self._files, self.layout, name)

    def load(self, name: str) -> SnapshotManifest:
        """The manifest of the snapshot that a name means; raises as resolve."""
        return self.resolve(name).manifest

    def verify(self, name: str, *, progress: Callable[[int, int], None] | None = None) -> SnapshotVerification:
        """Read every file of a snapshot again and compare it with the manifest. Changes nothing.

        ``progress`` is told how many bytes of how many are done. A damaged snapshot may be named by its wire id.

        Raises:
            InvalidIdentity: the name could be no id and no label.
            SnapshotInvalid: there is no such snapshot, or its manifest cannot be read.
            StorageFailed: the folder cannot be read.
        """
        entry = catalog.entry_of(self._files, self.layout, name)
        if entry is not None and entry.manifest is not None:
            snapshot = Snapshot(entry.directory, entry.manifest)
        else:
            snapshot = self.resolve(name)
        return verification.rehash(self._files, snapshot.directory, snapshot.manifest, progress=progress)

    def prove(self, snapshot: Snapshot) -> None:
        """Verify a snapshot before it is restored from.

        Raises:
            SnapshotInvalid: a file of it differs; the first one is named.
            StorageFailed: the folder cannot be read.
        """
        found = verification.rehash(self._files, snapshot.directory, snapshot.manifest)
        if found.problems:
            first, more = found.problems[0], len(found.problems) - 1
            others = f" ({more} more files differ; verify the snapshot to see all)" if more else ""
            raise SnapshotInvalid(subject=snapshot.wire_id, file=first.file, reason=first.reason + others)
