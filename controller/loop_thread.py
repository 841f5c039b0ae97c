"""An event loop on a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from quiesce.participants.errors import ConfigurationError

__all__ = ["LoopThread", "refuse_in_a_loop"]

T = TypeVar("T")

HEARS_WITHIN_S: Final = 0.2
"""Seconds of one piece of a wait: a signal that comes right before a wait is heard no sooner than that wait is over."""


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._forever, name="quiesce controller", daemon=True)
        self._thread.start()
        self._aside: list[asyncio.Task[None]] = []

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run ``work()`` on the loop and wait for its end; what interrupts the wait cancels it and is raised then.

        A second interruption is raised at once; ``work`` then goes on by itself. Interrupted early, it never begins.
        """
        awaited = _Awaited(work)
        try:
            self.soon(awaited.begin)
            awaited.wait()
        except BaseException:
            if not awaited.is_over:
                self.soon(awaited.call_off)
                awaited.wait()
            raise
        return awaited.result()

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

    def _forever(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


class _Awaited(Generic[T]):
    """Work on the loop for which another thread waits.

    Whoever waits may be interrupted between any two instructions, also with a lock in its hands; so the loop never
    takes a lock of whoever waits, as it would to end a concurrent Future.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self.is_over = False
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._end = threading.Lock()
        self._end.acquire()

    def begin(self) -> None:
        """On the loop: run it."""
        self._task = asyncio.get_running_loop().create_task(self._work())
        self._task.add_done_callback(self._ended)

    def call_off(self) -> None:
        """On the loop: cancel it; where it has not begun, it never will."""
        if self._task is None:
            self._over()
        else:
            self._task.cancel()

    def wait(self) -> None:
        """Until it is over."""
        while not self._end.acquire(timeout=HEARS_WITHIN_S):
            pass

    def result(self) -> T:
        """What it came to; raises what it raised."""
        if self._task is None:
            raise asyncio.CancelledError
        return self._task.result()

    def _ended(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # nobody may be left to ask for it, and the loop would complain
        self._over()

    def _over(self) -> None:
        self.is_over = True
        self._end.release()


def refuse_in_a_loop() -> None:
    """Raise ConfigurationError where an event loop runs in this thread, which would stand still meanwhile."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        "an event loop runs in this thread, which a blocking call would stop; use Controller there"
    )
