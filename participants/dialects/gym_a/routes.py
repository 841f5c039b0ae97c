"""THE route table of generation A: verb and role to method, path and models. No other file names a route.

The client builds its calls from it and the server kit mounts it. Sources: wire-protocol 2, 1.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from pydantic import BaseModel

from quiesce.fsm.vocabulary import Role, Verb
from quiesce.participants.dialects.gym_a import wire

__all__ = [
    "COORDINATOR_ROUTES",
    "INSTANCE_HEADER",
    "LEASE_ROUTE",
    "MODEL_SERVER_ROUTES",
    "PREFIX",
    "ROUTES",
    "ROUTE_BY_NAME",
    "ROUTE_OF",
    "Route",
    "routes_served_by",
]

PREFIX: Final = "/ng-control/v1"

INSTANCE_HEADER: Final = "x-quiesce-instance"
"""Reply header in which our kit names its incarnation. Other servers do not have it."""


@dataclass(frozen=True, slots=True)
class Route:
    """One route.

    Attributes:
        name: unique, for look-up and for tables in documents.
        method, path: as on the wire, with the prefix.
        served_by: roles whose servers have it. Auxiliary models have the model routes and refuse most of them.
        query: model of the query parameters, None for none.
        request: model of the JSON body, None for none.
        reply: model of the reply with status 200.
        coordinator_reply: its other shape where a coordinator answers, None where there is no other.
        verb: the abstract verb that a client sends it for; None for side routes.
        fenced: runs under the fence: replayed, refused for another id, moves the phase.
        authorized: wants the bearer token.
    """

    name: str
    method: str
    path: str
    served_by: frozenset[Role]
    reply: type[BaseModel]
    query: type[BaseModel] | None = None
    request: type[BaseModel] | None = None
    coordinator_reply: type[BaseModel] | None = None
    verb: Verb | None = None
    fenced: bool = True
    authorized: bool = True


_MODELS: Final = frozenset({Role.POLICY, Role.AUXILIARY})
_AGENTS: Final = frozenset({Role.AGENT})
_RESOURCES: Final = frozenset({Role.RESOURCES})


def _post(
    name: str,
    path: str,
    served_by: frozenset[Role],
    request: type[BaseModel],
    reply: type[BaseModel],
    verb: Verb | None,
    *,
    fenced: bool = True,
) -> Route:
    return Route(name, "POST", PREFIX + path, served_by, reply, request=request, verb=verb, fenced=fenced)


def _get(
    name: str,
    path: str,
    served_by: frozenset[Role],
    query: type[BaseModel],
    reply: type[BaseModel],
    verb: Verb | None = None,
    coordinator_reply: type[BaseModel] | None = None,
) -> Route:
    return Route(
        name,
        "GET",
        PREFIX + path,
        served_by,
        reply,
        query=query,
        verb=verb,
        coordinator_reply=coordinator_reply,
        fenced=False,
    )


_CAPABILITIES = Route(
    "capabilities",
    "GET",
    PREFIX + "/capabilities",
    frozenset(Role),
    wire.Capabilities,
    verb=Verb.INSPECT,
    fenced=False,
    authorized=False,
)

_MODEL_ROUTES = (
    _post("pause", "/model-admission/pause", _MODELS, wire.ControlEnvelope, wire.PauseReply, Verb.CLOSE),
    _get(
        "model_status",
        "/model-admission/status",
        _MODELS,
        wire.StatusQuery,
        wire.SingleWorkerStatus,
        Verb.AWAIT_CUT,
        wire.CoordinatorStatus,
    ),
    _post("model_resume", "/model-admission/resume", _MODELS, wire.ControlEnvelope, wire.ResumeReply, Verb.RELEASE),
    _post(
        "abort_inflight",
        "/model-admission/abort_inflight",
        _MODELS,
        wire.AbortInflightRequest,
        wire.AbortInflightReply,
        Verb.RETIRE,
    ),
    _post(
        "model_commit",
        "/model-checkpoint/commit",
        _MODELS,
        wire.ModelCommitRequest,
        wire.ModelCommitReply,
        Verb.EXPORT,
    ),
    _post(
        "model_restore",
        "/model-checkpoint/restore",
        _MODELS,
        wire.ModelRestoreRequest,
        wire.ModelRestoreReply,
        Verb.IMPORT,
    ),
)

_AGENT_ROUTES = (
    _post(
        "agent_prepare",
        "/agent-checkpoint/prepare",
        _AGENTS,
        wire.ControlEnvelope,
        wire.AgentPrepareReply,
        Verb.CLOSE,
    ),
    _get("agent_status", "/agent-checkpoint/status", _AGENTS, wire.IdQuery, wire.AgentStatusReply),
    _post("agent_commit", "/agent-checkpoint/commit", _AGENTS, wire.CommitRequest, wire.AgentCommitReply, Verb.EXPORT),
    _post(
        "agent_restore", "/agent-checkpoint/restore", _AGENTS, wire.RestoreRequest, wire.AgentRestoreReply, Verb.IMPORT
    ),
    _post(
        "agent_resume", "/agent-checkpoint/resume", _AGENTS, wire.ControlEnvelope, wire.AgentResumeReply, Verb.RELEASE
    ),
    _post(
        "agent_retire",
        "/agent-checkpoint/retire",
        _AGENTS,
        wire.RetireRequest,
        wire.AgentRetireReply,
        Verb.RETIRE,
        fenced=False,
    ),
    _post(
        "acknowledge",
        "/agent-checkpoint/acknowledge",
        _AGENTS,
        wire.CompletionReceipt,
        wire.AcknowledgeReply,
        None,
        fenced=False,
    ),
    _post(
        "acknowledge_completed",
        "/agent-checkpoint/acknowledge-completed",
        _AGENTS,
        wire.AcknowledgeCompletedRequest,
        wire.AcknowledgeCompletedReply,
        Verb.ACKNOWLEDGE,
        fenced=False,
    ),
    _post(
        "discard",
        "/agent-checkpoint/discard-restored-continuation",
        _AGENTS,
        wire.DiscardRequest,
        wire.DiscardReply,
        Verb.DISCARD,
        fenced=False,
    ),
)

_RESOURCE_ROUTES = (
    _post(
        "resources_prepare",
        "/resources-checkpoint/prepare",
        _RESOURCES,
        wire.ControlEnvelope,
        wire.ResourcesPrepareReply,
        Verb.CLOSE,
    ),
    _get(
        "resources_status",
        "/resources-checkpoint/status",
        _RESOURCES,
        wire.ResourcesStatusQuery,
        wire.ResourcesStatusReply,
    ),
    _post(
        "resources_commit",
        "/resources-checkpoint/commit",
        _RESOURCES,
        wire.CommitRequest,
        wire.ResourcesCommitReply,
        Verb.EXPORT,
    ),
    _post(
        "resources_restore",
        "/resources-checkpoint/restore",
        _RESOURCES,
        wire.RestoreRequest,
        wire.ResourcesRestoreReply,
        Verb.IMPORT,
    ),
    _post(
        "resources_resume",
        "/resources-checkpoint/resume",
        _RESOURCES,
        wire.ControlEnvelope,
        wire.ResourcesResumeReply,
        Verb.RELEASE,
    ),
    _post(
        "resources_retire",
        "/resources-checkpoint/retire",
        _RESOURCES,
        wire.RetireRequest,
        wire.ResourcesRetireReply,
        Verb.RETIRE,
    ),
)

LEASE_ROUTE: Final = _post(
    "renew",
    "/lease/renew",
    frozenset({Role.POLICY, Role.AGENT, Role.RESOURCES}),
    wire.ControlEnvelope,
    wire.RenewReply,
    Verb.RENEW,
    fenced=False,
)
"""Our extension of generation A, which has no leases: only where the feature is declared (docs/leases.md)."""

ROUTES: Final[tuple[Route, ...]] = (_CAPABILITIES, *_MODEL_ROUTES, *_AGENT_ROUTES, *_RESOURCE_ROUTES)

ROUTE_BY_NAME: Final[Mapping[str, Route]] = MappingProxyType({route.name: route for route in ROUTES})


def routes_served_by(role: Role) -> tuple[Route, ...]:
    """Every route that a server of this role has, in table order."""
    return tuple(route for route in ROUTES if role in route.served_by)


_EXPORTS: Final = ("model_commit", "model_restore")
COORDINATOR_ROUTES: Final[tuple[Route, ...]] = tuple(
    replace(route, query=wire.CoordinatorStatusQuery, reply=wire.CoordinatorStatus)
    if route.coordinator_reply
    else route
    for route in routes_served_by(Role.POLICY)
    if route.name not in _EXPORTS
)
"""What a recorded coordinator's control application has: no commit and no restore, whatever it declares (F23)."""

MODEL_SERVER_ROUTES: Final[tuple[Route, ...]] = (_CAPABILITIES, *(ROUTE_BY_NAME[name] for name in _EXPORTS))
"""What the model server beside a coordinator has (4.4)."""


def _by_verb() -> dict[tuple[Verb, Role], Route]:
    found: dict[tuple[Verb, Role], Route] = {}
    for route in ROUTES:
        for role in route.served_by:
            if route.verb is not None and (role is not Role.AUXILIARY or route.verb is Verb.INSPECT):
                found[(route.verb, role)] = route
    # agents and resource servers are awaited by repeating the prepare (wire-protocol 4.5, design 3)
    for role in (Role.AGENT, Role.RESOURCES):
        found[(Verb.AWAIT_CUT, role)] = found[(Verb.CLOSE, role)]
    return found


ROUTE_OF: Final[Mapping[tuple[Verb, Role], Route]] = MappingProxyType(_by_verb())
"""The route that a verb takes to a role; a pair that is missing is not part of generation A."""
