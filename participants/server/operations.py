"""What the control routes of all roles have in common: typed endpoints, comparable bodies, fenced operations."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from pydantic import BaseModel

from quiesce.fsm.tables.fence import FenceEvent
from quiesce.participants.dialects.gym_a.wire import AttemptRequest, ControlEnvelope
from quiesce.participants.identity import AttemptId
from quiesce.participants.server.answers import Answer, ok
from quiesce.participants.server.errors import ControlRefusal, RefusalCode
from quiesce.participants.server.fence import Call, Ending
from quiesce.participants.server.ports import Fields

__all__ = ["Endpoint", "attempt_in", "body_digest", "directory_in", "fenced", "typed", "writing"]

M = TypeVar("M", bound=BaseModel)
Endpoint: TypeAlias = Callable[[BaseModel], Awaitable[Answer]]

_DONE: Final = {FenceEvent.COMMIT: FenceEvent.COMMIT_DONE, FenceEvent.RESTORE: FenceEvent.RESTORE_DONE}


def typed(model: type[M], serve: Callable[[M], Awaitable[Answer]]) -> Endpoint:
    """An endpoint for requests of one model."""

    async def endpoint(asked: BaseModel) -> Answer:
        if not isinstance(asked, model):
            raise TypeError(f"the route validated a {type(asked).__name__}, the endpoint takes a {model.__name__}")
        return await serve(asked)

    return endpoint


def body_digest(asked: BaseModel) -> str:
    """What two bodies are compared by: everything but the deadline, which a repetition may move."""
    return hashlib.sha256(asked.model_dump_json(exclude={"deadline_ts"}).encode()).hexdigest()


def attempt_in(asked: AttemptRequest) -> AttemptId:
    """The attempt that a call is about."""
    return AttemptId(asked.rollout_id, asked.attempt_index)


def directory_in(text: str, code: RefusalCode) -> Path:
    """The directory of a commit or restore.

    Raises:
        ControlRefusal: with ``code``; the text can be no path.
    """
    if "\0" in text:
        raise ControlRefusal(code, "checkpoint_dir holds a zero character; it can be no path")
    return Path(text)


def fenced(event: FenceEvent, asked: ControlEnvelope, act: Callable[[int], Answer] | None = None) -> Call:
    """A call under the fence that is answered at once (or refused)."""
    return Call(event, asked.checkpoint_id, asked.deadline_ts, body_digest(asked), act=act)


def writing(event: FenceEvent, asked: ControlEnvelope, work: Callable[[], Awaitable[Fields]]) -> Call:
    """A commit or restore: it runs to its end, however long that takes, and its fields are the reply."""

    async def run(_deadline: float) -> Ending:
        return Ending(_DONE[event], ok(await work()))

    return Call(event, asked.checkpoint_id, asked.deadline_ts, body_digest(asked), run=run)
