"""Real servers on 127.0.0.1 in the test's own event loop: uvicorn for an application, and a scripted bare socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import uvicorn

from quiesce.transport import AsgiApplication

if TYPE_CHECKING:
    from uvicorn._types import ASGIApplication


@contextlib.asynccontextmanager
async def served(application: AsgiApplication) -> AsyncIterator[str]:
    """The origin at which uvicorn serves an application; no signal handler, no thread, no log."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as quiesce serve does
    config = uvicorn.Config(
        cast("ASGIApplication", application),
        lifespan="off",
        log_config=None,
        ws="none",
        timeout_graceful_shutdown=1,
        access_log=False,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listening])
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        await _stop(server)


async def _stop(server: uvicorn.Server) -> None:
    """What ``uvicorn.Server.shutdown`` does, without its fixed wait of 0.1 s in each test."""
    for listening in server.servers:
        listening.close()
    for connection in list(server.server_state.connections):
        connection.shutdown()
    if server.server_state.tasks:
        _, running = await asyncio.wait(server.server_state.tasks, timeout=5)
        for handler in running:
            handler.cancel()
    for listening in server.servers:
        await listening.wait_closed()


@dataclass
class Wire:
    """What a bare server has seen."""

    url: str
    connections: int = 0
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    written: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)


Script = Callable[["Peer"], Awaitable[None]]


class Peer:
    """One connection to a bare server, as its script sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wire: Wire) -> None:
        self._reader = reader
        self._writer = writer
        self._wire = wire

    async def request(self) -> bytes:
        """Read one request; its head."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        self._wire.heads.append(head)
        self._wire.bodies.append(await self._reader.readexactly(length))
        return head

    async def write(self, raw: bytes) -> None:
        """Write bytes as they are."""
        self._writer.write(raw)
        await self._writer.drain()
        self._wire.written += len(raw)

    async def reply(self, body: bytes = b"{}", *, status: str = "200 OK", headers: bytes = b"") -> None:
        """Write a whole reply."""
        await self.write(b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status.encode(), headers, len(body), body))

    async def until_left(self) -> None:
        """Wait until the client has closed the connection."""
        with contextlib.suppress(OSError):
            await self._reader.read()

    def reset(self) -> None:
        """Break the connection with a reset."""
        linger_for_nothing = struct.pack("ii", 1, 0)
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_for_nothing)
        self._writer.transport.abort()


@contextlib.asynccontextmanager
async def bare(script: Script, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Wire]:
    """A server that runs ``script`` for every connection and closes it afterwards. A failing script fails the test."""
    failures: list[Exception] = []
    wire = Wire("")

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire.connections += 1
        try:
            await script(Peer(reader, writer, wire))
        except (OSError, asyncio.IncompleteReadError):
            pass
        except Exception as error:  # noqa: BLE001 - reported where the test can see it
            failures.append(error)
        finally:
            wire.over.set()
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    scheme = "http" if tls is None else "https"
    wire.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield wire
    finally:
        server.close()
        await server.wait_closed()
    if failures:
        raise failures[0]


def closed_port() -> int:
    """A port of 127.0.0.1 at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
