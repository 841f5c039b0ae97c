"""A transport that loses, delays, doubles and garbles calls on purpose, around any other transport.

It ships, because whoever embeds a controller wants to see what a lost reply does to them. It keeps the contract of
``quiesce.transport.port``: a fault shows as ``NeverSent`` or ``MaybeApplied``, as lateness or as a reply that the
participant did not give so, never as anything that a real network could not do.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from quiesce.participants.errors import NeverSent, Unreachable
from quiesce.transport.delivery import caller_is_cancelled, maybe_applied, never_sent
from quiesce.transport.faults import CallSite, Fault, FaultKind, FaultPlan
from quiesce.transport.port import ControlReply, ControlRequest, Transport

__all__ = ["FaultyTransport", "InjectedFault"]

RECORDS_MAX: Final = 100_000
"""Injected faults that are remembered; the oldest ones go first."""
_NO_TEXT: Final = b"\xff\xfe"
"""Bytes that no text in UTF-8 holds."""


@dataclass(slots=True)
class InjectedFault:
    """What was done to one call.

    Attributes:
        site: which call it was.
        fault: what was injected.
        delivered: whether the transport under the faulty one took the request to the participant, as far as it
            knows now.
    """

    site: CallSite
    fault: Fault
    delivered: bool = False


class FaultyTransport:
    """Injects the faults of a plan into the calls that go to another transport.

    Args:
        inner: the transport that carries what gets through. It is closed with this one.
        plan: decides for every call. Errors name it, so a seeded plan's seed is in them.
    """

    def __init__(self, inner: Transport, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan
        self._calls: Counter[tuple[str, str]] = Counter()
        self._journeys: set[asyncio.Task[ControlReply]] = set()
        self._closing = asyncio.Event()
        self.injected: deque[InjectedFault] = deque(maxlen=RECORDS_MAX)

    def __repr__(self) -> str:
        return f"FaultyTransport({self._inner!r}, {self._plan!r})"

    async def send(self, request: ControlRequest) -> ControlReply:
        """Carry one call, or do to it what the plan says.

        Raises:
            NeverSent, MaybeApplied: as the port says.
        """
        self._calls[request.participant, request.call] += 1
        site = CallSite(request.participant, request.call, self._calls[request.participant, request.call])
        fault = self._plan.fault_for(site)
        if fault is None or request.timeout_s <= 0 or self._closing.is_set():
            return await self._inner.send(request)
        record = InjectedFault(site, fault)
        self.injected.append(record)
        return await self._inject(request, record)

    async def settled(self) -> None:
        """Wait until every delayed request has arrived and is answered, also those whose client has left."""
        while self._journeys:
            await asyncio.wait(self._journeys)

    async def aclose(self) -> None:
        """Drop what is still on its way and close the transport underneath."""
        self._closing.set()
        journeys = tuple(self._journeys)
        for journey in journeys:
            journey.cancel()
        await asyncio.gather(*journeys, return_exceptions=True)
        await self._inner.aclose()

    async def _inject(self, request: ControlRequest, record: InjectedFault) -> ControlReply:
        match record.fault.kind:
            case FaultKind.REFUSED:
                raise never_sent(request, self._reason(record))
            case FaultKind.RESET:
                pass
            case FaultKind.REQUEST_LOST:
                await self._silence_until(_deadline(request))
            case FaultKind.REPLY_LOST:
                await self._deliver(request, record)
            case FaultKind.REPLY_STUCK:
                deadline = _deadline(request)
                await self._deliver(request, record)
                await self._silence_until(deadline)
            case FaultKind.DELAYED | FaultKind.REPLY_SLOW | FaultKind.RESENT:
                return await self._await_journey(request, record)
            case _:
                return await self._falsify(request, record)
        raise maybe_applied(request, self._reason(record))

    async def _falsify(self, request: ControlRequest, record: InjectedFault) -> ControlReply:
        """What ends in a reply, though not as the participant meant it."""
        kind = record.fault.kind
        if kind is FaultKind.ANSWERED_FOR:
            return record.fault.answer
        if kind is FaultKind.DUPLICATED:
            self._let_go(asyncio.create_task(self._arrive_late(request, record)))
        reply = await self._deliver(request, record)
        if kind is FaultKind.REPLY_REPLACED:
            return record.fault.answer
        return replace(reply, body=_garbled(reply.body)) if kind is FaultKind.GARBLED else reply

    async def _silence_until(self, deadline: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._closing.wait()

    async def _await_journey(self, request: ControlRequest, record: InjectedFault) -> ControlReply:
        journey = asyncio.create_task(self._arrive_late(request, record))
        self._let_go(journey)
        try:
            async with asyncio.timeout(request.timeout_s):
                return await asyncio.shield(journey)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if caller_is_cancelled():
                raise
        raise maybe_applied(request, self._reason(record))

    def _let_go(self, journey: asyncio.Task[ControlReply]) -> None:
        """A request is on its way and stays so, although its client may leave."""
        self._journeys.add(journey)
        journey.add_done_callback(self._arrived)

    async def _arrive_late(self, request: ControlRequest, record: InjectedFault) -> ControlReply:
        if record.fault.kind is FaultKind.RESENT:
            with suppress(Unreachable):
                await self._deliver(request, record)
        if record.fault.kind is FaultKind.REPLY_SLOW:
            reply = await self._deliver(request, record)
            await asyncio.sleep(record.fault.delay_s)
            return reply
        await asyncio.sleep(record.fault.delay_s)
        return await self._deliver(request, record)

    async def _deliver(self, request: ControlRequest, record: InjectedFault) -> ControlReply:
        record.delivered = True
        try:
            return await self._inner.send(request)
        except NeverSent:
            record.delivered = False
            raise

    def _arrived(self, journey: asyncio.Task[ControlReply]) -> None:
        self._journeys.discard(journey)
        if not journey.cancelled():
            journey.exception()  # its client may have left, and then nobody else would look at it

    def _reason(self, record: InjectedFault) -> str:
        delay = f" by {record.fault.delay_s:g} s" if record.fault.delay_s else ""
        return f"fault injected: {record.fault.kind.value}{delay}, call {record.site.nth} of its kind, {self._plan!r}"


def _deadline(request: ControlRequest) -> float:
    return asyncio.get_running_loop().time() + request.timeout_s


def _garbled(body: bytes) -> bytes:
    middle = len(body) // 2
    return body[:middle] + _NO_TEXT + body[middle + len(_NO_TEXT) :]
