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
        await self._take_turn()
        self.calls += 1
        with bearing(bearer):
            return Seen.of(await self.transport.send(request))

    async def free(self) -> None:
        """Wait until a request that is made now is sent at once: its deadline and its patience begin to run."""
        left_s = self._next_at - self.clock.monotonic()
        if left_s > 0:
            await self.clock.sleep(left_s)

    @property
    def spacing_s(self) -> float:
        """For how long a request waits for the one before it, at most."""
        return 0.0 if self.rate is None else 1.0 / self.rate

    async def _take_turn(self) -> None:
        now = self.clock.monotonic()
        at = max(now, self._next_at)
        self._next_at = at + self.spacing_s
        if at > now:
            await self.clock.sleep(at - now)
