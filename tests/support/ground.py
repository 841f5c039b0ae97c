"""Where a scenario of the controller is played: on the kit's servers in virtual time, and behind real HTTP servers.

A scenario is one coroutine. On either ground it sees the same fleet, and can do something right before a call of the
controller leaves, in its place, or as somebody else; nothing in it waits for time to pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from support.fleet import Fleet
from support.servers import served
from support.virtual_loop import VirtualClock, run_virtual

from quiesce.controller import Controller, OnCompleted
from quiesce.controller.clock import Clock, SystemClock
from quiesce.controller.config import Config, parse_config
from quiesce.participants.server.mount import mount_coordinator
from quiesce.participants.server.workers import Workers
from quiesce.transport import HttpTransport
from quiesce.transport.delivery import maybe_applied
from quiesce.transport.inprocess import AsgiApplication, AsgiTransport
from quiesce.transport.port import ControlReply, ControlRequest, Transport
from quiesce.transport.token import StaticTokenProvider

IN_PROCESS, OVER_HTTP = "in process", "over http"
PREFIX: Final = "/ng-control/v1/"
DISCOVERY: Final = "quiesce-discovery"
CLOSING: Final = ("pause", "prepare", "restore")

Act = Callable[[], object]
Scenario = Callable[["Ground", Path], Awaitable[None]]


@dataclass
class CoordinatedFleet(Fleet):
    """A fleet whose policy has two workers behind a recorded coordinator; ``model_server`` commits and restores."""

    acknowledge_timeout_s: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        self.workers = Workers(2, acknowledge_timeout_s=self.acknowledge_timeout_s)
        self.apps["policy"], self.model_server = mount_coordinator(
            self._model, ledger=self.ledger, workers=self.workers, token=self.token, clock=self.clock
        )

    async def everybody_accepts(self) -> bool:
        """Whether nobody is held and every gate is open, every worker's among them."""
        return await super().everybody_accepts() and not any(worker.gate.closed for worker in self.workers)


@dataclass(frozen=True, slots=True)
class Said:
    """One call of the controller and what came of it. ``what`` is the end of its path."""

    who: str
    what: str
    checkpoint_id: str
    status: int | None = None
    code: str | None = None

    def __str__(self) -> str:
        fresh = f" {self.checkpoint_id[-3:]}" if self.checkpoint_id[-3:-1] == "-h" else ""
        return f"{self.what}{fresh} {self.code or self.status or 'lost'}"


@dataclass
class Waylaid:
    """A transport that keeps what was said, and lets a test act before a call leaves or lose it."""

    inner: Transport
    log: list[Said] = field(default_factory=list)
    acts: dict[tuple[str, str, int], Act] = field(default_factory=dict)
    lost: set[tuple[str, str, int]] = field(default_factory=set)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    async def send(self, request: ControlRequest) -> ControlReply:
        """Carry one call; probes and status calls of the discovery pass unseen."""
        who, what = request.participant.removeprefix("main/"), request.url.rpartition("/")[2]
        sent = json.loads(request.body) if request.body else dict(request.query or {})
        checkpoint_id = sent.get("checkpoint_id", "")
        if checkpoint_id == DISCOVERY or (not checkpoint_id and what != "capabilities"):
            return await self.inner.send(request)
        self.counts[who, what] += 1
        here = (who, what, self.counts[who, what])
        act = self.acts.pop(here, None)
        if act is not None and inspect.isawaitable(acted := act()):
            await acted
        if here in self.lost:
            self.log.append(Said(who, what, checkpoint_id))
            raise maybe_applied(request, "lost by the test")
        return await self._carry(request, Said(who, what, checkpoint_id))

    async def _carry(self, request: ControlRequest, said: Said) -> ControlReply:
        reply = await self.inner.send(request)
        body = json.loads(reply.body) if reply.body.startswith(b"{") else {}
        code = body.get("error", {}).get("code")
        self.log.append(Said(said.who, said.what, said.checkpoint_id, reply.status, code))
        return reply

    async def aclose(self) -> None:
        """Close what is under it."""
        await self.inner.aclose()


@dataclass
class Ground:
    """A fleet, where its servers are, and the way to them."""

    fleet: Fleet
    urls: dict[str, str]
    way: Waylaid

    @property
    def coordinated(self) -> CoordinatedFleet:
        """The fleet, where it has a coordinator."""
        assert isinstance(self.fleet, CoordinatedFleet)
        return self.fleet

    def controller(
        self,
        root: Path,
        *,
        on_completed: OnCompleted | None = None,
        without_model_server: bool = False,
        **settings: float | str,
    ) -> Controller:
        """A controller over these servers; ``settings`` are top-level keys."""
        return Controller(
            self.config(root, without_model_server=without_model_server, **settings),
            transport=self.way,
            on_completed=on_completed,
            observers=(self.fleet.traces.append,),
            clock=self.fleet.clock,
        )

    def config(self, root: Path, *, without_model_server: bool = False, **settings: float | str) -> Config:
        """Its configuration."""
        servers = []
        for name in self.fleet.apps:
            beside = self.urls.get("model_server") if name == "policy" and not without_model_server else None
            also = f', checkpoint_url = "{beside}"' if beside else ""
            servers.append(f'{{ name = "{name}", url = "{self.urls[name]}"{also} }}')
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        text = "\n".join([f'root = "{root}"', *lines, "[deployment.main]", f"participants = [{', '.join(servers)}]"])
        return parse_config(text, source="ground", directory=root, environment={})

    # what the controller said, and who comes between

    def said(self, who: str) -> list[str]:
        """The controller's calls to a participant, from the first that may close it on; ``-h1`` marks a fresh id."""
        mine = [said for said in self.way.log if said.who == who]
        first = next((place for place, said in enumerate(mine) if said.what in CLOSING), len(mine))
        return [str(said) for said in mine[first:]]

    @property
    def wire_id(self) -> str:
        """The id of the transaction that called last."""
        last = next(said.checkpoint_id for said in reversed(self.way.log) if said.checkpoint_id)
        return last[:-3] if last[-3:-1] == "-h" else last

    def before(self, who: str, what: str, nth: int, act: Act) -> None:
        """Do something right before the nth such call leaves."""
        self.way.acts[who, what, nth] = act

    def lose(self, who: str, what: str, *nths: int) -> None:
        """Lose these calls on their way."""
        self.way.lost |= {(who, what, nth) for nth in nths}

    async def ask(self, who: str, path: str, checkpoint_id: str, *, in_s: float = 30.0) -> str:
        """Call a participant as somebody else does; the code or the status of the answer."""
        body = {"checkpoint_id": checkpoint_id, "deadline_ts": self.fleet.clock.now_ts() + in_s}
        request = ControlRequest(
            participant=who,
            method="POST",
            url=f"{self.urls[who]}{PREFIX}{path}",
            timeout_s=in_s + 30.0,
            body=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
            authorized=True,
        )
        reply = await self.way.inner.send(request)
        code = json.loads(reply.body).get("error", {}).get("code")
        return str(code or reply.status)


def on_every_ground(build: Callable[[Clock], Fleet]) -> Callable[[Scenario], Callable[[str, Path], None]]:
    """Make a scenario a test that is run on both grounds."""

    def made(scenario: Scenario) -> Callable[[str, Path], None]:
        @pytest.mark.parametrize("where", [IN_PROCESS, OVER_HTTP])
        def test(where: str, tmp_path: Path) -> None:
            if where == IN_PROCESS:
                run_virtual(_play(scenario, tmp_path, _in_process(build(VirtualClock()))))
            else:
                asyncio.run(_play(scenario, tmp_path, _over_http(build(SystemClock()))))

        test.__name__, test.__doc__ = getattr(scenario, "__name__", "scenario"), scenario.__doc__
        return test

    return made


async def _play(scenario: Scenario, root: Path, ground: contextlib.AbstractAsyncContextManager[Ground]) -> None:
    async with ground as here:
        await scenario(here, root)


@contextlib.asynccontextmanager
async def _in_process(fleet: Fleet) -> AsyncIterator[Ground]:
    urls = {name: f"http://{name.replace('_', '-')}" for name in _applications(fleet)}
    apps = {urls[name]: app for name, app in _applications(fleet).items()}
    inner = AsgiTransport(apps, StaticTokenProvider(fleet.token))
    try:
        yield Ground(fleet, urls, Waylaid(inner))
    finally:
        await inner.aclose()


@contextlib.asynccontextmanager
async def _over_http(fleet: Fleet) -> AsyncIterator[Ground]:
    async with contextlib.AsyncExitStack() as stack:
        applications = _applications(fleet)
        urls = {name: await stack.enter_async_context(served(app)) for name, app in applications.items()}
        inner = HttpTransport(StaticTokenProvider(fleet.token))
        stack.push_async_callback(inner.aclose)
        yield Ground(fleet, urls, Waylaid(inner))


def _applications(fleet: Fleet) -> dict[str, AsgiApplication]:
    """Every server of a fleet; what stands under its name when a call arrives is what answers."""

    def standing(name: str) -> AsgiApplication:
        async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - as ASGI has it
            await fleet.apps[name](scope, receive, send)

        return app

    found = {name: standing(name) for name in fleet.apps}
    if isinstance(fleet, CoordinatedFleet):
        found["model_server"] = fleet.model_server
    return found
