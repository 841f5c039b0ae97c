"""The context managers of the embedding API, built of the phases and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

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


class Cut:
    """A cut: on entering everybody is drained, paused and exported; on leaving it is published and everybody resumed.

    An exception in the body aborts it: everybody is resumed, nothing is published, the exception goes on its way. If
    then somebody is in doubt, the exception comes in a group together with InDoubt.
    """

    def __init__(self, controller: Controller, label: str, metadata: Mapping[str, JsonValue]) -> None:
        self.label = label
        self._controller = controller
        self._metadata = metadata
        self._phased: PhasedCut | TrainerOnlyCut | None = None
        self._result: CutResult | None = None

    @property
    def wire_id(self) -> str:
        """The id that the participants see."""
        return self._opened.wire_id

    @property
    def directory(self) -> Path:
        """Where the snapshot is put together; put the trainer's own part into ``directory / "trainer"``."""
        return self._opened.directory

    @property
    def result(self) -> CutResult:
        """What the cut came to; there once the context was left without an exception.

        Raises:
            ConfigurationError: asked for too early, or the cut was not published.
        """
        if self._result is None:
            raise ConfigurationError(
                f"the cut {self.label} has no result; it is there once the cut was left and published"
            )
        return self._result

    def progress(self) -> Mapping[ParticipantKey, tuple[ParticipantState, DrainProgress | None]]:
        """For each participant its state and the last that was heard of its drain; empty before the cut begins."""
        return self._phased.progress() if self._phased is not None else {}

    async def __aenter__(self) -> Self:
        if self._phased is not None:
            raise ConfigurationError(f"the cut {self.label} was entered before; take another one by controller.cut()")
        try:
            if self._controller.config.enabled:
                self._phased = await self._controller.begin_cut(self.label, metadata=self._metadata)
                await self._phased.prepare()
                await self._phased.commit()
            else:
                self._phased = await self._controller.begin_trainer_only(self.label, self._metadata)
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
                raise ExceptionGroup(f"{self.wire_id} was aborted and somebody is in doubt", [error, held])
            return
        try:
            self._result = await self._opened.publish()
        except BaseException as failure:
            await finish_first(self._leave(failure))
            raise
        await finish_first(self._leave(None))

    async def _leave(self, error: BaseException | None) -> QuiesceError | None:
        """Bring the transaction to rest and give the turn back; says what is open where the caller cannot know."""
        phased = self._phased
        if phased is None:
            return None
        held: QuiesceError | None = None
        try:
            if isinstance(phased, PhasedCut):
                if error is not None:
                    await phased.abort(cancelled=isinstance(error, asyncio.CancelledError))
                held = phased.held()
            if self._result is None:
                await phased.discard()
        finally:
            await self._controller.end(phased)
        if self._result is not None:
            self._result = replace(self._result, notes=phased.notes())
        return held

    @property
    def _opened(self) -> PhasedCut | TrainerOnlyCut:
        if self._phased is None:
            raise ConfigurationError(
                f"the cut {self.label} was not entered; use it as 'async with controller.cut(...)'"
            )
        return self._phased


class Restored:
    """A restore: on entering everybody was restored and is still closed; on leaving everybody is resumed.

    When it fails, also by an exception in the body, it is held closed and RestoreFailed says who stands where:
    ``controller.unsettled`` is then the restore to ``retry()`` or ``abort()``.
    """

    def __init__(self, controller: Controller, label: str) -> None:
        self.label = label
        self._controller = controller
        self._phased: PhasedRestore | TrainerOnlyRestore | None = None
        self._result: RestoreResult | None = None

    @property
    def wire_id(self) -> str:
        """The id of this restore that the participants see."""
        return self._opened.wire_id

    @property
    def directory(self) -> Path:
        """The snapshot; the trainer's own part is in ``directory / "trainer"``."""
        return self._opened.directory

    @property
    def result(self) -> RestoreResult:
        """What the restore came to; there once the context was left without an exception.

        Raises:
            ConfigurationError: asked for too early, or the restore did not succeed.
        """
        if self._result is None:
            raise ConfigurationError(
                f"the restore of {self.label} has no result; it is there once everybody was resumed"
            )
        return self._result

    def progress(self) -> Mapping[ParticipantKey, tuple[ParticipantState, DrainProgress | None]]:
        """For each participant its state; empty before the restore begins."""
        return self._phased.progress() if self._phased is not None else {}

    @property
    def rollouts(self) -> tuple[AttemptId, ...]:
        """The attempts that go on, as they stood at the cut; each runs on as attempt n + 1."""
        return self._opened.rollouts

    async def discard(self, attempts: Iterable[AttemptId]) -> tuple[AttemptId, ...]:
        """Drop continuations that are not wanted, named as in :attr:`rollouts`; returns those that were dropped.

        Raises as :meth:`quiesce.controller.phases.PhasedRestore.discard`.
        """
        return await self._opened.discard(attempts)

    async def __aenter__(self) -> Self:
        if self._phased is not None:
            raise ConfigurationError(
                f"the restore of {self.label} was entered before; begin another one by controller.restore()"
            )
        try:
            if self._controller.config.enabled:
                self._phased = await self._controller.begin_restore(self.label)
                await self._phased.restore()
            else:
                self._phased = await self._controller.begin_trainer_only_restore(self.label)
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
                raise ExceptionGroup(f"{self.wire_id} is held closed", [error, held])
            return
        try:
            self._result = await self._opened.resume()
        except BaseException as failure:
            await finish_first(self._leave(failure))
            raise
        await finish_first(self._leave(None))

    async def _leave(self, error: BaseException | None) -> QuiesceError | None:
        """Bring the restore to rest and give the turn back; says what is open where the caller cannot know."""
        phased = self._phased
        if phased is None:
            return None
        held: QuiesceError | None = None
        try:
            if isinstance(phased, PhasedRestore):
                if error is not None:
                    # whoever failed in the body did not ask for half a restore to be opened
                    await phased.abort(cancelled=True)
                held = phased.held()
        finally:
            await self._controller.end(phased)
        if self._result is not None:
            self._result = replace(self._result, notes=phased.notes())
        return held

    @property
    def _opened(self) -> PhasedRestore | TrainerOnlyRestore:
        if self._phased is None:
            raise ConfigurationError("the restore was not entered; use it as 'async with controller.restore(...)'")
        return self._phased
