"""A cut and a restore where the configuration is not enabled: no control call, only the trainer's own part."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import JsonValue

from quiesce.controller.cancellation import finish_first
from quiesce.controller.catalog import Snapshot
from quiesce.controller.clock import Clock
from quiesce.controller.errors import PublishUncertain, StorageFailed
from quiesce.controller.results import CutResult, RestoreResult, Timings
from quiesce.controller.snapshots import SnapshotStore
from quiesce.controller.staging import Staged
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.identity import AttemptId, wire_id
from quiesce.participants.manifest_models import SnapshotManifest
from quiesce.participants.replies import DrainProgress

if TYPE_CHECKING:
    from quiesce.controller.opening import Opening

__all__ = ["TrainerOnlyCut", "TrainerOnlyRestore"]


class _CallsNobody:
    """A transaction in which nobody takes part: nobody is ever held or owed anything."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = clock.monotonic()
        self._notes: list[str] = []

    def progress(self) -> Mapping[ParticipantKey, tuple[ParticipantState, DrainProgress | None]]:
        """Nobody takes part."""
        return {}

    def notes(self) -> tuple[str, ...]:
        """What was noticed and changed nothing, each a sentence."""
        return tuple(self._notes)

    def note(self, sentence: str) -> None:
        """Add a sentence to :meth:`notes`."""
        self._notes.append(sentence)

    def held(self) -> QuiesceError | None:
        """Nothing is ever open."""
        return None

    async def abort(self, *, cancelled: bool = False) -> None:
        """There is nobody to reopen."""
        del cancelled

    async def close(self) -> None:
        """Nothing runs."""

    def _timings(self) -> Timings:
        return Timings((), self._clock.monotonic() - self._began_s, 0.0)


class TrainerOnlyCut(_CallsNobody):
    """Stages and publishes a snapshot that holds nothing but the trainer's files."""

    def __init__(
        self, store: SnapshotStore, staged: Staged, label: str, metadata: Mapping[str, JsonValue], clock: Clock
    ) -> None:
        super().__init__(clock)
        self.label = label
        self._store = store
        self._staged = staged
        self._metadata = metadata
        self._is_uncertain = False
        self.is_published = False
        """Whether the snapshot stands."""

    @classmethod
    async def open(cls, opening: Opening, label: str, nonce: str, metadata: Mapping[str, JsonValue]) -> Self:
        """Make the folder.

        Raises:
            StorageFailed: it cannot be made.
        """
        staged = await opening.stage(wire_id(label, nonce), ())
        return cls(opening.store, staged, label, metadata, opening.clock)

    @property
    def wire_id(self) -> str:
        """The id of the snapshot."""
        return self._staged.wire_id

    @property
    def directory(self) -> Path:
        """Where the snapshot is put together."""
        return self._staged.directory

    async def publish(self) -> CutResult:
        """Publish the trainer's files. A caller who is cancelled meanwhile is so once they are published.

        Raises:
            PublishUncertain: whether they are published is not known; they are kept.
            StorageFailed, SnapshotInvalid: nothing was published.
        """
        self._notes += await finish_first(asyncio.to_thread(self._publish))
        self.is_published = True
        directory = self._store.layout.snapshot(self.wire_id)
        return CutResult(self.label, self.wire_id, directory, (), (), (), self._timings(), self.notes())

    def _publish(self) -> tuple[str, ...]:
        manifest = SnapshotManifest(
            checkpoint_id=self.wire_id,
            label=self.label,
            created_at=self._store.instant_of_cut(self._clock.now_ts()),
            deployments={},
            participants=(),
            rollouts=(),
            restarting=(),
            files=(),
            trainer=self._store.trainer_files(self._staged),
            metadata=dict(self._metadata),
        )
        try:
            return self._store.publish(self._staged, manifest)
        except PublishUncertain:
            self._is_uncertain = True
            raise

    async def discard(self) -> None:
        """Remove what was staged, unless it may have been published. A failure to do so is noted."""
        if self._is_uncertain:
            return
        try:
            await asyncio.to_thread(self._store.discard, self.wire_id)
        except StorageFailed as error:
            self._notes.append(str(error))


class TrainerOnlyRestore(_CallsNobody):
    """Gives the trainer its own part of a snapshot that holds nothing else."""

    def __init__(self, snapshot: Snapshot, clock: Clock) -> None:
        super().__init__(clock)
        self._snapshot = snapshot

    @classmethod
    async def open(cls, opening: Opening, name: str) -> Self:
        """Find the snapshot and verify it.

        Raises:
            SnapshotInvalid: there is none, or a file of it differs.
            ConfigurationError: it also holds the state of participants, who would be left out.
        """
        snapshot = await asyncio.to_thread(opening.store.resolve, name)
        participants = len(snapshot.manifest.participants)
        if participants:
            raise ConfigurationError(
                f"snapshot {snapshot.wire_id} holds the state of {participants} participants, but with enabled = false "
                "nobody is restored; set enabled = true, or load the files that you want from its folder yourself"
            )
        await asyncio.to_thread(opening.store.prove, snapshot)
        return cls(snapshot, opening.clock)

    @property
    def wire_id(self) -> str:
        """The id of the snapshot: a restore that calls nobody needs none of its own."""
        return self._snapshot.wire_id

    @property
    def directory(self) -> Path:
        """The snapshot."""
        return self._snapshot.directory

    @property
    def rollouts(self) -> tuple[AttemptId, ...]:
        """Nothing goes on."""
        return ()

    async def discard(self, attempts: Iterable[AttemptId]) -> tuple[AttemptId, ...]:
        """There is nothing to discard.

        Raises:
            ConfigurationError: something was named all the same.
        """
        named = [str(attempt) for attempt in attempts]
        if named:
            raise ConfigurationError(f"not in snapshot {self.wire_id}: {', '.join(named)}")
        return ()

    async def resume(self) -> RestoreResult:
        """There is nobody to resume."""
        return RestoreResult(
            label=self._snapshot.manifest.label,
            wire_id=self.wire_id,
            source_wire_id=self.wire_id,
            directory=self.directory,
            rollouts=(),
            restarting=(),
            discarded=(),
            storage_keys=(),
            timings=self._timings(),
        )
