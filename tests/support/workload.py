"""The four servers of the workload on loopback, in a thread of their own, for commands in the test's thread."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from quiesce.cli.workload import ServerSettings, build_server
from quiesce.cli.workload.upstream import identity_headers
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.vocabulary import Role
from quiesce.participants.identity import AttemptId
from quiesce.participants.server.answers import ASGIApp, Receive, Scope, Send

TOKEN = "workload-token"
NAMES = {Role.POLICY: "policy_model", Role.AUXILIARY: "judge", Role.AGENT: "agent", Role.RESOURCES: "tools"}


class Arrivals:
    """Which calls have come in; whoever waits for one is told."""

    def __init__(self) -> None:
        self._count: Counter[tuple[Role, str]] = Counter()
        self._changed = threading.Condition()

    def noting(self, role: Role, app: ASGIApp) -> ASGIApp:
        """The application, whose calls are noted."""

        async def noted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                with self._changed:
                    self._count[role, scope["path"]] += 1
                    self._changed.notify_all()
            await app(scope, receive, send)

        return noted

    def wait(self, role: Role, path: str, times: int = 1) -> None:
        """Wait until a server was called that often."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._count[role, path] >= times, timeout=60), (role, path)


@dataclass
class Deployment:
    """Where the four servers are, and what can be asked of their data plane."""

    urls: Mapping[Role, str]
    loop: asyncio.AbstractEventLoop
    arrivals: Arrivals
    calls: list[Future[httpx.Response]] = field(default_factory=list)

    def run(self, rollout_id: str, *, turns: int, attempt_index: int = 0) -> Future[httpx.Response]:
        """Begin a rollout; its reply comes when it is over."""
        body = {"task": f"task of {rollout_id}", "turns": turns}
        headers = identity_headers(AttemptId(rollout_id, attempt_index))

        async def post() -> httpx.Response:
            async with httpx.AsyncClient(timeout=60) as http:
                return await http.post(f"{self.urls[Role.AGENT]}/run", json=body, headers=headers)

        call = asyncio.run_coroutine_threadsafe(post(), self.loop)
        self.calls.append(call)
        return call

    def result(self, rollout_id: str, *, turns: int, attempt_index: int = 0) -> dict[str, Any]:  # Any: a JSON reply
        """Run a rollout to its end."""
        reply = self.run(rollout_id, turns=turns, attempt_index=attempt_index).result(60)
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found

    def capabilities(self, role: Role) -> dict[str, Any]:  # Any: as above
        """What a server declares now."""
        reply = httpx.get(f"{self.urls[role]}/ng-control/v1/capabilities", timeout=60)
        found: dict[str, Any] = reply.json()
        return found

    def phases(self) -> set[str]:
        """The phases of everybody."""
        return {self.capabilities(role)["phase"] for role in Role}

    def write_config(self, directory: Path, *, extra: str = "") -> Path:
        """A configuration of these servers, with its root beside it."""
        rows = "\n".join(f'  {{ name = "{NAMES[role]}", url = "{url}" }},' for role, url in self.urls.items())
        path = directory / "quiesce.toml"
        path.write_text(f'root = "root"\n{extra}\n[deployment.main]\nparticipants = [\n{rows}\n]\n')
        return path


@contextlib.asynccontextmanager
async def served_with_lifespan(application: ASGIApp, listening: socket.socket) -> AsyncIterator[None]:
    """Serve an application, its lifespan included, without touching the signals."""
    config = uvicorn.Config(application, lifespan="on", log_config=None, ws="none", timeout_graceful_shutdown=1)
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listening])
    try:
        yield
    finally:
        await server.shutdown(sockets=[listening])


@contextlib.asynccontextmanager
async def deployed(
    *,
    fence: FenceVariant = FenceVariant.STRICT,
    expects_restore: bool = False,
    latency_s: float = 0.01,
    lease_s: float | None = None,
    arrivals: Arrivals | None = None,
) -> AsyncIterator[Mapping[Role, str]]:
    """The four servers in this event loop; their URLs."""
    noting = (arrivals or Arrivals()).noting
    sockets = {role: socket.create_server(("127.0.0.1", 0), backlog=128) for role in Role}
    for listening in sockets.values():
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as quiesce serve does
    urls = {role: f"http://127.0.0.1:{listening.getsockname()[1]}" for role, listening in sockets.items()}
    upstreams = {
        Role.POLICY: {Role.AUXILIARY: (urls[Role.AUXILIARY],)},
        Role.AGENT: {Role.POLICY: (urls[Role.POLICY],), Role.RESOURCES: (urls[Role.RESOURCES],)},
    }
    async with contextlib.AsyncExitStack() as stack:
        for role in Role:
            settings = ServerSettings(
                role=role,
                token=TOKEN,
                fence=fence,
                latency_s=0 if role is Role.AGENT else latency_s,
                upstreams=upstreams.get(role, {}),
                expects_restore=expects_restore and role is Role.RESOURCES,
                lease_s=None if role is Role.AUXILIARY else lease_s,
            )
            await stack.enter_async_context(served_with_lifespan(noting(role, build_server(settings)), sockets[role]))
        yield urls


@contextlib.contextmanager
def deployment(
    *,
    fence: FenceVariant = FenceVariant.STRICT,
    expects_restore: bool = False,
    latency_s: float = 0.01,
    lease_s: float | None = None,
) -> Iterator[Deployment]:
    """The four servers in a thread; leaving ends them, and whatever runs on them breaks off."""
    up: Future[Deployment] = Future()
    over: Future[asyncio.Event] = Future()

    async def serve() -> None:
        ended = asyncio.Event()
        over.set_result(ended)
        arrivals = Arrivals()
        async with deployed(
            fence=fence, expects_restore=expects_restore, latency_s=latency_s, lease_s=lease_s, arrivals=arrivals
        ) as urls:
            up.set_result(Deployment(urls, asyncio.get_running_loop(), arrivals))
            await ended.wait()
        await _cancel_the_rest()

    def thread() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if not up.done():
                up.set_exception(error)
            raise

    running = threading.Thread(target=thread, name="workload")
    running.start()
    try:
        yield up.result(30)
    finally:
        ended = over.result(30)
        up.result(30).loop.call_soon_threadsafe(ended.set)
        running.join(30)
        assert not running.is_alive()


async def _cancel_the_rest() -> None:
    rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
