"""The context managers of the embedding API, built of the phases and nothing else."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Generic, Self, TypeVar

from pydantic import JsonValue

from quiesce.controller.cancellation import finish_first
from quiesce.controller.phases import PhasedCut, PhasedRestore
from quiesce.controller.results import CutResult, RestoreResult
from quiesce.controller.trainer_only import TrainerOnlyCut, TrainerOnlyRestore
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import DrainProgress

if TYPE_CHECKING:
    from quiesce.controller.api import Controller

__all__ = ["Cut", "Restored"]

P = TypeVar("P", PhasedCut | TrainerOnlyCut, PhasedRestore | TrainerOnlyRestore)
R = TypeVar("R", CutResult, RestoreResult)


class _Context(ABC, Generic[P, R]):
    """Enters a transaction, and leaves it at rest whatever happens. It is entered once."""

    what: ClassVar[str]
    """What it is called in errors."""
    opened_by: ClassVar[str]
    left_as: ClassVar[str]
    """What has become of it where its body failed and somebody is still closed."""

    def __init__(self, controller: Controller, label: str) -> None:
        self.label = label
        self._controller = controller
        self._phased: P | None = None
        self._result: R | None = None

    @property
    def wire_id(self) -> str:
        """The id that the participants see."""
        return self._opened.wire_id

    @property
    def result(self) -> R:
        """What it came to; there once the context was left without an exception.

        Raises:
            ConfigurationError: asked for too early, or it did not succeed.
        """
        if self._result is None:
            raise ConfigurationError(
                f"{self.what} {self.label} has no result; it is there once it was left and succeeded"
            )
        return self._result

    def progress(self) -> Mapping[ParticipantKey, tuple[ParticipantState, DrainProgress | None]]:
        """For each participant its state and the last that was heard of its drain; empty before it begins."""
        return self._phased.progress() if self._phased is not None else {}

    async def __aenter__(self) -> Self:
        if self._phased is not None:
            raise ConfigurationError(f"{self.what} {self.label} was entered before; begin another one")
        try:
            self._phased = await self._begin()
            await self._reach(self._phased)
        except BaseException as error:
            await finish_first(self._leave(error))
            raise
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is not None:
            held = await finish_first(self._leave(error))
            if held is not None and isinstance(error, Exception):
                raise ExceptionGroup(f"{self.wire_id} {self.left_as}", [error, held])
            return
        try:
            self._result = await self._finish(self._opened)
        except BaseException as failure:
            await finish_first(self._leave(failure))
            raise
        await finish_first(self._leave(None))

    async def _leave(self, error: BaseException | None) -> QuiesceError | None:
        """Bring the transaction to rest and give the turn back; says what is open where the caller cannot know."""
        phased = self._phased
        if phased is None:
            return None
        try:
            if error is not None:
                await phased.abort(cancelled=self._is_no_request(error))
            held = phased.held()
            await self._tidy(phased)
        finally:
            await self._controller.end(phased)
        if self._result is not None:
            self._result = replace(self._result, notes=phased.notes())
        return held

    @property
    def _opened(self) -> P:
        if self._phased is None:
            raise ConfigurationError(
                f"{self.what} {self.label} was not entered; use it as 'async with {self.opened_by}'"
            )
        return self._phased

    @abstractmethod
    async def _begin(self) -> P:
        """Take the turn and open the transaction."""

    @abstractmethod
    async def _reach(self, phased: P) -> None:
        """Go on to where the body begins."""

    @abstractmethod
    async def _finish(self, phased: P) -> R:
        """Go on from where the body has ended."""

    @abstractmethod
    def _is_no_request(self, error: BaseException) -> bool:
        """Whether an error in the body only says that the caller went away, and does not ask for an abort."""

    async def _tidy(self, phased: P) -> None:
        """Remove what is of no use any more."""


class Cut(_Context[PhasedCut | TrainerOnlyCut, CutResult]):
    """A cut: on entering everybody is drained, paused and exported; on leaving it is published and everybody resumed.

    An exception in the body aborts it: everybody is resumed, nothing is published, the exception goes on its way. If
    then somebody is in doubt, the exception comes in a group together with InDoubt.
    """

    what = "the cut"
    opened_by = "controller.cut(...)"
    left_as = "was aborted and somebody is in doubt"

    def __init__(self, controller: Controller, label: str, metadata: Mapping[str, JsonValue]) -> None:
        super().__init__(controller, label)
        self._metadata = metadata

    @property
    def directory(self) -> Path:
        """Where the snapshot is put together; put the trainer's own part into ``directory / "trainer"``."""
        return self._opened.directory

    @property
    def is_published(self) -> bool:
        """Whether the snapshot stands and everybody accepts work; also where the caller was cancelled meanwhile."""
        return self._phased is not None and self._phased.is_published

    async def _begin(self) -> PhasedCut | TrainerOnlyCut:
        if self._controller.config.enabled:
            return await self._controller.begin_cut(self.label, metadata=self._metadata)
        return await self._controller.begin_trainer_only(self.label, self._metadata)

    async def _reach(self, phased: PhasedCut | TrainerOnlyCut) -> None:
        if isinstance(phased, PhasedCut):
            await phased.prepare()
            await phased.commit()

    async def _finish(self, phased: PhasedCut | TrainerOnlyCut) -> CutResult:
        return await phased.publish()

    async def _tidy(self, phased: PhasedCut | TrainerOnlyCut) -> None:
        if self._result is None:
            await phased.discard()

    def _is_no_request(self, error: BaseException) -> bool:
        return isinstance(error, asyncio.CancelledError)


class Restored(_Context[PhasedRestore | TrainerOnlyRestore, RestoreResult]):
    """A restore: on entering everybody was restored and is still closed; on leaving everybody is resumed.

    When it fails, also by an exception in the body, it is held closed and RestoreFailed says who stands where:
    ``controller.unsettled`` is then the restore to ``retry()`` or ``abort()``.
    """

    what = "the restore of"
    opened_by = "controller.restore(...)"
    left_as = "is held closed"

    @property
    def directory(self) -> Path:
        """The snapshot; the trainer's own part is in ``directory / "trainer"``."""
        return self._opened.directory

    @property
    def rollouts(self) -> tuple[AttemptId, ...]:
        """The attempts that go on, as they stood at the cut; each runs on as attempt n + 1."""
        return self._opened.rollouts

    async def discard(self, attempts: Iterable[AttemptId]) -> tuple[AttemptId, ...]:
        """Drop continuations that are not wanted, named as in :attr:`rollouts`; returns those that were dropped.

        Raises as :meth:`quiesce.controller.phases.PhasedRestore.discard`.
        """
        return await self._opened.discard(attempts)

    async def _begin(self) -> PhasedRestore | TrainerOnlyRestore:
        if self._controller.config.enabled:
            return await self._controller.begin_restore(self.label)
        return await self._controller.begin_trainer_only_restore(self.label)

    async def _reach(self, phased: PhasedRestore | TrainerOnlyRestore) -> None:
        if isinstance(phased, PhasedRestore):
            await phased.restore()

    async def _finish(self, phased: PhasedRestore | TrainerOnlyRestore) -> RestoreResult:
        return await phased.resume()

    def _is_no_request(self, _error: BaseException) -> bool:
        return True  # whoever failed in the body did not ask for half a restore to be opened
