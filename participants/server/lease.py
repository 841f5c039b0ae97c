"""A lease: a participant that a cut holds, and whose controller is gone, opens by itself and uses the id up.

An extension of this kit, off unless a server's author gives one; the recorded servers have none (wire-protocol 4.7).
A lease runs while a cut holds the fence. Each prepare and each renewal says until when the controller is surely there:
their ``deadline_ts``. ``grace_s`` after the latest one the lease lapses. A commit's deadline counts while it runs: what
is being written is finished first, and its end is a sign of life.

A lapse is a resume that the participant gives itself. So it takes the very rows of FENCE that a resume takes, and
afterwards the id is as used up as after any resume: a late prepare, commit or renewal is refused as stale.

A restore has no lease: whoever opened by itself would run on half a restore (field cases F-23).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from quiesce.fsm.fence import FenceState
from quiesce.fsm.tables.fence import FenceEvent, FencePhase
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.errors import ConfigurationError
from quiesce.participants.server.answers import Answer, ok
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.fence import Call, LiveFence
from quiesce.participants.server.operations import Endpoint, typed
from quiesce.participants.server.ports import Clock

__all__ = ["Lease", "LeaseControl", "LeaseTimer"]

GRACE_S_MAX: Final = 24 * 3600.0
AHEAD_S_MAX: Final = 24 * 3600.0
"""No deadline makes a lease longer than this, whatever it says."""
_LEASED: Final = frozenset(
    {FencePhase.PREPARING, FencePhase.PREPARED, FencePhase.COMMITTING, FencePhase.COMMITTED_PAUSED}
)


@dataclass(frozen=True, slots=True)
class Lease:
    """How long a participant stays closed for a controller that it hears nothing more of.

    ``grace_s``: seconds after the last deadline that the controller named. Longer than any pause of the controller that
    is no death: a garbage collection, a network that is away for a moment.

    Raises:
        ConfigurationError: it is no positive number of seconds up to a day.
    """

    grace_s: float = 60.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.grace_s) and 0 < self.grace_s <= GRACE_S_MAX):
            raise ConfigurationError(f"a lease of {self.grace_s} s cannot be; give more than 0 and at most 86400 s")


class LeaseTimer:
    """When the lease of one fence runs out. Belongs to the loop that it is used in.

    ``lapse`` is called once when it does.
    """

    def __init__(self, lease: Lease, clock: Clock, lapse: Callable[[], None]) -> None:
        self._grace_s = lease.grace_s
        self._clock = clock
        self._lapse = lapse
        self._until_s: float | None = None
        self._running: asyncio.TimerHandle | None = None

    @property
    def has_lapsed(self) -> bool:
        """Whether it ran out and the fence is held on: an operation that runs is finished first."""
        return self._until_s is not None and self._running is None

    @property
    def expires_at(self) -> float | None:
        """When it lapses, in Unix seconds; None while none runs."""
        if self._until_s is None:
            return None
        return self._clock.now_ts() + self._until_s + self._grace_s - self._clock.monotonic()

    def follow(self, state: FenceState) -> None:
        """Start or end with the hold of a cut. To be called after each step of the fence."""
        if state.active is None or state.phase not in _LEASED:
            self._stop()
            self._until_s = None
        elif self._until_s is None:
            self._until_s = self._clock.monotonic()
            self._arm()

    def extend(self, deadline_ts: float | None = None) -> None:
        """The controller is there until ``deadline_ts`` (Unix seconds; None for now). Never makes a lease shorter."""
        if self._until_s is None or self.has_lapsed:
            return
        ahead_s = 0.0 if deadline_ts is None else deadline_ts - self._clock.now_ts()
        until_s = self._clock.monotonic() + min(ahead_s, AHEAD_S_MAX)
        if until_s > self._until_s:
            self._until_s = until_s
            self._arm()

    def _arm(self) -> None:
        self._stop()
        if self._until_s is not None:
            at_s = self._until_s + self._grace_s
            self._running = asyncio.get_running_loop().call_at(at_s, self._run_out)

    def _stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            self._running = None

    def _run_out(self) -> None:
        self._running = None
        self._lapse()


@dataclass(frozen=True, slots=True)
class LeaseControl:
    """The route that renews a lease. The fence decides on it as on a status: it moves no machine."""

    fence: LiveFence
    timer: LeaseTimer
    clock: Clock

    @classmethod
    def over(cls, fence: LiveFence, lease: Lease, clock: Clock) -> LeaseControl:
        """Give a fence a lease."""
        timer = LeaseTimer(lease, clock, fence.lapse)
        fence.lease = timer
        return cls(fence, timer, clock)

    def endpoints(self) -> Mapping[str, Endpoint]:
        """The one endpoint."""
        return {"renew": typed(wire.ControlEnvelope, self.renew)}

    async def renew(self, asked: wire.ControlEnvelope) -> Answer:
        """Stay closed until ``deadline_ts`` and the grace; says when the lease lapses, null where a restore holds."""

        def act(_let_go: int) -> Answer:
            self._check(asked)
            self.timer.extend(asked.deadline_ts)
            return ok({"checkpoint_id": asked.checkpoint_id, "lease_expires_at": self.timer.expires_at})

        return await self.fence.call(Call(FenceEvent.STATUS, asked.checkpoint_id, asked.deadline_ts, act=act))

    def _check(self, asked: wire.ControlEnvelope) -> None:
        if self.fence.state.active != asked.checkpoint_id:
            raise ControlRefusal(RefusalCode.INVALID_PHASE, "nothing is held here for this checkpoint")
        if self.timer.has_lapsed:
            raise ControlRefusal(
                RefusalCode.STALE_CHECKPOINT, "the lease has lapsed; it opens as soon as what is written is finished"
            )
        if asked.deadline_ts <= self.clock.now_ts():
            raise ControlRefusal(RefusalCode.DEADLINE_EXCEEDED, "the deadline of this renewal had passed")
