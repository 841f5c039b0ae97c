"""A caller of ASGI applications in the test's own loop: whole replies, streams that are read bit by bit, hang-ups."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from quiesce.participants.server.answers import ASGIApp, Message

Json = Any  # JSON has no shape that a type could hold


@dataclass
class Caller:
    """One request that is being answered. ``task`` ends when the application does.

    ``hang_up`` tells the application that the client is gone. ``limit`` holds back what is sent: with ``hold`` set
    the application's next send waits for ``let_through``.
    """

    app: ASGIApp
    method: str
    path: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    query: str = ""
    status: int | None = None
    reply_headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)
    complete: bool = False
    hold: asyncio.Event | None = None
    task: asyncio.Task[None] = field(init=False)
    _gone: asyncio.Event = field(default_factory=asyncio.Event)
    _sent: bool = False

    def start(self) -> Caller:
        """Send the request without waiting for the reply."""
        self.task = asyncio.ensure_future(self._run())
        return self

    async def _run(self) -> None:
        scope: Message = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "root_path": "",
            "query_string": self.query.encode(),
            "headers": self.headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        await self.app(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        if not self._sent:
            self._sent = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self.hold is not None:
            await self.hold.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.reply_headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.chunks.append(message.get("body", b""))
            self.complete = not message.get("more_body", False)

    def hang_up(self) -> None:
        """The client leaves."""
        self._gone.set()

    @property
    def raw(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def json(self) -> Json:
        """The reply's body; None where it is not JSON."""
        try:
            return json.loads(self.raw)
        except ValueError:
            return None

    @property
    def code(self) -> str | None:
        """``error.code`` of the reply, None where it has none."""
        error = self.json.get("error") if isinstance(self.json, dict) else None
        return error.get("code") if isinstance(error, dict) else None

    async def done(self) -> Caller:
        """Wait for the application to end."""
        await self.task
        return self


def calling(
    app: ASGIApp,
    method: str,
    path: str,
    *,
    json_body: Json = None,
    body: bytes | None = None,
    query: Mapping[str, object] | None = None,
    headers: Mapping[str, str | bytes] | None = None,
) -> Caller:
    """A request on its way."""
    sent = body if body is not None else b"" if json_body is None else json.dumps(json_body).encode()
    raw = [
        (name.lower().encode(), value if isinstance(value, bytes) else value.encode())
        for name, value in (headers or {}).items()
    ]
    return Caller(app, method, path, raw, sent, urlencode(query or {})).start()


async def ask(
    app: ASGIApp,
    method: str,
    path: str,
    *,
    json_body: Json = None,
    body: bytes | None = None,
    query: Mapping[str, object] | None = None,
    headers: Mapping[str, str | bytes] | None = None,
) -> Caller:
    """A request and its whole reply."""
    caller = calling(app, method, path, json_body=json_body, body=body, query=query, headers=headers)
    return await caller.done()
