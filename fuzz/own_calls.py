"""Calls that the fuzzer makes for itself, beside those of a sequence: in the envelope alone, under wire ids."""

from __future__ import annotations

from collections.abc import Mapping

from quiesce.fuzz.place import Place
from quiesce.fuzz.seen import Seen
from quiesce.fuzz.steps import Operation
from quiesce.fuzz.wording import REPLY_BODY_CAP
from quiesce.participants.identity import AttemptId
from quiesce.participants.strict_json import compact
from quiesce.transport.port import ControlRequest

__all__ = ["ask", "post"]


async def post(
    place: Place,
    operation: Operation,
    checkpoint_id: str,
    attempt: AttemptId | None = None,
    *,
    deadline_ts: float | None = None,
) -> Seen:
    """Send a call of the fence; its deadline is far away where none is named.

    Raises:
        Unreachable: it is not answered.
    """
    far_ts = place.clock.now_ts() + place.durations.far_s
    body: dict[str, object] = {
        "checkpoint_id": checkpoint_id,
        "deadline_ts": far_ts if deadline_ts is None else deadline_ts,
    }
    if attempt is not None:
        body |= attempt._asdict()
    place.line.ids.add(checkpoint_id)
    return await ask(place, operation, body=body)


async def ask(
    place: Place,
    operation: Operation,
    *,
    query: Mapping[str, str] | None = None,
    body: Mapping[str, object] | None = None,
) -> Seen:
    """Send a request to a route.

    Raises:
        Unreachable: it is not answered.
    """
    route = place.subject.routes[operation]
    request = ControlRequest(
        participant=place.subject.name,
        method=route.method,
        url=place.subject.url.rstrip("/") + route.path,
        timeout_s=place.durations.answer_s,
        query=query,
        body=None if body is None else compact(dict(body)).encode(),
        headers={} if body is None else {"content-type": "application/json"},
        authorized=route.authorized,
        body_cap=REPLY_BODY_CAP,
    )
    return await place.line.send(request)
