"""What goes back to the caller: an answer as a value, and the ASGI messages that it becomes (wire-protocol 3.1).

Control refusals are ``{"error": {"code", "detail"}}``; a resource server's data plane says ``message`` in place of
``detail``; a missing bearer is ``{"detail": <text>}``; a crash is a bare text with status 500.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from quiesce.participants.server.errors import ControlRefusal

__all__ = [
    "CRASHED",
    "ASGIApp",
    "Answer",
    "Message",
    "Receive",
    "Scope",
    "Send",
    "ok",
    "refused",
    "send_answer",
    "unauthorized",
]

# the shapes of the ASGI specification, which leaves the values open
Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply. ``content`` is a JSON value, or text when ``bare``."""

    status: int
    content: object
    bare: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> bytes:
        if self.bare:
            return str(self.content).encode()
        return json.dumps(self.content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()

    @property
    def media_type(self) -> str:
        return "text/plain; charset=utf-8" if self.bare else "application/json"


CRASHED: Final = Answer(500, "Internal Server Error", bare=True)
"""An operation raised what it must not: the client learns only that it crashed."""


def ok(fields: Mapping[str, object]) -> Answer:
    """A success; exactly 200 on every route (wire-protocol 0.2)."""
    return Answer(200, dict(fields))


def refused(refusal: ControlRefusal, *, detail_key: str = "detail", headers: Mapping[str, str] | None = None) -> Answer:
    """The error envelope of a refusal."""
    content = {"error": {"code": refusal.code.value, detail_key: refusal.detail}}
    return Answer(refusal.status, content, headers=headers or {})


def unauthorized() -> Answer:
    """The bearer is missing or wrong; nothing says which."""
    return Answer(401, {"detail": "missing or invalid control-plane bearer token"})


async def send_answer(send: Send, answer: Answer) -> None:
    """Send an answer as one whole ASGI response."""
    body = answer.body()
    headers = {"content-type": answer.media_type, "content-length": str(len(body)), **answer.headers}
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
