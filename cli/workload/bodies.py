"""The bodies of the workload's own routes: strict where a server reads them, and small."""

from __future__ import annotations

import json
from typing import Annotated, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from quiesce.cli.workload.course import TURNS_MAX
from quiesce.participants.validation import first_problems

__all__ = [
    "AppendRequest",
    "BadBody",
    "Body",
    "JudgeReply",
    "JudgeRequest",
    "Parent",
    "PolicyReply",
    "PolicyRequest",
    "RunRequest",
    "SeedRequest",
    "ToolReply",
    "VerifyReply",
    "VerifyRequest",
    "read_body",
    "refuse_body",
]

BODY_BYTES_MAX: Final = 64 * 1024
TEXT_CHARS_MAX: Final = 4096

Text = Annotated[str, Field(min_length=1, max_length=TEXT_CHARS_MAX)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]


class Body(BaseModel):
    """A body in which nothing unknown stands."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class RunRequest(Body):
    """``POST /run`` of the agent: one rollout. Each of its ``turns`` is a call of the model and one of the tool."""

    task: Text
    turns: Annotated[int, Field(ge=1, le=TURNS_MAX)]


class Parent(Body):
    """The model call that a call goes on from; after a restore it was captured under an earlier attempt's key."""

    capture_key: Text
    model_call_id: Text


class PolicyRequest(Body):
    """``POST /v1/responses`` of the policy: the next text after an observation."""

    task: Text
    observation: Digest
    parent: Parent | None = None


class PolicyReply(Body):
    """The policy's answer.

    ``call`` names the call in the lineage, None where the caller named no rollout. ``calls`` and ``words`` count the
    whole chain of calls from the rollout's first one to this.
    """

    output_text: Text
    call: Parent | None
    calls: Count
    words: Count


class JudgeRequest(Body):
    """``POST /v1/responses`` of the judge: texts to mark."""

    task: Text
    texts: Annotated[tuple[Text, ...], Field(min_length=1, max_length=16, strict=False)]


class JudgeReply(Body):
    """One mark a text, in their order."""

    marks: Annotated[tuple[Count, ...], Field(strict=False)]


class SeedRequest(Body):
    """``POST /seed_session`` of the tool: a session begins."""

    task: Text


class AppendRequest(Body):
    """``POST /append`` of the tool: the text of one turn."""

    text: Text


class VerifyRequest(Body):
    """``POST /verify`` of the tool: a session ends after ``turns`` turns, and its reward is computed."""

    turns: Annotated[int, Field(ge=0, le=TURNS_MAX)]


class ToolReply(Body):
    """Where a session stands."""

    observation: Digest
    turns: Count


class VerifyReply(ToolReply):
    """How a session ended. ``reward`` is 1.0 when each turn was taken exactly once, else 0.0."""

    words: Count
    reward: float


BodyT = TypeVar("BodyT", bound=Body)


class BadBody(Exception):
    """A body that cannot be used; ``status`` is what it is answered with."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


async def read_body(request: Request, model: type[BodyT]) -> BodyT:
    """The body of a request.

    Raises:
        BadBody: it is too large, no JSON, or not of this shape.
    """
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > BODY_BYTES_MAX:
            raise BadBody(413, f"the body has more than {BODY_BYTES_MAX} bytes")
    try:
        return model.model_validate(json.loads(content))
    except ValidationError as error:
        raise BadBody(422, first_problems(error)) from None
    except (ValueError, RecursionError):
        raise BadBody(422, "the body is no JSON") from None


async def refuse_body(_request: Request, error: Exception) -> Response:
    """Starlette's handler of BadBody."""
    status = error.status if isinstance(error, BadBody) else 500
    return JSONResponse({"detail": str(error)}, status)
