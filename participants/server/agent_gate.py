"""The gate of an agent server: ``POST .../run`` passes it, once an attempt (wire-protocol 2.20).

A run is admitted to the store before the server sees it, so that a run that has passed the gate and has not begun yet
blocks the cut. A repeated run of a finished attempt that nobody has acknowledged gets the stored result again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from quiesce.participants.identity import AttemptId
from quiesce.participants.server.answers import Answer, ASGIApp, Message, Receive, Scope, Send, refused, send_answer
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.headers import attempt_of
from quiesce.participants.server.ports import AgentRuns

__all__ = ["AgentGate"]

RUN_PATH: Final = "/run"
BODY_BYTES_MAX: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class AgentGate:
    """ASGI middleware around an agent server, and the door of its fence."""

    app: ASGIApp
    runs: AgentRuns

    # ---- the door of the fence

    def close(self) -> None:
        self.runs.close()

    def open(self) -> int:
        return self.runs.open()

    def is_drained(self) -> bool:
        return True

    def owes_restore(self) -> bool:
        return False

    # ---- the data plane

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].endswith(RUN_PATH):
            await self.app(scope, receive, send)
            return
        try:
            attempt = attempt_of(scope["headers"])
            stored = self._admit(attempt)
        except ControlRefusal as refusal:
            await send_answer(send, refused(refusal))
            return
        if stored is not None:
            await send_answer(send, Answer(200, stored))
        elif attempt is None:
            await self.app(scope, receive, send)
        else:
            await self._serve(attempt, scope, receive, send)

    def _admit(self, attempt: AttemptId | None) -> object | None:
        if attempt is not None:
            return self.runs.admit(attempt)
        if self.runs.closed:
            raise ControlRefusal(
                RefusalCode.AGENT_ADMISSION_CLOSED, "admission is closed for a checkpoint; repeat the run after resume"
            )
        return None

    async def _serve(self, attempt: AttemptId, scope: Scope, receive: Receive, send: Send) -> None:
        caller = _Caller(receive)
        try:
            if not await caller.read_body():
                too_large = Answer(413, {"detail": f"the body of a run is at most {BODY_BYTES_MAX} bytes"})
                await send_answer(send, too_large)
                return
            watcher = asyncio.ensure_future(caller.until_gone())
            watcher.add_done_callback(lambda done: None if done.cancelled() else self.runs.caller_gone(attempt))
            try:
                await self.app(scope, caller.receive, send)
            finally:
                watcher.cancel()
        finally:
            self.runs.withdraw(attempt)


class _Caller:
    """The caller of a run: its body, read in advance, and the moment at which it hangs up."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._body: list[Message] = []
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def read_body(self) -> bool:
        """Read the whole body; False when it is too large."""
        size = 0
        while True:
            message = await self._receive()
            self._body.append(message)
            size += len(message.get("body", b""))
            if size > BODY_BYTES_MAX:
                return False
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                return True

    async def until_gone(self) -> None:
        """Wait until the caller hangs up."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone.set_result(None)

    async def receive(self) -> Message:
        """What the server receives: the body first, then nothing until the caller hangs up."""
        if self._body:
            return self._body.pop(0)
        await asyncio.shield(self._gone)
        return {"type": "http.disconnect"}
