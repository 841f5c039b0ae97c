"""One control call: from the core's ``Call`` to a wire call, its reply, and the event that answers it.

The caller makes ``deadline_ts``, sends, and turns what came back into an outcome. Three readings need more than one
reply: an agent's incomplete prepare is followed by a status call, which says whether finished results are what
blocks it; an agent without the route that acknowledges several results is sent one receipt a call; and a participant
that refuses to be reopened because another id holds it must say so in its capabilities too, since it is then left as
it is. A resource server's refusal at the end of its slice is no refusal but "not yet" (design 3).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from quiesce.controller.budgets import STATUS_S, Budgets, CallLimits, limits_of
from quiesce.controller.clock import Clock
from quiesce.controller.discovery import DiscoveredParticipant
from quiesce.controller.errors import StorageFailed
from quiesce.controller.requests import control_request
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.messages import Call, Leg
from quiesce.fsm.vocabulary import Outcome, Role, Verb
from quiesce.participants.dialects.base import CallSpec, Reading, WireCall
from quiesce.participants.errors import ControlRequestError, MaybeApplied, NeverSent
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import (
    AcknowledgeReceipt,
    ArtefactReference,
    CompletionReceipt,
    DrainProgress,
    ExportReceipt,
)
from quiesce.transport.port import ControlReply, Transport

__all__ = ["Caller", "Confirm", "Reached", "Request"]

Confirm = Callable[[], Awaitable[None]]
"""Returns while this controller holds its root; raises Superseded, or StorageFailed where that cannot be read."""

_SLICE_END_S: Final = 0.25
"""A refusal this close to the end of its slice is taken for the slice's end."""
_SLICE_ENDS: Final = frozenset({Outcome.REFUSED, Outcome.DEADLINE_EXCEEDED})


@dataclass(frozen=True, slots=True)
class Request:
    """What a call needs beyond the core's words: ids and payloads from the runner's ledger."""

    checkpoint_id: str
    checkpoint_dir: str | None = None
    continuation_indexes: tuple[ArtefactReference, ...] = ()
    source_checkpoint_id: str | None = None
    saved: ExportReceipt | None = None
    receipts: tuple[CompletionReceipt, ...] = ()
    attempt: AttemptId | None = None
    compares: bool = True
    """Whether the reply must come with the declaration that discovery saw."""
    instance: str | None = None
    """The incarnation that the reply must come from: the one that preflight read. None takes any."""


@dataclass(frozen=True, slots=True)
class Reached:
    """What a call came to. ``until_s`` is when (monotonic) a handler of it has ended at the latest."""

    reading: Reading
    until_s: float


class Caller:
    """Makes control calls for one transaction.

    ``confirm`` is awaited before each call that may change something, when its ``deadline_ts`` is made: a call of a
    controller that stood still and was taken over in that very moment comes too late where it arrives.
    """

    def __init__(self, transport: Transport, clock: Clock, budgets: Budgets, confirm: Confirm | None = None) -> None:
        self._transport = transport
        self._clock = clock
        self._budgets = budgets
        self._confirm = confirm

    async def call(self, target: DiscoveredParticipant, call: Call, request: Request, remaining_s: float) -> Reached:
        """Make the call and read its reply. Never raises for what a participant or the network does.

        Raises:
            Superseded: another controller has the root; nothing was sent.
            StorageFailed: whether one has cannot be read; nothing was sent. A resume is sent all the same.
        """
        limits = limits_of(call.verb, target.role, call.leg, remaining_s, self._budgets, coordinator=target.coordinator)
        began_s = self._clock.monotonic()
        spec = self._spec(target, call, request, limits)
        reading = await self._exchange(target, spec, target.dialect.call(spec), limits.timeout_s)
        until_s = began_s + limits.deadline_s
        if self._is_slice_end(target, call, reading, until_s):
            reading = Reading(Outcome.INCOMPLETE, reading.payload, reading.error)
        if reading.outcome is Outcome.INCOMPLETE and target.role is Role.AGENT:
            reading = await self._with_completions(target, spec, reading, began_s + remaining_s)
        if reading.outcome is Outcome.ROUTE_MISSING and call.verb is Verb.ACKNOWLEDGE:
            reading = await self._acknowledged_singly(target, spec, reading, began_s + limits.timeout_s)
        if reading.outcome is Outcome.CONFLICT and call.leg is Leg.RELEASE:
            reading = await self._with_holder(target, spec, reading, began_s + remaining_s)
        return Reached(reading, until_s)

    async def progress(
        self, target: DiscoveredParticipant, call: Call, request: Request, remaining_s: float
    ) -> DrainProgress | None:
        """What the participant is busy with, by its status; None where it does not say."""
        limits = limits_of(call.verb, target.role, call.leg, remaining_s, self._budgets, coordinator=target.coordinator)
        deadline = self._clock.monotonic() + remaining_s
        return await self._status(target, self._spec(target, call, request, limits), deadline)

    def _spec(self, target: DiscoveredParticipant, call: Call, request: Request, limits: CallLimits) -> CallSpec:
        return CallSpec(
            verb=call.verb,
            role=target.role,
            coordinator=target.coordinator,
            checkpoint_id=request.checkpoint_id,
            deadline_ts=self._clock.now_ts() + limits.deadline_s,
            checkpoint_dir=request.checkpoint_dir,
            continuation_indexes=request.continuation_indexes,
            source_checkpoint_id=request.source_checkpoint_id,
            saved=request.saved,
            receipts=request.receipts,
            attempt=request.attempt,
            wait_s=limits.wait_s,
            participant_name=target.contract.participant_name,
            participant=str(target.key),
            expected=target.contract if request.compares else None,
            expected_instance=request.instance,
        )

    async def _exchange(
        self, target: DiscoveredParticipant, spec: CallSpec, wire: WireCall, timeout_s: float
    ) -> Reading:
        await self._confirmed(spec.verb)
        try:
            reply = await self._send(target, wire, spec.verb, timeout_s)
        except NeverSent as error:
            return Reading(Outcome.NEVER_SENT, None, error)
        except MaybeApplied as error:
            return Reading(Outcome.LOST, None, error)
        return target.dialect.read(spec, reply.status, reply.headers, reply.body)

    async def _confirmed(self, verb: Verb) -> None:
        if self._confirm is None or verb is Verb.INSPECT:
            return
        try:
            await self._confirm()
        except StorageFailed:
            # a root that cannot be read keeps nobody closed: whoever is reopened twice is open
            if verb is not Verb.RELEASE:
                raise

    async def _send(self, target: DiscoveredParticipant, wire: WireCall, verb: Verb, timeout_s: float) -> ControlReply:
        request = control_request(
            wire, base_url=target.base_url(verb), participant=str(target.key), timeout_s=timeout_s
        )
        return await self._transport.send(request)

    def _is_slice_end(self, target: DiscoveredParticipant, call: Call, reading: Reading, until_s: float) -> bool:
        """Whether a refused prepare only says that its slice is over. An agent's deadline may pass on the way to it."""
        if call.leg is not Leg.FORWARD or call.verb not in (Verb.CLOSE, Verb.AWAIT_CUT):
            return False
        if not isinstance(reading.error, ControlRequestError):
            return False
        if target.role is Role.AGENT:
            return reading.outcome is Outcome.DEADLINE_EXCEEDED
        ended = self._clock.monotonic() >= until_s - _SLICE_END_S
        return target.role is Role.RESOURCES and ended and reading.outcome in _SLICE_ENDS

    async def _with_completions(
        self, target: DiscoveredParticipant, spec: CallSpec, reading: Reading, deadline: float
    ) -> Reading:
        """Read the agent's status: whether finished results, and which executions, hold it up."""
        progress = await self._status(target, spec, deadline)
        if progress is None:
            return reading
        outcome = Outcome.UNACKNOWLEDGED if progress.completed_unacknowledged else Outcome.INCOMPLETE
        return replace(reading, outcome=outcome, payload=progress)

    async def _status(self, target: DiscoveredParticipant, spec: CallSpec, deadline: float) -> DrainProgress | None:
        timeout_s = min(deadline - self._clock.monotonic(), STATUS_S)
        try:
            wire = target.dialect.progress_call(spec)
            reply = await self._send(target, wire, Verb.INSPECT, timeout_s)
            status = target.dialect.read_progress(spec, reply.status, reply.headers, reply.body)
        except QuiesceError:
            return None
        return status.payload if isinstance(status.payload, DrainProgress) else None

    async def _with_holder(
        self, target: DiscoveredParticipant, spec: CallSpec, refusal: Reading, deadline: float
    ) -> Reading:
        """Believe that another id holds it only if the capabilities name that id; else it is asked again."""
        inspect = replace(spec, verb=Verb.INSPECT)
        timeout_s = min(deadline - self._clock.monotonic(), STATUS_S)
        found = await self._exchange(target, inspect, target.dialect.call(inspect), timeout_s)
        outcome = Outcome.CONFLICT if found.outcome is Outcome.HELD_BY_OTHER else Outcome.WRONG_PHASE
        return Reading(outcome, found.payload, refusal.error)

    async def _acknowledged_singly(
        self, target: DiscoveredParticipant, spec: CallSpec, missing: Reading, deadline: float
    ) -> Reading:
        """One receipt a call, for as many as there is time; whichever are left are asked about again."""
        done: list[CompletionReceipt] = []
        for receipt in spec.receipts:
            left_s = deadline - self._clock.monotonic()
            if done and left_s <= 0:
                break
            one = replace(spec, receipts=(receipt,), acknowledge_singly=True)
            reading = await self._exchange(target, one, target.dialect.call(one), left_s)
            if reading.outcome is not Outcome.ACKNOWLEDGED:
                return reading
            done.append(receipt)
        return Reading(Outcome.ACKNOWLEDGED, AcknowledgeReceipt(tuple(done))) if done else missing
