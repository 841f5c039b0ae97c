"""The line to one participant: every request goes over it, is counted, and waits its turn.

The rate is capped, since a server under test may be shared; the ids that are used up are counted, since a server
remembers them for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from quiesce.controller.clock import Clock
from quiesce.fuzz.bearers import bearing
from quiesce.fuzz.seen import Seen
from quiesce.fuzz.steps import Bearer
from quiesce.transport.port import ControlRequest, Transport

__all__ = ["Line"]


@dataclass(slots=True)
class Line:
    """A counted, paced transport.

    Attributes:
        transport: carries authorized requests with the header that ``bearing`` asks for (``FuzzedTokens``).
        rate: requests a second at most, None for no bound.
        calls: requests that were sent so far.
        ids: ids that were used up, or may have been.
    """

    transport: Transport
    clock: Clock
    rate: float | None = None
    calls: int = 0
    ids: set[str] = field(default_factory=set)
    _next_at: float = field(default=0.0, init=False)

    async def send(self, request: ControlRequest, bearer: Bearer = Bearer.GOOD) -> Seen:
        """Send one request in its turn.

        Raises:
            NeverSent, MaybeApplied: as the transport's port says.
        """
        await self._turn()
        self.calls += 1
        with bearing(bearer):
            return Seen.of(await self.transport.send(request))

    async def _turn(self) -> None:
        if self.rate is None:
            return
        now = self.clock.monotonic()
        at = max(now, self._next_at)
        self._next_at = at + 1.0 / self.rate
        if at > now:
            await self.clock.sleep(at - now)
