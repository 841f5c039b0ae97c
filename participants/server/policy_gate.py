"""The gate of a policy server: every generation call passes it, is counted until fully sent, and can be cut off.

Closing and the admission test happen in one turn of the event loop, so no call slips between (wire-protocol 5.1). A
call is in flight until the last byte of its response is sent, streams included; a call that was cut off still counts
until its handler has really ended (2.6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from quiesce.participants.capabilities import AdmissionState
from quiesce.participants.identity import AttemptId
from quiesce.participants.server.answers import ASGIApp, Message, Receive, Scope, Send, refused, send_answer
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.headers import attempt_of, plane_of
from quiesce.participants.server.ports import Clock, ModelStore

__all__ = ["CaptureKeyOf", "PolicyGate", "WhenClosed", "is_gated"]

GATED_PATHS: Final = ("/v1/responses", "/v1/chat/completions", "/v1/messages")
HELD_MAX: Final = 4096
RETRY_AFTER_S: Final = 1

WhenClosed = Literal["refuse", "hold"]
CaptureKeyOf = Callable[[str], str | None]


def is_gated(scope: Scope) -> bool:
    """Whether a request is a generation call, which passes the gate; all others go by."""
    return bool(scope["type"] == "http" and scope["method"] == "POST" and scope["path"].endswith(GATED_PATHS))


@dataclass(slots=True, eq=False)
class _Ticket:
    """One call in flight. ``started``: its response has begun."""

    attempt: AttemptId | None
    plane: str | None
    since: float
    work: asyncio.Task[None] | None = None
    cut_off: bool = False
    started: bool = False


def _nothing() -> None:
    """Nobody wants to hear of a drain."""


@dataclass(slots=True)
class PolicyGate:
    """ASGI middleware around a model server, and the door of its fence.

    ``when_closed``: ``refuse`` answers 409 ``checkpoint_parked``; ``hold`` keeps a call waiting until resume.
    ``capture_key_of`` names the capture key in a path, where the server's paths have one.
    """

    app: ASGIApp
    store: ModelStore
    clock: Clock
    when_closed: WhenClosed = "refuse"
    capture_key_of: CaptureKeyOf | None = None
    on_drained: Callable[[], None] = field(default=_nothing)
    closed: bool = field(default=False, init=False)
    _tickets: dict[_Ticket, None] = field(default_factory=dict, init=False)
    _held: list[asyncio.Future[None]] = field(default_factory=list, init=False)
    _watchers: list[asyncio.Future[None]] = field(default_factory=list, init=False)

    # ---- the door of the fence

    def close(self) -> None:
        self.closed = True

    def open(self) -> int:
        """Admit again; the number of held calls that are let in."""
        self.closed = False
        held, self._held = [waiter for waiter in self._held if not waiter.done()], []
        for waiter in held:
            waiter.set_result(None)
        self._tell_watchers()
        return len(held)

    def is_drained(self) -> bool:
        return not self._tickets

    def owes_restore(self) -> bool:
        return False

    # ---- what the status says

    @property
    def state(self) -> AdmissionState:
        if not self.closed:
            return AdmissionState.ACCEPTING
        return AdmissionState.DRAINING if self._tickets else AdmissionState.PAUSED

    @property
    def held(self) -> int:
        """Calls that wait for resume."""
        return sum(not waiter.done() for waiter in self._held)

    def inflight(self) -> list[dict[str, object]]:
        """The calls in flight, as they stand in the status reply (wire-protocol 2.3)."""
        now = self.clock.monotonic()
        return [
            {
                "rollout_id": ticket.attempt.rollout_id if ticket.attempt else None,
                "attempt_index": ticket.attempt.attempt_index if ticket.attempt else None,
                "plane": ticket.plane,
                "age_seconds": round(max(0.0, now - ticket.since), 3),
            }
            for ticket in self._tickets
        ]

    async def wait_drained(self, timeout_s: float) -> None:
        """Wait until nothing is in flight, the gate opens, or the time is over; the caller looks which."""
        if self.state is not AdmissionState.DRAINING or timeout_s <= 0:
            return
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.append(watcher)
        try:
            await asyncio.wait({watcher}, timeout=timeout_s)
        finally:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

    def cut_off(self, attempt: AttemptId) -> int:
        """Fence an attempt and cancel its calls; their number. They count until their handlers have ended."""
        self.store.fence(attempt)
        found = [ticket for ticket in self._tickets if ticket.attempt == attempt and not ticket.cut_off]
        for ticket in found:
            ticket.cut_off = True
            if ticket.work is not None:
                ticket.work.cancel()
        return len(found)

    # ---- the data plane

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not is_gated(scope):
            await self.app(scope, receive, send)
            return
        try:
            ticket = await self._admit(scope)
        except ControlRefusal as refusal:
            parked = refusal.code is RefusalCode.CHECKPOINT_PARKED
            await send_answer(send, refused(refusal, headers={"retry-after": str(RETRY_AFTER_S)} if parked else None))
            return
        await self._serve(ticket, scope, receive, send)

    async def _admit(self, scope: Scope) -> _Ticket:
        headers = scope["headers"]
        path_key = self.capture_key_of(scope["path"]) if self.capture_key_of else None
        attempt = attempt_of(headers, path_capture_key=path_key)
        while True:
            # fenced before closed: a fenced caller learns that it is stale even while closed
            if attempt is not None and self.store.is_fenced(attempt):
                raise ControlRefusal(RefusalCode.STALE_ATTEMPT, f"{attempt} is fenced; it may make no more calls")
            if not self.closed:
                break
            await self._hold()
        if attempt is not None:
            self.store.note_call(attempt)
        ticket = _Ticket(attempt, plane_of(headers), self.clock.monotonic())
        self._tickets[ticket] = None
        return ticket

    async def _hold(self) -> None:
        if self.when_closed == "refuse" or self.held >= HELD_MAX:
            raise ControlRefusal(
                RefusalCode.CHECKPOINT_PARKED, "admission is closed for a checkpoint; repeat the call after resume"
            )
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._held:
                self._held.remove(waiter)

    async def _serve(self, ticket: _Ticket, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            ticket.started = True
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                self._leave(ticket)

        try:
            ticket.work = asyncio.ensure_future(_run(self.app, scope, receive, counted))
            await _finished(ticket.work)
        finally:
            self._leave(ticket)
        if ticket.work.cancelled():
            if not ticket.started:
                stale = ControlRefusal(RefusalCode.STALE_ATTEMPT, f"{ticket.attempt} was aborted; its call is cut off")
                await send_answer(send, refused(stale))
            return
        ticket.work.result()

    def _leave(self, ticket: _Ticket) -> None:
        if ticket not in self._tickets:
            return
        del self._tickets[ticket]
        if not self._tickets and self.closed:
            self.on_drained()
            self._tell_watchers()

    def _tell_watchers(self) -> None:
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)


async def _run(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


async def _finished(work: asyncio.Task[None]) -> None:
    """Wait for a task to end, however it ends. Cancelling this wait cancels the task and waits for it."""
    try:
        await asyncio.wait({work})
    except asyncio.CancelledError:
        work.cancel()
        await asyncio.wait({work})
        raise
