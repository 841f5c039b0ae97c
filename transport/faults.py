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
from typing import Final, NamedTuple, Protocol

from quiesce.participants.errors import ConfigurationError
from quiesce.transport.port import ControlReply

__all__ = ["GATEWAY_PAGE", "CallSite", "Fault", "FaultKind", "FaultPlan", "ScriptedFaults", "SeededFaults"]

GATEWAY_PAGE: Final = ControlReply(
    502, {"content-type": "text/html"}, b"<html><head><title>502 Bad Gateway</title></head><body></body></html>"
)
"""What stands in the way answers so, where a fault names no other reply."""


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

    RESET = "reset"
    """Not delivered, the connection breaks at once. The client cannot know that: MaybeApplied."""

    REPLY_LOST = "reply_lost"
    """Delivered; the connection breaks in place of the reply: MaybeApplied."""

    REPLY_STUCK = "reply_stuck"
    """Delivered, silence until the time-out: MaybeApplied."""

    DELAYED = "delayed"
    """Delivered after a delay, also when the client has given up meanwhile: a late arrival."""

    REPLY_SLOW = "reply_slow"
    """Delivered at once; the bytes of the reply take so long. MaybeApplied where that is longer than the time-out."""

    DUPLICATED = "duplicated"
    """Delivered twice, together or the second time after a delay; the reply to the first is the one that arrives."""

    RESENT = "resent"
    """Delivered twice, one after the other; the reply to the second is the one that arrives: a proxy that retries."""

    GARBLED = "garbled"
    """Delivered; in the middle of the reply's body stand bytes that are no text."""

    ANSWERED_FOR = "answered_for"
    """Not delivered; what stands in the way answers."""

    REPLY_REPLACED = "reply_replaced"
    """Delivered; what stands in the way answers in the participant's place."""


_NEED_A_DELAY: Final = frozenset({FaultKind.DELAYED, FaultKind.REPLY_SLOW})
_MAY_HAVE_A_DELAY: Final = _NEED_A_DELAY | {FaultKind.DUPLICATED, FaultKind.RESENT}
_HAVE_A_REPLY: Final = frozenset({FaultKind.ANSWERED_FOR, FaultKind.REPLY_REPLACED})


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault to inject.

    Attributes:
        kind: what happens.
        delay_s: seconds; DELAYED and REPLY_SLOW need a delay, DUPLICATED and RESENT may have one.
        reply: what ANSWERED_FOR and REPLY_REPLACED answer; a gateway's error page where none is named.

    Raises:
        ConfigurationError: a delay that is missing, negative, not finite, or given to another kind; a reply that is
            given to another kind.
    """

    kind: FaultKind
    delay_s: float = 0.0
    reply: ControlReply | None = None

    def __post_init__(self) -> None:
        least = self.delay_s > 0 if self.kind in _NEED_A_DELAY else self.delay_s >= 0
        if not (least and math.isfinite(self.delay_s)) or (self.delay_s and self.kind not in _MAY_HAVE_A_DELAY):
            raise ConfigurationError(
                f"a fault {self.kind.value!r} with delay_s={self.delay_s}: "
                + (
                    "it needs a finite delay of more than 0 s"
                    if self.kind in _NEED_A_DELAY
                    else "that is no delay of it"
                )
            )
        if self.reply is not None and self.kind not in _HAVE_A_REPLY:
            raise ConfigurationError(f"a fault {self.kind.value!r} answers nothing of its own; it has no reply")

    @property
    def answer(self) -> ControlReply:
        """What is answered in the participant's place."""
        return self.reply or GATEWAY_PAGE


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
        ConfigurationError: rates that are no probabilities, or DELAYED or REPLY_SLOW without a positive delay_s_max.
    """

    def __init__(self, seed: int, rates: Mapping[FaultKind, float], *, delay_s_max: float = 0.0) -> None:
        if any(not 0 <= rate <= 1 for rate in rates.values()) or sum(rates.values()) > 1 + 1e-9:
            raise ConfigurationError(f"the rates {dict(rates)} are no probabilities that sum up to at most 1")
        if any(rates.get(kind, 0) > 0 for kind in _NEED_A_DELAY) and not 0 < delay_s_max < math.inf:
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
        if kind not in _MAY_HAVE_A_DELAY:
            return Fault(kind)
        return Fault(kind, (1.0 - chance.random()) * self._delay_s_max)
