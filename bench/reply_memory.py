"""Resident memory after a reply of 100 MB, over before."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from pathlib import Path

from measured import Measured

from quiesce.participants.errors import MaybeApplied
from quiesce.transport.http import HttpTransport
from quiesce.transport.port import ControlRequest

REPLY_BYTES = 100 << 20
REACH_MB = 2.0
_PAGE = 4096


def _resident_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * _PAGE / (1 << 20)


async def _flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.CancelledError):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {REPLY_BYTES}\r\n\r\n".encode())
        chunk = b"x" * 65536
        for _ in range(REPLY_BYTES // len(chunk)):
            writer.write(chunk)
            await writer.drain()
    writer.close()


async def measure() -> list[Measured]:
    """The same call is made once before, so that what a first call loads is not counted."""
    server = await asyncio.start_server(_flood, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = HttpTransport()
    request = ControlRequest(
        participant="flood", method="GET", url=f"http://127.0.0.1:{port}/x", timeout_s=30, body_cap=1 << 20
    )
    for _ in range(2):
        with contextlib.suppress(MaybeApplied):
            await transport.send(request)
    before_mb = _resident_mb()
    with contextlib.suppress(MaybeApplied):
        await transport.send(request)
    after_mb = _resident_mb()
    await transport.aclose()
    server.close()
    await server.wait_closed()
    grown = max(0.0, after_mb - before_mb)
    return [Measured("resident memory after a 100 MB reply: growth, over the 2 MB allowed", grown, REACH_MB, "MB", 1)]
