"""A program that takes a cut or restores over real servers and ends somebody by a signal at a chosen point.

``python dying.py CONFIG WHAT KIND NTH PID SIGNAL``: WHAT is cut, restore or recover; KIND is record, before (a call
leaves) or after (its reply is here); PID 0 is the program itself. The names of all points stand on its last line of
output, as a JSON object, where it comes to its end.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any

from quiesce.controller import CompletedResult, Controller
from quiesce.controller.config import load_config
from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.trace import TraceRecord
from quiesce.participants.control_token import TOKEN_VARIABLES
from quiesce.participants.replies import CompletionReceipt
from quiesce.transport import HttpTransport, StaticTokenProvider
from quiesce.transport.port import ControlReply, ControlRequest

LABEL = "killed"


@dataclass
class Striker:
    """A transport and an observer: both count, and one of them strikes."""

    inner: HttpTransport
    kind: str
    nth: int
    pid: int
    signal: int
    names: dict[str, list[str]] = field(default_factory=lambda: {"record": [], "before": [], "after": []})

    async def send(self, request: ControlRequest) -> ControlReply:
        self.passed("before", f"{request.participant} {request.call}")
        reply = await self.inner.send(request)
        self.passed("after", f"{request.participant} {request.call}")
        return reply

    async def aclose(self) -> None:
        await self.inner.aclose()

    def observe(self, trace: TraceRecord) -> None:
        """A record was handed to the journal."""
        self.passed("record", f"{trace.subject or 'transaction'} {trace.event}")

    def passed(self, kind: str, name: str) -> None:
        """Count a point, and strike if it is the one."""
        self.names[kind].append(name)
        if kind == self.kind and len(self.names[kind]) == self.nth:
            os.kill(self.pid or os.getpid(), self.signal)


def keep(results: tuple[CompletedResult, ...]) -> list[CompletionReceipt]:
    """Whoever asked for the rollouts has their results."""
    return [result.receipt for result in results if result.receipt is not None]


async def live(config: str, what: str, striker: Striker) -> dict[str, Any]:
    """One life; what became of it."""
    settings = load_config(config, environment={})
    controller = Controller(settings, transport=striker, on_completed=keep, observers=(striker.observe,))
    try:
        if what == "recover":
            await controller.recover()
        else:
            async with controller, controller.cut(LABEL) if what == "cut" else controller.restore(LABEL):
                pass
    except (QuiesceError, ExceptionGroup) as error:
        return {"error": f"{type(error).__name__}: {error!r}", "names": striker.names}
    finally:
        await controller.close()
    return {"error": None, "names": striker.names}


def main() -> None:
    """Live."""
    config, what, kind, nth, pid, signal = sys.argv[1:]
    transport = HttpTransport(StaticTokenProvider(os.environ[TOKEN_VARIABLES[0]]))
    striker = Striker(transport, kind, int(nth), int(pid), int(signal))
    sys.stdout.write(json.dumps(asyncio.run(live(config, what, striker))) + "\n")


if __name__ == "__main__":
    main()
