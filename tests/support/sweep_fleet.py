"""A fleet of any size for sweeps: policies, agents and resource servers with work in each, in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.fleet import ENGINE, TOKEN, keep
from support.virtual_loop import VirtualClock

from quiesce.controller import Controller
from quiesce.controller.config import parse_config
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.trace import TraceRecord
from quiesce.fsm.vocabulary import Role
from quiesce.participants.identity import AttemptId
from quiesce.participants.server.control import MountedServer
from quiesce.participants.server.execution import Execution
from quiesce.participants.server.ledger import ModelLedger
from quiesce.participants.server.mount import mount_agent, mount_auxiliary, mount_policy, mount_resources
from quiesce.participants.server.runs import Runs
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.port import Transport
from quiesce.transport.token import StaticTokenProvider

__all__ = ["SIZES", "SweepFleet"]

SIZES: Mapping[int, tuple[str, ...]] = {
    1: ("policy0",),
    3: ("policy0", "agent0", "tools0"),
    12: (
        *(f"policy{n}" for n in range(3)),
        "judge0",
        *(f"agent{n}" for n in range(4)),
        *(f"tools{n}" for n in range(4)),
    ),
}
"""Names of the servers of a fleet of so many."""
TURN_S = 4.0
ROLES = {"policy": Role.POLICY, "judge": Role.AUXILIARY, "agent": Role.AGENT, "tools": Role.RESOURCES}


@dataclass
class SweepFleet:
    """So many servers. Each agent has a rollout of many turns and one finished result; each tool server a session.

    Calls to the policies' and the tools' own routes end at once.
    """

    size: int
    fence: FenceVariant = FenceVariant.STRICT
    clock: VirtualClock = field(default_factory=VirtualClock)

    def __post_init__(self) -> None:
        self.ledgers: dict[str, ModelLedger] = {}
        self.runs: dict[str, Runs] = {}
        self.sessions: dict[str, dict[AttemptId, object]] = {}
        self.traces: list[TraceRecord] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.apps: dict[str, MountedServer] = {name: self._serve(name) for name in SIZES[self.size]}

    @property
    def served_as(self) -> dict[str, Role]:
        """The role of each participant, by its key as text."""
        return {f"main/{name}": ROLES[name.rstrip("0123456789")] for name in self.apps}

    def _serve(self, name: str) -> MountedServer:
        shared: dict[str, Any] = {"token": TOKEN, "fence": self.fence, "clock": self.clock}
        match ROLES[name.rstrip("0123456789")]:
            case Role.POLICY:
                self.ledgers[name] = ModelLedger(name)
                return mount_policy(_answer, ledger=self.ledgers[name], **shared)
            case Role.AUXILIARY:
                return mount_auxiliary(_answer, name=name, **shared)
            case Role.AGENT:
                self.runs[name] = Runs(name, clock=self.clock)
                return mount_agent(_answer, self.runs[name], **shared)
        states = self.sessions[name] = {}

        async def take(attempt: AttemptId) -> Mapping[str, object]:
            return {"turns": states[attempt]}

        async def bring_back(attempt: AttemptId, state: Mapping[str, object]) -> None:
            states[attempt] = state["turns"]

        async def free(attempt: AttemptId) -> None:
            states.pop(attempt, None)

        return mount_resources(
            _seeding(states),
            name=name,
            export=take,
            restore=bring_back,
            retire=free,
            **shared,
        )

    async def work(self) -> None:
        """Put work into everybody: rollouts at their third turn, a finished result at each agent, sessions."""
        for name, runs in self.runs.items():
            self._start(runs, f"{name}-r", 100_000)
            self._start(runs, f"{name}-done", 1)
        for number, name in enumerate(self.sessions):
            agents = list(self.runs)
            await self._seed(name, f"{agents[number % len(agents)]}-r")
        await self.clock.sleep(2.5 * TURN_S)

    async def stop(self) -> None:
        """End the rollouts; nothing is left of them."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def _start(self, runs: Runs, rollout_id: str, turns: int) -> None:
        self.tasks.append(asyncio.create_task(self._run(runs.begin(AttemptId(rollout_id, 0)), rollout_id, turns)))

    async def _run(self, execution: Execution, rollout_id: str, turns: int) -> None:
        async with execution:
            for turn in range(turns):
                await self.clock.sleep(TURN_S)
                call_id = f"{rollout_id}-call-{turn}"
                self._record(AttemptId(rollout_id, 0), call_id)
                await execution.commit_boundary(last_committed_model_call_id=call_id, agent_state={"turn": turn})
            execution.finish({"id": f"result-{rollout_id}"})

    def _record(self, attempt: AttemptId, call_id: str) -> None:
        """Every policy knows the lineage of every rollout (wire-protocol 7.6), under storage keys of its own."""
        row = {"model_call_id": call_id, "parent_call_id": None, "failure_reason": None}
        for name, ledger in self.ledgers.items():
            key = f"stage/{name}/{call_id}"
            ledger.note_call(attempt)
            ledger.append_row(attempt, {**row, "staging_key": key, "staging_chain": [key]})

    async def _seed(self, name: str, rollout_id: str) -> None:
        headers = [(b"x-nemo-gym-rollout-id", rollout_id.encode()), (b"x-nemo-gym-attempt-index", b"0")]
        scope = {"type": "http", "method": "POST", "path": "/seed_session", "headers": headers, "query_string": b""}

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_message: Mapping[str, Any]) -> None:
            """Nobody reads the answer."""

        await self.apps[name](scope, receive, send)

    def transport(self) -> AsgiTransport:
        """Calls these servers in this loop."""
        return AsgiTransport({f"http://{name}": app for name, app in self.apps.items()}, StaticTokenProvider(TOKEN))

    def controller(self, root: Path, transport: Transport, **settings: float) -> Controller:
        """A controller over these servers; a trainer owns every result at once."""
        servers = ", ".join(f'{{ name = "{name}", url = "http://{name}" }}' for name in self.apps)
        lines = [f'root = "{root}"', *(f"{key} = {value}" for key, value in settings.items()), "[deployment.main]"]
        text = "\n".join([*lines, f"participants = [{servers}]"])
        config = parse_config(text, source="sweep", directory=root, environment={})
        return Controller(
            config,
            transport=transport,
            on_completed=keep,
            observers=(self.traces.append,),
            clock=self.clock,
            engine=ENGINE,
        )

    def closed(self) -> frozenset[str]:
        """Who does not accept work, by its key as text."""
        fences = {f"main/{name}": app.fence.state for name, app in self.apps.items()}
        return frozenset(name for name, fence in fences.items() if fence.closed or fence.active is not None)

    def restored(self) -> frozenset[AttemptId]:
        """The attempts that wait at the agents for their continuation."""
        return frozenset(record.attempt for runs in self.runs.values() for record in runs.restored())


async def _answer(_scope: Mapping[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


def _seeding(states: dict[AttemptId, object]) -> Callable[..., Any]:
    async def application(scope: Mapping[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        states[AttemptId(dict(scope["headers"])[b"x-nemo-gym-rollout-id"].decode(), 0)] = 1
        await _answer(scope, receive, send)

    return application
