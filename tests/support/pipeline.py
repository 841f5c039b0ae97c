"""Items on their way from a dispatcher through policy, agent and tools to a trainer, all in one virtual time.

The servers are the workload's own (``quiesce.cli.workload``) on the kit, and talk to each other through their mounted
applications. The trainer counts what it consumes, so that what is lost or doubled shows; a result's reward is 1.0 only
if the tool's session has seen every turn exactly once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx
import pytest
from support.fleet import ENGINE, FENCES
from support.virtual_loop import VirtualClock

from quiesce.cli.workload import agent, course, policy
from quiesce.cli.workload.agent import agent_app
from quiesce.cli.workload.policy import policy_app
from quiesce.cli.workload.tools import Tools, tools_app
from quiesce.controller import CompletedResult, Controller
from quiesce.controller.config import parse_config
from quiesce.fsm.tables.fence import FenceVariant
from quiesce.fsm.trace import TraceRecord
from quiesce.participants import server
from quiesce.participants.identity import AttemptId
from quiesce.participants.replies import CompletionReceipt
from quiesce.participants.server.headers import ATTEMPT_HEADER, ROLLOUT_HEADER
from quiesce.transport.inprocess import AsgiTransport
from quiesce.transport.token import StaticTokenProvider

__all__ = ["SETTINGS_OF", "Settings", "Trainer", "World", "living", "named"]

TOKEN: Final = "pipeline-token"
HOSTS: Final = ("policy", "agent", "tools")
AT_ONCE: Final = 8
REFUSED: Final = 409


@dataclass(frozen=True)
class Settings:
    """How fast everything is and how long each item takes, drawn from a seed."""

    policy_s: float
    tools_s: float
    pause_s: float
    between_s: float
    turns: tuple[int, ...]
    fence: FenceVariant = FenceVariant.STRICT


def SETTINGS_OF(random: Random, items: int) -> Settings:  # noqa: N802 - a constant of a seed
    """Settings of a seed, for so many items."""
    return Settings(
        policy_s=random.uniform(0.05, 0.6),
        tools_s=random.uniform(0.0, 0.3),
        pause_s=random.choice([0.0, random.uniform(0.0, 0.5)]),
        between_s=random.uniform(0.0, 0.3),
        turns=tuple(random.randint(1, 5) for _ in range(items)),
        fence=random.choice(FENCES),
    )


class World(httpx.AsyncBaseTransport):
    """The servers of one life, and the way between them. Once it is killed nothing arrives any more."""

    def __init__(self, settings: Settings, *, expects_restore: bool) -> None:
        self.ledger = server.ModelLedger("policy")
        is_strict = settings.fence is FenceVariant.STRICT
        self.runs = server.Runs("agent", clock=VirtualClock(), boundary_at_begin=is_strict)
        tools = Tools(latency_s=settings.tools_s)
        self.apps = {
            "policy": policy_app(self.ledger, judge_url=None, latency_s=settings.policy_s),
            "agent": agent_app(
                self.runs, policy_urls=["http://policy"], tools_url="http://tools", pause_s=settings.pause_s
            ),
            "tools": tools_app(tools),
        }
        sessions = server.Sessions(
            "tools",
            hooks=server.SessionHooks(tools.export, tools.restore, tools.retire),
            clock=VirtualClock(),
            restore_expected=expects_restore,
            require_identity=is_strict,
        )
        shared: dict[str, Any] = {"token": TOKEN, "fence": settings.fence, "clock": VirtualClock()}  # Any: three types
        self.mounted = {
            "policy": server.mount_policy(self.apps["policy"], ledger=self.ledger, **shared),
            "agent": server.mount_agent(self.apps["agent"], self.runs, **shared),
            "tools": server.mount_sessions(self.apps["tools"], sessions, **shared),
        }
        self.alive = True

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not self.alive:
            raise httpx.ConnectError("the world has ended", request=request)
        app: Any = self.mounted[request.url.host]  # Any: httpx has another type for the same
        return await httpx.ASGITransport(app=app).handle_async_request(request)

    def everybody_accepts(self) -> bool:
        """Whether nobody is held."""
        return all(one.fence.state.active is None and not one.fence.state.closed for one in self.mounted.values())

    def controller(self, root: Path, trainer: Trainer) -> Controller:
        """A controller over these servers."""
        servers = ", ".join(f'{{ name = "{host}", url = "http://{host}" }}' for host in HOSTS)
        text = f'root = "{root}"\n[deployment.main]\nparticipants = [{servers}]\n'
        return Controller(
            parse_config(text, source="pipeline", directory=root, environment={}),
            transport=AsgiTransport(
                {f"http://{host}": app for host, app in self.mounted.items()}, StaticTokenProvider(TOKEN)
            ),
            on_completed=trainer.own,
            observers=(trainer.steps.append,),
            clock=VirtualClock(),
            engine=ENGINE,
        )


@contextlib.asynccontextmanager
async def living(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, *, expects_restore: bool = False
) -> AsyncIterator[World]:
    """A world from its beginning to its sudden end."""
    world = World(settings, expects_restore=expects_restore)
    for module in (agent, policy):
        monkeypatch.setattr(module, "client", lambda: httpx.AsyncClient(transport=world))
    async with contextlib.AsyncExitStack() as stack:
        for app in world.apps.values():
            await stack.enter_async_context(app.router.lifespan_context(app))
        yield world
        world.alive = False


@dataclass
class Trainer:
    """Dispatches items and consumes their results; what it has consumed is durable once it is saved."""

    settings: Settings
    consumed: list[str] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    steps: list[TraceRecord] = field(default_factory=list)
    outstanding: dict[AttemptId, asyncio.Task[None]] = field(default_factory=dict)
    refused: set[AttemptId] = field(default_factory=set)
    results: dict[AttemptId, dict[str, Any]] = field(default_factory=dict)  # Any: JSON
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def at_the_beginning(cls, settings: Settings) -> Trainer:
        """One that has dispatched nothing."""
        return cls(settings, waiting=list(range(len(settings.turns))))

    # dispatching

    async def dispatch(self, world: World) -> None:
        """Send every item that waits, a few at a time, and wait for all results."""
        while self.waiting or self.outstanding:
            if self.waiting and len(self.outstanding) < AT_ONCE:
                self.send(world, AttemptId(f"item-{self.waiting.pop(0)}", 0))
                await asyncio.sleep(self.settings.between_s)
            else:
                await asyncio.wait(self.outstanding.values(), timeout=0.5)

    def send(self, world: World, attempt: AttemptId) -> None:
        """Run one attempt."""
        self.outstanding[attempt] = asyncio.ensure_future(self._run(world, attempt))

    async def _run(self, world: World, attempt: AttemptId) -> None:
        number = int(attempt.rollout_id.removeprefix("item-"))
        body = {"task": attempt.rollout_id, "turns": self.settings.turns[number]}
        headers = {ROLLOUT_HEADER: attempt.rollout_id, ATTEMPT_HEADER: str(attempt.attempt_index)}
        async with httpx.AsyncClient(transport=world) as client:
            while True:
                reply = await client.post("http://agent/run", json=body, headers=headers, timeout=None)
                if reply.status_code != REFUSED:
                    break
                self.refused.add(attempt)  # admission is closed: it was not taken
                await asyncio.sleep(0.5)
                self.refused.discard(attempt)
        assert reply.status_code == httpx.codes.OK, reply.text
        self.results[attempt] = reply.json()
        self.consumed.append(attempt.rollout_id)
        self._more.set()
        del self.outstanding[attempt]

    def own(self, results: tuple[CompletedResult, ...]) -> list[CompletionReceipt]:
        """The finished results that were consumed."""
        return [one.receipt for one in results if one.receipt is not None and one.attempt in self.results]

    def end(self) -> None:
        """The trainer's process ends with everybody else's."""
        for task in self.outstanding.values():
            task.cancel()

    async def has_consumed(self, count: int) -> None:
        """Wait until so many results are here."""
        while len(self.consumed) < count:
            self._more.clear()
            await self._more.wait()

    # its own part of a snapshot

    def save(self, folder: Path) -> None:
        """What has been consumed, and what no agent has taken."""
        waiting = [*self.waiting, *(int(item.removeprefix("item-")) for item in sorted(named(self.refused)))]
        (folder / "trainer.json").write_text(json.dumps({"consumed": self.consumed, "waiting": waiting}))

    @classmethod
    def load(cls, folder: Path, settings: Settings) -> Trainer:
        """The trainer as it was saved."""
        saved = json.loads((folder / "trainer.json").read_text())
        return cls(settings, consumed=saved["consumed"], waiting=saved["waiting"])

    # the account

    def account(self) -> Counter[str]:
        """How often each item was consumed."""
        return Counter(self.consumed)

    def wrong(self) -> list[str]:
        """Items whose result is not that of a run that nothing disturbed."""
        found = []
        for attempt, result in self.results.items():
            turns = self.settings.turns[int(attempt.rollout_id.removeprefix("item-"))]
            due = course(attempt.rollout_id, turns)
            came_to = (result["observation"], result["reward"], result["model_calls"], result["model_words"])
            if came_to != (due.observation, 1.0, turns, due.words):
                found.append(attempt.rollout_id)
        return found


def named(attempts: Iterable[AttemptId]) -> set[str]:
    """The items of attempts."""
    return {attempt.rollout_id for attempt in attempts}
