"""A controller that is killed in the middle of a cut: ``quiesce checkpoint`` in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quiesce.controller.journal import JOURNAL_SUFFIX
from quiesce.controller.root_layout import RootLayout
from quiesce.controller.takeover import Recovered
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.tables.transaction import TransactionEvent
from quiesce.participants.control_token import TOKEN_VARIABLES

__all__ = ["LABEL", "Crash", "NotKilled", "environment_with", "killed_in_its_cut"]

LABEL: Final = "crashed"
LIMIT_S: Final = 60.0
LOOK_S: Final = 0.002
_EVERYBODY_PAUSED: Final = f'"event":"{TransactionEvent.ALL_PAUSED.value}"'.encode()


class NotKilled(QuiesceError):
    """The controller ended before it could be killed; its log says why."""


@dataclass(frozen=True, slots=True)
class Crash:
    """What became of the controller that was killed, and of what it left: ``killed`` is how its process ended."""

    killed: int
    recovered: tuple[Recovered, ...]

    def to_json(self) -> dict[str, object]:
        """A plain mapping with stable keys."""
        return {"killed": self.killed, "recovered": [one.to_json() for one in self.recovered]}


async def killed_in_its_cut(config: Path, root: Path, log: Path, environment: Mapping[str, str]) -> int:
    """Start a cut in another process and kill that by SIGKILL once everybody is paused; how it ended.

    Raises:
        NotKilled: it had ended by itself.
    """
    command = [sys.executable, "-P", "-m", "quiesce.cli.main", "checkpoint", "--label", LABEL, "--config", str(config)]
    with log.open("wb") as output:
        child = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, env=dict(environment)
        )
    try:
        async with asyncio.timeout(LIMIT_S):
            while not _everybody_is_paused(RootLayout(root)):
                if child.returncode is not None:
                    raise NotKilled(f"the controller ended before everybody was paused; see {log}")
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise NotKilled(f"nobody was paused within {LIMIT_S:.0f} s; see {log}") from None
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()
    return child.returncode or 0


def environment_with(token: str) -> Mapping[str, str]:
    """The environment of a command that shall use this control token."""
    return {**os.environ, TOKEN_VARIABLES[0]: token}


def _everybody_is_paused(layout: RootLayout) -> bool:
    """Whether the journal says so: every step of a running transaction is written down at once."""
    journals = layout.journals.glob(f"{LABEL}-*{JOURNAL_SUFFIX}")
    return any(_EVERYBODY_PAUSED in journal.read_bytes() for journal in journals)
