"""An ASGI application that shows what it was sent and does, on request, what participants do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ControlApp:
    """Answers by path; everything that a test waits for is an event, never a duration.

    /echo what was sent; /status/N; /size/N a body of N bytes; /names header names in mixed case; /hang until
    ``release`` is set, noticing when the client leaves; /drip a reply that never ends; /meet waits until ``expected``
    calls are in; /crash; /cut raises in the middle of its reply; /unauthorized 401 unless the bearer is ``accepted``.
    """

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.client_left = asyncio.Event()
        self.release = asyncio.Event()
        self.finished = asyncio.Event()
        self.everybody_in = asyncio.Event()
        self.expected = 0
        self.accepted = "Bearer right"
        self.inside = 0
        self.inside_peak = 0
        self.calls: list[str] = []
        self.bearers: list[str | None] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        path = scope["path"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.calls.append(f"{scope['method']} {path}")
        self.bearers.append(headers.get("authorization"))
        self.inside += 1
        self.inside_peak = max(self.inside_peak, self.inside)
        try:
            await self._answer(path, scope, headers, receive, send)
        finally:
            self.inside -= 1

    async def _answer(self, path: str, scope: Message, headers: dict[str, str], receive: Receive, send: Send) -> None:
        match path.strip("/").split("/"):
            case ["echo"]:
                await _reply(send, 200, await _echo(scope, headers, receive))
            case ["status", status]:
                await _reply(send, int(status), b"{}")
            case ["size", size]:
                await _reply(send, 200, b"x" * int(size))
            case ["names"]:
                await _reply(send, 200, b"{}", [(b"X-One", b"a"), (b"x-ONE", b"b"), (b"Set-Cookie", b"session=secret")])
            case ["hang"]:
                await self._hang(receive, send)
            case ["drip"]:
                await self._drip(send)
            case ["meet"]:
                await self._meet(send)
            case ["crash" | "cut" as way]:
                await _fail(way, send)
            case ["unauthorized"]:
                right = headers.get("authorization") == self.accepted
                await _reply(send, 200 if right else 401, b"{}")
            case _:
                raise AssertionError(path)

    async def _hang(self, receive: Receive, send: Send) -> None:
        self.started.set()
        leaving = asyncio.create_task(self._watch(receive))
        await self.release.wait()
        await _reply(send, 200, b"{}")
        leaving.cancel()
        self.finished.set()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.client_left.set()

    async def _drip(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        self.started.set()
        while not self.release.is_set():
            await send({"type": "http.response.body", "body": b".", "more_body": True})
            await asyncio.sleep(0.001)

    async def _meet(self, send: Send) -> None:
        if self.inside >= self.expected:
            self.everybody_in.set()
        await self.everybody_in.wait()
        await _reply(send, 200, b"{}")


async def _echo(scope: Message, headers: dict[str, str], receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    query = parse_qsl(
        scope["query_string"].decode(), keep_blank_values=True, strict_parsing=bool(scope["query_string"])
    )
    seen = {"method": scope["method"], "path": scope["path"], "query": query, "headers": headers, "body": body.hex()}
    return json.dumps(seen).encode()


async def _reply(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    length = (b"content-length", str(len(body)).encode())
    kind = (b"content-type", b"application/json")
    await send({"type": "http.response.start", "status": status, "headers": [kind, length, *(headers or [])]})
    await send({"type": "http.response.body", "body": body})


async def _fail(way: str, send: Send) -> None:
    if way == "cut":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise RuntimeError("a participant's bug")
