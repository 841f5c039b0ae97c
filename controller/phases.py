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
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from quiesce.controller.budgets import Budgets
from quiesce.controller.cancellation import finish_first
from quiesce.controller.cut_storage import CutStorage, RestoreStorage
from quiesce.controller.errors import PublishUncertain, StorageFailed
from quiesce.controller.outcomes import error_of, in_doubt, restore_failed, timings
from quiesce.controller.results import CutResult, RestoreResult
from quiesce.controller.runner import TransactionRunner
from quiesce.fsm import messages as m
from quiesce.fsm.errors import IllegalTransition, QuiesceError
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.transaction import TRANSACTION, TransactionState
from quiesce.fsm.transaction import is_owed
from quiesce.fsm.vocabulary import ParticipantKey, Phase
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.replies import DrainProgress

__all__ = ["PhasedCut", "PhasedRestore"]

_S = TransactionState
_DOUBTS: Final = frozenset({_S.IN_DOUBT_PUBLISHED, _S.IN_DOUBT_UNPUBLISHED, _S.PUBLISH_UNKNOWN})
_NAMING_S: Final = 0.5
"""How long the readings of the others are waited for when one of them ends the preflight: all are named at once."""


class _Phased:
    """What a cut and a restore share: a runner, and ending it well."""

    def __init__(self, runner: TransactionRunner, budgets: Budgets) -> None:
        self._runner = runner
        self._budgets = budgets

    @property
    def wire_id(self) -> str:
        """The id that the participants see."""
        return self._runner.wire_id

    @property
    def state(self) -> TransactionState:
        """Where the transaction stands."""
        return self._runner.state.transaction

    def progress(self) -> Mapping[ParticipantKey, tuple[ParticipantState, DrainProgress | None]]:
        """For each participant its state and the last that was heard of its drain."""
        return {key: (entry.state, entry.progress) for key, entry in self._runner.ledger.entries.items()}

    def owed(self) -> tuple[ParticipantKey, ...]:
        """Participants that may be closed on this transaction's account."""
        state = self._runner.state
        return tuple(
            spec.key for spec, member in zip(state.plan.members, state.members, strict=True) if is_owed(member)
        )

    def error(self) -> Exception:
        """Why the transaction did not end as asked: one error, or a group of several, with what was noticed."""
        error = error_of(self.wire_id, self._runner.state, self._runner.ledger, self._budgets, self._runner.stood)
        for note in self.notes():
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)
        return error

    async def _advance(self, request: m.Event, *states: TransactionState) -> None:
        """Ask for a step and wait for the state that it leads to.

        Raises:
            IllegalTransition: the step is not possible now; nothing changed.
            QuiesceError: the transaction ended otherwise; everybody was reopened or is named in doubt.
        """
        try:
            await self._runner.request(request)
        except IllegalTransition:
            if not self._runner.ledger.failures:
                raise
        if await self._runner.reached(*states) not in states:
            if self._runner.ledger.left == _S.PREFLIGHT:
                await self._runner.calls_ended(_NAMING_S)
            raise self.error()

    async def abort(self, *, cancelled: bool = False) -> None:
        """Undo the transaction, or finish it where that is too late, and wait until it rests.

        ``cancelled`` says that the caller went away rather than asked; the difference matters to a restore, which a
        cancellation holds closed. Returns also when somebody is left in doubt: see :meth:`held`.
        """
        await finish_first(self._abort(m.Cancelled() if cancelled else m.AbortRequested()))

    async def _abort(self, event: m.Event) -> None:
        with suppress(IllegalTransition):  # it rests already, and has nothing left to undo
            await self._runner.request(event)
        await self._runner.reached()

    async def retry(self) -> None:
        """Try again: a failed restore under the same id, or whoever is in doubt; wait until it rests.

        A restore that succeeds now is restored and still closed.

        Raises:
            IllegalTransition: there is nothing to retry.
            RestoreFailed: it failed again and is still held closed.
            InDoubt: somebody is still owed a resume.
        """
        await self._runner.request(m.RetryRequested())
        await self._runner.reached(_S.RESTORED)
        held = self.held()
        if held is not None:
            raise held

    async def settle(self) -> None:
        """Retry whoever is owed a resume.

        Raises:
            InDoubt: somebody still is.
            RestoreFailed: a failed restore is not opened by this; retry it or abort it.
            ConfigurationError: it was never ended; publish or resume it, or abort it.
        """
        if self.state in _DOUBTS and self.owed():
            await self.retry()
        held = self.held()
        if held is not None:
            raise held
        if not self.is_settled():
            raise ConfigurationError(f"{self.wire_id} is {self.state.value}: end it, or abort it")

    def is_settled(self) -> bool:
        """Whether nothing of it is open: everybody accepts work, and what became of the snapshot is known."""
        return self.state in TRANSACTION.final or self.state is _S.IDLE

    def held(self) -> QuiesceError | None:
        """Why a transaction that rests is not settled.

        RestoreFailed for a restore that is held closed, InDoubt where somebody is owed a resume, else None.
        """
        if self.state is _S.RESTORE_FAILED:
            return restore_failed(self.wire_id, self._runner.state, self._runner.ledger)
        if self.state in _DOUBTS and self.owed():
            return in_doubt(self.wire_id, self._runner.state, self._runner.ledger)
        return None

    def notes(self) -> tuple[str, ...]:
        """What was noticed and changed nothing, each a sentence."""
        return tuple(self._runner.ledger.notes)

    async def close(self) -> None:
        """Stop the transaction's tasks. Whoever is owed a resume stays so: abort or publish first.

        A journal that could not be completed is noted: what was decided is decided.
        """
        await self._runner.close()


class PhasedCut(_Phased):
    """One cut."""

    def __init__(self, runner: TransactionRunner, budgets: Budgets, label: str, storage: CutStorage) -> None:
        super().__init__(runner, budgets)
        self.label = label
        self._storage = storage

    @property
    def directory(self) -> Path:
        """Where the snapshot is put together; put what belongs to it into ``directory / "trainer"``."""
        return self._storage.staged.directory

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
        await self._advance(m.PublishRequested(), _S.RESUMED)
        return self._result()

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
        """Remove what was staged, unless it may have been published. A failure to do so is noted."""
        if self.state in (_S.PUBLISH_UNKNOWN, _S.RESUMED, _S.IN_DOUBT_PUBLISHED):
            return
        try:
            await asyncio.to_thread(self._storage.discard)
        except StorageFailed as error:
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


class PhasedRestore(_Phased):
    """One restore."""

    def __init__(self, runner: TransactionRunner, budgets: Budgets, storage: RestoreStorage) -> None:
        super().__init__(runner, budgets)
        self._storage = storage

    @property
    def directory(self) -> Path:
        """The snapshot that is restored; the trainer's own part is in ``directory / "trainer"``."""
        return self._storage.final_directory

    def to_restart(self) -> tuple[ParticipantKey, ...]:
        """Whose process must be restarted after an abort: it holds restored state, or may hold half of it."""
        state = self._runner.state
        return tuple(
            spec.key
            for spec, member in zip(state.plan.members, state.members, strict=True)
            if Phase.RESTORE in spec.phases and member.state is not ParticipantState.IDLE
        )

    async def restore(self) -> None:
        """Have everybody import, policies first; all stay closed.

        Raises:
            RestoreFailed: held closed; :meth:`retry` or :meth:`abort`.
            QuiesceError: nothing was imported; everybody accepts work.
        """
        await self._advance(m.Begin(), _S.RESTORED)

    async def resume(self) -> RestoreResult:
        """Reopen everybody.

        Raises:
            InDoubt: somebody could not be proven open.
        """
        await self._advance(m.ReleaseRequested(), _S.RESUMED)
        ledger, manifest = self._runner.ledger, self._storage.manifest
        return RestoreResult(
            label=manifest.label,
            wire_id=self.wire_id,
            source_wire_id=manifest.checkpoint_id,
            directory=self.directory,
            rollouts=tuple(entry.attempt for entry in manifest.rollouts),
            restarting=tuple(entry.attempt for entry in manifest.restarting),
            discarded=(),
            storage_keys=tuple(key for entry in manifest.deployments.values() for key in entry.storage_keys),
            timings=timings(ledger, self._runner.now_s()),
            notes=self.notes(),
        )
