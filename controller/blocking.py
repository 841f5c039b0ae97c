"""The controller for training code without an event loop: the same API, synchronously, on a thread of its own.

::

    with BlockingController.from_config("quiesce.toml", on_completed=trainer.keep) as controller:
        with controller.cut("step-40", metadata={"step": 40}) as cut:
            trainer.save(cut.directory / "trainer")

Each call waits for what the asynchronous controller does on the thread's loop. Ctrl-C (KeyboardInterrupt, as any other
exception that interrupts the wait) aborts what is waited for: before the snapshot is published everybody is reopened,
afterwards the resume is finished; then the exception goes on its way. A second one does not wait any more; then, and
where the program ends with the controller still open, the end of the interpreter closes it.

``on_completed``, ``on_asked_cut`` and observers are called on the controller's thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401 - registers its end before ours, which must come first
import signal
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from pydantic import JsonValue

from quiesce.controller.api import Controller
from quiesce.controller.cancellation import finish_first
from quiesce.controller.catalog import SnapshotEntry
from quiesce.controller.config import Config, load_config
from quiesce.controller.contexts import Cut, Restored
from quiesce.controller.discovery import Discovered
from quiesce.controller.last_cut import ENDED_BY_SIGNAL, OnAskedCut
from quiesce.controller.loop_thread import LoopThread, refuse_in_a_loop
from quiesce.controller.phases import PhasedCut
from quiesce.controller.ports import OnCompleted
from quiesce.controller.results import CutResult, RestoreResult
from quiesce.controller.retention import Pruned
from quiesce.controller.snapshots import SnapshotStore
from quiesce.controller.trainer_only import TrainerOnlyCut
from quiesce.fsm.tables.participant import ParticipantState
from quiesce.fsm.trace import TraceRecord
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import DrainProgress
from quiesce.transport.port import Transport
from quiesce.transport.token import TokenProvider

__all__ = ["BlockingController", "BlockingCut", "BlockingRestored"]

T = TypeVar("T")
C = TypeVar("C", bound=Cut | Restored)


class BlockingController:
    """:class:`~quiesce.controller.api.Controller` for code without an event loop. Used by one thread at a time.

    Args: as Controller.
    """

    def __init__(
        self,
        config: Config,
        *,
        on_completed: OnCompleted | None = None,
        on_asked_cut: OnAskedCut | None = None,
        transport: Transport | None = None,
        tokens: TokenProvider | None = None,
        observers: tuple[Callable[[TraceRecord], None], ...] = (),
    ) -> None:
        # signals go to the main thread and not to the loop's; they are passed on
        self._signals = tuple(signal.Signals[name] for name in config.last_cut_signals)
        self._before: dict[signal.Signals, Any] = {}
        self._controller = Controller(
            config.model_copy(update={"last_cut_signals": ()}),
            on_completed=on_completed,
            on_asked_cut=on_asked_cut,
            transport=transport,
            tokens=tokens,
            observers=observers,
        )
        self._loop: LoopThread | None = None
        self._closing: asyncio.Task[None] | None = None
        self._is_over = False

    @classmethod
    def from_config(
        cls,
        source: Config | Path | str,
        *,
        on_completed: OnCompleted | None = None,
        on_asked_cut: OnAskedCut | None = None,
        observers: tuple[Callable[[TraceRecord], None], ...] = (),
    ) -> Self:
        """A controller for a configuration file (or a configuration that was read already).

        Raises:
            ConfigurationError: the file cannot be used; every problem is named.
        """
        config = source if isinstance(source, Config) else load_config(source)
        return cls(config, on_completed=on_completed, on_asked_cut=on_asked_cut, observers=observers)

    # life

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """As :meth:`Controller.open`.

        Raises:
            ConfigurationError: also where an event loop runs in this thread: use Controller there; or it is open.
        """
        refuse_in_a_loop()
        if self._loop is not None:
            raise ConfigurationError("the controller is open already")
        self._loop = LoopThread()
        try:
            _close_at_exit(self)
            self._run(self._controller.open)
            self._listen()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """As :meth:`Controller.close`. What still runs is aborted first; once closed, nothing more happens.

        Ctrl-C meanwhile is raised when all of that is done; a second one at once, and then the end of the interpreter,
        or another call of this, waits for it.
        """
        try:
            self._wait_for_close()
        except BaseException:
            if self._closing is None:  # interrupted before it began
                self._wait_for_close()
            raise
        finally:
            self._clear_away()

    def _wait_for_close(self) -> None:
        if self._loop is not None:
            self._loop.run(self._close)

    def _clear_away(self) -> None:
        if self._loop is not None and self._closing is not None and self._closing.done():
            self._listen_no_more()
            loop, self._loop, self._closing = self._loop, None, None
            loop.stop()
            _OPEN.discard(self)

    async def _close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._closed())
        await finish_first(_end_of(self._closing))

    async def _closed(self) -> None:
        running = self._controller.running
        if running is not None:  # its context was not left, and will not be
            await running.abort(cancelled=True)
            if isinstance(running, PhasedCut | TrainerOnlyCut):
                await running.discard()
            await self._controller.end(running)
        await self._controller.close()

    @property
    def config(self) -> Config:
        """What is to be cut."""
        return self._controller.config

    @property
    def store(self) -> SnapshotStore:
        """The snapshots under the root."""
        return self._controller.store

    @property
    def discovered(self) -> Discovered | None:
        """Who was found; None before :meth:`open` and where the configuration is not enabled."""
        return self._controller.discovered

    @property
    def last_cut(self) -> CutResult | None:
        """As :attr:`Controller.last_cut`."""
        return self._controller.last_cut

    # transactions

    def cut(self, label: str, *, metadata: Mapping[str, JsonValue] | None = None) -> BlockingCut:
        """As :meth:`Controller.cut`, for a plain ``with``."""
        return BlockingCut(self._run, self._controller.cut(label, metadata=metadata))

    def restore(self, label: str) -> BlockingRestored:
        """As :meth:`Controller.restore`, for a plain ``with``."""
        return BlockingRestored(self._run, self._controller.restore(label))

    def snapshots(self) -> tuple[SnapshotEntry, ...]:
        """As :meth:`Controller.snapshots`."""
        return self._run(self._controller.snapshots)

    def prune(self, *, keep: int | None = None, dry_run: bool = False) -> Pruned:
        """As :meth:`Controller.prune`."""
        return self._run(lambda: self._controller.prune(keep=keep, dry_run=dry_run))

    def settle(self) -> None:
        """As :meth:`Controller.settle`."""
        self._run(self._controller.settle)

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._opened().run(work)

    def _opened(self) -> LoopThread:
        refuse_in_a_loop()
        if self._loop is None:
            raise ConfigurationError("the controller is not open; use it as 'with BlockingController...'")
        return self._loop

    # signals

    def _listen(self) -> None:
        for number in self._signals:
            try:
                self._before[number] = signal.signal(number, self._announced)
            except ValueError:
                raise ConfigurationError(
                    f"last_cut_signals: {number.name} can be listened for in the main thread alone"
                ) from None

    def _listen_no_more(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()

    def _announced(self, number: int, _frame: FrameType | None) -> None:
        """The end was announced: the last cut is taken while this thread goes on, and then this thread is ended."""
        if self._is_over:
            raise SystemExit(ENDED_BY_SIGNAL + number)
        if self._loop is not None:
            self._loop.go(self._end(number))

    async def _end(self, number: int) -> None:
        self._controller.take_last_cut(signal.Signals(number).name)
        await self._controller.last_cut_over()
        if not self._is_over:
            self._is_over = True
            signal.pthread_kill(threading.main_thread().ident or 0, number)


class _Blocking(Generic[C]):
    """A transaction's context manager, entered and left on the controller's loop."""

    def __init__(self, run: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any], context: C) -> None:
        self._run = run
        self._context = context
        self._is_entered = False

    @property
    def label(self) -> str:
        """What the caller named it."""
        return self._context.label

    @property
    def wire_id(self) -> str:
        """The id that the participants see."""
        return self._context.wire_id

    @property
    def directory(self) -> Path:
        """The snapshot's folder; the trainer's own part is in ``directory / "trainer"``."""
        return self._context.directory

    def progress(self) -> Mapping[ParticipantKey, tuple[ParticipantState, DrainProgress | None]]:
        """For each participant its state and the last that was heard of its drain."""
        return self._context.progress()

    def __enter__(self) -> Self:
        try:
            self._run(self._enter)
        except BaseException as error:
            self._leave_after(error)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._run(lambda: self._leave(kind, error, trace))
        except BaseException as interruption:
            self._leave_after(interruption)
            raise

    async def _enter(self) -> None:
        await self._context.__aenter__()
        self._is_entered = True

    async def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_entered = False
        await self._context.__aexit__(kind, error, trace)

    def _leave_after(self, error: BaseException) -> None:
        """Leave it where an interruption came between being entered and being left, and nobody else would."""
        if self._is_entered:
            self._run(lambda: self._leave(type(error), error, error.__traceback__))


class BlockingCut(_Blocking[Cut]):
    """As :class:`~quiesce.controller.contexts.Cut`, for a plain ``with``."""

    @property
    def result(self) -> CutResult:
        """As :attr:`Cut.result`."""
        return self._context.result


class BlockingRestored(_Blocking[Restored]):
    """As :class:`~quiesce.controller.contexts.Restored`, for a plain ``with``."""

    @property
    def result(self) -> RestoreResult:
        """As :attr:`Restored.result`."""
        return self._context.result

    @property
    def rollouts(self) -> tuple[AttemptId, ...]:
        """As :attr:`Restored.rollouts`."""
        return self._context.rollouts

    def discard(self, attempts: Iterable[AttemptId]) -> tuple[AttemptId, ...]:
        """As :meth:`Restored.discard`."""
        dropped: tuple[AttemptId, ...] = self._run(lambda: self._context.discard(attempts))
        return dropped


async def _end_of(task: asyncio.Task[None]) -> None:
    await task


_OPEN: Final[weakref.WeakSet[BlockingController]] = weakref.WeakSet()
_exit_is_hooked = False


def _close_at_exit(controller: BlockingController) -> None:
    """Have the end of the interpreter close it. ``atexit`` comes too late: no thread can be started any more then."""
    global _exit_is_hooked  # noqa: PLW0603 - once a process
    _OPEN.add(controller)
    if not _exit_is_hooked:
        threading._register_atexit(_close_all)  # type: ignore[attr-defined]  # noqa: SLF001 - as concurrent.futures does
        _exit_is_hooked = True


def _close_all() -> None:
    for controller in list(_OPEN):
        controller.close()
