"""The core's timers, armed on the running loop's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quiesce.controller.budgets import BACKOFFS
from quiesce.fsm.messages import Timer, TimerFired
from quiesce.fsm.vocabulary import ParticipantKey

__all__ = ["Timers"]


class Timers:
    """Posts a ``TimerFired`` when an armed timer runs out. Belongs to the loop that it is used in."""

    def __init__(self, post: Callable[[TimerFired], None]) -> None:
        self._post = post
        self._armed: dict[tuple[Timer, ParticipantKey | None], asyncio.TimerHandle] = {}
        self._times: dict[tuple[Timer, ParticipantKey | None], int] = {}

    def arm(self, timer: Timer, key: ParticipantKey | None, delay_s: float) -> None:
        """Start a timer, or start it anew."""
        self.disarm(timer, key)
        name = (timer, key)
        self._armed[name] = asyncio.get_running_loop().call_later(max(0.0, delay_s), self._fire, timer, key)

    def backed_off_s(self, timer: Timer, key: ParticipantKey | None) -> float:
        """The next delay of a timer that backs off; each asking makes the next one longer."""
        name = (timer, key)
        tries = self._times.get(name, 0)
        self._times[name] = tries + 1
        return BACKOFFS[timer].delay_s(tries)

    def disarm(self, timer: Timer, key: ParticipantKey | None) -> None:
        """Stop a timer if it runs."""
        running = self._armed.pop((timer, key), None)
        if running is not None:
            running.cancel()

    def disarm_all(self) -> None:
        """Stop every timer."""
        for running in self._armed.values():
            running.cancel()
        self._armed.clear()

    def _fire(self, timer: Timer, key: ParticipantKey | None) -> None:
        self._armed.pop((timer, key), None)
        self._post(TimerFired(timer, key))
