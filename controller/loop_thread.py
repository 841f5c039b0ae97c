"""An event loop on a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from quiesce.participants.errors import ConfigurationError

__all__ = ["LoopThread", "refuse_in_a_loop"]

T = TypeVar("T")


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="quiesce controller", daemon=True)
        self._thread.start()
        self._aside: list[asyncio.Task[None]] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop and wait for its end; what interrupts the wait, cancels it and is raised afterwards.

        A second interruption is raised at once; ``work`` then goes on by itself.
        """
        task: Future[asyncio.Task[T]] = Future()
        outcome: Future[T] = Future()
        self.soon(lambda: task.set_result(self._started(work, outcome)))
        try:
            return outcome.result()
        except BaseException:
            if not outcome.done():
                self.soon(lambda: _cancel(task.result()))
                outcome.exception()
            raise

    def go(self, work: Coroutine[Any, Any, None]) -> None:
        """Have the loop run ``work``; nobody waits for it. May be called from a signal handler."""
        self.soon(lambda: self._aside.append(self._loop.create_task(work)))

    def soon(self, act: Callable[[], None]) -> None:
        """Have the loop do something; may be called from a signal handler."""
        self._loop.call_soon_threadsafe(act)

    def stop(self) -> None:
        """End the loop and its thread."""
        self.soon(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _started(self, work: Coroutine[Any, Any, T], outcome: Future[T]) -> asyncio.Task[T]:
        task = self._loop.create_task(work)
        task.add_done_callback(lambda done: _tell(done, outcome))
        return task


def _cancel(task: asyncio.Task[T]) -> None:
    task.cancel()


def _tell(task: asyncio.Task[T], outcome: Future[T]) -> None:
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    if error is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(task.result())


def refuse_in_a_loop() -> None:
    """Raise ConfigurationError where an event loop runs in this thread, which would stand still meanwhile."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        "an event loop runs in this thread, which a blocking call would stop; use Controller there"
    )
