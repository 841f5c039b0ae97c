"""Real servers, each ``quiesce serve`` in a process of its own, and controllers that are killed over them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from support.workload import NAMES

from quiesce.cli.demonstration.fleet import Fleet
from quiesce.cli.workload.upstream import identity_headers
from quiesce.controller import Controller
from quiesce.controller.catalog import SnapshotState
from quiesce.controller.config import Config, load_config
from quiesce.fsm.vocabulary import Role
from quiesce.participants.control_token import TOKEN_VARIABLES
from quiesce.participants.identity import AttemptId
from quiesce.transport import StaticTokenProvider

__all__ = ["COUNTS_ONLY", "Deployed", "Point", "deployed"]

TOKEN: Final = "token-of-the-killed"
DYING: Final = Path(__file__).with_name("dying.py")
LONGEST_S: Final = 100.0
Point = tuple[str, int]
"""Kind (record, before, after) and number."""
COUNTS_ONLY: Final[Point] = ("record", 0)


@dataclass
class Deployed:
    """Four processes, a root, and whoever works on them."""

    fleet: Fleet
    config: Path
    http: httpx.AsyncClient
    rollouts: dict[AttemptId, asyncio.Task[dict[str, Any]]] = field(default_factory=dict)

    @property
    def settings(self) -> Config:
        return load_config(self.config, environment={})

    def begin(self, rollout_id: str, turns: int, attempt_index: int = 0) -> None:
        """Start a rollout; its result is waited for by :meth:`finished`."""
        attempt = AttemptId(rollout_id, attempt_index)
        self.rollouts[attempt] = asyncio.create_task(self._run(attempt, turns))

    async def _run(self, attempt: AttemptId, turns: int) -> dict[str, Any]:
        url = f"{self.fleet.url(Role.AGENT)}/run"
        body = {"task": f"task of {attempt.rollout_id}", "turns": turns}
        while True:
            reply = await self.http.post(url, json=body, headers=identity_headers(attempt), timeout=LONGEST_S)
            if reply.status_code == httpx.codes.OK:
                result: dict[str, Any] = reply.json()
                return result
            assert reply.status_code == httpx.codes.CONFLICT, reply.text
            await asyncio.sleep(0.05)

    async def finished(self) -> None:
        """Every rollout has come to its end, each turn taken once."""
        for result in await asyncio.gather(*self.rollouts.values()):
            assert result["reward"] == 1.0
            assert result["model_calls"] == result["turns"]

    async def live(
        self, what: str, point: Point, *, victim: Role | None = None, number: signal.Signals = signal.SIGKILL
    ) -> tuple[int, dict[str, Any]]:
        """A controller in a process of its own; how it ended, and what it said."""
        pid = self.fleet.servers[victim].pid if victim is not None else 0
        child = await self.start(what, point, pid=pid, number=number)
        output, errors = await asyncio.wait_for(child.communicate(), LONGEST_S)
        lines = output.decode().splitlines()
        assert lines or child.returncode == -signal.SIGKILL, errors.decode()
        return child.returncode or 0, json.loads(lines[-1]) if lines else {}

    async def start(
        self, what: str, point: Point, *, pid: int = 0, number: signal.Signals = signal.SIGKILL
    ) -> asyncio.subprocess.Process:
        """The same, still running."""
        kind, nth = point
        arguments = [str(self.config), what, kind, str(nth), str(pid), str(int(number))]
        return await asyncio.create_subprocess_exec(
            sys.executable,
            str(DYING),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, TOKEN_VARIABLES[0]: TOKEN},
        )

    async def stands_still(self, child: asyncio.subprocess.Process) -> None:
        """Wait until a process was stopped."""
        stat = Path(f"/proc/{child.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "T":  # noqa: ASYNC240 - it lies on no disk
            assert child.returncode is None
            await asyncio.sleep(0.02)

    def controller(self) -> Controller:
        """One in this process, which lives."""
        return Controller(self.settings, tokens=StaticTokenProvider(TOKEN))

    async def phases(self, but: Sequence[Role] = ()) -> dict[str, tuple[str, object]]:
        """Phase and holder of everybody, as they say themselves."""
        found: dict[str, tuple[str, object]] = {}
        for role in Role:
            if role not in but:
                reply = await self.http.get(f"{self.fleet.url(role)}/ng-control/v1/capabilities", timeout=30)
                told = reply.json()
                found[role.value] = (told["phase"], told["active_checkpoint_id"])
        return found

    async def everybody_accepts(self, but: Sequence[Role] = ()) -> None:
        """Nobody is held by anything."""
        assert {role: held for role, held in (await self.phases(but)).items() if held != ("idle", None)} == {}

    def check_snapshots(self) -> int:
        """Nothing is to be seen that does not verify; how many there are."""
        store = self.controller().store
        entries = store.list()
        assert {entry.state for entry in entries} <= {SnapshotState.VALID}
        assert all(store.verify(entry.wire_id).is_good for entry in entries)
        return len(entries)


@contextlib.asynccontextmanager
async def deployed(
    directory: Path, root: Path, *, fence: str, expects_restore: bool = False
) -> AsyncIterator[Deployed]:
    """Four fresh processes over a root."""
    fleet = Fleet(directory / "servers", token=TOKEN, fence=fence, expects_restore=expects_restore)
    try:
        await fleet.start()
        rows = "".join(f'{{ name = "{NAMES[role]}", url = "{fleet.url(role)}" }}, ' for role in Role)
        config = directory / "quiesce.toml"
        config.write_text(f'root = "{root}"\nrelease_timeout_s = 20.0\n[deployment.main]\nparticipants = [{rows}]\n')
        async with httpx.AsyncClient() as http:
            here = Deployed(fleet, config, http)
            try:
                yield here
            finally:
                for running in here.rollouts.values():
                    running.cancel()
                await asyncio.gather(*here.rollouts.values(), return_exceptions=True)
    finally:
        await fleet.kill()
