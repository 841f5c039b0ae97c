"""Which calls go wrong, and how: kinds of faults, a script of them, and a seeded choice.

A plan is asked once for every call, by call site: the participant, the call (method and path), and how often that
call went to that participant before. Both plans answer from the call site alone, never from the order in which
concurrent calls happen to start, so that a run can be repeated from its script or its seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from types import MappingProxyType
from typing import NamedTuple, Protocol

from quiesce.participants.errors import ConfigurationError

__all__ = ["CallSite", "Fault", "FaultKind", "FaultPlan", "ScriptedFaults", "SeededFaults"]


class CallSite(NamedTuple):
    """One call in a run.

    Attributes:
        participant: as the request names it.
        call: method and path, ``POST /ng-control/v1/agent-checkpoint/prepare``.
        nth: 1 for the first such call to this participant.
    """

    participant: str
    call: str
    nth: int


class FaultKind(StrEnum):
    """What the network does to a call."""

    REFUSED = "refused"
    """Not delivered, and known at once: NeverSent."""

    REQUEST_LOST = "request_lost"
    """Not delivered, silence until the time-out. The client cannot know that: MaybeApplied."""

    REPLY_LOST = "reply_lost"
    """Delivered; the connection breaks in place of the reply: MaybeApplied."""

    REPLY_STUCK = "reply_stuck"
    """Delivered, silence until the time-out: MaybeApplied."""

    DELAYED = "delayed"
    """Delivered after a delay, also when the client has given up meanwhile: a late arrival."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault to inject.

    Attributes:
        kind: what happens.
        delay_s: seconds, for DELAYED alone.

    Raises:
        ConfigurationError: a delay that is missing, negative, not finite, or given to another kind.
    """

    kind: FaultKind
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        delayed = self.kind is FaultKind.DELAYED
        if delayed != (self.delay_s > 0) or not math.isfinite(self.delay_s):
            raise ConfigurationError(
                f"a fault {self.kind.value!r} with delay_s={self.delay_s}: "
                + ("it needs a finite delay of more than 0 s" if delayed else "only 'delayed' has a delay")
            )


class FaultPlan(Protocol):
    """Decides for every call."""

    def fault_for(self, site: CallSite) -> Fault | None:
        """The fault of this call, or None: it goes through. The same site always gets the same answer."""
        ...


class ScriptedFaults:
    """Exactly the faults of a script; every other call goes through.

    Args:
        script: from (participant, call, nth) to the fault.
    """

    def __init__(self, script: Mapping[tuple[str, str, int], Fault]) -> None:
        self._script = MappingProxyType({CallSite(*site): fault for site, fault in script.items()})

    def fault_for(self, site: CallSite) -> Fault | None:
        return self._script.get(site)

    def __repr__(self) -> str:
        return f"ScriptedFaults({len(self._script)} faults)"


class SeededFaults:
    """Faults at random, the same ones for the same seed.

    Args:
        seed: any integer; it stands in the plan's repr and in every error that it causes.
        rates: probability of each kind; they sum up to at most 1, the rest goes through.
        delay_s_max: seconds; delays are drawn evenly from 0 to this.

    Raises:
        ConfigurationError: rates that are no probabilities, or DELAYED without a positive delay_s_max.
    """

    def __init__(self, seed: int, rates: Mapping[FaultKind, float], *, delay_s_max: float = 0.0) -> None:
        if any(not 0 <= rate <= 1 for rate in rates.values()) or sum(rates.values()) > 1 + 1e-9:
            raise ConfigurationError(f"the rates {dict(rates)} are no probabilities that sum up to at most 1")
        if rates.get(FaultKind.DELAYED, 0) > 0 and not 0 < delay_s_max < math.inf:
            raise ConfigurationError(f"delayed calls need a finite delay_s_max of more than 0 s, not {delay_s_max}")
        self.seed = seed
        self._rates = dict(sorted(rates.items()))
        self._delay_s_max = delay_s_max

    def fault_for(self, site: CallSite) -> Fault | None:
        chance = Random(f"{self.seed}|{site.participant}|{site.call}|{site.nth}")  # noqa: S311 - repeatable on purpose
        drawn = chance.random()
        for kind, rate in self._rates.items():
            if drawn < rate:
                return self._fault(kind, chance)
            drawn -= rate
        return None

    def __repr__(self) -> str:
        return f"SeededFaults(seed={self.seed})"

    def _fault(self, kind: FaultKind, chance: Random) -> Fault:
        if kind is not FaultKind.DELAYED:
            return Fault(kind)
        return Fault(kind, (1.0 - chance.random()) * self._delay_s_max)
