"""The gate of a resource server: every POST of the data plane passes it, one at a time a session (wire-protocol 2.20).

``/seed_session`` starts a session, ``/verify`` ends it, other POSTs mutate it; ``/aggregate_metrics``, ``/mcp`` and
control paths are outside. A success raises the session's revision, which the reply names in a header.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quiesce.participants.dialects.gym_a.routes import PREFIX
from quiesce.participants.server.answers import ASGIApp, Message, Receive, Scope, Send, refused, send_answer
from quiesce.participants.server.errors import ControlRefusal
from quiesce.participants.server.headers import REVISION_HEADER, attempt_of
from quiesce.participants.server.ports import ResourceSessions

__all__ = ["ResourcesGate"]

UNGATED_PATHS: Final = ("/aggregate_metrics", "/mcp")


@dataclass(slots=True)
class ResourcesGate:
    """ASGI middleware around a resource server, and the door of its fence."""

    app: ASGIApp
    sessions: ResourceSessions

    # ---- the door of the fence

    def close(self) -> None:
        self.sessions.close()

    def open(self) -> int:
        self.sessions.open()
        return 0

    def is_drained(self) -> bool:
        return True

    def owes_restore(self) -> bool:
        return self.sessions.owes_restore

    # ---- the data plane

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or _outside(scope["path"]):
            await self.app(scope, receive, send)
            return
        try:
            ticket = await self.sessions.enter(scope["path"], attempt_of(scope["headers"]))
        except ControlRefusal as refusal:
            await send_answer(send, refused(refusal, detail_key="message"))
            return

        async def settled(message: Message) -> None:
            if message["type"] == "http.response.start":
                revision = self.sessions.settle(ticket, message["status"])
                if revision is not None:
                    named = (REVISION_HEADER.encode(), str(revision).encode())
                    message = {**message, "headers": [*message.get("headers", ()), named]}
            await send(message)

        try:
            await self.app(scope, receive, settled)
        finally:
            self.sessions.leave(ticket)


def _outside(path: str) -> bool:
    if path.startswith(f"{PREFIX}/"):
        return True
    return any(path.endswith(name) or f"{name}/" in path for name in UNGATED_PATHS)
