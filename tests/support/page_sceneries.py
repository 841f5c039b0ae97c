"""Hidden set-up that pages ask for by name: servers to cut, rollouts under way on them, a trainer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx

from quiesce.controller import CompletedResult
from quiesce.participants import server
from quiesce.participants.control_token import TOKEN_VARIABLES

TOKEN: Final = "a-secret-of-yours"
VARIABLES: Final = {TOKEN_VARIABLES[0]: TOKEN}
# below what the kernel gives to whoever asks for any port
_PORTS: Final = range(20_000, 32_000)
_ROLES: Final = {8100: "policy", 8101: "auxiliary", 8102: "resources", 8103: "agent"}
"""The ports that stand in the pages, and who listens there."""

CONFIGURATION: Final = """\
root = "checkpoints"

[deployment.main]
participants = [
  { name = "policy_model", url = "http://127.0.0.1:8100", role = "policy" },
  { name = "judge",        url = "http://127.0.0.1:8101", role = "auxiliary" },
  { name = "tools",        url = "http://127.0.0.1:8102", role = "resources" },
  { name = "agent",        url = "http://127.0.0.1:8103", role = "agent" },
]
"""


def free_port() -> int:
    """A port at which nobody listens now, and which nobody is given who asks for any."""
    for port in random.sample(_PORTS, 200):  # of a shuffled range, so that two workers hardly meet
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


@contextlib.contextmanager
def served_fleet(*, expects_restore: bool = False) -> Iterator[dict[int, int]]:
    """Four servers in processes of their own; the ports of the pages to those where they really are."""
    ports = {shown: free_port() for shown in _ROLES}
    at = {role: f"http://127.0.0.1:{ports[shown]}" for shown, role in _ROLES.items()}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        extra = {
            "policy": ["--upstream", f"auxiliary={at['auxiliary']}", "--ledger", f"{folder}/ledger"],
            "resources": ["--expect-restore"] if expects_restore else [],
            "agent": ["--upstream", f"policy={at['policy']}", "--upstream", f"resources={at['resources']}"],
        }
        children = [
            stack.enter_context(_served(role, "--port", str(ports[shown]), *extra.get(role, [])))
            for shown, role in _ROLES.items()
        ]
        for child in children:
            assert child.stdout is not None
            said = child.stdout.readline()  # it says where it is when it listens, as JSON
            assert said.startswith("{"), f"{child.args!r} ended with {child.wait()}: {said}{child.stdout.read()}"
        yield ports


@contextlib.contextmanager
def _served(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-m", "quiesce.cli.main", "serve", *arguments],
        env={**os.environ, **VARIABLES},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


_ROLLOUTS = count()


async def begin_rollouts(agent: str, how_many: int = 3) -> list[asyncio.Task[httpx.Response]]:
    """Rollouts under way, each past its first turn; who cancels a task has left its rollout."""
    begun = [asyncio.create_task(_roll(agent, f"page-{next(_ROLLOUTS)}")) for _ in range(how_many)]
    await asyncio.sleep(0.3)  # they take turns meanwhile; a cut is good wherever they are
    assert not any(task.done() for task in begun), [task.result().text for task in begun if task.done()]
    return begun


async def _roll(agent: str, rollout_id: str) -> httpx.Response:
    headers = {"x-nemo-gym-rollout-id": rollout_id, "x-nemo-gym-attempt-index": "0"}
    async with httpx.AsyncClient(base_url=agent, timeout=60, trust_env=False) as client:
        return await client.post("/run", headers=headers, json={"task": "a question", "turns": 1000})


@dataclass
class Trainer:
    """What a page's ``trainer`` is: it keeps results, and one number as its whole state."""

    step: int = 40
    kept: list[CompletedResult] = field(default_factory=list)

    def store(self, results: tuple[CompletedResult, ...]) -> None:
        """Make finished results durable."""
        self.kept += results

    async def save(self, folder: Path) -> None:
        """Write everything that training goes on from."""
        self.save_blocking(folder)

    def save_blocking(self, folder: Path) -> None:
        """As :meth:`save`, for code without an event loop."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "state.json").write_text(json.dumps({"step": self.step}), encoding="utf-8")

    async def load(self, folder: Path) -> None:
        """Go on from what was saved."""
        self.step = json.loads((folder / "state.json").read_text(encoding="utf-8"))["step"]


def names() -> dict[str, Any]:  # Any: the namespace of a page
    """What a page's code may use without having made it."""
    return {"trainer": Trainer(), "unwanted": []}


def agent_server() -> dict[str, Any]:  # Any: as above
    """What the author of an agent server has before mounting it."""

    async def app(scope: object, receive: object, send: object) -> None:
        del scope, receive, send

    return {"server": server, "app": app, "runs": server.Runs("agent"), "token": TOKEN}
