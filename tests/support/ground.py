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
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from support.fleet import Fleet, keep
from support.servers import served
from support.virtual_loop import VirtualClock, run_virtual

from quiesce.controller import Controller, OnCompleted
from quiesce.controller.clock import Clock, SystemClock
from quiesce.controller.config import Config, parse_config
from quiesce.fsm.tables.fence import FenceEvent
from quiesce.participants.server.answers import Answer
from quiesce.participants.server.fence import Call, LiveFence
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
LONGEST_S: Final = 90.0
"""A scenario over HTTP that takes this long hangs."""
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


@dataclass(slots=True)
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
    """A transport that keeps what was said, and lets a test act before or after a call, or lose it."""

    inner: Transport
    log: list[Said] = field(default_factory=list)
    before: dict[tuple[str, str, int], Act] = field(default_factory=dict)
    after: dict[tuple[str, str, int], Act] = field(default_factory=dict)
    lost: set[tuple[str, str, int]] = field(default_factory=set)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    async def send(self, request: ControlRequest) -> ControlReply:
        """Carry one call; probes, status calls of the discovery and questions for an owed restore pass unseen."""
        who, what = request.participant.removeprefix("main/"), request.url.rpartition("/")[2]
        sent = json.loads(request.body) if request.body else dict(request.query or {})
        checkpoint_id = sent.get("checkpoint_id", "")
        if checkpoint_id == DISCOVERY or checkpoint_id.endswith("-q") or (not checkpoint_id and what != "capabilities"):
            return await self.inner.send(request)
        self.counts[who, what] += 1
        here = (who, what, self.counts[who, what])
        await _done(self.before.pop(here, None))
        said = Said(who, what, checkpoint_id)
        self.log.append(said)
        if here in self.lost:
            raise maybe_applied(request, "lost by the test")
        reply = await self.inner.send(request)
        said.status, said.code = reply.status, _code(reply)
        await _done(self.after.pop(here, None))
        return reply

    async def aclose(self) -> None:
        """Close what is under it."""
        await self.inner.aclose()


async def _done(act: Act | None) -> None:
    if act is not None and inspect.isawaitable(acted := act()):
        await acted


def _code(reply: ControlReply) -> str | None:
    try:
        body = json.loads(reply.body) if reply.body.startswith(b"{") else {}
    except ValueError:  # garbled on its way
        return None
    code = body.get("error", {}).get("code")
    return None if code is None else str(code)


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
        reach_timeout_s: float = 30.0,
        release_timeout_s: float = 30.0,
        **settings: object,
    ) -> Controller:
        """A controller over these servers; ``settings`` are further top-level keys."""
        times = {"reach_timeout_s": reach_timeout_s, "release_timeout_s": release_timeout_s, **settings}
        return Controller(
            self._config(root, times, without_model_server=without_model_server),
            transport=self.way,
            on_completed=on_completed,
            observers=(self.fleet.traces.append,),
            clock=self.fleet.clock,
        )

    def _config(self, root: Path, times: Mapping[str, object], *, without_model_server: bool) -> Config:
        servers = []
        for name in self.fleet.apps:
            beside = self.urls.get("model_server") if name == "policy" and not without_model_server else None
            also = f', checkpoint_url = "{beside}"' if beside else ""
            servers.append(f'{{ name = "{name}", url = "{self.urls[name]}"{also} }}')
        lines = [f"{key} = {json.dumps(value)}" for key, value in times.items()]
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
        self.way.before[who, what, nth] = act

    def after(self, who: str, what: str, nth: int, act: Act) -> None:
        """Do something when the nth such call is answered, before the controller hears of it."""
        self.way.after[who, what, nth] = act

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
        return _code(reply) or str(reply.status)

    def arrival(self, who: str, event: FenceEvent) -> asyncio.Event:
        """Set when such a call is at a participant's fence."""
        arrived = asyncio.Event()
        fence: LiveFence = self.fleet.apps[who].fence
        real = fence.call

        async def call(asked: Call) -> Answer:
            if asked.event is event:
                arrived.set()
            return await real(asked)

        fence.call = call  # type: ignore[method-assign,assignment]  # tells when the call is in
        return arrived

    async def cancelled_cut(self, root: Path, arrived: asyncio.Event) -> None:
        """A cut whose caller is cancelled once something has happened; it ends with everybody open."""
        async with self.controller(root) as controller:

            async def cut() -> None:
                async with controller.cut("cancelled"):
                    raise AssertionError("it is cancelled before it is reached")

            cutting = asyncio.ensure_future(cut())
            waiting = asyncio.ensure_future(arrived.wait())
            await asyncio.wait({cutting, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            cutting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cutting
            assert controller.unsettled is None
            assert controller.store.list() == ()
        assert await self.fleet.everybody_accepts()

    async def next_cut_works(self, root: Path) -> None:
        """A cut to which nobody had to do anything, and which leaves everybody open."""
        async with self.controller(root, on_completed=keep) as controller:
            async with controller.cut("next") as cut:
                assert not await self.fleet.everybody_accepts()
            assert controller.store.verify(cut.wire_id).is_good
        assert await self.fleet.everybody_accepts()


def on_every_ground(
    build: Callable[[Clock], Fleet], *, grounds: Sequence[str] = (IN_PROCESS, OVER_HTTP)
) -> Callable[[Scenario], Callable[[str, Path], None]]:
    """Make a scenario a test that is run on both grounds; one that takes long is left to virtual time."""

    def made(scenario: Scenario) -> Callable[[str, Path], None]:
        @pytest.mark.parametrize("where", grounds)
        def test(where: str, tmp_path: Path) -> None:
            if where == IN_PROCESS:
                run_virtual(_play(scenario, tmp_path, in_process(build(VirtualClock()))))
            else:
                asyncio.run(_play(scenario, tmp_path, _over_http(build(SystemClock())), LONGEST_S))

        test.__name__, test.__doc__ = getattr(scenario, "__name__", "scenario"), scenario.__doc__
        return test

    return made


async def _play(
    scenario: Scenario,
    root: Path,
    ground: contextlib.AbstractAsyncContextManager[Ground],
    timeout_s: float | None = None,
) -> None:
    async with asyncio.timeout(timeout_s), ground as here:
        await scenario(here, root)


@contextlib.asynccontextmanager
async def in_process(fleet: Fleet) -> AsyncIterator[Ground]:
    """The fleet in this loop."""
    inner = AsgiTransport(tokens=StaticTokenProvider(fleet.token))
    ground = Ground(fleet, {}, Waylaid(inner))
    for name, app in _applications(ground).items():
        ground.urls[name] = f"http://{name.replace('_', '-')}"
        inner.mount(ground.urls[name], app)
    try:
        yield ground
    finally:
        await inner.aclose()


@contextlib.asynccontextmanager
async def _over_http(fleet: Fleet) -> AsyncIterator[Ground]:
    async with contextlib.AsyncExitStack() as stack:
        inner = HttpTransport(StaticTokenProvider(fleet.token))
        ground = Ground(fleet, {}, Waylaid(inner))
        for name, app in _applications(ground).items():
            ground.urls[name] = await stack.enter_async_context(served(app))
        stack.push_async_callback(inner.aclose)
        yield ground


def _applications(ground: Ground) -> dict[str, AsgiApplication]:
    """Every server of a fleet; what stands under its name when a call arrives is what answers."""

    def standing(name: str) -> AsgiApplication:
        async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - as ASGI has it
            fleet = ground.fleet
            server = ground.coordinated.model_server if name == "model_server" else fleet.apps[name]
            await server(scope, receive, send)

        return app

    beside = ["model_server"] if isinstance(ground.fleet, CoordinatedFleet) else []
    return {name: standing(name) for name in [*ground.fleet.apps, *beside]}
