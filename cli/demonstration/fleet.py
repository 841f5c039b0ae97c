"""The servers of the demonstration: each one is ``quiesce serve`` in a process of its own, started and ended by pid."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quiesce.cli.workload.servers import DEFAULT_NAMES
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.vocabulary import Role
from quiesce.participants.control_token import TOKEN_VARIABLES

__all__ = ["Fleet", "Server", "ServerFailed", "log_tails"]

HOST: Final = "127.0.0.1"
BACKLOG: Final = 1024
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
        """Start all four, each on a free port that is taken before any of them runs, so that each knows the others'.

        Raises:
            ServerFailed: one did not come up in time.
        """
        self.directory.mkdir(parents=True)
        sockets = {role: socket.create_server((HOST, 0), backlog=BACKLOG) for role in Role}
        urls = {role: f"http://{HOST}:{listening.getsockname()[1]}" for role, listening in sockets.items()}
        options = {
            Role.AUXILIARY: [],
            Role.RESOURCES: ["--expect-restore"] if self._expects_restore else [],
            Role.POLICY: [f"--ledger={self.directory / 'ledger'}", *_upstreams(urls, Role.AUXILIARY)],
            Role.AGENT: _upstreams(urls, Role.POLICY, Role.RESOURCES),
        }
        try:
            for role, listening in sockets.items():
                self.servers[role] = await self._start(role, urls[role], listening, options[role])
        finally:
            for listening in sockets.values():
                listening.close()
        await asyncio.gather(*(_announced(server) for server in self.servers.values()))

    async def kill(self) -> dict[str, int]:
        """Kill by SIGKILL whatever was started and still runs; for each server its exit code."""
        for child in self._children:
            with suppress(ProcessLookupError):
                child.kill()
        await asyncio.gather(*(child.wait() for child in self._children))
        self._children.clear()
        return {server.name: server.child.returncode or 0 for server in self.servers.values()}

    def url(self, role: Role) -> str:
        return self.servers[role].url

    async def _start(self, role: Role, url: str, listening: socket.socket, options: Sequence[str]) -> Server:
        number = listening.fileno()
        # -P: modules in the user's working directory are none of ours
        command = [sys.executable, "-P", "-m", "quiesce.cli.main", "serve", role.value, f"--fd={number}", "--until-eof"]
        command += [f"--fence={self._fence}", f"--latency-s={LATENCY_S[role]}", *options]
        with _log_of(self.directory, role).open("wb") as stderr:
            child = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,  # it ends when we do, however that is
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                pass_fds=(number,),
                env=self._environment,
            )
        self._children.append(child)
        return Server(role, DEFAULT_NAMES[role], url, child)


def _upstreams(urls: Mapping[Role, str], *roles: Role) -> list[str]:
    return [f"--upstream={role.value}={urls[role]}" for role in roles]


async def _announced(server: Server) -> None:
    """Wait for the line with which a server says that it serves."""
    output = server.child.stdout
    line = b""
    if output is not None:
        with suppress(TimeoutError):
            line = await asyncio.wait_for(output.readline(), START_TIMEOUT_S)
    if server.url.encode() not in line:
        raise ServerFailed(f"the {server.role.value} server did not start")


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
