"""Whether the participants are still those that were validated (field cases F-12).

A cut over fewer of them would lose state and prove nothing; a newcomer that is not fenced could change state behind
the cut's back. Both are refused by name, before anybody is paused.
"""

from __future__ import annotations

from collections.abc import Iterator

from quiesce.controller.clock import Clock
from quiesce.controller.config import Config
from quiesce.controller.discovery import Discovered, discover
from quiesce.fsm.vocabulary import ParticipantKey
from quiesce.participants.capabilities import Contract
from quiesce.participants.errors import TopologyError
from quiesce.participants.topology import contract_object
from quiesce.transport.port import Transport

__all__ = ["differences", "rediscover"]


async def rediscover(validated: Discovered, config: Config, transport: Transport, clock: Clock) -> Discovered:
    """Ask everybody again; what comes back has the incarnations that answer now.

    Raises:
        DiscoveryFailed: somebody does not answer as a participant must.
        TopologyError: somebody is missing, new, or declares something else than when it was validated.
    """
    found = await discover(config, transport, clock)
    problems = differences(validated, found)
    if problems:
        raise TopologyError(problems)
    return found


def differences(validated: Discovered, found: Discovered) -> tuple[str, ...]:
    """How ``found`` differs from what was validated, one sentence for each participant; empty where it does not.

    ``features`` may differ, and so may incarnations: neither is part of the fingerprint (wire-protocol 7.4).
    """
    known, now = _contracts(validated), _contracts(found)
    return (*_missing(known, now), *_new(known, now), *_changed(known, now))


def _contracts(discovered: Discovered) -> dict[ParticipantKey, Contract]:
    return {participant.key: participant.contract for participant in discovered.participants}


def _missing(known: dict[ParticipantKey, Contract], now: dict[ParticipantKey, Contract]) -> Iterator[str]:
    for key in known:
        if key not in now:
            yield f"{key} was validated and is not there any more: bring it back, or open a controller without it"


def _new(known: dict[ParticipantKey, Contract], now: dict[ParticipantKey, Contract]) -> Iterator[str]:
    for key in now:
        if key not in known:
            yield f"{key} was never validated and would not be paused: open a controller that includes it"


def _changed(known: dict[ParticipantKey, Contract], now: dict[ParticipantKey, Contract]) -> Iterator[str]:
    for key, contract in known.items():
        other = now.get(key, contract)
        before, after = (contract_object(each, features=False) for each in (contract, other))
        fields = [f"{name} was {before[name]}, is {after[name]}" for name in before if before[name] != after[name]]
        if fields:
            yield f"{key} declares something else than when it was validated: {'; '.join(fields)}; validate it anew"
