"""Every transport, set up over the same application, for the suite that all of them pass."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from support.control_app import ControlApp
from support.servers import served

from quiesce.transport import (
    AsgiTransport,
    ControlReply,
    ControlRequest,
    FaultyTransport,
    HttpTransport,
    ScriptedFaults,
    TokenProvider,
    Transport,
)


@dataclass
class Setup:
    """A transport, the application behind it, and how many things it holds open."""

    app: ControlApp
    url: str
    transport: Transport
    held: Callable[[], int]

    def request(self, path: str, **parts: Any) -> ControlRequest:  # noqa: ANN401 - any field of the request
        """A request to the application: a GET with plenty of time, unless told otherwise."""
        parts = {"participant": "tools", "method": "GET", "timeout_s": 30.0, **parts}
        return ControlRequest(url=self.url + path, **parts)

    async def send(self, path: str, **parts: Any) -> ControlReply:  # noqa: ANN401 - any field of the request
        return await self.transport.send(self.request(path, **parts))


Opener = Callable[..., contextlib.AbstractAsyncContextManager[Setup]]


@contextlib.asynccontextmanager
async def over_http(tokens: TokenProvider | None = None) -> AsyncIterator[Setup]:
    """HTTP to a real server in the same loop."""
    app = ControlApp()
    async with served(app) as url:
        transport = HttpTransport(tokens)
        try:
            yield Setup(app, url, transport, lambda: transport.open_connections)
        finally:
            app.release.set()
            await transport.aclose()


@contextlib.asynccontextmanager
async def in_process(tokens: TokenProvider | None = None) -> AsyncIterator[Setup]:
    """No socket at all."""
    app = ControlApp()
    transport = AsgiTransport({"http://tools:8000": app}, tokens)
    try:
        yield Setup(app, "http://tools:8000", transport, lambda: 0)
    finally:
        app.release.set()
        await transport.aclose()


@contextlib.asynccontextmanager
async def faultless(tokens: TokenProvider | None = None) -> AsyncIterator[Setup]:
    """HTTP through a faulty transport that has no faults to inject."""
    async with over_http(tokens) as inner:
        inner.transport = FaultyTransport(inner.transport, ScriptedFaults({}))
        yield inner
