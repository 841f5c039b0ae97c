"""How the workload's servers call one another: identity headers, and what a refusal means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from quiesce.fsm.errors import QuiesceError
from quiesce.participants.excerpts import printable
from quiesce.participants.identity import AttemptId
from quiesce.participants.server import CallParked, is_parking_reply
from quiesce.participants.server.headers import ATTEMPT_HEADER, PLANE_HEADER, REVISION_HEADER, ROLLOUT_HEADER
from quiesce.participants.validation import first_problems

__all__ = ["Upstream", "UpstreamFailed", "UpstreamReply", "client", "identity_headers"]

CALL_TIMEOUT_S: Final = 60.0
KEEPALIVE_S: Final = 2.0
"""Shorter than uvicorn's 5 s, else some calls meet a connection that is being closed."""
CONNECTIONS_MAX: Final = 1000

ReplyT = TypeVar("ReplyT", bound=BaseModel)


class UpstreamFailed(QuiesceError):
    """Another server of the deployment did not do its part; the rollout cannot go on."""


@dataclass(frozen=True, slots=True)
class UpstreamReply:
    """A success: the parsed body, and the session's new revision where a resource server names one."""

    content: object
    revision: int | None

    def read_as(self, model: type[ReplyT]) -> ReplyT:
        """The body in its shape.

        Raises:
            UpstreamFailed: it has another one.
        """
        try:
            return model.model_validate(self.content)
        except ValidationError as error:
            raise UpstreamFailed(f"the reply is no {model.__name__}: {first_problems(error)}") from None


def client() -> httpx.AsyncClient:
    """A client for calls within the deployment; proxies of the environment are ignored."""
    limits = httpx.Limits(max_connections=CONNECTIONS_MAX, keepalive_expiry=KEEPALIVE_S)
    return httpx.AsyncClient(timeout=CALL_TIMEOUT_S, limits=limits, trust_env=False)


def identity_headers(attempt: AttemptId, *, plane: str | None = None) -> dict[str, str]:
    """The headers that say whose call it is (wire-protocol 0.3)."""
    named = {ROLLOUT_HEADER: attempt.rollout_id, ATTEMPT_HEADER: str(attempt.attempt_index)}
    return named if plane is None else {**named, PLANE_HEADER: plane}


@dataclass(frozen=True, slots=True)
class Upstream:
    """One server that this one calls."""

    name: str
    url: str
    http: httpx.AsyncClient

    async def post(self, path: str, body: BaseModel, *, headers: Mapping[str, str] | None = None) -> UpstreamReply:
        """Post a body.

        Raises:
            CallParked: the server is being checkpointed; send the call again afterwards.
            UpstreamFailed: it refused otherwise, or gave no answer.
        """
        try:
            response = await self.http.post(
                f"{self.url.rstrip('/')}{path}", content=body.model_dump_json(), headers=_typed(headers)
            )
        except httpx.HTTPError as error:
            raise UpstreamFailed(f"{self.name} gave no answer to {path}: {type(error).__name__} {error}") from error
        content = _parsed(response)
        if is_parking_reply(response.status_code, content):
            raise CallParked(f"{self.name} is being checkpointed")
        if not response.is_success:
            said = printable(response.text, 200)
            raise UpstreamFailed(f"{self.name} answered {path} with {response.status_code}: {said}")
        return UpstreamReply(content, _revision(response))


def _typed(headers: Mapping[str, str] | None) -> dict[str, str]:
    return {"content-type": "application/json", **(headers or {})}


def _parsed(response: httpx.Response) -> object:
    try:
        content: object = response.json()
    except ValueError:
        return None
    return content


def _revision(response: httpx.Response) -> int | None:
    text = response.headers.get(REVISION_HEADER, "")
    return int(text) if text.isascii() and text.isdigit() else None
