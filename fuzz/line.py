"""The line to one participant: every request goes over it, is counted, and waits its turn.

The rate is capped, since a server under test may be shared; the ids that are used up are counted, since a server
remembers them for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from quiesce.controller.clock import Clock
from quiesce.fuzz.bearers import bearing
from quiesce.fuzz.seen import Seen
from quiesce.fuzz.steps import Bearer
from quiesce.participants.dialects.gym_a.routes import PREFIX
from quiesce.transport.port import ControlRequest, Transport

__all__ = ["Line", "Waiting"]

TOLD_AFTER_S: Final = 4.0
"""After how long without an answer a person is told what is waited for."""

Waiting: TypeAlias = Callable[[str], None]
"""Told in words what is waited for, and until when."""


@dataclass(slots=True)
class Line:
    """A counted, paced transport.

    Attributes:
        transport: carries authorized requests with the header that ``bearing`` asks for (``FuzzedTokens``).
        rate: requests a second at most, None for no bound.
        calls: requests that were sent so far.
        ids: ids that were used up, or may have been.
        waiting: told of each control call that is not answered after a while, and until when it is waited for.

    What opens a participant again does not wait for its turn (:meth:`at_once`); what comes after it waits the longer.
    """

    transport: Transport
    clock: Clock
    rate: float | None = None
    waiting: Waiting | None = None
    calls: int = 0
    ids: set[str] = field(default_factory=set)
    _next_at: float = field(default=0.0, init=False)
    _at_once: int = field(default=0, init=False)

    async def send(self, request: ControlRequest, bearer: Bearer = Bearer.GOOD) -> Seen:
        """Send one request in its turn.

        Raises:
            NeverSent, MaybeApplied: as the transport's port says.
        """
        await self._take_turn()
        self.calls += 1
        with bearing(bearer), self._told_of(request):
            return Seen.of(await self.transport.send(request))

    async def free(self) -> None:
        """Wait until a request that is made now is sent at once: its deadline and its patience begin to run."""
        left_s = self._next_at - self.clock.monotonic()
        if left_s > 0 and not self._at_once:
            await self.clock.sleep(left_s)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """While this lasts no request waits for its turn, though each is counted against the rate."""
        self._at_once += 1
        try:
            yield
        finally:
            self._at_once -= 1

    @property
    def spacing_s(self) -> float:
        """For how long a request waits for the one before it, at most."""
        return 0.0 if self.rate is None else 1.0 / self.rate

    @contextmanager
    def _told_of(self, request: ControlRequest) -> Iterator[None]:
        """While the answer to a control call is waited for. Work of the data plane takes its time."""
        told = self.waiting
        if told is None or PREFIX not in request.url or request.timeout_s <= TOLD_AFTER_S:
            yield
            return
        until = datetime.fromtimestamp(self.clock.now_ts() + request.timeout_s, UTC)
        path = urlsplit(request.url).path
        text = f"waits for the answer to {request.method} {path}, until {until:%H:%M:%S} UTC at most"
        timer = asyncio.get_running_loop().call_later(TOLD_AFTER_S, told, text)
        try:
            yield
        finally:
            timer.cancel()

    async def _take_turn(self) -> None:
        now = self.clock.monotonic()
        at = max(now, self._next_at)
        self._next_at = at + self.spacing_s
        if at > now and not self._at_once:
            await self.clock.sleep(at - now)
