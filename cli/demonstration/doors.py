"""Whether everybody accepts work: each participant is asked itself, nothing is taken from the controller's word."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from quiesce.controller.discovery import DiscoveredParticipant
from quiesce.controller.requests import control_request
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.vocabulary import Outcome, Verb
from quiesce.participants.dialects.base import CallSpec
from quiesce.transport import HttpTransport

__all__ = ["still_closed"]

TIMEOUT_S: Final = 10.0


async def still_closed(participants: Iterable[DiscoveredParticipant]) -> list[str]:
    """Those who are held by a checkpoint, or do not answer; each with what was heard."""
    transport = HttpTransport()
    try:
        heard = await asyncio.gather(*(_heard(participant, transport) for participant in participants))
    finally:
        await transport.aclose()
    return [sentence for sentence in heard if sentence]


async def _heard(participant: DiscoveredParticipant, transport: HttpTransport) -> str:
    name = str(participant.key)
    spec = CallSpec(verb=Verb.INSPECT, role=participant.role, participant=name)
    call = participant.dialect.call(spec)
    try:
        reply = await transport.send(
            control_request(call, base_url=participant.url, participant=name, timeout_s=TIMEOUT_S)
        )
    except QuiesceError as error:
        return str(error)
    outcome = participant.dialect.read(spec, reply.status, reply.headers, reply.body).outcome
    return "" if outcome is Outcome.OPEN else f"{name}: {outcome.value}"
