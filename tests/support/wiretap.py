"""A transport that remembers every call, and can do something when a certain one is made or alter its reply."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from support.virtual_loop import VirtualClock

from quiesce.transport.faults import CallSite
from quiesce.transport.port import ControlReply, ControlRequest, Transport

__all__ = ["TappedCall", "Wiretap"]


@dataclass(slots=True)
class TappedCall:
    """One call: which, when it left (monotonic seconds), when it was answered and with which status."""

    site: CallSite
    request: ControlRequest
    sent_s: float
    answered_s: float | None = None
    status: int | None = None

    @property
    def body(self) -> Mapping[str, Any]:
        return json.loads(self.request.body) if self.request.body else {}

    @property
    def deadline_ts(self) -> float | None:
        found = self.body.get("deadline_ts", (self.request.query or {}).get("deadline_ts"))
        return float(found) if found is not None else None

    @property
    def is_probe(self) -> bool:
        """Whether it only asks whether a route is there: an empty object, which must be refused."""
        return self.request.method == "POST" and not self.body

    @property
    def is_question(self) -> bool:
        """Whether it only asks, by a resume of what is open, whether a resource server still owes a restore."""
        return self.request.method == "POST" and str(self.body.get("checkpoint_id", "")).endswith("-q")

    @property
    def route(self) -> str:
        """The path without its prefix: ``model-admission/pause``."""
        return self.site.call.removeprefix("POST ").removeprefix("GET ").removeprefix("/ng-control/v1/")


@dataclass
class Wiretap:
    """Remembers calls and meddles with some.

    ``before`` is done when a call leaves, ``replies`` makes of a call's true reply the one that arrives, ``instead``
    answers a call that is then not delivered; the probes of discovery are left alone.
    """

    inner: Transport
    clock: VirtualClock = field(default_factory=VirtualClock)
    before: Mapping[CallSite, Callable[[], object]] = field(default_factory=dict)
    replies: Mapping[CallSite, Callable[[ControlReply, ControlRequest], ControlReply]] = field(default_factory=dict)
    instead: Callable[[TappedCall], ControlReply | None] = lambda _call: None
    calls: list[TappedCall] = field(default_factory=list)
    altered: list[CallSite] = field(default_factory=list)
    _counts: dict[tuple[str, str], int] = field(default_factory=dict)

    async def send(self, request: ControlRequest) -> ControlReply:
        name = (request.participant, request.call)
        self._counts[name] = self._counts.get(name, 0) + 1
        site = CallSite(*name, self._counts[name])
        call = TappedCall(site, request, self.clock.monotonic())
        self.calls.append(call)
        if site in self.before:
            self.before[site]()
        answer = None if call.is_probe else self.instead(call)
        reply = answer or await self.inner.send(request)
        call.answered_s = self.clock.monotonic()
        if site in self.replies:
            truth, reply = reply, self.replies[site](reply, request)
            if reply != truth:
                self.altered.append(site)
        call.status = reply.status
        return reply

    async def aclose(self) -> None:
        await self.inner.aclose()

    # what was called

    @property
    def sites(self) -> list[CallSite]:
        return [call.site for call in self.calls]

    def to(self, route: str, participant: str = "") -> list[TappedCall]:
        """The calls of a route, in order, without probes and questions; the route is a path without its prefix."""
        calls = (call for call in self.calls if not call.is_probe and not call.is_question)
        return [call for call in calls if call.route == route and participant in ("", call.site.participant)]

    def mutating(self) -> list[TappedCall]:
        """The calls that may change something: POSTs, without the probes of discovery, and without the questions."""
        return [
            call for call in self.calls if call.request.method == "POST" and not call.is_probe and not call.is_question
        ]
