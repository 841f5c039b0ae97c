"""The data plane of several workers: each call goes to one of them, in turn, as behind a shared port."""

from __future__ import annotations

from typing import Final

from quiesce.participants.server.answers import Answer, ASGIApp, Receive, Scope, Send, send_answer
from quiesce.participants.server.policy_gate import is_gated
from quiesce.participants.server.worker import Worker
from quiesce.participants.server.workers import Workers

__all__ = ["WorkersGate"]

_NOBODY: Final = Answer(503, {"detail": "no worker is connected"}, headers={"retry-after": "1"})


class WorkersGate:
    """ASGI middleware around a model server: generation calls pass the gate of the worker whose turn it is.

    A worker that has left gets nothing; one that is silent or slow serves as before.
    """

    def __init__(self, app: ASGIApp, workers: Workers) -> None:
        self._app = app
        self._workers = workers
        self._turn = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not is_gated(scope):
            await self._app(scope, receive, send)
        elif (worker := self._next()) is not None:
            await worker.gate(scope, receive, send)
        else:
            await send_answer(send, _NOBODY)

    def _next(self) -> Worker | None:
        live = self._workers.live
        if not live:
            return None
        self._turn += 1
        return live[(self._turn - 1) % len(live)]
