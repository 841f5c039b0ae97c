"""Participant servers of the kit around small applications whose calls end when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from support.asgi import Caller, Json, ask, calling
from support.stores import Counters, Servers
from support.virtual_loop import VirtualClock

from quiesce.fsm.tables.fence import FenceVariant
from quiesce.participants.identity import AttemptId
from quiesce.participants.server.control import MountedServer
from quiesce.participants.server.headers import ATTEMPT_HEADER, ROLLOUT_HEADER
from quiesce.participants.server.lease import Lease
from quiesce.participants.server.ledger import ModelLedger
from quiesce.participants.server.mount import mount_agent, mount_auxiliary, mount_policy, mount_sessions
from quiesce.participants.server.policy_gate import WhenClosed
from quiesce.participants.server.runs import Runs
from quiesce.participants.server.sessions import Sessions

TOKEN = "control-token"
CONTROL = "/ng-control/v1"


def identity(attempt: AttemptId) -> dict[str, str]:
    """The data-plane headers of a call of this attempt."""
    return {ROLLOUT_HEADER: attempt.rollout_id, ATTEMPT_HEADER: str(attempt.attempt_index)}


@dataclass
class Work:
    """What the applications do: each call waits for ``go``; ``entered`` counts those that have begun."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    entered: int = 0
    served: list[str] = field(default_factory=list)

    async def wait(self, request: Request) -> None:
        self.entered += 1
        try:
            await self.go.wait()
        finally:
            self.served.append(request.url.path)

    async def generate(self, request: Request) -> Response:
        """A model call."""
        await self.wait(request)
        return JSONResponse({"id": "resp-1"})

    async def stream(self, request: Request) -> Response:
        """A model call whose reply is streamed: one chunk at once, one after ``go``."""

        async def chunks() -> AsyncIterator[bytes]:
            yield b"first "
            await self.wait(request)
            yield b"last"

        return StreamingResponse(chunks())

    async def health(self, _request: Request) -> Response:
        """Nothing that a checkpoint cares for."""
        return JSONResponse({"ok": True})

    def model_app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/responses", self.generate, methods=["POST"]),
                Route("/capture/{key}/v1/responses", self.generate, methods=["POST"]),
                Route("/v1/chat/completions", self.stream, methods=["POST"]),
                Route("/health", self.health),
            ]
        )

    def agent_app(self, runs: Runs) -> Starlette:
        async def run(request: Request) -> Response:
            attempt = AttemptId(request.headers[ROLLOUT_HEADER], int(request.headers[ATTEMPT_HEADER]))
            async with runs.begin(attempt, agent_state={"task": "t"}) as execution:
                await self.wait(request)
                result = {"id": f"response-{attempt.rollout_id}"}
                execution.finish(result)
            return JSONResponse(result)

        return Starlette(routes=[Route("/run", run, methods=["POST"])])

    def resources_app(self, counters: Counters) -> Starlette:
        async def post(request: Request) -> Response:
            attempt = AttemptId(request.headers[ROLLOUT_HEADER], int(request.headers[ATTEMPT_HEADER]))
            kind = request.url.path
            if kind == "/hang":
                await self.wait(request)
            if kind == "/fail":
                return JSONResponse({"no": True}, status_code=400)
            counters.values[attempt] = counters.values.get(attempt, -1) + 1
            return JSONResponse({"value": counters.values[attempt]})

        paths = ("/seed_session", "/mutate", "/hang", "/verify", "/fail", "/aggregate_metrics")
        return Starlette(routes=[Route(path, post, methods=["POST"]) for path in paths])


@dataclass
class Kit:
    """One deployment of the kit: policy, judge, agent and resource server, with their stores and their work."""

    variant: FenceVariant = FenceVariant.STRICT
    clock: VirtualClock = field(default_factory=VirtualClock)
    token: str | None = TOKEN
    restore_expected: bool = False
    when_closed: WhenClosed = "refuse"
    lease: Lease | None = None
    work: Work = field(default_factory=Work)

    def __post_init__(self) -> None:
        counters = Counters()
        recorded = self.variant is not FenceVariant.STRICT
        self.stores = Servers(
            ledger=ModelLedger("policy"),
            runs=Runs("agent", clock=self.clock, boundary_at_begin=not recorded),
            sessions=Sessions(
                "resources",
                hooks=counters.hooks(),
                clock=self.clock,
                restore_expected=self.restore_expected,
                require_identity=not recorded,
            ),
            counters=counters,
            clock=self.clock,
        )
        model_app, token, fence, clock = self.work.model_app(), self.token, self.variant, self.clock
        agent_app = self.work.agent_app(self.stores.runs)
        resources_app = self.work.resources_app(counters)
        self.policy = mount_policy(
            model_app,
            ledger=self.stores.ledger,
            token=token,
            fence=fence,
            when_closed=self.when_closed,
            capture_key_of=lambda path: path.split("/")[2] if path.startswith("/capture/") else None,
            lease=self.lease,
            clock=clock,
        )
        self.aux = mount_auxiliary(model_app, name="judge", token=token, fence=fence, clock=clock)
        self.agent = mount_agent(agent_app, self.stores.runs, token=token, fence=fence, lease=self.lease, clock=clock)
        self.resources = mount_sessions(
            resources_app, self.stores.sessions, token=token, fence=fence, lease=self.lease, clock=clock
        )

    def server(self, component: str) -> MountedServer:
        """The server by its name in the recordings."""
        return {"policy": self.policy, "aux": self.aux, "agent": self.agent, "resources": self.resources}[component]

    def deadline(self, seconds: float) -> float:
        return self.clock.now_ts() + seconds

    def sending(
        self,
        server: MountedServer,
        path: str,
        id_: str = "x",
        *,
        in_s: float = 30.0,
        members: Mapping[str, Json] | None = None,
        **more: Json,
    ) -> Caller:
        """A control POST on its way."""
        body = {"checkpoint_id": id_, "deadline_ts": self.deadline(in_s), **(members or {}), **more}
        return calling(server, "POST", CONTROL + path, json_body=body, headers=self.bearer())

    async def post(
        self, server: MountedServer, path: str, id_: str = "x", *, in_s: float = 30.0, **members: Json
    ) -> Caller:
        """A control POST and its reply."""
        return await self.sending(server, path, id_, in_s=in_s, members=members).done()

    def asking(self, server: MountedServer, path: str, id_: str = "x", *, in_s: float = 30.0, **more: object) -> Caller:
        """A status call on its way."""
        query = {"checkpoint_id": id_, "deadline_ts": self.deadline(in_s), **more}
        return calling(server, "GET", CONTROL + path, query=query, headers=self.bearer())

    async def get(self, server: MountedServer, path: str, **query: object) -> Caller:
        """A control GET and its reply."""
        return await ask(server, "GET", CONTROL + path, query=query, headers=self.bearer())

    async def status(self, server: MountedServer, path: str, id_: str = "x", **query: object) -> Caller:
        """A status call and its reply."""
        return await self.get(server, path, checkpoint_id=id_, deadline_ts=self.deadline(30.0), **query)

    def work_call(
        self, server: MountedServer, path: str, attempt: AttemptId | None, headers: Mapping[str, str] | None = None
    ) -> Caller:
        """A data-plane POST on its way."""
        named = {} if attempt is None else identity(attempt)
        return calling(server, "POST", path, json_body={}, headers={**named, **(headers or {})})

    def bearer(self) -> dict[str, str]:
        return {} if self.token is None else {"authorization": f"Bearer {self.token}"}
