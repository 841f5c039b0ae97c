"""A cut and a restore phase by phase, for whoever wants to stand between the phases.

The context managers of :class:`quiesce.controller.api.Controller` are built of nothing else. The low-level interface:
whoever opens a :class:`PhasedCut` must end it with :meth:`~PhasedCut.publish` or :meth:`~PhasedCut.abort`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from quiesce.controller.budgets import Budgets
from quiesce.controller.cancellation import finish_first
from quiesce.controller.cut_storage import CutStorage, RestoreStorage
from quiesce.controller.errors import InDoubt, StorageFailed
from quiesce.controller.outcomes import error_of, in_doubt, restore_failed, timings
from quiesce.controller.results import CutResult, RestoreResult
from quiesce.controller.runner import TransactionRunner
from quiesce.fsm import messages as m
from quiesce.fsm.errors import IllegalTransition, QuiesceError
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.tables.transaction import TransactionState
from quiesce.fsm.transaction import is_owed
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.replies import DrainProgress

__all__ = ["PhasedCut", "PhasedRestore"]

_S = TransactionState


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
        """Why the transaction did not end as asked: one error, or a group of several."""
        return error_of(self.wire_id, self._runner.state, self._runner.ledger, self._budgets, self._runner.stood)

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
            raise self.error()

    async def abort(self, *, cancelled: bool = False) -> None:
        """Undo the transaction, or finish it where that is too late, and wait until it rests.

        ``cancelled`` says that the caller went away rather than asked; the difference matters to a restore, which a
        cancellation holds closed. Returns also when somebody is left in doubt: see :meth:`owed`.
        """
        await finish_first(self._abort(m.Cancelled() if cancelled else m.AbortRequested()))

    async def _abort(self, event: m.Event) -> None:
        with suppress(IllegalTransition):  # it rests already, and has nothing left to undo
            await self._runner.request(event)
        await self._runner.reached()

    async def retry(self) -> None:
        """Try again: a failed restore under the same id, or whoever is in doubt; wait until it rests.

        Raises:
            IllegalTransition: there is nothing to retry.
        """
        await self._runner.request(m.RetryRequested())
        await self._runner.reached(_S.RESTORED)

    async def settle(self) -> None:
        """Retry whoever is owed a resume.

        Raises:
            InDoubt: somebody still is.
            RestoreFailed: a failed restore is not opened by this; retry it or abort it.
        """
        if self.state is not _S.RESTORE_FAILED and self.owed():
            await self.retry()
        held = self.held()
        if held is not None:
            raise held

    def doubt(self) -> InDoubt | None:
        """Who is owed a resume, once the transaction rests; None when nobody is."""
        return in_doubt(self.wire_id, self._runner.state, self._runner.ledger) if self.owed() else None

    def held(self) -> QuiesceError | None:
        """RestoreFailed for a restore that is held closed, InDoubt where somebody is owed a resume, else None."""
        if self.state is _S.RESTORE_FAILED:
            return restore_failed(self.wire_id, self._runner.state, self._runner.ledger)
        return self.doubt()

    async def close(self) -> None:
        """Stop the transaction's tasks. Whoever is owed a resume stays so: abort or publish first."""
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
            notes=tuple(ledger.notes),
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
            notes=tuple(ledger.notes),
        )
