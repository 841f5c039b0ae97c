"""The few calls that are made before it is known who a participant is: one request at a time, one answer waited for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from quiesce.fuzz.line import Line
from quiesce.fuzz.seen import Seen
from quiesce.fuzz.steps import Operation
from quiesce.fuzz.subject import Subject
from quiesce.fuzz.verdicts import Verdict, verdict_on
from quiesce.fuzz.wording import REPLY_BODY_CAP
from quiesce.participants.dialects.gym_a.routes import ROUTE_BY_NAME
from quiesce.participants.errors import Unreachable
from quiesce.transport.port import ControlRequest

__all__ = ["Asking"]


@dataclass(slots=True)
class Asking:
    """Asks at one URL. ``answer_s`` is what a call that does not wait may take."""

    url: str
    line: Line
    answer_s: float
    _sent_at: float = field(default=0.0, init=False)

    async def status(self, subject: Subject, checkpoint_id: str) -> Seen:
        """Ask for the status, or for the capabilities where there is none."""
        query = {"checkpoint_id": checkpoint_id}
        route = subject.routes.get(Operation.STATUS, ROUTE_BY_NAME["capabilities"])
        if route.query is not None and "deadline_ts" in route.query.model_fields:
            query["deadline_ts"] = str(self.line.clock.now_ts() + self.answer_s)
        return await self.send(route.method, route.path, query, None)

    async def post(
        self, subject: Subject, operation: Operation, checkpoint_id: str, *, within_s: float | None = None
    ) -> Seen:
        """Send a call that consists of the envelope alone."""
        route = subject.routes[operation]
        self.line.ids.add(checkpoint_id)
        deadline_ts = self.line.clock.now_ts() + (self.answer_s if within_s is None else within_s)
        body = {"checkpoint_id": checkpoint_id, "deadline_ts": deadline_ts}
        return await self.send(route.method, route.path, None, body)

    async def get(self, path: str, *, authorized: bool = False) -> Seen:
        """Read a route."""
        return await self.send("GET", path, None, None, authorized=authorized)

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Mapping[str, object] | None,
        *,
        authorized: bool = True,
    ) -> Seen:
        """Send a request and wait for its answer.

        Raises:
            NeverSent, MaybeApplied: as the transport's port says.
        """
        request = ControlRequest(
            participant=self.url,
            method=method,
            url=self.url.rstrip("/") + path,
            timeout_s=self.answer_s,
            query=query,
            body=None if body is None else json.dumps(body).encode(),
            headers={} if body is None else {"content-type": "application/json"},
            authorized=authorized,
            body_cap=REPLY_BODY_CAP,
        )
        await self.line.free()
        self._sent_at = self.line.clock.monotonic()
        return await self.line.send(request)

    def verdict_on(self, error: Unreachable) -> Verdict:
        """What somebody is who did not answer the last call."""
        waited_s = self.line.clock.monotonic() - self._sent_at
        return verdict_on(error, waited_s=waited_s, timeout_s=self.answer_s)
