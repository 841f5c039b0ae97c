"""A cut and a restore phase by phase, for whoever wants to stand between the phases.

The context managers of :class:`quiesce.controller.api.Controller` are built of nothing else::

    cut = await controller.begin_cut("step-40")
    try:
        await cut.prepare()                     # everybody stands at the cut
        await cut.commit()                      # everybody has exported, and every export was verified
        await trainer.save(cut.directory / "trainer")
        result = await cut.publish()            # published, and everybody resumed
    except BaseException:
        await cut.abort()                       # everybody accepts work, or is named by cut.held()
        await cut.discard()
        raise
    finally:
        await controller.end(cut)

The low-level interface: whoever begins a transaction must bring it to rest and give the turn back by ``end``.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from quiesce.controller.budgets import Budgets
from quiesce.controller.cut_storage import CutStorage, RestoreStorage
from quiesce.controller.discovery import DiscoveredParticipant
from quiesce.controller.errors import ABORT_IT, PublishUncertain, RestoreFailed, StorageFailed, Superseded
from quiesce.controller.leases import LeaseWatch
from quiesce.controller.outcomes import timings
from quiesce.controller.phased import Phased
from quiesce.controller.results import CutResult, RestoreResult
from quiesce.controller.runner import TransactionRunner
from quiesce.fsm import messages as m
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.vocabulary import Outcome, ParticipantKey, Phase, Verb
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import DiscardReceipt

__all__ = ["PhasedCut", "PhasedRestore"]

_S = TransactionState
_DISCARDS: Final = "discard_restored_continuation_v1"
"""The feature by which an agent says that it can drop restored continuations (wire-protocol 2.1)."""


class PhasedCut(Phased):
    """One cut."""

    def __init__(
        self,
        runner: TransactionRunner,
        budgets: Budgets,
        label: str,
        storage: CutStorage,
        leases: LeaseWatch | None = None,
    ) -> None:
        super().__init__(runner, budgets)
        self.label = label
        self._storage = storage
        self._leases = leases

    @property
    def directory(self) -> Path:
        """Where the snapshot is put together; put what belongs to it into ``directory / "trainer"``."""
        return self._storage.staged.directory

    @property
    def is_published(self) -> bool:
        """Whether the snapshot stands and everybody accepts work again."""
        return self.state is _S.RESUMED

    async def prepare(self) -> None:
        """Bring everybody to the cut: preflight, close, drain, park, freeze.

        Raises:
            QuiesceError: it could not be reached; everybody accepts work again or is named in doubt.
        """
        await self._advance(m.Begin(), _S.PAUSED)

    async def commit(self) -> None:
        """Have everybody export, and verify every export. Raises as :meth:`prepare`."""
        await self._advance(m.CommitRequested(), _S.COMMITTED)

    async def publish(self) -> CutResult:
        """Publish the snapshot and reopen everybody.

        Raises:
            QuiesceError: as :meth:`prepare`; InDoubt also after the snapshot was published.
        """
        if self._leases is not None:
            await self._leases.confirm()
        await self._advance(m.PublishRequested(), _S.RESUMED)
        return self._result()

    async def close(self) -> None:
        if self._leases is not None:
            await self._leases.stop()
        await super().close()

    def held(self) -> QuiesceError | None:
        """As for every transaction; PublishUncertain where only the snapshot's fate is open."""
        held = super().held()
        if held is None and self.state is _S.PUBLISH_UNKNOWN:
            cannot_tell = OSError(errno.EIO, "its folder cannot be read")
            return PublishUncertain("tell whether it is published", self._storage.final_directory, cannot_tell)
        return held

    async def settle(self) -> None:
        """Look again whether the snapshot stands, where that is not known, and retry whoever is owed a resume.

        Raises:
            PublishUncertain: it is still not known.
            QuiesceError: as for every transaction.
        """
        if self.state is _S.PUBLISH_UNKNOWN:
            await self._runner.request(await asyncio.to_thread(self._storage.published))
            await self._runner.reached()
        await super().settle()
        await self.discard()

    async def discard(self) -> None:
        """Remove what was staged, unless it may have been published. A failure to do so is noted.

        What another controller has taken over is left to it.
        """
        if self.state in (_S.PUBLISH_UNKNOWN, _S.RESUMED, _S.IN_DOUBT_PUBLISHED) or self._runner.superseded:
            return
        try:
            await asyncio.to_thread(self._storage.discard)
        except (StorageFailed, Superseded) as error:
            self._runner.ledger.note(str(error))

    def _result(self) -> CutResult:
        ledger = self._runner.ledger
        manifest = self._storage.manifest
        return CutResult(
            label=self.label,
            wire_id=self.wire_id,
            directory=self._storage.final_directory,
            rollouts=tuple(entry.attempt for entry in manifest.rollouts),
            restarting=tuple(entry.attempt for entry in manifest.restarting),
            storage_keys=tuple(key for entry in manifest.deployments.values() for key in entry.storage_keys),
            timings=timings(ledger, self._runner.now_s()),
            notes=self.notes(),
        )


class PhasedRestore(Phased):
    """One restore."""

    def __init__(
        self,
        runner: TransactionRunner,
        budgets: Budgets,
        storage: RestoreStorage,
        fleet: Mapping[ParticipantKey, DiscoveredParticipant],
    ) -> None:
        super().__init__(runner, budgets)
        self._storage = storage
        self._fleet = fleet
        self._discarded: list[AttemptId] = []
        self._lost: dict[ParticipantKey, str] = {}
        self.replaces: tuple[Phased, ...] = ()
        """Restores that are held and of which nobody holds anything any more: this one takes their place."""

    @property
    def directory(self) -> Path:
        """The snapshot that is restored; the trainer's own part is in ``directory / "trainer"``."""
        return self._storage.final_directory

    @property
    def rollouts(self) -> tuple[AttemptId, ...]:
        """The attempts that go on, as they stood at the cut, without those that were discarded."""
        saved = (entry.attempt for entry in self._storage.manifest.rollouts)
        return tuple(attempt for attempt in saved if attempt not in self._discarded)

    def needs(self) -> tuple[str, ...]:
        return (self.wire_id, self._storage.manifest.checkpoint_id)

    def to_restart(self) -> tuple[ParticipantKey, ...]:
        """Whose process must be restarted after an abort: it holds restored state, or may hold half of it."""
        state = self._runner.state
        return tuple(
            spec.key
            for spec, member in zip(state.plan.members, state.members, strict=True)
            if Phase.RESTORE in spec.phases and member.state is not ParticipantState.IDLE
        )

    def held(self) -> QuiesceError | None:
        """As for every transaction; who was restored and is so no more counts as failed."""
        held = super().held()
        if isinstance(held, RestoreFailed) and self._lost:
            restored = [key for key in held.restored if key not in self._lost]
            failed = {**held.failed, **self._lost}
            gone = f"It cannot be retried here, since what was restored is gone. {ABORT_IT}"
            return RestoreFailed(self.wire_id, restored=restored, untouched=held.untouched, failed=failed, advice=gone)
        return held

    async def restore(self) -> None:
        """Have everybody import, policies first; all stay closed.

        Raises:
            RestoreFailed: held closed; :meth:`retry` or :meth:`abort`.
            QuiesceError: nothing was imported; everybody accepts work.
        """
        await self._advance(m.Begin(), _S.RESTORED)

    async def discard(self, attempts: Iterable[AttemptId]) -> tuple[AttemptId, ...]:
        """Have agents drop restored continuations that are not wanted, between restore and resume.

        ``attempts`` are named as they stood at the cut, as in :attr:`rollouts`. Returns those that were dropped now.

        Raises:
            ConfigurationError: one is not in the snapshot, its agent cannot drop continuations, or it is not the time.
                Nothing was asked.
            RestoreFailed: the restore has failed meanwhile.
            QuiesceError: an agent did not do it. The restore stays as it is; ask again, or leave it by an exception.
        """
        wanted = tuple(dict.fromkeys(attempts))
        agents = self._agents_of(wanted)
        if self.state is not _S.RESTORED:
            now = f"{self.wire_id} is {self.state.value}; continuations are discarded between restore and resume"
            raise self.held() or ConfigurationError(now)
        return tuple([attempt for attempt in wanted if await self._discard(agents[attempt], attempt)])

    def _agents_of(self, attempts: Sequence[AttemptId]) -> Mapping[AttemptId, ParticipantKey]:
        manifest = self._storage.manifest
        agents = {entry.attempt: ParticipantKey(entry.deployment, entry.agent) for entry in manifest.rollouts}
        problems = [
            f"{attempt} is not in snapshot {manifest.checkpoint_id}" for attempt in attempts if attempt not in agents
        ]
        problems += [
            f"{agent} cannot drop continuations (it lacks the feature {_DISCARDS})"
            for agent in dict.fromkeys(agents[attempt] for attempt in attempts if attempt in agents)
            if _DISCARDS not in self._fleet[agent].contract.declaration.features
        ]
        if problems:
            raise ConfigurationError("; ".join(problems))
        return agents

    async def _discard(self, agent: ParticipantKey, attempt: AttemptId) -> bool:
        replacement = AttemptId(attempt.rollout_id, attempt.attempt_index + 1)
        reading = await self._runner.ask(agent, Verb.DISCARD, replacement)
        if not isinstance(reading.payload, DiscardReceipt):
            raise reading.error or QuiesceError(f"{agent}: discarding {attempt} came to {reading.outcome.value}")
        if attempt not in self._discarded:
            self._discarded.append(attempt)
        return reading.payload.discarded

    async def _look_once_more(self) -> None:
        """A process that was restarted after it was restored would be opened empty, and its rollouts lost."""
        restored = [
            key
            for key, entry in self._runner.ledger.entries.items()
            if entry.state is ParticipantState.RESTORED and not self._fleet[key].is_elsewhere(Verb.IMPORT)
        ]
        readings = await asyncio.gather(*(self._runner.ask(key, Verb.INSPECT) for key in restored))
        self._lost = {
            key: f"it is not restored any more: {reading.error or f'it reads {reading.outcome.value}'}"
            for key, reading in zip(restored, readings, strict=True)
            if reading.outcome is not Outcome.HELD_RESTORED
        }
        if self._lost:
            await self.abort(cancelled=True)
            raise self.held() or self.error()

    async def resume(self) -> RestoreResult:
        """Reopen everybody, after a last look whether everybody still holds what was restored.

        Raises:
            RestoreFailed: somebody does not, since it was restarted, say; held closed. An abort is what is left.
            StorageFailed: a restore whose place it takes could not be marked as replaced; nobody was resumed.
            InDoubt: somebody could not be proven open.
        """
        if self.state is _S.RESTORED:
            await self._look_once_more()
            for replaced in self.replaces:
                await replaced.give_way(self.wire_id)
        await self._advance(m.ReleaseRequested(), _S.RESUMED)
        ledger, manifest = self._runner.ledger, self._storage.manifest
        return RestoreResult(
            label=manifest.label,
            wire_id=self.wire_id,
            source_wire_id=manifest.checkpoint_id,
            directory=self.directory,
            rollouts=self.rollouts,
            restarting=tuple(entry.attempt for entry in manifest.restarting),
            discarded=tuple(self._discarded),
            storage_keys=tuple(key for entry in manifest.deployments.values() for key in entry.storage_keys),
            timings=timings(ledger, self._runner.now_s()),
            notes=self.notes(),
        )
