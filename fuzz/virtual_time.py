"""An event loop whose time passes only when nothing else can happen: in-process runs that never wait.

Everything that takes part (client, in-process servers) runs in this one loop. While any task can go on, time stands
still; when none can, it jumps to the next timer. A day of deadlines passes in milliseconds, and a run depends on
nothing but its input. Jobs for threads (``asyncio.to_thread``) run at once, in the loop's own thread; their caller
still meets a suspension point, so it can be cancelled after the job was done and before it hears of it.

``run_virtual(scenario())`` runs a coroutine in such a loop. ``VirtualClock`` satisfies the clock ports of the
controller and of the server kit.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, Final, TypeVar

__all__ = ["NothingCanHappen", "VirtualClock", "VirtualLoop", "run_virtual"]

EPOCH_TS: Final = 1_900_000_000.0
LONGEST_RUN_S: Final = 40 * 24 * 3600.0

T = TypeVar("T")


class NothingCanHappen(RuntimeError):
    """Every task waits for something that no timer will ever bring: in real time this would hang."""


class _Selector(selectors.SelectSelector):
    """Never blocks: where a real selector would wait, the loop's time advances by that much."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            raise NothingCanHappen("no task can run and no timer is set: a deadlock")
        self.now_s += timeout
        if self.now_s > LONGEST_RUN_S:
            raise NothingCanHappen(f"still polling after {LONGEST_RUN_S:.0f} virtual seconds: a livelock")
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A selector loop on virtual time. It starts at 0 s."""

    def __init__(self) -> None:
        self._virtual_selector = _Selector()
        super().__init__(self._virtual_selector)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual_selector.now_s

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Run the job now; its outcome reaches the awaiting task one turn of the loop later."""
        del executor
        outcome: asyncio.Future[T] = self.create_future()
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - whatever the job raises belongs to whoever awaits it
            self.call_soon(_fail, outcome, error)
        else:
            self.call_soon(_fulfil, outcome, result)
        return outcome


def _fail(outcome: asyncio.Future[T], error: Exception) -> None:
    if not outcome.done():
        outcome.set_exception(error)


def _fulfil(outcome: asyncio.Future[T], result: T) -> None:
    if not outcome.done():
        outcome.set_result(result)


class VirtualClock:
    """Both clocks of a virtual run: the wall clock is the loop's time plus an epoch (and any ``skew_s``)."""

    def __init__(self, *, epoch_ts: float = EPOCH_TS, skew_s: float = 0.0) -> None:
        self._offset_s = epoch_ts + skew_s

    def now_ts(self) -> float:
        """Unix seconds."""
        return self._offset_s + self.monotonic()

    def monotonic(self) -> float:
        """Seconds of the running loop."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait that long in virtual time."""
        await asyncio.sleep(max(0.0, seconds))


def run_virtual(scenario: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in a fresh virtual loop and return its result."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scenario)
