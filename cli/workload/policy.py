"""The policy server: a tiny deterministic model that asks the judge before it answers.

It writes down each finished call in its ledger, with the key of the tokens that a real one would have staged.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quiesce.cli.workload.bodies import (
    BadBody,
    JudgeReply,
    JudgeRequest,
    Parent,
    PolicyReply,
    PolicyRequest,
    read_body,
    refuse_body,
)
from quiesce.cli.workload.course import best_of, candidates, mark
from quiesce.cli.workload.upstream import Upstream, UpstreamFailed, client, identity_headers
from quiesce.participants.identity import AttemptId, capture_key
from quiesce.participants.server import CallRef, ControlRefusal, ModelLedger
from quiesce.participants.server.headers import attempt_of

__all__ = ["policy_app"]

CALL_ID_HEADER: Final = "x-nemo-gym-model-call-id"


class _Policy:
    """The model, its ledger, and the judge that it asks; without one it marks for itself."""

    def __init__(self, ledger: ModelLedger, *, judge_url: str | None, latency_s: float) -> None:
        self._ledger = ledger
        self._judge_url = judge_url
        self._judge: Upstream | None = None
        self._latency_s = latency_s

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        async with client() as http:
            self._judge = Upstream("the judge", self._judge_url, http) if self._judge_url else None
            yield

    async def respond(self, request: Request) -> Response:
        asked = await read_body(request, PolicyRequest)
        attempt = attempt_of(request.scope["headers"])
        text = await self._compute(asked, attempt)
        reply = self._recorded(attempt, asked, text)
        headers = {CALL_ID_HEADER: reply.call.model_call_id} if reply.call is not None else None
        return JSONResponse(reply.model_dump(), headers=headers)

    async def _compute(self, asked: PolicyRequest, attempt: AttemptId | None) -> str:
        await asyncio.sleep(self._latency_s)
        texts = candidates(asked.task, asked.observation)
        if self._judge is None:
            return best_of(texts, tuple(mark(asked.task, text) for text in texts))
        named = {} if attempt is None else identity_headers(attempt, plane="judge")
        reply = await self._judge.post("/v1/responses", JudgeRequest(task=asked.task, texts=texts), headers=named)
        marks = reply.read_as(JudgeReply).marks
        if len(marks) != len(texts):
            raise UpstreamFailed(f"the judge gave {len(marks)} marks for {len(texts)} texts")
        return best_of(texts, marks)

    def _recorded(self, attempt: AttemptId | None, asked: PolicyRequest, text: str) -> PolicyReply:
        words = len(text.split())
        if attempt is None:
            return PolicyReply(output_text=text, call=None, calls=1, words=words)
        call_id = f"mc-{secrets.token_hex(8)}"
        ref = self._ledger.record_call(
            attempt,
            model_call_id=call_id,
            delta_len=words,
            staging_key=f"{capture_key(*attempt)}/{call_id}",
            parent=CallRef(asked.parent.capture_key, asked.parent.model_call_id) if asked.parent else None,
        )
        row = self._ledger.call(ref) or {}
        chain, length = row.get("staging_chain"), row.get("cum_len")
        return PolicyReply(
            output_text=text,
            call=Parent(capture_key=ref.capture_key, model_call_id=ref.model_call_id),
            calls=len(chain) if isinstance(chain, list) else 0,
            words=length if isinstance(length, int) else 0,
        )


async def _refused(_request: Request, error: Exception) -> Response:
    if isinstance(error, ControlRefusal):
        return JSONResponse({"error": {"code": error.code.value, "detail": error.detail}}, error.status)
    return JSONResponse({"detail": str(error)}, 502)


def policy_app(ledger: ModelLedger, *, judge_url: str | None, latency_s: float) -> Starlette:
    """The policy. One call takes ``latency_s`` seconds, and what the judge takes."""
    policy = _Policy(ledger, judge_url=judge_url, latency_s=latency_s)
    return Starlette(
        routes=[Route("/v1/responses", policy.respond, methods=["POST"])],
        exception_handlers={BadBody: refuse_body, ControlRefusal: _refused, UpstreamFailed: _refused},
        lifespan=policy.lifespan,
    )
