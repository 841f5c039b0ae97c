"""Starting and ending an ASGI application in process, as a server does it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from quiesce.fsm.errors import QuiesceError
from quiesce.participants.excerpts import printable
from quiesce.transport.inprocess import AsgiApplication, Message

__all__ = ["lifespan"]

START_TIMEOUT_S: Final = 30.0


@asynccontextmanager
async def lifespan(app: AsgiApplication) -> AsyncIterator[None]:
    """The time in which an application runs. One that knows no lifespan simply runs.

    Raises:
        QuiesceError: it could not start.
    """
    to_app: asyncio.Queue[Message] = asyncio.Queue()
    from_app: asyncio.Queue[Message] = asyncio.Queue()
    task = asyncio.create_task(_run(app, to_app, from_app))
    try:
        await to_app.put({"type": "lifespan.startup"})
        told = await _told(task, from_app)
        if told.get("type") == "lifespan.startup.failed":
            said = printable(str(told.get("message", "")), 200) or "its lifespan says no more"
            raise QuiesceError(f"the application could not start: {said}")
        yield
    finally:
        if not task.done():
            await to_app.put({"type": "lifespan.shutdown"})
            await _told(task, from_app)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _run(app: AsgiApplication, to_app: asyncio.Queue[Message], from_app: asyncio.Queue[Message]) -> None:
    await app({"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}}, to_app.get, from_app.put)


async def _told(task: asyncio.Task[None], from_app: asyncio.Queue[Message]) -> Message:
    """What the application says, nothing when it has ended: many applications know no lifespan and raise."""
    heard = asyncio.create_task(from_app.get())
    await asyncio.wait({task, heard}, timeout=START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
    if heard.done():
        return heard.result()
    heard.cancel()
    return {}
