"""The last cut before the end: what a termination signal sets off where the configuration says so.

A batch system or an orchestrator sends SIGTERM or SIGUSR1 a while before it kills a job (Slurm's ``--signal``, the
termination grace of a Kubernetes pod). With ``last_cut_signals`` configured, the controller uses that time
(``grace_s``), and then cancels the task that opened it. Left by that cancellation, ``async with`` a controller ends
the program as the signal would have ended it, by ``SystemExit`` with 128 and the signal's number, and without a
traceback. Before:

=====================  ==================================================================================
when the signal comes  what is done first
=====================  ==================================================================================
nothing runs           a cut of its own, labelled ``last_cut_label``; ``on_asked_cut`` is its body
a cut runs             it goes on; one that is not published when the time is up is aborted
somebody is resumed    that is finished
a restore runs         it ends at once and is held closed, as by any cancellation
=====================  ==================================================================================

A second signal changes nothing. A quarter of ``grace_s`` (at most ``release_timeout_s``) is kept for reopening whoever
is paused.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from quiesce.controller.callbacks import calling_back
from quiesce.controller.cancellation import finish_first
from quiesce.controller.clock import Clock
from quiesce.controller.config import Config
from quiesce.controller.phases import PhasedRestore
from quiesce.controller.results import CutResult
from quiesce.fsm.messages import Publication
from quiesce.participants.errors import ConfigurationError
from quiesce.transport.logs import log_named

if TYPE_CHECKING:
    from quiesce.controller.api import Controller
    from quiesce.controller.contexts import Cut

__all__ = ["ENDED_BY_SIGNAL", "LastCut", "OnAskedCut", "filled", "time_for_a_cut_s"]

OnAskedCut = Callable[["Cut"], Awaitable[None] | None]
"""The body of a cut that a signal or another program asks for: puts the trainer's own part into
``cut.directory / "trainer"``. May be async."""

_log: Final = log_named("quiesce.controller")
_OPENING_PAUSE_S: Final = 0.05
ENDED_BY_SIGNAL: Final = 128
"""Plus a signal's number: the exit code of a program that a signal has ended."""


async def filled(cut: Cut, body: OnAskedCut | None) -> None:
    """Let the program put its own part into a cut that it did not ask for."""
    if body is None:
        return
    with calling_back("on_asked_cut"):
        done = body(cut)
        if inspect.isawaitable(done):
            await done


def time_for_a_cut_s(config: Config) -> float:
    """Seconds from the signal in which a cut must be published; what is left of the grace is for reopening."""
    return config.grace_s - min(config.release_timeout_s, config.grace_s / 4)


class LastCut:
    """Waits for a controller's termination signals; belongs to the task that opened the controller."""

    def __init__(self, controller: Controller, clock: Clock, body: OnAskedCut | None) -> None:
        self.result: CutResult | None = None
        """The cut that was taken on a signal, if any."""
        self._controller = controller
        self._clock = clock
        self._body = body
        self._owner: asyncio.Task[object] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._is_closing = False
        self._is_told = False
        self._number: signal.Signals | None = None
        self._is_leaving = False
        self._installed: list[signal.Signals] = []

    def install(self) -> None:
        """Listen for the configured signals from now on, on behalf of the running task.

        Raises:
            ConfigurationError: this is not the main thread, which alone gets signals.
        """
        self._owner = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.Signals[name] for name in self._controller.config.last_cut_signals):
            try:
                loop.add_signal_handler(number, self._heard, number)
            except (ValueError, RuntimeError) as error:
                raise ConfigurationError(
                    f"last_cut_signals: {number.name} cannot be listened for here ({error}); open the controller in "
                    "the main thread, or call take_last_cut() from a handler of your own"
                ) from None
            self._installed.append(number)

    def _heard(self, number: signal.Signals) -> None:
        self._number = self._number or number
        self.ask(number.name)

    def ask(self, why: str) -> None:
        """Begin to end: the last cut first, then the cancellation. Asked again, nothing changes."""
        if self._ending is not None:
            _log.info("last_cut_asked_again", why=why)
            return
        _log.warning("last_cut_asked", why=why, grace_s=self._controller.config.grace_s)
        self._ending = asyncio.create_task(self._end(why), name="last cut")

    async def close(self) -> None:
        """Listen no more, and let a last cut that is being taken come to its end."""
        for number in self._installed:
            asyncio.get_running_loop().remove_signal_handler(number)
        self._installed.clear()
        self._is_closing = True
        await self.over()

    def closed(self) -> None:
        """The controller is closed: an end that was announced while it still had to close is passed on now."""
        if self._ending is not None and not self._is_leaving:
            self._tell()

    def leave(self) -> None:
        """From now on :meth:`end` says how the task that opened the controller ends."""
        self._is_leaving = True

    def end(self, error: BaseException | None) -> None:
        """End the program where a signal announced it, and nothing but that ended the task.

        Raises:
            SystemExit: as a program that the signal has ended.
        """
        is_ended = isinstance(error, asyncio.CancelledError) if self._is_told else error is None
        if self._number is not None and self._ending is not None and is_ended:
            raise SystemExit(ENDED_BY_SIGNAL + self._number) from None
        if self._ending is not None:
            self._tell()

    def _tell(self) -> None:
        if self._owner is not None and not self._is_told:
            self._is_told = True
            self._owner.cancel("the end of the program was announced")

    async def over(self) -> None:
        """Wait until a last cut that was asked for has ended, well or not."""
        if self._ending is not None:
            await finish_first(_ended(self._ending))

    async def _end(self, why: str) -> None:
        until_s = self._clock.monotonic() + time_for_a_cut_s(self._controller.config)
        try:
            await self._finish(why, until_s)
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the program is to end
            _log.error("last_cut_failed", error=str(error))
        finally:
            if not self._is_closing:
                self._tell()

    async def _finish(self, why: str, until_s: float) -> None:
        controller = self._controller
        while controller.is_busy and controller.running is None:  # one is being opened; nobody was called yet
            await self._clock.sleep(_OPENING_PAUSE_S)
        running = controller.running
        if running is None:
            await self._take(why, until_s)
        elif isinstance(running, PhasedRestore):
            await running.abort(cancelled=True)
        else:
            try:
                async with asyncio.timeout(max(0.0, until_s - self._clock.monotonic())):
                    await controller.idle()
            except TimeoutError:
                await running.abort()

    async def _take(self, why: str, until_s: float) -> None:
        config = self._controller.config
        cut = self._controller.cut(config.last_cut_label, metadata={"taken_on": why})
        try:
            async with asyncio.timeout(max(0.0, until_s - self._clock.monotonic())):
                async with cut:
                    await filled(cut, self._body)
            self.result = cut.result
        except TimeoutError:
            if not await self._is_published(cut):
                raise TimeoutError(f"it was not published within {time_for_a_cut_s(config):g} s") from None
        _log.warning("last_cut_taken", wire_id=cut.wire_id)

    async def _is_published(self, cut: Cut) -> bool:
        """Whether a cut whose time was up stands all the same: from the decision on it is finished."""
        try:
            wire_id = cut.wire_id
        except ConfigurationError:  # it was not even opened
            return False
        return await asyncio.to_thread(self._controller.store.published, wire_id) is Publication.PUBLISHED


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])
