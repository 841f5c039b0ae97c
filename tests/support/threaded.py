"""One application over HTTP on loopback, in a thread of its own, for commands in the test's thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from support.servers import served

from quiesce.participants.server.answers import ASGIApp

__all__ = ["threaded"]

PATIENCE_S = 60
"""How long its begin and its end may take on a machine that is busy with other things."""


@contextmanager
def threaded(application: ASGIApp) -> Iterator[str]:
    """Where the application is served meanwhile."""
    up: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        over = asyncio.Event()
        async with served(application) as url:
            up.set_result((url, asyncio.get_running_loop(), over))
            await over.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if not up.done():
                up.set_exception(error)
            raise

    running = threading.Thread(target=run, name="threaded")
    running.start()
    url, loop, over = up.result(PATIENCE_S)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(over.set)
        running.join(PATIENCE_S)
        assert not running.is_alive()
