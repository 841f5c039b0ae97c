"""Servers that are no participants, or bad ones, as ASGI applications for the fuzzer in process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from quiesce.participants.server.answers import ASGIApp, Message, Receive, Scope, Send

Replying = Callable[[Scope], Awaitable[tuple[int, bytes, str]]]


def answering(reply: Replying) -> ASGIApp:
    """An application whose every reply is status, body and content type of ``reply``."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        status, body, kind = await reply(scope)
        headers = [(b"content-type", kind.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    return app


def always(status: int, body: bytes, kind: str = "application/json") -> ASGIApp:
    """The same reply to everything."""

    async def reply(_scope: Scope) -> tuple[int, bytes, str]:
        return status, body, kind

    return answering(reply)


def generation_b() -> ASGIApp:
    """A server of the other generation: a status below its own family of routes, and nothing of ours."""

    async def reply(scope: Scope) -> tuple[int, bytes, str]:
        if scope["path"] == "/ng-control/v1/checkpoint/status":
            report = {"ready": True}
            status = {"kind": "agent", "instance": "a", "phase": "idle", "checkpoint_id": None, "report": report}
            return 200, json.dumps(status).encode(), "application/json"
        return 404, b'{"detail":"Not Found"}', "application/json"

    return answering(reply)


class Spoiled:
    """An application that is as it was for ``good`` control calls, and then does what ``then`` does.

    Its capabilities are not counted. ``applies`` chooses the calls that are spoiled.
    """

    def __init__(self, app: ASGIApp, then: ASGIApp, *, good: int, path: str = "/ng-control") -> None:
        self.app, self.then, self.good, self.path = app, then, good, path
        self.calls = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(self.path) and not scope["path"].endswith("/capabilities"):
            self.calls += 1
        await (self.then if self._is_spoiled(scope) else self.app)(scope, receive, send)

    def _is_spoiled(self, scope: Scope) -> bool:
        return self.calls > self.good and scope["path"].startswith(self.path)


async def hanging(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """Never answers."""
    await asyncio.Event().wait()


async def cut_off(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Begins a reply and ends in its middle."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": b'{"state":', "more_body": True})


async def endless(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answers without an end."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    chunk: Message = {"type": "http.response.body", "body": b" " * 65536, "more_body": True}
    for _ in range(1000):
        await send(chunk)


def with_capabilities(app: ASGIApp, change: Callable[[dict[str, Any]], dict[str, Any]]) -> ASGIApp:
    """The application with other capabilities."""

    async def changed(scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].endswith("/capabilities"):
            await app(scope, receive, send)
            return
        bodies: list[bytes] = []

        async def keep(message: Message) -> None:
            if message["type"] == "http.response.body":
                bodies.append(message["body"])

        await app(scope, receive, keep)
        body = json.dumps(change(json.loads(b"".join(bodies)))).encode()
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    return changed
