"""The servers of the demonstration: each one is ``quiesce serve`` in a process of its own, started and ended by pid."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quiesce.cli.workload.servers import DEFAULT_NAMES
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.vocabulary import Role
from quiesce.transport.token import TOKEN_VARIABLES

__all__ = ["Fleet", "Server", "ServerFailed", "log_tails"]

START_TIMEOUT_S: Final = 60.0
TAIL_LINES: Final = 15
LATENCY_S: Final = {Role.POLICY: 0.2, Role.AUXILIARY: 0.05, Role.AGENT: 0.0, Role.RESOURCES: 0.03}


class ServerFailed(QuiesceError):
    """A server did not start; its log says why."""


@dataclass(frozen=True, slots=True)
class Server:
    """One running server."""

    role: Role
    name: str
    url: str
    child: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        return self.child.pid


class Fleet:
    """One generation of servers; ``directory`` holds its logs and its policy's ledger."""

    def __init__(self, directory: Path, *, token: str, fence: str, expects_restore: bool = False) -> None:
        self.directory = directory
        self.servers: dict[Role, Server] = {}
        self._environment = {**os.environ, TOKEN_VARIABLES[0]: token}
        self._fence = fence
        self._expects_restore = expects_restore
        self._children: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        """Start all four; each gets a free port and is told where those are that it calls.

        Raises:
            ServerFailed: one did not come up in time.
        """
        self.directory.mkdir(parents=True)
        restoring = ["--expect-restore"] if self._expects_restore else []
        # those that call nobody come first, beside each other
        judge, tools = await asyncio.gather(self._start(Role.AUXILIARY), self._start(Role.RESOURCES, *restoring))
        ledger = str(self.directory / "ledger")
        policy = await self._start(Role.POLICY, "--ledger", ledger, "--upstream", f"auxiliary={judge.url}")
        await self._start(Role.AGENT, "--upstream", f"policy={policy.url}", "--upstream", f"resources={tools.url}")

    async def kill(self) -> dict[str, int]:
        """Kill everything that was started and still runs, by SIGKILL; by name the signal or code that each ended by."""
        for child in self._children:
            with suppress(ProcessLookupError):
                child.kill()
        await asyncio.gather(*(child.wait() for child in self._children))
        self._children.clear()
        return {server.name: server.child.returncode or 0 for server in self.servers.values()}

    def url(self, role: Role) -> str:
        return self.servers[role].url

    async def _start(self, role: Role, *options: str) -> Server:
        command = [sys.executable, "-m", "quiesce.cli.main", "serve", role.value, "--port", "0", "--until-eof"]
        command += ["--fence", self._fence, "--latency-s", str(LATENCY_S[role]), *options]
        log = _log_of(self.directory, role)
        with log.open("wb") as stderr:
            child = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,  # it ends when this process does, however that ends
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env=self._environment,
            )
        self._children.append(child)
        server = Server(role, DEFAULT_NAMES[role], await _announced_url(child, role), child)
        self.servers[role] = server
        return server


async def _announced_url(child: asyncio.subprocess.Process, role: Role) -> str:
    """The URL in the first line that a server prints."""
    output = child.stdout
    line = b""
    if output is not None:
        with suppress(TimeoutError):
            line = await asyncio.wait_for(output.readline(), START_TIMEOUT_S)
    try:
        return str(json.loads(line)["url"])
    except (ValueError, KeyError, TypeError):
        raise ServerFailed(f"the {role.value} server did not start") from None


def log_tails(directories: Sequence[Path]) -> str:
    """The last lines of every log in these folders that has any, each under its name."""
    tails: list[str] = []
    for directory in directories:
        for role in Role:
            log = _log_of(directory, role)
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
            if lines:
                tails += [f"--- {log}", *lines[-TAIL_LINES:]]
    return "\n".join(tails)


def _log_of(directory: Path, role: Role) -> Path:
    return directory / f"{DEFAULT_NAMES[role]}.log"
