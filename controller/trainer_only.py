"""A cut where the configuration is not enabled: no control call, only the trainer's own part is saved and published."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import JsonValue

from quiesce.controller.clock import Clock
from quiesce.controller.results import CutResult, Timings
from quiesce.controller.snapshots import SnapshotStore
from quiesce.controller.staging import Staged
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.identity import wire_id
from quiesce.participants.manifest_models import SnapshotManifest
from quiesce.participants.replies import DrainProgress

__all__ = ["TrainerOnlyCut"]


class TrainerOnlyCut:
    """Stages and publishes a snapshot that holds nothing but the trainer's files."""

    def __init__(
        self, store: SnapshotStore, staged: Staged, label: str, metadata: Mapping[str, JsonValue], clock: Clock
    ) -> None:
        self.label = label
        self._store = store
        self._staged = staged
        self._metadata = metadata
        self._clock = clock
        self._began_s = clock.monotonic()

    @classmethod
    async def open(
        cls, store: SnapshotStore, label: str, nonce: str, metadata: Mapping[str, JsonValue], clock: Clock
    ) -> Self:
        """Make the folder.

        Raises:
            StorageFailed: it cannot be made.
        """
        staged = await asyncio.to_thread(store.stage, wire_id(label, nonce), [])
        return cls(store, staged, label, metadata, clock)

    @property
    def wire_id(self) -> str:
        """The id of the snapshot."""
        return self._staged.wire_id

    @property
    def directory(self) -> Path:
        """Where the snapshot is put together."""
        return self._staged.directory

    def progress(self) -> Mapping[ParticipantKey, tuple[ParticipantState, DrainProgress | None]]:
        """Nobody takes part."""
        return {}

    async def publish(self) -> CutResult:
        """Publish the trainer's files.

        Raises:
            StorageFailed, SnapshotInvalid: nothing was published.
        """
        notes = await asyncio.to_thread(self._publish)
        spent_s = self._clock.monotonic() - self._began_s
        directory = self._store.layout.snapshot(self.wire_id)
        return CutResult(self.label, self.wire_id, directory, (), (), (), Timings((), spent_s, 0.0), notes)

    def _publish(self) -> tuple[str, ...]:
        manifest = SnapshotManifest(
            checkpoint_id=self.wire_id,
            label=self.label,
            created_at=self._clock.now_ts(),
            deployments={},
            participants=(),
            rollouts=(),
            restarting=(),
            files=(),
            trainer=self._store.trainer_files(self._staged),
            metadata=dict(self._metadata),
        )
        return self._store.publish(self._staged, manifest)

    async def discard(self) -> None:
        """Remove what was staged."""
        await asyncio.to_thread(self._store.discard, self.wire_id)
