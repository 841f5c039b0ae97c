"""A fleet behind real HTTP servers, on a thread and a loop of its own: for callers that block."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from support.fleet import Fleet
from support.servers import served

from quiesce.controller import Config, parse_config
from quiesce.controller.clock import SystemClock
from quiesce.fsm.tables.fence import FenceVariant

__all__ = ["ServedFleet", "served_fleet"]

T = TypeVar("T")


class ServedFleet:
    """The fleet, where its servers are, and a way to do something on its loop."""

    def __init__(self, fence: FenceVariant) -> None:
        self._fence = fence
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self.fleet: Fleet
        self.urls: dict[str, str] = {}

    async def serve(self, ready: Future[None]) -> None:
        """Serve until told otherwise."""
        self.fleet = Fleet(self._fence, clock=SystemClock(), turn_s=0.02)
        async with contextlib.AsyncExitStack() as stack:
            for name, app in self.fleet.apps.items():
                self.urls[name] = await stack.enter_async_context(served(app))
            ready.set_result(None)
            await self._over.wait()

    def run(self, work: Callable[[Fleet], Coroutine[Any, Any, T]]) -> T:
        """Do something on the fleet's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work(self.fleet), self._loop).result(30)

    def everybody_accepts(self) -> bool:
        """Whether nobody is held and every gate is open."""
        return self.run(lambda fleet: fleet.everybody_accepts())

    def stop(self) -> None:
        """Let the servers end."""
        self._loop.call_soon_threadsafe(self._over.set)

    def config(self, root: Path, text: str = "") -> Config:
        """A configuration over these servers; ``text`` is further TOML before the deployment."""
        servers = ", ".join(f'{{ name = "{name}", url = "{url}" }}' for name, url in self.urls.items())
        whole = f'root = "{root}"\n{text}\n[deployment.main]\nparticipants = [{servers}]'
        return parse_config(whole, source="served", directory=root, environment={})

    def forever(self, ready: Future[None]) -> None:
        """What the thread runs."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self.serve(ready))


@contextlib.contextmanager
def served_fleet(fence: FenceVariant = FenceVariant.STRICT) -> Iterator[ServedFleet]:
    """A fleet that is served while the context lasts."""
    here = ServedFleet(fence)
    ready: Future[None] = Future()
    thread = threading.Thread(target=here.forever, args=(ready,), name="servers")
    thread.start()
    try:
        ready.result(30)
        yield here
    finally:
        here.stop()
        thread.join(30)
