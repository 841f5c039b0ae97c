"""What a reply of generation A means: an outcome for the core, a payload for the runner, an error for people.

Nothing here raises on what came back. A reply that cannot be believed becomes LIED (CHANGED for an inspection of
another incarnation). Sources: wire-protocol 2, 3, 5.3, 7.5 to 7.7, 7.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel, ValidationError

from quiesce.fsm.errors import QuiesceError
from quiesce.fsm.vocabulary import Outcome, Verb
from quiesce.participants.dialects.base import CallSpec, Reading
from quiesce.participants.dialects.gym_a.calls import progress_route, route_for
from quiesce.participants.dialects.gym_a.read_admission import read_pause, read_single_status, read_worker_status
from quiesce.participants.dialects.gym_a.read_agents import (
    read_acknowledged,
    read_acknowledged_one,
    read_agent_prepare,
    read_agent_progress,
    read_discarded,
)
from quiesce.participants.dialects.gym_a.read_artefacts import read_export, read_import
from quiesce.participants.dialects.gym_a.read_fence import read_capabilities
from quiesce.participants.dialects.gym_a.read_release import (
    read_aborted,
    read_agent_retired,
    read_released,
    read_renewed,
    read_session_retired,
)
from quiesce.participants.dialects.gym_a.read_sessions import read_resources_prepare, read_resources_progress
from quiesce.participants.dialects.gym_a.refusals import SUCCESS, read_refusal
from quiesce.participants.dialects.gym_a.routes import INSTANCE_HEADER, Route
from quiesce.participants.dialects.gym_a.unbelievable import Reader, Unbelievable
from quiesce.participants.errors import ProtocolViolation
from quiesce.participants.excerpts import body_excerpt, escaped, printable
from quiesce.participants.strict_json import NotStrictJson, parse
from quiesce.participants.validation import first_problems, missing_fields

__all__ = ["read_progress_reply", "read_reply"]

_READERS: Final[Mapping[str, Reader]] = {
    "pause": read_pause,
    "model_status": read_single_status,
    "model_resume": read_released,
    "abort_inflight": read_aborted,
    "model_commit": read_export,
    "model_restore": read_import,
    "agent_prepare": read_agent_prepare,
    "agent_status": read_agent_progress,
    "agent_commit": read_export,
    "agent_restore": read_import,
    "agent_resume": read_released,
    "agent_retire": read_agent_retired,
    "acknowledge": read_acknowledged_one,
    "acknowledge_completed": read_acknowledged,
    "discard": read_discarded,
    "resources_prepare": read_resources_prepare,
    "resources_status": read_resources_progress,
    "resources_commit": read_export,
    "resources_restore": read_import,
    "resources_resume": read_released,
    "resources_retire": read_session_retired,
    "renew": read_renewed,
}

REFUSALS: Final = range(300, 600)


def read_reply(spec: CallSpec, status: int, headers: Mapping[str, str], body: bytes) -> Reading:
    """The meaning of the reply to ``build_call(spec)``."""
    return _read(spec, route_for(spec), status, headers, body)


def read_progress_reply(spec: CallSpec, status: int, headers: Mapping[str, str], body: bytes) -> Reading:
    """The meaning of the reply to ``build_progress_call(spec)``."""
    return _read(spec, progress_route(spec), status, headers, body)


def _read(spec: CallSpec, route: Route, status: int, headers: Mapping[str, str], body: bytes) -> Reading:
    call = f"{route.method} {route.path}"
    try:
        return _understood(spec, route, status, headers, body)
    except Unbelievable as lie:
        return _lied(spec, call, lie, status, headers, body)
    except QuiesceError as error:
        return Reading(Outcome.LIED, None, error)


def _understood(spec: CallSpec, route: Route, status: int, headers: Mapping[str, str], body: bytes) -> Reading:
    instance = headers.get(INSTANCE_HEADER)
    replaced = _replaced(spec, status, instance)
    inspecting = route.verb is Verb.INSPECT and status == SUCCESS
    if replaced and not inspecting:
        raise Unbelievable(replaced, changed=True)
    if status in REFUSALS:
        return read_refusal(spec, f"{route.method} {route.path}", status, headers, body)
    if status != SUCCESS:
        raise Unbelievable("success is status 200 exactly")
    reply = _parsed(spec, route, body)
    if inspecting:
        return read_capabilities(spec, reply, instance, replaced)
    reader = read_worker_status if route.name == "model_status" and spec.coordinator else _READERS[route.name]
    return reader(spec, reply)


def _replaced(spec: CallSpec, status: int, instance: str | None) -> str:
    """Why another incarnation answered than the one that is expected; empty when it did not, or cannot be known."""
    if spec.expected_instance is None or instance == spec.expected_instance:
        return ""
    if instance is None and status != SUCCESS:
        return ""  # a proxy's error page, or an error made before the server's own code ran, names no instance
    named = "no instance" if instance is None else f"instance {escaped(instance)}"
    expected = escaped(spec.expected_instance)
    return f"expected instance {expected}, got {named}: the participant was restarted or replaced"


def _parsed(spec: CallSpec, route: Route, body: bytes) -> BaseModel:
    shape = route.coordinator_reply if spec.coordinator and route.coordinator_reply else route.reply
    try:
        value = parse(body)
        if not isinstance(value, dict):
            raise Unbelievable("the body is JSON, but no object")
        if missing := missing_fields(shape, value):
            raise Unbelievable(missing)
        return shape.model_validate_json(body)
    except NotStrictJson as error:
        raise Unbelievable(f"the body is no JSON object: {error}") from None
    except ValidationError as error:
        raise Unbelievable(first_problems(error)) from None


def _lied(
    spec: CallSpec, call: str, lie: Unbelievable, status: int, headers: Mapping[str, str], body: bytes
) -> Reading:
    error = ProtocolViolation(
        participant=spec.called,
        call=call,
        reason=lie.reason,
        status=status,
        content_type=printable(headers.get("content-type", ""), 80),
        excerpt=body_excerpt(body),
    )
    changed = lie.changed and spec.verb is Verb.INSPECT
    return Reading(Outcome.CHANGED if changed else Outcome.LIED, lie.payload, error)
