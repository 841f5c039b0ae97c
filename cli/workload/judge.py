"""The auxiliary server: a judge that marks the policy's candidates. It keeps serving while a cut is taken."""

from __future__ import annotations

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quiesce.cli.workload.bodies import BadBody, JudgeReply, JudgeRequest, read_body, refuse_body
from quiesce.cli.workload.course import mark

__all__ = ["judge_app"]


def judge_app(*, latency_s: float) -> Starlette:
    """The judge. One call takes ``latency_s`` seconds."""

    async def respond(request: Request) -> Response:
        asked = await read_body(request, JudgeRequest)
        await asyncio.sleep(latency_s)
        reply = JudgeReply(marks=tuple(mark(asked.task, text) for text in asked.texts))
        return JSONResponse(reply.model_dump())

    return Starlette(
        routes=[Route("/v1/responses", respond, methods=["POST"])], exception_handlers={BadBody: refuse_body}
    )
