"""The agent server: runs rollouts of several turns, each a call of the policy and one of the tool.

After each turn it commits a boundary, where a cut can catch the rollout; a restored one goes on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quiesce.cli.workload.bodies import (
    AppendRequest,
    BadBody,
    Parent,
    PolicyReply,
    PolicyRequest,
    RunRequest,
    SeedRequest,
    ToolReply,
    VerifyReply,
    VerifyRequest,
    read_body,
    refuse_body,
)
from quiesce.cli.workload.upstream import Upstream, UpstreamFailed, UpstreamReply, client, identity_headers
from quiesce.participants.identity import AttemptId
from quiesce.participants.server import ControlRefusal, Execution, Runs
from quiesce.participants.server.headers import attempt_of

__all__ = ["agent_app"]

TOOLS: Final = "tools"
"""By what name the agent's boundaries hold the revision of the tool's session."""


@dataclass(frozen=True, slots=True)
class _Progress:
    """What an execution needs to go on: its ``agent_state``.

    ``observation`` is None until the tool's session was seeded; ``call`` is the newest model call.
    """

    task: str
    turns: int
    taken: int = 0
    observation: str | None = None
    call: tuple[str, str] | None = None
    calls: int = 0
    words: int = 0

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def of(cls, state: Mapping[str, object]) -> _Progress:
        call = state["call"]
        return cls(
            task=str(state["task"]),
            turns=int(str(state["turns"])),
            taken=int(str(state["taken"])),
            observation=None if state["observation"] is None else str(state["observation"]),
            call=(str(call[0]), str(call[1])) if isinstance(call, list | tuple) else None,
            calls=int(str(state["calls"])),
            words=int(str(state["words"])),
        )

    def parent(self) -> Parent | None:
        return None if self.call is None else Parent(capture_key=self.call[0], model_call_id=self.call[1])


class _Agent:
    """The agent and the servers that it calls. With several policies, a rollout always goes to the same one."""

    def __init__(self, runs: Runs, *, policy_urls: Sequence[str], tools_url: str, pause_s: float) -> None:
        self._runs = runs
        self._policy_urls = tuple(policy_urls)
        self._tools_url = tools_url
        self._pause_s = pause_s
        self._policies: tuple[Upstream, ...] = ()
        self._tools: Upstream | None = None

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        async with client() as http:
            self._policies = tuple(Upstream("the policy", url, http) for url in self._policy_urls)
            self._tools = Upstream("the tool", self._tools_url, http)
            yield

    async def run(self, request: Request) -> Response:
        asked = await read_body(request, RunRequest)
        attempt = attempt_of(request.scope["headers"])
        if attempt is None:
            raise BadBody(422, "the call names no rollout; send the identity headers")
        return JSONResponse(await self._roll(attempt, asked))

    async def _roll(self, attempt: AttemptId, asked: RunRequest) -> dict[str, object]:
        async with self._runs.begin(attempt, agent_state=_Progress(asked.task, asked.turns).to_json()) as execution:
            boundary = execution.boundary
            progress = _Progress.of(boundary.agent_state) if boundary else _Progress(asked.task, asked.turns)
            began_at = progress.taken
            if progress.observation is None:
                progress = await self._seed(execution, progress)
            while progress.taken < progress.turns:
                progress = await self._turn(execution, progress)
            verdict = await self._verify(execution, progress)
            result = _result(attempt, progress, verdict, began_at)
            execution.finish(result)
        return result

    async def _seed(self, execution: Execution, progress: _Progress) -> _Progress:
        reply = await self._call_tool(execution, "/seed_session", SeedRequest(task=progress.task))
        seeded = replace(progress, observation=reply.read_as(ToolReply).observation)
        await execution.commit_boundary(turn_index=0, agent_state=seeded.to_json())
        return seeded

    async def _turn(self, execution: Execution, progress: _Progress) -> _Progress:
        await asyncio.sleep(self._pause_s)
        answer = await self._ask(execution, progress)
        told = await self._call_tool(execution, "/append", AppendRequest(text=answer.output_text))
        call = answer.call
        after = replace(
            progress,
            taken=progress.taken + 1,
            observation=told.read_as(ToolReply).observation,
            call=None if call is None else (call.capture_key, call.model_call_id),
            calls=answer.calls,
            words=answer.words,
        )
        await execution.commit_boundary(
            turn_index=after.taken,
            last_committed_model_call_id=None if call is None else call.model_call_id,
            captured_as=None if call is None else call.capture_key,
            agent_state=after.to_json(),
        )
        return after

    async def _ask(self, execution: Execution, progress: _Progress) -> PolicyReply:
        policy = self._policies[_number(execution.attempt.rollout_id) % len(self._policies)]
        body = PolicyRequest(task=progress.task, observation=progress.observation or "", parent=progress.parent())
        headers = identity_headers(execution.attempt, plane="policy")
        reply = await execution.call(lambda: policy.post("/v1/responses", body, headers=headers))
        return reply.read_as(PolicyReply)

    async def _verify(self, execution: Execution, progress: _Progress) -> VerifyReply:
        reply = await self._call_tool(execution, "/verify", VerifyRequest(turns=progress.turns))
        return reply.read_as(VerifyReply)

    async def _call_tool(self, execution: Execution, path: str, body: BaseModel) -> UpstreamReply:
        tools = self._tools
        if tools is None:
            raise UpstreamFailed("the agent has not started")
        headers = identity_headers(execution.attempt)
        reply = await execution.call(lambda: tools.post(path, body, headers=headers))
        if reply.revision is not None:
            execution.note_revision(TOOLS, reply.revision)
        return reply


def _result(attempt: AttemptId, progress: _Progress, verdict: VerifyReply, began_at: int) -> dict[str, object]:
    """What ``/run`` answers. ``began_at_turn`` is how many turns had been taken when this attempt began."""
    return {
        "id": f"result-{attempt.rollout_id}",
        **attempt._asdict(),
        "turns": verdict.turns,
        "observation": verdict.observation,
        "words": verdict.words,
        "model_calls": progress.calls,
        "model_words": progress.words,
        "began_at_turn": began_at,
        "reward": verdict.reward,
    }


def _number(rollout_id: str) -> int:
    return int(hashlib.sha256(rollout_id.encode()).hexdigest()[:8], 16)


async def _refused(_request: Request, error: Exception) -> Response:
    if isinstance(error, ControlRefusal):
        return JSONResponse({"error": {"code": error.code.value, "detail": error.detail}}, error.status)
    return JSONResponse({"detail": str(error)}, 502)


def agent_app(runs: Runs, *, policy_urls: Sequence[str], tools_url: str, pause_s: float = 0.0) -> Starlette:
    """The agent. It pauses ``pause_s`` seconds before each turn."""
    agent = _Agent(runs, policy_urls=policy_urls, tools_url=tools_url, pause_s=pause_s)
    return Starlette(
        routes=[Route("/run", agent.run, methods=["POST"])],
        exception_handlers={BadBody: refuse_body, ControlRefusal: _refused, UpstreamFailed: _refused},
        lifespan=agent.lifespan,
    )
