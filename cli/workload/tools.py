"""The resource server: one tool with a session a rollout, whose final state proves that no turn was lost or doubled."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quiesce.cli.workload.bodies import (
    AppendRequest,
    BadBody,
    SeedRequest,
    ToolReply,
    VerifyReply,
    VerifyRequest,
    read_body,
    refuse_body,
)
from quiesce.cli.workload.course import Transcript, course
from quiesce.participants.identity import AttemptId
from quiesce.participants.server.headers import attempt_of

__all__ = ["Tools", "tools_app"]


class Tools:
    """The sessions' states: of each rollout its task and its transcript."""

    def __init__(self, *, latency_s: float) -> None:
        self._latency_s = latency_s
        self._sessions: dict[AttemptId, tuple[str, Transcript]] = {}

    # ---- the hooks of the kit

    def export(self, attempt: AttemptId) -> Mapping[str, object]:
        """The state of a session, as it is saved."""
        task, transcript = self._sessions[attempt]
        return {"task": task, **asdict(transcript)}

    def restore(self, attempt: AttemptId, state: Mapping[str, object]) -> None:
        """Make a session from a saved state."""
        task, observation = str(state["task"]), str(state["observation"])
        transcript = Transcript(observation, int(str(state["turns"])), int(str(state["words"])))
        self._sessions[attempt] = (task, transcript)

    def retire(self, attempt: AttemptId) -> None:
        """Forget a session."""
        self._sessions.pop(attempt, None)

    # ---- the routes

    async def seed(self, request: Request) -> Response:
        """Begin a session."""
        asked = await read_body(request, SeedRequest)
        transcript = Transcript.of(asked.task)
        self._sessions[_attempt(request)] = (asked.task, transcript)
        return _answer(ToolReply(observation=transcript.observation, turns=0))

    async def append(self, request: Request) -> Response:
        """Take the text of one turn."""
        asked = await read_body(request, AppendRequest)
        await asyncio.sleep(self._latency_s)
        task, before = self._session(request)
        transcript = before.append(asked.text)
        self._sessions[_attempt(request)] = (task, transcript)
        return _answer(ToolReply(observation=transcript.observation, turns=transcript.turns))

    async def verify(self, request: Request) -> Response:
        """End a session and compute its reward: whether its state is that of a rollout that nothing disturbed."""
        asked = await read_body(request, VerifyRequest)
        task, transcript = self._session(request)
        due = course(task, asked.turns)
        undisturbed = transcript == Transcript(due.observation, due.turns, due.words)
        self.retire(_attempt(request))
        return _answer(VerifyReply(**asdict(transcript), reward=1.0 if undisturbed else 0.0))

    def _session(self, request: Request) -> tuple[str, Transcript]:
        found = self._sessions.get(_attempt(request))
        if found is None:
            raise BadBody(404, "there is no such session; seed it first")
        return found


def tools_app(tools: Tools) -> Starlette:
    """The routes of the tool."""
    return Starlette(
        routes=[
            Route("/seed_session", tools.seed, methods=["POST"]),
            Route("/append", tools.append, methods=["POST"]),
            Route("/verify", tools.verify, methods=["POST"]),
        ],
        exception_handlers={BadBody: refuse_body},
    )


def _attempt(request: Request) -> AttemptId:
    attempt = attempt_of(request.scope["headers"])
    if attempt is None:
        raise BadBody(422, "the call names no rollout")
    return attempt


def _answer(reply: ToolReply) -> Response:
    return JSONResponse(reply.model_dump())
