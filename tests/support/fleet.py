"""A fleet of the kit's servers in one event loop: policy, judge, agent and tools, with work put into them by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.virtual_loop import VirtualClock

from quiesce.controller import CompletedResult, Controller, OnCompleted
from quiesce.controller.clock import Clock
from quiesce.controller.config import Config, parse_config
from quiesce.controller.files import FileSystem
from quiesce.fsm.machine import TransitionsEngine
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.trace import TraceRecord
from quiesce.fsm.vocabulary import Role
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import CompletionReceipt
from quiesce.participants.server.control import MountedServer
from quiesce.participants.server.execution import Execution
from quiesce.participants.server.lease import Lease
from quiesce.participants.server.ledger import ModelLedger
from quiesce.participants.server.mount import mount_agent, mount_auxiliary, mount_policy, mount_resources
from quiesce.participants.server.runs import Runs
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.port import Transport
from quiesce.transport.token import StaticTokenProvider

TOKEN = "fleet-token"
ENGINE = TransitionsEngine()
"""One for all controllers of all tests: it holds the tables' machines and nothing of any run."""
FLEETS: list[Fleet] = []
"""The fleets of the running test: a fixture holds what their controllers did against the tables."""
SERVED_AS = {
    "main/policy": Role.POLICY,
    "main/judge": Role.AUXILIARY,
    "main/agent": Role.AGENT,
    "main/tools": Role.RESOURCES,
}
ROLES = ("policy", "judge", "agent", "tools")
FENCES = (FenceVariant.STRICT, FenceVariant.GYM_A_SINGLE)


def keep(results: tuple[CompletedResult, ...]) -> list[CompletionReceipt]:
    """A trainer that owns everything at once."""
    return [result.receipt for result in results if result.receipt is not None]


@dataclass
class Fleet:
    """Four servers. Calls are open until ``let_calls_end`` and ``let_tools_end``; ``states`` are tool sessions."""

    fence: FenceVariant = FenceVariant.STRICT
    restore_expected: bool = False
    clock: Clock = field(default_factory=VirtualClock)
    turn_s: float = 1.0
    token: str = field(default=TOKEN, repr=False)
    lease: Lease | None = None

    def __post_init__(self) -> None:
        self.traces: list[TraceRecord] = []
        FLEETS.append(self)
        self.let_calls_end = asyncio.Event()
        self.call_began = asyncio.Event()
        self.let_tools_end = asyncio.Event()
        self.tool_began = asyncio.Event()
        self.apps: dict[str, MountedServer] = {name: self._serve(name) for name in ROLES}

    def _serve(self, name: str) -> MountedServer:
        """A fresh server process, as it were: nothing is left of what ran under that name before."""
        shared: dict[str, Any] = {"token": self.token, "fence": self.fence, "clock": self.clock}
        if name == "judge":
            return mount_auxiliary(self._model, name="judge", **shared)
        shared["lease"] = self.lease
        match name:
            case "policy":
                self.ledger = ModelLedger("policy")
                return mount_policy(self._model, ledger=self.ledger, **shared)
            case "agent":
                self.runs = Runs("agent", clock=self.clock)
                return mount_agent(self._model, self.runs, **shared)
        self.states: dict[AttemptId, dict[str, object]] = {}
        return mount_resources(
            self._tool,
            name="tools",
            export=self._take,
            restore=self._bring_back,
            retire=self._free,
            restore_expected=self.restore_expected,
            **shared,
        )

    def restart(self, name: str, transport: AsgiTransport | None = None) -> None:
        """Another incarnation answers at the same URL; the old one is gone with all that it knew."""
        self.apps[name] = self._serve(name)
        if transport is not None:
            transport.mount(f"http://{name}", self.apps[name])

    # the work

    async def _model(self, scope: Mapping[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        del scope
        await receive()
        self.call_began.set()
        await self.let_calls_end.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def _tool(self, scope: Mapping[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        await receive()
        attempt = AttemptId(dict(scope["headers"])[b"x-nemo-gym-rollout-id"].decode(), 0)
        if scope["path"] == "/seed_session":
            self.states[attempt] = {"turns": 0}
        else:
            self.tool_began.set()
            await self.let_tools_end.wait()
            self.states[attempt] = {"turns": int(str(self.states[attempt]["turns"])) + 1}
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def _take(self, attempt: AttemptId) -> Mapping[str, object]:
        return self.states[attempt]

    async def _bring_back(self, attempt: AttemptId, state: Mapping[str, object]) -> None:
        self.states[attempt] = dict(state)

    async def _free(self, attempt: AttemptId) -> None:
        self.states.pop(attempt, None)

    async def model_call(self, rollout_id: str) -> int:
        """One call to the policy's data plane, open until ``let_calls_end``; its status."""
        return await self._post("policy", "/v1/responses", rollout_id)

    async def seed_session(self, rollout_id: str) -> int:
        """Start a session of the tools; its status."""
        return await self._post("tools", "/seed_session", rollout_id)

    async def tool_call(self, rollout_id: str) -> int:
        """One call to a session, which keeps it busy until ``let_tools_end``; its status."""
        return await self._post("tools", "/act", rollout_id)

    async def _post(self, name: str, path: str, rollout_id: str) -> int:
        started: list[int] = []
        headers = [(b"x-nemo-gym-rollout-id", rollout_id.encode()), (b"x-nemo-gym-attempt-index", b"0")]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                started.append(message["status"])

        await self.apps[name](scope, receive, send)
        return started[0]

    def record_call(self, rollout_id: str, call_id: str, attempt_index: int = 0) -> None:
        """A finished model call in the policy's ledger."""
        attempt = AttemptId(rollout_id, attempt_index)
        self.ledger.note_call(attempt)
        self.ledger.append_row(
            attempt,
            {
                "model_call_id": call_id,
                "parent_call_id": None,
                "failure_reason": None,
                "staging_key": f"stage/{rollout_id}/{call_id}",
                "staging_chain": [f"stage/{rollout_id}/{call_id}"],
            },
        )

    def rollout(self, rollout_id: str, turns: int) -> asyncio.Task[None]:
        """A rollout of so many turns, each a finished call and a boundary; it parks where it is asked to."""
        return asyncio.create_task(self._run(self.runs.begin(AttemptId(rollout_id, 0)), rollout_id, turns))

    async def _run(self, execution: Execution, rollout_id: str, turns: int) -> None:
        async with execution:
            for turn in range(turns):
                await self.clock.sleep(self.turn_s)
                self.record_call(rollout_id, f"{rollout_id}-call-{turn}")
                await execution.commit_boundary(
                    last_committed_model_call_id=f"{rollout_id}-call-{turn}", agent_state={"turn": turn}
                )
            execution.finish({"id": f"result-{rollout_id}", "turns": turns})

    def stuck(self, rollout_id: str) -> asyncio.Task[None]:
        """A rollout that comes to no boundary before ``let_calls_end``, and then goes on for a while."""
        return asyncio.create_task(self._stick(self.runs.begin(AttemptId(rollout_id, 0)), rollout_id))

    async def _stick(self, execution: Execution, rollout_id: str) -> None:
        async with execution:
            await self.let_calls_end.wait()
            await execution.commit_boundary(agent_state={"turn": 1})
            await self.clock.sleep(1.0)
            execution.finish({"id": f"result-{rollout_id}"})

    # the controller

    def transport(self) -> AsgiTransport:
        """Calls these servers in this loop."""
        return AsgiTransport(
            {f"http://{name}": app for name, app in self.apps.items()}, StaticTokenProvider(self.token)
        )

    def config(self, root: Path, **settings: object) -> Config:
        """A configuration over these servers; ``settings`` are top-level keys."""
        lines = [f'root = "{root}"', *(f"{key} = {_toml(value)}" for key, value in settings.items())]
        servers = ", ".join(f'{{ name = "{name}", url = "http://{name}" }}' for name in self.apps)
        text = "\n".join([*lines, "[deployment.main]", f"participants = [{servers}]"])
        return parse_config(text, source="fleet", directory=root, environment={})

    def controller(
        self,
        root: Path,
        *,
        transport: Transport | None = None,
        on_completed: OnCompleted | None = None,
        observers: tuple[Callable[[TraceRecord], None], ...] = (),
        files: FileSystem | None = None,
        **settings: object,
    ) -> Controller:
        """A controller over these servers, in this loop's time."""
        return Controller(
            self.config(root, **settings),
            transport=transport or self.transport(),
            on_completed=on_completed,
            observers=(*observers, self.traces.append),
            clock=self.clock,
            engine=ENGINE,
            files=files,
        )

    async def phases(self) -> dict[str, tuple[str, object]]:
        """For each server the phase of its fence and who holds it."""
        return {name: (app.fence.state.phase.value, app.fence.state.active) for name, app in self.apps.items()}

    async def everybody_accepts(self) -> bool:
        """Whether nobody is held and every gate is open."""
        return all(not app.fence.state.closed and app.fence.state.active is None for app in self.apps.values())


def _toml(value: object) -> str:
    return json.dumps(value)
