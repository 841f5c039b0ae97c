"""How each verb is put on the wire of generation A: route, query and body."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pydantic import BaseModel, ValidationError

from quiesce.fsm.vocabulary import Role, Verb
from quiesce.participants.dialects.base import CallSpec, WireCall
from quiesce.participants.dialects.gym_a import wire
from quiesce.participants.dialects.gym_a.routes import LEASE_ROUTE, ROUTE_BY_NAME, ROUTE_OF, Route
from quiesce.participants.errors import ConfigurationError, UnsupportedVerb
from quiesce.participants.identity import AttemptId
from quiesce.participants.layout import check_participant_name
from quiesce.participants.validation import first_problems

__all__ = ["NAME", "build_call", "build_progress_call", "progress_route", "route_for"]

NAME: Final = "gym_a"

_PROGRESS: Final[Mapping[Role, str]] = {
    Role.POLICY: "model_status",
    Role.AGENT: "agent_status",
    Role.RESOURCES: "resources_status",
}


def route_for(spec: CallSpec) -> Route:
    """The route of a spec.

    Raises:
        UnsupportedVerb: generation A has no such verb for the role.
    """
    if spec.verb is Verb.ACKNOWLEDGE and spec.acknowledge_singly and spec.role is Role.AGENT:
        return ROUTE_BY_NAME["acknowledge"]
    if spec.verb is Verb.RENEW and spec.role in LEASE_ROUTE.served_by:
        return LEASE_ROUTE
    route = ROUTE_OF.get((spec.verb, spec.role))
    if route is None:
        raise UnsupportedVerb(NAME, spec.verb.value, spec.role.value, "its servers have no such route")
    return route


def progress_route(spec: CallSpec) -> Route:
    """The status route of the spec's role; raises UnsupportedVerb for auxiliary models, which take part in nothing."""
    name = _PROGRESS.get(spec.role)
    if name is None:
        raise UnsupportedVerb(NAME, "progress", spec.role.value, "auxiliary models take part in no cut")
    return ROUTE_BY_NAME[name]


def build_call(spec: CallSpec) -> WireCall:
    """How ``spec`` is put on the wire; errors as :meth:`quiesce.participants.dialects.base.Dialect.call`."""
    route = route_for(spec)
    if spec.verb in {Verb.EXPORT, Verb.IMPORT} and spec.participant_name:
        check_participant_name(spec.role, spec.participant_name)
    if route.request is not None:
        body = _checked(spec, _BODIES[spec.verb])
        return WireCall(route.method, route.path, json=body.model_dump(mode="json"), authorized=route.authorized)
    query = _status_query(spec, wait=True) if route.query is not None else None
    return WireCall(route.method, route.path, query=query, authorized=route.authorized)


def build_progress_call(spec: CallSpec) -> WireCall:
    """The status call of the spec's role: immediate, asks nothing of an agent or resource server."""
    route = progress_route(spec)
    return WireCall(route.method, route.path, query=_status_query(spec, wait=False), authorized=route.authorized)


def _checked(spec: CallSpec, build: Callable[[CallSpec], BaseModel]) -> BaseModel:
    try:
        return build(spec)
    except ValidationError as error:
        raise ConfigurationError(
            f"{spec.called}: the {spec.verb.value} call cannot be sent: {first_problems(error)}"
        ) from None


def _status_query(spec: CallSpec, *, wait: bool) -> dict[str, str]:
    _checked(spec, _envelope)
    query = {"checkpoint_id": spec.checkpoint_id}
    if spec.role is not Role.AGENT:
        query["deadline_ts"] = repr(float(spec.deadline_ts))
    if wait and spec.wait_s > 0:
        query |= {"wait_state": "paused", "timeout_s": f"{spec.wait_s:g}"}
    return query


def _envelope(spec: CallSpec) -> wire.ControlEnvelope:
    return wire.ControlEnvelope(checkpoint_id=spec.checkpoint_id, deadline_ts=spec.deadline_ts)


def _directory(spec: CallSpec) -> str:
    if not spec.checkpoint_dir:
        raise ConfigurationError(f"{spec.called}: {spec.verb.value} needs the checkpoint directory")
    return spec.checkpoint_dir


def _attempt(spec: CallSpec) -> AttemptId:
    if spec.attempt is None:
        raise ConfigurationError(f"{spec.called}: {spec.verb.value} needs the attempt that it is about")
    return spec.attempt


def _export(spec: CallSpec) -> wire.ControlEnvelope:
    directory = _directory(spec)
    if spec.role is not Role.POLICY:
        return wire.CommitRequest(
            checkpoint_id=spec.checkpoint_id, deadline_ts=spec.deadline_ts, checkpoint_dir=directory
        )
    return wire.ModelCommitRequest(
        checkpoint_id=spec.checkpoint_id,
        deadline_ts=spec.deadline_ts,
        checkpoint_dir=directory,
        continuation_indexes=tuple(wire.ArtefactReference.of(index) for index in spec.continuation_indexes),
    )


def _import(spec: CallSpec) -> wire.ControlEnvelope:
    directory = _directory(spec)
    return wire.RestoreRequest(checkpoint_id=spec.checkpoint_id, deadline_ts=spec.deadline_ts, checkpoint_dir=directory)


def _about_attempt(spec: CallSpec) -> wire.ControlEnvelope:
    attempt = _attempt(spec)
    return wire.AttemptRequest(
        checkpoint_id=spec.checkpoint_id,
        deadline_ts=spec.deadline_ts,
        rollout_id=attempt.rollout_id,
        attempt_index=attempt.attempt_index,
    )


def _acknowledge(spec: CallSpec) -> BaseModel:
    receipts = tuple(wire.CompletionReceipt.of(receipt) for receipt in spec.receipts)
    if not spec.acknowledge_singly:
        return wire.AcknowledgeCompletedRequest(executions=receipts)
    if len(receipts) != 1:
        raise ConfigurationError(f"{spec.called}: one receipt a call, not {len(receipts)}")
    return receipts[0]


_BODIES: Final[Mapping[Verb, Callable[[CallSpec], BaseModel]]] = {
    Verb.CLOSE: _envelope,
    Verb.AWAIT_CUT: _envelope,
    Verb.EXPORT: _export,
    Verb.IMPORT: _import,
    Verb.RELEASE: _envelope,
    Verb.ACKNOWLEDGE: _acknowledge,
    Verb.RETIRE: _about_attempt,
    Verb.DISCARD: _about_attempt,
    Verb.RENEW: _envelope,
}
